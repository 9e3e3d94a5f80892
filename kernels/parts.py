# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of a call: some of its heads, and the call without its window. Nothing is computed here."""

from dataclasses import replace

import jax.numpy as jnp
from jaxtyping import Array

from flaxattn.kernels.call import Call


def some_heads(call: Call, heads: tuple[int, ...]) -> Call:
    """The part of a call that belongs to some heads.

    Args:
        call: a checked call.
        heads: their numbers.

    Returns:
        A call with ``len(heads)`` heads and the same request.
    """
    index = jnp.asarray(heads)

    def of_heads(array: Array | None) -> Array | None:
        return array if array is None or array.shape[1] == 1 else array[:, index]

    q = call.q[:, :, index]
    k, v = (array[:, :, index // call.group] for array in (call.k, call.v))
    dropout = call.dropout
    if dropout is not None:  # the same weights are dropped as in the whole call
        dropout = dropout._replace(heads=index if dropout.heads is None else dropout.heads[index])
    bias = call.bias
    if callable(bias):
        pair_bias = bias

        def of_some(rows: Array, columns: Array) -> Array:
            found = pair_bias(rows, columns)
            return found if found.shape[0] == 1 else found[index]

        bias = of_some
    else:
        bias = of_heads(bias)
    sinks = None if call.sinks is None else call.sinks[index]
    mask = of_heads(call.mask)
    return call._replace(q=q, k=k, v=v, mask=mask, bias=bias, dropout=dropout, sinks=sinks)


def without_pairs(call: Call) -> Call:
    """Return the call without its pairs, whose weights are computed beside it from its lse.

    Args:
        call: a checked call.

    Returns:
        The call itself when it asks for no pairs.
    """
    stats = call.capture.stats
    if "pairs" not in stats:
        return call
    rest = tuple(item for item in stats if item != "pairs")
    rest += () if "lse" in rest else ("lse",)
    labels = call.labels._replace(pairs=None)
    return call._replace(capture=replace(call.capture, stats=rest), labels=labels)


def without_window(call: Call) -> Call:
    """Return the call without its window, whose weights and scores are computed beside it.

    Args:
        call: a checked call.

    Returns:
        The call itself when it asks for no window.
    """
    if not call.capture.windowed:
        return call
    rest = replace(call.capture, weights=False, scores=False, query_window=None, key_window=None)
    return call._replace(capture=rest)
