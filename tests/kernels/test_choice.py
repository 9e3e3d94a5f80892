# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Which implementation runs: the best for device and request, or the named one, or a reason."""

import functools
import re

import jax
import jax.numpy as jnp
import pytest

from flaxattn.kernels import attention as door
from flaxattn.kernels import choice, compat, devices
from flaxattn.kernels.call import Call
from flaxattn.kernels.contract import NOTHING, Capture, Dropout, Labels, Sieve
from flaxattn.kernels.devices import Device

CPU = Device("cpu", "cpu")
TPU = Device("tpu", "TPU v5 lite")
AMPERE = Device("gpu", "NVIDIA A100", (8, 0))
HOPPER = Device("gpu", "NVIDIA H200", (9, 0))
BLACKWELL = Device("gpu", "NVIDIA B200", (10, 0))
TURING = Device("gpu", "Tesla T4", (7, 5))
RADEON = Device("gpu", "AMD Instinct MI300X")
Q = jnp.zeros((2, 16, 4, 64), jnp.bfloat16)
CLASS, NEAR = Sieve("delimiter", key_class=1), Sieve("near", offsets=(-1, 1))
PADDING = jnp.ones((2, 1, 1, 16), bool)
FUSED = ("mosaic_gpu", "tpu", "cudnn")


def call(capture=NOTHING, dtype="bfloat16", depth=64, **options):
    """A checked call of which only shapes matter."""
    q = Q[..., :depth].astype(dtype)
    return Call(q, q, q, capture=capture, **options)


def stats(*names):
    return Capture(stats=names)


@pytest.mark.parametrize(
    ("device", "requested", "name"),
    [
        (CPU, call(), "xla"),
        (CPU, call(stats("entropy")), "xla"),
        (TPU, call(), "tpu"),
        (TPU, call(Capture(weights=True), "float32"), "tpu"),
        (HOPPER, call(), "cudnn"),
        (HOPPER, call(stats("lse", "entropy")), "cudnn"),
        (HOPPER, call(Capture(weights=True)), "mosaic_gpu"),
        (HOPPER, call(stats("max", "topk(8)", NEAR)), "mosaic_gpu"),
        (HOPPER, call(dtype="float32"), "xla"),
        (BLACKWELL, call(), "cudnn"),
        (AMPERE, call(), "cudnn"),
        (AMPERE, call(mask=PADDING), "cudnn"),
        (AMPERE, call(stats("lse", "entropy", CLASS)), "cudnn"),
        (AMPERE, call(stats("lse", "max")), "xla"),
        (AMPERE, call(Capture(weights=True)), "xla"),
        (AMPERE, call(dtype="float32"), "xla"),
        (TURING, call(), "xla"),
        (RADEON, call(), "xla"),
    ],
)
def test_device_and_request_decide(device, requested, name):
    assert choice.choose(requested, device).name == name


@pytest.mark.parametrize(
    ("requested", "reason"),
    [
        (call(dtype="float32"), "cuDNN takes bfloat16 and float16, not float32"),
        (call(Capture(weights=True)), "cuDNN returns neither weights nor scores"),
        (
            call(stats("lse", "argmax", CLASS, NEAR)),
            "cuDNN returns linear statistics only, not argmax, sieve 'near'",
        ),
        (call(bias=Q[:, :1, :1, :16]), "cuDNN has no exact gradient of a bias"),
        (call(segment_ids=(Q, Q)), "cuDNN needs a matrix of Q x K for segment ids"),
        (call(mask=jnp.ones((2, 4, 1, 16), bool)), "cuDNN takes a mask of keys only"),
        (
            call(causal=True, mask=PADDING),
            "cuDNN takes causal only without a mask and with Q = K",
        ),
        (
            call(dropout=Dropout(0.1, jax.random.key(0))),
            "cuDNN cannot repeat the dropout of the other implementations",
        ),
        (call(scale=jnp.float32(2)), "cuDNN takes a scale known when traced only"),
    ],
)
def test_a_better_one_that_is_passed_over_has_a_reason(requested, reason):
    assert choice.choose(requested, AMPERE) == ("xla", {"cudnn": reason})


@pytest.mark.parametrize(
    ("version", "refused"),
    [(None, False), (12060, False), (12080, True), (12090, True), (12091, False)],
)
def test_causal_is_refused_where_cuda_miscompiles_it(version, refused, monkeypatch):
    monkeypatch.setattr(compat, "cuda_version", lambda: version)
    requested = call(Capture(weights=True), causal=True)
    assert (choice.choose(requested, HOPPER).name == "xla") is refused
    assert choice.choose(call(Capture(weights=True)), HOPPER).name == "mosaic_gpu"
    if refused:
        assert "update CUDA to 12.9.1" in choice.call_refusal("mosaic_gpu", requested)


def test_a_deep_head_is_refused_by_cudnn():
    deep = Call(*[jax.ShapeDtypeStruct((1, 4, 1, 192), jnp.bfloat16)] * 3)
    assert choice.call_refusal("cudnn", deep) == ("cuDNN takes heads of depth 128 at most, not 192")


def refusal(make):
    """The message of a refusal, at most three lines."""
    with pytest.raises(NotImplementedError) as raised:
        make()
    message = str(raised.value)
    assert message.count("\n") < 3
    return message


FIX = "\nFix: implementation=None chooses, or name xla or reference."
NEEDS = {
    "mosaic_gpu": "it needs a Hopper GPU (compute capability 9)",
    "tpu": "it needs a TPU",
    "cudnn": "it needs an NVIDIA GPU (compute capability 8 or newer)",
}


@pytest.mark.parametrize("name", ["mosaic_gpu", "tpu"])
def test_a_named_one_runs_or_says_why_not(name):
    run = functools.partial(door.attention, implementation=name)
    message = f"attention: implementation {name!r} cannot run here: {NEEDS[name]}, this is cpu."
    assert refusal(lambda: run(Q, Q, Q)) == message + FIX
    assert refusal(lambda: jax.jit(run)(Q, Q, Q)) == message + FIX
    assert refusal(lambda: jax.vmap(run)(Q[None], Q[None], Q[None])) == message + FIX
    assert door.implementations()[name] == f"{NEEDS[name]}, this is cpu"


def test_cudnn_says_when_it_is_not_there():
    message = refusal(lambda: door.attention(Q, Q, Q, implementation="cudnn"))
    assert message == (
        f"attention: implementation 'cudnn' cannot run here: {NEEDS['cudnn']}, this is cpu.{FIX}"
    )
    traced = jax.jit(functools.partial(door.attention, implementation="cudnn"))
    message = refusal(lambda: traced(Q, Q, Q))
    missing = r"cannot run here: cuDNN (is not detected|not found)\."  # by jax, with CUDA's wheels
    assert re.search(missing, message)
    assert "Fix: install jax[cuda]" in message


@pytest.mark.parametrize("device", [AMPERE, BLACKWELL])
def test_a_named_kernel_is_refused_on_a_gpu_of_another_generation(device, monkeypatch):
    monkeypatch.setattr(devices, "current", lambda array=None: device)
    message = refusal(lambda: door.attention(Q, Q, Q, implementation="mosaic_gpu"))
    assert f"{NEEDS['mosaic_gpu']}, this is {device.kind} (compute capability " in message


@pytest.mark.parametrize("name", FUSED)
def test_a_named_one_that_cannot_take_the_call_says_so_at_once(name):
    q = jnp.zeros((1, 4, 1, 640), jnp.float16)
    traced = jax.jit(functools.partial(door.attention, implementation=name))
    message = refusal(lambda: traced.trace(q, q, q))
    assert message.startswith(f"attention: implementation {name!r} cannot run this call: ")
    assert message.endswith(FIX)


@pytest.mark.parametrize(("name", "platform"), [("mosaic_gpu", "cuda"), ("tpu", "tpu")])
def test_a_named_one_is_lowered_for_its_platform_on_any_machine(name, platform):
    traced = jax.jit(functools.partial(door.attention, implementation=name)).trace(Q, Q, Q)
    assert traced.lower(lowering_platforms=(platform,)).as_text()
    for platforms in [("cpu",), (platform, "cpu")]:
        message = refusal(lambda given=platforms: traced.lower(lowering_platforms=given))
        assert f"{NEEDS[name]}, this is cpu" in message


def test_the_mark_changes_nothing_where_it_holds():
    mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

    def marked(x):
        return devices.only_on(x, "cpu", "no {platform}") * 3

    def total(run):
        return lambda x: run(x).sum()

    x = jnp.arange(8.0).reshape(2, 4)
    spec = jax.P("x")
    sharded = jax.shard_map(marked, mesh=mesh, in_specs=spec, out_specs=spec)
    for run in (marked, jax.jit(marked), jax.vmap(marked), jax.checkpoint(marked), sharded):
        assert (run(x) == 3 * x).all()
        assert (jax.grad(total(run))(x) == 3).all()
    _, rows = jax.lax.scan(lambda carry, row: (carry, marked(row)), 0, x)
    assert (rows == 3 * x).all()
    assert (jax.jvp(marked, (x,), (x,))[1] == 3 * x).all()


def test_the_device_is_found_in_order():
    here = jax.devices()[0]
    kind = jax.sharding.AbstractDevice(device_kind="TPU v5 lite", num_cores=1, platform="tpu")
    mesh = jax.sharding.AbstractMesh((1,), ("x",), abstract_device=kind)
    assert devices.current() == CPU
    with jax.sharding.use_abstract_mesh(mesh):
        assert devices.current() == TPU
        assert devices.current(Q) == CPU  # it is concrete: it runs where it lies
    for default in (here, "cpu"):
        with jax.default_device(default):
            assert devices.current() == CPU


def test_the_choice_follows_the_mesh():
    kind = jax.sharding.AbstractDevice(device_kind="TPU v5 lite", num_cores=1, platform="tpu")
    mesh = jax.sharding.AbstractMesh((1,), ("x",), abstract_device=kind)
    shape = jax.ShapeDtypeStruct(Q.shape, Q.dtype)
    with jax.sharding.use_abstract_mesh(mesh):
        _, captured = jax.eval_shape(door.attention, shape, shape, shape)
    assert captured.implementation == "tpu"


@pytest.mark.slow
def test_implementations_are_listed_and_none_chooses():
    listed = door.implementations()
    assert list(listed) == list(choice.NAMES)
    assert [name for name, reason in listed.items() if reason is None] == ["xla", "reference"]
    labels = Labels(key_class=jnp.ones((2, 16), jnp.int32))
    _, captured = door.attention(Q, Q, Q, labels=labels, capture=stats(CLASS))
    assert captured.implementation == "xla"
    assert {"mosaic_gpu", "tpu", "cudnn"} == set(FUSED)
    assert str(HOPPER) == "NVIDIA H200 (compute capability 9.0)"
    assert str(RADEON) == "AMD Instinct MI300X"
