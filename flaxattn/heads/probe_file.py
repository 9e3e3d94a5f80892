# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A fitted probe as one small safetensors file: coefficients by name, the rest JSON in its header.

The header's metadata has one entry, `flaxattn.probe`, whose JSON holds layers, heads, what the fit
came to, notes of whoever saved it, and SHA-256 of every tensor. There is no pickle.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flaxattn.described import Kind, packed, unpacked
from flaxattn.errors import InputError
from flaxattn.files import write_bytes
from flaxattn.heads.parsing import ParsingProbe
from flaxattn.tensorfile import digest

FORMAT = 1
_KIND = Kind(
    "probe",
    "flaxattn.probe",
    "Write one with save_probe.",
    "Give a file that save_probe wrote.",
)
_TENSORS = ("given", "received", "first", "separators", "bias")


class SavedProbe(NamedTuple):
    """What a file holds.

    Attributes:
        probe: The probe.
        notes: What was written beside it: model, data, scores.
    """

    probe: ParsingProbe
    notes: dict[str, Any]


def to_bytes(probe: ParsingProbe, notes: Mapping[str, Any] | None = None) -> bytes:
    """A probe as the bytes of a file. The same probe and notes give the same bytes.

    Args:
        probe: The probe.
        notes: What JSON can hold.
    """
    tensors = {name: np.ascontiguousarray(getattr(probe, name)) for name in _TENSORS}
    facts = {
        field.name: getattr(probe, field.name)
        for field in dataclasses.fields(probe)
        if field.name not in _TENSORS
    }
    head = {
        "format": FORMAT,
        "kind": "parsing",
        "facts": facts,
        "notes": dict(notes or {}),
        "sha256": {name: digest(array) for name, array in tensors.items()},
    }
    return packed(_KIND, json.dumps(head | {"seal": _seal(head)}, sort_keys=True), tensors)


def save_probe(
    probe: ParsingProbe, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None
) -> Path:
    """Write a probe, whole or not at all.

    Args:
        probe: The probe.
        path: The file; its folder must exist.
        notes: What to write beside it, such as model and data; what JSON can hold.

    Returns:
        The path.

    Raises:
        InputError: If the file cannot stand there.
    """
    return write_bytes(path, to_bytes(probe, notes), "a probe")


def load_probe(path: str | os.PathLike[str]) -> SavedProbe:
    """Read a probe, and compare its coefficients with what was written.

    Args:
        path: The file.

    Raises:
        InputError: If there is no such file, it is no probe, or it is damaged.
    """
    said, tensors = unpacked(_KIND, path)
    return _probe(Path(path), said, tensors)


def _probe(file: Path, said: str, tensors: Mapping[str, np.ndarray]) -> SavedProbe:
    try:
        head = json.loads(said)
        version, kind = int(head["format"]), head["kind"]
        facts: dict[str, Any] = dict(head["facts"])
        facts |= {name: tuple(map(int, facts[name])) for name in ("layers", "heads")}
        digests, notes = dict(head["sha256"]), dict(head["notes"])
        shape = len(facts["layers"]), len(facts["heads"])
        seal = _seal({name: value for name, value in head.items() if name != "seal"})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _KIND.damaged(file, "its header cannot be read") from error
    if (version, kind) != (FORMAT, "parsing"):
        raise InputError(
            f"{file} is a {kind} probe of format {version}; this flaxattn reads parsing probes of "
            f"format {FORMAT}.\nOpen it with the version that wrote it, or fit the probe again."
        )
    shapes = {name: shape for name in _TENSORS} | {"bias": (2,)}
    if {name: array.shape for name, array in tensors.items()} != shapes:
        raise _KIND.damaged(
            file, f"its tensors are not those of a probe of {shape[0]} x {shape[1]} heads"
        )
    for name, array in tensors.items():
        if array.dtype != np.float32 or digest(array) != digests.get(name):
            raise _KIND.damaged(file, f"tensor {name} is not what was written")
    fields: dict[str, Any] = {**facts, **tensors}
    try:
        found = SavedProbe(ParsingProbe(**fields), notes)
    except TypeError as error:
        raise _KIND.damaged(file, "its header is not that of a probe") from error
    if seal != head.get("seal"):
        raise _KIND.damaged(file, "its header is not what was written")
    return found


def _seal(head: Mapping[str, Any]) -> str:
    """SHA-256 of what the header says."""
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()
