# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Recipes: YAML in, overrides with types, phases, and messages that name the nearest setting."""

from pathlib import Path

import pytest

from flaxattn.errors import InputError
from flaxattn.train.recipe import GlueRecipe, LanguageModelRecipe, PretrainRecipe, TranslationRecipe
from flaxattn.train.settings import read_recipe, to_yaml


def message(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert len(text.splitlines()) <= 3
    return text


def test_yaml_then_overrides_then_back(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("steps: 50\nlengths: [16, 32]\nlength_shares: [0.5, 0.5]\n", encoding="utf-8")
    recipe = read_recipe(
        PretrainRecipe, path, ["learning_rate=1e-3", "steps=70", "max_predictions=null"]
    )
    assert (recipe.steps, recipe.lengths, recipe.learning_rate) == (70, (16, 32), 1e-3)
    path.write_text(to_yaml(recipe), encoding="utf-8")
    assert read_recipe(PretrainRecipe, path) == recipe


def test_lists_and_whole_numbers_for_floats_in_overrides() -> None:
    recipe = read_recipe(PretrainRecipe, None, ["lengths=[8]", "length_shares=[1]", "clip_norm=2"])
    assert recipe.lengths == (8,)
    assert isinstance(recipe.clip_norm, float)


@pytest.mark.parametrize(
    ("pair", "parts"),
    [
        ("step=5", ["no such setting 'step'", "the nearest is 'steps'"]),
        ("quux=5", ["no such setting 'quux'", "settings: steps, batch_size"]),
        ("steps", ["--set 'steps' is not a setting", "expected key=value"]),
        ("steps=many", ["steps must be int", "received 'many' of type str"]),
        ("steps=1.5", ["steps must be int", "received 1.5 of type float"]),
        ("lowercase=3", ["lowercase must be bool"]),
        ("learning_rate=fast", ["learning_rate must be float"]),
        ("max_predictions=x", ["max_predictions must be int or none"]),
        ("steps=0", ["steps must be at least 1, got 0"]),
        ("steps=[1", ["--set 'steps=[1': the value is not YAML"]),
        ("lengths=[64,128]", ["every phase needs a length and a share"]),
        ("lengths=[4096]", ["length 4096 does not fit the model"]),
        ("schedule=polynomal", ["schedule 'polynomal' is unknown", "nearest is 'polynomial'"]),
        ("schedule=3", ["schedule 3 is unknown", "choose 'bert', 'linear', 'polynomial'"]),
        ("accumulate=3", ["a batch of 32 sequences has no 3 equal parts"]),
        ("checkpoint_every=-1", ["checkpoint_every must be at least 0, got -1"]),
    ],
)
def test_wrong_overrides(pair: str, parts: list[str]) -> None:
    with pytest.raises(InputError) as error:
        read_recipe(PretrainRecipe, None, [pair])
    for part in parts:
        assert part in message(error)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"- steps\n", "holds no settings"),
        (b"steps: [1", "is not YAML"),
        (b"steps: \xff", "is not YAML"),
        (b"stesp: 3", "the nearest is 'steps'"),
        (None, "cannot read recipe"),
    ],
)
def test_wrong_files(tmp_path: Path, content: bytes | None, part: str) -> None:
    path = tmp_path / "recipe.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_recipe(PretrainRecipe, path)
    assert part in message(error)


def test_phases_divide_the_steps() -> None:
    recipe = PretrainRecipe(lengths=(64, 128), length_shares=(0.9, 0.1), steps=10)
    assert [recipe.phase(step) for step in range(10)] == [0] * 9 + [1]


@pytest.mark.parametrize(("length", "count"), [(128, 20), (512, 77), (64, 10)])
def test_predictions_per_length_are_those_of_the_published_recipes(length: int, count: int) -> None:
    assert PretrainRecipe().predictions(length) == count
    assert PretrainRecipe(max_predictions=5).predictions(length) == 5


def test_epochs_decide_the_steps_of_fine_tuning() -> None:
    recipe = read_recipe(GlueRecipe, None, ["epochs=2", "batch_size=8", "evaluations_per_epoch=3"])
    filled = recipe.for_examples(100)
    assert (filled.steps, filled.warmup_steps, filled.evaluate_every) == (26, 3, 5)
    assert read_recipe(GlueRecipe, None, ["steps=7"]).for_examples(100).steps == 7


@pytest.mark.parametrize("steps", [1, 19, 30, 50, 1000])
def test_a_run_is_evaluated_at_most_twenty_times(steps: int) -> None:
    every = [
        GlueRecipe(steps=steps).for_examples(32).evaluate_every,
        TranslationRecipe(steps=steps).for_batches(1).evaluate_every,
        LanguageModelRecipe(steps=steps).for_rows(32, width=64).evaluate_every,
    ]
    assert min(every) >= 1
    assert max(-(-steps // updates) for updates in every) <= 20


@pytest.mark.parametrize(
    ("pair", "part"),
    [
        ("max_length=512", "no bucket holds max_length 512"),
        ("seeds=[]", "seeds and buckets need at least one entry"),
    ],
)
def test_wrong_settings_of_fine_tuning(pair: str, part: str) -> None:
    with pytest.raises(InputError) as error:
        read_recipe(GlueRecipe, None, [pair])
    assert part in message(error)


@pytest.mark.parametrize("name", ["bert-base-gpu", "bert-base-v5e-256"])
def test_recipes_that_come_with_it_are_found_by_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = read_recipe(PretrainRecipe, Path(name))
    assert (recipe.hidden_size, recipe.lengths, recipe.dtype) == (768, (128, 512), "bfloat16")
    (tmp_path / name).write_text("steps: 3", encoding="utf-8")
    assert read_recipe(PretrainRecipe, Path(name)).steps == 3  # a file of that name comes first
