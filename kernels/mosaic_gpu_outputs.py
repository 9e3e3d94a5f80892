# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Results of the forward kernel of Mosaic GPU: their shapes, and shared memory for their tiles."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from flaxattn.kernels.compat import result
from flaxattn.kernels.mosaic_gpu_form import GROUPS, ROWS, tile_memory
from flaxattn.kernels.plan import KernelPlan


def result_shapes(plan: KernelPlan, arrays: Mapping[str, Array]) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of the results; maps have whole tiles of 8 rows, as TMA wants them."""
    shape = (plan.batch, plan.heads, arrays["q"].shape[1])
    rows = (plan.batch, plan.heads, len(plan.results), plan.padded_queries)
    found = {"rows": result(rows, jnp.float32, arrays)}
    if "v" in arrays:
        found["output"] = result(arrays["q"].shape, plan.dtype, arrays)
    if plan.weights:
        found["weights"] = result((*shape, _columns(plan, plan.weights)), plan.weights, arrays)
    if plan.scores:
        found["scores"] = result((*shape, _columns(plan, jnp.float32)), jnp.float32, arrays)
    return found


def _columns(plan: KernelPlan, dtype: Any) -> int:
    """Columns of a map: whole tiles of shared memory, see `mosaic_gpu_form.tile_memory`."""
    tile = min(plan.block_k, 128 // jnp.dtype(dtype).itemsize)
    return -(-plan.keys // tile) * tile


def stages_of(plan: KernelPlan) -> dict[str, Any]:
    """Shared memory for results: two tiles of a map, so that one is written while one leaves.

    Two maps have one tile each. The output takes the place of the queries unless a second sweep
    still needs them.
    """
    stages = {"rows": plgpu.SMEM((GROUPS, len(plan.results), ROWS), jnp.float32)}
    shape = (GROUPS, 1 if plan.weights and plan.scores else 2, ROWS, plan.block_k)
    if plan.weights:
        stages["weights"] = tile_memory(shape, plan.weights)
    if plan.scores:
        stages["scores"] = tile_memory(shape, jnp.float32)
    if len(stages) > 1:
        stages["output"] = tile_memory((GROUPS, ROWS, plan.depth), plan.dtype)
    return stages
