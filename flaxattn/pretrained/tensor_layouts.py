# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One tensor of a checkpoint and the parameters that it holds: axes transposed, parts cut out."""

from collections.abc import Mapping

import numpy as np

from flaxattn.pretrained.name_tables import NameRow, Part


def ours(row: NameRow, array: np.ndarray) -> np.ndarray:
    """The parameter that a tensor holds, or one of several."""
    if row.how == "1":
        return array[0]
    array = array.T if row.transposed else array
    part = row.part
    if part is None:
        return array
    start, stop = part.bounds(array.shape[-1])
    grouped = array.reshape(*array.shape[:-1], part.groups, -1)
    return grouped[..., start:stop].reshape(*array.shape[:-1], -1)


def theirs(rows: Mapping[int, NameRow], arrays: Mapping[int, np.ndarray]) -> np.ndarray:
    """The tensor that holds one parameter, or several."""
    row, array = rows[0], arrays[0]
    if row.how == "1":
        return array[None]
    if row.part is not None:
        array = _joined(row.part, arrays)
    return np.ascontiguousarray(array.T) if row.transposed else array


def _joined(part: Part, arrays: Mapping[int, np.ndarray]) -> np.ndarray:
    before = arrays[0].shape[:-1]
    grouped = [arrays[n].reshape(*before, part.groups, -1) for n in sorted(arrays)]
    return np.concatenate(grouped, axis=-1).reshape(*before, -1)
