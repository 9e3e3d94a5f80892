# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A fitted probe as one small safetensors file: coefficients by name, the rest JSON in its header.

The header's metadata has one entry, `flaxattn.probe`, whose JSON holds the kind of the probe, what
it reads, what the fit came to, notes of whoever saved it, and SHA-256 of every tensor. There is no
pickle.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flaxattn.errors import InputError, check_arguments
from flaxattn.files import write_bytes
from flaxattn.probes.label_probe import LabelProbe
from flaxattn.probes.parsing_probe import ParsingProbe
from flaxattn.probes.structural_probe import StructuralProbe
from flaxattn.trace.tensor_file import digest
from flaxattn.trace.trace import FileKind, packed, unpacked

FORMAT = 1
_KIND = FileKind(
    "probe",
    "flaxattn.probe",
    "Write one with save_probe.",
    "Give a file that save_probe wrote.",
)
Probe = ParsingProbe | StructuralProbe | LabelProbe


class _Form(NamedTuple):
    """File form of a kind of probe: its class, its tensors, and the shapes these may have."""

    made: Callable[..., Probe]
    tensors: tuple[str, ...]
    shapes: Callable[[Mapping[str, Any], Mapping[str, tuple[int, ...]]], dict[str, tuple[int, ...]]]


def _of_heads(facts: Mapping[str, Any], found: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    shape = len(facts["layers"]), len(facts["heads"])
    return {name: (2,) if name == "bias" else shape for name in found}


def _of_maps(facts: Mapping[str, Any], found: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    shape = found["distance"]
    return {name: shape if len(shape) == 2 and all(shape) else (0, 0) for name in found}


def _of_labels(facts: Mapping[str, Any], found: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    count, shape = len(facts["labels"]), found["coefficients"]
    wide = shape[-1] if len(shape) == 2 else 0
    return {"coefficients": (count, wide), "bias": (count,)}


_FORMS = {
    "parsing": _Form(ParsingProbe, ("given", "received", "first", "separators", "bias"), _of_heads),
    "structural": _Form(StructuralProbe, ("distance", "depth"), _of_maps),
    "labels": _Form(LabelProbe, ("coefficients", "bias"), _of_labels),
}


class SavedProbe(NamedTuple):
    """Content of a probe file.

    Attributes:
        probe: The probe.
        notes: What was written beside it: model, data, scores.
    """

    probe: Probe
    notes: dict[str, Any]


def to_bytes(probe: Probe, notes: Mapping[str, Any] | None = None) -> bytes:
    """A probe as the bytes of a file. The same probe and notes give the same bytes."""
    kind = next(name for name, form in _FORMS.items() if form.made is type(probe))
    names = _FORMS[kind].tensors
    tensors = {name: np.ascontiguousarray(getattr(probe, name), np.float32) for name in names}
    facts = {
        field.name: getattr(probe, field.name)
        for field in dataclasses.fields(probe)
        if field.name not in names
    }
    head = {
        "format": FORMAT,
        "kind": kind,
        "facts": facts,
        "notes": dict(notes or {}),
        "sha256": {name: digest(array) for name, array in tensors.items()},
    }
    return packed(_KIND, json.dumps(head | {"seal": _seal(head)}, sort_keys=True), tensors)


@check_arguments()
def save_probe(
    probe: Probe, path: str | os.PathLike[str], notes: Mapping[str, Any] | None = None
) -> Path:
    """Write a probe, whole or not at all. Coefficients are stored as float32.

    >>> import numpy as np
    >>> import flaxattn as fa
    >>> from flaxattn.probes.structural_probe import StructuralProbe
    >>> matrix = np.eye(4, 256, dtype=np.float32)
    >>> probe = StructuralProbe(2, matrix, matrix, (0.5, 0.5), (9, 9), 90)
    >>> fa.save_probe(probe, "probe.safetensors", {"model": "tiny-bert"}).name
    'probe.safetensors'

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


@check_arguments()
def load_probe(path: str | os.PathLike[str]) -> SavedProbe:
    """Read a probe, and compare its coefficients with what was written.

    >>> import numpy as np
    >>> import flaxattn as fa
    >>> from flaxattn.probes.structural_probe import StructuralProbe
    >>> matrix = np.eye(4, 256, dtype=np.float32)
    >>> probe = StructuralProbe(2, matrix, matrix, (0.5, 0.5), (9, 9), 90)
    >>> path = fa.save_probe(probe, "probe.safetensors", {"model": "tiny-bert"})
    >>> fa.load_probe(path).probe.layer, fa.load_probe(path).notes
    (2, {'model': 'tiny-bert'})

    Args:
        path: The file.

    Returns:
        The probe, and the notes that were written beside it.

    Raises:
        InputError: If there is no such file, it is not a probe, or it is damaged.
    """
    notes, tensors = unpacked(_KIND, path)
    return _probe(Path(path), notes, tensors)


def _probe(file: Path, message: str, tensors: Mapping[str, np.ndarray]) -> SavedProbe:
    found = {name: array.shape for name, array in tensors.items()}
    try:
        head = json.loads(message)
        version, kind = int(head["format"]), str(head["kind"])
        facts: dict[str, Any] = {name: _frozen(fact) for name, fact in dict(head["facts"]).items()}
        digests, notes = dict(head["sha256"]), dict(head["notes"])
        seal = _seal({name: value for name, value in head.items() if name != "seal"})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _KIND.damaged(file, "its header cannot be read") from error
    if version != FORMAT or kind not in _FORMS:
        raise InputError(
            f"{file} is a {kind} probe of format {version}; this flaxattn reads "
            f"{' and '.join(_FORMS)} probes of format {FORMAT}.\n"
            "Open it with the version that wrote it, or fit the probe again."
        )
    form = _FORMS[kind]
    try:
        fitting = set(found) == set(form.tensors) and found == form.shapes(facts, found)
    except (KeyError, TypeError) as error:
        raise _KIND.damaged(file, "its header is not that of a probe") from error
    if not fitting:
        raise _KIND.damaged(file, f"its tensors are not those of a {kind} probe with its header")
    for name, array in tensors.items():
        if array.dtype != np.float32 or digest(array) != digests.get(name):
            raise _KIND.damaged(file, f"tensor {name} is not what was written")
    try:
        made = SavedProbe(form.made(**facts, **tensors), notes)
    except TypeError as error:
        raise _KIND.damaged(file, "its header is not that of a probe") from error
    if seal != head.get("seal"):
        raise _KIND.damaged(file, "its header is not what was written")
    return made


def _seal(head: Mapping[str, Any]) -> str:
    """SHA-256 of what the header says."""
    return hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()


def _frozen(fact: Any) -> Any:
    """The fact as it was before it was JSON, which has lists for tuples."""
    return tuple(fact) if isinstance(fact, list) else fact
