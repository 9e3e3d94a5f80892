# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Flow of information through all layers: attention rollout and attention flow.

After Abnar & Zuidema 2020, "Quantifying Attention Flow in Transformers". Both read the weights of a
whole stack, averaged over heads, with the residual connection as half of every layer.
`flaxattn.attribution.contributions` looks at the heads of one layer.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from flaxattn.errors import InputError, check_arguments
from flaxattn.trace.record import AttentionRecord, layer_weights
from flaxattn.trace.trace import Trace

# Capacities are whole numbers for scipy, whose flows are 32-bit: a flow is at most S of them.
_UNITS = 1 << 24
_LONGEST = 127


@check_arguments()
def rollout(
    trace: Trace,
    sequence: int = 0,
    *,
    head: tuple[int, int] | None = None,
    residual: float = 0.5,
) -> Float[np.ndarray, "L S S"]:
    """Attention rollout of one sequence: shares of every position in what each layer puts out.

    R_l = A_l R_(l-1) with A_l = (1 - r) mean over heads + r I and R_0 = A_0. Costs L products of
    S×S matrices.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> shares = fa.rollout(trace)
    >>> shares.shape, shares[-1].sum(1).round(6).tolist()[:2]
    ((4, 8, 8), [1.0, 1.0])

    Args:
        trace: With the weights of all layers of an encoder, or of a decoder.
        sequence: Number of the sequence in the batch; its padding is left out.
        head: A layer and a head: that layer attends with this head alone, without residual, to
            what the layers below it gave; layers above are left out.
        residual: r, the share of the residual connection.

    Returns:
        float64; entry [l, i, j] is the share of input j in position i after layer l. Rows sum to 1.
        With `head`, the last entry is that of the head.

    Raises:
        InputError: If the trace lacks weights or layers, or there is no such head or sequence.
    """
    weights, record = _weights(trace, sequence)
    mixed = _mixed(weights.mean(1), residual)
    if head is not None:
        layer, number = _place(record, head)
        mixed = np.concatenate([mixed[:layer], weights[layer, number][None]])
    return rolled_out(mixed)


def rolled_out(mixed: Float[np.ndarray, "L S S"]) -> Float[np.ndarray, "L S S"]:
    """Products of matrices from the first layer up: the last one of entry l is that of layer l."""
    found = [np.asarray(mixed[0], np.float64)]
    for layer in mixed[1:]:
        found.append(layer @ found[-1])
    return np.stack(found)


@check_arguments()
def attention_flow(
    trace: Trace,
    sequence: int = 0,
    *,
    positions: Sequence[int] | None = None,
    layer: int | None = None,
    residual: float = 0.5,
) -> Float[np.ndarray, "P S"]:
    """Attention flow of one sequence: the largest flow from a position down to each input.

    Layers are a network: position i of layer l is joined to position j of the layer below with the
    capacity A_l[i, j] of `rollout`. A flow is bounded by every cut: it is at most 1, what leaves a
    position. Capacities are rounded to multiples of 2^-24.

    One maximum flow for every pair of positions, by scipy: 32 tokens through 12 layers take about
    a second, and it grows with about the fourth power of S; ask for few positions of long texts.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> fa.attention_flow(trace, positions=[2]).shape
    (1, 8)

    Args:
        trace: With the weights of all layers of an encoder, or of a decoder.
        sequence: Number of the sequence in the batch; its padding is left out.
        positions: From which the flow comes; default all S.
        layer: Number of the layer where it begins; default the last.
        residual: Share of the residual connection.

    Returns:
        float64, a row for each of P positions, a column for each input.

    Raises:
        InputError: If the trace lacks weights or layers, there is no such layer, position or
            sequence, or the text is longer than 127 tokens.
    """
    weights, record = _weights(trace, sequence)
    if layer is not None and layer not in record.layers:
        raise InputError(
            f"There is no layer {layer}.\nThere are layers {', '.join(map(str, record.layers))}."
        )
    top = len(weights) if layer is None else layer + 1
    return largest_flows(_mixed(weights.mean(1), residual)[:top], positions)


def largest_flows(
    mixed: Float[np.ndarray, "L S S"], positions: Sequence[int] | None = None
) -> Float[np.ndarray, "P S"]:
    """Largest flow from positions above the last layer to inputs below the first."""
    layers, length = mixed.shape[:2]
    if length > _LONGEST:
        raise InputError(
            f"Attention flow of {length} positions would take hours; the limit is {_LONGEST}.\n"
            "Take shorter texts, or attention rollout."
        )
    wanted = list(range(length)) if positions is None else list(positions)
    if wrong := [place for place in wanted if not 0 <= place < length]:
        raise InputError(
            f"There is no position {wrong[0]}.\nThe text has positions 0 to {length - 1}."
        )
    network = _network(mixed)
    flows = [
        [maximum_flow(network, layers * length + place, j).flow_value for j in range(length)]
        for place in wanted
    ]
    return np.array(flows, np.float64).reshape(len(wanted), length) / _UNITS


def _network(mixed: Float[np.ndarray, "L S S"]) -> csr_array:
    """Capacities between nodes: number l S + i is position i below layer l."""
    layers, length = mixed.shape[:2]
    layer, query, key = np.nonzero(mixed > 0)
    capacities = np.round(mixed[layer, query, key] * _UNITS).astype(np.int32)
    above, below = (layer + 1) * length + query, layer * length + key
    size = (layers + 1) * length
    return csr_array((capacities, (above, below)), shape=(size, size))


def _mixed(means: Float[np.ndarray, "L S S"], residual: float) -> Float[np.ndarray, "L S S"]:
    """Rows that sum to one, with the residual as their share."""
    if not 0 <= residual <= 1:
        raise InputError(f"residual is {residual}, expected a share between 0 and 1.")
    return (1 - residual) * means + residual * np.eye(means.shape[-1])[None]


def _weights(trace: Trace, sequence: int) -> tuple[Float[np.ndarray, "L H S S"], AttentionRecord]:
    """Weights of a whole stack, of one sequence without padding; rows sum to one."""
    one = trace[sequence] if trace.tokens else trace
    record = one.encoder or one.decoder
    if record is None or record.weights is None:
        raise InputError(
            "Attention is followed through its weights; this trace holds none of self-attention.\n"
            "Ask for them: capture=Capture(weights=True)."
        )
    record.require_whole("Attention through layers")
    if record.layers != tuple(range(len(record.layers))):
        raise InputError(
            f"Attention is followed through all layers; this trace holds layers "
            f"{', '.join(map(str, record.layers))}.\nCapture without `layers`."
        )
    place = 0 if trace.tokens else trace.place(sequence)
    weights = layer_weights(record, record.layers, place).astype(np.float64)
    total = weights.sum(-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0), record


def _place(record: AttentionRecord, head: tuple[int, int]) -> tuple[int, int]:
    layer, number = head
    if layer not in record.layers or number not in record.heads:
        raise InputError(
            f"There is no head {number} in layer {layer}.\nThere are layers "
            f"{', '.join(map(str, record.layers))} with heads {', '.join(map(str, record.heads))}."
        )
    return record.layers.index(layer), record.heads.index(number)
