# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sources of scores of heads: a model with texts, traces with weights, or a store.

Every source yields the scores of the heads of one side, some texts at a time, in order. With a
model (`head_scores`) the kernel evaluates them, and weights are never formed beyond its blocks. A
store is read with trees joined on, and what it does not hold is named with the capture that would
have recorded it. `collect` gathers moments, the best texts and intervals from any of them.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jax.sharding import Mesh

from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.dependency_trees import Sentence, read_sentences
from flaxattn.corpus.texts import Text, plain_texts
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.measures.claims import Evidence
from flaxattn.measures.scores import (
    NOTES,
    ScoreAccumulator,
    Scores,
    ScoreSums,
    blank_labels,
    blanked,
    capture_hints,
    dense_values,
    gathered,
    recorded_values,
    scores_of,
)
from flaxattn.measures.specs import (
    ScoreOptions,
    ScoreSpec,
    Terms,
    ranges_of,
    recorded_ranges,
    windows_in,
)
from flaxattn.measures.terms import by_layer, terms_for
from flaxattn.pipeline.batches import Batch, stacked
from flaxattn.pipeline.batches import sides as sizes_of
from flaxattn.pipeline.extraction import Options, extract_shards, with_targets
from flaxattn.pipeline.run import AttentionProgram, ModelRunner, batch_budget, mesh_of
from flaxattn.pipeline.tokenize_texts import (
    DEFAULTS,
    LONGEST,
    TOGETHER,
    WINDOW,
    LabelledText,
    ReadingOptions,
    offsets_in,
    windows,
    with_rare,
    with_tree,
)
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.store.open_store import Store
from flaxattn.text.position_labels import PositionLabels, labels_of
from flaxattn.text.tokens import PlaceError
from flaxattn.trace.record import AttentionRecord, layer_weights
from flaxattn.trace.trace import Trace, capture_from_json


def default_side(model: Pretrained, requested: str | None = None) -> str:
    """The side of a model whose heads are meant: cross-attention where there is any."""
    there = [side.name for side in sizes_of(model.config)]
    if requested is not None and requested not in there:
        raise InputError(
            f"{model.name!r} has no attention of side {requested!r}\nit has {', '.join(there)}"
        )
    return requested or there[-1]


def extents(side: str, lengths: tuple[int, ...]) -> tuple[int, int]:
    """Queries and keys of a side."""
    source, target = lengths[0], lengths[-1]
    return {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}[
        side
    ]


def head_scores(
    model: Pretrained,
    texts: Iterable[Text],
    options: ScoreOptions,
    *,
    side: str | None = None,
    reading: ReadingOptions = DEFAULTS,
    mesh: Mesh | None = None,
    on_texts: Callable[[Sequence[Text]], object] = lambda texts: None,
) -> Iterator[Scores]:
    """Score every head of a side on texts, in order.

    No attention weights leave the device, and nothing of size Q x K is stored. Memory on the host:
    4 bytes per number, head and text of a window of 4,096; about 50 numbers, with trees 30 and for
    each relation 10 more.

    Args:
        model: Any with its tokenizer.
        texts: The texts; those with a tree where `options.annotated`. The second text of an
            encoder-decoder is its target, and where there is none, the model writes it; trees are
            over sources.
        options: Choice of roles.
        side: `encoder`, `decoder` or `cross`; default `default_side`.
        reading: How texts are read, and which of them count.
        mesh: Devices with an axis "data" that share every batch.
        on_texts: Receives the texts that the next scores are of.

    Yields:
        Scores of up to 4,096 texts.

    Raises:
        InputError: If the model has no such side, `pande_parity` is set for a model that is not an
            encoder, or a text cannot be used.
        UnavailableError: If memory does not suffice for small batches.
    """
    side = default_side(model, side)
    if options.pande_parity and not isinstance(model, PretrainedBert):
        raise InputError(
            f"the notebooks are about an encoder by itself; {model.name!r} is read at its {side}\n"
            "leave pande_parity out"
        )
    scorer = _Scorer(model, options, side, reading, mesh_of(mesh, None))
    for window in windows(model, texts, reading):
        on_texts([one.text for one in window])
        yield scorer.scores(window)


class _Scorer:
    """A model on its devices, and the scores of a window of texts."""

    def __init__(
        self,
        model: Pretrained,
        options: ScoreOptions,
        side: str,
        reading: ReadingOptions,
        mesh: Mesh | None,
    ) -> None:
        self._model, self._score_options, self._side, self._mesh = model, options, side, mesh
        self._reading, self._alone = reading, isinstance(model, PretrainedBert)
        self._sides = [size.name for size in sizes_of(model.config)]
        self._last: tuple[ScoreSums, ModelRunner] | None = None
        self._ranges = ranges_of(model.config)
        self._windows = windows_in(self._ranges)
        parts = 1 if mesh is None else mesh.shape["data"]
        self._tokens = batch_budget([model], parts, reading.batch_tokens).tokens

    def scores(self, window: Sequence[LabelledText]) -> Scores:
        """Score some texts, in their order."""
        side = self._side
        layouts = with_rare([read.layout for read in window])
        rows = with_targets([self._model], [read.reading for read in window], {}, self._tokens)
        terms = [
            terms_for(
                row.metadata,
                layout,
                side,
                self._score_options,
                alone=self._alone,
                windows=self._windows,
            )
            for row, layout in zip(rows, layouts, strict=True)
        ]
        sums = ScoreSums.of(terms, side)
        runner = self._runner(sums)
        batches = runner.batches(rows)
        rooms = _rooms(sums, batches, terms)
        found: list[dict] = [{}] * len(window)
        numbers: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

        def inputs(batch: Batch) -> dict[str, Any]:
            texts = [terms[place.text] for place in batch.places]
            extent = extents(side, batch.widths)
            labels, notes = sums.packed(texts, batch.rows, extent, rooms[batch.widths])
            # Every side records the same statistics; those of the others are not computed.
            others = {
                other: blank_labels(labels, extents(other, batch.widths))
                for other in self._sides
                if other != side
            }
            return {**stacked(rows, batch), "labels": {side: labels, **others}, **notes}

        texts = [read.text for read in window]
        for text, _, (output,) in runner.run(rows, texts, batches=batches, inputs=inputs):
            record, nonfinite = (one[side] for one in output)
            numbers = record.layers, record.heads
            stats = {name: array[:, 0] for name, array in record.stats.items()}
            ranges = [self._ranges[layer] for layer in numbers[0] if self._windows]
            values = by_layer(sums.unpacked(stats, terms[text]), ranges, self._windows)
            found[text] = blanked(values, nonfinite.counts[:, 0] > 0)
        return gathered(*numbers, list(zip(terms, found, strict=True)), side)

    def _runner(self, sums: ScoreSums) -> ModelRunner:
        """The runner for some sums; that of the window before where they are the same."""
        if self._last is None or self._last[0] != sums:
            runner = ModelRunner(
                [self._model],
                AttentionProgram(sums),
                sums.capture,
                mesh=self._mesh,
                notes=NOTES,
                batch_tokens=self._reading.batch_tokens,
                allow_nonfinite=self._reading.allow_nonfinite,
                watch=self._reading.watch,
                stage="scoring heads",
            )
            self._last = sums, runner
        return self._last[1]


def _rooms(
    sums: ScoreSums, batches: Sequence[Batch], terms: Sequence[Terms]
) -> dict[tuple[int, ...], tuple[int, int]]:
    """Room for pairs by width, so that batches of a width share a compiled shape."""
    members: dict[tuple[int, ...], list[Terms]] = {}
    for batch in batches:
        members.setdefault(batch.widths, []).extend(terms[place.text] for place in batch.places)
    return {widths: sums.room(some) for widths, some in members.items()}


class ScoredTexts(NamedTuple):
    """Some texts and their scores.

    Attributes:
        scores: Scores of every head.
        numbers: Numbers of the texts, counted from 0 in the order in which they are read.
        texts: The texts.
    """

    scores: Scores
    numbers: Sequence[int]
    texts: Sequence[Text]


@dataclasses.dataclass
class ScoreSource:
    """Scores of texts, and how to trace some of these texts.

    Attributes:
        parts: Scores of all texts, in order.
        facts: Model and data, ready for JSON.
        traces: Traces of texts that `parts` yielded, by number; None where there are none.
        refused: Scores that the source does not tell, with the capture that would record them;
            complete when `parts` has ended.
        model: The model; None for what was recorded.
    """

    parts: Iterator[ScoredTexts]
    facts: dict[str, Any]
    traces: Callable[[Sequence[Text], Sequence[int]], Iterator[Trace]] | None
    refused: dict[ScoreSpec, str] = dataclasses.field(default_factory=dict)
    model: Pretrained | None = None


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


def _traces(store: Store) -> Callable[[Sequence[Text], Sequence[int]], Iterator[Trace]]:
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
                windowed = windows_in(ranges)
                terms = terms_for(trace, layout, _SIDE, self.options, alone=True, windows=windowed)
                values = by_layer(_values(record, capture, terms), ranges, windowed)
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


def model_source(
    model: Pretrained,
    texts: Iterable[Text],
    options: ScoreOptions,
    reading: ReadingOptions = DEFAULTS,
    side: str | None = None,
) -> ScoreSource:
    """Scores of a model's heads on texts, evaluated by the kernel."""
    side, announced = default_side(model, side), list[Sequence[Text]]()
    scored = head_scores(
        model, texts, options, side=side, reading=reading, on_texts=announced.append
    )

    def parts() -> Iterator[ScoredTexts]:
        start = 0
        for scores in scored:
            yield ScoredTexts(scores, range(start, start + len(scores)), announced.pop())
            start += len(scores)

    def traces(subjects: Sequence[Text], numbers: Sequence[int]) -> Iterator[Trace]:
        del numbers
        pairs = [s.text_b for s in subjects if s.text_b is not None]
        texts = [s.text for s in subjects]
        return traces_of(
            model, texts, pairs or None, reading.truncate, allow_nonfinite=reading.allow_nonfinite
        )

    return ScoreSource(parts(), {"model": model.name, "side": side}, traces, model=model)


def trace_source(
    traces: Iterable[Trace], side: str, options: ScoreOptions, reading: ReadingOptions, **facts: Any
) -> ScoreSource:
    """Scores of heads from weights that were traced, one text at a time."""
    if options.annotated or (options.pande_parity and side != "encoder"):
        raise InputError(
            "traces hold no trees, and the notebooks' errors are for an encoder alone\n"
            "leave trees and pande_parity out, or read the texts with the model"
        )
    low, high = reading.lengths or (0, LONGEST)

    def parts() -> Iterator[ScoredTexts]:
        for number, trace in enumerate(itertools.islice(traces, reading.limit)):
            reading.watch("scoring heads", 1)
            if low <= len(trace.tokens[0]) <= high:
                texts = trace.texts[0] if trace.texts else [""]
                found = plain_texts(texts[:1], texts[1:2] or None, number)
                yield ScoredTexts(scores_of([trace], options, side=side), [number], found)

    return ScoreSource(parts(), {**facts, "side": side}, None)


def traces_of(
    model: Pretrained,
    texts: Sequence[str],
    second: Sequence[str] | None,
    truncate: bool,
    *,
    allow_nonfinite: bool = False,
) -> Iterator[Trace]:
    """Trace the weights of a few texts, some at a time, in their order."""
    groups = _small(texts, second)
    every = plain_texts(texts, second)
    shards = [every[i:j] for i, j in groups]
    weights = Capture(weights=True)
    options = Options(capture=weights, truncate=truncate, allow_nonfinite=allow_nonfinite)
    for (found,) in extract_shards([model], shards, options):
        yield from found.traces


_ROOM = 1 << 20  # characters squared of texts whose maps are in memory together


def _small(texts: Sequence[str], second: Sequence[str] | None) -> list[tuple[int, int]]:
    """Ranges of texts that are short together; maps grow with the square of a text."""
    sizes = [len(text) for text in texts]
    if second is not None:
        sizes = [size + len(text) for size, text in zip(sizes, second, strict=True)]
    starts, room = [0], 0
    for place, size in enumerate(sizes):
        room += size * size
        if room > _ROOM and place > starts[-1]:
            starts.append(place)
            room = size * size
    return list(itertools.pairwise([*starts, len(texts)]))


_KEPT = 20_000  # texts whose scores stay in memory, for bootstrap intervals


@dataclasses.dataclass
class ScoredCorpus:
    """Scores of a corpus for the heads of a model.

    Attributes:
        tally: Moments over all texts.
        scores: Scores of every text; None where there were too many to keep.
        facts: Model, texts and data, ready for JSON.
        evidence: The texts with the highest scores.
        lowest: The texts with the lowest scores, with their signs reversed.
        texts: Texts of both, by number.
        traces: Traces of some of them, by number; None where there are none.
        refused: Scores that a store does not tell, with the capture that would record them.
        model: The model; None for what was recorded.
    """

    tally: ScoreAccumulator
    scores: Scores | None
    facts: dict[str, Any]
    evidence: Evidence
    lowest: Evidence
    texts: dict[int, Text]
    traces: Callable[[Sequence[int]], Iterator[Trace]] | None
    refused: dict[ScoreSpec, str]
    model: Pretrained | None


def collect(
    source: ScoreSource,
    kinds: Sequence[str] = ("score",),
    best: int = 5,
    bad: BadRows | None = None,
    lowest: int = 0,
) -> ScoredCorpus:
    """Go through a source once and keep what a report needs."""
    tally, evidence, kept, count = ScoreAccumulator(), Evidence(best), [], 0
    least = Evidence(max(1, lowest))
    texts: dict[int, Text] = {}
    for part in source.parts:
        count += len(part.scores)
        tally.add(part.scores)
        kept.append(part.scores)
        if count > _KEPT:
            kept.clear()
        for column, values in part.scores.values.items():
            if column.kind in kinds:
                evidence.add(column, values, part.numbers)
                if lowest:
                    least.add(column, -values, part.numbers)
        texts |= zip(part.numbers, part.texts, strict=True)
        texts = {number: texts[number] for number in evidence.texts() | least.texts()}
    if not count:
        raise InputError(
            "there is no text to score heads on\ngive texts, or a wider range of lengths"
        )
    facts = source.facts | {
        "texts": count,
        "lengths": _lengths(tally.lengths),
        "left_out": dict(sorted(bad.counts.items())) if bad is not None else {},
        "nonfinite": [
            {"layer": tally.layers[i], "head": tally.heads[j], "texts": int(tally.broken[i, j])}
            for i, j in np.argwhere(tally.broken).tolist()
        ],
    }
    return ScoredCorpus(
        tally,
        Scores.joined(kept) if count <= _KEPT else None,
        facts,
        evidence,
        least,
        texts,
        _traces_of(source, texts),
        {c: reason for c, reason in sorted(source.refused.items()) if c not in tally.moments},
        source.model,
    )


def _traces_of(
    source: ScoreSource, texts: Mapping[int, Text]
) -> Callable[[Sequence[int]], Iterator[Trace]] | None:
    made = source.traces
    if made is None:
        return None
    return lambda numbers: made([texts[number] for number in numbers], numbers)


def _lengths(lengths: np.ndarray) -> dict[str, float]:
    low, middle, high = np.quantile(lengths, (0, 0.5, 1)).tolist()
    return {"mean": round(float(lengths.mean()), 3), "least": low, "median": middle, "most": high}
