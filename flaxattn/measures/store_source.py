# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of heads from a store: from weights or from recorded statistics, with trees joined on.

Texts are read a few at a time, arrays a shard at a time. What a store does not hold is named with
the capture that would have recorded it. No model is loaded.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.dependency_trees import Sentence, read_sentences
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.measures.key_range import recorded_ranges, windows_in
from flaxattn.measures.score_source import (
    ScoredTexts,
    ScoreSource,
    trace_source,
)
from flaxattn.measures.score_sums import capture_hints, dense_values, recorded_values
from flaxattn.measures.score_terms import ScoreOptions, ScoreSpec, Terms
from flaxattn.measures.scores import Scores, gathered
from flaxattn.measures.side_terms import terms_for
from flaxattn.measures.windowed_terms import by_layer
from flaxattn.pipeline.labelled_texts import LONGEST, WINDOW, offsets_in, with_rare, with_tree
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pipeline.tokenize_texts import TOGETHER
from flaxattn.store.open_store import Store
from flaxattn.text.position_labels import PositionLabels, labels_of
from flaxattn.text.token_spans import PlaceError
from flaxattn.trace.capture_json import capture_from_json
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.selection import layer_weights

if TYPE_CHECKING:
    from flaxattn.trace.trace import Trace

_SIDE = "encoder"
_TOGETHER = 256  # texts whose scores are handed on together


def store_source(
    store: Store,
    trees: Sequence[Path],
    options: ScoreOptions,
    reading: ReadingOptions = DEFAULTS,
    side: str | None = None,
) -> ScoreSource:
    """Scores of the texts of a store, from weights or from the statistics that it holds."""
    sides = store.shard(0).sides
    side = side or ("cross" if "cross" in sides else _SIDE if _SIDE in sides else "decoder")
    facts = {"model": store.plan["model"]["name"]}
    if side != _SIDE or len(sides) > 1:
        if options.pande_parity or options.annotated:
            raise InputError(
                f"{store.path}: trees and the notebooks' errors are for stores of an encoder "
                "alone\n"
                "leave trees and pande_parity out, or read the texts with the model"
            )
        source = trace_source(iter(store), side, options, reading, **facts)
        source.traces = _traces(store)
        return source
    held = _check(store)
    reader = _Reader(store, trees, options, reading, reading.problems)
    source = ScoreSource(
        iter(()), facts | {"side": side}, _traces(store) if "weights" in held["arrays"] else None
    )
    source.parts = reader.parts(source.refused)
    return source


def _check(store: Store) -> Mapping[str, Any]:
    """Return what the store holds of its encoder."""
    sides = store.shard(0).sides
    held = sides.get(_SIDE, {"arrays": {}, "stats": {}})
    if "weights" in held["arrays"] or (_SIDE in sides and held["stats"]):
        return held
    there = [f"{side}.{name}" for side, s in sides.items() for name in (*s["arrays"], *s["stats"])]
    raise InputError(
        f"{store.path} holds no weights and no statistics of an encoder\n"
        f"it holds {', '.join(there) or 'nothing'}\n"
        "extract again: weights tell everything, the statistics entropy and distance a part"
    )


def _traces(store: Store) -> Callable[[Sequence[Text], Sequence[int]], "Iterator[Trace]"]:
    return lambda subjects, numbers: (store[number] for number in numbers)


@dataclasses.dataclass
class _Reader:
    """A store, read from the first text to the last."""

    store: Store
    trees: Sequence[Path]
    options: ScoreOptions
    reading: ReadingOptions
    bad: BadRows

    def parts(self, refused: dict[ScoreSpec, str]) -> Iterator[ScoredTexts]:
        """Scores of all texts."""
        capture = capture_from_json(self.store.plan["capture"])
        traces, read = zip(self.store.examples, self.store, strict=True), -1
        for window in self._windows():
            layouts = with_rare([layout for _, layout, _ in window])
            found: list[tuple[Terms, Mapping[ScoreSpec, np.ndarray]]] = []
            part: list[tuple[int, Text]] = []
            shape: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
            for (number, _, subject), layout in zip(window, layouts, strict=True):
                trace = None
                while read < number:
                    read, trace = next(traces)
                assert trace is not None
                assert trace.encoder is not None
                record = trace.encoder
                ranges = recorded_ranges(record, _SIDE)
                windows = windows_in(ranges)
                terms = terms_for(trace, layout, _SIDE, self.options, alone=True, windows=windows)
                values = by_layer(_values(record, capture, terms), ranges, windows)
                found.append((terms, values))
                part.append((number, subject))
                shape = record.layers, record.heads
                if record.weights is None:
                    refused |= capture_hints(terms)
                if len(found) == _TOGETHER:
                    yield _part(shape, found, part)
                    found, part = [], []
                self.reading.watch("scoring heads", 1)
            if found:
                yield _part(shape, found, part)

    def _windows(self) -> Iterator[list[tuple[int, PositionLabels, Text]]]:
        """Texts among which rare tokens are counted: as many as where a model reads them."""
        low, high = self.reading.lengths or (0, LONGEST)
        window: list[tuple[int, PositionLabels, Text]] = []
        for place, (number, layout, subject) in enumerate(self._texts()):
            if place and place % TOGETHER == 0 and len(window) + TOGETHER > WINDOW:
                yield window
                window = []
            if low <= len(layout) <= high:
                window.append((number, layout, subject))
        if window:
            yield window

    def _texts(self) -> Iterator[tuple[int, PositionLabels, Text]]:
        """Texts and their layouts, with trees where these are given."""
        examples = self.store.examples[: self.reading.limit]
        trees = self._trees(len(examples)) if self.options.annotated else None
        numbers: dict[str, int] = {}
        for number in examples:
            metadata, name = self.store.shard_of(number)[1].metadata(number), str(number)
            texts = list(metadata.texts[0]) if metadata.texts else [""]
            sentence = None
            if trees is not None:
                sentence = next(trees)
                if sentence is None:
                    continue
                name = sentence.id
            tokens = [numbers.setdefault(token, len(numbers)) for token in metadata.tokens[0]]
            layout = labels_of(metadata, tokens=np.array(tokens), name=name)
            if sentence is not None:
                joined = self._joined(layout, metadata, sentence)
                if isinstance(joined, Problem):
                    self.bad.report(joined)
                    continue
                layout = joined
            second = texts[1] if texts[1:] else None
            yield number, layout, Text(number, name, texts[0], second, sentence=sentence)

    def _trees(self, count: int) -> Iterator[Sentence | None]:
        """The sentence of each text; None where it cannot be used."""
        paths = list(self.trees)
        place, before = 0, self.bad.rows_read
        for sentence in read_sentences(paths, self.bad):
            while place < self.bad.rows_read - before - 1:
                place += 1
                yield None
            place += 1
            yield sentence
        left = self.bad.rows_read - before
        yield from [None] * (left - place)
        if left < count:
            raise InputError(
                f"{self.store.path} has {count} texts, and {_listed(paths)} "
                f"{left} sentences\ngive the sentences that were extracted, in their order; "
                f"limit={left} takes the first texts"
            )

    def _joined(
        self, layout: PositionLabels, metadata: "Trace", sentence: Sentence
    ) -> PositionLabels | Problem:
        """A layout with its tree; a problem where the text is another."""
        cut = bool(metadata.truncated and metadata.truncated[0])
        kept = list(metadata.texts[0]) if metadata.texts else []
        if layout.pair or len(kept) > 1:
            message = f"sentence {sentence.id!r}: the store has a pair of texts here"
            return Problem(sentence.file, sentence.line, "", _OTHER, message)
        if kept and kept[0] != sentence.text:
            same = [a == b for a, b in zip(kept[0], sentence.text, strict=False)]
            at = same.index(False) if False in same else len(same)
            return _other(sentence, at, kept[0])
        try:
            offsets = offsets_in(sentence.text, metadata, layout)
        except PlaceError as error:
            return _other(sentence, error.start, metadata.tokens[0][error.token])
        return with_tree(layout, sentence, offsets, cut)


_OTHER = "another-text"


def _other(sentence: Sentence, at: int, found: str) -> Problem:
    """Describe the place where a sentence and the stored text begin to differ."""
    number, word = next(
        ((n, word) for n, word in enumerate(sentence.words, 1) if word.stop > at),
        (len(sentence.words), sentence.words[-1]),
    )
    metadata = (
        f"sentence {sentence.id!r}, word {number} {word.form!r}: the store has another text here"
    )
    return Problem(sentence.file, word.line, "", _OTHER, metadata, excerpt(found))


def _values(record: AttentionRecord, capture: Any, terms: Terms) -> Mapping[ScoreSpec, np.ndarray]:
    """Numbers of a text, from its maps if there are any."""
    if record.weights is not None:
        record.require_whole("A score of a head")
        return dense_values(layer_weights(record, record.layers, allow_nan=True), terms)
    stats = {name: np.asarray(array)[:, 0] for name, array in record.stats.items()}
    return recorded_values(stats, capture, terms)


def _part(
    shape: tuple[tuple[int, ...], tuple[int, ...]],
    found: Sequence[tuple[Terms, Mapping[ScoreSpec, np.ndarray]]],
    part: Sequence[tuple[int, Text]],
) -> ScoredTexts:
    scores: Scores = gathered(*shape, found)
    return ScoredTexts(scores, [number for number, _ in part], [subject for _, subject in part])


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths)
