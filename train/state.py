# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""State of training and an update: gradient, guard, optimizer, and placement on devices."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int, UInt32

from flaxattn.errors import InputError
from flaxattn.models.parameter_shardings import state_shardings
from flaxattn.train.recipe import Recipe

Params = Any
Batch = Any
Metrics = dict[str, Array]
Totals = dict[str, Array]
LossFunction = Callable[[Params, Batch, Array | None, Totals], tuple[Array, Metrics]]


class TrainState(NamedTuple):
    """State from which an update starts.

    Attributes:
        params: Params of the model.
        moments: Moments of the optimizer.
        step: Number of updates so far.
        seed: Random seed of dropout; the key of an update is a function of seed and step alone.
    """

    params: Params
    moments: optax.OptState
    step: Int[Array, ""]
    seed: UInt32[Array, ""]


def initial_state(
    params: Params, optimizer: optax.GradientTransformation, seed: int = 0
) -> TrainState:
    """The state before the first update."""
    seed_array = jnp.asarray(np.uint32(seed % 2**32))
    return TrainState(params, optimizer.init(params), jnp.zeros((), jnp.int32), seed_array)


@functools.lru_cache(maxsize=8)
def update_function(
    loss: LossFunction,
    totals: Callable[[Batch], Totals],
    optimizer: optax.GradientTransformation,
    accumulate: int = 1,
) -> Callable[[TrainState, Batch], tuple[TrainState, Metrics]]:
    """One update, to be jitted.

    Remembered: what is compiled for a function serves every run that asks with the same arguments,
    such as the seeds of a fine-tuning.
    """

    def update(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.key(state.seed), state.step)
        gradient = jax.grad(loss, has_aux=True)
        if accumulate == 1:
            grads, metrics = gradient(state.params, batch, key, totals(batch))
        else:
            grads, metrics = _in_parts(
                gradient, state.params, batch, key, totals(batch), accumulate
            )
        metrics |= {"grad_norm": optax.tree.norm(grads), "tokens": batch.attention_mask.sum()}
        changes, moments = optimizer.update(grads, state.moments, state.params)
        params = optax.apply_updates(state.params, changes)
        return TrainState(params, moments, state.step + 1, state.seed), metrics

    return update


def _in_parts(
    gradient: Callable[..., tuple[Params, Metrics]],
    params: Params,
    batch: Batch,
    key: Array,
    whole: Totals,
    count: int,
) -> tuple[Params, Metrics]:
    """Gradients and metrics summed over `count` parts; part i takes rows i, i + count, and so on.

    Interleaved, because every device then finds rows of each part among its own.
    """

    def split(x: Array) -> Array:
        return jnp.moveaxis(x.reshape(-1, count, *x.shape[1:]), 1, 0)

    def one(part: Batch, number: Array) -> tuple[Params, Metrics]:
        return gradient(params, part, jax.random.fold_in(key, number), whole)

    def add(sums: Any, part: tuple[Batch, Array]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, sums, one(*part)), None

    parts, numbers = jax.tree.map(split, batch), jnp.arange(count)
    shapes = jax.eval_shape(one, jax.tree.map(lambda x: x[0], parts), numbers[0])
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.scan(add, zeros, (parts, numbers))[0]


def make_mesh(recipe: Recipe) -> Mesh:
    """Devices in a grid of axes "data" and "model"."""
    found = jax.devices()
    count = recipe.devices or len(found)
    if count > len(found) or count % recipe.model_parallel:
        raise InputError(
            f"cannot lay out {count} devices with model_parallel {recipe.model_parallel}\n"
            f"there are {len(found)} of kind {found[0].device_kind}\n"
            "lower devices, or choose a model_parallel that divides them"
        )
    grid = np.array(found[:count]).reshape(-1, recipe.model_parallel)
    return Mesh(grid, ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))


def check_rows(rows: int, mesh: Mesh, accumulate: int = 1) -> None:
    """Refuse a batch that the mesh cannot share evenly."""
    parts = mesh.shape["data"] * accumulate
    if rows % parts:
        raise InputError(
            f"a batch of {rows} sequences cannot be shared evenly\n"
            f"it takes a multiple of {parts}: {mesh.shape['data']} devices along data"
            f" x accumulate {accumulate}\n"
            "change batch_size, or name a number of devices: --set devices=1"
        )


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Rows of a batch along "data"."""
    return NamedSharding(mesh, P("data"))


def place_batch(batch: Any, mesh: Mesh) -> Any:
    """The batch on the devices, from the rows that this host has."""
    sharding = batch_sharding(mesh)
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, x), batch)


def place_state(state: Any, mesh: Mesh) -> Any:
    """A state of host or device arrays, laid out by `state_shardings`."""
    return jax.device_put(state, state_shardings(state, mesh))


def gather(tree: Any) -> Any:
    """NumPy copies of arrays that may lie on several hosts; every host gets all of it."""
    if jax.process_count() == 1:
        return jax.tree.map(np.asarray, tree)
    from jax.experimental import multihost_utils

    return multihost_utils.process_allgather(tree, tiled=True)
