# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers from whole maps on the device: roles of any side, and divergences between heads.

The maps of a batch exist on the device while it is computed and never leave it. What is summed is
defined in `flaxattn.measures.side_scores` and `pairs`; texts are read and batched in `map_scores`.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from flaxattn.measures.head_pairs import BEGINNING, pair_divergences
from flaxattn.measures.score_terms import ScoreName
from flaxattn.measures.side_scores import Sieves, row_statistics
from flaxattn.trace.record import AttentionRecord

NOTES = ("map_terms", "map_queries")
"""Arguments of the step that are no model's."""


@dataclasses.dataclass(frozen=True)
class MapSums:
    """What is made of the maps of a side; hashable, static under jit.

    Attributes:
        side: `encoder`, `decoder` or `cross`.
        columns: Sums of weights, in order.
        pairs: Whether heads are compared with each other, in place of the sums.
    """

    side: str
    columns: tuple[ScoreName, ...] = ()
    pairs: bool = False

    def packed(
        self, sieves: Sequence[Sieves], queries: Sequence[int], shape: tuple[int, int, int]
    ) -> dict[str, np.ndarray]:
        """Coefficients of a batch; rows without a text stay 0.

        Args:
            sieves: Of each text; none where heads are compared.
            queries: Positions of each text that look.
            shape: Rows of the batch, and the widths of queries and of keys.
        """
        rows, wide, high = shape
        terms = np.zeros((rows, len(self.columns), wide, high), np.float32)
        for b, one in enumerate(sieves):
            for r, column in enumerate(self.columns):
                if (part := one.linear.get(column)) is not None:
                    terms[b, r, : part.shape[0], : part.shape[1]] = part
        counts = np.zeros(rows, int)
        counts[: len(queries)] = queries
        return dict(
            zip(NOTES, (terms, (np.arange(wide) < counts[:, None]) + np.float32(0)), strict=True)
        )

    def __call__(
        self, sides: Mapping[str, AttentionRecord], notes: Mapping[str, Array]
    ) -> dict[str, AttentionRecord]:
        """The numbers, inside the compiled step.

        Args:
            sides: What attention saw, with weights.
            notes: From `packed`.

        Returns:
            A record whose statistics are `linear` and `rows` `[L, B, H, R]`, or `pairs`
            `[L, B, H, N]` and `beginning` `[L, B, H, P P]`.
        """
        seen = sides[self.side]
        assert seen.weights is not None
        weights = seen.weights.astype(jnp.float32)
        made = _compared if self.pairs else _summed
        stats = made(weights, notes["map_terms"], notes["map_queries"])
        return {self.side: AttentionRecord(stats=stats, layers=seen.layers, heads=seen.heads)}


def _summed(
    weights: Float[Array, "L B H Q K"], terms: Float[Array, "B R Q K"], real: Float[Array, "B Q"]
) -> dict[str, Array]:
    exact = jax.lax.Precision.HIGHEST
    share = real / jnp.maximum(real.sum(-1, keepdims=True), 1)
    rows = jnp.stack(row_statistics(weights), -1)  # [L, B, H, Q, 3]
    return {
        "linear": jnp.einsum("lbhqk,brqk->lbhr", weights, terms, precision=exact),
        "rows": jnp.einsum("lbhqr,bq->lbhr", rows, share, precision=exact),
    }


def _compared(
    weights: Float[Array, "L B H Q K"], terms: Float[Array, "B R Q K"], real: Float[Array, "B Q"]
) -> dict[str, Array]:
    del terms
    layers, batch, heads, queries, keys = weights.shape
    flat = jnp.moveaxis(weights, 1, 0).reshape(batch, layers * heads, queries, keys)
    apart = pair_divergences(flat, real).reshape(batch, layers, heads, layers * heads)
    room = [(0, 0)] * 3 + [(0, max(BEGINNING - n, 0)) for n in (queries, keys)]
    start = jnp.pad(weights[:, :, :, :BEGINNING, :BEGINNING], room)
    return {
        "pairs": jnp.moveaxis(apart, 0, 1),
        "beginning": start.reshape(layers, batch, heads, -1),
    }
