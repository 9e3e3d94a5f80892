# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts as a model reads them, with the labels of their positions and the trees over them."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from flaxattn.corpus.bad_rows import Problem
from flaxattn.corpus.dependency_trees import NO_GOVERNOR, Sentence
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pipeline.tokenize_texts import TOGETHER, groups_of, in_background, tokenize_each
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.position_labels import Arc, PositionLabels, labels_of
from flaxattn.text.token_spans import positions_of_words, token_spans
from flaxattn.trace.trace import Trace

WINDOW = 4096
"""Texts that are sorted by length together, and among which the rarest token is found."""
LONGEST = 1 << 30
"""Positions that no text has."""


class LabelledText(NamedTuple):
    """A text as the model takes it, the layout of its positions, and what it was read from."""

    reading: TokenizedTexts
    layout: PositionLabels
    text: Text


def windows(
    model: Pretrained,
    texts: Iterable[Text],
    reading: ReadingOptions = DEFAULTS,
    size: int | None = None,
) -> Iterator[list[LabelledText]]:
    """Read texts in order, up to `size` at a time, which is `WINDOW` by default."""
    size = WINDOW if size is None else size
    window: list[LabelledText] = []
    groups = groups_of(itertools.islice(texts, reading.limit), TOGETHER)
    for labelled in in_background(lambda group: label_texts(model, group, reading), groups):
        window += labelled
        if len(window) + TOGETHER > size:
            yield window
            window = []
    if window:
        yield window


def with_rare(layouts: Sequence[PositionLabels]) -> list[PositionLabels]:
    """Layouts that know their rarest token, by its frequency in all of them."""
    counts = collections.Counter(
        token for layout in layouts for token in layout.tokens[layout.plain].tolist()
    )
    found = []
    for layout in layouts:
        places = np.flatnonzero(layout.plain)
        often = [counts[token] for token in layout.tokens[places].tolist()]
        rare = int(places[int(np.argmin(often))]) if often else -1
        found.append(dataclasses.replace(layout, rare=rare))
    return found


def label_texts(
    model: Pretrained, texts: Sequence[Text], options: ReadingOptions
) -> list[LabelledText]:
    """Tokenize some texts and label their positions."""
    pairs = [text.text_b is not None for text in texts]
    if any(pairs) and not all(pairs):
        missing = texts[pairs.index(False)]
        raise InputError(
            f"text {missing.id!r} has no second text, and others have one\n"
            "give every text its second, or none"
        )
    found, (low, high) = [], options.lengths or (0, LONGEST)
    for text, reading in tokenize_each(model, texts, options.truncate, options.problems):
        layout = labels_of(reading.metadata, tokens=reading.given["input_ids"][0], name=text.id)
        if text.sentence is not None:
            tree = _on_tree(model, text.sentence, reading, layout)
            if isinstance(tree, Problem):
                options.problems.report(tree)
                continue
            layout = tree
        if low <= len(layout) <= high:
            found.append(LabelledText(reading, layout, text))
    return found


def _on_tree(
    model: Pretrained, sentence: Sentence, reading: TokenizedTexts, layout: PositionLabels
) -> PositionLabels | Problem:
    """The layout with the words of a tree; a problem where the tokenizer leaves nothing of one."""
    assert model.tokenizer is not None
    encoded = model.tokenizer.encode(sentence.text, max_length=LONGEST)
    cut = bool(reading.metadata.truncated[0])
    return with_tree(layout, sentence, encoded.offsets[0][: len(layout)], cut)


def offsets_in(text: str, trace: Trace, layout: PositionLabels) -> list[tuple[int, int]]:
    """Half-open range of characters of each token of a text that was recorded."""
    if trace.spans and trace.texts and list(trace.texts[0]) == [text]:
        return [span or (0, 0) for span in trace.spans[0]]
    return token_spans(text, trace.tokens[0], layout.special.tolist())


def with_tree(
    layout: PositionLabels, sentence: Sentence, offsets: Sequence[tuple[int, int]], cut: bool
) -> PositionLabels | Problem:
    """A layout with the words of the tree over its text."""
    spans = [(word.start, word.stop) for word in sentence.words]
    words = positions_of_words(spans, offsets, layout.special.tolist())
    end = max((offsets[place][1] for place in np.flatnonzero(layout.plain).tolist()), default=0)
    for number, (word, tokens) in enumerate(zip(sentence.words, words, strict=True), 1):
        if not tokens and not (cut and word.start >= end):
            message = (
                f"sentence {sentence.id!r}, word {number} {word.form!r}: the tokenizer makes no "
                "token of it"
            )
            return Problem(sentence.file, word.line, "", "no-tokens", message)
    arcs = [
        Arc(number, word.governor, word.relation)
        for number, word in enumerate(sentence.words)
        if word.governor != NO_GOVERNOR
    ]
    tags = [word.tag for word in sentence.words]
    return dataclasses.replace(layout, words=words, tags=tags, arcs=arcs)
