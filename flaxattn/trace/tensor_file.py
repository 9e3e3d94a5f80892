# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Named tensors in safetensors files, read with suspicion and written with checksums.

It knows files and bytes; it does not know what a tensor is for. There is no pickle here and there
will be none: other formats are refused with the line that converts them.
"""

import glob
import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from flaxattn.errors import CheckpointError
from flaxattn.files import file_inside, sha256_of, written_whole

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_DIGESTS = "flaxattn.sha256"  # key in the header's metadata: JSON, tensor name -> hex digest
_BESIDE = "flaxattn.files"  # the same for the files that were saved with the tensors
_HEADER_LIMIT = 16 * 2**20  # bytes; a header has about 200 for each tensor
_MOST_TENSORS = 20_000
_LONGEST_NAME = 500
_FLOATS = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}


class TensorFiles:
    """The tensors of a model directory, in one file or in several; each is read when asked for.

    Attributes:
        directory: Where the files are.
        shapes: Shape of every tensor by name.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._handles: dict[str, Any] = {}
        self._digests: dict[str, str] = {}
        self._files: dict[str, Path] = {}
        for path, names in _parts(self.directory).items():
            self._add(path, names)

    def _add(self, path: Path, names: Iterable[str] | None) -> None:
        handle = _open(path)
        held = list(handle.keys())
        names = held if names is None else list(names)
        if absent := sorted(set(names) - set(held)):
            raise CheckpointError(
                f"{path} lacks {len(absent)} tensors that {INDEX} says it holds: "
                f"{', '.join(absent[:3])}{', …' if len(absent) > 3 else ''}.\n"
                "The files are not of one save; download or save the model again."
            )
        self._digests |= _stored_digests(path, handle)
        for name in names:
            self.shapes[name] = tuple(handle.get_slice(name).get_shape())
            self._handles[name], self._files[name] = handle, path

    def read(self, name: str) -> np.ndarray:
        """Read one tensor and compare it with its checksum, if the file has one.

        Args:
            name: A key of `shapes`.

        Returns:
            float16, bfloat16 or float32, on the host.

        Raises:
            CheckpointError: If the bytes are not those that were saved, or are no such floats.
        """
        path, handle = self._files[name], self._handles[name]
        kind = handle.get_slice(name).get_dtype()
        if kind not in _FLOATS:
            raise CheckpointError(
                f"{path}: tensor {name} has dtype {kind}; expected one of {', '.join(_FLOATS)}.\n"
                "Convert the model to float32 with the tool that made it."
            )
        array = handle.get_tensor(name)
        expected = self._digests.get(name)
        if expected is not None and expected != digest(array):
            raise CheckpointError(
                f"{path} is damaged: tensor {name} is not what was saved (its checksum differs).\n"
                "Copy or download the file again; do not use these weights."
            )
        return array


def write(
    path: str | Path, tensors: Mapping[str, np.ndarray], beside: Mapping[str, str] | None = None
) -> None:
    """Write one safetensors file whose header holds a SHA-256 of every tensor, and read it back.

    Other readers ignore the checksums; `TensorFiles` and `saved_beside` verify them. The same
    arguments give the same bytes.

    Args:
        path: The file.
        tensors: Contiguous arrays by name.
        beside: SHA-256 of each file that is saved in the same folder, by name.

    Raises:
        CheckpointError: If the file could not be written as it should.
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
    """Check the files that were saved with the tensors of a model directory.

    Args:
        directory: Where the files are.

    Returns:
        SHA-256 of each by name; empty for a directory that another program wrote.

    Raises:
        CheckpointError: If one is missing, or is not what was saved.
    """
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
    """SHA-256 of the files that were saved with a safetensors file; empty where it names none.

    Args:
        path: The safetensors file.

    Raises:
        CheckpointError: If the file is damaged.
    """
    text = (_open(path).metadata() or {}).get(_BESIDE) if path.is_file() else None
    digests = {} if text is None else _read_digests(path, text)
    if not isinstance(digests, dict) or not all(isinstance(d, str) for d in digests.values()):
        raise CheckpointError(f"{path} is damaged: its checksums cannot be read.")
    return digests


def accept_files(directory: str | Path) -> None:
    """Accept the files of a model directory as they are now, after they were changed on purpose.

    Args:
        directory: A directory that `save_pretrained` wrote. Only the checksums of the files beside
            the tensors are written anew.

    Raises:
        CheckpointError: If the tensors are damaged, or the file cannot be written.
    """
    path = Path(directory) / SINGLE
    files = {name: _inside(path.parent, name, SINGLE) for name in stored_beside(path)}
    there = {name: sha256_of(file) for name, file in files.items() if file.is_file()}
    held = TensorFiles(directory)
    tensors = {name: held.read(name) for name in held.shapes}
    with written_whole(directory, SINGLE) as staging:
        write(staging / SINGLE, tensors, there)


def digest(array: np.ndarray) -> str:
    """SHA-256 of an array's bytes, in hexadecimal.

    Args:
        array: Any shape and dtype.
    """
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
    inside = "/" not in file
    try:
        file_inside(directory, file, links_into=roots)
    except FileNotFoundError:
        pass  # what is missing is told by `_shards`
    except OSError as error:
        if error.errno is not None:  # a name that is too long, or a file that cannot be looked at
            raise CheckpointError(
                f"{directory / named_by} names the file {file[:60]!r}…, which no file can be "
                "called.\nDownload or save the model again."
            ) from error
        inside = False
    if not inside:
        raise CheckpointError(
            f"{directory / named_by} names the file {file[:200]!r}, which lies outside the "
            "directory or is no regular file.\n"
            "Refused: a checkpoint may only read its own files. Do not trust this one."
        )
    return path


def _open(path: Path) -> Any:
    """Open a safetensors file, after the checks that would otherwise cost memory or clarity."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
        said = file.read(header) if header <= _HEADER_LIMIT else b""
    if size < 8 or header > size - 8:
        raise CheckpointError(_damaged(path, f"its header does not fit in {size} bytes", size))
    if header > _HEADER_LIMIT:
        raise CheckpointError(_damaged(path, f"its header claims {header} bytes", size))
    if (count := said.count(b'"dtype"')) > _MOST_TENSORS:
        raise CheckpointError(_damaged(path, f"its header claims {count} tensors", size))
    try:
        handle = safetensors.safe_open(path, framework="np")
        header = json.loads(said, object_pairs_hook=_unique)  # others take either one of two
        _check_names(header)
        return handle
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(_damaged(path, str(error), size)) from error


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


def _stored_digests(path: Path, handle: Any) -> dict[str, str]:
    text = (handle.metadata() or {}).get(_DIGESTS)
    if text is None:
        return {}
    digests = _read_digests(path, text)
    if not isinstance(digests, dict) or set(digests) != set(handle.keys()):
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
    """Read a JSON object.

    Args:
        path: The file, UTF-8.

    Raises:
        CheckpointError: If it is not that.
    """
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
            'Then from_pretrained("model") tells the line that converts it.'
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
