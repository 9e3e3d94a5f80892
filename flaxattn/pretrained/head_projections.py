# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Projections of a model's attention, by layer and head: queries, keys, values, outputs.

Measures in `flaxattn.attribution` need them beside a trace, or alone; they never see how a family
lays its parameters out.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from flax import traverse_util
from jaxtyping import Bool, Float

from flaxattn.errors import check_arguments
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.record import SIDES

_SIDES = {"head_mask": "", "decoder_head_mask": "decoder", "cross_attn_head_mask": "cross"}


class HeadProjections(NamedTuple):
    """Projections of one side by head, float32; G heads of keys and values serve H / G heads each.

    Rows are multiplied from the left: a query is `x @ query[l, h] + query_bias[l, h]`, and head h
    adds `weighted_values @ output[l, h]`. All are 0 for a head that was pruned.

    Attributes:
        query: Kernels of queries.
        key: Kernels of keys.
        value: Kernels of values.
        output: Rows of the output projection.
        query_bias: 0 where the model has none, like the other.
        key_bias: Bias of keys.
        value_bias: Bias of values.
        present: False for a head that was pruned.
    """

    query: Float[np.ndarray, "L H E D"]
    key: Float[np.ndarray, "L G E D"]
    value: Float[np.ndarray, "L G E D"]
    output: Float[np.ndarray, "L H D E"]
    query_bias: Float[np.ndarray, "L H D"]
    key_bias: Float[np.ndarray, "L G D"]
    value_bias: Float[np.ndarray, "L G D"]
    present: Bool[np.ndarray, "L H"]


@check_arguments()
def head_projections(model: Pretrained) -> dict[str, HeadProjections]:
    """Projections of every head of a model, by side: W_Q, W_K, W_V and the rows of W_O.

    Cost: a float32 copy of the attention's parameters in the host's memory.

    >>> import flaxattn as fa
    >>> fa.head_projections(fa.from_pretrained("tiny-bert"))["encoder"].query.shape  # L H E D
    (4, 4, 256, 64)

    Args:
        model: Any with multi-head attention.

    Returns:
        By side of a trace: `encoder`, `decoder`, `cross`. Layers that share their parameters are
        repeated. Empty for a model without heads.

    Raises:
        InputError: If `model` is not a `Pretrained`.
    """
    return {
        side: HeadProjections(
            query=_kernels(layers, "query", model, side),
            key=_kernels(layers, "key", model, side),
            value=_kernels(layers, "value", model, side),
            output=_outputs(layers, model, side),
            query_bias=_biases(layers, "query", model, side),
            key_bias=_biases(layers, "key", model, side),
            value_bias=_biases(layers, "value", model, side),
            present=_present(model, side),
        )
        for side, layers in _by_side(model).items()
    }


def output_projections(model: Pretrained) -> dict[str, Float[np.ndarray, "L H D E"]]:
    """The rows of every layer's output projection that each head is multiplied with."""
    return {side: _outputs(layers, model, side) for side, layers in _by_side(model).items()}


def layer_parameters(model: Pretrained) -> dict[str, list[dict[str, np.ndarray]]]:
    """Parameters of attention and its norms per layer, by path (`attention/key/kernel`)."""
    stacks: dict[str, list[dict[str, np.ndarray]]] = {}
    leaf: Any
    for path, leaf in traverse_util.flatten_dict(dict(model.params), sep="/").items():
        before, inside, name = path.partition("/layers")
        if not inside:
            continue
        if isinstance(leaf, tuple):
            flat = [traverse_util.flatten_dict(layer, sep="/") for layer in leaf]
            rows = [{n: np.asarray(a) for n, a in one.items() if "attention" in n} for one in flat]
        elif "attention" in name:
            rows = [{name[1:]: array} for array in np.asarray(leaf)]
        else:
            continue
        layers = stacks.setdefault(before.split("/")[-1], [{} for _ in rows])
        for layer, row in zip(layers, rows, strict=True):
            layer |= row
    return stacks


def parameters_below(layer: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """Parameters of one module of a layer, by the rest of their path; empty where there is none."""
    kind = f"{name}/"
    return {path.removeprefix(kind): a for path, a in layer.items() if path.startswith(kind)}


def _by_side(model: Pretrained) -> dict[str, list[dict[str, np.ndarray]]]:
    """Parameters of each kind of attention by layer, L of them also where they are shared."""
    sides: dict[str, list[dict[str, np.ndarray]]] = {}
    for stack, layers in layer_parameters(model).items():
        for kind, side in (("attention", stack), ("cross_attention", "cross")):
            own = [parameters_below(layer, kind) for layer in layers]
            if own and "output/kernel" in own[0]:
                shared = len(own) == 1  # by all layers, or there is no other
                sides[side] = own * _size(model, side)[0] if shared else own
    return {side: sides[side] for side in SIDES if side in sides}


def _size(model: Pretrained, side: str) -> tuple[int, int]:
    """L and H of a side."""
    sizes = {_SIDES[name] or "encoder": size for name, size in model.masks().items()}
    sizes = {"decoder": sizes["encoder"], **sizes}  # a decoder alone has the first mask
    return sizes[side]


def _present(model: Pretrained, side: str) -> Bool[np.ndarray, "L H"]:
    present = np.ones(_size(model, side), bool)
    for layer, gone in enumerate(getattr(model.config, "pruned_heads", ())):
        present[layer, list(gone)] = False
    return present


def _depth(layer: dict[str, np.ndarray], present: Bool[np.ndarray, " H"]) -> int:
    """D, depth of a head."""
    return layer["output/kernel"].shape[0] // int(present.sum())


def _outputs(
    layers: Sequence[dict[str, np.ndarray]], model: Pretrained, side: str
) -> Float[np.ndarray, "L H D E"]:
    present = _present(model, side)
    depth, width = _depth(layers[0], present[0]), layers[0]["output/kernel"].shape[1]
    rows = np.zeros((*present.shape, depth, width), np.float32)
    for layer, kept, place in zip(layers, present, rows, strict=True):
        place[kept] = layer["output/kernel"].reshape(-1, depth, width)
    return rows


def _kernels(
    layers: Sequence[dict[str, np.ndarray]], name: str, model: Pretrained, side: str
) -> Float[np.ndarray, "L N E D"]:
    """Kernels of queries, keys or values, which N heads have."""
    present = _present(model, side)
    depth, (width, size) = _depth(layers[0], present[0]), layers[0][f"{name}/kernel"].shape
    kept = _kept(present, size // depth)
    kernels = np.zeros((*kept.shape, width, depth), np.float32)
    for layer, chosen, place in zip(layers, kept, kernels, strict=True):
        place[chosen] = np.moveaxis(layer[f"{name}/kernel"].reshape(width, -1, depth), 1, 0)
    return kernels


def _biases(
    layers: Sequence[dict[str, np.ndarray]], name: str, model: Pretrained, side: str
) -> Float[np.ndarray, "L N D"]:
    present = _present(model, side)
    depth = _depth(layers[0], present[0])
    kept = _kept(present, layers[0][f"{name}/kernel"].shape[1] // depth)
    biases = np.zeros((*kept.shape, depth), np.float32)
    for number, layer in enumerate(layers):
        if f"{name}/bias" in layer:
            biases[number, kept[number]] = layer[f"{name}/bias"].reshape(-1, depth)
    return biases


def _kept(present: Bool[np.ndarray, "L H"], heads: int) -> Bool[np.ndarray, "L N"]:
    """Heads of a projection that there are; no model has both shared and pruned heads."""
    shared = heads < int(present[0].sum())
    return np.ones((len(present), heads), bool) if shared else present
