# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Seals of a shard's files: what `manifest.json` says of them, and whether they are still so.

A manifest names every file with its size and sha256 and, of a file of Zarr chunks, the sha256 of
its index and the crc32 of each chunk as it lies on disk: so one chunk is checked without reading
the others, and one that was swapped for another is recognised. It carries its own
sha256. Nothing here knows what the files mean.
"""

import contextlib
import dataclasses
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from jaxtyping import UInt32, UInt64

from flaxattn.errors import FlaxattnError, StoreError
from flaxattn.files import file_inside, sha256_of
from flaxattn.store.manifest_check import check_manifest
from flaxattn.store.store_layout import FORMAT, MANIFEST, SHARDS, shard_folder, shard_name

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
