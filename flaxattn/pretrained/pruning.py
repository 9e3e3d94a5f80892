# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Heads removed from a model for good: its parameters without them, and its configuration.

Numbers of heads stay those of the whole model. `flaxattn.attribution.ablation` finds the heads to
remove.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from flaxattn.errors import InputError
from flaxattn.models.decoder_config import GPT2Config
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.layer_stack import unstacked

Heads = Mapping[int, Iterable[int]] | Iterable[tuple[int, int]]
"""Heads by number: lists by layer, as Hugging Face has them, or pairs (layer, head)."""


def chosen_heads(heads: Heads, layers: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Heads by layer."""
    given = cast(Any, heads)
    by_layer = given.items() if isinstance(heads, Mapping) else [(n, (h,)) for n, h in given]
    pairs = {(int(layer), int(head)) for layer, several in by_layer for head in several}
    for layer, head in sorted(pairs):
        if not (0 <= layer < layers and 0 <= head < count):
            raise InputError(
                f"There is no head {head} in layer {layer}.\nThe model has layers 0 to "
                f"{layers - 1} with heads 0 to {count - 1} each."
            )
    return tuple(tuple(sorted(h for n, h in pairs if n == layer)) for layer in range(layers))


def pruned_config(
    known: tuple[tuple[int, ...], ...], more: tuple[tuple[int, ...], ...], count: int
) -> tuple[tuple[int, ...], ...]:
    """Heads that layers lack when further ones are removed."""
    before = known or ((),) * len(more)
    lacking = tuple(tuple(sorted({*old, *new})) for old, new in zip(before, more, strict=True))
    for layer, heads in enumerate(lacking):
        if len(heads) == count:
            raise InputError(
                f"Layer {layer} would have none of its {count} heads left.\n"
                "Keep one of them, or silence them with head_mask."
            )
    return lacking if any(lacking) else ()


def pruned_parameters(
    params: Any, before: BertConfig | GPT2Config, after: BertConfig | GPT2Config
) -> Any:
    """The parameters of a model that has fewer heads, cut out of those of one that has more."""
    if before.pruned_heads == after.pruned_heads:
        return params
    count = _heads(before)
    lacking = before.pruned_heads or ((),) * len(after.pruned_heads)
    kept = [
        np.array([h not in gone for h in range(count) if h not in had])
        for had, gone in zip(lacking, after.pruned_heads, strict=True)
    ]

    def cut(tree: Any) -> Any:
        if not isinstance(tree, Mapping):
            return tree
        return {name: _layers(p, kept) if name == "layers" else cut(p) for name, p in tree.items()}

    return cut(unstacked(params))


def _layers(layers: tuple[Any, ...], kept: list[np.ndarray]) -> tuple[Any, ...]:
    return tuple(
        {**layer, "attention": _attention(layer["attention"], one)}
        for layer, one in zip(layers, kept, strict=True)
    )


def _attention(params: Mapping[str, Any], kept: np.ndarray) -> dict[str, Any]:
    """One layer's attention, with the heads for which `kept` is true."""

    def columns(array: Array) -> Array:
        width = array.shape[-1]
        by_head = array.reshape(*array.shape[:-1], len(kept), -1)[..., kept, :]
        return by_head.reshape(*array.shape[:-1], width // len(kept) * int(kept.sum()))

    found = {
        name: {part: columns(jnp.asarray(array)) for part, array in params[name].items()}
        for name in ("query", "key", "value")
    }
    output = params["output"]
    return {**found, "output": {**output, "kernel": columns(jnp.asarray(output["kernel"]).T).T}}


def _heads(config: BertConfig | GPT2Config) -> int:
    return config.num_attention_heads if isinstance(config, BertConfig) else config.n_head
