# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the arrays of one call and brings them into one form.

Every message says what was wrong, what was expected against what came, and how to put it right.
Types and rules are in contract.py; the checks of a request by itself are there too.
"""

import numbers
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from flaxattn.kernels.call import Call
from flaxattn.kernels.contract import Capture, Dropout, Labels, Sieve

_OF_PAIR = ("query_labels", "key_labels")  # what `Sieve.same_label` compares, in its order


def checked(call: Call) -> Call:
    """The call with four-dimensional masks, paired segments, and no dropout at rate 0.

    Args:
        call: The call as the user wrote it; NumPy arrays are accepted.

    Returns:
        A call that every implementation can work on without looking again. Checking a checked
        call changes nothing.

    Raises:
        TypeError: A dtype is wrong, such as a float mask.
        ValueError: A shape is wrong, or the request names heads or labels that are not there.
    """
    q, k, v = (jnp.asarray(array) for array in (call.q, call.k, call.v))
    _check_qkv(q, k, v)
    if call.soft_cap is not None:
        _check_soft_cap(call.soft_cap)
    batch, queries, heads, _ = q.shape
    shape = (batch, heads, queries, k.shape[1])
    labels = Labels() if call.labels is None else call.labels
    labels = Labels(*(None if label is None else jnp.asarray(label) for label in labels))
    _check_labels(labels, shape)
    _check_capture(call.capture, labels, heads)
    _check_windows(call.capture, queries, k.shape[1])
    return call._replace(
        q=q,
        k=k,
        v=v,
        mask=_mask(call.mask, shape),
        bias=_bias(call.bias, shape),
        segment_ids=_segment_ids(call.segment_ids, shape),
        dropout=_dropout(call.dropout),
        labels=labels,
        window=_window(call.window),
        sinks=_sinks(call.sinks, heads),
        query_offset=_query_offset(call.query_offset, batch),
    )


def _check_qkv(q: jax.Array, k: jax.Array, v: jax.Array) -> None:
    for name, array, letters in (("q", q, "Q"), ("k", k, "K"), ("v", v, "K")):
        if array.ndim != 4:
            raise ValueError(
                f"attention: {name} has shape {array.shape}, expected four dimensions "
                f"[B, {letters}, H, D]."
            )
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(f"attention: {name} has dtype {array.dtype}, expected a float dtype.")
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(
            f"attention: q, k and v have dtypes {q.dtype}, {k.dtype} and {v.dtype}, expected one.\n"
            "Fix: cast them before the call."
        )
    if 0 in q.shape + k.shape + v.shape:
        raise ValueError(
            f"attention: q {q.shape}, k {k.shape} or v {v.shape} is empty, expected lengths >= 1."
        )
    if q.shape[2] % k.shape[2]:
        raise ValueError(
            f"attention: q {q.shape} has {q.shape[2]} heads and k {k.shape} has {k.shape[2]}, "
            "expected a multiple of G query heads in [B, Q, H, D] and [B, K, G, D].\n"
            "Fix: swap the length and head dimensions if they are in another order."
        )
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]) or k.shape[:3] != v.shape[:3]:
        raise ValueError(
            f"attention: q {q.shape}, k {k.shape} and v {v.shape} do not fit, "
            "expected [B, Q, H, D], [B, K, G, D] and [B, K, G, Dv]."
        )


def _mask(mask: Any, shape: tuple[int, int, int, int]) -> jax.Array | None:
    if mask is None:
        return None
    mask = jnp.asarray(mask)
    if mask.dtype != jnp.bool_:
        raise TypeError(
            f"attention: mask has dtype {mask.dtype}, expected bool, True where attention is "
            "allowed.\nFix: write mask != 0 for a 0/1 mask; pass additive masks as bias=."
        )
    if mask.shape == (shape[0], shape[3]):
        return mask[:, None, None, :]
    if mask.ndim != 4 or not _broadcasts(mask.shape, shape):
        raise ValueError(
            f"attention: mask has shape {mask.shape}, expected [B, K] = {(shape[0], shape[3])} or "
            f"four dimensions that broadcast to [B, H, Q, K] = {shape}.\n"
            "Fix: a [Q, K] mask is mask[None, None], a [B, Q, K] mask is mask[:, None]."
        )
    return mask


def _bias(bias: Any, shape: tuple[int, int, int, int]) -> Any:
    if bias is None:
        return None
    if callable(bias):
        _check_pair_bias(bias, shape)
        return bias
    bias = jnp.asarray(bias)
    if not jnp.issubdtype(bias.dtype, jnp.floating):
        raise TypeError(
            f"attention: bias has dtype {bias.dtype}, expected a float dtype; it is added to the "
            "scores.\nFix: pass a bool mask as mask=."
        )
    if bias.ndim != 4 or not _broadcasts(bias.shape, shape):
        raise ValueError(
            f"attention: bias has shape {bias.shape}, expected four dimensions that broadcast to "
            f"[B, H, Q, K] = {shape}.\nFix: add dimensions of 1, such as bias[None] for [H, Q, K]."
        )
    return bias


def _check_pair_bias(bias: Any, shape: tuple[int, int, int, int]) -> None:
    """Check what a bias that is a function of positions returns."""
    _, heads, queries, keys = shape
    positions = (jax.ShapeDtypeStruct(size, jnp.int32) for size in ((queries, 1), (1, keys)))
    returned = jax.eval_shape(bias, *positions)
    size = getattr(returned, "shape", ())
    if len(size) != 3 or not _broadcasts(size, (heads, queries, keys)):
        raise ValueError(
            f"attention: the function bias returns shape {size}, expected three dimensions that "
            f"broadcast to [H, Q, K] = {(heads, queries, keys)}.\n"
            "Fix: add a dimension for heads; it gets positions [Q, 1] and [1, K]."
        )
    if not jnp.issubdtype(returned.dtype, jnp.floating):
        raise TypeError(
            f"attention: the function bias returns dtype {returned.dtype}, expected a float dtype."
        )


def _window(window: Any) -> tuple[int | None, int | None] | None:
    if window is None:
        return None
    sides = window if isinstance(window, tuple | list) else (window, window)
    known = [side is None or (isinstance(side, int | np.integer) and side >= 0) for side in sides]
    if len(sides) != 2 or not all(known):
        raise ValueError(
            f"attention: window is {window!r}, expected (left, right), the numbers of keys before "
            "and after the query that it may attend to, 0 or more, None for no limit.\n"
            "Fix: one number stands for both; a causal window is (left, 0)."
        )
    left, right = (None if side is None else int(side) for side in sides)
    return None if left is None and right is None else (left, right)


def _check_soft_cap(soft_cap: Any) -> None:
    if not isinstance(soft_cap, int | float) or not 0 < soft_cap < float("inf"):
        raise ValueError(
            f"attention: soft_cap is {soft_cap!r}, expected a Python number above 0.\n"
            "Fix: soft_cap=None does not limit the scores."
        )


def _sinks(sinks: Any, heads: int) -> jax.Array | None:
    if sinks is None:
        return None
    sinks = jnp.asarray(sinks)
    if sinks.shape != (heads,) or not jnp.issubdtype(sinks.dtype, jnp.floating):
        raise ValueError(
            f"attention: sinks have shape {sinks.shape} and dtype {sinks.dtype}, expected a float "
            f"logit for each query head, [H] = {(heads,)}."
        )
    return sinks


def _query_offset(offset: Any, batch: int) -> Any:
    if isinstance(offset, numbers.Integral):
        return int(offset)
    offset = jnp.asarray(offset)
    if offset.shape not in ((), (batch,)) or not jnp.issubdtype(offset.dtype, jnp.integer):
        raise ValueError(
            f"attention: query_offset has shape {offset.shape} and dtype {offset.dtype}, expected "
            f"one integer, or one for each example, [B] = {(batch,)}."
        )
    return offset


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return all(size in (1, full) for size, full in zip(shape, target, strict=True))


def _segment_ids(
    segment_ids: Any, shape: tuple[int, int, int, int]
) -> tuple[jax.Array, jax.Array] | None:
    if segment_ids is None:
        return None
    pair = segment_ids if isinstance(segment_ids, tuple) else (segment_ids, segment_ids)
    received = " and ".join(str(jnp.shape(ids)) for ids in pair)
    expected = ((shape[0], shape[2]), (shape[0], shape[3]))
    if tuple(jnp.shape(ids) for ids in pair) != expected:
        raise ValueError(
            f"attention: segment_ids have shapes {received}, expected [B, Q] = {expected[0]} and "
            f"[B, K] = {expected[1]}.\n"
            "Fix: pass one [B, S] array when Q = K, else a tuple (of_queries, of_keys)."
        )
    of_queries, of_keys = (jnp.asarray(ids) for ids in pair)
    for ids in (of_queries, of_keys):
        if not jnp.issubdtype(ids.dtype, jnp.integer):
            raise TypeError(f"attention: segment_ids have dtype {ids.dtype}, expected integers.")
    return of_queries, of_keys


def _dropout(dropout: Dropout | None) -> Dropout | None:
    if dropout is None:
        return None
    if isinstance(dropout.rate, numbers.Real):
        if not 0 <= dropout.rate < 1:
            raise ValueError(
                f"attention: dropout rate is {dropout.rate}, expected 0 <= rate < 1.\n"
                "Fix: the rate is the share of weights dropped, not kept."
            )
        if dropout.rate == 0:
            return None
    return dropout


def _check_labels(labels: Labels, shape: tuple[int, int, int, int]) -> None:
    batch, _, queries, keys = shape
    for name, label in zip(labels._fields, labels, strict=True):
        if label is None:
            continue
        middle = label.shape[1] if label.ndim == 3 else 1
        letters, expected = {
            "query_labels": ("[B, A, Q]", (batch, middle, queries)),
            "key_labels": ("[B, C, K]", (batch, middle, keys)),
            "pairs": ("[B, P, 2]", (batch, middle, 2)),
        }.get(
            name,
            ("[B, Q]", (batch, queries)) if name.startswith("query") else ("[B, K]", (batch, keys)),
        )
        if label.shape != expected:
            raise ValueError(
                f"attention: labels.{name} has shape {label.shape}, expected {letters} = "
                f"{expected}."
            )
        kind = jnp.bool_ if name == "query_mask" else jnp.integer
        if not jnp.issubdtype(label.dtype, kind):
            raise TypeError(
                f"attention: labels.{name} has dtype {label.dtype}, expected "
                f"{'bool' if kind is jnp.bool_ else 'integers'}."
            )


def _check_capture(capture: Capture, labels: Labels, heads: int) -> None:
    if not isinstance(capture, Capture):
        raise TypeError(
            f"attention: capture is {capture!r}, expected a Capture such as Capture(weights=True)."
        )
    if capture.heads is not None and max(capture.heads) >= heads:
        raise ValueError(
            f"attention: capture.heads names head {max(capture.heads)}, but there are {heads} "
            f"heads, numbered 0 to {heads - 1}."
        )
    needs = {f"sieve {sieve.name!r}": needed_labels(sieve) for sieve in capture.sieves}
    if "pairs" in capture.names:
        needs["statistic 'pairs'"] = ("pairs",)
    for what, names in needs.items():
        missing = [name for name in names if getattr(labels, name) is None]
        if missing:
            raise ValueError(
                f"attention: {what} needs labels.{' and labels.'.join(missing)}, "
                f"which {'is' if len(missing) == 1 else 'are'} not given.\n"
                f"Fix: labels=Labels({'=..., '.join(missing)}=...)."
            )
    for sieve in capture.sieves:
        for index, name in zip(sieve.same_label or (), _OF_PAIR, strict=False):
            count = getattr(labels, name).shape[1]
            if index >= count:
                raise ValueError(
                    f"attention: sieve {sieve.name!r} names label {index} of labels.{name}, which "
                    f"holds {count}, numbered from 0."
                )


def _check_windows(capture: Capture, queries: int, keys: int) -> None:
    for what, length in (("query", queries), ("key", keys)):
        window = getattr(capture, f"{what}_window")
        if window is not None and window[1] > length:
            raise ValueError(
                f"attention: capture.{what}_window is {window}, but positions end at {length}.\n"
                f"Fix: {what}_window=(start, stop) with stop <= {length}."
            )


def needed_labels(sieve: Sieve) -> tuple[str, ...]:
    """Fields of `Labels` that a sieve reads.

    Args:
        sieve: The set of keys.

    Returns:
        Field names, empty for a sieve made of offsets only.
    """
    names: tuple[str, ...] = ()
    if sieve.key_class is not None:
        names += ("key_class",)
    if sieve.same_segment is not None:
        names += ("query_segment", "key_segment")
    if sieve.same_token is not None:
        names += ("query_token", "key_token")
    if sieve.same_label is not None:
        names += _OF_PAIR
    return names
