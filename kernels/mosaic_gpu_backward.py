# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients of attention on a Hopper GPU: the backward kernels of Mosaic GPU.

Every kernel is one sweep (see launch.py): some tiles stay in shared memory, others pass through.
Weights are rebuilt from the final LSE, nothing of size Q·K is stored, and every sum has one order:
there are no atomics. The forward kernel is in mosaic_gpu_forward.py.
"""

import functools
from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float

from flaxattn.kernels import compat, tiles
from flaxattn.kernels.fused import Cotangents
from flaxattn.kernels.launch import Work, launch
from flaxattn.kernels.mosaic_gpu_sweeps import (
    columns_of,
    evened,
    groups_of,
    inputs,
    sweep_of,
    walk,
    walk_heads,
)
from flaxattn.kernels.plan import Operands, Plan
from flaxattn.kernels.sweep import ROWS, Form, Sweep, add_product, tile_memory, zeros


def products(left: Any, right: Any, other_left: Any, other_right: Any) -> tuple[Array, Array]:
    """Two independent matrix products, both on the tensor cores before the first is read."""
    shape = (ROWS, right.shape[0])

    def both(first, second):
        plgpu.wgmma(first, left, compat.transposed(right))
        plgpu.wgmma(second, other_left, compat.transposed(other_right))
        return first[...], second[...]

    return pl.run_scoped(both, plgpu.ACC(shape, jnp.float32), plgpu.ACC(shape, jnp.float32))


def product(left: Any, right: Any) -> Array:
    """Left · rightᵀ in float32."""

    def one(total):
        plgpu.wgmma(total, left, compat.transposed(right))
        return total[...]

    return pl.run_scoped(one, plgpu.ACC((ROWS, right.shape[0]), jnp.float32))


def tile_gradient(sweep: Sweep, parts: dict[str, Any], form: Form) -> tuple[Array, Array]:
    """The weights of a tile after dropout, and the gradient of its scores.

    Args:
        sweep: of the kernel; turned tiles are [keys, queries].
        parts: the tile's part of every input, in shared memory.
        form: of the tile.

    Returns:
        Two float32 tiles.
    """
    plan, rows, keys = sweep.plan, form.lazy_vectors(parts, "row"), form.lazy_vectors(parts, "key")
    # reference._scores and the weights' gradient of reference._output: q·k and dO·v.
    if sweep.turned:
        score, bar = products(parts["k"], parts["q"], parts["v"], parts["d_output"])
    else:
        score, bar = products(parts["q"], parts["k"], parts["d_output"], parts["v"])
    scores = tiles.scores(plan, form, score, rows, keys, form.pairs(parts, "bias"))
    # reference._softmax: weights, from the LSE.
    weights = dropped = tiles.rebuilt_weights(form, scores, rows)
    # reference._output: dropout.
    if plan.dropout:
        keep = tiles.keep(form, rows, parts["threshold"][0])
        bar, dropped = jnp.where(keep, bar, 0.0), jnp.where(keep, weights, 0.0)
    d_weights = form.pairs(parts, "weights")
    if d_weights is not None:
        bar = bar + d_weights
    d_scores = form.pairs(parts, "scores")
    gradient = tiles.score_gradient(plan, form, scores, weights, bar, rows, keys, d_scores)
    return dropped, gradient


def grad_queries(
    plan: Plan, operands: Operands, cotangents: Cotangents, interpret: Any = False
) -> Float[Array, "B Q H D"]:
    """Gradient of the queries: a block of queries stays, keys pass.

    Args:
        plan: of the call.
        operands: with the backward's packed rows.
        cotangents: what arrives.
        interpret: False, or how to interpret.

    Returns:
        In q's dtype.
    """
    arrays = inputs(operands, cotangents, turned=False)
    sweep = sweep_of(plan, False, arrays)
    arrays = evened(sweep, arrays)

    def step(sums, _, parts, form):
        _, gradient = tile_gradient(sweep, parts, form)
        add_product(sums[0], gradient.astype(plan.dtype), parts["k"], parts)
        return ()

    def finish(sums, _, parts, place, group, outputs, stages):
        parts["q"][...] = (sums[0] * plan.scale).astype(plan.dtype)
        plgpu.commit_smem()
        rows = pl.ds(place.query + group * ROWS, ROWS)
        plgpu.copy_smem_to_gmem(parts["q"], outputs[0].at[place.batch, rows, place.head])
        plgpu.wait_smem_to_gmem(0)

    work = Work(1, tuple, step, finish)
    results = [compat.result(arrays["q"].shape, plan.dtype, arrays)]
    dq = launch(sweep, arrays, results, *walk(sweep), work, [], interpret)[0]
    return dq[:, : plan.queries]


def grad_keys(
    plan: Plan,
    operands: Operands,
    cotangents: Cotangents,
    of_bias: bool,
    interpret: Any = False,
) -> tuple[Float[Array, "B K H D"], Float[Array, "B K H D"], Float[Array, "B H Kp"] | None]:
    """Gradients of keys and values: a block of keys stays, queries pass, tiles are turned.

    Args:
        plan: of the call.
        operands: with the backward's packed rows.
        cotangents: what arrives.
        of_bias: whether to sum the gradient of the scores of each key.
        interpret: False, or how to interpret.

    Returns:
        dk and dv in k's dtype, and the sums, None unless ``of_bias``.
    """
    arrays = inputs(operands, cotangents, turned=True)
    sweep = sweep_of(plan, True, arrays)
    arrays = evened(sweep, arrays)
    layout = plgpu.Layout.WGMMA.reduce(1)

    def start():
        sums = [plgpu.layout_cast(jnp.zeros((ROWS,), jnp.float32), layout)] if of_bias else []
        return sums

    def step(sums, totals, parts, form):
        dropped, gradient = tile_gradient(sweep, parts, form)
        add_product(sums[1], dropped.astype(plan.dtype), parts["d_output"], parts)
        add_product(sums[0], gradient.astype(plan.dtype), parts["q"], parts)
        return [total + form.key_sum(gradient) for total in totals]

    def finish(sums, totals, parts, place, group, outputs, stages):
        parts["k"][...] = (sums[0] * plan.scale).astype(plan.dtype)
        parts["v"][...] = sums[1].astype(plan.dtype)
        for total, stage in zip(totals, stages, strict=True):
            stage[group] = total
        plgpu.commit_smem()
        keys = pl.ds(place.key + group * ROWS, ROWS)
        for name, output in zip(("k", "v"), outputs[:2], strict=True):
            plgpu.copy_smem_to_gmem(parts[name], output.at[place.batch, keys, place.head])
        for stage, output in zip(stages, outputs[2:], strict=True):
            plgpu.copy_smem_to_gmem(stage.at[group], output.at[place.batch, place.head, keys])
        plgpu.wait_smem_to_gmem(0)

    results = [compat.result(arrays["k"].shape, plan.dtype, arrays)] * 2
    staging = []
    if of_bias:
        shape = (plan.batch, plan.heads, plan.padded_keys)
        results.append(compat.result(shape, jnp.float32, arrays))
        staging.append(plgpu.SMEM((sweep.groups, ROWS), jnp.float32))
    work = Work(2, start, step, finish)
    dk, dv, *sums = launch(sweep, arrays, results, *walk(sweep), work, staging, interpret)
    return dk[:, : plan.keys], dv[:, : plan.keys], sums[0] if of_bias else None


def row_dots(
    plan: Plan, operands: Operands, cotangents: Cotangents, interpret: Any = False
) -> Float[Array, "B H Qp"]:
    """For each query, the sum over keys of weight times what reaches it, but for the output.

    Args:
        plan: of the call.
        operands: packed rows are those of the final sums and, for ``received``, "counted".
        cotangents: only those of captured weights are used.
        interpret: False, or how to interpret.

    Returns:
        Sums of rows.
    """
    arrays = inputs(operands, cotangents, False)
    arrays = {name: x for name, x in arrays.items() if name not in ("v", "d_output", "scores")}
    sweep = sweep_of(plan, False, arrays)
    arrays = evened(sweep, arrays)
    layout = plgpu.Layout.WGMMA.reduce(1)

    def start():
        return plgpu.layout_cast(jnp.zeros((ROWS,), jnp.float32), layout)

    def step(_, total, parts, form):
        rows, keys = form.lazy_vectors(parts, "row"), form.lazy_vectors(parts, "key")
        score = product(parts["q"], parts["k"])
        scores = tiles.scores(plan, form, score, rows, keys, form.pairs(parts, "bias"))
        weights = tiles.rebuilt_weights(form, scores, rows)
        bar = tiles.weights_gradient(plan, form, scores, weights, rows, keys)
        d_weights = form.pairs(parts, "weights")
        return total + form.row_sum(weights * (bar if d_weights is None else bar + d_weights))

    def finish(_, total, parts, place, group, outputs, stages):
        stages[0][group] = total
        plgpu.commit_smem()
        rows = pl.ds(place.query + group * ROWS, ROWS)
        plgpu.copy_smem_to_gmem(stages[0].at[group], outputs[0].at[place.batch, place.head, rows])
        plgpu.wait_smem_to_gmem(0)

    results = [compat.result((plan.batch, plan.heads, plan.padded_queries), jnp.float32, arrays)]
    staging = [plgpu.SMEM((sweep.groups, ROWS), jnp.float32)]
    work = Work(0, start, step, finish)
    return launch(sweep, arrays, results, *walk(sweep), work, staging, interpret)[0]


def grad_bias(
    plan: Plan, operands: Operands, cotangents: Cotangents, interpret: Any = False
) -> Float[Array, "#B #H Q K"]:
    """Gradient of the pair bias: every tile of it sums over the batches and heads that share it.

    Args:
        plan: of the call.
        operands: with the backward's packed rows.
        cotangents: what arrives.
        interpret: False, or how to interpret.

    Returns:
        In float32, in the shape of the bias.
    """
    arrays = inputs(operands, cotangents, False)
    sweep = Sweep(plan, False, groups_of(plan.queries), columns_of(plan, False, arrays), ())
    arrays = evened(sweep, arrays)
    shape = (*operands.bias.shape[:2], arrays["q"].shape[1], -(-plan.keys // 64) * 64)

    def step(_, total, parts, form):
        return total + tile_gradient(sweep, parts, form)[1]

    def finish(_, total, parts, place, group, outputs, stages):
        stages[0][group] = total
        plgpu.commit_smem()
        rows = pl.ds(place.query + group * ROWS, ROWS)
        keys = pl.ds(place.key, sweep.step)
        here = (0 if shape[0] == 1 else place.batch, 0 if shape[1] == 1 else place.head)
        plgpu.copy_smem_to_gmem(stages[0].at[group], outputs[0].at[(*here, rows, keys)])
        plgpu.wait_smem_to_gmem(0)

    results = [compat.result(shape, jnp.float32, arrays)]
    staging = [tile_memory((sweep.groups, ROWS, sweep.step), jnp.float32)]
    work = Work(0, functools.partial(zeros, sweep.step), step, finish)
    walked = walk_heads(sweep, shape)
    return launch(sweep, arrays, results, *walked, work, staging, interpret)[0][
        :, :, : plan.queries, : plan.keys
    ]
