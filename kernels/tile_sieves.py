# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The sieves of a tile: which of its keys are in one, and what the tile adds to its statistic."""

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from flaxattn.kernels.contract import Sieve
from flaxattn.kernels.plan import KernelPlan
from flaxattn.kernels.tile_layout import Tile, TileLayout, Vector, first_key, query_positions


@dataclass(frozen=True)
class SieveTile:
    """A sieve and the part of the keys that a tile has of it.

    Attributes:
        plan: of the call.
        sieve: the set of keys.
        form: of the tile.
        rows: packed vectors of the tile's queries.
        keys: packed vectors of the tile's keys.
    """

    plan: KernelPlan
    sieve: Sieve
    form: TileLayout
    rows: Mapping[str, Vector]
    keys: Mapping[str, Vector]

    def sums(
        self, tile: Tile, exponentials: Tile, logs: Tile, reach: tuple[Any, Any] | None
    ) -> tuple[Vector, ...]:
        """Take the statistic of the sieve over the keys of the tile.

        Args:
            tile: scores.
            exponentials: of the scores, relative to the shift of their row.
            logs: their logarithms, finite.
            reach: smallest and largest offset of the tile, None to look at all of its pairs.

        Returns:
            For "mass" the sum of the exponentials, for "entropy" the sum of exponentials times
            logarithms and that of exponentials, for "argmax" the largest score and its first key.
        """

        def compute() -> tuple[Vector, ...]:
            return self._sums(tile, exponentials, logs)

        if reach is None or self.sieve.offsets is None:
            return compute()
        (low, high), (least, most) = self.sieve.offsets, reach
        return lax.cond((most >= low) & (least <= high), compute, self._nothing)

    def _sums(self, tile: Tile, exponentials: Tile, logs: Tile) -> tuple[Vector, ...]:
        sieve, form = self.sieve, self.form
        if sieve.statistic == "mass" and _of_class(sieve):
            # 1.0 or 0.0 for each key, found once for all rows: a product takes no choice.
            members = jnp.where(_class_bit(sieve, self.keys) != 0, 1.0, 0.0)
            return (form.row_sum(exponentials * form.keys(members)),)
        members = inside(self.plan, sieve, form, self.rows, self.keys)
        if sieve.statistic == "argmax":
            among = jnp.where(members, tile, -jnp.inf)
            value = form.row_max(among)
            return value, first_key(form, among, value)
        kept = jnp.where(members, exponentials, 0.0)
        if sieve.statistic == "mass":
            return (form.row_sum(kept),)
        return form.row_sum(logs * kept), form.row_sum(kept)

    def _nothing(self) -> tuple[Vector, ...]:
        """The same where no key of the tile is in the sieve."""
        values = {"mass": (0.0,), "entropy": (0.0, 0.0), "argmax": (-jnp.inf, -1.0)}
        return tuple(self.form.full_row(value) for value in values[self.sieve.statistic])


def inside(
    plan: KernelPlan,
    sieve: Sieve,
    form: TileLayout,
    rows: Mapping[str, Vector],
    keys: Mapping[str, Vector],
) -> Tile:
    """Mask of the entries of a tile that are in a sieve: `reference._inside`.

    Args:
        plan: of the call.
        sieve: the set of keys.
        form: of the tile.
        rows: packed vectors of the tile's queries.
        keys: packed vectors of the tile's keys.

    Returns:
        A bool tile.
    """
    conditions = []
    if sieve.key_class is not None:
        conditions.append(form.keys(_class_bit(sieve, keys)) != 0)
    if sieve.offsets is not None:
        low, high = sieve.offsets
        offset = form.key_positions() - query_positions(plan, form, rows)
        conditions += [offset >= low, offset <= high]
    for wanted, name in ((sieve.same_segment, "segment"), (sieve.same_token, "token")):
        if wanted is not None:
            of_rows, of_keys = form.rows(rows[f"label_{name}"]), form.keys(keys[f"label_{name}"])
            conditions.append(of_rows == of_keys if wanted else of_rows != of_keys)
    if sieve.same_label is not None:
        of_rows = form.rows(rows[f"label {sieve.same_label[0]}"])
        of_keys = form.keys(keys[f"label {sieve.same_label[1]}"])
        conditions += [of_rows == of_keys, of_keys >= 0]
    return functools.reduce(operator.and_, conditions)


def _of_class(sieve: Sieve) -> bool:
    """Return whether the class of keys is the only condition of a sieve."""
    return [each is not None for each in sieve.conditions] == [True, False, False, False, False]


def _class_bit(sieve: Sieve, keys: Mapping[str, Vector]) -> Vector:
    """Keys whose class is that of a sieve: other than 0."""
    assert sieve.key_class is not None
    bit = 1 << sieve.key_class
    return keys["class"] & (bit - 2**32 if bit >= 2**31 else bit)
