# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sites where a model can be changed: their axes, and how arrays and numbers fit them.

This file does not know what a change does; that is in `interventions`.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from flaxattn.errors import InputError

HEAD_VECTOR, STREAM, MAP = ("B", "S", "H", "D"), ("B", "S", "E"), ("B", "H", "Q", "K")
AXES: Mapping[str, tuple[str, ...]] = {
    "layer_input": STREAM,
    "query": HEAD_VECTOR,
    "key": HEAD_VECTOR,
    "value": HEAD_VECTOR,
    "scores": MAP,
    "weights": MAP,
    "head_output": HEAD_VECTOR,
    "attention_output": STREAM,
    "feed_forward_output": STREAM,
    "layer_output": STREAM,
}
"""Axes of each site in one layer."""
SITES = tuple(AXES)
"""Places where a model can be changed, in the order in which a layer computes them."""


class Heads(NamedTuple):
    """Heads of a layer from which some were pruned.

    Attributes:
        present: Numbers of those that there are.
        total: H, with those that were pruned.
    """

    present: tuple[int, ...]
    total: int


def axes_of(site: str, name: str) -> tuple[str, ...]:
    """Axes of `value` or `where` in one layer; the last one of vectors is left out of `where`."""
    axes = AXES[site]
    return axes if name == "value" or axes == MAP else axes[:-1]


def fitted(
    name: str, site: str, array: Any, shape: tuple[int, ...], heads: Heads | None = None
) -> Array:
    """The value or mask of an intervention with as many axes as the site, of the heads present."""
    axes, received = axes_of(site, name), jnp.shape(array)
    named = zip(AXES[site], shape, strict=True)
    sizes = [heads.total if heads and axis == "H" else n for axis, n in named][: len(axes)]
    padded = (1,) * (len(axes) - len(received)) + received
    if len(padded) != len(axes) or any(n not in (1, m) for n, m in zip(padded, sizes, strict=True)):
        raise InputError(
            f"The {name} at {site} has shape {list(received)} in one layer, expected one that "
            f"broadcasts to [{', '.join(axes)}] = {sizes}.\n"
            "Every axis is that long or 1; a further one at the front is that of the layers."
        )
    array = jnp.asarray(array).reshape(padded)
    if heads is not None and "H" in axes and padded[axes.index("H")] > 1:
        array = jnp.take(array, np.asarray(heads.present), axis=axes.index("H"))
    return array if len(axes) == len(AXES[site]) else array[..., None]


def numbered(
    name: str,
    site: str,
    numbers: tuple[int, ...],
    shape: tuple[int, ...],
    heads: Heads | None = None,
) -> Bool[Array, "..."]:
    """True at some heads or positions, with as many axes as the site."""
    letter = "H" if name == "heads" else "Q" if AXES[site] == MAP else "S"
    axis = AXES[site].index(letter)
    held = np.arange(shape[axis]) if heads is None else np.asarray(heads.present)
    total = shape[axis] if heads is None else heads.total
    if max(numbers) >= total:
        raise InputError(
            f"An intervention at {site} names {name} {max(numbers)}; there are {name} 0 to "
            f"{total - 1}.\n{name.capitalize()} are counted from 0."
        )
    sizes = [-1 if n == axis else 1 for n in range(len(shape))]
    return jnp.asarray(np.isin(held, numbers)).reshape(sizes)


def with_pruned(x: Array, site: str, heads: Heads) -> Array:
    """The array of all heads, 0 for those that were pruned."""
    if "H" not in AXES[site]:
        return x
    axis = AXES[site].index("H")
    shape = (*x.shape[:axis], heads.total, *x.shape[axis + 1 :])
    places = (slice(None),) * axis + (np.asarray(heads.present),)
    return jnp.zeros(shape, x.dtype).at[places].set(x)


def whole_numbers(name: str, numbers: Any) -> tuple[int, ...] | None:
    """Numbers of layers, heads or positions in the given order, each once; None for all."""
    if numbers is None:
        return None
    listed = list(numbers) if isinstance(numbers, Iterable) else [numbers]
    whole = all(isinstance(n, int | np.integer) and n >= 0 for n in listed)
    if not whole or not listed or any(isinstance(n, bool) for n in listed):
        raise InputError(
            f"{name} are {numbers!r}, expected numbers from 0 on.\nLeave them out for all of them."
        )
    return tuple(dict.fromkeys(int(n) for n in listed))
