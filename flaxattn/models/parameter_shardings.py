# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Layout of parameters over a mesh: one table of rules, for loading, training and its optimiser.

Parameters and their moments are cut along "data" too (fully sharded data parallel): a device
gathers a layer when it needs it. Heads, feed-forward units and vocabulary are cut along "model"
(tensor parallel). Nothing here moves an array.
"""

import re
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from flaxattn.errors import InputError

AXES = ("data", "model")
# The end of a parameter's path -> how its axes are cut. Stacked layers keep their axis L whole.
RULES: tuple[tuple[str, P], ...] = (
    (r"layers/attention/(query|key|value)/kernel", P(None, "data", "model")),  # L E HD
    (r"layers/attention/(query|key|value)/bias", P(None, "model")),
    (r"layers/attention/output/kernel", P(None, "model", "data")),  # L HD E
    (r"layers/feed_forward/(gate|up)/kernel", P(None, "data", "model")),  # L E F
    (r"layers/feed_forward/up/bias", P(None, "model")),
    (r"layers/feed_forward/down/kernel", P(None, "model", "data")),  # L F E
    (r"(embeddings/word|words|decoder_words)/embedding", P("model", "data")),  # V E
    (r"output", P("data", "model")),  # E V
    (r"embedding", P(None, "data")),
    (r"kernel", P("data", None)),
)


def usable_mesh(mesh: Mesh) -> Mesh:
    """A mesh of the same devices whose axes are `Auto`: the compiler chooses layouts."""
    if not set(AXES) & set(mesh.axis_names):
        raise InputError(
            f"mesh: parameters are cut along axes named {' and '.join(AXES)}, this one has "
            f"{', '.join(map(str, mesh.axis_names)) or 'none'}.\n"
            'Name them so: jax.make_mesh((4, 2), ("data", "model")).'
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))


def state_shardings(state: Any, mesh: Mesh) -> Any:
    """Sharding of every leaf of a state, or of any tree with parameters in it."""

    def of(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        names = "/".join(str(part.key) for part in path if hasattr(part, "key"))
        return parameter_sharding(names, leaf.shape, mesh)

    return jax.tree_util.tree_map_with_path(of, state)


def parameter_sharding(path: str, shape: tuple[int, ...], mesh: Mesh) -> NamedSharding:
    """Sharding of one parameter."""
    for pattern, spec in RULES:
        if re.search(f"(^|/){pattern}$", path) and len(spec) <= len(shape):
            axes = zip(spec, shape, strict=False)
            return NamedSharding(mesh, P(*(_cut(axis, size, mesh) for axis, size in axes)))
    return NamedSharding(mesh, P())


def _cut(axis: str | None, size: int, mesh: Mesh) -> str | None:
    """The mesh axis that cuts an axis of an array; None where it stays whole."""
    return axis if axis in mesh.axis_names and size % mesh.shape[axis] == 0 else None
