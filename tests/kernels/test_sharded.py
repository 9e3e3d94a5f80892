# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A call computed in parts on a mesh is the call: output, captures and gradients.

With the XLA implementation in the place of a fused one: what is tested is how a call is cut.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from flaxattn.benchmarks.cases import Case
from flaxattn.kernels import choice, fused, xla
from flaxattn.kernels.call import Call
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import Capture, Dropout, Sieve

CAPTURE = Capture(
    weights=True,
    scores=True,
    stats=("lse", "received", Sieve("other segment", same_segment=False)),
)
INPUTS = ("q", "k", "v", "bias", "sinks")
MESHES = {"data": (8, 1), "model": (1, 4), "both": (4, 2)}


def mesh(name: str) -> jax.sharding.Mesh:
    shape = MESHES[name]
    axes = (AxisType.Auto, AxisType.Auto)
    devices = jax.devices()[: shape[0] * shape[1]]
    return jax.make_mesh(shape, ("data", "model"), axis_types=axes, devices=devices)


def call_of(case: Case, **changes) -> Call:
    arguments = case.arguments("float32")
    return checked(Call(**{**arguments, "capture": CAPTURE, **changes}))


CASES = {
    "padding": Case("padding", 9, 17, batch=8, heads=4, padding=True),
    "segments, causal": Case("segments", 16, batch=8, heads=4, segments=2, causal=True),
    "bias of all batches": Case("bias", 12, 10, batch=8, heads=4, bias="HQK"),
    "bias of a batch": Case("bias", 12, 10, batch=8, heads=4, bias="BK"),
    "shared, sinks": Case("shared", 12, batch=8, heads=4, groups=2, window=(3, 0), sinks=True),
    "one key head": Case("one", 5, 10, batch=8, heads=4, groups=1, sinks=True, soft_cap=2.0),
}


@pytest.mark.few("sinks-both")
@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("padding", "both"),
        ("segments, causal", "data"),
        pytest.param("bias of all batches", "model", marks=pytest.mark.slow),
        ("bias of a batch", "both"),
        ("shared, sinks", "both"),
        ("one key head", "model"),
    ],
)
def test_parts_make_the_whole(name: str, axes: str) -> None:
    offsets = {"query_offset": jnp.arange(8)} if name == "one key head" else {}
    call = call_of(CASES[name], **offsets)

    def loss(arrays, attend):
        mine = call._replace(**arrays)
        output, captured = fused.over_mesh(attend, mine)
        return (output**2).sum() + sum(
            x.sum() for x in captured.stats.values() if jnp.issubdtype(x.dtype, jnp.floating)
        ), (output, captured)

    arrays = {n: getattr(call, n) for n in INPUTS if getattr(call, n) is not None}
    compute = jax.jit(jax.value_and_grad(loss, has_aux=True), static_argnums=1)
    expected = compute(arrays, xla.attend)
    with jax.set_mesh(mesh(axes)):
        found = compute(arrays, xla.attend)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    output, captured = found[0][1]
    shape = MESHES[axes]
    assert output.sharding.shard_shape(output.shape)[0] == 8 // shape[0]
    assert captured.weights.sharding.shard_shape(captured.weights.shape)[:2] == (
        8 // shape[0],
        4 // shape[1],
    )


@pytest.mark.slow
@pytest.mark.parametrize(("axes", "heads"), [("model", (1, 3)), ("both", (3,))])
def test_some_heads_are_captured(axes: str, heads: tuple[int, ...]) -> None:
    call = call_of(CASES["padding"], capture=Capture(weights=True, stats=("lse",), heads=heads))
    expected = xla.attend(call)
    with jax.set_mesh(mesh(axes)):
        found = jax.jit(lambda: fused.over_mesh(xla.attend, call))()
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert found[1].weights.shape[1] == len(heads)


@pytest.mark.slow
def test_a_size_that_does_not_divide_is_not_cut() -> None:
    call = call_of(Case("odd", 8, batch=3, heads=4))
    with jax.set_mesh(mesh("both")):
        output, _ = jax.jit(lambda: fused.over_mesh(xla.attend, call))()
    assert output.sharding.shard_shape(output.shape)[0] == 3
    np.testing.assert_allclose(output, xla.attend(call)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_inside_of_another_shard_map_nothing_is_cut_twice() -> None:
    call = call_of(CASES["padding"], capture=Capture())
    shapes = []

    def attend(part: Call):
        shapes.append(part.q.shape)
        return xla.attend(part)

    def part(q, k, v, mask):
        whole = call._replace(q=q, k=k, v=v, mask=mask)
        return fused.over_mesh(attend, whole)[0]

    spec = jax.P("data")
    with jax.set_mesh(mesh("data")):
        jax.jit(jax.shard_map(part, in_specs=(spec,) * 4, out_specs=spec))(
            call.q, call.k, call.v, call.mask
        )
    assert set(shapes) == {(1, 9, 4, call.q.shape[3])}


@pytest.mark.slow
def test_dropout_differs_between_parts_and_keeps_its_rate() -> None:
    call = call_of(
        Case("plain", 64, batch=8, heads=1),
        capture=Capture(),
        dropout=Dropout(0.5, jax.random.key(0)),
    )
    same = jax.tree.map(lambda x: jnp.broadcast_to(x[:1], x.shape), (call.q, call.k))
    eye = jnp.broadcast_to(jnp.eye(64)[None, :, None], (8, 64, 1, 64))
    call = call._replace(q=same[0], k=same[1], v=eye)
    with jax.set_mesh(mesh("data")):
        output, _ = jax.jit(lambda: fused.over_mesh(xla.attend, call))()
    kept = np.asarray(output[:, :, 0]) > 0
    assert abs(kept.mean() - 0.5) < 4 * (0.25 / kept.size) ** 0.5
    assert len({row.tobytes() for row in kept}) == 8


@pytest.mark.parametrize("name", ["mosaic_gpu", "tpu"])
def test_the_fused_kernels_go_this_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    monkeypatch.setattr(fused, "over_mesh", lambda attend, call: called.append(attend))
    dtype = "bfloat16"
    arguments = Case("plain", 128, batch=2, heads=2, depth=64).arguments(dtype)
    jax.eval_shape(lambda: choice.run(name, checked(Call(**arguments))))
    assert [attend.__module__ for attend in called] == [f"flaxattn.kernels.{name}"]
