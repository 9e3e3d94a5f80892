# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The forward kernel of Mosaic GPU: output, statistics and maps.

Two warpgroups work on 64 queries each while a third brings keys and values; the two take turns,
one on the tensor cores while the other exponentiates. Captured weights and scores are written in
a second sweep over the keys, when the sums of the rows are final. Which calls come here is decided
in mosaic_gpu.py; the registers' layout and shared memory are in sweep.py.
"""

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array

from flaxattn.kernels import tiles
from flaxattn.kernels.compat import result, transposed
from flaxattn.kernels.fused import Forward
from flaxattn.kernels.plan import Operands, Plan
from flaxattn.kernels.sweep import (
    ROWS,
    SHARED_MEMORY,
    Form,
    Place,
    Sweep,
    aligned,
    tile_memory,
    whole,
    zeros,
)

GROUPS = 2
"""Warpgroups that compute."""

OF_KEYS = ("k", "key_floats", "key_ints", "bias")
"""Inputs that come with a tile of keys; values come by themselves, later."""


class Block(NamedTuple):
    """What the warpgroups of one block of queries share.

    Attributes:
        sweep: sizes of the tiles.
        sources: inputs in global memory.
        buffers: their tiles in shared memory.
        barriers: ``ready`` for what stays, ``full`` and ``free`` of "k" and "v", ``turn``.
        stages: shared memory for results.
        outputs: results in global memory.
        first: place of the first tile.
        last: number of tiles that some query of the block may attend to.
        slots: tiles that shared memory holds.
        group: the warpgroup.
    """

    sweep: Sweep
    sources: Mapping[str, Any]
    buffers: Mapping[str, Any]
    barriers: Mapping[str, Any]
    stages: Mapping[str, Any]
    outputs: Mapping[str, Any]
    first: Place
    last: Any
    slots: int
    group: Any

    def place(self, step: Any) -> Place:
        """Place of the tile of a step."""
        return self.first._replace(key=step * self.sweep.step)

    def of_keys(self) -> list[str]:
        """Inputs that come with a tile of keys."""
        return [name for name in OF_KEYS if name in self.sources]

    def part(self, name: str, slot: Any) -> Any:
        """The warpgroup's part of an input in shared memory."""
        leading = () if name in self.sweep.staying else (slot,)
        leading = (*leading, self.group) if self.sweep.shared(name) else leading
        return self.buffers[name].at[leading] if leading else self.buffers[name]

    def copy(self, name: str, step: Any, slot: Any, barrier: Any) -> None:
        """Starts to bring an input's tile, for every warpgroup that has rows of its own."""
        for own in range(GROUPS if self.sweep.shared(name) else 1):
            target = self._replace(group=own).part(name, slot)
            source = self.sweep.window(name, self.sources[name], self.place(step), own)
            plgpu.copy_gmem_to_smem(source, target, barrier)


def forward(plan: Plan, operands: Operands, interpret: Any = False) -> Forward:
    """Output, statistics and maps in one kernel; the best keys may need one of their own.

    Args:
        plan: of the call.
        operands: of the call.
        interpret: False, or how to interpret.

    Returns:
        See `fused.Forward`.
    """
    plan, best = _parts(plan)
    named = _launch(plan, operands, interpret, output=True)
    if best is not None:
        more = _launch(best, operands, interpret, output=False)
        named["rows"] = jnp.concatenate([named["rows"], more["rows"]], axis=2)
    named["output"] = named["output"][:, : plan.queries]
    for name in ("weights", "scores"):
        if name in named:
            named[name] = named[name][:, :, : plan.queries, : plan.keys]
    return Forward(**named)


def _parts(plan: Plan) -> tuple[Plan, Plan | None]:
    """The plan; or the plan without ``topk`` and one for it, when both need too many registers."""
    best = tuple(name for name in plan.results if name.startswith("topk"))
    rest = plan.results[: len(plan.results) - len(best)]
    alone = rest == ("lse",) and not (plan.weights or plan.scores or plan.dropout)
    if not best or alone:
        return plan, None
    others = replace(plan, results=rest, topk=0)
    nothing = {"sieves": (), "weights": None, "scores": False, "dropout": False}
    return others, replace(plan, results=best, **nothing)


def _launch(plan: Plan, operands: Operands, interpret: Any, output: bool) -> dict[str, Array]:
    """One kernel: its results by name."""
    matrices = ("q", "k", "v") if output else ("q", "k")
    arrays = {name: whole(getattr(operands, name), 1, 8) for name in matrices}
    fields = ("row_ints", "key_floats", "key_ints", "threshold", "keep_scale")
    arrays |= {name: getattr(operands, name) for name in fields}
    if operands.bias is not None:
        arrays["bias"] = aligned(operands.bias)
    arrays = {name: array for name, array in arrays.items() if array is not None}
    sweep = Sweep(plan, False, GROUPS, plan.block_k, ("q", "row_ints"))
    results, stages = _results(plan, arrays), _stages(plan)
    slots = _slots(sweep, arrays, stages)

    def attention_forward(*refs):
        _kernel(sweep, slots, tuple(arrays), tuple(results), tuple(stages), *refs)

    found = plgpu.kernel(
        attention_forward,
        out_type=list(results.values()),
        scratch_types=[
            {name: _buffer(sweep, name, arrays[name], slots) for name in _tiled(arrays)},
            _barriers(sweep, arrays, slots),
            list(stages.values()),
            [plgpu.SMEM((GROUPS, ROWS, plan.block_k), plan.dtype)] if interpret else [],
        ],
        grid=(plan.heads, plan.query_blocks, plan.batch),
        grid_names=("head", "block", "batch"),
        num_threads=GROUPS + 1,
        thread_name="group",
        compiler_params=plgpu.CompilerParams(approx_math=True),
        interpret=interpret,
    )(*arrays.values())
    return dict(zip(results, found, strict=True))


def _results(plan: Plan, arrays: Mapping[str, Array]) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of the results; maps have whole tiles of 8 x 16, as TMA wants them."""
    shape = (plan.batch, plan.heads, arrays["q"].shape[1], -(-plan.keys // 16) * 16)
    rows = (plan.batch, plan.heads, len(plan.results), plan.padded_queries)
    found = {"rows": result(rows, jnp.float32, arrays)}
    if "v" in arrays:
        found["output"] = result(arrays["q"].shape, plan.dtype, arrays)
    if plan.weights:
        found["weights"] = result(shape, plan.weights, arrays)
    if plan.scores:
        found["scores"] = result(shape, jnp.float32, arrays)
    return found


def _stages(plan: Plan) -> dict[str, Any]:
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


def _tiled(arrays: Mapping[str, Array]) -> list[str]:
    """Inputs that come in tiles; the others are numbers that are read where they are."""
    return [name for name in arrays if name not in ("threshold", "keep_scale")]


def _buffer(sweep: Sweep, name: str, array: Array, slots: int) -> Any:
    shape, dtype = sweep.buffer(name, array, slots)
    return tile_memory(shape, dtype, plain=name in ("row_ints", "key_floats", "key_ints"))


def _bytes(memory: Any) -> int:
    size = jnp.dtype(memory.dtype).itemsize
    for length in memory.shape:
        size *= length
    return size


def _slots(sweep: Sweep, arrays: Mapping[str, Array], stages: Mapping[str, Any]) -> int:
    """How many tiles of keys and values fit beside what stays: 2 to 4, 1 if need be."""
    tiled = {name: _bytes(_buffer(sweep, name, arrays[name], 1)) for name in _tiled(arrays)}
    fixed = sum(tiled.pop(name, 0) for name in sweep.staying)
    fixed += sum(_bytes(stage) for stage in stages.values())
    return max(1, min(4, (SHARED_MEMORY - fixed) // sum(tiled.values())))


def _barriers(sweep: Sweep, arrays: Mapping[str, Array], slots: int) -> dict[str, Any]:
    tiled = _tiled(arrays)
    barriers = {
        "ready": plgpu.Barrier(num_arrivals=sweep.copies([n for n in tiled if n in sweep.staying])),
        "turn": plgpu.Barrier(num_arrivals=GROUPS),
    }
    copies = {"k": sweep.copies([n for n in tiled if n in OF_KEYS])}
    if "v" in tiled:
        copies["v"] = 1
    for name, number in copies.items():
        barriers[f"full {name}"] = plgpu.Barrier(num_arrivals=number, num_barriers=slots)
        barriers[f"free {name}"] = plgpu.Barrier(num_arrivals=GROUPS, num_barriers=slots)
    return barriers


def _kernel(sweep: Sweep, slots: int, inputs: Any, results: Any, stages: Any, *refs: Any) -> None:
    """The body of the kernel: a memory warpgroup beside `GROUPS` that compute."""
    plan = sweep.plan
    sources = dict(zip(inputs, refs, strict=False))
    outputs = dict(zip(results, refs[len(inputs) :], strict=False))
    buffers, barriers, staged, registers = refs[len(inputs) + len(results) :]
    query = lax.axis_index("block") * (GROUPS * ROWS)
    last = jnp.int32(plan.key_blocks)
    if plan.causal:
        # reference._allowed: no key after the block's last query.
        seen = lax.div(query + (GROUPS * ROWS + plan.block_k - 1), plan.block_k)
        last = jnp.minimum(last, seen)
    block = Block(
        sweep=sweep,
        sources=sources,
        buffers=buffers,
        barriers=barriers,
        stages=dict(zip(stages, staged, strict=True)),
        outputs=outputs,
        first=Place(lax.axis_index("batch"), lax.axis_index("head"), query, 0),
        last=last,
        slots=slots,
        group=lax.axis_index("group"),
    )

    @pl.when(block.group == GROUPS)
    def _memory():
        plgpu.set_max_registers(48, action="decrease")
        _bring(block)

    @pl.when(block.group < GROUPS)
    def _compute():
        plgpu.set_max_registers(232, action="increase")
        plgpu.barrier_wait(barriers["ready"])
        rows = Form(sweep, block.first, block.group).lazy_vectors(_staying(block), "row")
        total, state = _see_tiles(block, rows, registers[0] if registers else None)
        shift, inverse = _store_rows(block, total, state)
        if plan.weights or plan.scores:
            _write_maps(block, rows, shift, inverse)
        plgpu.wait_smem_to_gmem(0)


def _staying(block: Block) -> dict[str, Any]:
    return {name: block.part(name, None) for name in block.sweep.staying if name in block.sources}


def _bring(block: Block) -> None:
    """Brings the queries, then keys and values tile by tile, then the keys again for maps."""
    barriers, slots = block.barriers, block.slots
    for name in _staying(block):
        block.copy(name, 0, None, barriers["ready"])

    def bring(names: Any, ring: str, step: Any, tile: Any) -> None:
        slot = lax.rem(step, slots)

        @pl.when(step >= slots)
        def _():
            plgpu.barrier_wait(barriers[f"free {ring}"].at[slot])

        for name in names:
            block.copy(name, tile, slot, barriers[f"full {ring}"].at[slot])

    @pl.loop(0, block.last)
    def _(step):
        bring(block.of_keys(), "k", step, step)
        if "v" in block.sources:
            bring(["v"], "v", step, step)

    if block.sweep.plan.weights or block.sweep.plan.scores:

        @pl.loop(0, block.last)
        def _(tile):
            bring(block.of_keys(), "k", block.last + tile, tile)


def _take_turns(block: Block) -> None:
    """Lets the other warpgroup use the tensor cores."""
    plgpu.barrier_arrive(block.barriers["turn"])
    plgpu.barrier_wait(block.barriers["turn"])


def _scores(
    block: Block, rows: Any, step: Any, tile: Any, causal: bool, turns: bool = False
) -> tuple[Any, ...]:
    """reference._scores of a tile of keys, when it has come: (form, scores, key vectors)."""
    plan = replace(block.sweep.plan, causal=causal)
    slot = lax.rem(step, block.slots)
    form = Form(block.sweep, block.place(tile), block.group)
    here = {name: block.part(name, slot) for name in block.of_keys()}
    plgpu.barrier_wait(block.barriers["full k"].at[slot])

    def multiply(accumulator):
        plgpu.wgmma(accumulator, block.part("q", None), transposed(here["k"]))
        if turns:
            _take_turns(block)
        return accumulator[...]

    shape = (ROWS, block.sweep.step)
    score = pl.run_scoped(multiply, plgpu.ACC(shape, jnp.float32))
    if len(here) == 1:
        plgpu.barrier_arrive(block.barriers["free k"].at[slot])
    keys = form.lazy_vectors(here, "key")
    return form, tiles.scores(plan, form, score, rows, keys, form.pairs(here, "bias")), keys


def _free_vectors(block: Block, step: Any) -> None:
    """Gives back the slot of a tile of keys when its vectors have been read into registers."""
    if len(block.of_keys()) > 1:
        # TMA may overwrite what was read: a fence between the two.
        plgpu.commit_smem()
        plgpu.barrier_arrive(block.barriers["free k"].at[lax.rem(step, block.slots)])


def _see_tiles(block: Block, rows: Mapping[str, Any], registers: Any) -> tuple[Any, Any]:
    """The sum of exponentials times values, and the state of the rows, after all tiles."""
    plan, barriers = block.sweep.plan, block.barriers

    def see(causal: bool, step: Any, carried: Any) -> Any:
        total, state = carried
        form, scores, keys = _scores(block, rows, step, step, causal, turns=True)
        # reference._softmax: exponentials; reference._statistics: sums so far.
        state, exponentials, rescale = tiles.advance(plan, form, state, scores, rows, keys)
        _free_vectors(block, step)
        if "v" not in block.sources:
            return total, state
        # reference._output: dropout, and the sum over keys.
        if plan.dropout:
            keep = tiles.keep(form, rows, block.sources["threshold"][0])
            exponentials = jnp.where(keep, exponentials, 0.0)
        total = total * lax.broadcast_in_dim(rescale, total.shape, [0])
        slot = lax.rem(step, block.slots)
        plgpu.barrier_arrive(barriers["turn"])
        plgpu.barrier_wait(barriers["full v"].at[slot])
        plgpu.barrier_wait(barriers["turn"])
        total = _add_values(total, exponentials.astype(plan.dtype), block, slot, registers)
        plgpu.barrier_arrive(barriers["free v"].at[slot])
        return total, state

    form = Form(block.sweep, block.first, block.group)
    carried = (zeros(plan.depth), tiles.start(plan, form))
    pl.when(block.group == 1)(functools.partial(_take_turns, block))
    # Only tiles at the diagonal have masked pairs.
    whole = jnp.int32(0)
    if plan.causal:
        whole = jnp.minimum(block.last, lax.div(block.first.query + 1, plan.block_k))
        carried = lax.fori_loop(0, whole, functools.partial(see, False), carried)
    carried = lax.fori_loop(whole, block.last, functools.partial(see, plan.causal), carried)
    pl.when(block.group == 0)(functools.partial(_take_turns, block))
    return carried


def _add_values(total: Any, weights: Any, block: Block, slot: Any, registers: Any) -> Any:
    """Total + weights · v. Interpreters know no matrices in registers: there it is two steps."""
    v = block.part("v", slot)
    if registers is None:

        def add(accumulator):
            plgpu.wgmma(accumulator, weights, v)

        return pl.run_state(add)(plgpu.ACC.init(total))
    own = registers.at[block.group]
    own[...] = weights
    plgpu.commit_smem()

    def fresh(accumulator):
        plgpu.wgmma(accumulator, own, v)
        return accumulator[...]

    return total + pl.run_scoped(fresh, plgpu.ACC(total.shape, jnp.float32))


def _store_rows(block: Block, total: Any, state: Any) -> tuple[Any, Any]:
    """Stores output and statistics; returns what makes weights of exponentials."""
    plan, stages, place = block.sweep.plan, block.stages, block.first
    shift, inverse, found = tiles.finish(plan, state)
    rows = pl.ds(place.query + block.group * ROWS, ROWS)
    packed = stages["rows"].at[block.group]
    for number, name in enumerate(plan.results):
        packed[number] = found[name]
    if "output" in block.outputs:
        # reference._output: divided by the sum of the row, and by the share that dropout keeps.
        factor = inverse
        if plan.dropout:
            factor = factor * block.sources["keep_scale"][0]
        output = stages["output"].at[block.group] if "output" in stages else block.part("q", None)
        output[...] = (total * lax.broadcast_in_dim(factor, total.shape, [0])).astype(plan.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(output, block.outputs["output"].at[place.batch, rows, place.head])
    plgpu.commit_smem()
    target = block.outputs["rows"].at[place.batch, place.head, slice(None), rows]
    plgpu.copy_smem_to_gmem(packed, target)
    return shift, inverse


def _write_maps(block: Block, rows: Mapping[str, Any], shift: Any, inverse: Any) -> None:
    """The second sweep: scores again, now with the final sums of their rows."""
    plan = block.sweep.plan
    maps = [name for name in ("weights", "scores") if name in block.stages]
    double = len(maps) == 1

    def store(tile: Any, values: Mapping[str, Any]) -> None:
        slot = lax.rem(tile, 2) if double else 0
        # The stage is free when what was in it before has left: all but the last tile, or all.
        plgpu.wait_smem_to_gmem(1 if double else 0, wait_read_only=True)
        place = block.place(tile)
        queries = pl.ds(place.query + block.group * ROWS, ROWS)
        keys = pl.ds(place.key, plan.block_k)
        for name in maps:
            block.stages[name].at[block.group, slot][...] = values[name]
        plgpu.commit_smem()
        for name in maps:
            target = block.outputs[name].at[place.batch, place.head, queries, keys]
            plgpu.copy_smem_to_gmem(block.stages[name].at[block.group, slot], target)

    def write(tile: Any, _: Any) -> None:
        form, scores, _keys = _scores(block, rows, block.last + tile, tile, plan.causal)
        _free_vectors(block, block.last + tile)
        values = {}
        if plan.weights:
            # reference._softmax, reference._in_dtype.
            weights = jnp.exp2(scores - form.rows(shift)) * form.rows(inverse)
            values["weights"] = _in_dtype(weights, plan.weights)
        if plan.scores:
            values["scores"] = scores * tiles.LN2
        store(tile, values)

    lax.fori_loop(0, block.last, write, None)
    if plan.causal:
        masked = zeros(plan.block_k)
        values = {"weights": _in_dtype(masked, plan.weights or "float32")}
        values["scores"] = masked - jnp.inf
        lax.fori_loop(block.last, plan.key_blocks, lambda tile, _: store(tile, values), None)


def _in_dtype(weights: Any, dtype: str) -> Any:
    if dtype == "uint8":
        weights = jnp.round(255.0 * weights).astype(jnp.int32)
    return weights.astype(dtype)
