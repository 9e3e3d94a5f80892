# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The shared part of the fused kernels, on a device made of jax.numpy, against the reference.

`DENSE` walks over tiles as a kernel does, so the online statistics, the packing and the gradients
are tested without any Pallas. What a real device does with them is in test_conformance.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.benchmarks import cases
from flaxattn.kernels import choice, fused, reference, tiles
from flaxattn.kernels.call import Call
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import Capture
from flaxattn.kernels.plan import pack

BLOCK_Q, BLOCK_K = 56, 72


class Columns:
    """Vectors of rows as [B, H, q, 1], of keys as [B, H, 1, k]; `transposed` swaps the two."""

    def __init__(self, first_row, first_key, transposed=False):
        self.first, self.transposed = (first_row, first_key), transposed
        self.row_axis, self.key_axis = (3, 2) if transposed else (2, 3)
        self.shape = (BLOCK_K, BLOCK_Q) if transposed else (BLOCK_Q, BLOCK_K)

    def rows(self, vector):
        return jnp.expand_dims(vector, self.key_axis)

    def keys(self, vector):
        return jnp.expand_dims(vector, self.row_axis)

    def row_sum(self, tile):
        return tile.sum(axis=self.key_axis)

    def row_max(self, tile):
        return tile.max(axis=self.key_axis)

    def key_sum(self, tile):
        return tile.sum(axis=self.row_axis)

    def row_positions(self):
        return self.first[0] + jax.lax.broadcasted_iota(
            jnp.int32, (1, 1, *self.shape), self.row_axis
        )

    def key_positions(self):
        return self.first[1] + jax.lax.broadcasted_iota(
            jnp.int32, (1, 1, *self.shape), self.key_axis
        )

    def full_row(self, value):
        return jnp.full((1, 1, BLOCK_Q), value, jnp.float32)

    def tanh(self, tile):
        return jnp.tanh(tile)


def padded(array, axis, length):
    tail = [(0, 0)] * array.ndim
    tail[axis] = (0, length - array.shape[axis])
    return jnp.pad(array, tail)


class Walk:
    """The arrays of a call, cut into tiles."""

    def __init__(self, plan, operands, transposed=False):
        self.plan, self.operands, self.transposed = plan, operands, transposed
        lengths = (plan.padded_queries, plan.padded_keys, plan.padded_keys)
        self.q, self.k, self.v = (
            jnp.swapaxes(padded(x.astype(jnp.float32), 1, length), 1, 2)
            for x, length in zip(operands[:3], lengths, strict=True)
        )
        self.k, self.v = (jnp.repeat(x, plan.group, axis=1) for x in (self.k, self.v))

    def take(self, array, axis, index, size):
        return jax.lax.slice_in_dim(array, index * size, (index + 1) * size, axis=axis)

    def vectors(self, names, packed, index, size):
        if not names:
            return {}
        part = self.take(packed, 3, index, size)
        return {name: part[:, :, number] for number, name in enumerate(names)}

    def tile(self, i, j):
        """(layout, scores, rows, keys) of a tile."""
        plan, operands = self.plan, self.operands
        layout = Columns(i * BLOCK_Q, j * BLOCK_K, self.transposed)
        q, k = self.take(self.q, 2, i, BLOCK_Q), self.take(self.k, 2, j, BLOCK_K)
        product = jnp.einsum("bhqd,bhkd->bhqk", q, k, precision="highest")
        rows = self.vectors(plan.row_floats, operands.row_floats, i, BLOCK_Q)
        rows |= self.vectors(plan.row_ints, operands.row_ints, i, BLOCK_Q)
        keys = self.vectors(plan.key_floats, operands.key_floats, j, BLOCK_K)
        keys |= self.vectors(plan.key_ints, operands.key_ints, j, BLOCK_K)
        bias = None if operands.bias is None else self.pairs(operands.bias, i, j)
        product = self.turn(product)
        self.product = product
        return layout, tiles.scores(plan, layout, product, rows, keys, bias), rows, keys

    def pairs(self, array, i, j):
        array = padded(padded(array, 2, self.plan.padded_queries), 3, self.plan.padded_keys)
        return self.turn(self.take(self.take(array, 2, i, BLOCK_Q), 3, j, BLOCK_K))

    def turn(self, tile):
        return jnp.swapaxes(tile, 2, 3) if self.transposed else tile

    def gradient(self, i, j, cotangents):
        """(weights after dropout, gradient of the scores) of a tile."""
        layout, scores, rows, keys = self.tile(i, j)
        weights = tiles.rebuilt_weights(layout, scores, rows)
        d_output = padded(cotangents.output.astype(jnp.float32), 1, self.plan.padded_queries)
        d_output = self.take(jnp.swapaxes(d_output, 1, 2), 2, i, BLOCK_Q)
        v = self.take(self.v, 2, j, BLOCK_K)
        cotangent = self.turn(jnp.einsum("bhqd,bhkd->bhqk", d_output, v, precision="highest"))
        dropped = weights
        if self.plan.dropout:
            keep = tiles.keep(layout, rows, self.operands.threshold[0])
            cotangent, dropped = jnp.where(keep, cotangent, 0), jnp.where(keep, weights, 0)
        maps = [
            None if x is None else self.pairs(x, i, j)
            for x in (cotangents.weights, cotangents.scores)
        ]
        if maps[0] is not None:
            cotangent = cotangent + maps[0]
        d_scores = tiles.score_gradient(
            self.plan, layout, scores, weights, cotangent, rows, keys, maps[1]
        )
        d_products = tiles.product_gradient(self.plan, layout, self.product, d_scores)
        return self.turn(dropped), self.turn(d_scores), self.turn(d_products), d_output


def forward(plan, operands):
    walk = Walk(plan, operands)
    outputs, packed, weights, scores = [], [], [], []
    for i in range(plan.query_blocks):
        layout = Columns(i * BLOCK_Q, 0)
        rows = walk.vectors(plan.row_floats, operands.row_floats, i, BLOCK_Q)
        state, total = tiles.start(plan, layout, rows), 0.0
        for j in range(plan.key_blocks):
            layout, tile, rows, keys = walk.tile(i, j)
            state, e, rescale = tiles.advance(plan, layout, state, tile, rows, keys)
            if plan.dropout:
                e = jnp.where(tiles.keep(layout, rows, operands.threshold[0]), e, 0)
            v = walk.take(walk.v, 2, j, BLOCK_K)
            total = total * rescale[..., None] + jnp.einsum(
                "bhqk,bhkd->bhqd", e, v, precision="highest"
            )
        shift, inverse, found = tiles.finish(plan, state)
        if plan.dropout:
            total = total * operands.keep_scale[0]
        outputs.append(total * inverse[..., None])
        found = [
            jnp.broadcast_to(found[name], (plan.batch, plan.heads, BLOCK_Q))
            for name in plan.results
        ]
        packed.append(jnp.stack(found, axis=2))
        maps = [walk.tile(i, j)[1] for j in range(plan.key_blocks)]
        scores.append(jnp.concatenate(maps, axis=3))
        weights.append(tiles.exponential(plan, scores[-1] - shift[..., None]) * inverse[..., None])
    output = jnp.concatenate(outputs, axis=2)[:, :, : plan.queries]
    weights, scores = (
        jnp.concatenate(x, axis=2)[:, :, : plan.queries, : plan.keys] for x in (weights, scores)
    )
    if plan.weights == "uint8":
        weights = jnp.round(255 * weights)
    return fused.Forward(
        jnp.swapaxes(output, 1, 2).astype(plan.dtype),
        jnp.concatenate(packed, axis=3),
        weights.astype(plan.weights) if plan.weights else None,
        scores / plan.nat if plan.scores else None,
    )


def received(plan, operands):
    walk, parts = Walk(plan, operands), []
    for j in range(plan.key_blocks):
        total = 0.0
        for i in range(plan.query_blocks):
            layout, tile, rows, _ = walk.tile(i, j)
            weights = tiles.rebuilt_weights(layout, tile, rows)
            total = total + layout.key_sum(weights * layout.rows(rows["counted"]))
        parts.append(total)
    return jnp.concatenate(parts, axis=2)


def row_dots(plan, operands, cotangents):
    walk, parts = Walk(plan, operands), []
    for i in range(plan.query_blocks):
        total = 0.0
        for j in range(plan.key_blocks):
            layout, tile, rows, keys = walk.tile(i, j)
            weights = tiles.rebuilt_weights(layout, tile, rows)
            cotangent = tiles.weights_gradient(plan, layout, tile, weights, rows, keys)
            if cotangents.weights is not None:
                cotangent = cotangent + walk.pairs(cotangents.weights, i, j)
            total = total + layout.row_sum(weights * cotangent)
        parts.append(total)
    return jnp.concatenate(parts, axis=2)


def grad_queries(plan, operands, cotangents):
    walk, parts = Walk(plan, operands), []
    for i in range(plan.query_blocks):
        total = 0.0
        for j in range(plan.key_blocks):
            _, _, d_products, _ = walk.gradient(i, j, cotangents)
            k = walk.take(walk.k, 2, j, BLOCK_K)
            total = total + jnp.einsum("bhqk,bhkd->bhqd", d_products, k, precision="highest")
        parts.append(total * plan.scale)
    whole = jnp.concatenate(parts, axis=2)[:, :, : plan.queries]
    return jnp.swapaxes(whole, 1, 2).astype(plan.dtype)


def grad_keys(plan, operands, cotangents, of_bias):
    walk, parts = Walk(plan, operands, transposed=True), []
    for j in range(plan.key_blocks):
        dk = dv = d_bias = 0.0
        for i in range(plan.query_blocks):
            weights, d_scores, d_products, d_output = walk.gradient(i, j, cotangents)
            q = walk.take(walk.q, 2, i, BLOCK_Q)
            dk = dk + jnp.einsum("bhqk,bhqd->bhkd", d_products, q, precision="highest")
            dv = dv + jnp.einsum("bhqk,bhqd->bhkd", weights, d_output, precision="highest")
            d_bias = d_bias + d_scores.sum(axis=2)
        parts.append((dk * plan.scale, dv, d_bias))
    dk, dv, d_bias = (jnp.concatenate(x, axis=2) for x in zip(*parts, strict=True))
    dk, dv = (x.reshape(plan.batch, plan.key_heads, plan.group, *x.shape[2:]) for x in (dk, dv))
    dk, dv = (x.sum(2)[:, :, : plan.keys].astype(plan.dtype) for x in (dk, dv))
    dk, dv = (jnp.swapaxes(x, 1, 2) for x in (dk, dv))
    return dk, dv, d_bias if of_bias else None


def grad_bias(plan, operands, cotangents):
    walk = Walk(plan, operands)
    rows = [
        jnp.concatenate(
            [walk.gradient(i, j, cotangents)[1] for j in range(plan.key_blocks)], axis=3
        )
        for i in range(plan.query_blocks)
    ]
    whole = jnp.concatenate(rows, axis=2)[:, :, : plan.queries, : plan.keys]
    axes = tuple(axis for axis in (0, 1) if operands.bias.shape[axis] == 1)
    return whole.sum(axis=axes, keepdims=True)


DENSE = fused.Kernels("dense", forward, received, row_dots, grad_queries, grad_keys, grad_bias)
TODAY = [case.name for case in cases.TODAY]
CASES = ["segments, causal, padded", "bias of everything", "garbage in padding", "dropout", *TODAY]
# Right is enough here: compiling quickly matters more than speed.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def run_dense(call):
    return choice.complete(lambda rest: fused.attend(rest, DENSE, BLOCK_Q, BLOCK_K), checked(call))


def run_reference(call):
    return reference.attention(**call._asdict())


def pattern(x):
    """Weights between -1 and 1 that differ from entry to entry."""
    return jnp.cos(jnp.arange(x.size, dtype=x.dtype) * 0.7).reshape(x.shape)


def measure(name, run, capture):
    arguments = cases.case(name).arguments()
    names = [key for key in ("q", "k", "v", "bias", "sinks") if key in arguments]
    fixed = {key: value for key, value in arguments.items() if key not in names}

    def loss(arrays):
        output, captured = run(Call(**arrays, **fixed, capture=capture))
        leaves = (output, captured.weights, captured.scores, *captured.stats.values())
        floats = [x for x in leaves if x is not None and x.dtype == jnp.float32]
        finite = (jnp.where(jnp.isfinite(x), x, 0) for x in floats)
        total = sum(
            jnp.sum(x * jnp.cos(jnp.arange(x.size, dtype=x.dtype) * 0.7).reshape(x.shape))
            for x in finite
        )
        return total, (output, captured)

    compiled = jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=QUICK)
    (_, (output, captured)), grads = compiled({key: arguments[key] for key in names})
    return output, captured, grads


def agree(found, expected, tolerance):
    found, expected = np.asarray(found), np.asarray(expected)
    scale = max(1.0, np.abs(expected[np.isfinite(expected)]).max(initial=0))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


SOON = ("dropout", "window, sinks, groups", "soft cap")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in SOON)) for name in CASES]
)
def test_everything_equals_the_reference(name):
    found = measure(name, run_dense, cases.EVERYTHING)
    expected = measure(name, run_reference, cases.EVERYTHING)
    assert list(found[1].stats) == list(expected[1].stats)
    agree(found[0], expected[0], 5e-6)
    agree(found[1].weights, expected[1].weights, 5e-6)
    agree(found[1].scores, expected[1].scores, 5e-6)
    for key, value in found[1].stats.items():
        agree(value, expected[1].stats[key], 5e-6)
    for key, value in found[2].items():
        agree(value, expected[2][key], 2e-5)


# A gradient that is alone has kernels without the terms of the others.
ALONE = [
    *("output", "topk(3)", "received", "pairs", cases.SIEVES[0], cases.SIEVES[6]),
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("lse", "entropy", "max", "distance")),
]


@pytest.mark.slow
@pytest.mark.parametrize("stat", ALONE)
def test_the_gradient_of_one_statistic_alone(stat):
    capture = Capture() if stat == "output" else Capture(stats=(stat,))
    found = measure("few keys", run_dense, capture)
    expected = measure("few keys", run_reference, capture)
    for key, value in found[2].items():
        agree(value, expected[2][key], 2e-5)


@pytest.mark.few("seven")
@pytest.mark.parametrize("name", ["seven", "dropout"])
def test_some_heads_are_captured_in_the_requested_order(name):
    heads = (2, 0) if name == "seven" else (1,)
    capture = Capture(weights=True, stats=("entropy", "received"), heads=heads)
    found = measure(name, run_dense, capture)
    expected = measure(name, run_reference, capture)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        agree(a, b, 2e-5)


@pytest.mark.slow
def test_a_traced_scale_has_a_gradient():
    q = jax.random.normal(jax.random.key(0), (1, 5, 2, 4))

    def loss(scale, run):
        output, _ = run(Call(q, q, q, scale=scale))
        return (output**2).sum()

    found = jax.grad(loss)(jnp.float32(0.3), run_dense)
    np.testing.assert_allclose(found, jax.grad(loss)(jnp.float32(0.3), run_reference), rtol=1e-5)


@pytest.mark.slow
def test_rows_that_visit_no_tile_have_the_sum_of_their_sink():
    q = jnp.zeros((1, 4, 1, 8))
    plan, _ = pack(checked(Call(q, q, q, sinks=jnp.zeros(1))), BLOCK_Q, BLOCK_K)
    sinks = jnp.zeros((1, 1, BLOCK_Q)).at[..., 0].set(-jnp.inf)
    _, inverse, found = tiles.finish(plan, tiles.start(plan, Columns(0, 0), {"sink": sinks}))
    assert found["lse"][0, 0, :2].tolist() == [-np.inf, 0]
    assert inverse[0, 0, :2].tolist() == [0, 1]
