# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Batches whose attention or vectors are NaN or infinite: refused by model, layer and text."""

from collections.abc import Sequence

import numpy as np

from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.pipeline.batches import Batch
from flaxattn.pipeline.device_step import DeviceOutput
from flaxattn.pipeline.tokenize_texts import describe_range
from flaxattn.pretrained.nonfinite_error import Place, first_nonfinite, nonfinite_error, refusal
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.record import SIDES


def check_attention(
    models: Sequence[Pretrained], part: DeviceOutput, batch: Batch, texts: Sequence[Text]
) -> None:
    """Refuse attention that is NaN or infinite."""
    for model, sides in zip(models, part.nonfinite, strict=True):
        for side in (side for side in SIDES if side in sides):
            place = first_nonfinite(sides[side], _used(part, batch))
            if place is not None:
                text = describe_range([texts[_text_at(batch, part.first, place)]])
                raise nonfinite_error(model.name, model.params, place, side, text)


def count_broken(part: DeviceOutput, batch: Batch) -> list[int]:
    """Count the rows of attention of each model that are NaN or infinite."""
    used = _used(part, batch)
    return [
        sum(int(np.asarray(side.counts)[:, :used].sum()) for side in sides.values())
        for sides in part.nonfinite
    ]


def check_vectors(model: Pretrained, vectors: np.ndarray, text: Text, what: str) -> None:
    """Refuse vectors of a text that hold NaN or infinity."""
    if not np.isfinite(vectors).all():
        raise broken_vectors(model, text, what)


def broken_vectors(model: Pretrained, text: Text, what: str) -> InputError:
    """Return the error for vectors of a text; arguments as for `check_vectors`."""
    problem = f"the {what} are NaN or infinite for {describe_range([text])}"
    return refusal(model.name, model.params, problem)


def _used(part: DeviceOutput, batch: Batch) -> int:
    """Rows of a part that hold texts; those behind repeat the last one."""
    return min(max(batch.places[-1].row + 1 - part.first, 0), part.rows)


def _text_at(batch: Batch, first: int, place: Place) -> int:
    """Number of the text that a place of a part of the batch is in."""
    row = first + place.row
    return max(
        (slot for slot in batch.places if slot.row == row and slot.start <= place.position),
        key=lambda slot: slot.start,
    ).text
