# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One block applied L times over parameters stacked on a leading layer axis, and what has stacks.

A scan emits the same for every layer, so the stack is scanned in segments: layers whose attention
was requested record it, the others never compute it. This file does not know what a block does.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.core
import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Float

from flaxattn.errors import InputError
from flaxattn.kernels.contract import NOTHING, Capture
from flaxattn.models.interventions import (
    Intervention,
    changed,
    check_layers,
    edits_of_layer,
    is_recorded,
)
from flaxattn.models.layers import record, recording
from flaxattn.trace.record import AttentionRecord, as_captured, joined_layers, with_hidden


@jax.jit
def unstacked(params: Any) -> Any:
    """Parameters with unstacked layers: a tuple in place of a leading axis.

    For a program that runs a stack many times, as generation and extraction do: a layer taken out
    of a stacked array is copied each time, and all layers of a scan are alike, so nothing is left
    out of the last. Costs a copy of the layers' parameters, unless they are unstacked already.
    """
    if not isinstance(params, Mapping):
        return params
    return {
        name: unstack(tree) if name == "layers" else unstacked(tree)
        for name, tree in params.items()
    }


def unstack(layers: Any) -> tuple[Any, ...]:
    """Return a tree of parameters per layer, from stacked or unstacked ones."""
    if isinstance(layers, tuple):
        return layers
    count = jax.tree.leaves(layers)[0].shape[0]
    return tuple(jax.tree.map(lambda p, i=i: p[i], layers) for i in range(count))


class UnstackedLayers:
    """The `unstacked` parameters of the last model requested, kept for the next call.

    Memory: the layers' parameters a second time, as long as this lives.
    """

    def __init__(self) -> None:
        self._params: Any = None
        self._made_of = jax.tree.flatten(None)

    def of(self, params: Any) -> Any:
        """Return the `unstacked` parameters; made anew when an array of `params` is another one.

        NumPy arrays can change in place, so parameters with any are unstacked at every call.
        """
        leaves, structure = jax.tree.flatten(params)
        old, before = self._made_of
        fixed = structure == before and all(isinstance(leaf, jax.Array) for leaf in leaves)
        if not fixed or any(a is not b for a, b in zip(old, leaves, strict=True)):
            self._params = unstacked(params)
            self._made_of = leaves, structure
        return self._params


class Stack(nn.Module):
    """`num_layers` blocks, one after the other.

    Parameters live under `layers`, as the block's own tree with a leading axis L. Every block draws
    its dropout from the stack's rng folded with its layer number, so a capture request for some
    layers changes no mask.

    Where the collection `cache` is mutable, `layers` there is a tuple with what each block keeps.
    Blocks that read it are laid out one by one; their parameters may be such a tuple too, see
    `unstacked`.

    Attributes:
        block: Block class, built as `block(config, dtype=, capture=, implementation=)`.
        config: Handed to the block.
        num_layers: L.
        dtype: Computation dtype.
        capture: What to record; `capture.layers` says where.
        implementation: Name of the attention kernel; None chooses.
        remat: Whether the backward pass recomputes each block instead of keeping its activations.
        unroll: Blocks laid out per scan iteration; True for all. Compiles longer, runs faster.
            With `remat` blocks are always scanned.
        options: Further attributes of a block.
        variants: Attributes that differ from block to block, by layer; empty where all are alike.
        shared: Whether all blocks have the same parameters; their leading axis is 1 then.
        uneven: Whether the blocks' parameters differ in shape, too; then they are a tuple with the
            tree of each block, and blocks are laid out one by one.
    """

    block: type[nn.Module]
    config: Any
    num_layers: int
    dtype: Dtype = jnp.float32
    capture: Capture = NOTHING
    implementation: str | None = None
    remat: bool = False
    unroll: int | bool = 1
    options: Mapping[str, Any] = flax.core.FrozenDict()
    variants: tuple[Mapping[str, Any], ...] = ()
    uneven: bool = False
    shared: bool = False

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B S E"],
        *,
        deterministic: bool = True,
        keep_hidden: bool = False,
        by_layer: Mapping[str, Array | None] = flax.core.FrozenDict(),
        **inputs: Any,
    ) -> tuple[Float[Array, "B S E"], Float[Array, "L B S E"] | None]:
        """Run all blocks.

        Returns:
            The last block's output, and all blocks' outputs or None.
        """
        blocks = self._blocks()
        given = {name: array for name, array in by_layer.items() if array is not None}
        ends: list[Array] = []

        def init(rng: Array) -> Any:
            rngs = jax.random.split(rng, self.num_layers)
            if self.uneven:
                pairs = zip(blocks, rngs, strict=True)
                return tuple(b.init(r, x, **inputs)["params"] for b, r in pairs)
            rngs = rngs[:1] if self.shared else rngs
            end, made = jax.lax.scan(first, x, rngs)
            ends.append(end)
            return made

        def first(x: Array, rng: Array) -> tuple[Array, Any]:
            output, variables = blocks[0].init_with_output(rng, x, **inputs)
            return output, variables["params"]

        params = self.get_variable("params", "layers")
        caching = self.is_mutable_collection("cache") and not self.is_initializing()
        watching = self.is_mutable_collection("sites") and not self.is_initializing()
        if params is not None:  # their other axes are checked by the blocks
            self._check_layers(params)
        else:
            params = self.param("layers", init)
            alike = len(set(blocks)) == 1 and not (self.shared or given or keep_hidden)
            if ends and alike and deterministic and self.capture == NOTHING:
                return ends[0], None
        dropout = None if deterministic else self.make_rng("dropout")

        def apply(x: Array, layer: Any, block: nn.Module, segment: _Segment) -> Any:
            weights, number, cache, own, differing = layer
            rngs = None if dropout is None else {"dropout": jax.random.fold_in(dropout, number)}
            edits = edits_of_layer(list(zip(segment.interventions, differing, strict=True)))
            of_layer, wanted = edits.pop("layer", {}), segment.wanted
            before, behind = (of_layer.get(f"layer_{end}", ()) for end in ("input", "output"))
            entered = changed(before, x)
            x, state = block.apply(
                {"params": weights}
                | ({"cache": cache} if cache else {})
                | ({"interventions": edits} if edits else {}),
                entered,
                deterministic=deterministic,
                rngs=rngs,
                mutable=["intermediates"] * wanted + ["cache"] * caching + ["sites"] * watching,
                **inputs,
                **own,
            )
            x = changed(behind, x)
            recorded, cache = state.get("intermediates", {}), state.get("cache", {})
            if wanted and self.capture.hidden:
                recorded = with_hidden(recorded, as_captured(x, self.capture))
            ends = {"layer_input": (before, entered), "layer_output": (behind, x)}
            ends = {site: array for site, (edits, array) in ends.items() if is_recorded(edits)}
            inside: Any = state.get("sites", {})
            sites = {**inside, **({"layer": ends} if ends else {})}
            kept = {"hidden": x} if keep_hidden else {}
            return x, (recorded, kept | ({"sites": sites} if watching else {}), cache)

        alone = isinstance(params, tuple) or (
            caching and (self.has_variable("cache", "layers") or len(set(blocks)) > 1)
        )
        run = self._one_by_one if alone else self._scanned
        x, records, parts = run(apply, x, params, given)
        if records:
            record(self, "layers", _join(records, self._chosen()))
        kept = jax.tree.map(_concatenate, *parts)
        if watching:
            self.put_variable("sites", "layers", kept["sites"])
        return x, kept.get("hidden")

    def _check_layers(self, params: Any) -> None:
        """Refuse parameters of another number of layers."""
        count = 1 if self.shared else self.num_layers
        if isinstance(params, tuple):
            found = {len(params)}
        else:
            found = {leaf.shape[0] for leaf in jax.tree.leaves(params)}
        if wrong := found - {count}:
            raise InputError(
                f"The parameters are those of {wrong.pop()} layers, the model has {count}.\n"
                "Use the configuration that they were made with."
            )

    def _blocks(self) -> list[nn.Module]:
        """The block of every layer; those with the same attributes are equal."""
        block = self.block(
            self.config,
            dtype=self.dtype,
            capture=dataclasses.replace(self.capture, layers=None),
            implementation=self.implementation,
            parent=None,
            **self.options,
        )
        return [block.clone(**own) for own in self.variants] or [block] * self.num_layers

    def _scanned(self, apply: Callable[..., Any], x: Array, params: Any, given: Any) -> Any:
        """Output, records and what is kept of the blocks, by segments."""
        caching = self.is_mutable_collection("cache") and not self.is_initializing()
        blocks = self._blocks()
        records, parts, caches = [], [], []
        for segment in self._segments(blocks):
            start, stop = segment.start, segment.stop
            # Only the loop of a scan keeps every XLA from merging forward and recomputation.
            unroll = 1 if self.remat else self.unroll
            body = _one_of(blocks[start:stop], functools.partial(apply, segment=segment), start)
            own = params
            if self.shared:  # the same for every step of the scan, which sums up its gradient
                body, own = _with_parameters(body, jax.tree.map(lambda p: p[0], params)), None
            body = jax.checkpoint(body, prevent_cse=False) if self.remat else body
            layers = (own, jnp.arange(self.num_layers), {}, given)
            part = jax.tree.map(lambda p, a=start, b=stop: p[a:b], layers)
            part = (*part, segment.differing(self.num_layers))
            x, (recorded, kept, cache) = jax.lax.scan(body, x, part, unroll=unroll)
            records += [recorded] if segment.wanted else []
            parts += [kept]
            caches += unstack(cache) if caching and cache else []
        if caches:
            self.put_variable("cache", "layers", tuple(caches))
        return x, records, parts

    def _one_by_one(self, apply: Callable[..., Any], x: Array, params: Any, given: Any) -> Any:
        """Run each block by itself, with its own cache and heads; returns what `_scanned` does."""
        caching = self.is_mutable_collection("cache")
        caches = self.get_variable("cache", "layers") or ({},) * self.num_layers
        layers = unstack(params)
        layers = layers * self.num_layers if self.shared else layers
        blocks = self._blocks()
        records, parts, kept = [], [], []
        for segment in self._segments(blocks):
            differing = segment.differing(self.num_layers)
            for number in range(segment.start, segment.stop):
                own = {name: array[number] for name, array in given.items()}
                cache = caches[number] if caching else {}
                edits = jax.tree.map(lambda a, n=number - segment.start: a[n], differing)
                layer = (layers[number], number, cache, own, edits)
                body = functools.partial(apply, block=blocks[number], segment=segment)
                body = jax.checkpoint(body) if self.remat else body
                x, (recorded, part, cache) = body(x, layer)
                records += [jax.tree.map(lambda a: a[None], recorded)] if segment.wanted else []
                parts += [jax.tree.map(lambda a: a[None], part)]
                kept += [cache]
        if caching and kept[0]:
            self.put_variable("cache", "layers", tuple(kept))
        return x, records, parts

    def _chosen(self) -> tuple[int, ...]:
        everything = tuple(range(self.num_layers))
        chosen = everything if self.capture.layers is None else self.capture.layers
        if unknown := sorted(set(chosen) - set(everything)):
            raise ValueError(
                f"capture.layers names {unknown}, but the model has layers 0 to "
                f"{self.num_layers - 1}.\nLayers are counted from 0."
            )
        return tuple(sorted(chosen))

    def _segments(self, blocks: list[nn.Module]) -> list["_Segment"]:
        """Runs of layers that are recorded, or not, as one and have the same interventions.

        Recorded ones are alike: what a kernel returns names the kernel, which may differ.
        """
        requested = recording(self) and dataclasses.replace(self.capture, layers=None) != NOTHING
        chosen = self._chosen() if requested else ()
        interventions = self.get_variable("interventions", "layers", ())
        check_layers(interventions, self.num_layers, self.is_mutable_collection("cache"))
        runs = [
            (
                blocks[n] if n in chosen else None,
                tuple(i for i, one in enumerate(interventions) if one.at_layer(n)),
            )
            for n in range(self.num_layers)
        ]
        ends = list(itertools.accumulate(len(list(g)) for _, g in itertools.groupby(runs)))
        pairs = zip([0, *ends], ends, strict=False)
        return [
            _Segment(a, b, runs[a][0] is not None, tuple(interventions[i] for i in runs[a][1]))
            for a, b in pairs
        ]


class _Segment(NamedTuple):
    """Layers `start` to `stop - 1`, which are recorded or not, and changed alike."""

    start: int
    stop: int
    wanted: bool
    interventions: tuple[Intervention, ...]

    def differing(self, layers: int) -> tuple[dict[str, Array], ...]:
        """The arrays of each intervention that differ from layer to layer."""
        return tuple(one.of_layers(self.start, self.stop, layers) for one in self.interventions)


def _with_parameters(body: Callable[[Array, Any], Any], params: Any) -> Callable[[Array, Any], Any]:
    """The body of a scan with the same parameters in every step."""
    return lambda x, layer: body(x, (params, *layer[1:]))


def _one_of(
    blocks: list[nn.Module], apply: Callable[..., Any], start: int
) -> Callable[[Array, Any], Any]:
    """The body of a scan over blocks of several kinds, each of which is compiled once."""
    kinds = list(dict.fromkeys(blocks))
    bodies = [functools.partial(apply, block=block) for block in kinds]
    if len(bodies) == 1:
        return bodies[0]
    kind = jnp.array([kinds.index(block) for block in blocks])
    return lambda x, layer: jax.lax.switch(kind[layer[1] - start], bodies, x, layer)


class Model(nn.Module):
    """Attributes that every model has.

    Attributes:
        config: Shape and settings.
        dtype: Computation dtype; parameters stay float32.
        capture: What attention records when `intermediates` is mutable.
        implementation: Name of the attention kernel; None chooses.
        keep_hidden: Whether `hidden_states` is returned.
        remat: Whether the backward pass recomputes layers instead of keeping their activations.
        unroll: Layers laid out per scan iteration; True for all; always one with `remat`.
    """

    config: Any
    dtype: Dtype = jnp.float32
    capture: Capture = Capture(weights=True)
    implementation: str | None = None
    keep_hidden: bool = False
    remat: bool = False
    unroll: int | bool = 1

    def settings(self) -> dict[str, Any]:
        """The attributes above, for a model inside this one."""
        names = ("config", "dtype", "capture", "implementation", "keep_hidden", "remat", "unroll")
        return {name: getattr(self, name) for name in names}

    def stack(
        self,
        block: type[nn.Module],
        num_layers: int,
        name: str | None = None,
        pruned: tuple[tuple[int, ...], ...] = (),
        variants: Sequence[Mapping[str, Any]] = (),
        shared: bool = False,
        **options: Any,
    ) -> Stack:
        """Blocks with this model's settings."""
        if pruned:
            rows = variants or [{}] * num_layers
            variants = [{**row, "pruned": heads} for row, heads in zip(rows, pruned, strict=True)]
        return Stack(
            block,
            self.config,
            num_layers,
            dtype=self.dtype,
            capture=self.capture,
            implementation=self.implementation,
            remat=self.remat,
            unroll=self.unroll,
            options=flax.core.FrozenDict(options),
            variants=tuple(flax.core.FrozenDict(own) for own in variants),
            uneven=any(pruned),
            shared=shared,
            name=name,
        )


def masks_of_heads(
    head_mask: Float[Array, " H"] | Float[Array, "L H"] | Float[Array, "L B H"] | None,
    layers: int,
    heads: int,
    name: str = "head_mask",
) -> Float[Array, "L H"] | Float[Array, "L B H"] | None:
    """Factors on the output of every head: those of one layer are meant for all."""
    if head_mask is None:
        return None
    mask = jnp.asarray(head_mask, jnp.float32)
    mask = jnp.broadcast_to(mask[None], (layers, *mask.shape)) if mask.ndim == 1 else mask
    if mask.ndim not in (2, 3) or mask.shape[0] != layers or mask.shape[-1] != heads:
        raise InputError(
            f"{name}: expected shape [H], [L, H] or [L, B, H] with L = {layers} layers and H = "
            f"{heads} heads, received {list(jnp.shape(head_mask))}.\n"
            "1 leaves a head as it is, 0 silences it."
        )
    return mask


def hidden_states(
    embedded: Float[Array, "B S E"],
    hidden: Float[Array, "L B S E"] | None,
    last: Float[Array, "B S E"],
) -> tuple[Float[Array, "B S E"], ...] | None:
    """Embeddings and layer outputs, the last one as it leaves the model, as Hugging Face has it."""
    return None if hidden is None else (embedded, *hidden[:-1], last)


def _concatenate(*parts: Array) -> Array:
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)


def _join(recorded: list[Any], layers: tuple[int, ...]) -> Any:
    """Concatenate the segments' records and write the layer numbers on each `AttentionRecord`."""
    trees = [jax.tree.flatten(tree, is_leaf=_is_record) for tree in recorded]
    parts = zip(*(leaves for leaves, _ in trees), strict=True)
    joined = [
        joined_layers(part, layers) if _is_record(part[0]) else _concatenate(*part)
        for part in parts
    ]
    return jax.tree.unflatten(trees[0][1], joined)


def _is_record(leaf: Any) -> bool:
    return isinstance(leaf, AttentionRecord)
