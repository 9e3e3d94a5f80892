# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny kernels, one for each feature of Mosaic GPU that the attention kernels are made of.

Each is compared with NumPy. When an attention kernel fails on a device, the first of these that
fails too is the place to look. No attention is computed here.

    python -m flaxattn.benchmarks.gpu_primitives list
    python -m flaxattn.benchmarks.gpu_primitives "TMA copy in"
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from flaxattn.kernels import compat
from flaxattn.kernels.mosaic_gpu_forward import REGISTERS
from flaxattn.kernels.mosaic_gpu_launch import ROWS, tile_memory, zeros

TILE = (ROWS, ROWS)
TILES = 5  # more than slots, and no multiple of them
SLOTS = 2
_WGMMA = plgpu.Layout.WGMMA


@dataclass(frozen=True)
class GpuPrimitive:
    """A feature of the device, with a kernel that uses it and little else.

    Attributes:
        name: unique.
        body: the kernel: of references to inputs, outputs and scratch memory.
        expected: the outputs, computed by NumPy from the inputs.
        inputs: shape and dtype of every input.
        outputs: shape and dtype of every output.
        scratch: shared memory and barriers.
        tolerance: of the comparison, relative and absolute.
        groups: warpgroups of a block.
        interpretable: whether the interpreter of jax knows the feature.
    """

    name: str
    body: Callable[..., None]
    expected: Callable[..., Sequence[np.ndarray]]
    inputs: Sequence[tuple[tuple[int, ...], str]]
    outputs: Sequence[tuple[tuple[int, ...], str]]
    scratch: Sequence[Any] = ()
    tolerance: float = 0.0
    groups: int = 1
    interpretable: bool = True

    def arguments(self) -> list[np.ndarray]:
        """Inputs with small whole numbers, whose sums and products have no rounding."""
        draw = np.random.default_rng(0)
        return [
            draw.integers(-4, 5, shape).astype(jnp.dtype(dtype)) for shape, dtype in self.inputs
        ]

    def run(self, *arguments: Any, interpret: Any = False) -> list[Array]:
        """Run the kernel."""
        return plgpu.kernel(
            self.body,
            out_type=[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in self.outputs],
            scratch_types=list(self.scratch),
            grid=(1,),
            grid_names=("block",),
            num_threads=self.groups,
            thread_name="group",
            compiler_params=plgpu.CompilerParams(approx_math=True),
            interpret=interpret,
        )(*arguments)

    def check(self, interpret: Any = False) -> None:
        """Run the kernel and compare with NumPy."""
        arguments = self.arguments()
        results = jax.jit(lambda *arrays: self.run(*arrays, interpret=interpret))(*arguments)
        wanted = self.expected(*(array.astype(np.float64) for array in arguments))
        for number, (result, value) in enumerate(zip(results, wanted, strict=True)):
            np.testing.assert_allclose(
                np.asarray(result).astype(np.float64),
                value,
                rtol=self.tolerance,
                atol=self.tolerance,
                err_msg=f"{self.name}: output {number}",
            )


def _copy_in(source, result, tile, barrier):
    """The tile reaches beyond the end of the array, where TMA reads zeros."""
    first = lax.axis_index("block") * ROWS + 24
    plgpu.copy_gmem_to_smem(source.at[1, pl.ds(first, ROWS), 2], tile, barrier)
    plgpu.barrier_wait(barrier)
    result[...] = compat.load(tile, _WGMMA).astype(jnp.float32)


def _copied_in(source):
    return [np.pad(source[1, 24:, 2], [(0, 16), (0, 0)])]


def _copy_out(start, result, small, tile, bytes_tile):
    """Rows beyond the end of the first array are not written."""
    rows = plgpu.broadcasted_iota(jnp.int32, TILE, 0, layout=_WGMMA)
    columns = plgpu.broadcasted_iota(jnp.int32, TILE, 1, layout=_WGMMA)
    tile[...] = (rows - columns + start[0]).astype(tile.dtype)
    bytes_tile[...] = (rows + columns).astype(jnp.uint8)
    plgpu.commit_smem()
    first = lax.axis_index("block") * ROWS
    plgpu.copy_smem_to_gmem(tile, result.at[0, pl.ds(first, ROWS)])
    plgpu.copy_smem_to_gmem(bytes_tile, small.at[pl.ds(first, ROWS)])
    plgpu.wait_smem_to_gmem(0)


def _copied_out(start):
    rows, columns = np.arange(ROWS)[:, None], np.arange(ROWS)[None]
    return [(rows - columns + start[0])[None, :48], rows + columns]


def _ring(source, result, ring, out, full, free):
    group = lax.axis_index("group")

    @pl.when(group == 2)
    def _memory():
        @pl.loop(0, TILES)
        def _(step):
            slot = lax.rem(step, SLOTS)

            @pl.when(step >= SLOTS)
            def _():
                plgpu.barrier_wait(free.at[slot])

            plgpu.copy_gmem_to_smem(source.at[step], ring.at[slot], full.at[slot])

    @pl.when(group < 2)
    def _compute():
        def add(step, total):
            slot = lax.rem(step, SLOTS)
            plgpu.barrier_wait(full.at[slot])
            total = total * 2 + compat.load(ring.at[slot], _WGMMA).astype(jnp.float32)
            plgpu.commit_smem()
            plgpu.barrier_arrive(free.at[slot])
            return total

        out.at[group][...] = lax.fori_loop(0, TILES, add, zeros(ROWS))
        _leave(out.at[group], result.at[group])


def _ringed(source):
    total = np.zeros(TILE)
    for tile in source:
        total = total * 2 + tile
    return [np.stack([total, total])]


def _leave(stage, target):
    """Copy shared memory out and wait for it."""
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(stage, target)
    plgpu.wait_smem_to_gmem(0)


def _turns(start, result, out, turn):
    group = lax.axis_index("group")

    def take_turns():
        plgpu.barrier_arrive(turn)
        plgpu.barrier_wait(turn)

    pl.when(group == 1)(take_turns)

    def step(number, total):
        take_turns()
        take_turns()
        return total + number

    total = lax.fori_loop(0, TILES, step, start[0])
    pl.when(group == 0)(take_turns)
    out.at[group][...] = zeros(ROWS) + total.astype(jnp.float32)
    _leave(out.at[group], result.at[group])


def _bring(left, right, left_tile, right_tile, barrier):
    plgpu.copy_gmem_to_smem(left, left_tile, barrier)
    plgpu.copy_gmem_to_smem(right, right_tile, barrier)
    plgpu.barrier_wait(barrier)


def _from_shared_memory(left, right, result, left_tile, right_tile, out, barrier):
    _bring(left, right, left_tile, right_tile, barrier)

    def multiply(total):
        plgpu.wgmma(total, left_tile, compat.transposed(right_tile))
        plgpu.wgmma(total, left_tile, right_tile)
        return total[...]

    out[...] = pl.run_scoped(multiply, plgpu.WGMMAAccumulatorRef(TILE, jnp.float32))
    _leave(out, result)


def _from_registers(left, right, result, left_tile, right_tile, out, barrier):
    """As the forward kernel does: the sum is a value, and becomes an accumulator for a product."""
    _bring(left, right, left_tile, right_tile, barrier)
    weights = (compat.load(left_tile, _WGMMA).astype(jnp.float32) * 2).astype(left_tile.dtype)
    total: Any = zeros(ROWS)
    for _ in range(2):

        def add(accumulator):
            plgpu.wgmma(accumulator, weights, right_tile)

        total = pl.run_state(add)(plgpu.WGMMAAccumulatorRef.init(total * 3))
    out[...] = total
    _leave(out, result)


def _kept_accumulator(left, right, result, left_tile, right_tile, out, barrier):
    """As the backward kernels do: an accumulator that stays, with a wait after each product."""
    _bring(left, right, left_tile, right_tile, barrier)

    def add(total):
        def step(number, scale):
            weights = compat.load(left_tile, _WGMMA).astype(jnp.float32) * scale
            plgpu.wgmma(total, weights.astype(left_tile.dtype), right_tile)
            plgpu.wgmma_wait(0)
            return scale * 2

        lax.fori_loop(0, 3, step, jnp.float32(1))
        return total[...]

    out[...] = pl.run_scoped(add, plgpu.WGMMAAccumulatorRef(TILE, jnp.float32))
    _leave(out, result)


def _registers(source, result, tile, out, barrier):
    group = lax.axis_index("group")

    @pl.when(group == 2)
    def _memory():
        plgpu.set_max_registers(REGISTERS[0], action="decrease")
        plgpu.copy_gmem_to_smem(source, tile, barrier)

    @pl.when(group < 2)
    def _compute():
        plgpu.set_max_registers(REGISTERS[1], action="increase")
        plgpu.barrier_wait(barrier)
        out.at[group][...] = compat.load(tile, _WGMMA).astype(jnp.float32) + group.astype(
            jnp.float32
        )
        _leave(out.at[group], result.at[group])


def _reductions(source, result, sums, tile, out, vectors, barrier):
    plgpu.copy_gmem_to_smem(source, tile, barrier)
    plgpu.barrier_wait(barrier)
    values = compat.load(tile, _WGMMA)
    largest, of_rows, of_columns = values.max(axis=1), values.sum(axis=1), values.sum(axis=0)
    for number, vector in enumerate((largest, of_rows, of_columns)):
        vectors[number] = vector
    out[...] = values - lax.broadcast_in_dim(largest, TILE, [0])
    out[...] = compat.load(out, _WGMMA) + lax.broadcast_in_dim(of_columns, TILE, [1])
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(vectors, sums)
    _leave(out, result)


def _reduced(source):
    largest, of_columns = source.max(1), source.sum(0)
    of_all = np.stack([largest, source.sum(1), of_columns])
    return [source - largest[:, None] + of_columns, of_all]


def _packed(floats, numbers, factor, result, float_tile, number_tile, out, barrier):
    plgpu.copy_gmem_to_smem(floats.at[0, 0, slice(None), pl.ds(ROWS, ROWS)], float_tile, barrier)
    plgpu.copy_gmem_to_smem(numbers.at[0, 0, slice(None), pl.ds(ROWS, ROWS)], number_tile, barrier)
    plgpu.barrier_wait(barrier)
    of_rows = compat.load(float_tile.at[1], _WGMMA.reduce(1))
    of_columns = compat.load(number_tile.at[2], _WGMMA.reduce(0))
    rows = lax.broadcast_in_dim(of_rows, TILE, [0])
    columns = lax.broadcast_in_dim(of_columns, TILE, [1])
    out[...] = jnp.where(columns > 0, rows, -rows) * factor[0]
    _leave(out, result)


def _unpacked(floats, numbers, factor):
    rows, columns = floats[0, 0, 1, ROWS:, None], numbers[0, 0, 2, None, ROWS:]
    return [np.where(columns > 0, rows, -rows) * factor[0]]


def _exponentials(source, result, tile, out, barrier):
    plgpu.copy_gmem_to_smem(source, tile, barrier)
    plgpu.barrier_wait(barrier)
    powers = jnp.exp2(compat.load(tile, _WGMMA))
    out[...] = powers + lax.broadcast_in_dim(jnp.log2(powers.sum(axis=1)), TILE, [0])
    _leave(out, result)


def _exponentiated(source):
    powers = np.exp2(source)
    return [powers + np.log2(powers.sum(1))[:, None]]


_HALF = (TILE, "bfloat16")
_FLOAT = (TILE, "float32")
_TWO = ((2, *TILE), "float32")


def _tile(dtype: str = "float32", *leading: int) -> Any:
    """Shared memory for tiles."""
    return tile_memory((*leading, *TILE), jnp.dtype(dtype))


_OPERANDS = (
    _tile("bfloat16"),
    _tile("bfloat16"),
    _tile(),
    plgpu.Barrier(num_arrivals=2),
)

PRIMITIVES = (
    GpuPrimitive(
        "TMA copy in",
        _copy_in,
        _copied_in,
        inputs=[((2, 72, 3, 64), "bfloat16")],
        outputs=[_FLOAT],
        scratch=[_tile("bfloat16"), plgpu.Barrier()],
    ),
    GpuPrimitive(
        "TMA copy out",
        _copy_out,
        _copied_out,
        inputs=[((1,), "int32")],
        outputs=[((1, 48, 64), "float32"), (TILE, "uint8")],
        scratch=[_tile(), _tile("uint8")],
    ),
    GpuPrimitive(
        "barrier ring",
        _ring,
        _ringed,
        inputs=[((TILES, *TILE), "bfloat16")],
        outputs=[_TWO],
        scratch=[
            _tile("bfloat16", SLOTS),
            _tile("float32", 2),
            plgpu.Barrier(num_barriers=SLOTS),
            plgpu.Barrier(num_arrivals=2, num_barriers=SLOTS),
        ],
        groups=3,
    ),
    GpuPrimitive(
        "warpgroups that take turns",
        _turns,
        lambda start: [np.full((2, *TILE), start[0] + sum(range(TILES)))],
        inputs=[((1,), "int32")],
        outputs=[_TWO],
        scratch=[_tile("float32", 2), plgpu.Barrier(num_arrivals=2)],
        groups=2,
    ),
    GpuPrimitive(
        "packed vectors",
        _packed,
        _unpacked,
        inputs=[
            ((1, 1, 3, 2 * ROWS), "float32"),
            ((1, 1, 4, 2 * ROWS), "int32"),
            ((1,), "float32"),
        ],
        outputs=[_FLOAT],
        scratch=[
            plgpu.SMEM((3, ROWS), jnp.float32),
            plgpu.SMEM((4, ROWS), jnp.int32),
            _tile(),
            plgpu.Barrier(num_arrivals=2),
        ],
    ),
    GpuPrimitive(
        "broadcast and reduce",
        _reductions,
        _reduced,
        inputs=[_FLOAT],
        outputs=[_FLOAT, ((3, ROWS), "float32")],
        scratch=[_tile(), _tile(), plgpu.SMEM((3, ROWS), jnp.float32), plgpu.Barrier()],
    ),
    GpuPrimitive(
        "exponentials and logarithms",
        _exponentials,
        _exponentiated,
        inputs=[_FLOAT],
        outputs=[_FLOAT],
        scratch=[_tile(), _tile(), plgpu.Barrier()],
        tolerance=1e-5,
    ),
    GpuPrimitive(
        "set_max_registers",
        _registers,
        lambda source: [np.stack([source, source + 1])],
        inputs=[_HALF],
        outputs=[_TWO],
        scratch=[_tile("bfloat16"), _tile("float32", 2), plgpu.Barrier()],
        groups=3,
    ),
    GpuPrimitive(
        "wgmma, both operands in shared memory",
        _from_shared_memory,
        lambda left, right: [left @ right.T + left @ right],
        inputs=[_HALF, _HALF],
        outputs=[_FLOAT],
        scratch=_OPERANDS,
    ),
    GpuPrimitive(
        "wgmma, left operand in registers",
        _from_registers,
        lambda left, right: [8 * left @ right],
        inputs=[_HALF, _HALF],
        outputs=[_FLOAT],
        scratch=_OPERANDS,
        interpretable=False,
    ),
    GpuPrimitive(
        "wgmma, left operand in registers, accumulator kept",
        _kept_accumulator,
        lambda left, right: [7 * left @ right],
        inputs=[_HALF, _HALF],
        outputs=[_FLOAT],
        scratch=_OPERANDS,
        interpretable=False,
    ),
)
"""Every feature, cheapest first: a later one uses earlier ones."""


def primitive(name: str) -> GpuPrimitive:
    """The primitive of that name."""
    return {each.name: each for each in PRIMITIVES}[name]


def main(words: Sequence[str] | None = None) -> None:
    """`python -m flaxattn.benchmarks.gpu_primitives`."""
    names = [each.name for each in PRIMITIVES]
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", choices=["list", *names], metavar="NAME")
    chosen = parser.parse_args(words).names or names
    if "list" in chosen:
        print("\n".join(names))
        return
    for name in chosen:
        primitive(name).check()
        print(f"{name}: equal to NumPy on {jax.devices()[0].device_kind}")


if __name__ == "__main__":
    main()
