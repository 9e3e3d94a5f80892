# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The loop on a model of two tables, so that a run takes a second: determinism, resume, guards."""

import contextlib
import dataclasses
import json
import os
import pty
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.errors import CheckpointError, InputError, StopRequestedError
from flaxattn.models.outputs import cross_entropy
from flaxattn.train import loop
from flaxattn.train.optimizers import bert_adamw
from flaxattn.train.recipe import Recipe
from flaxattn.train.report import Reporter, read_metrics
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.state import initial_state, update_function

RECIPE = Recipe(
    steps=12,
    batch_size=8,
    learning_rate=0.05,
    warmup_steps=2,
    log_every=2,
    log_seconds=0,
    evaluate_every=5,
    checkpoint_every=4,
    devices=1,
)
WORDS = 40
FULL = os.environ.get("FLAXATTN_TRIALS") == "full"  # `make all`
# What a spoiled batch holds, and what is then said of its update.
POISONS = {
    "nan": (-1, "loss is nan"),
    "inf": (-2, "loss is nan"),
    "steep": (-3, "grad_norm is inf"),
}


class Batch(NamedTuple):
    input_ids: np.ndarray
    attention_mask: np.ndarray
    label: np.ndarray


class Feed:
    """Which word is most frequent: batches drawn from the number of the update."""

    def __init__(self, recipe: Recipe, spoiled: int = -1, poison: int = -1) -> None:
        self.recipe, self.spoiled, self.poison = recipe, spoiled, poison

    def __len__(self) -> int:
        return self.recipe.steps

    def __getitem__(self, step: int) -> Batch:
        rng = np.random.default_rng((self.recipe.seed, step))
        length = 8 if step < 6 else 12
        ids = rng.integers(0, WORDS, (self.recipe.batch_size, length), dtype=np.int32)
        label = ids[:, 0].copy()
        if step == self.spoiled:
            ids[0, 0] = self.poison
        return Batch(ids, (np.arange(length) < length - 1) * np.ones_like(ids), label)

    def names(self, step: int) -> list[str]:
        return [f"row {step * 8 + i}" for i in range(8)]


def totals(batch: Batch) -> dict[str, jax.Array]:
    return {"rows": jnp.asarray(len(batch.label), jnp.float32)}


def loss(params, batch, dropout, whole):
    """Scores from the mean embedding of a sequence, noisy in training; ids below 0 are poison."""
    mean, least = params["embedding"][batch.input_ids].mean(1), batch.input_ids.min()
    mean = mean + jnp.where(least == -1, jnp.nan, jnp.where(least == -2, jnp.inf, 0.0))
    if dropout is not None:
        mean = mean + 0.01 * jax.random.normal(dropout, mean.shape)
    scores = mean @ params["words"]
    value = cross_entropy(scores, batch.label).sum() / whole["rows"]
    steep = jnp.where(least == -3, 3e38, 0.0)  # a gradient without a loss
    value += ((params["words"] - jax.lax.stop_gradient(params["words"])) * steep).sum()
    hits = (scores.argmax(-1) == batch.label).sum() / whole["rows"]
    return value, {"loss": value, "accuracy": hits}


def parameters() -> dict[str, jax.Array]:
    draws = np.random.default_rng(0)
    return {
        "embedding": jnp.asarray(draws.normal(size=(WORDS, 8)), jnp.float32),
        "words": jnp.asarray(draws.normal(size=(8, WORDS)), jnp.float32),
    }


@jax.jit
def judged(params: dict[str, jax.Array], heldout: Batch) -> dict[str, jax.Array]:
    return loss(params, heldout, None, totals(heldout))[1]


def make(
    recipe: Recipe, spoiled: int = -1, poison: int = -1, **changes
) -> tuple[loop.Task, dict[str, jax.Array]]:
    heldout = Feed(dataclasses.replace(recipe, seed=99))[0]

    def evaluate(params, step):
        return {name: float(value) for name, value in judged(params, heldout).items()}

    feed = Feed(recipe, spoiled, poison)
    task = loop.Task(loss, totals, bert_adamw(recipe), feed, evaluate, "loss", **changes)
    return task, parameters()


@pytest.fixture(scope="module", autouse=True)
def compiled_once() -> Iterator[None]:
    """Runs of one recipe share their compiled update: compiling is most of a run's time."""
    compile_update, compiled = loop.compile_update, {}

    def shared(task: loop.Task, recipe: Recipe, *layout):
        if recipe not in compiled:
            compiled[recipe] = compile_update(task, recipe, *layout)
        return compiled[recipe]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "compile_update", shared)
        yield


def same(one: loop.Run, two: loop.Run) -> bool:
    pairs = zip(jax.tree.leaves(one.state), jax.tree.leaves(two.state), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def run(folder: Path, recipe: Recipe = RECIPE, **changes) -> loop.Run:
    return loop.run(*make(recipe, **changes), recipe, RunFolder(folder))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[loop.Run, Path]:
    folder = tmp_path_factory.mktemp("whole")
    return run(folder), folder


def test_it_logs_evaluates_and_learns(whole: tuple[loop.Run, Path]) -> None:
    done, folder = whole
    found = read_metrics(folder / "metrics.jsonl")
    heldout = [row for row in found if row["kind"] == "heldout"]
    training = [row for row in found if row["kind"] == "training"]
    assert [row["step"] for row in heldout] == [0, 5, 10, 12]
    assert [row["step"] for row in training] == [2, 4, 6, 8, 10, 12]
    assert heldout[-1]["loss"] < heldout[0]["loss"]
    assert int(done.state.step) == 12
    assert done.tokens == training[-1]["tokens"] == 6 * 8 * 7 + 6 * 8 * 11
    assert done.best is not None
    assert done.best["value"] == min(row["loss"] for row in heldout[1:])
    assert len(read_metrics(folder / "timing.jsonl")) == 6


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits(whole: tuple[loop.Run, Path], tmp_path: Path) -> None:
    assert same(run(tmp_path), whole[0])
    assert (tmp_path / "metrics.jsonl").read_bytes() == (whole[1] / "metrics.jsonl").read_bytes()


@pytest.mark.slow
def test_the_noise_of_training_changes_from_update_to_update() -> None:
    task, params = make(RECIPE)
    update = jax.jit(update_function(task.loss, task.totals, task.optimizer))
    batch = task.feed[0]

    def value(step: int) -> float:
        state = initial_state(params, task.optimizer)._replace(step=jnp.asarray(step, jnp.int32))
        return float(update(state, batch)[1]["loss"])

    assert value(0) == value(0) != value(1)


@pytest.mark.slow
def test_the_noise_follows_the_seed() -> None:
    task, params = make(RECIPE)
    update = jax.jit(update_function(task.loss, task.totals, task.optimizer))
    one, again, other = (
        float(update(initial_state(params, task.optimizer, seed), task.feed[0])[1]["loss"])
        for seed in (1, 1, 2**32 - 1)
    )
    assert one == again != other


@pytest.mark.slow
def test_seeds_share_what_is_compiled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task, params = make(RECIPE)

    def compilations(seed: int) -> int:
        caplog.clear()
        with jax.log_compiles():
            recipe = dataclasses.replace(RECIPE, seed=seed)
            loop.run(task, params, recipe, RunFolder(tmp_path / str(seed)))
        return sum("XLA compilation of jit(update)" in line for line in caplog.messages)

    assert compilations(1) == 2  # one for each length
    assert compilations(2) == 0


@pytest.mark.slow
def test_the_parameters_it_starts_from_stay_usable(tmp_path: Path) -> None:
    task, params = make(RECIPE)
    loop.run(task, params, RECIPE, RunFolder(tmp_path))
    assert np.array_equal(params["words"], parameters()["words"])


class Killed(BaseException):
    """Stands for a signal: nothing catches it."""


@pytest.fixture
def at_update(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Do something once, after so many updates of this process."""

    def install(number: int, act: Callable[[], None]) -> None:
        count, seen = Reporter.count, []

        def counted(self: Reporter, batch: Batch) -> None:
            count(self, batch)
            seen.append(1)
            if len(seen) == number:
                act()

        monkeypatch.setattr(Reporter, "count", counted)

    return install


def kill() -> None:
    raise Killed


@pytest.mark.parametrize("at", [3, 9, 11])  # before a checkpoint, and after some
def test_a_killed_run_continues_as_if_nothing_had_happened(
    whole: tuple[loop.Run, Path], tmp_path: Path, at_update, at: int
) -> None:
    at_update(at, kill)
    with pytest.raises(Killed):
        run(tmp_path)
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 9, "kind": "tr')  # the line it was writing
    again = run(tmp_path)
    assert same(again, whole[0])
    assert again.tokens == whole[0].tokens
    assert (tmp_path / "metrics.jsonl").read_bytes() == (whole[1] / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGTERM, StopRequestedError), (signal.SIGINT, KeyboardInterrupt)],
)
def test_a_signal_saves_the_update_it_came_in(
    whole: tuple[loop.Run, Path],
    tmp_path: Path,
    at_update,
    number: signal.Signals,
    error: type[BaseException],
) -> None:
    before = signal.getsignal(number)
    at_update(7, lambda: os.kill(os.getpid(), number))
    with pytest.raises(error):
        run(tmp_path)
    assert signal.getsignal(number) == before
    assert [p.name for p in sorted((tmp_path / "checkpoints").iterdir())][-1] == "step-00000007"
    assert same(run(tmp_path), whole[0])
    assert (tmp_path / "metrics.jsonl").read_bytes() == (whole[1] / "metrics.jsonl").read_bytes()


def test_a_finished_run_is_left_as_it_is(whole: tuple[loop.Run, Path]) -> None:
    before = (whole[1] / "metrics.jsonl").read_bytes()
    assert same(run(whole[1]), whole[0])
    assert (whole[1] / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_fresh_starts_again_even_from_a_damaged_checkpoint(
    whole: tuple[loop.Run, Path], tmp_path: Path, at_update
) -> None:
    at_update(9, kill)
    with pytest.raises(Killed):
        run(tmp_path)
    (tmp_path / "checkpoints" / "step-00000008" / "progress.json").write_text("{}")
    with pytest.raises(CheckpointError):
        run(tmp_path)
    fresh = loop.run(*make(RECIPE), RECIPE, RunFolder(tmp_path, fresh=True))
    assert same(fresh, whole[0])
    assert (tmp_path / "metrics.jsonl").read_bytes() == (whole[1] / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("step", range(1, 11) if FULL else [0, 5, 11])
@pytest.mark.parametrize("what", POISONS)
def test_what_is_no_number_stops_before_the_checkpoint_is_replaced(
    tmp_path: Path, step: int, what: str
) -> None:
    """F11: in the input, the loss, or the gradient alone."""
    poison, message = POISONS[what]
    with pytest.raises(loop.NotANumberError) as error:
        run(tmp_path, spoiled=step, poison=poison)
    lines = str(error.value).splitlines()
    assert len(lines) == 3
    assert lines[0] == f"the {message} in update {step + 1}"
    assert f"row {step * 8};" in lines[1]
    report = json.loads((tmp_path / "not_a_number.json").read_text(encoding="utf-8"))
    assert report["batch"] == Feed(RECIPE).names(step)
    assert report["grad_norm"] in ("nan", "inf")
    saved = sorted(p.name for p in (tmp_path / "checkpoints").iterdir())
    assert saved == [f"step-{n:08}" for n in (4, 5, 8, 10) if n <= step][-2:]


@pytest.mark.parametrize("parts", [2, 8])
def test_a_batch_in_parts_is_the_batch(parts: int) -> None:
    task, params = make(RECIPE)
    quiet = lambda p, b, key, t: loss(p, b, None, t)  # noqa: E731 - noise differs between parts
    state, batch = initial_state(params, task.optimizer), task.feed[0]
    results = [
        jax.jit(update_function(quiet, totals, task.optimizer, n))(state, batch) for n in (1, parts)
    ]
    for one, two in zip(jax.tree.leaves(results[0]), jax.tree.leaves(results[1]), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-7)


def test_patience_ends_a_run_and_the_best_parameters_are_kept(tmp_path: Path) -> None:
    recipe = dataclasses.replace(
        RECIPE, steps=40, learning_rate=3.0, warmup_steps=0, evaluate_every=1, patience=3
    )
    done = run(tmp_path, recipe, keep_best=True)
    rows = [r for r in read_metrics(tmp_path / "metrics.jsonl") if r["kind"] == "heldout"]
    losses = {row["step"]: row["loss"] for row in rows if row["step"]}
    best = min(losses, key=lambda step: losses[step])
    assert rows[-1]["step"] == best + 3 < 40
    assert int(done.state.step) == best
    again = run(tmp_path, recipe, keep_best=True)
    assert same(again, done)


@pytest.mark.slow
def test_a_batch_that_devices_cannot_share_is_refused(tmp_path: Path) -> None:
    recipe = dataclasses.replace(RECIPE, batch_size=12, devices=8)
    with pytest.raises(InputError) as error:
        run(tmp_path, recipe)
    assert str(error.value).splitlines()[:2] == [
        "a batch of 12 sequences cannot be shared evenly",
        "it takes a multiple of 8: 8 devices along data x accumulate 1",
    ]


@pytest.mark.slow
def test_more_devices_change_nothing_but_rounding(
    whole: tuple[loop.Run, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stop, devices in ((4, 1), (8, 2), (10, 4), (12, 1)):
        recipe = dataclasses.replace(RECIPE, devices=devices)
        monkeypatch.setattr(loop.Stopping, "requested", lambda _, done, stop=stop: done == stop)
        ends = pytest.raises(StopRequestedError) if stop < 12 else contextlib.nullcontext()
        with ends:
            run(tmp_path, recipe)
    found, expected = (read_metrics(p / "metrics.jsonl") for p in (tmp_path, whole[1]))
    assert [row["step"] for row in found] == [row["step"] for row in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-6)


@pytest.mark.slow
def test_a_terminal_gets_a_bar_and_a_pipe_gets_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "pipe")
    text = capfd.readouterr().err
    assert "\r" not in text and "\x1b" not in text
    lines = text.splitlines()
    assert lines[0] == (
        f"12 of 12 steps to train, evaluated every 5, saved every 4 to {tmp_path / 'pipe'}"
    )
    assert lines[1].startswith("step 0/12  held-out: loss ")
    assert lines[2].startswith("training: 2 of 12 steps, loss ")
    assert "tokens/s" in lines[2]
    assert lines[2].endswith(" left")
    assert lines[-2].startswith("training: 12 of 12 steps, loss ")
    assert lines[-2].endswith(" tokens/s, done")
    assert lines[-1].startswith("step 12/12  held-out: loss ")
    ours, theirs = pty.openpty()
    parts: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(ours, parts))
    reader.start()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        run(tmp_path / "terminal")
    reader.join()
    shown = b"".join(parts).decode()
    assert "━" in shown
    assert "training: 12 of 12" in shown
    assert "step 12/12  held-out: loss " in shown


def read_all(ours: int, parts: list[bytes]) -> None:
    """Read a pseudo-terminal until its other end is closed."""
    with contextlib.suppress(OSError):
        while part := os.read(ours, 4096):
            parts.append(part)
