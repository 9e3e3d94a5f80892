# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Preference of heads for near positions, from weights: attention where positions are all there is.

A head reads rows of the table of positions in place of the residual stream, through the norms that
it has, and their scores go through a softmax. Where a bias by distance is added to scores (T5,
MPNet), it takes part; a T5 has nothing else.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from flaxattn.attribution.circuit_weights import (
    embedding_norm,
    projected,
    reading_norms,
    root,
)
from flaxattn.errors import InputError
from flaxattn.models.bert_config import BertConfig
from flaxattn.models.bert_layers import RelativeBias
from flaxattn.models.relative_positions import relative_bias
from flaxattn.models.t5_config import T5Config
from flaxattn.pretrained.head_projections import HeadProjections
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq


def position_preference(
    model: Pretrained, side: str, heads: HeadProjections, count: int = 256
) -> Float[np.ndarray, "L H 3"] | None:
    """Mean attention on the positions at -1, 0 and +1 of a query that reads positions alone.

    Costs a square of `count` positions for each head.
    """
    if side == "cross":
        return None
    table = _table(model, side)
    count = count if table is None else min(count, len(table))
    biases = _biases(model, side, count)
    if table is None and biases is None:
        return None
    shares = np.full((*heads.present.shape, 3), np.nan)
    norms = reading_norms(model, side)
    norms = norms * len(shares) if len(norms) == 1 else norms
    shared = heads.query.shape[1] // heads.key.shape[1]
    for layer, head in np.argwhere(heads.present).tolist():
        scores = 0.0 if biases is None else biases[min(layer, len(biases) - 1), head]
        if table is not None:
            norm, group = norms[layer], head // shared
            x = table[:count] if norm is None else norm.applied(table[:count])
            query = x @ heads.query[layer, head] + heads.query_bias[layer, head]
            key = x @ heads.key[layer, group] + heads.key_bias[layer, group]
            scores = scores + query @ key.T * _scale(model, heads)
        shares[layer, head] = _near(np.asarray(scores), causal=side == "decoder")
    return shares


def _near(scores: Float[np.ndarray, "N N"], causal: bool) -> list[float]:
    """Mean share of the softmax below, on and above the diagonal."""
    if causal:
        scores = np.where(np.tri(len(scores), dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    diagonals = [np.diagonal(weights, offset) for offset in (-1, 0, 1)]
    seen = [a.size > 0 and not (causal and n == 2) for n, a in enumerate(diagonals)]
    return [float(a.mean()) if s else math.nan for a, s in zip(diagonals, seen, strict=True)]


def _scale(model: Pretrained, heads: HeadProjections) -> float:
    """Factor on the product of query and key."""
    stated = getattr(model.config, "score_scale", None)
    return heads.query.shape[-1] ** -0.5 if stated is None else stated


def _table(model: Pretrained, side: str) -> Float[np.ndarray, "N E"] | None:
    """Positions as the first layer finds them where there is no word; None for none."""
    if not hasattr(model, "positions"):
        return None
    try:
        own = isinstance(model, PretrainedSeq2Seq)
        table = model.positions(side) if own else model.positions()  # type: ignore - of some
    except InputError:
        return None
    norm = embedding_norm(model, side)
    rows = np.asarray(table, np.float64)
    rows = projected(model, rows if norm is None else norm.applied(rows))
    projection = root(model).get("embedding_projection")
    return rows if projection is None else rows + np.asarray(projection["bias"])


def _biases(model: Pretrained, side: str, count: int) -> Float[np.ndarray, "L H N N"] | None:
    """Biases of scores by distance: of every layer, or one for all."""
    config, parameters = model.config, root(model)
    if isinstance(config, T5Config):
        far, both = config.relative_attention_max_distance, side == "encoder"
        table = jnp.asarray(parameters[f"{side}_bias"]["embedding"])
        functions = [relative_bias(one, far, both) for one in table.reshape(-1, *table.shape[-2:])]
    elif isinstance(config, BertConfig) and config.variant.relative:
        function: Any = RelativeBias(config).apply({"params": parameters["relative_bias"]})
        functions = [function]
    else:
        return None
    places = jnp.arange(count)
    biases = [function(places[:, None], places[None]) for function in functions]
    return np.asarray(jnp.stack(biases), np.float64)
