# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Files of a shard: tables and arrays made of the traces of its texts.

    texts.parquet   a row per text: example, id, file, line, text, text_b, truncated; its tokens and
                    where they begin; per side queries, keys and where the map begins
    tokens.parquet  a row per token: example, side (source | target), position, token, written,
                    word, segment, special, and start and stop of its characters where these are
                    known; a list per statistic, over layers, heads (and R); where texts have
                    trees, tag, relation and governor of the token's word
    heads.parquet   a row per side, text, layer and head: mean of each statistic over the queries

Reading is the task of `flaxattn.store.shard`; no file is opened here.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Shaped

from flaxattn.corpus.dependency_trees import NO_GOVERNOR
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.store.store_layout import OF_LAYERS, OF_MAPS, TokenSides, head_count, places, rows_of
from flaxattn.text.tokens import positions_of_words
from flaxattn.trace.record import FIELDS, AttentionRecord, SlidingWindow
from flaxattn.trace.trace import Trace

BESIDE = (
    "mask",
    "segments",
    "words",
    "special",
    "texts",
    "truncated",
    "spans",
    "decoder_tokens",
    "written",
    "decoder_mask",
    "decoder_words",
    "decoder_special",
)
DTYPES = ("float32", "float16", "bfloat16", "uint8")
NO_MEAN = ("argmax", "topk_indices", "received")
"""Statistics without a mean over the queries of a text."""
_GROUP = 2 << 20  # bytes that are read together, about
ROWS_TOGETHER = 65536  # rows that are read together, at most
TOKEN_TYPES = {
    "position": pa.int32(),
    "token": pa.string(),
    "written": pa.string(),
    "word": pa.int32(),
    "segment": pa.int32(),
    "special": pa.bool_(),
}
SPAN_TYPES = {"start": pa.int32(), "stop": pa.int32()}
WORD_TYPES = {"tag": pa.string(), "relation": pa.string(), "governor": pa.int32()}
"""Part of speech of a token's word, its relation to its governor, and the words up to that."""


Item = tuple[Text, Trace]
"""A text of the corpus, and its trace: of it alone, without padding, with NumPy arrays."""


def lengths(trace: Trace) -> dict[str, int]:
    """Number of tokens of source and target; no target where nothing was written."""
    target = trace.decoder_tokens or trace.written
    return {"source": len(trace.tokens[0])} | ({"target": len(target[0])} if target else {})


def describe(trace: Trace) -> dict[str, Any]:
    """Describe what all traces of a shard have in common, as JSON."""

    def kind(array: Any, is_map: bool = False) -> list[Any]:
        return [array.dtype.name, *array.shape[5 if is_map else 4 :]]

    def of(record: AttentionRecord) -> dict[str, Any]:
        arrays = {n: a for n in FIELDS if (a := _array(record, n)) is not None}
        scale = {} if record.scale is None else {"scale": float(record.scale)}
        windows = list(map(_listed, record.sliding_windows))
        return (scale | ({"sliding_windows": windows} if windows else {})) | {
            "layers": [int(number) for number in record.layers],
            "heads": [int(number) for number in record.heads],
            "windows": [record.query_window is not None, record.key_window is not None],
            "arrays": {
                n: [a.dtype.name, *a.shape[4 + (n in OF_MAPS) :]] for n, a in arrays.items()
            },
            "stats": {n: [a.dtype.name, *a.shape[4:]] for n, a in record.stats.items()},
        }

    held = [name for name in BESIDE if _is_there(getattr(trace, name))]
    sides = {side: of(one) for side, one in trace.sides.items()}
    return {"model": trace.model, "fields": held, "sides": sides}


def _listed(window: SlidingWindow | None) -> list[int | None] | None:
    return None if window is None else list(window)


def _is_there(field: Any) -> bool:
    return field is not None and len(field) > 0


def check(items: Sequence[Item], start: int, stop: int, left_out: int = 0) -> dict[str, Any]:
    """See that a shard's items are its texts, in order, and alike."""
    examples = [text.index for text, _ in items]
    if examples != list(range(start, stop - left_out)):
        raise InputError(
            f"a shard of examples {start} to {stop - 1} was given {len(items)} texts: "
            f"{str(examples[:6]).rstrip(']')}{', …]' if len(items) > 6 else ']'}\n"
            "give each example once, in order"
        )
    if not items:
        return {"model": "", "fields": [], "sides": {}}
    common = describe(items[0][1])
    for text, trace in items:
        if (wrong := _wrong(trace)) or describe(trace) != common:
            raise InputError(
                f"example {text.index} ({text.id!r}) cannot be stored: "
                f"{wrong or 'it was captured otherwise than the first text of its shard'}\n"
                "give traces of one text each, without padding, all of one capture"
            )
    for side, facts in common["sides"].items():
        for name, (dtype, *_) in facts["arrays"].items():
            if dtype not in DTYPES:
                raise InputError(
                    f"{side}.{name} is {dtype}; a store takes {', '.join(DTYPES)}\n"
                    "convert it before it is stored"
                )
    return common


def _wrong(trace: Trace) -> str:
    """Describe what keeps a trace from being stored; None if nothing does."""
    padded = [m for m in (trace.mask, trace.decoder_mask) if m is not None and not np.all(m)]
    if len(trace) != 1 or not trace.tokens:
        return f"it is a trace of {len(trace)} texts with tokens of {len(trace.tokens)}"
    if padded:
        return "it holds padding"
    sides, size = trace.sides, lengths(trace)
    if not sides:
        return "it holds no attention"
    for kind, count in size.items():
        for name, values in (_beside(trace, kind) | _ends(trace, kind)).items():
            if values is not None and len(values) != count:
                return f"{len(values)} values of {name} are beside {count} tokens of its {kind}"
    for side, record in sides.items():
        where = places(side, "target" in size)
        for name, array, shape in _expected(record, where, size):
            if tuple(array.shape[: len(shape)]) != shape:
                return f"{side}.{name} has shape {array.shape}, its tokens want {shape}"
    return ""


def _expected(
    record: AttentionRecord, where: TokenSides, size: dict[str, int]
) -> Iterator[tuple[str, Any, tuple[int, ...]]]:
    """Every array of a record with the shape it should have."""
    layers, heads = len(record.layers), len(record.heads)
    for name in FIELDS:
        if (array := _array(record, name)) is None:
            continue
        if name in OF_MAPS:
            yield name, array, (layers, 1, heads, *map_shape(record, where, size))
        else:
            count = head_count(name, record.heads)
            yield name, array, (layers, 1, size[rows_of(name, where)], count)
    for name, array in record.stats.items():
        yield name, array, (layers, 1, heads, size[rows_of(name, where)])


def _array(record: AttentionRecord, name: str) -> Any:
    """An array of a record; one of whole layers with an axis of one head."""
    array = getattr(record, name)
    return array[:, :, :, None] if array is not None and name in OF_LAYERS else array


def map_shape(record: AttentionRecord, where: TokenSides, size: dict[str, int]) -> tuple[int, int]:
    """Queries and keys that a record's maps hold of one text."""
    windows = (record.query_window, record.key_window)
    rows, columns = (
        size[tokens] if window is None else window[1] - window[0]
        for window, tokens in zip(windows, where, strict=True)
    )
    return rows, columns


def texts_table(items: Sequence[Item]) -> pa.Table:
    """The table of texts."""
    traces = [trace for _, trace in items]
    columns: dict[str, Any] = {
        "example": pa.array([text.index for text, _ in items], pa.int64()),
        "id": pa.array([_utf8(text.id) for text, _ in items], pa.string()),
        "file": pa.array([_utf8(text.file) for text, _ in items], pa.string()),
        "line": pa.array([text.line for text, _ in items], pa.int64()),
    }
    texts = [tuple(trace.texts[0]) if trace.texts else () for trace in traces]
    for place, name in enumerate(("text", "text_b")):
        values = [text[place] if len(text) > place else None for text in texts]
        columns[name] = pa.array(values, pa.string())
    cut = [trace.truncated[0] if len(trace.truncated) else None for trace in traces]
    columns["truncated"] = pa.array(cut, pa.int32())
    sizes = [lengths(trace) for trace in traces]
    for kind in ("source", "target"):
        count = np.array([size.get(kind, 0) for size in sizes], np.int64)
        columns |= {f"{kind}_tokens": count, f"{kind}_offset": np.cumsum(count) - count}
    for side in traces[0].sides:
        columns |= _map_columns(side, [getattr(trace, side) for trace in traces], sizes)
    return pa.table(columns)


def _utf8(name: str) -> str:
    """A name as it can be written: that of a file may hold bytes that are not characters."""
    return name.encode(errors="backslashreplace").decode()


def _map_columns(
    side: str, records: list[AttentionRecord], sizes: list[dict[str, int]]
) -> dict[str, Any]:
    """Columns with the places of a side's maps, text by text."""
    where = places(side, "target" in sizes[0])
    shapes = np.array([map_shape(r, where, s) for r, s in zip(records, sizes, strict=True)])
    area = shapes.prod(axis=1)
    columns: dict[str, Any] = {
        f"{side}_queries": shapes[:, 0],
        f"{side}_keys": shapes[:, 1],
        f"{side}_offset": np.cumsum(area) - area,
        f"{side}_implementation": pa.array([r.implementation for r in records], pa.string()),
    }
    for axis in ("query", "key"):
        windows = [getattr(record, f"{axis}_window") for record in records]
        if windows[0] is not None:
            columns[f"{side}_{axis}_start"] = np.array([start for start, _ in windows])
    return columns


def tokens_table(items: Sequence[Item]) -> pa.Table:
    """The table of tokens, with the statistics of each."""
    kinds: list[str] = []
    spans = _is_there(items[0][1].spans)
    trees = spans and any(text.sentence is not None for text, _ in items)
    types = TOKEN_TYPES | (SPAN_TYPES if spans else {}) | (WORD_TYPES if trees else {})
    columns: dict[str, list[Any]] = {name: [] for name in ("example", *types)}
    for text, trace in items:
        for kind, size in lengths(trace).items():
            kinds += [kind] * size
            columns["example"] += [text.index] * size
            columns["position"] += range(size)
            beside = _beside(trace, kind) | _ends(trace, kind)
            beside |= _of_words(text, trace, kind) if trees else {}
            for name in types.keys() - {"position"}:
                values = beside[name]
                columns[name] += [None] * size if values is None else values
    made = {name: pa.array(values, types.get(name, pa.int64())) for name, values in columns.items()}
    sides = pa.array(kinds, pa.string()).dictionary_encode()
    table = pa.table({"example": made.pop("example"), "side": sides, **made})
    for side, facts in describe(items[0][1])["sides"].items():
        for name in facts["stats"]:
            table = table.append_column(f"{side}.{name}", _statistic(items, side, name, kinds))
    return table


def _beside(trace: Trace, kind: str) -> dict[str, Any]:
    """Columns with facts about each token of a text's source or target."""

    def first(rows: Any) -> Any:
        if rows is None or not len(rows):
            return None
        return rows[0].tolist() if isinstance(rows[0], np.ndarray) else list(rows[0])

    if kind == "source":
        rows = (trace.tokens, (), trace.words, trace.segments, trace.special)
    else:
        special = trace.decoder_special
        rows = (trace.decoder_tokens, trace.written, trace.decoder_words, None, special)
    names = ("token", "written", "word", "segment", "special")
    return {name: first(row) for name, row in zip(names, rows, strict=True)}


def _ends(trace: Trace, kind: str) -> dict[str, list[int | None] | None]:
    """Start and stop of each token of a text's source; the text of a target is not kept."""
    if kind != "source" or not _is_there(trace.spans):
        return dict.fromkeys(SPAN_TYPES)
    spans = [span or (None, None) for span in trace.spans[0]]
    return {"start": [start for start, _ in spans], "stop": [stop for _, stop in spans]}


def _of_words(text: Text, trace: Trace, kind: str) -> dict[str, list[Any] | None]:
    """Columns of the word of a tree that each token is part of; of several, of the first."""
    if text.sentence is None or kind != "source":
        return dict.fromkeys(WORD_TYPES)
    spans = [span or (0, 0) for span in trace.spans[0]]
    added = [span is None for span in trace.spans[0]]
    words = text.sentence.words
    rows: list[tuple[Any, ...]] = [(None,) * len(WORD_TYPES)] * len(spans)
    found = positions_of_words([(word.start, word.stop) for word in words], spans, added)
    for number in reversed(range(len(words))):
        word = words[number]
        way = None if word.governor == NO_GOVERNOR else word.governor - number
        for position in found[number]:
            rows[position] = (word.tag, word.relation, way)
    return {name: [row[n] for row in rows] for n, name in enumerate(WORD_TYPES)}


def _statistic(items: Sequence[Item], side: str, name: str, kinds: list[str]) -> pa.Array:
    """A statistic's column: a list over layers, heads and R at the tokens it is of."""
    with_target = "target" in lengths(items[0][1])
    own = np.array(kinds) == rows_of(name, places(side, with_target))
    rows = [_rows(getattr(trace, side).stats[name]) for _, trace in items]
    values = np.zeros((len(own), rows[0].shape[1]), rows[0].dtype)
    values[own] = np.concatenate(rows)
    flat = pa.array(values.reshape(-1))
    mask = None if own.all() else pa.array(~own)
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=mask)


def _rows(statistic: Any) -> Shaped[np.ndarray, "Q width"]:
    """[L, 1, H, Q, ...] as one row per position."""
    array = np.moveaxis(np.asarray(statistic)[:, 0], 2, 0)
    return array.reshape(len(array), -1)


def heads_table(items: Sequence[Item]) -> pa.Table | None:
    """The table of heads; None where no statistic has a mean."""
    parts = []
    for side, record in items[0][1].sides.items():
        names = [name for name in record.stats if name not in NO_MEAN]
        heads = [(layer, head) for layer in record.layers for head in record.heads]
        columns: dict[str, Any] = {
            "example": np.repeat([text.index for text, _ in items], len(heads)),
            "side": pa.array([side] * len(items) * len(heads)).dictionary_encode(),
            "layer": np.tile(np.array([layer for layer, _ in heads], np.int32), len(items)),
            "head": np.tile(np.array([head for _, head in heads], np.int32), len(items)),
        }
        for name in names:
            arrays = [np.asarray(getattr(t, side).stats[name])[:, 0] for _, t in items]
            means = np.stack([a.mean(axis=2, dtype=np.float64) for a in arrays])
            flat = means.astype(np.float32).reshape(len(items) * len(heads), -1)
            many = means.ndim > 3  # the R of topk
            values = pa.array(flat.reshape(-1))
            width = flat.shape[1]
            columns[name] = pa.FixedSizeListArray.from_arrays(values, width) if many else values
        if names:
            parts.append(pa.table(columns))
    return pa.concat_tables(parts, promote_options="default") if parts else None


def arrays(items: Sequence[Item]) -> Iterator[tuple[str, Shaped[np.ndarray, "L H N *rest"]]]:
    """The arrays of a shard, one at a time, each with its name."""
    for side, record in items[0][1].sides.items():
        for name in FIELDS:
            if getattr(record, name) is not None:
                parts = [np.asarray(_array(getattr(t, side), name))[:, 0] for _, t in items]
                yield f"{side}.{name}", _joined(parts, name)


def _joined(parts: list[np.ndarray], name: str) -> np.ndarray:
    if name in OF_MAPS:
        return np.concatenate([p.reshape(*p.shape[:2], -1) for p in parts], axis=2)
    return np.ascontiguousarray(np.concatenate(parts, axis=1).swapaxes(1, 2))


def parquet(table: pa.Table, bound: dict[str, str]) -> bytes:
    """A table as a Parquet file with a checksum on every page."""
    width = max(1, table.nbytes // max(1, len(table)))
    words: Any = [field.name for field in table.schema if not pa.types.is_nested(field.type)]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata({f"flaxattn.{k}": v for k, v in bound.items()}),
        sink,
        row_group_size=int(np.clip(_GROUP // width, 256, ROWS_TOGETHER)),
        compression="zstd",
        use_dictionary=words,
        write_page_checksum=True,
    )
    return sink.getvalue().to_pybytes()
