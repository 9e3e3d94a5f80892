# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays on disk that are longer than memory: written from the front, read through a map.

Plain .npy files without objects; a half-written one is never given its final name, see
`flaxattn.files`.
"""

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np


class Column:
    """A one-dimensional .npy file that grows at its end; a context manager."""

    def __init__(self, path: Path, dtype: Any) -> None:
        self._dtype = np.dtype(dtype)
        self._file = path.open("wb")
        self._count = 0
        self._write_header()

    def __enter__(self) -> "Column":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                self._write_header()

    def __len__(self) -> int:
        return self._count

    def extend(self, values: Any) -> None:
        """Append numbers, cast to the dtype of the column."""
        array = np.ascontiguousarray(values, self._dtype)
        self._file.write(array.data if array.dtype.names is None else array.tobytes())
        self._count += len(array)

    def _write_header(self) -> None:
        """NumPy leaves room for the length, so the header keeps its size when that changes."""
        descr = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self._count,)}
        np.lib.format.write_array_header_1_0(self._file, header)


def mapped(path: Path) -> np.ndarray:
    """The content of a .npy file, read from the disk where it is looked at; cannot be written."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return array.view(np.ndarray)
