# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The header of a safetensors file, read with suspicion: which tensors it holds, and where.

It reads no tensor; `tensor_file` does.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors

from flaxattn.errors import CheckpointError

_HEADER_LIMIT = 16 * 2**20  # bytes; a header has about 200 for each tensor
_MOST_TENSORS = 20_000
_LONGEST_NAME = 500
_LENGTH = 8  # bytes before the header that tell how long it is


class StoredTensor(NamedTuple):
    """One tensor of a file.

    Attributes:
        dtype: In the letters of the format, such as F32 and BF16.
        shape: Its axes.
        data_offsets: First byte and the one after the last, counted from the end of the header.
    """

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class TensorHeader(NamedTuple):
    """Content of a header.

    Attributes:
        path: The file.
        size: Bytes before the data of the first tensor.
        metadata: Strings by name.
        tensors: Every tensor by name.
    """

    path: Path
    size: int
    metadata: Mapping[str, str]
    tensors: Mapping[str, StoredTensor]


def read_header(path: Path) -> TensorHeader:
    """Read the header of a safetensors file, after checks that cost neither memory nor clarity."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH), "little")
        said = file.read(length) if length <= _HEADER_LIMIT else b""
    if size < _LENGTH or length > size - _LENGTH:
        raise CheckpointError(_damaged(path, f"its header does not fit in {size} bytes", size))
    if length > _HEADER_LIMIT:
        raise CheckpointError(_damaged(path, f"its header claims {length} bytes", size))
    if (count := said.count(b'"dtype"')) > _MOST_TENSORS:
        raise CheckpointError(_damaged(path, f"its header claims {count} tensors", size))
    try:
        with safetensors.safe_open(path, framework="np"):  # checks dtypes, shapes and offsets
            header = json.loads(said, object_pairs_hook=_unique)  # others take either one of two
        _check_names(header)
        metadata = header.pop("__metadata__", None) or {}
        tensors = {name: _stored(entry) for name, entry in header.items()}
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(_damaged(path, str(error), size)) from error
    return TensorHeader(path, _LENGTH + length, metadata, tensors)


def _stored(entry: Mapping[str, Any]) -> StoredTensor:
    first, last = entry["data_offsets"]
    return StoredTensor(entry["dtype"], tuple(entry["shape"]), (first, last))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise ValueError(f"its header has the key {twice[:60]!r} twice")
    return found


def _check_names(names: Iterable[str]) -> None:
    """Check that names of tensors can be shown."""
    for name in names:
        if len(name) > _LONGEST_NAME or not name.isprintable():
            raise ValueError(f"its header has the name {name[:60]!r}, which no tensor can have")


def _damaged(path: Path, reason: str, size: int) -> str:
    return (
        f"{path} is not a whole safetensors file ({size} bytes): it was cut short or damaged.\n"
        f"Reader's reason: {reason}.\n"
        "Download or copy it again."
    )
