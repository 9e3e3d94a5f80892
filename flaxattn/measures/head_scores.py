# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of every head of any model over texts, evaluated by the kernel: `head_scores`.

Texts are read and batched in the pipeline; scores are defined in `score_terms` and `side_terms` and
evaluated in `score_sums`. Attention weights are never formed beyond the blocks of the kernel.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from jax.sharding import Mesh

from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.measures.key_range import ranges_of, windows_in
from flaxattn.measures.score_sums import NOTES, ScoreSums, blank_labels, blanked
from flaxattn.measures.score_terms import ScoreOptions, Terms
from flaxattn.measures.scores import Scores, gathered
from flaxattn.measures.side_terms import terms_for
from flaxattn.measures.windowed_terms import by_layer
from flaxattn.pipeline.batches import Batch, stacked
from flaxattn.pipeline.device_step import AttentionProgram
from flaxattn.pipeline.generated_targets import with_targets
from flaxattn.pipeline.labelled_texts import LabelledText, windows, with_rare
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pipeline.run import ModelRunner, batch_budget, mesh_of
from flaxattn.pipeline.text_sizes import sides as sizes_of
from flaxattn.pretrained.pretrained_bert import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained


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
        options: Which roles.
        side: `encoder`, `decoder` or `cross`; default `default_side`.
        reading: How texts are read, and which of them count.
        mesh: Devices with an axis "data" that share every batch.
        on_texts: Receives the texts that the next scores are of.

    Yields:
        Scores of up to 4,096 texts.

    Raises:
        InputError: If the model has no such side, the notebooks' errors are asked of another model
            than an encoder, or a text cannot be used.
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
