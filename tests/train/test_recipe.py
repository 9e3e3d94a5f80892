# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Recipes: YAML in, overrides with types, phases, and messages that name the nearest setting."""

from pathlib import Path

import pytest
import yaml

from flaxattn.errors import InputError
from flaxattn.train.recipe import Recipe, read_recipe


def message(error: pytest.ExceptionInfo[BaseException]) -> str:
    text = str(error.value)
    assert len(text.splitlines()) <= 3
    return text


def test_yaml_then_overrides_then_back(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("steps: 50\nlengths: [16, 32]\nlength_shares: [0.5, 0.5]\n", encoding="utf-8")
    recipe = read_recipe(path, ["learning_rate=1e-3", "steps=70", "max_predictions=null"])
    assert (recipe.steps, recipe.lengths, recipe.learning_rate) == (70, (16, 32), 1e-3)
    path.write_text(yaml.safe_dump(recipe.to_dict()), encoding="utf-8")
    assert read_recipe(path) == recipe


def test_lists_and_whole_numbers_for_floats_in_overrides() -> None:
    recipe = read_recipe(None, ["lengths=[8]", "length_shares=[1]", "clip_norm=2"])
    assert recipe.lengths == (8,)
    assert isinstance(recipe.clip_norm, float)


@pytest.mark.parametrize(
    ("pair", "parts"),
    [
        ("step=5", ["no such setting 'step'", "the nearest is 'steps'"]),
        ("quux=5", ["no such setting 'quux'", "settings: vocab_size"]),
        ("steps", ["--set 'steps' is no setting", "expected key=value"]),
        ("steps=many", ["steps must be int", "received 'many' of type str"]),
        ("steps=1.5", ["steps must be int", "received 1.5 of type float"]),
        ("lowercase=3", ["lowercase must be bool"]),
        ("learning_rate=fast", ["learning_rate must be float"]),
        ("max_predictions=x", ["max_predictions must be int or none"]),
        ("steps=0", ["steps must be at least 1, got 0"]),
        ("steps=[1", ["--set 'steps=[1': the value is no YAML"]),
        ("lengths=[64,128]", ["every phase needs a length and a share"]),
        ("lengths=[4096]", ["length 4096 does not fit the model"]),
        ("position_init=fuorier", ["position_init 'fuorier' is unknown"]),
    ],
)
def test_wrong_overrides(pair: str, parts: list[str]) -> None:
    with pytest.raises(InputError) as error:
        read_recipe(None, [pair])
    for part in parts:
        assert part in message(error)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"- steps\n", "holds no settings"),
        (b"steps: [1", "is no YAML"),
        (b"steps: \xff", "is no YAML"),
        (b"stesp: 3", "the nearest is 'steps'"),
        (None, "cannot read recipe"),
    ],
)
def test_wrong_files(tmp_path: Path, content: bytes | None, part: str) -> None:
    path = tmp_path / "recipe.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_recipe(path)
    assert part in message(error)


def test_phases_divide_the_steps() -> None:
    recipe = Recipe(lengths=(64, 128), length_shares=(0.9, 0.1), steps=10)
    assert [recipe.phase(step) for step in range(10)] == [0] * 9 + [1]


@pytest.mark.parametrize(("length", "count"), [(128, 20), (512, 77), (64, 10)])
def test_predictions_per_length_are_those_of_the_published_recipes(length: int, count: int) -> None:
    assert Recipe().predictions(length) == count
    assert Recipe(max_predictions=5).predictions(length) == 5
