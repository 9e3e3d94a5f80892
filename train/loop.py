# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The training loop: `run`, then `train`, to be read from top to bottom.

It resumes by itself, evaluates, logs, saves, stops early where the recipe says so, and raises at
the first loss that is not finite. The loss is an argument and data are batches by number; this file
knows neither a model nor a data format.
"""

import functools
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple, Protocol, Self

import grain
import jax
import numpy as np
import optax
from absl import flags
from jax.sharding import Mesh

from flaxattn.errors import InputError, StopRequestedError
from flaxattn.models.parameter_shardings import state_shardings
from flaxattn.train.checkpoints import Checkpoints
from flaxattn.train.recipe import Recipe
from flaxattn.train.report import Reporter
from flaxattn.train.run_folder import RunFolder, write_json
from flaxattn.train.state import (
    Batch,
    LossFunction,
    Metrics,
    Params,
    Totals,
    TrainState,
    batch_sharding,
    check_rows,
    initial_state,
    make_mesh,
    place_batch,
    update_function,
)


class Stopping:
    """Watches for SIGTERM and SIGINT while its block runs; a second signal ends at once.

    On several hosts jax's own service watches for SIGTERM.
    """

    def __init__(self) -> None:
        self._signal = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if jax.process_count() == 1:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def requested(self, step: int) -> bool:
        """Return whether to stop after update `step`; the same answer on every host."""
        if jax.process_count() == 1:
            return self._signal != 0
        from jax.experimental import multihost_utils

        return multihost_utils.reached_preemption_sync_point(step)

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C was pressed."""
        return self._signal == signal.SIGINT

    def leave(self, step: int) -> None:
        """End the run, the state of `step` being saved."""
        if self.interrupted:
            raise KeyboardInterrupt
        raise StopRequestedError(
            f"stopped and saved after update {step}; the same command continues"
        )

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self._signal:  # they mean it
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._signal = number


Update = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


class Feed(Protocol):
    """Batches by number: a pure function, so that hosts, workers and restarts agree."""

    def __len__(self) -> int:
        """Updates it can serve."""
        ...

    def __getitem__(self, step: int) -> Batch:
        """This host's rows of the batch of an update: a named tuple of NumPy arrays."""
        ...

    def names(self, step: int) -> list[str]:
        """The examples of the whole batch, for the report of a bad one."""
        ...


class Task(NamedTuple):
    """Task of the loop: model, data and evaluation.

    Attributes:
        loss: Function of parameters, a batch, a dropout key (None switches dropout off) and totals.
        totals: Numbers that a batch's sums are divided by; see `update_function`.
        optimizer: Turns gradients into updates.
        feed: The batches to learn from.
        evaluate: Held-out metrics of parameters, after a number of updates.
        watch: The held-out metric that says which parameters are best.
        higher: Whether more of it is better.
        keep_best: Whether the result is the best parameters or the last ones.
        average: The result is the mean of the parameters of so many last evaluations instead, each
            of which is saved; 1 for no mean.
        flops: Matrix multiplications' operations of one update on a batch, for MFU.
        update_bytes: Bytes of the arrays of an update, beside the state; 0 where they were not
            counted.
    """

    loss: LossFunction
    totals: Callable[[Batch], Totals]
    optimizer: optax.GradientTransformation
    feed: Feed
    evaluate: Callable[[Params, int], dict[str, float]]
    watch: str
    higher: bool = False
    keep_best: bool = False
    average: int = 1
    flops: Callable[[Batch], float] | None = None
    update_bytes: int = 0


class NotANumberError(InputError):
    """The loss or its gradient became infinite or NaN; the last checkpoint is untouched."""


@dataclass
class Run:
    """Progress of a run: its state, and what a restart must know beside it."""

    state: TrainState
    tokens: int = 0
    seconds: float = 0.0
    pending: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    without_gain: int = 0

    def progress(self) -> dict[str, Any]:
        """The part that is not an array, for a checkpoint."""
        return {name: value for name, value in vars(self).items() if name != "state"}


def run(task: Task, params: Params, recipe: Recipe, folder: RunFolder) -> Run:
    """Train until the recipe's last step, from the folder's newest checkpoint if there is one."""
    mesh = make_mesh(recipe)
    start = functools.partial(initial_state, optimizer=task.optimizer, seed=recipe.seed)
    like = jax.eval_shape(start, params)
    layout = state_shardings(like, mesh)
    update = compile_update(task, recipe, layout, mesh)
    averaged = functools.partial(due_evaluation, recipe)
    saving = Checkpoints(folder, recipe.keep_checkpoints, averaged, task.average)
    with jax.set_mesh(mesh), saving as saved, Stopping() as stop:
        if found := saved.newest(like, mesh):
            now = Run(found[0], **found[1])
        else:
            now = Run(jax.jit(start, out_shardings=layout)(params))
        first = int(now.state.step)
        with Reporter(folder, recipe, first, task.flops, task.update_bytes) as report:
            train(task, recipe, mesh, update, now, report, saved, stop, folder)
        if task.average > 1:
            saved.wait()
            now.state = now.state._replace(params=saved.averaged(like, mesh))
        elif task.keep_best and now.best:
            saved.wait()
            now.state = saved.load(now.best["step"], like, mesh)[0]
    return now


def compile_update(task: Task, recipe: Recipe, layout: Any, mesh: Mesh) -> Update:
    """The jitted update; the old state is given up, the new one lies as `layout` says."""
    compute = update_function(task.loss, task.totals, task.optimizer, recipe.accumulate)
    return jax.jit(
        compute,
        donate_argnums=0,
        in_shardings=(layout, batch_sharding(mesh)),
        out_shardings=(layout, None),
    )


def train(
    task: Task,
    recipe: Recipe,
    mesh: Mesh,
    update: Update,
    now: Run,
    report: Reporter,
    saved: Checkpoints,
    stop: Stopping,
    folder: RunFolder,
) -> None:
    """Every update from where `now` stands; `run` prepares what it takes."""
    first = int(now.state.step)
    if first == 0:
        report.heldout(0, task.evaluate(now.state.params, 0))
    started, already = time.monotonic(), now.seconds
    for step, batch in batches(task.feed, recipe, first):
        if ended_early(recipe, now):
            break
        check_rows(len(batch[0]) * jax.process_count(), mesh, recipe.accumulate)
        now.state, metrics = update(now.state, place_batch(batch, mesh))
        now.pending.append(metrics)
        report.count(batch)
        done, last = step + 1, step + 1 == recipe.steps
        logs = last or done % recipe.log_every == 0
        evaluates = due_evaluation(recipe, done)
        requested = stop.requested(done)
        saves = last or requested or _due(done, recipe.checkpoint_every)
        saves |= evaluates and task.average > 1
        if logs or evaluates or saves or report.late():
            fetch(now.pending)
            check(now.pending, done, task.feed, folder.path)
            now.seconds = already + time.monotonic() - started
        if logs:
            now.tokens += int(sum(row["tokens"] for row in now.pending))
            report.training(done, mean(now.pending), now.tokens, now.seconds)
            now.pending.clear()
        if evaluates:
            saves |= judge(task, now, report.heldout(done, task.evaluate(now.state.params, done)))
        if saves:
            saved.save(done, now.state, now.progress())
        if requested and not last:
            saved.wait()
            if stop.interrupted:  # else the error says so
                report.stopped(done)
            stop.leave(done)


def batches(feed: Feed, recipe: Recipe, first: int) -> Iterator[tuple[int, Batch]]:
    """Updates and their batches from `first` on, prepared ahead by threads or processes.

    An element is a whole batch that depends on its number alone, so the state of this pipeline is
    the number of the update, whatever prepares it.
    """
    source: Any = feed  # grain's own protocol names the argument of __getitem__ otherwise
    wanted = grain.MapDataset.source(source).slice(slice(first, recipe.steps))
    ahead = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    data = wanted.to_iter_dataset(ahead)
    if recipe.workers:
        flags.FLAGS.mark_as_parsed()  # grain's workers read absl's flags, of which we set none
        data = data.mp_prefetch(grain.MultiprocessingOptions(num_workers=recipe.workers))
    yield from enumerate(iter(data), first)


def judge(task: Task, now: Run, metrics: dict[str, float]) -> bool:
    """Note whether an evaluation is the best so far; answers whether it is."""
    value = metrics[task.watch]
    sign = 1 if task.higher else -1
    better = now.best is None or sign * value > sign * now.best["value"]
    now.without_gain = 0 if better else now.without_gain + 1
    if better:
        now.best = {"step": int(now.state.step), "value": value}
    return better


def due_evaluation(recipe: Recipe, done: int) -> bool:
    """Return whether the state after so many updates is evaluated; not the one before the first."""
    return done == recipe.steps or _due(done, recipe.evaluate_every)


def ended_early(recipe: Recipe, now: Run) -> bool:
    """Return whether the held-out metric has not improved for `patience` evaluations."""
    return bool(recipe.patience) and now.without_gain >= recipe.patience


def fetch(pending: list[Any]) -> None:
    """Turn metrics that still lie on a device into numbers, in place."""
    pending[:] = [{name: float(np.asarray(v)) for name, v in row.items()} for row in pending]


def mean(rows: list[dict[str, float]]) -> dict[str, float]:
    """Mean of each metric over updates."""
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def check(pending: list[dict[str, float]], done: int, feed: Feed, folder: Path) -> None:
    """Raise if a loss or gradient is not finite; `not_a_number.json` names the batch."""
    for back, row in enumerate(pending):
        if np.isfinite(row["loss"]) and np.isfinite(row["grad_norm"]):
            continue
        step = done - len(pending) + back + 1
        names = feed.names(step - 1)
        values = {name: str(value) for name, value in row.items()}
        if jax.process_index() == 0:
            write_json(folder / "not_a_number.json", {"update": step, **values, "batch": names})
        what = "loss" if not np.isfinite(row["loss"]) else "grad_norm"
        raise NotANumberError(
            f"the {what} is {row[what]} in update {step}\n"
            f"its batch starts with {names[0]}; not_a_number.json names all {len(names)} examples\n"
            "the checkpoints are from before it; lower learning_rate or lengthen warmup_steps"
        )


def _due(done: int, every: int) -> bool:
    return every > 0 and done % every == 0
