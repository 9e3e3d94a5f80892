# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of a manifest: types, names of files and sizes of arrays, before anything goes by them.

A store may be anybody's and its checksums need no key, so a manifest whose own sha256 is right may
still name files that are not a shard's, or arrays of any size. No file is opened here.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from flaxattn.store.shard_tables import BESIDE, DTYPES
from flaxattn.store.store_layout import (
    COUNTS,
    ERRORS,
    GROUP,
    HEADS,
    OF_MAPS,
    REDUCTIONS,
    SHARD_TEXTS,
    TEXTS,
    TOKENS,
    chunk_count,
    chunk_shape,
    chunks_path,
    zarr_path,
)
from flaxattn.trace.record import FIELDS, SIDES

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_HEX = re.compile(r"[0-9a-f]*", re.ASCII)
_LARGEST = 2**62
_VALUES = 2**20  # values of one row of an array, such as the depth of a head
_STATISTICS = ("float32", "float16", "float64", "int32", "int64", "uint8", "uint32", "bool")


def check_manifest(manifest: Any) -> None:
    """Refuse a manifest that no writer of shards makes."""
    _digest("plan", manifest.plan)
    start, stop = _count("start", manifest.start), _count("stop", manifest.stop)
    _count("shard", manifest.shard)
    _expect(start <= stop <= start + SHARD_TEXTS, "stop", stop)
    counts = _mapping("counts", manifest.counts)
    for name in COUNTS:
        _count(f"counts.{name}", counts.get(name))
    for number in _mapping("counts.bad", counts.get("bad")).values():
        _count("counts.bad", number)
    _expect(counts["texts"] == stop - start <= counts["rows"], "counts.texts", counts["texts"])
    traces = _mapping("traces", manifest.traces)
    _expect(isinstance(traces.get("model"), str), "traces.model", traces.get("model"))
    _count("traces.nonfinite", traces.get("nonfinite", 0))
    fields = _sequence("traces.fields", traces.get("fields"))
    _expect({*map(str, fields)} <= {*BESIDE}, "traces.fields", fields)
    sides = _mapping("traces.sides", traces.get("sides"))
    _expect((not sides) == (start == stop), "traces.sides", [*sides])
    _expect({*sides} <= {*SIDES}, "traces.sides", [*sides])
    for name, side in sides.items():
        _check_side(f"traces.sides.{name}", _mapping(f"traces.sides.{name}", side))
    files = _mapping("files", manifest.files)
    for entry in files.values():
        _digest("files.sha256", _mapping("files", entry).get("sha256"))
        _count("files.size", entry.get("size"))
    _check_arrays(_mapping("arrays", manifest.arrays), sides, files)


def _check_side(where: str, side: Mapping[str, Any]) -> None:
    """Check layers, heads, arrays and statistics of a side."""
    for axis in ("layers", "heads"):
        numbers = _sequence(f"{where}.{axis}", side.get(axis))
        for number in numbers:
            _count(f"{where}.{axis}", number)
        _expect(len({*numbers}) == len(numbers), f"{where}.{axis}", numbers)
    scale = side.get("scale", 1.0)
    _expect(type(scale) in (int, float) and math.isfinite(scale), f"{where}.scale", scale)
    windows = _sequence(f"{where}.sliding_windows", side.get("sliding_windows", []))
    _expect(len(windows) in (0, len(side["layers"])), f"{where}.sliding_windows", windows)
    for window in windows:
        ends = [None, None] if window is None else _sequence(f"{where}.sliding_windows", window)
        _expect(len(ends) == 2, f"{where}.sliding_windows", window)
        for end in ends:
            _count(f"{where}.sliding_windows", 0 if end is None else end)
    for group, dtypes in (("arrays", DTYPES), ("stats", _STATISTICS)):
        for name, kind in _mapping(f"{where}.{group}", side.get(group)).items():
            known = name in FIELDS or (group == "stats" and name.isprintable())
            _expect(known, f"{where}.{group}", name)
            dtype, *rest = _sequence(f"{where}.{group}.{name}", kind) or [None]
            _expect(dtype in dtypes, f"{where}.{group}.{name}", dtype)
            _row_size(f"{where}.{group}.{name}", rest)


def _check_arrays(
    arrays: Mapping[str, Any], sides: Mapping[str, Any], files: Mapping[str, Any]
) -> None:
    """Check that the arrays are those of the sides, and the files those of the arrays."""
    named = {f"{s}.{n}": (side, k) for s, side in sides.items() for n, k in side["arrays"].items()}
    _expect({*arrays} == {*named}, "arrays", [*arrays])
    expected = {*((TEXTS, TOKENS) if sides else ()), *((GROUP,) if arrays else ())}
    for name, (side, (dtype, *rest)) in named.items():
        entry = _mapping(f"arrays.{name}", arrays[name])
        shape = _sequence(f"arrays.{name}.shape", entry.get("shape"))
        for size in shape:
            _count(f"arrays.{name}.shape", size)
        heads = [len(side["layers"]), len(side["heads"])]
        tail = [] if name.partition(".")[2] in OF_MAPS else rest
        _expect(shape[:2] == heads and shape[3:] == tail, f"arrays.{name}.shape", shape)
        _expect(len(shape) > 2 and math.prod(shape) < _LARGEST, f"arrays.{name}.shape", shape)
        _expect(entry.get("dtype") == dtype, f"arrays.{name}.dtype", entry.get("dtype"))
        _expect(
            entry.get("chunk") == [*chunk_shape(shape)], f"arrays.{name}.chunk", entry.get("chunk")
        )
        expected.add(f"{zarr_path(name)}/zarr.json")
        if math.prod(shape):
            path = chunks_path(name, len(shape))
            expected.add(path)
            _expect(path in files, "files", [*files])
            _check_chunks(f"arrays.{name}", entry, files[path]["size"])
    extra = {*files} - expected - {HEADS, REDUCTIONS, ERRORS}
    _expect(not extra and expected <= {*files}, "files", sorted(extra) or [*files])


def _check_chunks(where: str, entry: Mapping[str, Any], size: int) -> None:
    """Check that a file can hold the index of the chunks, and that each chunk has a checksum."""
    chunks = chunk_count(entry["shape"], entry["chunk"])
    _expect(16 * chunks < size, f"{where}.shape", entry["shape"])
    _digest(f"{where}.index", entry.get("index"))
    sums = entry.get("crc32")
    whole = isinstance(sums, str) and len(sums) == 8 * chunks and _HEX.fullmatch(sums)
    _expect(whole, f"{where}.crc32", sums)


def _row_size(where: str, rest: Sequence[Any]) -> None:
    for size in rest:
        _count(where, size)
    _expect(0 < math.prod(rest) <= _VALUES, where, rest)


def _count(where: str, value: Any) -> int:
    _expect(type(value) is int and 0 <= value < _LARGEST, where, value)
    return value


def _digest(where: str, value: Any) -> None:
    _expect(isinstance(value, str) and _SHA256.fullmatch(value), where, value)


def _mapping(where: str, value: Any) -> Mapping[str, Any]:
    _expect(isinstance(value, dict), where, value)
    return value


def _sequence(where: str, value: Any) -> list[Any]:
    _expect(isinstance(value, list), where, value)
    return value


def _expect(condition: Any, where: str, value: Any) -> None:
    if not condition:
        raise ValueError(f"its field {where} cannot be {repr(value)[:80]}")
