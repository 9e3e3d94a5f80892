# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention of many texts: `extract` for what fits into memory, `extract_shards` for what does not.

Texts are tokenized in the background (`tokenize_texts`), models run over them (`run`), and the
records are cut into one trace per text, in order. Sources of an encoder-decoder that come without
targets get those that the model generates. Nothing is written to disk.
"""

import collections
import dataclasses
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from flaxattn.corpus.texts import Text, plain_texts
from flaxattn.errors import InputError, check_arguments, keywords_of
from flaxattn.kernels.contract import NOTHING, Capture
from flaxattn.pipeline.batches import Batch, RowSlot, stacked
from flaxattn.pipeline.online_moments import OnlineMoments
from flaxattn.pipeline.progress_reporter import Watch, ignore, show_progress
from flaxattn.pipeline.run import AttentionProgram, ModelRunner, mesh_of
from flaxattn.pipeline.tokenize_texts import TOGETHER, TextError, TokenPrefetch, groups_of
from flaxattn.pretrained import model_inputs
from flaxattn.pretrained.model_inputs import TokenizedTexts, bucket, joined
from flaxattn.pretrained.nonfinite_error import check_dtype
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.text.text_lists import paired_lists
from flaxattn.text.tokens import Reader
from flaxattn.trace.record import SIDES, AttentionRecord
from flaxattn.trace.trace import Trace


def check_alike(models: Sequence[Pretrained]) -> None:
    """Check that models differ in nothing but the values of their parameters."""
    if not models:
        raise InputError("there is no model\nname at least one")
    first = models[0]
    for model in models[1:]:
        differing = {
            "architecture or configuration": model.module != first.module,
            "shapes of parameters": _shapes(model) != _shapes(first),
            "tokenizer": not _same_readers(model, first),
        }
        if wrong := [what for what, differs in differing.items() if differs]:
            raise InputError(
                f"{model.name!r} and {first.name!r} cannot run as one: they differ in "
                f"{wrong[0]}\nextract them one after the other"
            )


def _shapes(model: Pretrained) -> Any:
    return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), model.params)


def _same_readers(model: Pretrained, other: Pretrained) -> bool:
    names = ("tokenizer", "target_tokenizer")
    pairs = [(getattr(model, name, None), getattr(other, name, None)) for name in names]
    return all(one is two or _files(one) == _files(two) for one, two in pairs)


def _files(reader: Reader | None) -> dict[str, bytes]:
    """The files of a tokenizer, by name."""
    if reader is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        reader.save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


_WEIGHTS = Capture(weights=True)
_WINDOW = 4096  # texts that `extract` sorts by length together


class ExtractedTexts(NamedTuple):
    """Traces of the texts of a shard, by one model.

    Attributes:
        traces: Traces of each text by itself, without padding, NumPy arrays inside, in order.
        reductions: Moments over all of them, where they were requested.
        nonfinite: Number of rows of attention, over all layers and heads, that are NaN or infinite.
    """

    traces: list[Trace]
    reductions: OnlineMoments | None
    nonfinite: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Options of extraction. Results do not depend on the fields from `batch_tokens` on.

    Attributes:
        capture: What to keep, of which layers and heads.
        truncate: Whether texts over the model's limit are cut, which traces tell in `truncated`;
            otherwise they are an error.
        reduce: Moments over the texts: `statistics` of those captured, `offsets` of weights, which
            need not be captured for that. See `OnlineMoments`.
        settings: Settings of `generate`, where an encoder-decoder writes its targets; `seed` too.
        batch_tokens: Positions of a batch, padding counted; default 1,024 per CPU and 16,384 per
            accelerator. It changes results by rounding, as the compiler orders sums by shape.
        widths: Lengths that are compiled, ascending; default those that `chosen_widths` finds for
            each shard. With many shards, choose them once for all.
        mesh: Devices with an axis "data" that share every batch.
        devices: Devices to make such a mesh of; default all of this process.
        workers: Processes that read texts; 0 reads in a thread, which is enough but for fast
            accelerators.
        allow_nonfinite: Whether attention that is NaN or infinite is kept, and counted; otherwise
            it is an error.
    """

    capture: Capture = _WEIGHTS
    truncate: bool = False
    reduce: tuple[str, ...] = ()
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    batch_tokens: int | None = None
    widths: tuple[int, ...] = ()
    mesh: Mesh | None = None
    devices: Sequence[Any] | None = None
    workers: int = 0
    allow_nonfinite: bool = False


@check_arguments()
def extract(
    model: Pretrained,
    texts: Sequence[str],
    text_b: Sequence[str] | None = None,
    *,
    capture: Capture = _WEIGHTS,
    truncate: bool = False,
    reduce: OnlineMoments | None = None,
    batch_tokens: int | None = None,
    mesh: Mesh | None = None,
    devices: Sequence[Any] | None = None,
    workers: int = 0,
    allow_nonfinite: bool = False,
    **settings: Any,
) -> list[Trace]:
    """Trace many texts, one trace each: as `model.trace`, only faster.

    Texts are sorted by length and computed in batches of few shapes; results are in the order of
    the texts. Everything is held in memory: L H Q K entries of `capture.dtype` per text for
    weights, 4 L H Q bytes per text and statistic.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> traces = fa.extract(model, ["The cat is very sad.", "It sleeps."])
    >>> [trace.encoder.weights.shape for trace in traces]  # [L, 1, H, Q, K] each
    [(4, 1, 4, 8, 8), (4, 1, 4, 6, 6)]

    Args:
        model: A BERT, a GPT-2 or an encoder-decoder, with its tokenizer.
        texts: N texts.
        text_b: The second text of each pair, or the target of each source; without targets an
            encoder-decoder writes them.
        capture: What to keep, of which layers and heads.
        truncate: Whether a text over the model's limit is cut, which its trace records in
            `truncated`; otherwise it is an error.
        reduce: Receives every trace; its `offsets` need not be captured.
        batch_tokens: Positions of a batch, padding counted.
        mesh: Devices with an axis "data" that share every batch.
        devices: Devices to make such a mesh of; default all of this process.
        workers: Processes that read texts; 0 reads in a thread.
        allow_nonfinite: Whether attention that is NaN or infinite is kept; otherwise it is an
            error that names layer and text.
        **settings: Of `generate`, where an encoder-decoder writes.

    Returns:
        N traces of one text each, without padding, NumPy arrays inside.

    Raises:
        InputError: For a text that cannot be read (`TextError`, which names it), and as `trace`.
        UnavailableError: If memory does not suffice for small batches, or a worker died.
    """
    options = Options(
        capture=capture,
        truncate=truncate,
        reduce=() if reduce is None else reduce.kinds,
        settings=settings,
        batch_tokens=batch_tokens,
        mesh=mesh,
        devices=devices,
        workers=workers,
        allow_nonfinite=allow_nonfinite,
    )
    texts, text_b = paired_lists(texts, text_b)
    windows = groups_of(plain_texts(texts, text_b), _WINDOW)
    found: list[Trace] = []
    for (shard,) in extract_shards([model], windows, options, show_progress):
        found += shard.traces
        if reduce is not None and shard.reductions is not None:
            reduce.merge(shard.reductions)
    return found


def _refuse(error: TextError) -> None:
    raise error


def extract_shards(
    models: Sequence[Pretrained],
    shards: Iterable[Sequence[Text]],
    options: Options,
    watch: Watch = ignore,
    leave_out: Callable[[TextError], object] = _refuse,
) -> Iterator[list[ExtractedTexts]]:
    """Trace texts with every model, shard by shard; the next shard is read meanwhile.

    The content of a shard depends on its texts, the models and `options`, not on other shards. A
    text that cannot be read is left out if `leave_out` raises nothing. Memory: the traces of a
    shard and two batches.
    """
    engine = _Engine(models, options, watch)
    waiting: collections.deque[Sequence[Text]] = collections.deque()
    with TokenPrefetch(models[0], options.workers, truncate=options.truncate) as prefetch:
        rows: list[TokenizedTexts | TextError] = []
        for some in itertools.chain(prefetch.read(_groups(shards, waiting)), [()]):
            rows += some
            while waiting and len(rows) >= len(waiting[0]):
                texts, found = waiting.popleft(), list[tuple[Text, TokenizedTexts]]()
                for text, row in zip(texts, rows, strict=False):
                    if isinstance(row, TextError):
                        leave_out(row)
                    else:
                        found.append((text, row))
                rows = rows[len(texts) :]
                yield engine.shard([text for text, _ in found], [row for _, row in found])


@check_arguments(1, keywords_of(Options))
def extract_models(
    models: Mapping[str, Pretrained],
    texts: Sequence[str],
    text_b: Sequence[str] | None = None,
    **options: Any,
) -> dict[str, list[Trace]]:
    """Trace texts with several models of one configuration, in one pass over the texts.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> traces = fa.extract_models({"first": model, "second": model}, ["The cat is very sad."])
    >>> sorted(traces), len(traces["first"])
    (['first', 'second'], 1)

    Args:
        models: Such as checkpoints of one training, by name.
        texts: N texts, which are read once.
        text_b: The second text, or the target, of each; encoder-decoders need it here.
        **options: Fields of `Options`.

    Returns:
        N traces of each model, by its name.

    Raises:
        InputError: As `extract`; and for models that differ in more than their parameters.
    """
    texts, text_b = paired_lists(texts, text_b)
    whole = [plain_texts(texts, text_b)]
    (found,) = extract_shards([*models.values()], whole, Options(**options), show_progress)
    return {name: shard.traces for name, shard in zip(models, found, strict=True)}


class _Engine:
    """Models on their devices, and what is done with the rows of a shard."""

    def __init__(self, models: Sequence[Pretrained], options: Options, watch: Watch) -> None:
        check_alike(models)
        model, capture = models[0], options.capture
        model_inputs.check_capture(capture, *model.counts())
        check_dtype(capture, options.allow_nonfinite)
        for kind in options.reduce:
            OnlineMoments(kind)
        mapped = "offsets" in options.reduce
        if mapped and capture.windowed:
            raise InputError(
                "the mean weight per relative position needs whole rows of weights\n"
                "capture without query_window and key_window"
            )
        dtypes = {"dtype": capture.dtype, "vector_dtype": capture.vector_dtype}
        if capture == dataclasses.replace(NOTHING, **dtypes) and not options.reduce:
            raise InputError("capture asks for nothing\nname weights=True, or stats=(…)")
        self._models, self._options = models, options
        self._drops = mapped and not capture.weights
        self._runner = ModelRunner(
            models,
            AttentionProgram(),
            dataclasses.replace(capture, weights=True) if self._drops else capture,
            packs=True,
            mesh=mesh_of(options.mesh, options.devices),
            batch_tokens=options.batch_tokens,
            allow_nonfinite=options.allow_nonfinite,
            watch=watch,
            stage="extracting texts",
        )

    def shard(self, texts: Sequence[Text], rows: Sequence[TokenizedTexts]) -> list[ExtractedTexts]:
        """Trace texts with each model."""
        if not texts:
            return [ExtractedTexts([], None) for _ in self._models]
        options = self._options
        rows = with_targets(self._models, rows, options.settings, self._runner.budget.tokens)
        for text, row in zip(texts, rows, strict=True):
            try:
                model_inputs.check_window(options.capture, min(row.lengths))
            except InputError as error:
                raise TextError(text.index, f"text is too short\n{error}") from None
        kinds = options.reduce
        totals = [OnlineMoments(*kinds) if kinds else None for _ in self._models]
        traces: list[list[Trace | None]] = [[None] * len(rows) for _ in self._models]
        broken = [0] * len(self._models)
        batches = self._runner.batches(rows, options.widths)
        for text, start, outputs in self._runner.run(rows, texts, batches=batches):
            for which, (records, nonfinite) in enumerate(outputs):
                row = rows[text]
                trace = joined(row.metadata, records, row.lengths, start)
                trace = dataclasses.replace(trace, model=self._models[which].name)
                total = totals[which]
                if total is not None:
                    total.add(trace)
                traces[which][text] = self._kept(trace)
                if not start:  # counts are those of a row, whatever texts share it
                    broken[which] += sum(int(side.counts.sum()) for side in nonfinite.values())
        return [
            ExtractedTexts([trace for trace in mine if trace is not None], total, count)
            for mine, total, count in zip(traces, totals, broken, strict=True)
        ]

    def _kept(self, trace: Trace) -> Trace:
        """The trace with arrays of its own: views would keep whole batches, and their padding."""

        def kept(name: str, array: np.ndarray) -> np.ndarray:
            return np.array(array, order="C")

        records = {}
        for side in SIDES:
            record: AttentionRecord | None = getattr(trace, side)
            if record is not None:
                record = dataclasses.replace(record, weights=None) if self._drops else record
                records[side] = record.map(kept)
        return dataclasses.replace(trace, **records)


def _groups(
    shards: Iterable[Sequence[Text]], waiting: collections.deque[Sequence[Text]]
) -> Iterator[list[Text]]:
    """Texts to tokenize together, none of two shards; `waiting` gets each shard as it begins."""
    for texts in shards:
        waiting.append(texts)
        yield from groups_of(texts, TOGETHER)


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
