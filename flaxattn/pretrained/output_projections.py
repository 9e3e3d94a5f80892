# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Output projections of a model's layers, by head.

Measures in `flaxattn.attribution.contributions` need them beside a trace; they never see the model.
"""

from typing import Any

import numpy as np
from flax import traverse_util
from jaxtyping import Float

from flaxattn.pretrained.pretrained_model import Pretrained

_NAMES = {"attention/output/kernel": "", "cross_attention/output/kernel": "cross"}
_SIDES = {"head_mask": "", "decoder_head_mask": "decoder", "cross_attn_head_mask": "cross"}


def output_projections(model: Pretrained) -> dict[str, Float[np.ndarray, "L H D E"]]:
    """The rows of every layer's output projection that each head is multiplied with.

    Args:
        model: Any with multi-head attention.

    Returns:
        float32 by side of a trace: `encoder`, `decoder`, `cross`. Zero for a head that was pruned,
        as its values are in a trace. Empty for a model without heads.
    """
    found = {}
    kernel: Any
    for path, kernel in traverse_util.flatten_dict(dict(model.params), sep="/").items():
        before, layers, name = path.partition("/layers")
        if layers and isinstance(kernel, tuple):
            flat = [traverse_util.flatten_dict(layer, sep="/") for layer in kernel]
            rows = {name: [layer[name] for layer in flat] for name in _NAMES if name in flat[0]}
        else:
            rows = {name[1:]: list(kernel)} if name[1:] in _NAMES else {}
        for attention, kernels in rows.items():
            side = _NAMES[attention] or before.split("/")[-1]
            if len(kernels) == 1:  # of a layer, or of all of them
                kernels = kernels * _layers(model, side)
            found[side] = _by_head(kernels, _pruned(model), _heads(model, side))
    return found


def _layers(model: Pretrained, side: str) -> int:
    """L of a side."""
    return _size(model, side)[0]


def _heads(model: Pretrained, side: str) -> int:
    """H of a side."""
    return _size(model, side)[1]


def _size(model: Pretrained, side: str) -> tuple[int, int]:
    sizes = {_SIDES[name] or "encoder": size for name, size in model.masks().items()}
    sizes = {"decoder": sizes["encoder"], **sizes}  # a decoder alone has the first mask
    return sizes[side]


def _pruned(model: Pretrained) -> tuple[tuple[int, ...], ...]:
    return getattr(model.config, "pruned_heads", ())


def _by_head(
    kernels: list[Any], pruned: tuple[tuple[int, ...], ...], heads: int
) -> Float[np.ndarray, "L H D E"]:
    depth = np.shape(kernels[0])[0] // (heads - len(pruned[0] if pruned else ()))
    found = np.zeros((len(kernels), heads, depth, np.shape(kernels[0])[1]), np.float32)
    for number, kernel in enumerate(kernels):
        gone = pruned[number] if pruned else ()
        kept = [head for head in range(heads) if head not in gone]
        found[number, kept] = np.asarray(kernel).reshape(len(kept), depth, -1)
    return found
