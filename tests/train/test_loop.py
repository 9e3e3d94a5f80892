# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The loop on a model of two tables, so that a run takes a second: determinism, resume, guards."""

import dataclasses
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.errors import CheckpointError
from flaxattn.tokens import Tokenizer, train_wordpiece
from flaxattn.train import loop
from flaxattn.train.data import Batch, Feed, Position
from flaxattn.train.objectives import Metrics, pretraining_loss
from flaxattn.train.recipe import Recipe
from flaxattn.train.state import TrainState, bert_adamw

COMPILE = loop.compile_steps
COMPILED: dict[Recipe, tuple[object, object]] = {}
RECIPE = Recipe(
    steps=12,
    batch_size=4,
    lengths=(16, 24),
    length_shares=(0.5, 0.5),
    learning_rate=0.05,
    warmup_steps=2,
    evaluate_every=5,
    evaluate_batches=2,
    checkpoint_every=4,
    log_seconds=0,
)


def bag_loss(
    params: dict[str, jax.Array], batch: Batch, dropout: jax.Array | None
) -> tuple[jax.Array, Metrics]:
    """Scores from the mean embedding of a sequence, noisy while training."""
    mask = batch.attention_mask[..., None].astype(jnp.float32)
    mean = (params["embedding"][batch.input_ids] * mask).mean(1)
    if dropout is not None:
        mean = mean + 0.01 * jax.random.normal(dropout, mean.shape)
    words = mean[:, None] @ params["words"] + jnp.zeros((1, batch.masked_ids.shape[1], 1))
    return pretraining_loss(
        words,
        mean[:, :2],
        batch.masked_ids,
        batch.masked_weights,
        batch.next_sentence_label,
    )


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece(["a few words for a small vocabulary of pieces"] * 3, 60, True)


@pytest.fixture(scope="module")
def make(tokenizer: Tokenizer) -> Callable[..., tuple[loop.Task, dict[str, jax.Array]]]:
    rng = random.Random(1)
    corpus = [
        [[rng.randint(5, 20) for _ in range(rng.randint(3, 9))] for _ in range(12)]
        for _ in range(8)
    ]

    def build(
        recipe: Recipe, loss: loop.LossFunction = bag_loss
    ) -> tuple[loop.Task, dict[str, jax.Array]]:
        draws = np.random.default_rng(0)
        params = {
            "embedding": jnp.asarray(draws.normal(size=(tokenizer.vocab_size, 8)), jnp.float32),
            "words": jnp.asarray(draws.normal(size=(8, tokenizer.vocab_size)), jnp.float32),
        }
        feeds = (Feed(corpus, tokenizer, recipe), Feed(corpus, tokenizer, recipe, label="heldout"))
        return loop.Task(loss, bert_adamw(recipe), *feeds), params

    return build


@pytest.fixture(scope="module", autouse=True)
def compiled_once() -> Iterator[None]:
    """Runs of one recipe share their compiled functions: compiling is most of a run's time."""

    def shared(task: loop.Task, recipe: Recipe) -> tuple[object, object]:
        if recipe not in COMPILED:
            COMPILED[recipe] = COMPILE(task, recipe)
        return COMPILED[recipe]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "compile_steps", shared)
        yield


def rows(folder: Path) -> list[dict[str, object]]:
    """Metrics without the time they took."""
    found = loop.read_metrics(folder / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found]


def same(one: loop.Run, two: loop.Run) -> bool:
    pairs = zip(jax.tree.leaves(one.state), jax.tree.leaves(two.state), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


@pytest.fixture(scope="module")
def whole(
    make: Callable[..., tuple[loop.Task, dict[str, jax.Array]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[loop.Run, Path]:
    folder = tmp_path_factory.mktemp("whole")
    return loop.run(*make(RECIPE), RECIPE, folder), folder


def test_it_logs_evaluates_and_learns(whole: tuple[loop.Run, Path]) -> None:
    done, folder = whole
    found = loop.read_metrics(folder / "metrics.jsonl")
    heldout = [row for row in found if row["kind"] == "heldout"]
    assert [row["step"] for row in heldout] == [0, 5, 10, 12]
    assert [row["length"] for row in heldout] == [24, 16, 24, 24]
    assert [row["step"] for row in found if row["kind"] == "training"] == list(range(1, 13))
    assert heldout[-1]["mlm_loss"] < heldout[0]["mlm_loss"]
    assert int(done.state.step) == 12
    assert done.tokens == found[-2]["tokens"] > 12 * 4 * 10


def test_the_same_seed_gives_the_same_bits(
    make: Callable[..., tuple[loop.Task, dict[str, jax.Array]]],
    whole: tuple[loop.Run, Path],
    tmp_path: Path,
) -> None:
    assert same(loop.run(*make(RECIPE), RECIPE, tmp_path), whole[0])
    assert rows(tmp_path) == rows(whole[1])


def test_the_noise_of_training_changes_from_update_to_update(
    make: Callable[..., tuple[loop.Task, dict[str, jax.Array]]],
) -> None:
    task, params = make(RECIPE)
    update, _ = loop.compile_steps(task, RECIPE)
    batch = task.training.batch(Position(), 16)

    def loss(step: int) -> float:
        fresh = jax.tree.map(jnp.copy, params)  # the old state is given up
        state = TrainState(fresh, task.optimizer.init(fresh), jnp.asarray(step, jnp.int32))
        return float(update(state, batch)[1]["loss"])

    assert loss(0) == loss(0) != loss(1)


class Killed(BaseException):
    """Stands for a signal: nothing catches it."""


@pytest.mark.parametrize("at", [3, 6, 9, 10])  # before a checkpoint, and after one or two
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    make: Callable[..., tuple[loop.Task, dict[str, jax.Array]]],
    whole: tuple[loop.Run, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
) -> None:
    report = loop.Reporter.training

    def stop(self: loop.Reporter, done: int, *values: object) -> None:
        report(self, done, *values)
        if done == at:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(loop.Reporter, "training", stop)
        loop.run(*make(RECIPE), RECIPE, tmp_path)
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 9, "kind": "tr')  # the line it was writing
    again = loop.run(*make(RECIPE), RECIPE, tmp_path)
    assert same(again, whole[0])
    assert again.tokens == whole[0].tokens
    assert rows(tmp_path) == rows(whole[1])


def test_a_finished_run_is_left_as_it_is(
    make: Callable[..., tuple[loop.Task, dict[str, jax.Array]]], whole: tuple[loop.Run, Path]
) -> None:
    before = rows(whole[1])
    assert same(loop.run(*make(RECIPE), RECIPE, whole[1]), whole[0])
    assert rows(whole[1]) == before


def test_fresh_starts_again_even_from_a_damaged_checkpoint(
    make: Callable[..., tuple[loop.Task, dict[str, jax.Array]]],
    whole: tuple[loop.Run, Path],
    tmp_path: Path,
) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"damaged")
    with pytest.raises(CheckpointError):
        loop.run(*make(RECIPE), RECIPE, tmp_path)
    assert same(loop.run(*make(RECIPE), RECIPE, tmp_path, fresh=True), whole[0])


def test_a_loss_that_is_no_number_stops_before_the_checkpoint_is_replaced(
    make: Callable[..., tuple[loop.Task, dict[str, jax.Array]]], tmp_path: Path
) -> None:
    recipe = dataclasses.replace(RECIPE, learning_rate=1e30, warmup_steps=5, log_seconds=1e9)
    with pytest.raises(loop.NotANumberError) as error:
        loop.run(*make(recipe), recipe, tmp_path)
    lines = str(error.value).splitlines()
    assert lines[0] in ("the loss is nan in update 3", "the loss is inf in update 3")
    assert len(lines) == 3
    assert not (tmp_path / "checkpoint.safetensors").exists()


def test_a_terminal_gets_a_bar_and_a_pipe_gets_lines(
    make: Callable[..., tuple[loop.Task, dict[str, jax.Array]]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop.run(*make(RECIPE), RECIPE, tmp_path / "pipe")
    lines = capfd.readouterr().err.splitlines()
    assert lines[1].startswith("step 1/12  loss ")
    assert "tokens/s" in lines[1]
    assert lines[1].endswith(" left")
    assert lines[-1].startswith("step 12/12  held-out: mlm loss ")
    monkeypatch.setenv("FORCE_COLOR", "1")
    loop.run(*make(RECIPE), RECIPE, tmp_path / "terminal")
    shown = capfd.readouterr().err
    assert "━" in shown
    assert "12/12" in shown
