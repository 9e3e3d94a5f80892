# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays of any library as NumPy; torch is never imported.

What the numbers mean, and whether they are attention, is not known here.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped


def as_numpy(array: Any) -> Shaped[np.ndarray, "..."]:
    """An array on the host, of the same dtype; bfloat16 of torch, which NumPy lacks, as float32."""
    if not hasattr(array, "detach"):
        return np.asarray(array)
    tensor = array.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    return np.asarray(tensor.numpy())


def stacked(arrays: Any) -> Any:
    """One array of all layers: of one array, or of a sequence with one per layer."""
    if isinstance(arrays, Sequence):
        return np.stack([as_numpy(layer) for layer in arrays])
    return as_numpy(arrays) if hasattr(arrays, "detach") else arrays
