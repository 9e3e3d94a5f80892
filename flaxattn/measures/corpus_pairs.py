# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gold pairs of the texts of a scored corpus: what its claims are about, text by text."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from flaxattn.corpus.bad_rows import Problem
from flaxattn.corpus.texts import Text
from flaxattn.measures.gold_pairs import GoldPairs, score_pairs
from flaxattn.measures.score_terms import ScoreOptions, ScoreSpec
from flaxattn.measures.scores import side_of
from flaxattn.measures.side_terms import terms_for
from flaxattn.pipeline.labelled_texts import label_texts, offsets_in, with_tree
from flaxattn.pipeline.reading_options import ReadingOptions
from flaxattn.text.position_labels import PositionLabels, labels_of
from flaxattn.text.token_spans import PlaceError
from flaxattn.trace.trace import Trace

if TYPE_CHECKING:
    from flaxattn.pretrained.pretrained_model import Pretrained


def text_pairs(
    columns: Mapping[str, ScoreSpec],
    trace: Trace,
    text: Text,
    options: ScoreOptions,
    side: str,
    model: "Pretrained | None" = None,
) -> list[GoldPairs]:
    """The gold pairs of some claims in one text; claims that name no pairs there are left out."""
    layout = text_layout(trace, text, model)
    alone = trace.decoder is None and trace.cross is None
    terms = terms_for(trace, layout, side, _with_tree(options, layout), alone=alone)
    record = side_of(trace, side)
    found = [score_pairs(name, spec, terms, record, side) for name, spec in columns.items()]
    return [one for one in found if one is not None and one.pairs]


def text_layout(trace: Trace, text: Text, model: "Pretrained | None") -> PositionLabels:
    """Labels of the positions of a text that was traced, with its tree where that is known."""
    layout = labels_of(trace, name=text.id)
    if text.sentence is None:
        return layout
    if model is not None:
        read = label_texts(model, [text], ReadingOptions(truncate=True))
        return read[0].layout if read and len(read[0].layout) == len(layout) else layout
    try:
        offsets = offsets_in(text.sentence.text, trace, layout)
    except PlaceError:
        return layout
    cut = bool(trace.truncated and trace.truncated[0])
    tree = with_tree(layout, text.sentence, offsets, cut)
    return layout if isinstance(tree, Problem) else tree


def _with_tree(options: ScoreOptions, layout: PositionLabels) -> ScoreOptions:
    """The same options; a text without a tree has no scores of it."""
    return dataclasses.replace(options, annotated=options.annotated and bool(layout.words))
