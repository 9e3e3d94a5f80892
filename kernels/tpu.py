# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention on a TPU: the forward kernel with its captures, the column sums, and the gradients.

tiles.py computes one tile, tpu_grid.py walks over the tiles of a grid, and fused.py makes one
differentiable call of the kernels and has the sums of the rows that gradients need. Every backward
kernel builds the weights of its tiles again from the LSE of the forward pass and turns what arrives
at output, maps and statistics into the gradient of the tile's scores; they differ in what they sum
it over.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from flaxattn.kernels import fused, tiles
from flaxattn.kernels.call import Call
from flaxattn.kernels.contract import Intermediates
from flaxattn.kernels.fused import Cotangents
from flaxattn.kernels.plan import KernelPlan, Operands
from flaxattn.kernels.tpu_grid import (
    KEYS,
    LANES,
    PAIRS,
    QUERIES,
    GridSchedule,
    GridStep,
    KernelResult,
    TpuTileLayout,
    dot,
    fitted,
    inputs_of,
    whole_sum,
)

MAX_DEPTH = 256
DTYPES = ("float32", "bfloat16")


def refusal(call: Call) -> str | None:
    """Why the kernels cannot run a call.

    Args:
        call: A checked call.

    Returns:
        The reason, None when they can.
    """
    if call.q.dtype.name not in DTYPES:
        return f"the TPU kernels take {' and '.join(DTYPES)}, not {call.q.dtype.name}"
    if call.q.shape[3] > MAX_DEPTH:
        return f"the TPU kernels take heads of depth {MAX_DEPTH} at most, not {call.q.shape[3]}"
    return fused.refusal(call)


def blocks(call: Call) -> tuple[int, int]:
    """Sizes of tiles for a call.

    Args:
        call: A checked call.

    Returns:
        Query rows and keys of a tile, multiples of 128.
    """
    capture = call.capture
    # Each of these keeps more tiles in VMEM at a time, of which compilers give 16 MiB.
    maps = capture.weights or capture.scores or call.bias is not None
    many = maps or capture.topk or len(capture.stats) > 4
    return _block(call.q.shape[1], 256 if many else 512), _block(call.k.shape[1], 512)


def _block(length: int, most: int) -> int:
    """The size that wastes least: padding on one side, steps of the grid on the other."""

    def cost(size: int) -> float:
        return -(-length // size) * (size + LANES / 2)

    return min(range(LANES, most + 1, LANES), key=cost)


@functools.cache
def backend(interpret: Any = False) -> fused.Kernels:
    """The kernels as one device.

    Args:
        interpret: False on a TPU; True or ``pltpu.InterpretParams`` anywhere.

    Returns:
        The same object for the same argument.
    """
    kernels = {
        "forward": forward,
        "received": received,
        "row_dots": row_dots,
        "grad_queries": grad_queries,
        "grad_keys": grad_keys,
        "grad_bias": grad_bias,
    }
    return fused.Kernels(
        "tpu",
        **{name: functools.partial(run, interpret=interpret) for name, run in kernels.items()},
    )


def attend(call: Call, interpret: Any = False) -> tuple[Float[Array, "B Q H D"], Intermediates]:
    """Attention on the TPU kernels.

    Args:
        call: A checked call for which `refusal` is None.
        interpret: Whether the kernel is interpreted, as for `backend`.

    Returns:
        The output in q's dtype and the intermediates.
    """
    return fused.attend(call, backend(interpret), *blocks(call))


def forward(plan: KernelPlan, operands: Operands, interpret: Any = False) -> fused.Forward:
    """Output, row statistics and maps in one kernel.

    Maps are written in a second pass over the keys, once the sums of the rows are final. Scores
    are computed again there: that is cheaper than keeping a row of them.

    Args:
        plan: Plan of the call.
        operands: Operands of the call.
        interpret: Whether the kernel is interpreted, as for `backend`.

    Returns:
        As `fused.Forward` says.
    """
    maps = plan.weights is not None or plan.scores
    schedule = GridSchedule(plan, QUERIES, passes=2 if maps else 1)
    leading, square = (plan.batch, plan.heads), (plan.queries, plan.keys)
    results = {
        "output": KernelResult(
            "query matrix", (*leading, plan.queries, plan.value_depth), plan.dtype
        ),
        "rows": KernelResult(
            "query vectors", (*leading, len(plan.results), plan.padded_queries), jnp.float32
        ),
    }
    if plan.weights is not None:
        stored = "int16" if plan.weights == "float16" else plan.weights
        results["weights"] = KernelResult("tile", (*leading, *square), stored)
    if plan.scores:
        results["scores"] = KernelResult("tile", (*leading, *square), jnp.float32)
    scratch = {
        "sum": (plan.block_q, plan.value_depth),
        "state": (plan.block_q, LANES * len(_state_names(plan))),
    }
    given = inputs_of(plan, operands)
    found = schedule.call("attention_forward", _forward, given, results, scratch, interpret)
    output, weights = jnp.swapaxes(found["output"], 1, 2), found.get("weights")
    if weights is not None and plan.weights == "float16":
        weights = jax.lax.bitcast_convert_type(weights, jnp.float16)
    return fused.Forward(output, found["rows"], weights, found.get("scores"))


@functools.cache
def _state_names(plan: KernelPlan) -> tuple[str, ...]:
    """Names along the columns of the state in VMEM."""
    layout = TpuTileLayout(plan, 0, 0, transposed=False)
    rows = {name: layout.full_row(0.0) for name in plan.row_floats}
    return tuple(jax.eval_shape(lambda: tiles.start(plan, layout, rows)))


def _forward(step: GridStep) -> None:
    """One step of the forward kernel."""
    schedule, number = step.schedule, step.ids[3]
    last = schedule.inner_blocks - 1
    pl.when(number == 0)(functools.partial(_begin_rows, step))
    pl.when((number <= last) & step.needed)(functools.partial(_add_keys, step))
    pl.when(number == last)(functools.partial(_end_rows, step))
    if schedule.passes == 2:
        pl.when((number > last) & step.needed)(functools.partial(_write_maps, step))
        if schedule.plan.skips or schedule.plan.ranged:
            masked = jnp.logical_not(step.needed)
            pl.when((number > last) & masked)(functools.partial(_write_nothing, step))


def _begin_rows(step: GridStep) -> None:
    """The state of rows that have seen no key."""
    step.turn_vectors()
    step.held["sum"][...] = jnp.zeros_like(step.held["sum"])
    plan, layout = step.schedule.plan, step.layout
    state = tiles.start(plan, layout, step.vectors()[0])
    if plan.sinks:
        # Sums are left in parts, of which one is that of the sink; a sink of -inf is nothing,
        # also for rows that visit no tile.
        lanes = jax.lax.broadcasted_iota(jnp.int32, layout.row_shape, 1)
        counts = (lanes == 0) & (state["shift"] != -jnp.inf)
        state["total"] = jnp.where(counts, state["total"], 0.0)
    _hold(step, state)


def _hold(step: GridStep, state: dict[str, Array]) -> None:
    """Writes the state of the rows, or some of it, to VMEM."""
    for name, vector in state.items():
        lanes = _lanes(step.schedule.plan, name)
        step.held["state"][:, lanes] = jnp.broadcast_to(vector, step.layout.row_shape)


def _state(step: GridStep) -> dict[str, Array]:
    """The state of the rows as it lies in VMEM."""
    plan, held = step.schedule.plan, step.held["state"]
    return {name: held[:, _lanes(plan, name)] for name in _state_names(plan)}


def _lanes(plan: KernelPlan, name: str) -> slice:
    """Columns of a part of the state in VMEM."""
    start = _state_names(plan).index(name) * LANES
    return slice(start, start + LANES)


def _add_keys(step: GridStep) -> None:
    """Takes a tile into the state, and its values into the sum."""
    plan, layout = step.schedule.plan, step.layout
    rows, keys = step.vectors()
    tile = step.scores(rows, keys)
    # reference._softmax, reference._statistics
    state, exponentials, rescale = tiles.advance(plan, layout, _state(step), tile, rows, keys)
    _hold(step, state)
    # reference._output
    if plan.dropout:
        keep = tiles.keep(layout, rows, step.given["threshold"][0, 0])
        exponentials = jnp.where(keep, exponentials, 0.0)
    values = step.given["v"][...]
    added = dot(exponentials.astype(values.dtype), values, 1, 0)
    step.held["sum"][...] = step.held["sum"][...] * fitted(rescale, plan.value_depth) + added


def _end_rows(step: GridStep) -> None:
    """Output and statistics of rows that have seen all their keys."""
    plan, held = step.schedule.plan, step.held
    # Along the lanes a vector takes a register for 1024 rows, across them one for 8.
    state = {
        name: x.T[:1] if _in_every_lane(plan, name) else whole_sum(x)
        for name, x in _state(step).items()
    }
    shift, inverse, found = tiles.finish(plan, state)
    for n, name in enumerate(plan.results):
        step.found["rows"][n : n + 1, :] = found[name]
    shift, inverse = (jnp.broadcast_to(x, (LANES, plan.block_q)).T for x in (shift, inverse))
    factor = fitted(inverse, plan.value_depth)
    factor = factor * step.given["keep_scale"][0, 0] if plan.dropout else factor
    step.found["output"][...] = (held["sum"][...] * factor).astype(plan.dtype)
    if step.schedule.passes == 2:
        # The second pass finds what turns scores into weights in place of the sums.
        _hold(step, {"shift": shift, "total": inverse})


def _in_every_lane(plan: KernelPlan, name: str) -> bool:
    """Return whether a part of the state is a maximum or its key, rather than a sum."""
    places = {n for n, sieve in enumerate(plan.sieves) if sieve.statistic == "argmax"}
    chosen = {f"sieve {n}" for n in places} | {f"sieve {n} score" for n in places}
    return name in {"shift", "max_score", "argmax"} | chosen or name.startswith("topk ")


def _write_maps(step: GridStep) -> None:
    """Weights and scores of a tile."""
    plan = step.schedule.plan
    rows, keys = step.vectors()
    tile = step.scores(rows, keys)
    state = _state(step)
    shift, inverse = (step.layout.rows(state[name]) for name in ("shift", "total"))
    if plan.weights is not None:
        # reference._softmax, reference._in_dtype
        step.found["weights"][...] = _in_dtype(
            tiles.exponential(plan, tile - shift) * inverse, plan.weights
        )
    if plan.scores:
        step.found["scores"][...] = tile / plan.nat


def _write_nothing(step: GridStep) -> None:
    """Write the values of a tile of which every pair is masked."""
    for name, value in (("weights", 0), ("scores", -jnp.inf)):
        if name in step.found:
            ref = step.found[name]
            ref[...] = jnp.full(ref.shape, value, ref.dtype)


def _in_dtype(weights: Array, dtype: str) -> Array:
    """Weights as they are stored; float16 as its bits, since Mosaic has no float16."""
    if dtype == "uint8":
        return jnp.round(255 * weights).astype(jnp.int32).astype(jnp.uint8)
    if dtype == "float16":
        return _half_bits(weights).astype(jnp.int16)
    return weights.astype(dtype)


def _half_bits(weights: Array) -> Array:
    """The bits of weights as float16, rounded to the nearest even, as int32."""
    bits = jax.lax.bitcast_convert_type(weights, jnp.int32)
    # 13 bits of the fraction go, and the exponent counts from 15 instead of 127.
    normal = ((bits + 0xFFF + ((bits >> 13) & 1)) >> 13) - (112 << 10)
    # Below the smallest normal number float16 counts in steps of 2^-24.
    small = jnp.round(weights * 2.0**24).astype(jnp.int32)
    return jnp.where(weights != weights, 0x7E00, jnp.where(weights < 2.0**-14, small, normal))


def received(
    plan: KernelPlan, operands: Operands, interpret: Any = False
) -> Float[Array, "B H Kp"]:
    """Column sums of the weights of the counted rows.

    Args:
        plan: Plan with the rows of the final sums and "counted".
        operands: Operands with the same rows.
        interpret: Whether the kernel is interpreted, as for `backend`.

    Returns:
        One number for each key.
    """
    shape = (plan.batch, plan.heads, 1, plan.padded_keys)
    given = {name: x for name, x in inputs_of(plan, operands).items() if name != "v"}
    found = GridSchedule(plan, KEYS).call(
        "attention_received",
        _received,
        given,
        {"sums": KernelResult("key vectors", shape, jnp.float32)},
        {"sum": (plan.block_k, LANES)},
        interpret,
    )
    return found["sums"][:, :, 0]


def _received(step: GridStep) -> None:
    """One step of the column pass."""
    held, number = step.held["sum"], step.of_head

    @pl.when(number == 0)
    def _begin():
        step.turn_vectors()
        held[...] = jnp.zeros_like(held)

    @pl.when(step.needed)
    def _add():
        # reference._statistics: received
        layout, (rows, keys) = step.layout, step.vectors()
        weights = tiles.rebuilt_weights(layout, step.scores(rows, keys), rows)
        held[...] += layout.key_sum(weights * layout.rows(rows["counted"]))

    @pl.when(number == step.schedule.plan.query_blocks - 1)
    def _end():
        step.found["sums"][...] = whole_sum(held[...])


def row_dots(
    plan: KernelPlan, operands: Operands, cotangents: Cotangents, interpret: Any = False
) -> Float[Array, "B H Qp"]:
    """Sum over the keys of weight times what reaches it from captured weights and received.

    Args:
        plan: Plan with the rows of the final sums and, for received, "counted".
        operands: Operands with the same rows.
        cotangents: Cotangents; only those of the weights are used.
        interpret: Whether the kernel is interpreted, as for `backend`.

    Returns:
        One number for each query.
    """
    shape = (plan.batch, plan.heads, 1, plan.padded_queries)
    given = inputs_of(plan, operands, cotangents)
    given = {name: x for name, x in given.items() if name not in ("v", "d_output", "d_scores")}
    found = GridSchedule(plan, QUERIES).call(
        "attention_row_dots",
        _row_dots,
        given,
        {"sums": KernelResult("query vectors", shape, jnp.float32)},
        {"sum": (plan.block_q, LANES)},
        interpret,
    )
    return found["sums"][:, :, 0]


def _row_dots(step: GridStep) -> None:
    """One step of `row_dots`."""
    plan, held, number = step.schedule.plan, step.held["sum"], step.ids[3]

    @pl.when(number == 0)
    def _begin():
        step.turn_vectors()
        held[...] = jnp.zeros_like(held)

    @pl.when(step.needed)
    def _add():
        layout, (rows, keys) = step.layout, step.vectors()
        tile = step.scores(rows, keys)
        weights = tiles.rebuilt_weights(layout, tile, rows)
        cotangent = tiles.weights_gradient(plan, layout, tile, weights, rows, keys)
        of_map = step.tile("d_weights")
        cotangent = cotangent if of_map is None else cotangent + of_map
        held[...] += layout.row_sum(weights * cotangent)

    @pl.when(number == step.schedule.inner_blocks - 1)
    def _end():
        step.found["sums"][...] = whole_sum(held[...])


def _gradient(step: GridStep) -> tuple[Array, Array, Array]:
    """Weights of a tile after dropout, and the gradients of its scores and of its products."""
    plan, layout, (rows, keys) = step.schedule.plan, step.layout, step.vectors()
    # reference._scores, reference._softmax
    product = step.product("q", "k")
    tile = tiles.scores(plan, layout, product, rows, keys, step.tile("bias"))
    weights = tiles.rebuilt_weights(layout, tile, rows)
    # reference._output, backwards
    cotangent, dropped = step.product("d_output", "v"), weights
    if plan.dropout:
        keep = tiles.keep(layout, rows, step.given["threshold"][0, 0])
        cotangent, dropped = jnp.where(keep, cotangent, 0.0), jnp.where(keep, weights, 0.0)
    of_map = step.tile("d_weights")
    cotangent = cotangent if of_map is None else cotangent + of_map
    # reference._statistics and reference._softmax, backwards
    of_scores = step.tile("d_scores")
    d_scores = tiles.score_gradient(plan, layout, tile, weights, cotangent, rows, keys, of_scores)
    return dropped, d_scores, tiles.product_gradient(plan, layout, product, d_scores)


def grad_queries(
    plan: KernelPlan, operands: Operands, cotangents: Cotangents, interpret: Any = False
) -> Float[Array, "B Q H D"]:
    """The gradient of q, summed over the keys.

    Args:
        plan: Plan with the rows of `tiles.score_gradient`.
        operands: Operands with the same rows.
        cotangents: Cotangents of output and maps.
        interpret: Whether the kernel is interpreted, as for `backend`.

    Returns:
        In q's dtype.
    """
    shape = (plan.batch, plan.heads, plan.queries, plan.depth)
    found = GridSchedule(plan, QUERIES).call(
        "attention_grad_queries",
        _grad_queries,
        inputs_of(plan, operands, cotangents),
        {"dq": KernelResult("query matrix", shape, plan.dtype)},
        {"dq": (plan.block_q, plan.depth)},
        interpret,
    )
    return jnp.swapaxes(found["dq"], 1, 2)


def _grad_queries(step: GridStep) -> None:
    """One step of `grad_queries`."""
    plan, held, number = step.schedule.plan, step.held["dq"], step.ids[3]

    @pl.when(number == 0)
    def _begin():
        step.turn_vectors()
        held[...] = jnp.zeros_like(held)

    @pl.when(step.needed)
    def _add():
        keys = step.given["k"][...]
        _, _, d_products = _gradient(step)
        held[...] += dot(d_products.astype(keys.dtype), keys, 1, 0)

    @pl.when(number == step.schedule.inner_blocks - 1)
    def _end():
        step.found["dq"][...] = (held[...] * plan.scale).astype(plan.dtype)


def grad_keys(
    plan: KernelPlan,
    operands: Operands,
    cotangents: Cotangents,
    of_bias: bool,
    interpret: Any = False,
) -> tuple[Float[Array, "B K G D"], Float[Array, "B K G Dv"], Float[Array, "B H Kp"] | None]:
    """The gradients of k and v, summed over the queries.

    Args:
        plan: Plan with the rows of `tiles.score_gradient`.
        operands: Operands with the same rows.
        cotangents: Cotangents of output and maps.
        of_bias: Whether to sum the gradient of the scores of each key as well.
        interpret: Whether the kernel is interpreted, as for `backend`.

    Returns:
        Both in q's dtype, and the sums, None without ``of_bias``.
    """
    depths = {"dk": plan.depth, "dv": plan.value_depth}
    results = {
        name: KernelResult("key matrix", (plan.batch, plan.key_heads, plan.keys, depth), plan.dtype)
        for name, depth in depths.items()
    }
    scratch = {name: (plan.block_k, depth) for name, depth in depths.items()}
    if of_bias:
        sums = (plan.batch, plan.heads, 1, plan.padded_keys)
        results["sums"] = KernelResult("key vectors", sums, jnp.float32)
        scratch["sum"] = (plan.block_k, LANES)
    given = inputs_of(plan, operands, cotangents)
    schedule = GridSchedule(plan, KEYS)
    found = schedule.call("attention_grad_keys", _grad_keys, given, results, scratch, interpret)
    dk, dv = (jnp.swapaxes(found[name], 1, 2) for name in ("dk", "dv"))
    return dk, dv, found["sums"][:, :, 0] if of_bias else None


def _grad_keys(step: GridStep) -> None:
    """One step of `grad_keys`; tiles are transposed."""
    plan, held, number = step.schedule.plan, step.held, step.ids[3]

    @pl.when(number == 0)
    def _begin():
        for name in ("dk", "dv"):
            held[name][...] = jnp.zeros_like(held[name])

    @pl.when(step.of_head == 0)
    def _begin_head():
        step.turn_vectors()
        if "sum" in held:
            held["sum"][...] = jnp.zeros_like(held["sum"])

    @pl.when(step.needed)
    def _add():
        queries, d_output = step.given["q"][...], step.given["d_output"][...]
        weights, d_scores, d_products = _gradient(step)
        held["dk"][...] += dot(d_products.astype(queries.dtype), queries, 1, 0)
        held["dv"][...] += dot(weights.astype(d_output.dtype), d_output, 1, 0)
        if "sum" in held:
            held["sum"][...] += step.layout.key_sum(d_scores)

    @pl.when(number == step.schedule.inner_blocks - 1)
    def _end():
        step.found["dk"][...] = (held["dk"][...] * plan.scale).astype(plan.dtype)
        step.found["dv"][...] = held["dv"][...].astype(plan.dtype)

    @pl.when(step.of_head == plan.query_blocks - 1)
    def _end_head():
        if "sum" in held:
            step.found["sums"][...] = whole_sum(held["sum"][...])


def grad_bias(
    plan: KernelPlan, operands: Operands, cotangents: Cotangents, interpret: Any = False
) -> Float[Array, "#B #H Q K"]:
    """The gradient of the pair bias, summed over batch and heads inside the kernel where it is 1.

    Args:
        plan: Plan with the rows of `tiles.score_gradient`.
        operands: Operands with the same rows and a bias.
        cotangents: Cotangents of output and maps.
        interpret: Whether the kernel is interpreted, as for `backend`.

    Returns:
        float32 in the shape of the bias.
    """
    assert operands.bias is not None
    batch, heads, *square = operands.bias.shape
    schedule = GridSchedule(plan, PAIRS, shared=(batch, heads))
    found = schedule.call(
        "attention_grad_bias",
        _grad_bias,
        inputs_of(plan, operands, cotangents),
        {"d_bias": KernelResult("tile", (batch, heads, *square), jnp.float32)},
        {},
        interpret,
    )
    return found["d_bias"]


def _grad_bias(step: GridStep) -> None:
    """One step of `grad_bias`: batch and heads change from step to step, so vectors do too."""
    total = step.found["d_bias"]

    @pl.when((step.ids[4] == 0) & (step.ids[5] == 0))
    def _begin():
        total[...] = jnp.zeros_like(total)

    @pl.when(step.needed)
    def _add():
        step.turn_vectors()
        total[...] += _gradient(step)[1]
