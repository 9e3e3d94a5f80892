# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Targets that an encoder-decoder writes for sources which came without, batch by batch.

`generation` writes the texts; `extraction` makes traces of sources and targets.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flaxattn.errors import InputError
from flaxattn.pipeline.batches import Batch, RowSlot, stacked
from flaxattn.pretrained.model_inputs import TokenizedTexts, bucket
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq


def with_targets(
    models: Sequence[Pretrained],
    rows: Sequence[TokenizedTexts],
    settings: Mapping[str, Any],
    batch_tokens: int,
) -> Sequence[TokenizedTexts]:
    """Rows with the targets that an encoder-decoder writes, where they came without.

    One that cannot write, such as a classifier, reads the source on both sides.

    The text written for a source does not depend on the sources beside it: a batch has one limit of
    length, which would otherwise follow from its longest source.
    """
    model = models[0]
    if not isinstance(model, PretrainedSeq2Seq) or len(rows[0].lengths) == 2:
        _check_nothing_set(settings)
        return rows
    if not model.writes:
        _check_nothing_set(settings)
        return [model.with_source_as_target(row) for row in rows]
    if len(models) > 1:
        raise InputError(
            "several models write different targets, which cannot be read as one\n"
            "give the targets, as text_b"
        )
    options = dict(settings)
    seed = options.pop("seed", 0)
    groups: dict[Any, list[int]] = {}
    for i in sorted(range(len(rows)), key=lambda i: rows[i].lengths, reverse=True):
        length = rows[i].lengths[0]
        decoding = model.decoding(length, 1, options)
        groups.setdefault((bucket(length, model.limit), decoding), []).append(i)
    found: list[TokenizedTexts] = list(rows)
    for (width, decoding), members in groups.items():
        most = max(batch_tokens // width, 1)
        for start in range(0, len(members), most):
            some = members[start : start + most]
            # At most two shapes per group: full batches, and one for the rest.
            places = tuple(RowSlot(text, row) for row, text in enumerate(some))
            batch = Batch(places, min(most, 1 << (len(some) - 1).bit_length()), (width,))
            given = stacked(rows, batch)
            sources = [rows[i] for i in some]
            for i, row in zip(
                some, model.with_targets(sources, given, decoding, seed), strict=True
            ):
                found[i] = row
    return found


def _check_nothing_set(settings: Mapping[str, Any]) -> None:
    """Check that there are no settings where nothing is written."""
    if settings:
        raise InputError(
            f"{', '.join(settings)}: nothing is written here, so there is nothing to set\n"
            "leave them out; only an encoder-decoder without targets writes"
        )
