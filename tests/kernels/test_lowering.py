# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels are exported for their platform without it: Pallas and Mosaic take every operation.

A part of the variants, forward and backward; `make aot` compiles all of them to machine code.
"""

import jax
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh

from flaxattn.benchmarks import variants
from flaxattn.benchmarks.cases import Case
from flaxattn.kernels import mosaic_gpu, tpu
from flaxattn.kernels.contract import Capture

CALLS = {"cuda": "mosaic_gpu_v2", "tpu": "tpu_custom_call"}
BACKENDS = {"cuda": mosaic_gpu.attend, "tpu": tpu.attend}
DEVICES = {
    "cuda": AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu"),
    "tpu": AbstractDevice(device_kind="TPU v5 lite", num_cores=1, platform="tpu"),
}
MORE = pytest.mark.slow
CHOSEN = [
    "plain",
    "statistics",
    pytest.param("weights uint8", marks=pytest.mark.slow),
    pytest.param("scores", marks=pytest.mark.slow),
    "weights bfloat16, odd keys",
    pytest.param("weights uint8, odd keys", marks=pytest.mark.slow),
    "tails",
    "bias of positions",
    pytest.param("everything, depth 128", marks=pytest.mark.slow),
    "dropout, causal 16384",
    "statistics of today",
    pytest.param("shared key heads", marks=pytest.mark.slow),
    pytest.param("one query", marks=pytest.mark.slow),
    pytest.param("deep values", marks=pytest.mark.slow),
]


def exported(variant: variants.Variant, platform: str) -> str:
    """The program of a variant for a platform that is not here."""
    function = jax.jit(variant.function(BACKENDS[platform]))
    allowed = [jax.export.DisabledSafetyCheck.custom_call(CALLS[platform])]
    export = jax.export.export(function, platforms=[platform], disabled_checks=allowed)
    mesh = AbstractMesh((1,), ("x",), abstract_device=DEVICES[platform])
    with jax.sharding.use_abstract_mesh(mesh):
        return export(variant.arguments()).mlir_module()


@pytest.mark.few("plain", "tails", "today-tpu")
@pytest.mark.parametrize("platform", BACKENDS)
@pytest.mark.parametrize("name", CHOSEN)
def test_a_variant_is_exported(name, platform):
    text = exported(variants.variant(name), platform)
    # Forward, dq, and dk with dv, by the same names on every platform.
    assert text.count(f"@{CALLS[platform]}") >= 3
    for name in ("forward", "grad_queries", "grad_keys"):
        assert f"attention_{name}" in text


def drawn(seed: int) -> variants.Variant:
    """A random call: any length, depth, restriction and request."""
    rng = np.random.default_rng(seed)

    def some(names):
        return tuple(name for name in names if rng.random() < 0.3)

    case = Case(
        "drawn",
        int(rng.integers(1, 300)),
        int(rng.integers(1, 300)),
        batch=int(rng.integers(1, 3)),
        heads=3,
        depth=int(rng.choice([16, 32, 40, 64, 128])),
        padding=rng.random() < 0.5,
        causal=rng.random() < 0.5,
        segments=int(rng.choice([0, 2])),
        bias=rng.choice(["", "BK", "HQK"]).item(),
        dropout=float(rng.choice([0, 0.1])),
        groups=int(rng.choice([1, 3])),
        value_depth=int(rng.choice([16, 64])) if rng.random() < 0.2 else None,
        window=(int(rng.integers(0, 200)), int(rng.integers(0, 50)))
        if rng.random() < 0.4
        else None,
        soft_cap=30.0 if rng.random() < 0.3 else None,
        sinks=rng.random() < 0.3,
        offset=int(rng.choice([0, 0, 100])),
    )
    maps = {"weights": rng.random() < 0.6, "scores": rng.random() < 0.4}
    capture = Capture(
        **maps,
        stats=some((*variants.STATISTICS, "max_score", "sink")),
        dtype=rng.choice(["float32", "bfloat16", "float16", "uint8"]).item(),
        heads=(2, 0) if rng.random() < 0.2 else None,
    )
    return variants.Variant("drawn", case, capture, gradient=rng.random() < 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("platform", BACKENDS)
@pytest.mark.parametrize(
    "seeds", [range(4), *(pytest.param(range(n, n + 50), marks=MORE) for n in range(4, 204, 50))]
)
def test_random_calls_are_exported(seeds, platform):
    for seed in seeds:
        variant = drawn(seed)
        try:
            assert f"@{CALLS[platform]}" in exported(variant, platform)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {variant}") from error


def test_names_are_unique():
    names = [each.name for each in variants.HALF + variants.FLOAT32]
    assert len(set(names)) == len(names)
