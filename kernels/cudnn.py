# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention by cuDNN, for GPUs that have no kernel of ours: what can be had from it exactly.

cuDNN returns an output and the log-sum-exp, so every statistic that is a sum over keys of weight
times a property of the key comes as one more column of the values: the mass of a key class is the
output for its indicator. Entropy is such a sum too, H = lse - scale q·(sum_j p_j k_j), with the
keys as values. These statistics carry the rounding of q's dtype, as the output does. Whatever is
not linear, or needs a matrix of Q x K, is refused; xla.py does that.
"""

import functools
import numbers

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flaxattn.kernels import compat
from flaxattn.kernels.call import Call
from flaxattn.kernels.contract import Intermediates
from flaxattn.kernels.masks import sanitized

MAX_DEPTH = 128
"""Largest depth of heads on GPUs before Hopper; deeper values are computed in several calls."""


def refusal(call: Call) -> str | None:
    """Why cuDNN cannot run a call, None when it can.

    Args:
        call: A checked call, or one that holds shapes and dtypes only.

    Returns:
        The reason.
    """
    _, queries, _, depth = call.q.shape
    reasons = (reason for refused, reason in _limits(call, queries, depth) if refused)
    return next((f"cuDNN {reason}" for reason in reasons), None)


def _limits(call: Call, queries: int, depth: int) -> tuple[tuple[bool, str], ...]:
    """Reasons to refuse a call, with their conditions."""
    capture, dtype = call.capture, call.q.dtype.name
    nonlinear = [name for name in capture.names if name not in ("lse", "entropy")]
    nonlinear += [
        f"sieve {sieve.name!r}"
        for sieve in capture.sieves
        if sieve.conditions[1:] != (None,) * 4 or sieve.statistic != "mass"
    ]
    of_pairs = call.mask is not None and call.mask.shape[1:3] != (1, 1)
    both = call.causal and (call.mask is not None or queries != call.k.shape[1])
    moved = call.static_offset != 0
    return (
        (dtype not in ("bfloat16", "float16"), f"takes bfloat16 and float16, not {dtype}"),
        (call.window is not None, "has no window here"),
        (call.soft_cap is not None, "has no soft cap"),
        (call.sinks is not None, "has no sinks"),
        (moved, "takes queries from position 0 only"),
        (depth > MAX_DEPTH, f"takes heads of depth {MAX_DEPTH} at most, not {depth}"),
        (capture.weights or capture.scores, "returns neither weights nor scores"),
        (bool(nonlinear), f"returns linear statistics only, not {', '.join(nonlinear)}"),
        (call.bias is not None, "has no exact gradient of a bias"),
        (call.segment_ids is not None, "needs a matrix of Q x K for segment ids"),
        (of_pairs, "takes a mask of keys only"),
        (both, "takes causal only without a mask and with Q = K"),
        (call.dropout is not None, "cannot repeat the dropout of the other implementations"),
        (not isinstance(call.factor, numbers.Real), "takes a scale known when traced only"),
    )


def attend(call: Call) -> tuple[Float[Array, "B Q H D"], Intermediates]:
    """Attention and linear statistics.

    Args:
        call: A checked call that `refusal` lets pass.

    Returns:
        The output in q's dtype and the intermediates.

    Raises:
        NotImplementedError: jax finds no cuDNN.
    """
    capture, depth = call.capture, call.v.shape[-1]
    k, v, poison = call.k, call.v, None
    if call.causal:  # garbage in later keys must not reach earlier queries
        k, v, poison = sanitized(k, v)
    values = _values(call, k, v)
    lengths = None
    if call.mask is not None:
        k, values, lengths = _front(call.mask, k, values)
    want_lse = not {"lse", "entropy"}.isdisjoint(capture.names)
    limits = None if lengths is None else jnp.maximum(lengths, 1)
    averages, lse = _averages(call, k, values, limits, want_lse)
    if poison is not None:  # rows that may see garbage show it
        rows = jnp.repeat(jnp.cumsum(poison[:, :, 0], axis=-1), call.group, axis=1)
        averages = averages + jnp.swapaxes(rows, 1, 2)[..., None].astype(averages.dtype)
        lse = None if lse is None else lse + rows
    stats = _statistics(call, averages[..., depth:].astype(jnp.float32), lse)
    if lengths is not None:
        nobody = (lengths == 0)[:, None, None]
        empty = {name: -jnp.inf if name == "lse" else 0.0 for name in stats}
        stats = {name: jnp.where(nobody, empty[name], stat) for name, stat in stats.items()}
    if capture.heads is not None:
        stats = {name: stat[:, jnp.asarray(capture.heads)] for name, stat in stats.items()}
    return averages[..., :depth], Intermediates(stats=stats, implementation="cudnn")


def _values(call: Call, k: Array, v: Array) -> Float[Array, "B K H W"]:
    """The values, and beside them the columns whose averages are statistics."""
    batch, keys, heads, _ = v.shape
    columns = [v]
    for sieve in call.capture.sieves:
        classes = jnp.asarray(call.labels.key_class).astype(jnp.uint32)
        inside = ((classes >> (sieve.key_class or 0)) & 1).astype(v.dtype)
        columns.append(jnp.broadcast_to(inside[:, :, None, None], (batch, keys, heads, 1)))
    if "entropy" in call.capture.names:
        columns.append(k)
    return jnp.concatenate(columns, axis=-1)


def _front(
    mask: Bool[Array, "#B 1 1 #K"], k: Float[Array, "B K H D"], values: Float[Array, "B K H W"]
) -> tuple[Array, Array, Int[Array, "B"]]:
    """Brings the real keys to the front, where a length is enough to tell them from padding.

    The order of keys does not matter to attention, and no mask of Q x K is needed this way.
    """
    real = jnp.broadcast_to(mask[:, 0, 0], k.shape[:2])
    order = jnp.argsort(~real, axis=1, stable=True)[..., None, None]
    k, values = (
        jnp.take_along_axis(jnp.where(real[..., None, None], array, 0), order, axis=1)
        for array in (k, values)
    )
    return k, values, real.sum(axis=1, dtype=jnp.int32)


def _averages(
    call: Call, k: Array, values: Array, lengths: Array | None, want_lse: bool
) -> tuple[Float[Array, "B Q H W"], Float[Array, "B H Q"] | None]:
    """Weighted averages of all columns, and the log-sum-exp; as few calls as the depth allows."""
    scale, width = float(call.factor), values.shape[-1]
    calls = -(-width // MAX_DEPTH)
    depth = max(k.shape[-1], -(-width // calls))
    depth += -depth % 8  # cuDNN's step
    q, wide_k, values = (
        _widen(x, n) for x, n in ((call.q, depth), (k, depth), (values, depth * calls))
    )
    parts, lse = [], None
    for number, part in enumerate(jnp.split(values, calls, axis=-1)):
        requested = want_lse and number == 0
        output, found = _run_even(q, wide_k, part, lengths, scale, call.causal, requested)
        parts.append(output)
        if requested:
            lse = _with_gradient(found, call.q, k, lengths, scale, call.causal)
    return jnp.concatenate(parts, axis=-1)[..., :width], lse


def _widen(array: Array, depth: int) -> Array:
    """Zeros after the last column: they change no score and no other column."""
    return jnp.pad(array, [(0, 0)] * 3 + [(0, depth - array.shape[-1])])


def _run_even(
    q: Array, k: Array, v: Array, lengths: Array | None, scale: float, causal: bool, lse: bool
) -> tuple[Float[Array, "B Q H W"], Float[Array, "B H Q"] | None]:
    """`_run` on an even number of queries and keys: JAX refuses gradients of odd lengths."""
    (batch, queries), keys = q.shape[:2], k.shape[1]
    if keys % 2 and lengths is None and not causal:
        lengths = jnp.full((batch,), keys, jnp.int32)
    q, k, v = (jnp.pad(x, [(0, 0), (0, x.shape[1] % 2), (0, 0), (0, 0)]) for x in (q, k, v))
    output, found = _run(q, k, v, lengths, scale, causal, lse)
    return output[:, :queries], None if found is None else found[:, :, :queries]


def _run(
    q: Array, k: Array, v: Array, lengths: Array | None, scale: float, causal: bool, lse: bool
) -> tuple[Float[Array, "B Q H W"], Float[Array, "B H Q"] | None]:
    """One call of cuDNN: the only place that needs it."""
    try:
        if lse:
            return compat.cudnn_with_lse(q, k, v, lengths, scale, causal)
        output = jax.nn.dot_product_attention(
            q,
            k,
            v,
            scale=scale,
            is_causal=causal,
            key_value_seq_lengths=lengths,
            implementation="cudnn",
        )
    except RuntimeError as error:
        raise NotImplementedError(
            f"attention: implementation 'cudnn' cannot run here: {error}\n"
            "Fix: install jax[cuda], or let implementation=None choose."
        ) from error
    return output, None


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _with_gradient(
    lse: Array, q: Array, k: Array, lengths: Array | None, scale: float, causal: bool
) -> Array:
    """Gives the log-sum-exp the gradient that cuDNN's backward pass leaves out."""
    del q, k, lengths, scale, causal
    return lse


def _lse_forward(lse, q, k, lengths, scale, causal):
    del scale, causal
    return lse, (q, k, lengths)


def _lse_backward(scale, causal, residuals, cotangent):
    """The gradient of lse in a score is the weight: so it is an average of keys, or of queries."""
    q, k, lengths = residuals
    cotangent = scale * jnp.swapaxes(cotangent, 1, 2)[..., None]
    wide_q, wide_k = (_widen(array, array.shape[-1] + -array.shape[-1] % 8) for array in (q, k))

    def averages(values):
        return _run_even(wide_q, wide_k, values, lengths, scale, causal, False)[0]

    mean, pull = jax.vjp(averages, wide_k)
    (dk,) = pull((cotangent * wide_q.astype(jnp.float32)).astype(k.dtype))
    dq = (cotangent * mean.astype(jnp.float32)).astype(q.dtype)
    depth = q.shape[-1]
    return jnp.zeros_like(cotangent[..., 0].swapaxes(1, 2)), dq[..., :depth], dk[..., :depth], None


_with_gradient.defvjp(_lse_forward, _lse_backward)


def _statistics(
    call: Call, averages: Float[Array, "B Q H R"], lse: Float[Array, "B H Q"] | None
) -> dict[str, Float[Array, "B H Q"]]:
    """Statistics from the averages of `_values`' columns, in the order asked."""
    masses = [sieve.name for sieve in call.capture.sieves]
    stats = {name: jnp.swapaxes(averages[..., n], 1, 2) for n, name in enumerate(masses)}
    if lse is not None:
        stats["lse"] = lse
    if lse is not None and "entropy" in call.capture.names:
        q, mean_key = call.q.astype(jnp.float32), averages[..., len(masses) :]
        mean_score = call.factor * jnp.einsum("bqhd,bqhd->bhq", q, mean_key)
        stats["entropy"] = lse - mean_score
    return {name: stats[name] for name in call.capture.keys}
