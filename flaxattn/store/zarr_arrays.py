# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Zarr arrays of a shard: made in memory by tensorstore, and read chunk by chunk.

A chunk that is read is compared with the manifest first, so that nothing damaged, swapped or
missing is ever decoded; Zarr itself reads a missing chunk as zeros. Texts are stored elsewhere, in
Parquet.
"""

import hashlib
import itertools
import json
import mmap
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorstore as ts
from jaxtyping import Shaped

from flaxattn.files import file_inside
from flaxattn.store.seals import (
    chunk_sums,
    consistent,
    content,
    damaged,
    fills,
    index_size,
    read_index,
    seal_chunks,
)
from flaxattn.store.store_layout import (
    GROUP,
    chunk_count,
    chunk_shape,
    chunks_path,
    stored_dtype,
    value_dtype,
    zarr_metadata,
    zarr_path,
)


def encode(
    name: str, array: Shaped[np.ndarray, "L H N *rest"], attributes: Mapping[str, Any]
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Make the files of an array.

    Returns:
        The files by their path inside the shard, and what the manifest says of the array.
    """
    dtype, chunk = array.dtype.name, chunk_shape(array.shape)
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "memory", "path": f"{zarr_path(name)}/"},
        "metadata": zarr_metadata(array.shape, chunk, dtype, attributes),
        "create": True,
        # A chunk of zeros is stored like any other: one that is absent is always damage.
        "store_data_equal_to_fill_value": True,
    }
    memory = ts.Context()
    opened = ts.open(spec, context=memory).result()
    if array.size:
        opened.write(array.view(stored_dtype(dtype))).result()
    kept = ts.KvStore.open({"driver": "memory"}, context=memory).result()
    files = {key.decode(): kept.read(key).result().value for key in kept.list().result()}
    entry = {"dtype": dtype, "shape": list(array.shape), "chunk": list(chunk)}
    if array.size:
        data = files[chunks_path(name, array.ndim)]
        entry |= seal_chunks(data, chunk_count(array.shape, chunk))
    return files, entry


def group_file(attributes: Mapping[str, Any]) -> dict[str, bytes]:
    """The file that makes the arrays' folder a Zarr group."""
    group = {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}
    return {GROUP: json.dumps(group).encode()}


class StoredArray:
    """An array of a committed shard. It holds no file open and may be read by many threads."""

    def __init__(self, folder: Path, name: str, manifest: Any) -> None:
        self._entry = manifest.arrays[name]
        self.shape = tuple(self._entry["shape"])
        self._chunk = tuple(self._entry["chunk"])
        self._stored = stored_dtype(self._entry["dtype"])
        self._grid = tuple(-(-n // c) for n, c in zip(self.shape, self._chunk, strict=True))
        self._folder, self._name = folder, chunks_path(name, len(self.shape))
        self._path = folder / self._name
        self._size = manifest.files[chunks_path(name, len(self.shape))]["size"] if self.size else 0
        for described in (GROUP, f"{zarr_path(name)}/zarr.json"):  # what plain Zarr goes by
            content(folder, described, manifest.files[described])

    @property
    def size(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape, dtype=np.int64))

    @cached_property
    def _index(self) -> np.ndarray:
        """Offset and size of each chunk."""
        length = index_size(chunk_count(self.shape, self._chunk))
        with self._opened() as file:
            if (size := os.fstat(file.fileno()).st_size) != self._size:
                raise damaged(self._path, f"it has {size} bytes instead of {self._size}")
            tail = os.pread(file.fileno(), length, size - length)
        if hashlib.sha256(tail).hexdigest() != self._entry["index"]:
            raise damaged(self._path, "its index of chunks is not what was written (sha256)")
        if not fills(index := read_index(tail), size):
            raise damaged(self._path, "its chunks do not fill it")
        return index.astype(np.int64)

    @cached_property
    def _sums(self) -> np.ndarray:
        return chunk_sums(self._entry)

    def _opened(self) -> Any:
        try:
            file_inside(self._folder, self._name)
            return self._path.open("rb", buffering=0)
        except OSError as error:
            raise damaged(self._path, error.strerror or str(error)) from error

    def read(
        self, layers: Sequence[int], heads: Sequence[int], start: int, stop: int
    ) -> Shaped[np.ndarray, "L H N *rest"]:
        """Read a stretch of some layers and heads."""
        if not 0 <= start <= stop <= self.shape[2]:
            raise damaged(self._path, f"it has {self.shape[2]} places, none at {start} to {stop}")
        shape = (len(layers), len(heads), stop - start, *self.shape[3:])
        found = np.empty(shape, self._stored)
        if found.size:
            step = self._chunk[2]
            with self._opened() as file:
                for (i, layer), (j, head) in itertools.product(enumerate(layers), enumerate(heads)):
                    for number in range(start // step, -(-stop // step)):
                        begin = number * step
                        low, high = max(start, begin), min(stop, begin + step)
                        values = self._decoded(file.fileno(), layer, head, number)
                        found[i, j, low - start : high - start] = values[low - begin : high - begin]
        return found.view(value_dtype(self._entry["dtype"]))

    def _decoded(self, handle: int, layer: int, head: int, number: int) -> np.ndarray:
        """One chunk."""
        place = int(np.ravel_multi_index((layer, head, number), self._grid[:3]))
        offset, size = self._index[place].tolist()
        data = os.pread(handle, size, offset)
        if len(data) != size or zlib.crc32(data) != self._sums[place]:
            where = f"chunk {number} of layer {layer}, head {head}, both counted in the file"
            raise damaged(self._path, f"{where}, is not what was written (crc32)")
        inner = self._chunk[2:]
        with consistent(self._path):
            raw = pa.decompress(
                memoryview(data)[:-4],  # what follows is the chunk's own crc32c
                int(np.prod(inner)) * self._stored.itemsize,
                "zstd",
            )
        return np.frombuffer(raw, self._stored).reshape(inner)

    def whole(self) -> Shaped[np.ndarray, "L H N *rest"]:
        """All values; for reading many texts of a shard, each chunk once."""
        layers, heads, length = self.shape[:3]
        return self.read(range(layers), range(heads), 0, length)


def damaged_chunks(
    data: bytes | mmap.mmap, entry: Mapping[str, Any]
) -> Iterator[tuple[int, int, int]]:
    """Layer, head and number of the chunks in a file that are not what was written."""
    sums = chunk_sums(entry)
    tail = data[-index_size(len(sums)) :]
    index = read_index(tail)
    if hashlib.sha256(tail).hexdigest() != entry["index"] or not fills(index, len(data)):
        return
    grid = [-(-n // c) for n, c in zip(entry["shape"], entry["chunk"], strict=True)][:3]
    for place, (offset, size) in enumerate(index.tolist()):
        if zlib.crc32(data[offset : offset + size]) != sums[place]:
            layer, head, number = np.unravel_index(place, grid)
            yield int(layer), int(head), int(number)
