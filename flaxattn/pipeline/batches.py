# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts to batches of few shapes, and the memory that a job will take.

Lengths that rows are padded to, and which texts share a batch, depend on nothing but the lengths of
a shard's texts and the model's size, so a shard that is computed again is computed in the same way.
A job knows the sizes of its own arrays; to these are added the process as it is, and the compiler.
Nothing here runs a model.
"""

import bisect
import resource
import sys
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from flaxattn.errors import InputError
from flaxattn.files import readable_size
from flaxattn.kernels.contract import Capture
from flaxattn.models.decoder_config import DecoderConfig, GPT2Config
from flaxattn.models.encoder_config import EncoderConfig
from flaxattn.models.seq2seq_config import EncoderDecoderConfig, RnnConfig
from flaxattn.pretrained import model_inputs
from flaxattn.pretrained.model_inputs import TokenizedTexts, bucket
from flaxattn.pretrained.model_types import ModelConfig
from flaxattn.pretrained.pretrained_encoders import (
    PretrainedBert,
    PretrainedRnnClassifier,
    PretrainedT5Encoder,
)
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokens import Reader


class PackedRow(NamedTuple):
    """A row of a batch.

    Attributes:
        room: Positions.
        members: Numbers of the sequences in it, from the left.
    """

    room: int
    members: list[int]


def share_rows(
    sizes: Sequence[int], rooms: Sequence[int], most: int | None = None
) -> list[PackedRow]:
    """Put sequences into few rows: best fit, the longest first. Cost: n log n."""
    rows: list[PackedRow] = []
    with_room: dict[
        int, list[PackedRow]
    ] = {}  # rows that may take another sequence, by free positions
    free: list[int] = []  # its keys, ascending
    for number in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        size = sizes[number]
        at = bisect_left(free, size)
        if at == len(free):
            left = rooms[bisect_left(rooms, size)]
            row = PackedRow(left, [])
            rows.append(row)
        else:
            left = free[at]
            row = with_room[left].pop()
            if not with_room[left]:
                del with_room[left], free[at]
        row.members.append(number)
        if len(row.members) != most and left > size:
            if left - size not in with_room:
                insort(free, left - size)
            with_room.setdefault(left - size, []).append(row)
    return rows


_SHORT = 64  # below this, rows that several texts share are filled badly


class Cost(NamedTuple):
    """Cost of computing, in positions that pass through the dense layers.

    Attributes:
        compiling: Positions that could be computed while a shape is compiled.
        attending: Positions whose attention costs what the dense layers cost; about the model's
            width, since the dense layers of a position take 24 E^2 operations and attention to S
            positions takes 4 E S, at a fraction of their speed.
    """

    compiling: int
    attending: int

    def position(self, width: int) -> float:
        """Cost of one position in a row of some width."""
        return 1 + width / self.attending

    def row(self, width: int) -> float:
        """Cost of a whole row of some width."""
        return width * self.position(width)


def widths_alone(lengths: Sequence[tuple[int, ...]], limit: int, cost: Cost) -> tuple[int, ...]:
    """The widths of rows that hold one text each.

    Few texts share one or two widths; many have one for every multiple of 4, further apart above
    32.
    """
    every = sorted(n for row in lengths for n in row)
    ladder = sorted({_rounded(n, limit) for n in every})
    held = [0, *(bisect.bisect_right(every, n) for n in ladder)]
    return _cheapest(
        ladder, lambda j, i: (held[i + 1] - held[j]) * cost.row(ladder[i]), cost.compiling
    )


def widths_shared(lengths: Sequence[int], limit: int, cost: Cost) -> tuple[int, ...]:
    """The widths of rows that several texts share, which are full but for a little."""
    every = sorted(lengths)
    least = _rounded(min(sum(every), _SHORT), limit)
    top = max(_rounded(every[-1], limit), least)
    ladder = [top]
    while (half := 1 << ((ladder[0] - 1).bit_length() - 1)) >= least:
        ladder.insert(0, half)
    held = [0, *(bisect.bisect_right(every, n) for n in ladder)]
    sums = [0]
    for n in every:
        sums.append(sums[-1] + n)
    return _cheapest(
        ladder,
        lambda j, i: (sums[held[i + 1]] - sums[held[j]]) * cost.position(ladder[i]),
        cost.compiling,
    )


def _cheapest(
    ladder: Sequence[int], of_group: Callable[[int, int], float], compiling: int
) -> tuple[int, ...]:
    """Some of the widths of a ladder, its last among them."""
    best: list[tuple[float, int]] = []  # of all texts up to a width that is chosen; the one before
    for i in range(len(ladder)):
        before = [(best[j - 1][0] + of_group(j, i), j - 1) for j in range(1, i + 1)]
        least, j = min([(of_group(0, i), -1), *before])
        best.append((least + compiling, j))
    found, place = [], len(ladder) - 1
    while place >= 0:
        found.append(ladder[place])
        place = best[place][1]
    return tuple(reversed(found))


def _rounded(length: int, limit: int) -> int:
    """The finest width for a length, about an eighth longer at most."""
    if length > 256:
        return bucket(length, limit)
    step = 4 if length <= 32 else 8 if length <= 64 else 16 if length <= 128 else 32
    return min(-(-length // step) * step, limit)


class RowSlot(NamedTuple):
    """Place of a text in a batch: its number, its row, and its first position there."""

    text: int
    row: int
    start: int = 0


class Batch(NamedTuple):
    """Rows that are computed together.

    Attributes:
        places: Places of the texts, by row.
        rows: Rows of the compiled shape, at least as many as are used.
        widths: What each side is padded to: S, and T where an encoder has a decoder beside it.
        packed: Whether rows are shared: their texts have segment ids.
    """

    places: tuple[RowSlot, ...]
    rows: int
    widths: tuple[int, ...]
    packed: bool = False


class BatchBudget(NamedTuple):
    """Size of a batch, and its cost.

    Attributes:
        tokens: Positions of a batch, padding counted.
        parts: The number of rows is a multiple of this: devices that share a batch.
        cost: Cost of a position, which the choice of batches makes least.
        packs: Whether texts may share rows.
    """

    tokens: int
    parts: int
    cost: Cost
    packs: bool = False


def planned(
    lengths: Sequence[tuple[int, ...]], limit: int, budget: BatchBudget, widths: Sequence[int] = ()
) -> list[Batch]:
    """The batches of a shard, those with the longest texts first."""
    given = tuple(sorted({limit, *(min(width, limit) for width in widths)}))
    own = given if widths else widths_alone(lengths, limit, budget.cost)
    alone = one_each(lengths, own, budget.tokens, budget.parts)
    if not budget.packs:
        return alone
    singles = [n for (n,) in lengths]
    common = given if widths else widths_shared(singles, limit, budget.cost)
    return min(alone, shared(singles, common, budget), key=lambda found: _cost(found, budget.cost))


def one_each(
    lengths: Sequence[tuple[int, ...]], widths: Sequence[int], tokens: int, parts: int = 1
) -> list[Batch]:
    """Batches of rows with one text each."""
    wide = [tuple(widths[bisect.bisect_left(widths, n)] for n in text) for text in lengths]
    # Sorted by the source's width first, then by the target's length, both descending.
    order = sorted(range(len(wide)), key=lambda i: (wide[i][0], lengths[i][-1]), reverse=True)
    found, start = [], 0
    while start < len(order):
        most = _most(wide[order[start]], tokens, parts)
        members = order[start : start + most]
        # Targets of texts with shorter sources may be longer than that of the first.
        sides = tuple(max(side) for side in zip(*(wide[i] for i in members), strict=True))
        places = tuple(RowSlot(text, row) for row, text in enumerate(members))
        found.append(Batch(places, _filled(len(members), most, parts), sides))
        start += most
    return found


def shared(lengths: Sequence[int], widths: Sequence[int], budget: BatchBudget) -> list[Batch]:
    """Batches of rows that several texts share, of one width each."""
    rows = sorted(share_rows(lengths, widths), key=lambda row: -row.room)
    found, start = [], 0
    while start < len(rows):
        width = rows[start].room
        most = _most((width,), budget.tokens, budget.parts)
        some = rows[start : start + most]
        places = []
        for number, row in enumerate(some):
            first = 0
            for text in row.members:
                places.append(RowSlot(text, number, first))
                first += lengths[text]
        filled = _filled(len(some), most, budget.parts)
        found.append(Batch(tuple(places), filled, (width,), packed=True))
        start += most
    return found


def _most(sides: tuple[int, ...], tokens: int, parts: int) -> int:
    """Rows of a full batch."""
    return max(tokens // sum(sides) // parts, 1) * parts


def _filled(count: int, most: int, parts: int) -> int:
    """Rows of a batch that has `count` to compute: few numbers, so that few shapes are compiled."""
    rows = parts
    while rows < count:
        rows *= 2
    return min(rows, most)


def _cost(batches: Sequence[Batch], cost: Cost) -> float:
    shapes = {(batch.rows, batch.widths) for batch in batches}
    computed = sum(b.rows * sum(cost.row(width) for width in b.widths) for b in batches)
    return computed + cost.compiling * len(shapes)


def stacked(rows: Sequence[TokenizedTexts], batch: Batch) -> dict[str, Int[np.ndarray, "B S"]]:
    """Arguments of the module for a batch; rows that are missing repeat the last one."""
    given = {}
    for name in rows[batch.places[0].text].given:
        side = batch.widths[-1] if name.startswith("decoder_") else batch.widths[0]
        parts = [rows[place.text].given[name][0] for place in batch.places]
        given[name] = _laid_out(parts, batch, side)
    if batch.packed:
        sizes = [rows[place.text].lengths[0] for place in batch.places]
        marks = [np.full(n, i, np.int32) for i, n in enumerate(sizes, 1)]
        given["segment_ids"] = _laid_out(marks, batch, batch.widths[0])
        if "position_ids" not in given:  # of a model whose positions are more than a count
            counts = [np.arange(n, dtype=np.int32) for n in sizes]
            given["position_ids"] = _laid_out(counts, batch, batch.widths[0])
    return given


def _laid_out(parts: Sequence[np.ndarray], batch: Batch, width: int) -> Int[np.ndarray, "B S"]:
    array = np.zeros((batch.rows, width), np.int32)
    for place, part in zip(batch.places, parts, strict=True):
        array[place.row, place.start : place.start + len(part)] = part
    used = batch.places[-1].row + 1
    array[used:] = array[used - 1]
    return array


_ITEM = {"float32": 4, "bfloat16": 2, "float16": 2, "uint8": 1}
_FLOAT = 4


class TextSize(NamedTuple):
    """Tokens of a text as a model reads it.

    Attributes:
        source: Tokens of the text, or of the pair read as one sequence; special ones counted.
        target: Tokens of the target, 0 where there is none. Of a target that the model will
            write, the most that it does by default.
        source_cut: Number of tokens beyond the model's limit.
        target_cut: The same number for the target.
        limit: Most tokens that the model takes.
    """

    source: int
    target: int
    source_cut: int
    target_cut: int
    limit: int


class AttentionSize(NamedTuple):
    """One attention of a model: its size, and whether queries and keys come from the target.

    The width is that of the hidden states of its layers; 0 where these are not recorded.
    """

    name: str
    layers: int
    heads: int
    depth: int
    width: int
    target_queries: bool
    target_keys: bool


Measure = Callable[[Sequence[str], Sequence[str] | None], list[TextSize]]


def measure_for(model: Pretrained, pairs: bool) -> Measure:
    """Return a function that measures the sizes of many texts in one call."""
    reader, config = model.tokenizer, model.config
    if reader is None:
        raise InputError(
            f"The model {model.name!r} came without a tokenizer, so it cannot read text.\n"
            "Put tokenizer.json or vocab.txt into its directory."
        )
    limit = model.limit
    if isinstance(model, PretrainedBert):
        assert isinstance(reader, Tokenizer)
        limit = min(limit, reader.max_length or limit)
        return lambda texts, seconds: _one_sequence(reader.count(texts, seconds), limit)
    alone = isinstance(model, PretrainedT5Encoder | PretrainedRnnClassifier)
    if alone or isinstance(config, GPT2Config | DecoderConfig):
        if pairs:
            raise InputError(
                f"The model {model.name!r} is a {config.architectures[0]}, which reads no pairs.\n"
                "Leave the column of the second text out."
            )
        return lambda texts, _: _one_sequence(reader.count(texts), limit)
    writer = model.target_reader or reader
    return lambda texts, targets: _two_sequences(reader, writer, texts, targets, limit)


def sides(config: ModelConfig) -> tuple[AttentionSize, ...]:
    """The attentions of a model."""
    if isinstance(config, EncoderConfig):
        layers, heads = config.num_hidden_layers, config.num_attention_heads
        size = (layers, heads, config.head_size, config.hidden_size)
        return (AttentionSize("encoder", *size, False, False),)
    if isinstance(config, GPT2Config | DecoderConfig):
        layers, heads = config.num_hidden_layers, config.num_attention_heads
        size = (layers, heads, config.head_size, config.hidden_size)
        return (AttentionSize("decoder", *size, True, True),)
    if isinstance(config, RnnConfig):
        return (AttentionSize("cross", 1, 1, config.encoded_size, 0, True, False),)
    read, wrote = config.encoder_attention_heads, config.decoder_attention_heads
    inner, depth = (config.head_dim or config.d_model // heads for heads in (read, wrote))
    width = config.d_model
    encoder = AttentionSize("encoder", config.encoder_layers, read, inner, width, False, False)
    if not config.decoder_layers:
        return (encoder,)
    return (
        encoder,
        AttentionSize("decoder", config.decoder_layers, wrote, depth, width, True, True),
        AttentionSize("cross", config.decoder_layers, wrote, depth, 0, True, False),
    )


def raw_bytes(capture: Capture, which: Sequence[AttentionSize], size: TextSize) -> int:
    """Bytes of the arrays that a request yields for one text, before compression."""
    return sum(_of_side(capture, side, size) for side in which)


def _of_side(capture: Capture, side: AttentionSize, size: TextSize) -> int:
    single = side.name == "decoder" and not size.target  # a language model's text is its source
    queries = size.target if side.target_queries and not single else size.source
    keys = size.target if side.target_keys and not single else size.source
    entries = _within(capture.query_window, queries) * _within(capture.key_window, keys)
    each = entries * (_ITEM[capture.dtype] * capture.weights + _FLOAT * capture.scores)
    number = _ITEM[capture.vector_dtype or "float32"]
    each += number * side.depth * queries * (capture.query + capture.head_output)
    each += number * side.depth * keys * (capture.key + capture.value)
    for name in capture.keys:
        width = capture.topk if name.startswith("topk_") else 1
        each += _FLOAT * width * (keys if name == "received" else queries)
    layers = side.layers if capture.layers is None else len(capture.layers)
    heads = side.heads if capture.heads is None else len(capture.heads)
    return layers * (heads * each + number * side.width * queries * capture.hidden)


def _within(window: tuple[int, int] | None, length: int) -> int:
    return length if window is None else max(0, min(window[1], length) - window[0])


def _one_sequence(counts: Sequence[int], limit: int) -> list[TextSize]:
    return [TextSize(min(n, limit), 0, max(0, n - limit), 0, limit) for n in counts]


def _two_sequences(
    reader: Reader,
    writer: Reader,
    texts: Sequence[str],
    targets: Sequence[str] | None,
    limit: int,
) -> list[TextSize]:
    sources = _one_sequence(reader.count(texts), limit)
    if targets is None:
        return [s._replace(target=model_inputs.bucket(s.source + 50, limit)) for s in sources]
    wrote = _one_sequence(writer.count(targets), limit)
    both = zip(sources, wrote, strict=True)
    return [s._replace(target=t.source, target_cut=t.source_cut) for s, t in both]


# Programs of a job and the compiler, while it works: 350 to 550 MB for the built-in models.
_PROGRAMS = 450_000_000
# Requests whose traces are estimated.
TRACES: Mapping[str, Capture] = {
    "trace of the longest text with weights": Capture(weights=True),
    "trace of the longest text with statistics": Capture(stats=("lse", "entropy", "max", "argmax")),
}
_STATES = 8  # arrays as wide as the hidden states or the feed-forward layer, while a block runs
_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes of what getrusage counts


def memory_needed(arrays: int) -> int:
    """Bytes that this process will take at most, within about half as much again."""
    present = _UNIT * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return present + _PROGRAMS + arrays


def memory_sentence(arrays: int) -> str:
    """Say how much memory a job needs."""
    return f"about {readable_size(memory_needed(arrays))} of memory"


def parameter_bytes(params: Any) -> int:
    """Bytes of parameters, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))


def model_memory(model: Pretrained) -> dict[str, int]:
    """Bytes of the arrays of a model: its parameters, and with them each of `TRACES`.

    A trace is of one text as long as the model takes, and of a target as long. It is held twice for
    a moment, when the padding is cut off.
    """
    parameters, config = parameter_bytes(model.params), model.config
    target = isinstance(config, EncoderDecoderConfig) and config.decoder_layers > 0
    size = TextSize(model.limit, model.limit if target else 0, 0, 0, model.limit)
    states = _STATES * 4 * config.hidden_size * model.limit
    found = {"parameters": parameters}
    for name, capture in TRACES.items():
        found[name] = parameters + states + 2 * raw_bytes(capture, sides(config), size)
    return found
