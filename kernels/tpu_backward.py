# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients of attention on a TPU.

Every kernel builds the weights of its tiles again from the LSE of the forward pass and turns what
arrives at output, maps and statistics into the gradient of the tile's scores; they differ in
what they sum it over. Used by fused.py, where the sums of the rows come from.
"""

from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from flaxattn.kernels import tile_gradients, tiles
from flaxattn.kernels.fused import Cotangents
from flaxattn.kernels.plan import KernelPlan, Operands
from flaxattn.kernels.tpu_sweep import (
    KEYS,
    LANES,
    PAIRS,
    QUERIES,
    GridSchedule,
    GridStep,
    KernelResult,
    dot,
    inputs_of,
    whole_sum,
)


def row_dots(
    plan: KernelPlan, operands: Operands, cotangents: Cotangents, interpret: Any = False
) -> Float[Array, "B H Qp"]:
    """Sum over the keys of weight times what reaches it from captured weights and received.

    Args:
        plan: with the rows of the final sums and, for received, "counted".
        operands: the same.
        cotangents: those of the weights count.
        interpret: as for `tpu.backend`.

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
    plan, held, number = step.sweep.plan, step.held["sum"], step.ids[3]

    @pl.when(number == 0)
    def _begin():
        step.turn_vectors()
        held[...] = jnp.zeros_like(held)

    @pl.when(step.needed)
    def _add():
        form, (rows, keys) = step.form, step.vectors()
        tile = step.scores(rows, keys)
        weights = tile_gradients.rebuilt_weights(form, tile, rows)
        bar = tile_gradients.weights_gradient(plan, form, tile, weights, rows, keys)
        of_map = step.tile("d_weights")
        bar = bar if of_map is None else bar + of_map
        held[...] += form.row_sum(weights * bar)

    @pl.when(number == step.sweep.inner_blocks - 1)
    def _end():
        step.found["sums"][...] = whole_sum(held[...])


def _gradient(step: GridStep) -> tuple[Array, Array, Array]:
    """Weights of a tile after dropout, and the gradients of its scores and of its products."""
    plan, form, (rows, keys) = step.sweep.plan, step.form, step.vectors()
    # reference._scores, reference._softmax
    product = step.product("q", "k")
    tile = tiles.scores(plan, form, product, rows, keys, step.tile("bias"))
    weights = tile_gradients.rebuilt_weights(form, tile, rows)
    # reference._output, backwards
    bar, dropped = step.product("d_output", "v"), weights
    if plan.dropout:
        keep = tiles.keep(form, rows, step.given["threshold"][0, 0])
        bar, dropped = jnp.where(keep, bar, 0.0), jnp.where(keep, weights, 0.0)
    of_map = step.tile("d_weights")
    bar = bar if of_map is None else bar + of_map
    # reference._statistics and reference._softmax, backwards
    of_scores = step.tile("d_scores")
    d_scores = tile_gradients.score_gradient(plan, form, tile, weights, bar, rows, keys, of_scores)
    return dropped, d_scores, tile_gradients.product_gradient(plan, form, product, d_scores)


def grad_queries(
    plan: KernelPlan, operands: Operands, cotangents: Cotangents, interpret: Any = False
) -> Float[Array, "B Q H D"]:
    """The gradient of q, summed over the keys.

    Args:
        plan: with the rows of `tile_gradients.score_gradient`.
        operands: the same.
        cotangents: of output and maps.
        interpret: as for `tpu.backend`.

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
    plan, held, number = step.sweep.plan, step.held["dq"], step.ids[3]

    @pl.when(number == 0)
    def _begin():
        step.turn_vectors()
        held[...] = jnp.zeros_like(held)

    @pl.when(step.needed)
    def _add():
        keys = step.given["k"][...]
        _, _, d_products = _gradient(step)
        held[...] += dot(d_products.astype(keys.dtype), keys, 1, 0)

    @pl.when(number == step.sweep.inner_blocks - 1)
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
        plan: with the rows of `tile_gradients.score_gradient`.
        operands: the same.
        cotangents: of output and maps.
        of_bias: whether to sum the gradient of the scores of each key as well.
        interpret: as for `tpu.backend`.

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
    sweep = GridSchedule(plan, KEYS)
    found = sweep.call("attention_grad_keys", _grad_keys, given, results, scratch, interpret)
    dk, dv = (jnp.swapaxes(found[name], 1, 2) for name in ("dk", "dv"))
    return dk, dv, found["sums"][:, :, 0] if of_bias else None


def _grad_keys(step: GridStep) -> None:
    """One step of `grad_keys`; tiles are transposed."""
    plan, held, number = step.sweep.plan, step.held, step.ids[3]

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
            held["sum"][...] += step.form.key_sum(d_scores)

    @pl.when(number == step.sweep.inner_blocks - 1)
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
        plan: with the rows of `tile_gradients.score_gradient`.
        operands: the same, with a bias.
        cotangents: of output and maps.
        interpret: as for `tpu.backend`.

    Returns:
        float32 in the shape of the bias.
    """
    assert operands.bias is not None
    batch, heads, *square = operands.bias.shape
    sweep = GridSchedule(plan, PAIRS, shared=(batch, heads))
    found = sweep.call(
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
