# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One safetensors file of arrays, with a text about them in its header: read with suspicion.

What the text says, and which checksums it holds, is known to those who write it: `trace_file`,
`probe_file`. Checkpoints of models are read by `tensor_file`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from flaxattn.errors import InputError


class FileKind(NamedTuple):
    """Kind of a file: its name in messages, its header key, and advice.

    Attributes:
        name: Of the content, in messages.
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
