# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Kernels are exported for their platform without it: Pallas and Mosaic take every operation.

A part of the variants, forward and backward; `make aot` compiles all of them to machine code.
"""

import jax
import pytest
from jax.sharding import AbstractDevice, AbstractMesh

from flaxattn.benchmarks import variants
from flaxattn.kernels import mosaic_gpu, tpu

CALLS = {"cuda": "mosaic_gpu_v2", "tpu": "tpu_custom_call"}
BACKENDS = {"cuda": mosaic_gpu.attend, "tpu": tpu.attend}
DEVICES = {
    "cuda": AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu"),
    "tpu": AbstractDevice(device_kind="TPU v5 lite", num_cores=1, platform="tpu"),
}
CHOSEN = [
    "plain",
    "statistics",
    pytest.param("weights uint8", marks=pytest.mark.slow),
    pytest.param("scores", marks=pytest.mark.slow),
    "tails",
    "bias of positions",
    pytest.param("everything, depth 128", marks=pytest.mark.slow),
    "dropout, causal 16384",
]


@pytest.mark.parametrize("platform", BACKENDS)
@pytest.mark.parametrize("name", CHOSEN)
def test_a_variant_is_exported(name, platform):
    variant = variants.variant(name)
    function = jax.jit(variant.function(BACKENDS[platform]))
    allowed = [jax.export.DisabledSafetyCheck.custom_call(CALLS[platform])]
    export = jax.export.export(function, platforms=[platform], disabled_checks=allowed)
    mesh = AbstractMesh((1,), ("x",), abstract_device=DEVICES[platform])
    with jax.sharding.use_abstract_mesh(mesh):
        text = export(variant.arguments()).mlir_module()
    # Forward, dq, and dk with dv.
    assert text.count(f"@{CALLS[platform]}") >= 3


def test_names_are_unique():
    names = [each.name for each in variants.HALF + variants.FLOAT32]
    assert len(set(names)) == len(names)
