# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A fused kernel on a mesh: each device takes its share of batch and heads.

The compiler cannot cut a kernel it does not understand: it would have every device compute all of
it. So where `jax.set_mesh` names axes "data" or "model", the batch is cut along the first and the
heads along the second, by `jax.shard_map`. Rows and heads are independent, so nothing is sent
between devices. No attention is computed here.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from flaxattn.kernels.call import Call

BATCH, HEADS = "data", "model"
# Where the heads are in the arrays of a call; in its other arrays they are not.
_HEADS_AXIS = {"q": 2, "k": 2, "v": 2, "mask": 1, "bias": 1, "sinks": 0}


def over_mesh(attend: Callable[[Call], Any], call: Call) -> Any:
    """Run `attend` on a call, in parts where the current mesh has such axes.

    Args:
        attend: an implementation; output `[B, Q, H, D]`, captures `[B, H, ...]`.
        call: a checked call. A size that an axis does not divide is not cut along it, nor are
            heads of which some are captured: every device would have to capture others.

    Returns:
        The output and the intermediates of the whole call. With dropout, each part draws from a
        key of its own, so the mask depends on the mesh.
    """
    cut = _axes(call)
    if not cut:
        return attend(call)
    leaves, tree = jax.tree_util.tree_flatten_with_path(call)
    places = [i for i, (_, leaf) in enumerate(leaves) if isinstance(leaf, jax.Array)]

    def rebuilt(arrays: list[jax.Array]) -> Call:
        whole = [leaf for _, leaf in leaves]
        for place, array in zip(places, arrays, strict=True):
            whole[place] = array
        return jax.tree.unflatten(tree, whole)

    def part(arrays: list[jax.Array]) -> Any:
        mine = rebuilt(arrays)
        if mine.dropout is None:
            return attend(mine)
        key = jax.random.fold_in(mine.dropout.key, jax.lax.axis_index(tuple(sorted(cut))))
        return attend(mine._replace(dropout=mine.dropout._replace(key=key)))

    arrays = [leaves[place][1] for place in places]
    given = [_spec(leaves[p][0][0].name, leaves[p][1], cut) for p in places]
    output, records = jax.eval_shape(lambda a: attend(rebuilt(a)), arrays)
    results = _spec("q", output, cut), jax.tree.map(lambda x: _spec("mask", x, cut), records)
    return jax.shard_map(part, in_specs=(given,), out_specs=results, axis_names=cut)(arrays)


def _axes(call: Call) -> frozenset[str]:
    """Axes of the current mesh to cut along: those that nobody has cut along yet."""
    mesh = jax.sharding.get_abstract_mesh()
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    sizes = {BATCH: call.q.shape[0]}
    numbered = call.capture.heads is not None or (call.dropout and call.dropout.heads is not None)
    if not numbered:
        # One key head serves all query heads; several are cut as these are.
        sizes[HEADS] = call.q.shape[2] if call.k.shape[2] == 1 else call.k.shape[2]
    return frozenset(
        name
        for name, size in sizes.items()
        if kinds.get(name, AxisType.Manual) != AxisType.Manual
        and mesh.shape[name] > 1
        and size % mesh.shape[name] == 0
    )


def _spec(field: str, array: Any, cut: frozenset[str]) -> P:
    if field == "dropout" or not array.shape:
        return P()
    axes: list[str | None] = [None] * len(array.shape)
    for axis, name in ((None if field == "sinks" else 0, BATCH), (_HEADS_AXIS.get(field), HEADS)):
        if axis is not None and name in cut and array.shape[axis] > 1:
            axes[axis] = name
    return P(*axes)
