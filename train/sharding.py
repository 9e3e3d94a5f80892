# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Placement of arrays on devices: a mesh, and one table of rules for parameters and optimiser.

Parameters and their moments are cut along "data" too (fully sharded data parallel): a device
gathers a layer when it needs it. Heads, feed-forward units and vocabulary are cut along "model"
(tensor parallel). This file moves arrays and computes nothing.
"""

import re
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from flaxattn.errors import InputError
from flaxattn.train.recipe import Recipe

# The end of a parameter's path -> how its axes are cut. Stacked layers keep their axis L whole.
RULES: tuple[tuple[str, P], ...] = (
    (r"layers/attention/(query|key|value)/kernel", P(None, "data", "model")),  # L E HD
    (r"layers/attention/(query|key|value)/bias", P(None, "model")),
    (r"layers/attention/output/kernel", P(None, "model", "data")),  # L HD E
    (r"layers/feed_forward/up/kernel", P(None, "data", "model")),  # L E F
    (r"layers/feed_forward/up/bias", P(None, "model")),
    (r"layers/feed_forward/down/kernel", P(None, "model", "data")),  # L F E
    (r"embeddings/word/embedding", P("model", "data")),  # V E
    (r"embedding", P(None, "data")),
    (r"kernel", P("data", None)),
)


def make_mesh(recipe: Recipe) -> Mesh:
    """Devices in a grid of axes "data" and "model".

    Raises:
        InputError: there are fewer devices than asked for, or they cannot be laid out so.
    """
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
    """Refuse a batch that the mesh cannot share evenly.

    Raises:
        InputError: naming both numbers.
    """
    parts = mesh.shape["data"] * accumulate
    if rows % parts:
        raise InputError(
            f"a batch of {rows} sequences cannot be shared evenly\n"
            f"it takes a multiple of {parts}: {mesh.shape['data']} devices along data"
            f" x accumulate {accumulate}\n"
            "change batch_size, or name a number of devices: --set devices=1"
        )


def state_shardings(state: Any, mesh: Mesh) -> Any:
    """Sharding of every leaf of a state, or of any tree with parameters in it.

    Args:
        state: arrays or their shapes; a leaf's rule is found by the names on its path, so the
            moments of a parameter lie where the parameter does.
        mesh: from `make_mesh`.

    Returns:
        The same tree of `NamedSharding`. An axis that a mesh axis does not divide stays whole.
    """

    def of(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        names = "/".join(str(part.key) for part in path if hasattr(part, "key"))
        return NamedSharding(mesh, _spec(names, leaf.shape, mesh))

    return jax.tree_util.tree_map_with_path(of, state)


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


def _spec(names: str, shape: tuple[int, ...], mesh: Mesh) -> P:
    for pattern, spec in RULES:
        if re.search(f"(^|/){pattern}$", names) and len(spec) <= len(shape):
            axes = zip(spec, shape, strict=False)
            return P(*(a if a and size % mesh.shape[a] == 0 else None for a, size in axes))
    return P()
