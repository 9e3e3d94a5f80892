# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The training loop: one function, `run`, to be read from top to bottom.

It resumes by itself, evaluates, logs, saves, and stops at the first loss that is no number. What
is minimised comes in as a function; this file knows neither a model nor a data format.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from flaxattn.errors import InputError
from flaxattn.train.data import Batch, Feed, Position
from flaxattn.train.objectives import Metrics
from flaxattn.train.recipe import Recipe
from flaxattn.train.report import Reporter
from flaxattn.train.state import Params, TrainState, load_checkpoint, save_checkpoint

LossFunction = Callable[[Params, Batch, jax.Array | None], tuple[jax.Array, Metrics]]


class Task(NamedTuple):
    """What is trained: a loss, the optimiser, and data to train and to evaluate on.

    Attributes:
        loss: of parameters, a batch and a dropout key; a key of None switches dropout off.
        optimizer: turns gradients into updates.
        training: the batches to learn from.
        heldout: the batches to evaluate on.
    """

    loss: LossFunction
    optimizer: optax.GradientTransformation
    training: Feed
    heldout: Feed


class NotANumberError(InputError):
    """The loss became infinite or NaN; the last checkpoint is untouched."""


@dataclass
class Run:
    """Where a run stands: its state, its place in the data, and what it cost so far."""

    state: TrainState
    position: Position
    tokens: int = 0
    seconds: float = 0.0

    def progress(self) -> dict[str, Any]:
        """The part that is no array, for a checkpoint."""
        return {"position": list(self.position), "tokens": self.tokens, "seconds": self.seconds}


def run(task: Task, params: Params, recipe: Recipe, folder: Path, fresh: bool = False) -> Run:
    """Train until the recipe's last step, from the folder's checkpoint where there is one.

    Args:
        task: what to train.
        params: initial parameters; on resuming they only give names and shapes.
        recipe: number of steps and when to log, evaluate and save.
        folder: gets `checkpoint.safetensors` and `metrics.jsonl`.
        fresh: ignore a checkpoint and start again.

    Returns:
        The finished run.

    Raises:
        NotANumberError: the loss is NaN or infinite; nothing was saved since.
        CheckpointError: the checkpoint is damaged or belongs to another model.
    """
    checkpoint = folder / "checkpoint.safetensors"
    now = Run(TrainState(params, task.optimizer.init(params), jnp.zeros((), jnp.int32)), Position())
    if checkpoint.is_file() and not fresh:
        state, progress = load_checkpoint(checkpoint, now.state)
        now = Run(state, Position(*progress["position"]), progress["tokens"], progress["seconds"])
    update, evaluate = compile_steps(task, recipe)
    first = int(now.state.step)
    with Reporter(folder / "metrics.jsonl", recipe, first, fresh) as report:
        if first == 0:
            report.heldout(0, evaluate_heldout(evaluate, task, recipe, now.state.params, -1))
        started, already, pending = time.monotonic(), now.seconds, []
        for step, batch in batches(task.training, recipe, now, first):
            now.state, metrics = update(now.state, batch)
            pending.append(metrics)
            now.tokens += int(batch.attention_mask.sum())
            now.seconds = already + time.monotonic() - started
            done = step + 1
            saves = done % recipe.checkpoint_every == 0 or done == recipe.steps
            if report.due(done) or saves:
                report.training(done, finite_mean(pending, done), now.tokens, now.seconds)
                pending = []
            if done % recipe.evaluate_every == 0 and done < recipe.steps:
                phase = recipe.phase(step)
                report.heldout(
                    done, evaluate_heldout(evaluate, task, recipe, now.state.params, phase)
                )
            if saves:
                save_checkpoint(checkpoint, now.state, now.progress())
        if first < recipe.steps:
            report.heldout(
                recipe.steps, evaluate_heldout(evaluate, task, recipe, now.state.params, -1)
            )
    return now


def compile_steps(
    task: Task, recipe: Recipe
) -> tuple[
    Callable[[TrainState, Batch], tuple[TrainState, Metrics]], Callable[[Params, Batch], Metrics]
]:
    """The two jitted functions: one update (the old state is given up), one evaluation."""
    dropout = jax.random.key(recipe.seed)

    def update(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(dropout, state.step)
        gradient = jax.grad(task.loss, has_aux=True)
        grads, metrics = gradient(state.params, batch, key)
        changes, moments = task.optimizer.update(grads, state.moments, state.params)
        params = optax.apply_updates(state.params, changes)
        return TrainState(params, moments, state.step + 1), metrics

    def evaluate(params: Params, batch: Batch) -> Metrics:
        return task.loss(params, batch, None)[1]

    return jax.jit(update, donate_argnums=0), jax.jit(evaluate)


def batches(feed: Feed, recipe: Recipe, now: Run, first: int) -> Iterator[tuple[int, Batch]]:
    """Steps and batches from `first` on; moves `now.position` and starts a new epoch per phase."""
    for step in range(first, recipe.steps):
        length = recipe.lengths[recipe.phase(step)]
        if step > 0 and recipe.phase(step) != recipe.phase(step - 1):
            now.position = Position(now.position.epoch + 1, 0)
        batch = feed.batch(now.position, length)
        now.position = feed.advance(now.position, length)
        yield step, batch


def evaluate_heldout(
    evaluate: Callable[[Params, Batch], Metrics],
    task: Task,
    recipe: Recipe,
    params: Params,
    phase: int,
) -> dict[str, float]:
    """Mean metrics over the first held-out batches, always the same ones, at a phase's length."""
    length, position, rows = recipe.lengths[phase], Position(), []
    for _ in range(recipe.evaluate_batches):
        rows.append(evaluate(params, task.heldout.batch(position, length)))
        position = task.heldout.advance(position, length)
        if position.epoch:
            break
    return {"length": length, **mean(rows)}


def mean(rows: list[Metrics]) -> dict[str, float]:
    """Mean of each metric."""
    return {name: float(np.mean([np.asarray(row[name]) for row in rows])) for name in rows[0]}


def finite_mean(rows: list[Metrics], done: int) -> dict[str, float]:
    """Mean of the updates since the last report.

    Raises:
        NotANumberError: naming the first update whose loss is NaN or infinite.
    """
    for back, row in enumerate(rows):
        if not np.isfinite(np.asarray(row["loss"])):
            raise NotANumberError(
                f"the loss is {float(row['loss'])} in update {done - len(rows) + back + 1}\n"
                "training stopped; the last checkpoint is from before it\n"
                "lower learning_rate or lengthen warmup_steps, and start again"
            )
    return mean(rows)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Rows of a metrics file, in the order they were written."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
