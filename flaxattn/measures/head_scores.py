# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an encoder over texts, with trees or without, and hands out scores of its heads: no map.

Texts are read, laid out and sorted by length here; what is added up is in `head_sums`, what it
means in `flaxattn.measures`.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from flaxattn.corpus.bad_rows import BadRows, Problem
from flaxattn.corpus.dependency_trees import NO_GOVERNOR, Sentence
from flaxattn.errors import InputError
from flaxattn.measures.head_sums import CAPTURE, NOTES, HeadSums
from flaxattn.measures.score_terms import ScoreName, ScoreOptions, Terms, terms_of
from flaxattn.measures.scores import Scores, gathered
from flaxattn.pipeline.batches import Batch, planned, stacked
from flaxattn.pipeline.chunks import TOGETHER, Chunk, TextError, read_chunk
from flaxattn.pipeline.device_step import Begun, DeviceStep, mesh_of
from flaxattn.pipeline.extraction import room_for
from flaxattn.pretrained.pretrained_bert import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.readings import TokenizedTexts
from flaxattn.text.position_labels import Arc, PositionLabels, layout_of
from flaxattn.text.words import pieces_of_words

WINDOW = 4096  # texts that are sorted by length together, and among which pieces are rare
_AHEAD = 2  # batches that the device has been given
_LONGEST = 1 << 30


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


def head_scores(
    model: Pretrained,
    subjects: Iterable[Subject],
    asked: ScoreOptions,
    *,
    truncate: bool = False,
    lengths: tuple[int, int] | None = None,
    bad: BadRows | None = None,
    batch_tokens: int | None = None,
    mesh: Mesh | None = None,
    watch: Callable[[int], None] = lambda count: None,
    told: Callable[[Sequence[Subject]], None] = lambda texts: None,
) -> Iterator[Scores]:
    """Scores of every head on texts, window by window, in order.

    Attention weights neither leave the device nor exist for more than one layer at a time. Memory
    on the host: 4 bytes per number, head and text of a window of 4,096; about 50 numbers, with
    trees 30 and for each relation 10 more.

    Args:
        model: A BERT with its tokenizer.
        subjects: The texts; those with a tree where `asked.annotated`.
        asked: Which roles.
        truncate: Whether texts over the model's limit are cut; words beyond count nowhere.
        lengths: Fewest and most positions of texts that count, special pieces counted: scores of a
            role compare best on texts of like lengths.
        bad: Takes texts that cannot be used: over the limit, or with a word that the tokenizer
            leaves nothing of. Default: the first one raises.
        batch_tokens: Positions of a batch, padding counted.
        mesh: Devices with an axis "data" that share every batch.
        watch: Told how many texts were computed, after every batch.
        told: Given the texts that the scores are of which come next.

    Yields:
        Scores of up to 4,096 texts.

    Raises:
        InputError: For a model that is no BERT, or a text that cannot be used.
        UnavailableError: If memory does not suffice for small batches.
    """
    if not isinstance(model, PretrainedBert):
        raise InputError(
            f"roles of heads are defined for encoders; {model.name!r} is none\n"
            "name a BERT, or measure a trace of it: flaxattn.measures.head_measures.head_measures"
        )
    bad = BadRows() if bad is None else bad
    engine = _ScoreEngine(model, asked, batch_tokens, mesh_of(mesh, None))
    window: list[LabelledText] = []

    def scored() -> Scores:
        told([read.subject for read in window])
        return engine.scores(window, watch)

    low, high = lengths or (0, _LONGEST)
    for chunk in _chunks(subjects):
        found = read_subjects(model, chunk, truncate, bad)
        window += [read for read in found if low <= len(read.layout) <= high]
        if len(window) + TOGETHER > WINDOW:
            yield scored()
            window = []
    if window:
        yield scored()


class _ScoreEngine:
    """A model on its devices, and what is done with a window of texts."""

    def __init__(
        self,
        model: PretrainedBert,
        asked: ScoreOptions,
        batch_tokens: int | None,
        mesh: Mesh | None,
    ) -> None:
        self._model, self._asked, self._mesh = model, asked, mesh
        self._batch_tokens = batch_tokens
        self._step: tuple[HeadSums, DeviceStep] | None = None

    def scores(self, window: Sequence[LabelledText], watch: Callable[[int], None]) -> Scores:
        """Scores of some texts, in their order."""
        layouts = with_rare([read.layout for read in window])
        terms = [terms_of(layout, self._asked) for layout in layouts]
        sums, step = self._steps(HeadSums.of(terms))
        rows = [read.reading for read in window]
        room = room_for([self._model], CAPTURE, step.parts, self._batch_tokens)
        # Coefficients are laid out for rows of one text each.
        batches = planned(
            [row.lengths for row in rows], self._model.limit, room._replace(packs=False)
        )
        rooms = _rooms(sums, batches, terms)
        found: list[Mapping[ScoreName, Float[np.ndarray, "L H"]]] = [{}] * len(window)

        def given(batch: Batch) -> dict[str, np.ndarray]:
            texts = [(layouts[place.text], terms[place.text]) for place in batch.places]
            room = rooms[batch.widths]
            return {**stacked(rows, batch), **sums.packed(texts, batch.rows, batch.widths[0], room)}

        layers: tuple[int, ...] = ()
        heads: tuple[int, ...] = ()
        begun: collections.deque[tuple[Batch, Begun]] = collections.deque()
        for batch in [*batches, *[None] * _AHEAD]:
            if batch is not None:
                begun.append((batch, step.begin(given(batch))))
            if begun and (batch is None or len(begun) > _AHEAD):
                done, started = begun.popleft()
                for part in step.end(started):
                    seen = part.models[0]["encoder"]
                    layers, heads = seen.layers, seen.heads
                    for place in range(part.rows):
                        if part.first + place < len(done.places):
                            number = done.places[part.first + place].text
                            stats = {n: np.asarray(a)[:, place] for n, a in seen.stats.items()}
                            found[number] = sums.unpacked(stats, terms[number])
                watch(len(done.places))
        return gathered(layers, heads, list(zip(layouts, terms, found, strict=True)))

    def _steps(self, sums: HeadSums) -> tuple[HeadSums, DeviceStep]:
        """The compiled step; that of the window before where the sums are the same."""
        if self._step is None or self._step[0] != sums:
            model = self._model
            step = DeviceStep(model.module, [model.params], CAPTURE, self._mesh, sums, NOTES)
            self._step = sums, step
        return self._step


def _rooms(
    sums: HeadSums, batches: Sequence[Batch], terms: Sequence[Terms]
) -> dict[tuple[int, ...], tuple[int, int]]:
    """Room for pairs by width, so that batches of a width share a compiled shape."""
    members: dict[tuple[int, ...], list[Terms]] = {}
    for batch in batches:
        members.setdefault(batch.widths, []).extend(terms[place.text] for place in batch.places)
    return {widths: sums.room(some) for widths, some in members.items()}


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
    """What a model reads of some texts, and the layout of each.

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
        layout = layout_of(reading.told, tokens=reading.given["input_ids"][0], name=subject.name)
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
    encoded = model.tokenizer.encode(sentence.text, max_length=_LONGEST)
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
