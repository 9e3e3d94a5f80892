# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Named tensors in safetensors files: headers are validated, tensors have checksums.

It knows files and bytes, not what a tensor is for. Pickled formats are refused with the line that
converts them.
"""

import glob
import hashlib
import json
import os
import shlex
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from flaxattn.errors import CheckpointError
from flaxattn.files import file_inside, sha256_of, written_whole

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
        text = file.read(length) if length <= _HEADER_LIMIT else b""
    if size < _LENGTH or length > size - _LENGTH:
        raise CheckpointError(_damaged(path, f"its header does not fit in {size} bytes", size))
    if length > _HEADER_LIMIT:
        raise CheckpointError(_damaged(path, f"its header claims {length} bytes", size))
    if (count := text.count(b'"dtype"')) > _MOST_TENSORS:
        raise CheckpointError(_damaged(path, f"its header claims {count} tensors", size))
    try:
        with safetensors.safe_open(path, framework="np"):  # checks dtypes, shapes and offsets
            header = json.loads(text, object_pairs_hook=_unique)  # others take either one of two
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


SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_DIGESTS = "flaxattn.sha256"  # key in the header's metadata: JSON, tensor name -> hex digest
_BESIDE = "flaxattn.files"  # the same for the files that were saved with the tensors
FLOATS = {"F16": np.float16, "BF16": ml_dtypes.bfloat16, "F32": np.float32}
"""Types of floating-point tensors by their names in a file."""


class TensorFiles:
    """The tensors of a model directory, in one file or in several; each is read when requested.

    Files stay open and are read, not mapped into memory, so a tensor takes memory only where it is
    read to.

    Attributes:
        directory: Folder of the files.
        shapes: Shape of every tensor by name.
    """

    def __init__(self, directory: str | Path, file: str | None = None) -> None:
        """Open the files."""
        self.directory = Path(directory)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._headers: dict[str, TensorHeader] = {}
        self._files: dict[str, Any] = {}
        self._digests: dict[str, str] = {}
        parts = _parts(self.directory) if file is None else {self.directory / file: None}
        for path, names in parts.items():
            self._add(path, names)

    def _add(self, path: Path, names: Iterable[str] | None) -> None:
        header, file = read_header(path), path.open("rb", buffering=0)
        weakref.finalize(self, file.close)
        names = list(header.tensors) if names is None else list(names)
        if absent := sorted(set(names) - set(header.tensors)):
            raise CheckpointError(
                f"{path} lacks {len(absent)} tensors that {INDEX} says it holds: "
                f"{', '.join(absent[:3])}{', …' if len(absent) > 3 else ''}.\n"
                "The files are not of one save; download or save the model again."
            )
        self._digests |= _stored_digests(path, header)
        for name in names:
            self.shapes[name] = header.tensors[name].shape
            self._headers[name], self._files[name] = header, file

    def letters(self) -> dict[str, str]:
        """Dtypes of all tensors by name, such as F32 and BF16."""
        return {name: header.tensors[name].dtype for name, header in self._headers.items()}

    def dtype(self, name: str) -> np.dtype[Any]:
        """Dtype of a tensor: float16, bfloat16 or float32."""
        header = self._headers[name]
        kind = header.tensors[name].dtype
        if kind not in FLOATS:
            raise CheckpointError(
                f"{header.path}: tensor {name} has dtype {kind}; expected one of "
                f"{', '.join(FLOATS)}.\n"
                "Convert the model to float32 with the tool that made it."
            )
        return np.dtype(FLOATS[kind])

    def read(self, name: str, into: np.ndarray | None = None) -> np.ndarray:
        """Read one tensor and compare it with its checksum, if the file has one."""
        header, dtype = self._headers[name], self.dtype(name)
        array = np.empty(self.shapes[name], dtype) if into is None else into
        assert array.flags.c_contiguous and array.dtype == dtype
        _fill(self._files[name], header, name, array)
        expected = self._digests.get(name)
        if expected is not None and expected != digest(array):
            raise CheckpointError(
                f"{header.path} is damaged: tensor {name} is not what was saved (its checksum "
                "differs).\n"
                "Copy or download the file again; do not use these weights."
            )
        return array


def _fill(file: Any, header: TensorHeader, name: str, array: np.ndarray) -> None:
    """Read the bytes of a tensor into an array."""
    start, stop = header.tensors[name].data_offsets
    rest = memoryview(array.reshape(-1).view(np.uint8))
    assert len(rest) == stop - start
    file.seek(header.size + start)
    while rest:
        count = file.readinto(rest)
        if not count:
            raise CheckpointError(
                f"{header.path} became shorter while it was read: tensor {name} is not all there.\n"
                "Copy or download the file again."
            )
        rest = rest[count:]


def write(
    path: str | Path, tensors: Mapping[str, np.ndarray], beside: Mapping[str, str] | None = None
) -> None:
    """Write one safetensors file whose header holds a SHA-256 of every tensor, and read it back.

    Other readers ignore the checksums; `TensorFiles` and `saved_beside` verify them. The same
    arguments give the same bytes.
    """
    digests = {name: digest(array) for name, array in tensors.items()}
    metadata = {"format": "pt", _DIGESTS: json.dumps(digests, sort_keys=True)}
    if beside is not None:
        metadata[_BESIDE] = json.dumps(dict(beside), sort_keys=True)
    try:
        safetensors.numpy.save_file(dict(tensors), path, metadata=metadata)
    except safetensors.SafetensorError as error:
        raise OSError(str(error)) from error
    _sort_metadata(Path(path))
    written = TensorFiles(Path(path).parent)
    for name in tensors:
        written.read(name)


def _sort_metadata(path: Path) -> None:
    """Order the metadata by key: safetensors writes it in an order that changes from run to run."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        if len(text) > size:
            raise OSError(0, f"the header of {path.name} cannot be put in order")
        file.seek(8)
        file.write(text.ljust(size))


def saved_beside(directory: str | Path) -> dict[str, str]:
    """Check the files that were saved with the tensors of a model directory."""
    path = Path(directory) / SINGLE
    digests = stored_beside(path)
    for name, expected in sorted(digests.items()):
        file = _inside(path.parent, name, SINGLE)
        if not file.is_file() or sha256_of(file) != expected:
            code = f"from {__name__} import accept_files; accept_files({str(directory)!r})"
            reason = f"is not the file that was saved with {SINGLE}: it was edited or damaged"
            raise CheckpointError(
                f"{file} {reason if file.exists() else f'is missing; {SINGLE} was saved with it'}."
                "\nCopy the directory again. If you changed it yourself, accept it as it is now:\n"
                f"python -c {shlex.quote(code)}"
            )
    return digests


def stored_beside(path: Path) -> dict[str, str]:
    """SHA-256 of the files that were saved with a safetensors file; empty where it names none."""
    text = read_header(path).metadata.get(_BESIDE) if path.is_file() else None
    digests = {} if text is None else _read_digests(path, text)
    if not isinstance(digests, dict) or not all(isinstance(d, str) for d in digests.values()):
        raise CheckpointError(f"{path} is damaged: its checksums cannot be read.")
    return digests


def accept_files(directory: str | Path) -> None:
    """Accept the files of a model directory as they are now, after they were changed on purpose."""
    path = Path(directory) / SINGLE
    files = {name: _inside(path.parent, name, SINGLE) for name in stored_beside(path)}
    there = {name: sha256_of(file) for name, file in files.items() if file.is_file()}
    held = TensorFiles(directory)
    tensors = {name: held.read(name) for name in held.shapes}
    with written_whole(directory, SINGLE) as staging:
        write(staging / SINGLE, tensors, there)


def digest(array: np.ndarray) -> str:
    """SHA-256 of an array's bytes, in hexadecimal."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return hashlib.sha256(flat.view(np.uint8).data).hexdigest()


def _parts(directory: Path) -> dict[Path, list[str] | None]:
    """Files to read, each with the tensors to take from it (None: all)."""
    if (directory / SINGLE).is_file():
        return {directory / SINGLE: None}
    if (directory / INDEX).is_file():
        return _shards(directory)
    raise CheckpointError(_no_weights(directory))


def _shards(directory: Path) -> dict[Path, list[str] | None]:
    index = read_json(directory / INDEX)
    placed = index.get("weight_map")
    if not (
        isinstance(placed, dict) and placed and all(isinstance(f, str) for f in placed.values())
    ):
        raise CheckpointError(
            f"{directory / INDEX} has no usable weight_map: expected tensor names with file names."
            "\nDownload or save the model again."
        )
    parts: dict[Path, list[str] | None] = {}
    for name, file in placed.items():
        if "/" in file:  # parts lie beside their index, as every writer places them
            raise _leads_outside(directory / INDEX, file)
        names = parts.setdefault(_inside(directory, file), [])
        assert names is not None
        names.append(name)
    for path in parts:
        if not path.is_file():
            raise CheckpointError(
                f"{directory / INDEX} names {path.name}, which is not there.\n"
                "The download or copy is not complete; get the missing file."
            )
    return parts


def _inside(directory: Path, file: str, named_by: str = INDEX) -> Path:
    """The path of a file named by another one; refused if it is not in the model's own folder."""
    path = directory / file
    roots = [directory.resolve()]
    if directory.parent.name == "snapshots":  # a Hub cache: files are links to ../../blobs
        roots.append(directory.parent.parent.resolve() / "blobs")
    try:
        file_inside(directory, file, links_into=roots)
    except FileNotFoundError:
        pass  # `_shards` reports what is missing
    except OSError as error:
        if error.errno is not None:  # a name that is too long, or a file that cannot be looked at
            raise CheckpointError(
                f"{directory / named_by} names the file {file[:60]!r}…, which no file can be "
                "called.\nDownload or save the model again."
            ) from error
        raise _leads_outside(directory / named_by, file) from error
    return path


def _leads_outside(named_by: Path, file: str) -> CheckpointError:
    return CheckpointError(
        f"{named_by} names the file {file[:200]!r}, which lies outside the directory or is no "
        "regular file.\n"
        "Refused: a checkpoint may only read its own files. Do not trust this one."
    )


def _stored_digests(path: Path, header: TensorHeader) -> dict[str, str]:
    text = header.metadata.get(_DIGESTS)
    if text is None:
        return {}
    digests = _read_digests(path, text)
    if not isinstance(digests, dict) or set(digests) != set(header.tensors):
        raise CheckpointError(
            f"{path} is damaged: its checksums are not those of its tensors.\n"
            "Copy or download the file again; do not use these weights."
        )
    return digests


def _read_digests(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: its checksums cannot be read.") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} cannot be read as JSON: {error}.\nDownload or copy it again."
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds a JSON {type(value).__name__}; expected an object.")
    return value


def _no_weights(directory: Path) -> str:
    if directory.parent.name == "snapshots":  # what the Hub gave; pickles were not fetched
        name = directory.parent.parent.name.removeprefix("models--").replace("--", "/")
        return (
            f"The Hub model {name!r} has no {SINGLE}; flaxattn never opens a pickle.\n"
            f"If you trust it, fetch it: hf download {name} --local-dir model\n"
            'Then from_pretrained("model") prints the line that converts it.'
        )
    if not list(directory.glob("pytorch_model*.bin")):
        held = ", ".join(sorted(p.name for p in directory.iterdir())[:8]) or "nothing"
        return (
            f"{directory} holds no weights: expected {SINGLE} or {INDEX}.\n"
            f"It holds {held}.\n"
            "Save the model there with save_pretrained, as safetensors."
        )
    pattern = os.path.join(glob.escape(str(directory)), "pytorch_model*.bin")
    code = (
        "import glob, torch; from safetensors.torch import save_file; "
        "save_file({k: v.contiguous().clone() "
        f"for f in sorted(glob.glob({pattern!r})) "
        "for k, v in torch.load(f, map_location='cpu', weights_only=True).items()}, "
        f"{str(directory / SINGLE)!r}, {{'format': 'pt'}})"
    )
    return (
        f"{directory} has its weights only as pytorch_model.bin, a pickle, which can run code; "
        "flaxattn never opens one.\n"
        "If you trust it, convert it where torch is installed:\n"
        f"python -c {shlex.quote(code)}"
    )
