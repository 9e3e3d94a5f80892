# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Divergences between any two heads of a model over texts: `head_pairs`.

The weights of a batch exist on the device while it is computed and never leave it. Divergences are
defined in `flaxattn.measures.head_pairs`.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from flaxattn.corpus.texts import Text
from flaxattn.kernels.contract import Capture
from flaxattn.measures.head_pairs import BEGINNING, Pairs, beginning, blank_pairs, pair_divergences
from flaxattn.measures.head_scores import default_side, extents
from flaxattn.pipeline.batch_loop import each_batch
from flaxattn.pipeline.batches import Batch, planned, stacked
from flaxattn.pipeline.device_step import Begun, DeviceStep
from flaxattn.pipeline.extraction import room_for
from flaxattn.pipeline.finite_batches import check_attention
from flaxattn.pipeline.generated_targets import with_targets
from flaxattn.pipeline.labelled_texts import windows
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
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
    step = DeviceStep(model.module, [model.params], _CAPTURE, None, PairDivergences(side), (_REAL,))
    room = room_for([model], _CAPTURE, 1, reading.batch_tokens)._replace(packs=False)
    pairs: Pairs | None = None
    for window in windows(model, texts, reading):
        rows = with_targets([model], [read.reading for read in window], {}, room.tokens)

        def begin(batch: Batch, rows: Sequence[TokenizedTexts] = rows) -> Begun:
            counts = np.zeros(batch.rows, int)
            sizes = [extents(side, rows[place.text].lengths)[0] for place in batch.places]
            counts[: len(sizes)] = sizes
            real = np.arange(extents(side, batch.widths)[0]) < counts[:, None]
            return step.begin({**stacked(rows, batch), _REAL: real.astype(np.float32)})

        batches = planned([row.lengths for row in rows], model.limit, room)
        for batch, outputs in each_batch(batches, begin, step.end):
            for part in outputs:
                if not reading.allow_nonfinite:
                    check_attention([model], part, batch, [read.text for read in window])
                record = part.models[0][side]
                pairs = Pairs(record.layers, record.heads) if pairs is None else pairs
                for place, row in zip(batch.places[part.first :], range(part.rows), strict=False):
                    of_text = {n: np.asarray(a)[:, row] for n, a in record.stats.items()}
                    divergences, start = _of_text(of_text, extents(side, rows[place.text].lengths))
                    broken = np.asarray(part.nonfinite[0][side].counts)[:, row].ravel() > 0
                    pairs.add(blank_pairs(divergences, broken), start)
            reading.watch("comparing heads", len(batch.places))
    return pairs


def _of_text(
    stats: Mapping[str, np.ndarray], size: tuple[int, int]
) -> tuple[Float[np.ndarray, "1 N N"], Float[np.ndarray, "1 N P P"]]:
    """Divergences of one text, and its beginning without padding."""
    divergences = stats["pairs"]
    count = divergences.shape[-1]
    start = stats["beginning"].reshape(count, BEGINNING, BEGINNING)
    return divergences.reshape(1, count, count), beginning(start[:, : size[0], : size[1]])[None]
