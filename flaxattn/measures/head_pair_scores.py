# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Divergences between any two heads of a model over texts: `head_pairs`.

The weights of a batch exist on the device while it is computed and never leave it. Divergences are
defined in `flaxattn.measures.head_pairs`.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from flaxattn.corpus.texts import Text
from flaxattn.kernels.contract import Capture
from flaxattn.measures.head_pairs import BEGINNING, Pairs, beginning, blank_pairs, pair_divergences
from flaxattn.measures.head_scores import default_side, extents
from flaxattn.pipeline.batches import Batch, stacked
from flaxattn.pipeline.device_step import AttentionProgram
from flaxattn.pipeline.generated_targets import with_targets
from flaxattn.pipeline.labelled_texts import windows
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pipeline.run import ModelRunner, mesh_of
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.readings import TokenizedTexts
from flaxattn.trace.record import AttentionRecord

_REAL = "real_queries"
_CAPTURE = Capture(weights=True)


@dataclasses.dataclass(frozen=True)
class PairDivergences:
    """Divergences between heads, made inside the compiled step; hashable, static under jit.

    Attributes:
        side: `encoder`, `decoder` or `cross`.
    """

    side: str

    def __call__(
        self, sides: Mapping[str, AttentionRecord], notes: Mapping[str, Array]
    ) -> dict[str, AttentionRecord]:
        """Compare the heads of a side."""
        record = sides[self.side]
        assert record.weights is not None
        stats = _compared(record.weights.astype(jnp.float32), notes[_REAL])
        return {self.side: AttentionRecord(stats=stats, layers=record.layers, heads=record.heads)}


def _compared(weights: Float[Array, "L B H Q K"], real: Float[Array, "B Q"]) -> dict[str, Array]:
    layers, batch, heads, queries, keys = weights.shape
    flat = jnp.moveaxis(weights, 1, 0).reshape(batch, layers * heads, queries, keys)
    divergences = pair_divergences(flat, real).reshape(batch, layers, heads, layers * heads)
    room = [(0, 0)] * 3 + [(0, max(BEGINNING - n, 0)) for n in (queries, keys)]
    start = jnp.pad(weights[:, :, :, :BEGINNING, :BEGINNING], room)
    return {
        "pairs": jnp.moveaxis(divergences, 0, 1),
        "beginning": start.reshape(layers, batch, heads, -1),
    }


def head_pairs(
    model: Pretrained,
    texts: Iterable[Text],
    *,
    side: str | None = None,
    reading: ReadingOptions = DEFAULTS,
) -> Pairs | None:
    """Divergence between any two heads of a side over texts, and the beginnings of texts."""
    side = default_side(model, side)
    runner = ModelRunner(
        [model],
        AttentionProgram(PairDivergences(side)),
        _CAPTURE,
        mesh=mesh_of(),
        notes=(_REAL,),
        batch_tokens=reading.batch_tokens,
        allow_nonfinite=reading.allow_nonfinite,
        watch=reading.watch,
        stage="comparing heads",
    )
    pairs: Pairs | None = None
    for window in windows(model, texts, reading):
        tokens = runner.budget.tokens
        rows = with_targets([model], [read.reading for read in window], {}, tokens)

        def inputs(batch: Batch, rows: Sequence[TokenizedTexts] = rows) -> dict[str, Any]:
            counts = np.zeros(batch.rows, int)
            sizes = [extents(side, rows[place.text].lengths)[0] for place in batch.places]
            counts[: len(sizes)] = sizes
            real = np.arange(extents(side, batch.widths)[0]) < counts[:, None]
            return {**stacked(rows, batch), _REAL: real.astype(np.float32)}

        for text, _, (output,) in runner.run(rows, [one.text for one in window], inputs=inputs):
            record, nonfinite = (one[side] for one in output)
            pairs = Pairs(record.layers, record.heads) if pairs is None else pairs
            of_text = {name: array[:, 0] for name, array in record.stats.items()}
            divergences, start = _of_text(of_text, extents(side, rows[text].lengths))
            pairs.add(blank_pairs(divergences, nonfinite.counts[:, 0].ravel() > 0), start)
    return pairs


def _of_text(
    stats: Mapping[str, np.ndarray], size: tuple[int, int]
) -> tuple[Float[np.ndarray, "1 N N"], Float[np.ndarray, "1 N P P"]]:
    """Divergences of one text, and its beginning without padding."""
    divergences = stats["pairs"]
    count = divergences.shape[-1]
    start = stats["beginning"].reshape(count, BEGINNING, BEGINNING)
    return divergences.reshape(1, count, count), beginning(start[:, : size[0], : size[1]])[None]
