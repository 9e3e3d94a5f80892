# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention weights in the form that tools written for torch expect: NumPy that answers to torch.

`Trace.attentions` hands these out, so that BertViz and notebooks written for Hugging Face take
them unchanged. Nothing inside flaxattn computes with this class, and torch is imported only when
one of torch's own functions is called on such an array.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8


class _Size(int):
    """Number of elements (NumPy's `a.size`) that can be called (torch's `a.size(0)`)."""

    shape: tuple[int, ...]

    def __new__(cls, shape: tuple[int, ...]) -> "_Size":
        self = super().__new__(cls, math.prod(shape))
        self.shape = shape
        return self

    def __call__(self, dim: int | None = None) -> int | tuple[int, ...]:
        return self.shape if dim is None else self.shape[dim]


class Attentions(np.ndarray):
    """A NumPy array that torch functions accept and that answers `.size(0)` as a tensor does."""

    @property
    def size(self) -> Any:
        """Number of elements; called with an axis, the length of that axis."""
        return _Size(self.shape)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        named = {name: _as_tensor(value) for name, value in (kwargs or {}).items()}
        return function(*_as_tensor(args), **named)


def as_attentions(
    weights: Float[Any, "L B H Q K"] | UInt8[Any, "L B H Q K"],
) -> tuple[Attentions, ...]:
    """One float32 array `[B, H, Q, K]` per layer, as Hugging Face models return `attentions`."""
    array = np.asarray(weights)
    if array.dtype == np.uint8:
        array = array.astype(np.float32) / np.float32(255)
    return tuple(np.asarray(layer, np.float32).view(Attentions) for layer in array)


def _as_tensor(value: Any) -> Any:
    """`value` with every `Attentions` in it, however deep, replaced by a torch tensor."""
    if isinstance(value, Attentions):
        import torch  # pyright: ignore[reportMissingImports]  # absent where only JAX is used

        return torch.from_numpy(np.array(value))
    if isinstance(value, list | tuple):
        return type(value)(_as_tensor(item) for item in value)
    return value
