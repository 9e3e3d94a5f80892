# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts as a model reads them, with the labels of their positions and the trees over them."""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from flaxattn.corpus.bad_rows import BadRows, Problem
from flaxattn.corpus.dependency_trees import NO_GOVERNOR, Sentence
from flaxattn.errors import InputError
from flaxattn.pipeline.chunks import TOGETHER, Chunk, TextError, read_chunk
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.readings import TokenizedTexts
from flaxattn.text.position_labels import Arc, PositionLabels, labels_of
from flaxattn.text.words import pieces_of_words

WINDOW = 4096
"""Texts that are sorted by length together, and among which the rarest token is found."""
LONGEST = 1 << 30
"""Positions that no text has."""


class Subject(NamedTuple):
    """A text that heads are scored on.

    Attributes:
        name: What it is called in errors; draws follow from it.
        text: As it is written.
        text_b: The second text of a pair.
        sentence: The tree over the text, of which `text` is the text.
        file: Where it stands.
        line: In that file, from 1.
    """

    name: str
    text: str
    text_b: str | None = None
    sentence: Sentence | None = None
    file: str = ""
    line: int = 0


class LabelledText(NamedTuple):
    """A text as the model takes it, the layout of its positions, and what it was read from."""

    reading: TokenizedTexts
    layout: PositionLabels
    subject: Subject


def subject_of(sentence: Sentence) -> Subject:
    """A sentence with its tree as something to score heads on."""
    return Subject(sentence.id, sentence.text, None, sentence, sentence.file, sentence.line)


def windows(
    model: Pretrained,
    subjects: Iterable[Subject],
    *,
    truncate: bool = False,
    lengths: tuple[int, int] | None = None,
    bad: BadRows | None = None,
) -> Iterator[list[LabelledText]]:
    """Read texts, up to `WINDOW` at a time, in order.

    Args:
        model: With its tokenizer.
        subjects: The texts, all of them pairs or none.
        truncate: Whether texts over the model's limit are cut.
        lengths: Fewest and most positions of texts that count, special tokens included.
        bad: Receives texts that cannot be used; by default the first one raises.

    Yields:
        Texts that can be used, each window with at least one.

    Raises:
        InputError: If only some texts are pairs; and as `bad` says.
    """
    bad = BadRows() if bad is None else bad
    low, high = lengths or (0, LONGEST)
    window: list[LabelledText] = []
    for chunk in _chunks(subjects):
        found = read_subjects(model, chunk, truncate, bad)
        window += [read for read in found if low <= len(read.layout) <= high]
        if len(window) + TOGETHER > WINDOW:
            yield window
            window = []
    if window:
        yield window


def with_rare(layouts: Sequence[PositionLabels]) -> list[PositionLabels]:
    """Layouts that know their rarest piece, by its frequency in all of them.

    Args:
        layouts: Of a window of texts, whose tokens are numbered alike.
    """
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


def _chunks(subjects: Iterable[Subject]) -> Iterator[list[Subject]]:
    chunk: list[Subject] = []
    for subject in subjects:
        chunk.append(subject)
        if len(chunk) == TOGETHER:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def read_subjects(
    model: Pretrained, chunk: Sequence[Subject], truncate: bool, bad: BadRows
) -> list[LabelledText]:
    """Tokenize some texts and label their positions.

    Args:
        model: With its tokenizer.
        chunk: A few texts, all of them pairs or none.
        truncate: Whether texts over the model's limit are cut.
        bad: Takes those that it cannot read, which are left out.

    Raises:
        InputError: If only some are pairs; and as `bad` says.
    """
    pairs = [subject.text_b is not None for subject in chunk]
    if any(pairs) and not all(pairs):
        missing = chunk[pairs.index(False)]
        raise InputError(
            f"text {missing.name!r} has no second text, and others have one\n"
            "give every text its second, or none"
        )
    rows: list[tuple[Subject, TokenizedTexts]] = []
    try:
        rows += zip(chunk, read_chunk(model, _chunk(chunk, truncate)), strict=True)
    except TextError:
        for subject in chunk:
            try:
                rows.append((subject, read_chunk(model, _chunk([subject], truncate))[0]))
            except TextError as error:
                told = error.problem.splitlines()[0]
                code = "too-many-tokens" if "too long" in told else "empty"
                bad.report(Problem(subject.file, subject.line, "", code, told))
    found = []
    for subject, reading in rows:
        layout = labels_of(reading.told, tokens=reading.given["input_ids"][0], name=subject.name)
        if subject.sentence is not None:
            tree = _on_tree(model, subject.sentence, reading, layout)
            if isinstance(tree, Problem):
                bad.report(tree)
                continue
            layout = tree
        found.append(LabelledText(reading, layout, subject))
    return found


def _chunk(subjects: Sequence[Subject], truncate: bool) -> Chunk:
    seconds = [subject.text_b for subject in subjects if subject.text_b is not None]
    return Chunk(0, [subject.text for subject in subjects], seconds or None, truncate)


def _on_tree(
    model: Pretrained, sentence: Sentence, reading: TokenizedTexts, layout: PositionLabels
) -> PositionLabels | Problem:
    """The layout with the words of a tree; a problem where the tokenizer leaves nothing of one."""
    assert model.tokenizer is not None
    encoded = model.tokenizer.encode(sentence.text, max_length=LONGEST)
    cut = bool(reading.told.truncated[0])
    return with_tree(layout, sentence, encoded.offsets[0][: len(layout)], cut)


def with_tree(
    layout: PositionLabels, sentence: Sentence, offsets: Sequence[tuple[int, int]], cut: bool
) -> PositionLabels | Problem:
    """A layout with the words of the tree over its text.

    Args:
        layout: Of a text without a second one.
        sentence: The tree, over the same text.
        offsets: Half-open range of characters of each piece.
        cut: Whether the text was cut to fit the model; words beyond have no piece.

    Returns:
        The layout, or a problem where a word has no piece.
    """
    spans = [(word.start, word.stop) for word in sentence.words]
    words = pieces_of_words(spans, offsets, layout.special.tolist())
    end = max((offsets[place][1] for place in np.flatnonzero(layout.plain).tolist()), default=0)
    for number, (word, pieces) in enumerate(zip(sentence.words, words, strict=True), 1):
        if not pieces and not (cut and word.start >= end):
            told = (
                f"sentence {sentence.id!r}, word {number} {word.form!r}: the tokenizer makes no "
                "piece of it"
            )
            return Problem(sentence.file, word.line, "", "no-pieces", told)
    arcs = [
        Arc(number, word.governor, word.relation)
        for number, word in enumerate(sentence.words)
        if word.governor != NO_GOVERNOR
    ]
    tags = [word.tag for word in sentence.words]
    return dataclasses.replace(layout, words=words, tags=tags, arcs=arcs)
