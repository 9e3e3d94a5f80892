# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Shared part of all fused kernels: one differentiable call around a device's set of kernels.

The gradient of a statistic costs no second pass: it joins the gradient that reaches the weights,
and its part of every row's sum is known from the statistic itself. Devices are in tpu.py and
mosaic_gpu.py, the arithmetic of a tile in tiles.py.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

from flaxattn.kernels import compat
from flaxattn.kernels.call import Call, some_heads
from flaxattn.kernels.contract import Intermediates
from flaxattn.kernels.plan import HALF, LOG2E, KernelPlan, Operands, pack, stack


class Forward(NamedTuple):
    """Results of a forward kernel.

    Attributes:
        output: Output, in q's dtype.
        rows: ``KernelPlan.results``, packed; lse in nats.
        weights: Weights in the requested dtype; None if not requested.
        scores: Scores in nats; None if not requested.
    """

    output: Float[Array, "B Q H Dv"]
    rows: Float[Array, "B H R Qp"]
    weights: Array | None = None
    scores: Float[Array, "B H Q K"] | None = None


class Cotangents(NamedTuple):
    """Gradients that arrive at a call, beside those of statistics, which are packed.

    Attributes:
        output: Cotangent of the output, times ``keep_scale``, in q's dtype.
        weights: Cotangent of captured weights, float32.
        scores: Cotangent of captured scores, float32.
    """

    output: Float[Array, "B Q H Dv"]
    weights: Float[Array, "B H Q K"] | None = None
    scores: Float[Array, "B H Q K"] | None = None


@dataclass(frozen=True)
class Kernels:
    """The kernels of one device. Compared by identity: make one and keep it.

    Attributes:
        name: Name of the implementation.
        forward: (plan, operands) -> `Forward`.
        received: (plan, operands) -> column sums of the counted weights, ``[B, H, Kp]``; packed
            rows are those of the final sums and "counted".
        row_dots: (plan, operands, cotangents) -> sum over keys of weight times what reaches it
            from captured weights and ``received``, ``[B, H, Qp]``.
        grad_queries: (plan, operands, cotangents) -> dq.
        grad_keys: (plan, operands, cotangents, of_bias) -> (dk, dv, and the sum of the score
            gradients of each key ``[B, H, Kp]``, None unless ``of_bias``).
        grad_bias: (plan, operands, cotangents) -> float32 in the shape of ``operands.bias``.
    """

    name: str
    forward: Callable[..., Forward]
    received: Callable[..., Array]
    row_dots: Callable[..., Array]
    grad_queries: Callable[..., Array]
    grad_keys: Callable[..., tuple[Array, Array, Array | None]]
    grad_bias: Callable[..., Array]


class AttentionResult(NamedTuple):
    """Results of the differentiable call."""

    output: Array
    rows: dict[str, Array]
    weights: Array | None
    scores: Array | None
    received: Array | None


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Wanted:
    """Gradients that are needed beside those of q, k and v."""

    bias: bool
    key_bias: bool


def refusal(call: Call) -> str | None:
    """Why no fused kernel can run a call, whatever the device.

    Args:
        call: A checked call.

    Returns:
        The reason, None when they may.
    """
    if callable(call.bias):
        return "its bias must be an array, not a function of positions"
    return None


def attend(
    call: Call, kernels: Kernels, block_q: int, block_k: int
) -> tuple[Float[Array, "B Q H D"], Intermediates]:
    """Runs a call on a device's kernels, forward and backward.

    Args:
        call: A checked call that the kernels can run.
        kernels: Kernels of the device.
        block_q: Query rows of a tile.
        block_k: Keys of a tile.

    Returns:
        The output in q's dtype and the intermediates.
    """
    heads = call.capture.heads
    if heads is not None:
        return _attend_some(call, kernels, block_q, block_k, heads)
    plan, operands = pack(call, block_q, block_k)
    counted = None
    if "received" in call.capture.names:
        counted = jnp.ones((1, plan.queries), jnp.float32)
        if call.labels.query_mask is not None:
            counted = call.labels.query_mask.astype(jnp.float32)
        counted = jnp.broadcast_to(counted, (plan.batch, plan.queries))
    operands, counted = compat.vary_alike((operands, counted))
    result = _run(kernels, plan, operands, counted)
    return result.output, Intermediates(
        weights=result.weights,
        scores=result.scores,
        stats=_statistics(call, plan, result),
        implementation=kernels.name,
    )


def _statistics(call: Call, plan: KernelPlan, result: AttentionResult) -> dict[str, Array]:
    """Statistics under the names that were asked, in their order."""
    rows, stats = dict(result.rows), {}
    for number, sieve in enumerate(plan.sieves):
        found = rows.pop(f"sieve {number}")
        stats[sieve.name] = found.astype(jnp.int32) if sieve.statistic == "argmax" else found
    if "argmax" in rows:
        stats["argmax"] = rows.pop("argmax").astype(jnp.int32)
    if plan.topk:
        ranks = range(plan.topk)
        weights, indices = (
            jnp.stack([rows.pop(f"topk {part} {rank}") for rank in ranks], axis=-1)
            for part in ("weight", "index")
        )
        stats |= {"topk_weights": weights, "topk_indices": indices.astype(jnp.int32)}
    stats |= rows
    stats |= _of_sinks(call, rows)
    if result.received is not None:
        stats["received"] = result.received
    return {name: stats[name] for name in call.capture.keys}


def _of_sinks(call: Call, rows: dict[str, Array]) -> dict[str, Array]:
    """Statistics that tell the sink from keys; for the kernels it is one more key of value 0."""
    if call.sinks is None:
        return {"sink": jnp.zeros_like(rows["lse"])}
    logs = _sink_logs(call.sinks.astype(jnp.float32), rows["lse"])
    stats = {"sink": jnp.exp(logs)}
    if "entropy" in rows:
        stats["entropy"] = rows["entropy"] + stats["sink"] * jnp.where(stats["sink"] > 0, logs, 0)
    if "max_score" in rows:
        # Without a key or sink both are -inf, and there is no weight.
        lse = jnp.where(rows["lse"] == -jnp.inf, 0.0, rows["lse"])
        stats["max"] = jnp.exp(rows["max_score"] - lse)
    return stats


def _sink_logs(sinks: Float[Array, " H"], lse: Float[Array, "B H Q"]) -> Float[Array, "B H Q"]:
    """Logarithms of the weights of sinks; -inf in rows where a sink of -inf is all there is."""
    return jnp.where(lse == -jnp.inf, -jnp.inf, sinks[None, :, None] - lse)


def _attend_some(
    call: Call, kernels: Kernels, block_q: int, block_k: int, heads: tuple[int, ...]
) -> tuple[Array, Intermediates]:
    """Captures some heads: those run with the request, the others without, in two calls."""
    others = tuple(head for head in range(call.q.shape[2]) if head not in heads)
    everything = replace(call.capture, heads=None)
    run = functools.partial(attend, kernels=kernels, block_q=block_q, block_k=block_k)
    output, record = run(some_heads(call, heads)._replace(capture=everything))
    if others:
        nothing = type(everything)()
        rest, _ = run(some_heads(call, others)._replace(capture=nothing))
        output = jnp.concatenate([output, rest], axis=2)
    order = [(*heads, *others).index(head) for head in range(call.q.shape[2])]
    return output[:, :, jnp.asarray(order)], record


def _run_kernels(
    kernels: Kernels, plan: KernelPlan, operands: Operands, counted: Array | None
) -> AttentionResult:
    """The forward kernel and, when ``counted`` is given, the column pass."""
    requested = plan.results
    plan, operands = _with_sinks(plan, operands)
    if counted is not None and "shift" not in requested:
        plan = _with_sums(plan)
    forward = kernels.forward(plan, operands)
    rows = {
        name: forward.rows[:, :, number, : plan.queries] for number, name in enumerate(plan.results)
    }
    received = None
    if counted is not None:
        vectors = _sums(rows) | {"counted": counted[:, None]}
        received = kernels.received(*_with_rows(plan, operands, vectors))[:, :, : plan.keys]
    rows = {name: rows[name] for name in requested}
    return AttentionResult(forward.output, rows, forward.weights, forward.scores, received)


def _with_sinks(plan: KernelPlan, operands: Operands) -> tuple[KernelPlan, Operands]:
    """Packs the logits of sinks for the forward kernel; the passes after it have them in lse."""
    if operands.sinks is None:
        return plan, operands
    shape = (1, plan.heads, 1, plan.padded_queries)
    row = jnp.broadcast_to(operands.sinks[None, :, None, None], shape)
    return replace(plan, row_floats=("sink",)), operands._replace(row_floats=row, sinks=None)


def _with_sums(plan: KernelPlan) -> KernelPlan:
    """The plan whose results rebuild weights later; bfloat16 and float16 need no more than lse."""
    more = () if plan.dtype in HALF else ("shift", "log total")
    return _with_results(plan, *more)


def _with_results(plan: KernelPlan, *names: str) -> KernelPlan:
    """More results, behind "lse": those of ``topk`` stay last."""
    return replace(plan, results=(plan.results[0], *names, *plan.results[1:]))


def _sums(rows: dict[str, Array]) -> dict[str, Array]:
    """The packed rows that `rebuilt_weights` reads; rows without keys get weight 0."""
    if "shift" in rows:
        return {"shift": rows["shift"], "log total": rows["log total"]}
    lse = rows["lse"]
    return {"lse2": jnp.where(lse == -jnp.inf, jnp.inf, lse * LOG2E)}


def _with_rows(
    plan: KernelPlan, operands: Operands, vectors: dict[str, Array]
) -> tuple[KernelPlan, Operands]:
    """Adds packed float rows; those of the padding get a sum of +inf, so weight 0."""
    tail = [(0, 0), (0, 0), (0, plan.padded_queries - plan.queries)]
    of_sum = "lse2" if "lse2" in vectors else "log total"
    padded = {of_sum: jnp.pad(vectors[of_sum], tail, constant_values=jnp.inf)}
    packed = stack(vectors | padded, plan.padded_queries)
    plan = replace(plan, row_floats=tuple(vectors))
    return plan, operands._replace(row_floats=packed)


def _run_forward(kernels: Kernels, plan: KernelPlan, operands: Any, counted: Any):
    """Forward rule; the gradient of ``max`` needs to know where it was."""
    wanted = _Wanted(
        bias=operands.bias is not None and operands.bias.perturbed,
        key_bias=operands.key_floats is not None and operands.key_floats.perturbed,
    )
    operands, counted = jax.tree.map(
        lambda leaf: leaf.value,
        (operands, counted),
        is_leaf=lambda leaf: isinstance(leaf, CustomVJPPrimal),
    )
    full = _with_sums(plan)
    if not {"max", "max_score"}.isdisjoint(plan.results) and "argmax" not in plan.results:
        full = _with_results(full, "argmax")
    result = _run_kernels(kernels, full, operands, counted)
    requested = {name: result.rows[name] for name in plan.results}
    residuals = (operands, counted, result.output, result.rows, wanted)
    return result._replace(rows=requested), residuals


def _run_backward(
    kernels: Kernels, plan: KernelPlan, residuals: Any, result_cotangents: AttentionResult
):
    """Backward rule; what the sums mean is in `tiles.score_gradient`."""
    primals, counted, output, rows, wanted = residuals
    result_cotangents = jax.tree.map(
        _array, result_cotangents, is_leaf=lambda leaf: isinstance(leaf, SymbolicZero)
    )
    indices = {f"sieve {n}" for n, sieve in enumerate(plan.sieves) if sieve.statistic == "argmax"}
    given = {
        name: cotangent
        for name, cotangent in result_cotangents.rows.items()
        if cotangent is not None
        and name not in {"argmax", *indices}
        and not name.startswith("topk index")
        and not name.endswith(" mass")
    }
    cotangents = _cotangents(primals, result_cotangents)
    d_sinks = None
    plan, operands = _with_received(plan, primals._replace(sinks=None), result_cotangents.received)
    vectors = _sums(rows)
    delta = _delta(given, rows)
    if result_cotangents.output is not None:
        products = result_cotangents.output.astype(jnp.float32) * output.astype(jnp.float32)
        # Kept apart from what stacks it with other rows: on a GPU, XLA would fuse the sum into the
        # copy, and that is eight times slower.
        delta = delta + jax.lax.optimization_barrier(jnp.einsum("bqhd->bhq", products))
    if counted is not None and result_cotangents.received is not None:
        vectors["counted"] = counted[:, None]
    if result_cotangents.received is not None or cotangents.weights is not None:
        dots = kernels.row_dots(*_with_rows(plan, operands, vectors), cotangents)
        delta = delta + dots[:, :, : plan.queries]
    if primals.sinks is not None:
        d_sinks = _sinks_gradient(primals.sinks, given, rows, delta)
    vectors |= {"delta": delta} | _statistic_rows(given, rows)
    plan, operands = _with_rows(plan, operands, vectors)
    dq = kernels.grad_queries(plan, operands, cotangents)
    dk, dv, of_keys = kernels.grad_keys(plan, operands, cotangents, wanted.key_bias)
    d_bias = kernels.grad_bias(plan, operands, cotangents) if wanted.bias else None
    grads = Operands(dq, dk, dv, key_floats=of_keys, bias=d_bias, sinks=d_sinks)
    return _as_primals(primals, grads, plan.nat), None


def _sinks_gradient(
    sinks: Float[Array, " H"], given: dict[str, Array], rows: dict[str, Array], delta: Array
) -> Float[Array, " H"]:
    """The gradient of the logits of sinks: that of the score of one more key of every row."""
    logs = _sink_logs(sinks, rows["lse"])
    weights = jnp.exp(logs)
    cotangent = -delta
    if "entropy" in given:
        cotangent = cotangent - given["entropy"] * jnp.where(weights > 0, logs, 0)
    return (weights * cotangent).sum(axis=(0, 2))


def _array(cotangent: Any) -> Array | None:
    """None for a gradient that is known to be zero, and for those of integers."""
    if (
        isinstance(cotangent, SymbolicZero)
        or cotangent is None
        or cotangent.dtype == jax.dtypes.float0
    ):
        return None
    return cotangent


def _cotangents(operands: Operands, result_cotangents: AttentionResult) -> Cotangents:
    """Gradients of output and maps, as the kernels take them."""
    cotangent = result_cotangents.output
    if cotangent is None:
        cotangent = jnp.zeros_like(operands.q)
    elif operands.keep_scale is not None:
        cotangent = (cotangent.astype(jnp.float32) * operands.keep_scale[0]).astype(cotangent.dtype)
    return Cotangents(
        cotangent,
        None
        if result_cotangents.weights is None
        else result_cotangents.weights.astype(jnp.float32),
        result_cotangents.scores,
    )


def _with_received(
    plan: KernelPlan, operands: Operands, cotangent: Float[Array, "B H K"] | None
) -> tuple[KernelPlan, Operands]:
    """Adds the gradient of ``received`` to the packed keys."""
    if cotangent is None:
        return plan, operands
    tail = [(0, 0), (0, 0), (0, plan.padded_keys - plan.keys)]
    vectors = {"d received": jnp.pad(cotangent, tail)}
    if operands.key_floats is not None:
        vectors = {"bias": operands.key_floats[:, :, 0]} | vectors
    packed = stack(vectors, plan.padded_keys)
    plan = replace(plan, key_floats=(*plan.key_floats, "d received"))
    return plan, operands._replace(key_floats=packed)


def _delta(given: dict[str, Array], rows: dict[str, Array]) -> Array:
    """Contribution of statistics to sum_j p_j G_j of every row."""
    total = jnp.zeros_like(rows["lse"])
    for name, cotangent in given.items():
        if f"{name} mass" in rows:
            continue  # the entropy of a sieve is the same for weights that are all as much larger
        if name == "max_score":
            continue  # it is not a function of the weights
        if name == "lse":
            total = total - cotangent
        elif name == "sum_sq":
            total = total + 2 * cotangent * rows[name]
        else:
            total = total + cotangent * rows[name]
    return total


def _statistic_rows(given: dict[str, Array], rows: dict[str, Array]) -> dict[str, Array]:
    """The packed rows that `tiles.weights_gradient` reads."""
    vectors = {}
    for name, cotangent in given.items():
        if name == "lse":
            continue
        vectors[f"d {name}"] = cotangent
        if (mass := rows.get(f"{name} mass")) is not None:
            some = jnp.where(mass == 0, 1, mass)
            vectors[f"d {name}"] = jnp.where(mass == 0, 0, cotangent / some)
            vectors[name.replace("sieve", "offset")] = rows[name] - jnp.log(some)
        if name in ("max", "max_score"):
            vectors["argmax"] = rows["argmax"]
        if name.startswith("topk weight"):
            index = name.replace("weight", "index")
            vectors[index] = rows[index]
    return vectors


def _as_primals(operands: Operands, grads: Operands, nat: float) -> Operands:
    """Gradients in the shapes and dtypes of what they belong to; None stands for zero."""
    key_bias = None
    if grads.key_floats is not None and operands.key_floats is not None:
        key_bias = _sum_to(grads.key_floats[:, :, None] / nat, operands.key_floats.shape)
    bias = grads.bias
    if bias is not None and operands.bias is not None:
        bias = bias.astype(operands.bias.dtype)
    return grads._replace(key_floats=key_bias, bias=bias)


def _sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Sums over the dimensions where ``shape`` is 1."""
    axes = tuple(n for n, (a, b) in enumerate(zip(array.shape, shape, strict=True)) if a != b)
    return array.sum(axis=axes, keepdims=True)


_run = jax.custom_vjp(_run_kernels, nondiff_argnums=(0, 1))
_run.defvjp(_run_forward, _run_backward, symbolic_zeros=True)


BATCH, HEADS = "data", "model"
# Where the heads are in the arrays of a call; in its other arrays they are not.
_HEADS_AXIS = {"q": 2, "k": 2, "v": 2, "mask": 1, "bias": 1, "sinks": 0}


def over_mesh(attend: Callable[[Call], Any], call: Call) -> Any:
    """Run `attend` on a call, in parts where the current mesh has such axes.

    Args:
        attend: An implementation; output `[B, Q, H, D]`, captures `[B, H, ...]`.
        call: A checked call. A size that an axis does not divide is not cut along it, nor are
            heads of which some are captured: every device would have to capture others.

    Returns:
        The output and the intermediates of the whole call. With dropout, each part draws from a
        key of its own, so the mask depends on the mesh.
    """
    cut = _axes(call)
    if not cut:
        return attend(call)
    leaves, tree = jax.tree_util.tree_flatten_with_path(call)
    places = [i for i, (_, leaf) in enumerate(leaves) if isinstance(leaf, jax.Array)]

    def rebuilt(arrays: list[jax.Array]) -> Call:
        whole = [leaf for _, leaf in leaves]
        for place, array in zip(places, arrays, strict=True):
            whole[place] = array
        return jax.tree.unflatten(tree, whole)

    def part(arrays: list[jax.Array]) -> Any:
        mine = rebuilt(arrays)
        if mine.dropout is None:
            return attend(mine)
        key = jax.random.fold_in(mine.dropout.key, jax.lax.axis_index(tuple(sorted(cut))))
        return attend(mine._replace(dropout=mine.dropout._replace(key=key)))

    arrays = [leaves[place][1] for place in places]
    given = [_spec(leaves[p][0][0].name, leaves[p][1], cut) for p in places]
    output, records = jax.eval_shape(lambda a: attend(rebuilt(a)), arrays)
    results = _spec("q", output, cut), jax.tree.map(lambda x: _spec("mask", x, cut), records)
    return jax.shard_map(part, in_specs=(given,), out_specs=results, axis_names=cut)(arrays)


def _axes(call: Call) -> frozenset[str]:
    """Axes of the current mesh to cut along: those that nobody has cut along yet."""
    mesh = jax.sharding.get_abstract_mesh()
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    sizes = {BATCH: call.q.shape[0]}
    numbered = call.capture.heads is not None or (call.dropout and call.dropout.heads is not None)
    if not numbered:
        # One key head serves all query heads; several are cut as these are.
        sizes[HEADS] = call.q.shape[2] if call.k.shape[2] == 1 else call.k.shape[2]
    return frozenset(
        name
        for name, size in sizes.items()
        if kinds.get(name, AxisType.Manual) != AxisType.Manual
        and mesh.shape[name] > 1
        and size % mesh.shape[name] == 0
    )


def _spec(field: str, array: Any, cut: frozenset[str]) -> P:
    if field == "dropout" or not array.shape:
        return P()
    axes: list[str | None] = [None] * len(array.shape)
    for axis, name in ((None if field == "sinks" else 0, BATCH), (_HEADS_AXIS.get(field), HEADS)):
        if axis is not None and name in cut and array.shape[axis] > 1:
            axes[axis] = name
    return P(*axes)
