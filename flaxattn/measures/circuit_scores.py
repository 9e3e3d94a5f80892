# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of a model's circuits, as `flaxattn.head_circuits` makes them from weights alone.

Nothing is computed here but tables; no model is known.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError

KINDS = ("query", "key", "value")
"""Kinds of composition: the Q-, K- and V-composition of Elhage et al. (2021)."""
OFFSETS = ("previous", "own", "next")
"""Positions that the preference of positions is of: those at -1, 0 and +1 of the query."""

_EDGE = (
    *("kind", "writer", "reader", "writer_layer", "writer_head", "reader_layer", "reader_head"),
    *("score", "above_random"),
)


@dataclasses.dataclass(frozen=True, eq=False)
class Composition:
    """Composition of one kind between the heads of two sides.

    Attributes:
        kind: One of `KINDS`: what the later head makes of what the earlier one wrote.
        writer: Side of the earlier heads: `encoder`, `decoder` or `cross`.
        reader: Side of the later heads.
        scores: Between 0 and 1, by layer and head of the earlier and of the later head; nan where
            the second does not come after the first, or a head was pruned.
        expected: Mean score of random matrices of the same shapes.
    """

    kind: str
    writer: str
    reader: str
    scores: Float[np.ndarray, "M N L H"]
    expected: float

    def above_random(self) -> Float[np.ndarray, "M N L H"]:
        """Scores less the one that random matrices have."""
        return self.scores - self.expected


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class HeadCircuits:
    """Scores of every head's circuits. All mappings are by side: `encoder`, `decoder`, `cross`.

    Attributes:
        model: Name of the model.
        copying: Sum of the eigenvalues of `W_E W_V W_O W_U` over the sum of their sizes: 1 for a
            head that raises the logit of the token that it attends to, -1 for one that lowers it.
            nan for a pruned head, and of a side that reads and writes different vocabularies.
        matching: The same of `W_E W_Q W_K^T W_E^T`: 1 for a head that attends to tokens like the
            query's own. With rotary positions at distance 0.
        prefix_matching: `tr(M) / (sqrt(D) ||M||)` of `M = W_E W_Q W_K^T W_O'^T W_V'^T W_E^T`, the
            mean over tokens taken from `W_E`, where `W_V' W_O'` is the earlier head for which it is
            largest: 1 for a head that attends to keys that the earlier head wrote the query's token
            to and to no others, as an induction head does behind a head that attends to the
            previous token; about 0 at random. nan where no earlier head writes.
        prefix_writers: Layer and head of these earlier heads; -1 where there is none.
        distances: Distances, query minus key, of `rotary_matching`; empty without rotary positions.
        rotary_matching: `matching` at each of these distances; nan beyond a layer's window.
        positions: Mean attention on the positions at -1, 0 and +1 of a query (`OFFSETS`) where the
            head reads positions and no word. Only sides whose positions are embedded, or are a bias
            of the scores; nan for keys that no query can see.
        compositions: Compositions of each kind and pair of sides.
        expected: Mean composition of random matrices of the same shapes.
        expected_sd: Standard deviation of the random scores.
        centred: Whether the mean over the vocabulary was taken from embeddings first.
        drawings: Number of random pairs.
        seed: Seed of the random heads.
    """

    model: str
    copying: Mapping[str, Float[np.ndarray, "L H"]]
    matching: Mapping[str, Float[np.ndarray, "L H"]]
    prefix_matching: Mapping[str, Float[np.ndarray, "L H"]]
    prefix_writers: Mapping[str, Int[np.ndarray, "L H 2"]]
    distances: tuple[int, ...]
    rotary_matching: Mapping[str, Float[np.ndarray, "L H N"]]
    positions: Mapping[str, Float[np.ndarray, "L H 3"]]
    compositions: tuple[Composition, ...]
    expected: float
    expected_sd: float
    centred: bool
    drawings: int
    seed: int

    def rows(self) -> list[dict[str, Any]]:
        """A row for each head: side, layer, head, and every score by name."""
        found = []
        for side, copying in self.copying.items():
            nothing = np.full((*copying.shape, 3), np.nan)
            shares = self.positions.get(side, nothing)
            for layer, head in np.ndindex(*copying.shape):
                before = self.prefix_writers[side][layer, head].tolist()
                row = {"side": side, "layer": layer, "head": head}
                row["copying"] = float(copying[layer, head])
                row["matching"] = float(self.matching[side][layer, head])
                row["prefix_matching"] = float(self.prefix_matching[side][layer, head])
                row |= dict(zip(("prefix_layer", "prefix_head"), before, strict=True))
                row |= dict(self._distances_of(side, layer, head))
                found.append(row | dict(zip(OFFSETS, shares[layer, head].tolist(), strict=True)))
        return found

    def _distances_of(self, side: str, layer: int, head: int) -> Iterator[tuple[str, float]]:
        scores = self.rotary_matching.get(side)
        for place, distance in enumerate(self.distances):
            value = math.nan if scores is None else float(scores[layer, head, place])
            yield f"matching_{distance}", value

    def edges(self, kind: str | None = None, count: int | None = None) -> list[dict[str, Any]]:
        """Pairs of heads by their composition, strongest first."""
        columns = self.edge_columns(kind)
        names, length = list(columns), len(columns["score"])
        each = zip(*(columns[name][:count].tolist() for name in names), strict=True)
        return [dict(zip(names, row, strict=True)) for row in each] if length else []

    def edge_columns(self, kind: str | None = None) -> dict[str, np.ndarray]:
        """Columns of the table of `edges`, whole."""
        if kind is not None and kind not in KINDS:
            raise InputError(
                f"kind: expected one of {', '.join(KINDS)}, received {kind!r}.\n"
                "None stands for all three."
            )
        columns: dict[str, list[np.ndarray]] = {name: [] for name in _EDGE}
        for c in self.compositions:
            if kind in (None, c.kind):
                places = np.nonzero(~np.isnan(c.scores))
                scores = c.scores[places]
                names = (np.full(len(scores), name) for name in (c.kind, c.writer, c.reader))
                values = (*names, *places, scores, scores - c.expected)
                for name, column in zip(_EDGE, values, strict=True):
                    columns[name].append(column)
        joined = {name: np.concatenate(parts or [np.zeros(0)]) for name, parts in columns.items()}
        order = np.argsort(-joined["score"], kind="stable")
        return {name: column[order] for name, column in joined.items()}

    def __repr__(self) -> str:
        sizes = (
            f"{side} of {scores.shape[0]} layers with {scores.shape[1]} heads"
            for side, scores in self.copying.items()
        )
        pairs = sum(int((~np.isnan(c.scores)).sum()) for c in self.compositions)
        return f"HeadCircuits({self.model!r}: {', '.join(sizes)}, {pairs:,} compositions)"
