# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Placement of training's arrays on devices: the mesh, batches, and states.

Parameters and their moments lie where `flaxattn.models.parameter_shardings` says. This file moves
arrays and computes nothing.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from flaxattn.errors import InputError
from flaxattn.models.parameter_shardings import state_shardings
from flaxattn.train.recipe import Recipe


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
