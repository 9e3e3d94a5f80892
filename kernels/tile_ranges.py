# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tiles that a kernel has to visit, where masks that are known at run time rule out whole ones.

Padding, packed sequences and query offsets come as arrays, so the kernels read from small integer
arrays which tiles they need. These are computed here, outside of the kernels, from the packed
vectors of a call. A tile that is left out has no pair of a query and a key that may attend; one
that is visited may have none, since every block visits a range without gaps.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from flaxattn.kernels.plan import KernelPlan

_LOWEST, _HIGHEST = np.iinfo(np.int32).min, np.iinfo(np.int32).max


class TileRanges(NamedTuple):
    """First tile that each block visits and the one after its last, both 0 where it visits none.

    Attributes:
        keys: tiles of keys that a block of queries visits.
        queries: tiles of queries that a block of keys visits.
    """

    keys: Int[Array, "#B I 2"]
    queries: Int[Array, "#B J 2"]


def tile_ranges(
    plan: KernelPlan, vectors: Mapping[str, Array | None], block_q: int, block_k: int
) -> TileRanges:
    """Ranges of tiles that the blocks of a kernel visit.

    Args:
        plan: of a call; `KernelPlan.ranged` says whether the ranges can be shorter than those of
            its band.
        vectors: the packed vectors of the call by their names in `plan.Operands`.
        block_q: queries of a tile; tiles cover the padded queries.
        block_k: keys of a tile; tiles cover the padded keys.

    Returns:
        int32 arrays; a batch dimension of 1 stands for all examples.
    """
    needed = needed_tiles(plan, vectors, block_q, block_k)
    return TileRanges(_ends(needed), _ends(jnp.swapaxes(needed, 1, 2)))


def needed_tiles(
    plan: KernelPlan, vectors: Mapping[str, Array | None], block_q: int, block_k: int
) -> Bool[Array, "#B I J"]:
    """False for tiles of which every pair is masked by padding, segments or the band.

    Args:
        plan: of a call.
        vectors: as for `tile_ranges`.
        block_q: queries of a tile.
        block_k: keys of a tile.

    Returns:
        One bool for each tile, the same for all heads. True as well for some tiles without pairs:
        those of unsorted segments, and of masks that differ between queries.
    """
    rows = _blocks(jnp.arange(plan.padded_queries)[None] < plan.queries, block_q)
    keys = _blocks(_usable(plan, vectors), block_k)
    needed = rows.any(2)[:, :, None] & keys.any(2)[:, None]
    if "segment" in plan.row_ints:
        of_rows = _blocks(_vector(plan.row_ints, vectors["row_ints"], "segment"), block_q)
        of_keys = _blocks(_vector(plan.key_ints, vectors["key_ints"], "segment"), block_k)
        of_some_row = _meets(of_rows, rows, *_interval(of_keys, keys))
        of_some_key = _meets(of_keys, keys, *_interval(of_rows, rows))
        needed = needed & of_some_row & jnp.swapaxes(of_some_key, 1, 2)
    low, high = plan.band
    positions = jnp.arange(plan.padded_keys)[None]
    first_key, last_key = _interval(_blocks(positions, block_k), keys)
    first_row, last_row = _interval(_blocks(_row_positions(plan, vectors), block_q), rows)
    if high is not None:
        needed = needed & (first_key[:, None] - high <= last_row[:, :, None])
    if low is not None:
        needed = needed & (last_key[:, None] - low >= first_row[:, :, None])
    return needed


def _usable(plan: KernelPlan, vectors: Mapping[str, Array | None]) -> Bool[Array, "#B Kp"]:
    """False for keys that no query of any head may attend to."""
    inside = jnp.arange(plan.padded_keys)[None] < plan.keys
    if "bias" not in plan.key_floats:
        return inside
    packed = vectors["key_floats"]
    assert packed is not None
    return inside & (packed[:, :, plan.key_floats.index("bias")] != -jnp.inf).any(1)


def _row_positions(plan: KernelPlan, vectors: Mapping[str, Array | None]) -> Int[Array, "#B Qp"]:
    if plan.offset is None:
        return _vector(plan.row_ints, vectors["row_ints"], "position")
    return jnp.arange(plan.padded_queries)[None] + plan.offset


def _vector(names: tuple[str, ...], packed: Array | None, name: str) -> Int[Array, "#B S"]:
    """A packed vector that is the same for all heads."""
    assert packed is not None
    return packed[:, 0, names.index(name)]


def _blocks(vector: Array, size: int) -> Array:
    """``[B, S]`` as ``[B, blocks, size]``, with zeros or False behind the end."""
    padded = jnp.pad(vector, [(0, 0), (0, -vector.shape[1] % size)])
    return padded.reshape(vector.shape[0], -1, size)


def _interval(
    values: Int[Array, "B N size"], valid: Bool[Array, "#B N size"]
) -> tuple[Int[Array, "B N"], Int[Array, "B N"]]:
    """Smallest and largest valid value of each block; an empty interval where none is valid."""
    least = jnp.where(valid, values, _HIGHEST).min(2)
    return least, jnp.where(valid, values, _LOWEST).max(2)


def _meets(
    values: Int[Array, "B N size"],
    valid: Bool[Array, "#B N size"],
    least: Int[Array, "B M"],
    most: Int[Array, "B M"],
) -> Bool[Array, "B N M"]:
    """Return whether any valid value of a block lies in the interval of another."""
    each, least, most = values[..., None], least[:, None, None], most[:, None, None]
    inside = (each >= least) & (each <= most)
    return (inside & valid[..., None]).any(2)


def _ends(needed: Bool[Array, "B N M"]) -> Int[Array, "B N 2"]:
    """First True of each row and the place after the last one."""
    places = jnp.arange(needed.shape[2], dtype=jnp.int32)
    stop = jnp.where(needed, places + 1, 0).max(2)
    first = jnp.where(needed, places, needed.shape[2]).min(2)
    return jnp.stack([jnp.minimum(first, stop), stop], axis=2)
