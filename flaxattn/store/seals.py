# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Seals of a shard's files: what `manifest.json` says of them, and whether they are still so.

A manifest names every file with its size and sha256 and, of a file of Zarr chunks, the sha256 of
its index and the crc32 of each chunk as it lies on disk: so one chunk is checked without reading
the others, and one that was swapped for another is recognised. It carries its own sha256. Its
types, names and sizes are checked before they are used. Nothing here knows what the files mean.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from jaxtyping import UInt32, UInt64

from flaxattn.errors import FlaxattnError, StoreError
from flaxattn.files import file_inside, sha256_of
from flaxattn.store.shard_tables import BESIDE, DTYPES
from flaxattn.store.store_layout import (
    COUNTS,
    ERRORS,
    FORMAT,
    GROUP,
    HEADS,
    MANIFEST,
    OF_MAPS,
    REDUCTIONS,
    SHARD_TEXTS,
    SHARDS,
    TEXTS,
    TOKENS,
    chunk_count,
    chunk_shape,
    chunks_path,
    head_count,
    shard_folder,
    shard_name,
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
        field = name.partition(".")[2]
        heads = [len(side["layers"]), head_count(field, side["heads"])]
        tail = [] if field in OF_MAPS else rest
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


NONFINITE = "nonfinite"
"""Key in `Manifest.traces`: number of rows of attention that are NaN or infinite, where any is."""
_CRC32C = 4  # bytes after an index
_JSON_BYTES, _JSON_VALUES = 2**26, 2**21  # of a plan or a manifest that is read
_INCONSISTENT = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, MemoryError)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Manifest of a shard: its place in the plan and the seals of its files.

    Attributes:
        plan: sha256 of the plan it was made under.
        shard: Its number.
        start: Its first example.
        stop: The example after its last.
        counts: Rows of its part of the corpus, texts and tokens among them, bytes of their arrays
            before compression, texts that were cut, and rows that were left out by problem.
        traces: What its traces have in common: model, fields, sides, arrays and statistics.
        files: Size and sha256 of each file by its path inside the shard.
        arrays: Shape, chunk, dtype and seals of each Zarr array by name.
    """

    plan: str
    shard: int
    start: int
    stop: int
    counts: Mapping[str, Any]
    traces: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]]
    arrays: Mapping[str, Mapping[str, Any]]

    @property
    def nonfinite(self) -> int:
        """Number of rows of attention that are NaN or infinite."""
        return self.traces.get(NONFINITE, 0)

    def to_bytes(self) -> bytes:
        """The file's content."""
        body = {"format": FORMAT, **dataclasses.asdict(self)}
        text = json.dumps(body, ensure_ascii=False)
        digest = hashlib.sha256(text.encode()).hexdigest()
        return f'{{"sha256": "{digest}", "shard": {text}}}\n'.encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a file's content."""
        body = parse_json(data)["shard"]
        if body.pop("format") != FORMAT:
            raise ValueError("it is of another version of flaxattn")
        manifest = cls(**body)
        if manifest.to_bytes() != data:
            raise ValueError("its content does not match its own sha256")
        check_manifest(manifest)
        return manifest


def read_manifest(store: Path, number: int) -> Manifest:
    """The manifest of a committed shard."""
    folder = shard_folder(store, number)
    try:
        file_inside(store, f"{SHARDS}/{shard_name(number)}/{MANIFEST}")
    except OSError as error:
        raise damaged(folder / MANIFEST, error.strerror or str(error)) from error
    manifest = manifest_in(folder)
    if manifest.shard != number:
        what = f"it is the manifest of shard {shard_name(manifest.shard)}"
        raise damaged(folder / MANIFEST, what)
    return manifest


def manifest_in(folder: Path) -> Manifest:
    """The manifest in a folder, whatever the folder is called."""
    path = folder / MANIFEST
    try:
        return Manifest.from_bytes(small_file(folder, MANIFEST))
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error) if type(error) is ValueError else "it is not a manifest"
        raise damaged(path, reason) from error


def small_file(folder: Path, name: str) -> bytes:
    """Content of a plan or a manifest."""
    path = file_inside(folder, name)
    if (size := path.stat().st_size) > _JSON_BYTES:
        raise OSError(f"it has {size:,} bytes, expected at most {_JSON_BYTES:,}")
    return path.read_bytes()


def parse_json(data: bytes) -> Any:
    """Value of a plan or a manifest, whose size in memory stays near that of the file."""
    if (count := sum(map(data.count, (b",", b"[", b"{")))) > _JSON_VALUES:
        raise ValueError(f"it has {count:,} values, expected at most {_JSON_VALUES:,}")
    return json.loads(data)


@contextlib.contextmanager
def consistent(path: Path) -> Iterator[None]:
    """Report whatever goes wrong while a checked file is read as damage of that file.

    Checksums tell that a file is as it was written, not that its writer meant well: offsets may
    lead beyond an array, columns may be missing or of another type.
    """
    try:
        yield
    except FlaxattnError:
        raise
    except (*_INCONSISTENT, pa.ArrowException) as error:
        what = f"it does not fit the manifest of its shard ({type(error).__name__})"
        raise damaged(path, what) from error


def damaged(path: Path, what: str) -> StoreError:
    """The error that a file in a shard is not as it was written."""
    shard = next((p for p in path.parents if p.name.isdigit()), path.parent)
    return StoreError(
        f"{path} is damaged: {what}\n"
        f"nothing was read from it; `flaxattn store verify` lists all damage of a store\n"
        f"delete the folder {shard} and run the same `flaxattn extract` again"
    )


def seal(data: bytes) -> dict[str, Any]:
    """Size and sha256 of a file's content."""
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def content(folder: Path, name: str, sealed: Mapping[str, Any]) -> bytes:
    """Read a small file and check all of it."""
    path = _regular(folder, name, sealed)
    if sealed["size"] > _JSON_BYTES:
        raise damaged(path, f"it has {sealed['size']:,} bytes, expected at most {_JSON_BYTES:,}")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != sealed["sha256"]:
        raise damaged(folder / name, "its content is not what was written (sha256)")
    return data


def check_content(folder: Path, name: str, sealed: Mapping[str, Any]) -> Path:
    """Compare a file of any size with its seal; arguments and errors as of `content`."""
    path = _regular(folder, name, sealed)
    try:
        found = sha256_of(path)
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error
    if found != sealed["sha256"]:
        raise damaged(path, "its content is not what was written (sha256)")
    return path


def _regular(folder: Path, name: str, sealed: Mapping[str, Any]) -> Path:
    """Path of a file of a shard, which is there and has the size of its seal."""
    try:
        return file_inside(folder, name, sealed["size"])
    except OSError as error:
        raise damaged(folder / name, error.strerror or str(error)) from error


def index_size(chunks: int) -> int:
    """Bytes at the end of a file of chunks: offset and size of each, and a checksum."""
    return 16 * chunks + _CRC32C


def read_index(data: bytes) -> UInt64[np.ndarray, "N 2"]:
    """Offset and size of each chunk."""
    return np.frombuffer(data[:-_CRC32C], "<u8").reshape(-1, 2)


def fills(index: UInt64[np.ndarray, "N 2"], size: int) -> bool:
    """Return whether chunks lie inside a file and make up all of it beside the index."""
    lengths = index[:, 1].astype(float)  # whose sum does not wrap around
    inside = bool(np.all(index.astype(float).sum(axis=1) <= size))
    return inside and int(lengths.sum()) + index_size(len(index)) == size


def seal_chunks(data: bytes, chunks: int) -> dict[str, str]:
    """Seals of the index and of each chunk."""
    tail = data[-index_size(chunks) :]
    index = read_index(tail)
    if not fills(index, len(data)):
        raise ValueError(f"{chunks} chunks were expected to fill {len(data)} bytes, and do not")
    view = memoryview(data)
    sums = [zlib.crc32(view[start : start + size]) for start, size in index.tolist()]
    return {
        "index": hashlib.sha256(tail).hexdigest(),
        "crc32": np.array(sums, "<u4").tobytes().hex(),
    }


def chunk_sums(sealed: Mapping[str, Any]) -> UInt32[np.ndarray, " N"]:
    """The crc32 of each chunk, as a manifest names them."""
    return np.frombuffer(bytes.fromhex(sealed["crc32"]), "<u4")
