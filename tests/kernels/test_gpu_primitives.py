# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The tiny kernels that `make gpu` tries first: interpreted, and exported for a GPU.

`make aot` compiles them to machine code; see tests/aot.
"""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh

from flaxattn.benchmarks import gpu_primitives
from flaxattn.kernels import compat

INTERPRETER = compat.gpu_interpreter()
NAMES = [each.name for each in gpu_primitives.PRIMITIVES]
INTERPRETABLE = [each.name for each in gpu_primitives.PRIMITIVES if each.interpretable]


@pytest.mark.parametrize("name", NAMES)
def test_a_primitive_is_exported(name):
    primitive = gpu_primitives.primitive(name)
    allowed = [jax.export.DisabledSafetyCheck.custom_call("mosaic_gpu_v2")]
    export = jax.export.export(jax.jit(primitive.run), platforms=["cuda"], disabled_checks=allowed)
    device = AbstractDevice(device_kind="NVIDIA H200", num_cores=None, platform="gpu")
    with jax.sharding.use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=device)):
        assert export(*primitive.arguments()).mlir_module().count("@mosaic_gpu_v2") == 1


@pytest.mark.skipif(INTERPRETER is None, reason="jax 0.10 cannot interpret Mosaic GPU kernels")
@pytest.mark.parametrize("name", INTERPRETABLE)
def test_an_interpreted_primitive_equals_numpy(name):
    gpu_primitives.primitive(name).check(INTERPRETER)


@pytest.mark.skipif(INTERPRETER is None, reason="jax 0.10 cannot interpret Mosaic GPU kernels")
def test_a_wrong_result_is_noticed():
    right = gpu_primitives.primitive("packed vectors")

    def off_by_one(*arguments):
        return [
            array + (np.arange(array.size) == 5).reshape(array.shape)
            for array in right.expected(*arguments)
        ]

    with pytest.raises(AssertionError, match="packed vectors: output 0"):
        dataclasses.replace(right, expected=off_by_one).check(INTERPRETER)


def test_expected_results_depend_on_the_inputs():
    """A kernel that writes nothing, or a constant, must not pass."""
    for primitive in gpu_primitives.PRIMITIVES:
        arguments = [array.astype(np.float64) for array in primitive.arguments()]
        others = primitive.expected(*(array + 1 for array in arguments))
        results = primitive.expected(*arguments)
        assert any((one != other).any() for one, other in zip(results, others, strict=True))
        for value, (shape, _) in zip(results, primitive.outputs, strict=True):
            assert value.shape == shape, primitive.name
            assert np.ptp(value) > 0 or "turns" in primitive.name, primitive.name


def test_names_are_listed_and_checked(capsys):
    gpu_primitives.main(["list"])
    assert capsys.readouterr().out.split("\n") == [*NAMES, ""]
    assert len(set(NAMES)) == len(NAMES)
    with pytest.raises(SystemExit):
        gpu_primitives.main(["TMA"])
