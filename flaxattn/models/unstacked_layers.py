# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters of stacked layers as a tree for each layer."""

from collections.abc import Mapping
from typing import Any

import jax


@jax.jit
def unstacked(params: Any) -> Any:
    """Parameters with unstacked layers: a tuple in place of a leading axis.

    For a program that runs a stack many times, as generation and extraction do: a layer taken out
    of a stacked array is copied each time, and all layers of a scan are alike, so nothing is left
    out of the last. Costs a copy of the layers' parameters, unless they are unstacked already.
    """
    if not isinstance(params, Mapping):
        return params
    return {
        name: unstack(tree) if name == "layers" else unstacked(tree)
        for name, tree in params.items()
    }


def unstack(layers: Any) -> tuple[Any, ...]:
    """Return a tree of parameters per layer, from stacked or unstacked ones."""
    if isinstance(layers, tuple):
        return layers
    count = jax.tree.leaves(layers)[0].shape[0]
    return tuple(jax.tree.map(lambda p, i=i: p[i], layers) for i in range(count))


class UnstackedLayers:
    """The `unstacked` parameters of the last model requested, kept for the next call.

    Memory: the layers' parameters a second time, as long as this lives.
    """

    def __init__(self) -> None:
        self._params: Any = None
        self._made_of = jax.tree.flatten(None)

    def of(self, params: Any) -> Any:
        """Return the `unstacked` parameters; made anew when an array of `params` is another one.

        NumPy arrays can change in place, so parameters with any are unstacked at every call.
        """
        leaves, structure = jax.tree.flatten(params)
        old, before = self._made_of
        fixed = structure == before and all(isinstance(leaf, jax.Array) for leaf in leaves)
        if not fixed or any(a is not b for a, b in zip(old, leaves, strict=True)):
            self._params = unstacked(params)
            self._made_of = leaves, structure
        return self._params
