# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Stores of random attention: traces of every kind of model and capture, and how to write them."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np

from flaxattn.corpus.texts import Text
from flaxattn.store.commit_shards import write_shard
from flaxattn.store.open_store import open_store
from flaxattn.store.store_layout import value_dtype
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace

LAYERS, HEADS = (0, 3), (1, 2)
KINDS = ("encoder", "decoder", "seq2seq", "projections", "windows", "statistics")
DTYPES = ("float32", "float16", "bfloat16", "uint8")


def maps(rng, queries, keys, dtype="float32"):
    """Weights [L, 1, H, Q, K] whose rows sum to one."""
    exact = rng.dirichlet(np.full(keys, 0.4), (2, 1, 2, queries)).astype(np.float32)
    if dtype == "uint8":
        return np.round(255 * exact).astype(np.uint8)
    return exact.astype(value_dtype(dtype))


def statistics(rng, queries, keys):
    """One of each form: per query, per key, of integers, with an axis R."""
    rows = (2, 1, 2, queries)
    return {
        "entropy": rng.random(rows, np.float32),
        "lse": np.where(rng.random(rows) < 0.1, -np.inf, rng.random(rows)).astype(np.float32),
        "argmax": rng.integers(-1, keys, rows).astype(np.int32),
        "topk_weights": rng.random((*rows, 3), np.float32),
        "topk_indices": rng.integers(-1, keys, (*rows, 3)).astype(np.int32),
        "received": rng.random((2, 1, 2, keys), np.float32),
    }


def seen(rng, queries, keys, **fields):
    return AttentionRecord(layers=LAYERS, heads=HEADS, implementation="xla", **fields)


def trace(rng, kind="encoder", dtype="float16", number=0):
    """A trace of one random text."""
    n, m = int(rng.integers(3, 12)), int(rng.integers(2, 9))
    tokens = [f"t{i}" for i in rng.integers(0, 50, n)]
    text = {
        "tokens": [tokens],
        "mask": np.ones((1, n), bool),
        "segments": (np.arange(n) >= n // 2).astype(np.int32)[None],
        "words": [[None, *range(n - 2), None]],
        "special": np.isin(np.arange(n), (0, n - 1))[None],
        "texts": [(f"text {number}", "a \x1b[31mpair\nof lines")],
        "truncated": (number % 3,),
        "model": "random",
    }
    if kind == "decoder":
        only = ("tokens", "mask", "texts", "model")
        seen_there = seen(rng, n, n, weights=maps(rng, n, n, dtype))
        return Trace(decoder=seen_there, **{name: text[name] for name in only})
    if kind == "seq2seq":
        sides = {"encoder": (n, n), "decoder": (m, m), "cross": (m, n)}
        records = {
            side: seen(rng, *size, weights=maps(rng, *size, dtype), stats=statistics(rng, *size))
            for side, size in sides.items()
        }
        target = {
            "decoder_tokens": [["<s>", *(f"d{i}" for i in range(m - 1))]],
            "written": [[*(f"d{i}" for i in range(m - 1)), "</s>"]],
            "decoder_mask": np.ones((1, m), bool),
            "decoder_words": [[*range(m - 1), None]],
            "decoder_special": np.isin(np.arange(m), 0)[None],
        }
        return Trace(**records, **text, **target)
    fields = {
        "encoder": lambda: {"weights": maps(rng, n, n, dtype), "stats": statistics(rng, n, n)},
        "statistics": lambda: {"stats": statistics(rng, n, n)},
        "projections": lambda: {
            "scores": rng.standard_normal((2, 1, 2, n, n), np.float32),
            **{
                name: rng.standard_normal((2, 1, n, 2, 5), np.float32).astype(
                    maps(rng, 1, 1, dtype).dtype
                )
                for name in ("query", "key", "value", "head_output")
            },
            "hidden": rng.standard_normal((2, 1, n, 7), np.float32).astype(ml_dtypes.bfloat16),
        },
        "windows": lambda: windowed(rng, n, dtype),
    }[kind]()
    return Trace(encoder=seen(rng, n, n, **fields), **text)


def windowed(rng, length, dtype):
    """Queries 1 to 3, keys 4 to 8; of a short text fewer, or none."""
    rows, columns = (min(1, length), min(4, length)), (min(4, length), min(9, length))
    whole = maps(rng, length, length, dtype)
    return {
        "weights": whole[:, :, :, slice(*rows)][..., slice(*columns)],
        "query_window": rows,
        "key_window": columns,
    }


def traces(kind="encoder", count=7, dtype="float16", seed=0):
    """Random texts."""
    rng = np.random.default_rng(seed)
    return [trace(rng, kind, dtype, number) for number in range(count)]


def corpus_text(number: int) -> Text:
    """A text of a file of texts, of which only the place counts."""
    return Text(number, f"corpus.txt:{number + 1}", "", None, "corpus.txt", number + 1)


def items(texts: Sequence[Trace], start: int = 0) -> list[tuple[Text, Trace]]:
    """Rows of a corpus."""
    return [(corpus_text(example), trace) for example, trace in enumerate(texts, start)]


def plan(store: Path, count: int, per_shard: int) -> tuple[list[dict[str, int]], str]:
    """Write the plan of a store; its shards, and the sha256 of the file."""
    cuts = [*range(0, count, per_shard), count]
    shards = [{"start": a, "stop": b} for a, b in itertools.pairwise(cuts)]
    metadata = {"texts": count, "model": "random", "capture": {"weights": True}, "shards": shards}
    store.mkdir(parents=True, exist_ok=True)
    data = json.dumps(metadata, indent=1).encode()
    (store / "plan.json").write_bytes(data)
    return shards, hashlib.sha256(data).hexdigest()


def write(store: Path, texts: Sequence[Trace], per_shard: int = 3, only=None) -> Path:
    """Write a store, or some shards of it."""
    shards, sha256 = plan(store, len(texts), per_shard)
    for number, shard in enumerate(shards):
        if only is None or number in only:
            own = texts[shard["start"] : shard["stop"]]
            write_shard(store, sha256, number, shard, items(own, shard["start"]))
    return store


def same(one: Trace, other: Trace) -> None:
    """Assert that two traces of one text are equal, bit by bit."""
    for side in ("encoder", "decoder", "cross"):
        a, b = getattr(one, side), getattr(other, side)
        assert (a is None) == (b is None), side
        if a is None:
            continue
        for name in ("layers", "heads", "implementation", "query_window", "key_window"):
            assert getattr(a, name) == getattr(b, name), (side, name)
        assert list(a.stats) == list(b.stats)
        fields = ("weights", "scores", "query", "key", "value", "head_output", "hidden")
        pairs = [(getattr(a, name), getattr(b, name)) for name in fields]
        for x, y in (*pairs, *((a.stats[name], b.stats[name]) for name in a.stats)):
            assert (x is None) == (y is None)
            if x is not None:
                assert type(y) is np.ndarray and x.dtype == y.dtype and x.shape == y.shape
                assert np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes()
    for name in ("tokens", "words", "texts", "truncated", "decoder_tokens", "written", "model"):
        assert _plain(getattr(one, name)) == _plain(getattr(other, name)), name
    for name in ("mask", "segments", "special", "decoder_mask", "decoder_special"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None), name
        assert a is None or np.array_equal(a, b), name


def _plain(rows):
    return rows if isinstance(rows, str) else [list(r) if not np.isscalar(r) else r for r in rows]


def plainly(trace: Trace) -> list[str]:
    """A trace as something to compare with ==: digests of its arrays, and its text."""
    metadata = [repr(_plain(trace.tokens)), repr(_plain(trace.texts)), trace.model]
    digests: dict[str, str] = {}
    for side in ("encoder", "decoder", "cross"):
        if (record := getattr(trace, side)) is not None:
            arrays = {**vars(record), **record.stats}
            digests |= {f"{side}.{n}": _digest(a) for n, a in arrays.items() if np.ndim(a)}
    return [*metadata, repr(digests)]


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def read_everything(path: Path) -> list[Trace]:
    """Every array and every table of a store, one text at a time and shard by shard."""
    store = open_store(path)
    found = [store[example] for example in range(len(store))]
    for one, other in zip(found, store, strict=True):
        same(one, other)
    for table in ("texts", "tokens", "heads"):
        for _ in store.batches(table):
            pass
    return found


def damage(path: Path, trial: int) -> str:
    """Hurt a store in one of many ways; says which file, as a path inside the store."""
    rng = np.random.default_rng(trial)
    files = sorted(p for p in path.rglob("*") if p.is_file())
    file = files[trial % len(files)]
    data = bytearray(file.read_bytes())
    match ("bit", "bit", "bit", "missing", "cut", "between", "inside")[trial % 7]:
        case "missing":
            file.unlink()
        case "cut":
            file.write_bytes(data[: int(rng.integers(len(data)))])
        case "between" if others := _namesakes(file, files):
            other = others[int(rng.integers(len(others)))]
            other_data = other.read_bytes()
            other.write_bytes(data)
            file.write_bytes(other_data)
        case "inside" if file.parts[-2:] == ("0", "0") and _swap_chunks(data, rng):
            file.write_bytes(data)
        case _:
            place = int(rng.integers(len(data)))
            data[place] ^= 1 << int(rng.integers(8))
            file.write_bytes(data)
    return file.relative_to(path).as_posix()


def _namesakes(file: Path, files: Sequence[Path]) -> list[Path]:
    """Files of other shards under the same name, with another content."""
    data = file.read_bytes()
    inside = file.parts[file.parts.index("shards") + 2 :] if "shards" in file.parts else ()
    return [
        p for p in files if inside and p.parts[-len(inside) :] == inside and p.read_bytes() != data
    ]


def _swap_chunks(data: bytearray, rng) -> bool:
    """Exchange two chunks of one size, or what the index says of two: all checksums still hold."""
    index = np.frombuffer(bytes(data[-4 - 16 * 4 : -4]), "<u8").reshape(-1, 2)
    a, b = rng.choice(len(index), 2, replace=False).tolist()
    (x, size), (y, other) = index[a].tolist(), index[b].tolist()
    if size != other or data[x : x + size] == data[y : y + size]:
        return False
    data[x : x + size], data[y : y + size] = data[y : y + size], data[x : x + size]
    return True


def with_weights(record: AttentionRecord, weights) -> AttentionRecord:
    """A record with other weights."""
    return dataclasses.replace(record, weights=weights)
