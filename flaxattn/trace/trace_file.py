# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Traces and capture requests as files and JSON: one safetensors file, with JSON for the rest."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from flaxattn.errors import InputError
from flaxattn.files import write_bytes
from flaxattn.kernels.contract import Capture, Sieve
from flaxattn.trace.record import ARRAYS, SIDES, AttentionRecord, windows_from_json
from flaxattn.trace.token_predictions import Predictions


class FileKind(NamedTuple):
    """Kind of a file: its name in messages, its header key, and advice.

    Attributes:
        name: Name of the content, in messages.
        key: In the metadata of the header, under which the text stands.
        made: What to do where there is no such file; {} is its path.
        expected: What to give in place of a file without that key.
    """

    name: str
    key: str
    made: str
    expected: str

    def damaged(self, file: Path, reason: str) -> InputError:
        """An error that says why a file cannot be used."""
        return InputError(
            f"The {self.name} file {file} is damaged: {reason}.\nCopy or save it again."
        )


def packed(kind: FileKind, text: str, tensors: Mapping[str, np.ndarray]) -> bytes:
    """The bytes of a file; the same arguments give the same bytes."""
    # One entry only: safetensors writes several in an order that changes from run to run.
    return safetensors.numpy.save(dict(tensors), {kind.key: text})


def unpacked(kind: FileKind, path: str | os.PathLike[str]) -> tuple[str, dict[str, np.ndarray]]:
    """The text and the arrays of a file."""
    file = Path(path)
    if not file.is_file():
        raise InputError(
            f"There is no {kind.name} file {str(file)!r}.\n{kind.made.format(repr(str(file)))}"
        )
    try:
        with safetensors.safe_open(file, framework="np") as handle:
            text = (handle.metadata() or {}).get(kind.key)
            names = [] if text is None else list(handle.keys())
            tensors = {name: handle.get_tensor(name) for name in names}
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise kind.damaged(file, str(error).splitlines()[0]) from error
    if text is None:
        raise InputError(
            f"{file} holds tensors, but no {kind.name}: its header has no {kind.key}.\n"
            f"{kind.expected}"
        )
    return text, tensors


def capture_to_json(capture: Capture) -> dict[str, Any]:
    """A request as objects that `json.dumps` takes."""
    fields = {f.name: getattr(capture, f.name) for f in dataclasses.fields(capture)}
    fields["stats"] = [s if isinstance(s, str) else dataclasses.asdict(s) for s in capture.stats]
    return {name: _as_json(value) for name, value in fields.items()}


def capture_from_json(fields: Mapping[str, Any]) -> Capture:
    """The request that `capture_to_json` wrote."""
    try:
        found = {name: _frozen(value) for name, value in fields.items()}
        stats = fields.get("stats", ())
        found["stats"] = tuple(s if isinstance(s, str) else Sieve(**_tuples(s)) for s in stats)
        return Capture(**found)
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"this is not a capture request\n{str(error).splitlines()[0]}\n"
            "it was written by another version, or damaged"
        ) from error


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, list | tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _frozen(value) for name, value in fields.items()}


FORMAT = 1
_KIND = FileKind(
    "trace",
    "flaxattn.trace",
    "Write one: trace.save({}).",
    "Give a file that trace.save wrote; not the directory of a model.",
)
_ARRAYS = ("mask", "segments", "special", "decoder_mask", "decoder_special")
_LISTS = ("tokens", "words", "texts", "truncated", "decoder_tokens", "written", "decoder_words")
_PREDICTIONS = "predictions"
_NUMBERS = ("layers", "heads", "implementation", "query_window", "key_window", "scale")


def write(trace: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Write a trace. The same trace gives the same bytes."""
    tensors = {name: np.ascontiguousarray(array) for name, array in _tensors(trace).items()}
    sides = {side: trace[side] for side in SIDES if trace[side] is not None}
    if not sides:
        raise InputError(
            "This trace holds no attention, so there is nothing to save.\n"
            "Make one with model.trace(text), or Trace.from_arrays(weights, tokens)."
        )
    head = {
        "format": FORMAT,
        "model": trace["model"],
        "sides": {side: _numbers(record) for side, record in sides.items()},
        "text": {name: _plain(trace[name]) for name in _LISTS} | _spans(trace) | _words(trace),
        "sha256": {name: _digest(array) for name, array in tensors.items()},
    }
    metadata = json.dumps({"head": head, "sha256": _digest_of(head)}, sort_keys=True)
    return write_bytes(path, packed(_KIND, metadata, tensors), "a trace")


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the fields of a trace, and compare every byte with what was written."""
    metadata, tensors = unpacked(_KIND, path)
    return _trace(_head(Path(path), metadata, tensors), tensors)


def _tensors(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Every array of a trace by its name in the file."""
    found = {n: trace[n] for n in _ARRAYS if trace[n] is not None}
    if (predicted := trace["predictions"]) is not None:
        found |= {f"{_PREDICTIONS}.{name}": a for name, a in predicted.arrays().items()}
    for side in SIDES:
        if (record := trace[side]) is not None:
            fields = {n: a for n in ARRAYS if (a := getattr(record, n)) is not None}
            stats = {f"stats.{name}": array for name, array in record.stats.items()}
            found |= {f"{side}.{name}": array for name, array in (fields | stats).items()}
    return {name: np.asarray(array) for name, array in found.items()}


def _numbers(record: AttentionRecord) -> dict[str, Any]:
    """Numbers of a record beside its arrays, and the order of its statistics."""
    windows = {"sliding_windows": record.sliding_windows} if record.sliding_windows else {}
    return {n: getattr(record, n) for n in _NUMBERS} | windows | {"stats": list(record.stats)}


def _spans(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Spans in the text, where a trace has them: files written before there were any have none."""
    return {"spans": _plain(trace["spans"])} if len(trace["spans"]) else {}


def _words(trace: Mapping[str, Any]) -> dict[str, Any]:
    """Tokens of the predictions, where a trace has any."""
    predicted = trace[_PREDICTIONS]
    if predicted is None:
        return {}
    return {_PREDICTIONS: {name: _plain(rows) for name, rows in predicted.words().items()}}


def _plain(rows: Any) -> Any:
    """Lists of what JSON knows; numbers of NumPy become Python's."""
    if isinstance(rows, str) or rows is None:
        return rows
    return [_plain(row) for row in rows] if isinstance(rows, Iterable) else int(rows)


def _digest(array: np.ndarray) -> str:
    kind = f"{array.dtype.name} {array.shape} ".encode()
    return hashlib.sha256(kind + array.tobytes()).hexdigest()


def _digest_of(head: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


def _head(file: Path, message: str, tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the header, once it and the tensors are verified."""
    try:
        known = json.loads(message)
        head, digest = known["head"], known["sha256"]
        version = int(head["format"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _KIND.damaged(file, "its header cannot be read") from error
    if version != FORMAT:
        raise InputError(
            f"{file} is a trace of format {version}; this flaxattn reads format {FORMAT}.\n"
            "Open it with the version that wrote it, or save the trace again."
        )
    if _digest_of(head) != digest:
        raise _KIND.damaged(file, "its header is not what was written")
    if head["sha256"].keys() != tensors.keys():
        raise _KIND.damaged(file, "its tensors are not those its header names")
    for name, array in tensors.items():
        if _digest(array) != head["sha256"][name]:
            raise _KIND.damaged(file, f"tensor {name} is not what was written")
    return head


def _trace(head: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    sides: dict[str, Any] = {}
    for side, numbers in head["sides"].items():
        own = _below(side, tensors)
        stats = {name: own[f"stats.{name}"] for name in numbers["stats"]}
        kept: dict[str, Any] = {
            n: tuple(v) if isinstance(v, list) else v for n, v in numbers.items()
        }
        kept |= {n: a for n, a in own.items() if n in ARRAYS} | {"stats": stats}
        kept["sliding_windows"] = windows_from_json(numbers.get("sliding_windows", ()))
        sides[side] = AttentionRecord(**kept)
    text = dict(head["text"])
    text["texts"] = [tuple(pair) for pair in text["texts"]]
    text["spans"] = [
        [None if span is None else tuple(span) for span in row] for row in text.get("spans", ())
    ]
    arrays: dict[str, Any] = {name: tensors[name] for name in _ARRAYS if name in tensors}
    if words := text.pop(_PREDICTIONS, None):
        arrays[_PREDICTIONS] = Predictions.from_parts(words, _below(_PREDICTIONS, tensors))
    return {**sides, **text, **arrays, "model": head["model"]}


def _below(name: str, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors whose names begin with a name and a dot, by the rest."""
    start = f"{name}."
    return {key.removeprefix(start): a for key, a in tensors.items() if key.startswith(start)}
