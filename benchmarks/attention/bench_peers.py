# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Contenders of the benchmark: this library, plain JAX, and cuDNN as JAX calls it.

Every function computes the same from the same arrays. The torch side is in bench_torch.py, how
things are timed in bench_contenders.py.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flaxattn.benchmarks.cases import Case
from flaxattn.kernels import choice, devices, masks
from flaxattn.kernels.attention import attention
from flaxattn.kernels.call import Call
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import NOTHING, Capture

Function = Callable[..., list[Array]]
"""Of q, k and v by name and of the other arguments; gives the output, then what was asked."""


def ours(case: Case, capture: Capture, implementation: str) -> Function:
    """This library."""

    def run(arrays, others):
        options = case.options() | {"capture": capture, "implementation": implementation}
        output, seen = attention(**arrays, **others, **options)
        stats = [seen.stats[name] for name in capture.keys]
        return [output, *stats, *([] if seen.weights is None else [seen.weights])]

    return run


def naive(case: Case, capture: Capture) -> Function:
    """Attention as one writes it in JAX: einsum, softmax, einsum, and statistics of the weights."""

    def run(arrays, others):
        call = checked(Call(**arrays, **others, **case.options()))
        q, k, v = arrays["q"], arrays["k"], arrays["v"]
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
        allowed = masks.allowed_pairs(call.band, call.mask, *masks.sides(call))
        scores = scores * call.factor
        if allowed is not None:
            scores = jnp.where(allowed, scores, jnp.finfo(jnp.float32).min)
        weights = jax.nn.softmax(scores, axis=-1)
        output = jnp.einsum("bhqk,bkhd->bqhd", weights.astype(v.dtype), v)
        return [output, *_of_weights(call, capture, scores, weights)]

    return run


def _of_weights(call: Call, capture: Capture, scores: Array, weights: Array) -> list[Array]:
    """Statistics and weights, each in the plainest way."""
    labels, sides = call.labels, masks.sides(call)
    plain = {
        "lse": lambda: jax.nn.logsumexp(scores, axis=-1),
        "entropy": lambda: jax.scipy.special.entr(weights).sum(-1),
        "max": lambda: weights.max(-1),
        "argmax": lambda: weights.argmax(-1),
        "received": lambda: jnp.einsum(
            "bhqk,bq->bhk", weights, jnp.asarray(labels.query_mask).astype(jnp.float32)
        ),
    }
    found = [plain[name]() for name in capture.names if name in plain]
    for sieve in capture.sieves:
        inside = masks.sieve_block(sieve, *sides)
        found.append(jnp.where(inside, weights, 0).sum(-1))
    if capture.topk:
        found += jax.lax.top_k(weights, capture.topk)
    if capture.weights:
        scaled = jnp.round(255 * weights) if capture.dtype == "uint8" else weights
        found.append(scaled.astype(capture.dtype))
    return found


def cudnn(case: Case) -> Function:
    """CuDNN as JAX calls it, for cases without padding."""

    def run(arrays, others):
        del others
        q, k, v = arrays["q"], arrays["k"], arrays["v"]
        return [
            jax.nn.dot_product_attention(q, k, v, is_causal=case.causal, implementation="cudnn")
        ]

    return run


def with_gradient(run: Function) -> Callable[..., Any]:
    """The function with the gradients of q, k and v, for gradients of all its float results."""

    def both(arrays, others, bar):
        def split(arrays):
            results = run(arrays, others)
            floats = [x for x in results if jnp.issubdtype(x.dtype, jnp.floating)]
            return floats, [x for x in results if not jnp.issubdtype(x.dtype, jnp.floating)]

        floats, pull, rest = jax.vjp(split, arrays, has_aux=True)
        bars = [bar, *(jnp.ones_like(x) for x in floats[1:])]
        return [*floats, *rest, pull(bars)]

    return both


def in_jax(case: Case, capture: Capture, arguments: dict[str, Any]) -> dict[str, Function]:
    """Contenders in JAX that this device and the request allow, ours first."""
    device = devices.current()
    call = checked(Call(**arguments, capture=capture))
    found: dict[str, Function] = {}
    for name in choice.NAMES:
        refusal = choice.device_refusal(name, device) or choice.call_refusal(name, call)
        if name != "reference" and refusal is None:
            found[f"flaxattn {name}"] = ours(case, capture, name)
    if is_plain(case):
        found["XLA naive"] = naive(case, capture)
        plain = capture == NOTHING and not case.padding and call.q.dtype.itemsize == 2
        if plain and choice.device_refusal("cudnn", device) is None:
            found["jax cuDNN"] = cudnn(case)
    return found


def is_plain(case: Case) -> bool:
    """Return whether peers can compute a case: nothing but padding or causal."""
    of_masks = case.segments or case.bias or case.masked_rows or case.window or case.offset
    of_scores = case.dropout or case.garbage or case.groups or case.soft_cap or case.sinks
    return not (of_masks or of_scores or case.value_depth)
