# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every place where jax 0.10 and later versions differ, and what shard_map wants to know.

Nothing here is about attention.
"""

from typing import Any, TypeVar

import jax

Tree = TypeVar("Tree")


def varying_axes(tree: Any) -> frozenset[str]:
    """Mesh axes over which any array of a tree differs from device to device.

    Args:
        tree: Arrays, as seen inside ``shard_map``.

    Returns:
        Axis names; empty outside ``shard_map``.
    """
    axes: frozenset[str] = frozenset()
    for array in jax.tree.leaves(tree):
        axes |= _varying(array)
    return axes


def _varying(array: Any) -> frozenset[str]:
    return frozenset(jax.typeof(array).manual_axis_type.varying)


def vary_alike(tree: Tree) -> Tree:
    """Marks all arrays as varying over the axes of any of them, as an opaque kernel needs it.

    Args:
        tree: Arrays, as seen inside ``shard_map``.

    Returns:
        The same values. The gradient of an array that did not vary is summed over the devices.
    """
    axes = varying_axes(tree)

    def vary(array):
        missing = tuple(sorted(axes - _varying(array)))
        return jax.lax.pcast(array, missing, to="varying") if missing else array

    return jax.tree.map(vary, tree)


def result(shape: tuple[int, ...], dtype: Any, operands: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of what a kernel returns; varies over the mesh axes of its operands.

    Args:
        shape: Shape of the result.
        dtype: Dtype of the result.
        operands: A tree of the arrays that the kernel reads.

    Returns:
        An entry for ``out_shape`` or ``out_type``.
    """
    leaf = jax.tree.leaves(operands)[0]
    kind = jax.typeof(leaf).manual_axis_type.update(varying=varying_axes(operands))
    return jax.ShapeDtypeStruct(shape, dtype, manual_axis_type=kind)


def cuda_version() -> int | None:
    """Return the version of the CUDA runtime, such as 12091 for 12.9.1; None without one."""
    from jax._src.lib import cuda_versions

    return None if cuda_versions is None else cuda_versions.cuda_runtime_get_version()


def gpu_interpreter() -> Any | None:
    """Return the interpreter of Mosaic GPU kernels without a GPU, which searches for races.

    Returns:
        What ``interpret`` takes; None where jax cannot interpret these kernels (0.10).
    """
    if jax.__version_info__ < (0, 11):
        return None
    from jax.experimental.pallas import mosaic_gpu as plgpu

    return plgpu.InterpretGPUParams(detect_races=True)


def load(ref: Any, layout: Any) -> jax.Array:
    """Loads from shared memory of a GPU into registers.

    Args:
        ref: A part of shared memory.
        layout: Layout of the registers.

    Returns:
        The array.
    """
    from jax.experimental.pallas import mosaic_gpu as plgpu

    index = () if jax.__version_info__ >= (0, 11) else ((),)
    return plgpu.load(ref, *index, layout=layout)


def transposed(ref: Any) -> Any:
    """The matrix in shared memory of a GPU with its two dimensions swapped.

    Args:
        ref: A matrix.

    Returns:
        A view.
    """
    if jax.__version_info__ >= (0, 11):
        return ref.transpose((1, 0))
    from jax.experimental.pallas import mosaic_gpu as plgpu

    return plgpu.transpose_ref(ref, (1, 0))


def cudnn_with_lse(
    q: Any, k: Any, v: Any, lengths: Any, scale: float, causal: bool
) -> tuple[jax.Array, jax.Array]:
    """Attention by cuDNN with its log-sum-exp in float32.

    `jax.nn.dot_product_attention` rounds the log-sum-exp to q's dtype, off by up to 0.03 in
    bfloat16; what it calls does not.

    Args:
        q: Queries, [B, Q, H, D].
        k: Keys, [B, K, H, D].
        v: Values, [B, K, H, D].
        lengths: Number of real keys, which come first, int32 [B]; None when all are.
        scale: Factor on q·k.
        causal: Keys after the query are masked.

    Returns:
        The output, and the log-sum-exp [B, H, Q] without a gradient.

    Raises:
        RuntimeError: If there is no cuDNN.
    """
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    kinds = cudnn.MaskType
    kind = kinds.CAUSAL if causal else kinds.NO_MASK if lengths is None else kinds.PADDING
    rows = None if lengths is None else jax.numpy.full_like(lengths, q.shape[1])
    output, lse = cudnn.dot_product_attention(
        q,
        k,
        v,
        q_seqlen=rows,
        kv_seqlen=lengths,
        scale=scale,
        mask_type=kind,
        return_residual=True,
    )[:2]
    return output, lse
