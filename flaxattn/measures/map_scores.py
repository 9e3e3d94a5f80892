# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs any model over texts and hands out scores of the heads of a side, or how alike they are.

Roles of an encoder by itself come faster from `head_scores`, which forms no map. Numbers are made
on the device by `map_sums`; what they mean is in `flaxattn.measures`.
"""

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.measures.head_pairs import BEGINNING, Pairs, beginning
from flaxattn.measures.head_scores import LabelledText, Subject, read_subjects
from flaxattn.measures.map_sums import NOTES, MapSums
from flaxattn.measures.score_terms import ScoreName, ScoreOptions, Terms
from flaxattn.measures.scores import Scores, gathered
from flaxattn.measures.side_scores import ROWS, Sieves, columns, sieves_of
from flaxattn.pipeline.batches import Batch, planned, stacked
from flaxattn.pipeline.chunks import TOGETHER
from flaxattn.pipeline.device_step import Begun, DeviceStep
from flaxattn.pipeline.extraction import room_for
from flaxattn.pipeline.generated_targets import with_targets
from flaxattn.pipeline.text_sizes import sides as sizes_of
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.readings import TokenizedTexts
from flaxattn.trace.record import AttentionRecord

_WINDOW = 8 * TOGETHER  # texts that are sorted by length together
_AHEAD = 2  # batches that the device has been given
_LONGEST = 1 << 30


def default_side(model: Pretrained, asked: str | None = None) -> str:
    """The side of a model whose heads are meant: cross-attention where there is any.

    Args:
        model: Any.
        asked: What somebody named.

    Raises:
        InputError: If the model has no such side.
    """
    there = [side.name for side in sizes_of(model.config)]
    if asked is not None and asked not in there:
        raise InputError(
            f"{model.name!r} has no attention of side {asked!r}\nit has {', '.join(there)}"
        )
    return asked or there[-1]


def map_scores(
    model: Pretrained,
    subjects: Iterable[Subject],
    asked: ScoreOptions,
    *,
    side: str | None = None,
    truncate: bool = False,
    lengths: tuple[int, int] | None = None,
    bad: BadRows | None = None,
    batch_tokens: int | None = None,
    watch: Callable[[int], object] = lambda count: None,
    told: Callable[[Sequence[Subject]], None] = lambda texts: None,
) -> Iterator[Scores]:
    """Scores of every head of a side on texts, in order, with the roles of `heads.sieves`.

    Maps of a batch are on the device while it is computed: L H N bytes times 16 per position.

    Args:
        model: Any with its tokenizer.
        subjects: The texts; the second one of an encoder-decoder is its target, and where there is
            none, the model writes it. Trees are over the text, and count in self-attention to it.
        asked: Which relations.
        side: `encoder`, `decoder` or `cross`; default `default_side`.
        truncate: Whether texts over the model's limit are cut.
        lengths: Fewest and most positions of texts that count.
        bad: Takes texts that cannot be used; default: the first one raises.
        batch_tokens: Positions of a batch, padding counted.
        watch: Told how many texts were computed, after every batch.
        told: Given the texts that the scores are of which come next.

    Yields:
        Scores of up to 512 texts.

    Raises:
        InputError: If the model has no such side, the notebooks' errors are asked for, or a text
            cannot be used.
        UnavailableError: If memory does not suffice for small batches.
    """
    side = default_side(model, side)
    if asked.pande_parity:
        raise InputError(
            f"the notebooks are about an encoder by itself; {model.name!r} is read at its {side}\n"
            "leave pande_parity out"
        )
    sums = MapSums(side, columns(side, asked))
    engine = _MapEngine(model, asked, sums, batch_tokens)
    for window in _windows(model, subjects, truncate, lengths, bad):
        told([read.subject for read in window])
        found: list[tuple[range, Terms, Mapping[ScoreName, Float[np.ndarray, "L H"]]]] = []
        numbered = engine.computed(window, watch)
        for (_, sieves, size), seen in sorted(numbered, key=lambda one: one[0][0]):
            terms = Terms({}, {}, {}, {}, sieves.ceilings, {}, {})
            found.append((range(size[1]), terms, _unpacked(sums, sieves, seen)))
        if found:
            yield gathered(engine.layers, engine.heads, found, side)


def head_pairs(
    model: Pretrained,
    subjects: Iterable[Subject],
    *,
    side: str | None = None,
    truncate: bool = False,
    lengths: tuple[int, int] | None = None,
    bad: BadRows | None = None,
    batch_tokens: int | None = None,
    watch: Callable[[int], object] = lambda count: None,
) -> Pairs | None:
    """How far apart any two heads of a side are over texts, and how texts begin.

    Args:
        model: As for `map_scores`, like what follows.
        subjects: The texts.
        side: `encoder`, `decoder` or `cross`.
        truncate: Whether texts over the model's limit are cut.
        lengths: Fewest and most positions of texts that count.
        bad: Takes texts that cannot be used.
        batch_tokens: Positions of a batch.
        watch: Told how many texts were computed.

    Returns:
        None where there is no text.
    """
    sums = MapSums(default_side(model, side), pairs=True)
    engine = _MapEngine(model, ScoreOptions(annotated=False), sums, batch_tokens)
    pairs: Pairs | None = None
    for window in _windows(model, subjects, truncate, lengths, bad):
        for (_, _, size), seen in engine.computed(window, watch):
            pairs = Pairs(engine.layers, engine.heads) if pairs is None else pairs
            pairs.add(*_compared(seen, size))
    return pairs


_Text = tuple[int, Sieves, tuple[int, int]]
"""Number of a text in its window, what is asked of it, and its queries and keys."""


class _MapEngine:
    """A model on its device, and what is made of the maps of a window of texts."""

    def __init__(
        self, model: Pretrained, asked: ScoreOptions, sums: MapSums, batch_tokens: int | None
    ) -> None:
        self._model, self._asked, self._sums = model, asked, sums
        capture = Capture(weights=True)
        self._step = DeviceStep(model.module, [model.params], capture, None, sums, NOTES)
        self._room = room_for([model], capture, 1, batch_tokens)._replace(packs=False)
        self.layers: tuple[int, ...] = ()
        self.heads: tuple[int, ...] = ()

    def computed(
        self, window: Sequence[LabelledText], watch: Callable[[int], object]
    ) -> Iterator[tuple[_Text, Mapping[str, np.ndarray]]]:
        """Each text with what the device made of its maps, in the order of batches."""
        rows = with_targets([self._model], [read.reading for read in window], {}, self._room.tokens)
        batches = planned([row.lengths for row in rows], self._model.limit, self._room)
        begun: collections.deque[tuple[Batch, list[_Text], Begun]] = collections.deque()
        for batch in [*batches, *[None] * _AHEAD]:
            if batch is not None:
                given, texts = self._given(window, rows, batch)
                begun.append((batch, texts, self._step.begin(given)))
            if begun and (batch is None or len(begun) > _AHEAD):
                _, texts, started = begun.popleft()
                for part in self._step.end(started):
                    seen: AttentionRecord = part.models[0][self._sums.side]
                    self.layers, self.heads = seen.layers, seen.heads
                    for text, row in zip(texts[part.first :], range(part.rows), strict=False):
                        yield text, {n: np.asarray(a)[:, row] for n, a in seen.stats.items()}
                watch(len(texts))

    def _given(
        self, window: Sequence[LabelledText], rows: Sequence[TokenizedTexts], batch: Batch
    ) -> tuple[dict[str, np.ndarray], list[_Text]]:
        """Arguments of a step for a batch, and its texts by row."""
        side, pairs = self._sums.side, self._sums.pairs
        texts: list[_Text] = []
        for place in batch.places:
            row, layout = rows[place.text], window[place.text].layout
            nothing = Sieves({}, {})
            sieves = nothing if pairs else sieves_of(row.told, layout, side, self._asked)
            texts.append((place.text, sieves, _shape(side, row.lengths)))
        wide, high = _shape(side, batch.widths)
        queries = [size[0] for _, _, size in texts]
        sieves = [] if pairs else [one for _, one, _ in texts]
        notes = self._sums.packed(sieves, queries, (batch.rows, wide, high))
        return {**stacked(rows, batch), **notes}, texts


def _shape(side: str, widths: tuple[int, ...]) -> tuple[int, int]:
    """Queries and keys of a side, of the widths of source and target."""
    source, target = widths[0], widths[-1]
    return {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}[
        side
    ]


def _unpacked(
    sums: MapSums, sieves: Sieves, seen: Mapping[str, np.ndarray]
) -> dict[ScoreName, Float[np.ndarray, "L H"]]:
    """The numbers of one text by column; those it has no value for are left out."""
    found = {c: seen["linear"][..., r] for r, c in enumerate(sums.columns) if c in sieves.linear}
    rows = {ScoreName("mean", name): seen["rows"][..., r] for r, name in enumerate(ROWS)}
    return {**found, **rows}


def _compared(
    seen: Mapping[str, np.ndarray], size: tuple[int, int]
) -> tuple[Float[np.ndarray, "1 N N"], Float[np.ndarray, "1 N P P"]]:
    """Divergences of one text, and its beginning without padding."""
    apart = seen["pairs"]
    count = apart.shape[-1]
    start = seen["beginning"].reshape(count, BEGINNING, BEGINNING)
    return apart.reshape(1, count, count), beginning(start[:, : size[0], : size[1]])[None]


def _windows(
    model: Pretrained,
    subjects: Iterable[Subject],
    truncate: bool,
    lengths: tuple[int, int] | None,
    bad: BadRows | None,
) -> Iterator[list[LabelledText]]:
    """Texts that can be read, some at a time."""
    bad = BadRows() if bad is None else bad
    low, high = lengths or (0, _LONGEST)
    rest, window = iter(subjects), []
    while some := list(itertools.islice(rest, TOGETHER)):
        found = read_subjects(model, some, truncate, bad)
        window += [read for read in found if low <= len(read.layout) <= high]
        if len(window) + TOGETHER > _WINDOW:
            yield window
            window = []
    if window:
        yield window
