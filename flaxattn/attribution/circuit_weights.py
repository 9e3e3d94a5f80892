# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Weights of a model as circuits read them: projections by head with the norms folded in.

The projections include the scale of the norm before attention, of the norm after it (Gemma), of the
final norm, of the norm of the embeddings and of the norms of queries and keys, and the subtraction
of the mean by a LayerNorm. They leave out divisions by standard deviations, biases, soft caps and
sinks.

LayerNorm is `x C / s * scale + bias`, where C = I - 1 1^T / E takes the mean away and s is the
standard deviation; RMSNorm has no C and no bias. All but the division by s, one positive number for
each position, is linear.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from flaxattn.models.bert_config import BertConfig
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.pretrained.head_projections import (
    HeadProjections,
    head_projections,
    layer_parameters,
    parameters_below,
)
from flaxattn.pretrained.pretrained_model import Pretrained


class Norm(NamedTuple):
    """Parameters of a norm, in float64.

    Attributes:
        centred: Whether the mean is taken away, as LayerNorm does.
        scale: Factors; of a norm with 1 + parameter, these.
        bias: 0 where there is none.
        epsilon: Added to the variance or the mean square.
    """

    centred: bool
    scale: Float[np.ndarray, " E"]
    bias: Float[np.ndarray, " E"]
    epsilon: float

    def pulled_back(
        self, direction: Float[np.ndarray, "B T E"], x: Float[np.ndarray, "B T E"]
    ) -> Float[np.ndarray, "B T E"]:
        """The direction before the norm of `x` whose product with a vector is that behind it."""
        scaled = direction * self.scale
        if self.centred:
            scaled = scaled - scaled.mean(-1, keepdims=True)
            x = x - x.mean(-1, keepdims=True)
        return scaled / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon)

    def applied(self, x: Float[np.ndarray, "*rows E"]) -> Float[np.ndarray, "*rows E"]:
        """The norm of vectors."""
        x = x - x.mean(-1, keepdims=True) if self.centred else x
        normal = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon)
        return normal * self.scale + self.bias

    def before(self, matrix: Float[np.ndarray, "*heads E D"]) -> Float[np.ndarray, "*heads E D"]:
        """`C diag(scale) matrix`: a matrix that reads what the norm gives, with the norm in it."""
        scaled = self.scale[:, None] * matrix
        return scaled - scaled.mean(-2, keepdims=True) if self.centred else scaled

    def behind(self, matrix: Float[np.ndarray, "*heads D E"]) -> Float[np.ndarray, "*heads D E"]:
        """`matrix C diag(scale)`: a matrix whose output the norm reads, with the norm in it."""
        moved = matrix - matrix.mean(-1, keepdims=True) if self.centred else matrix
        return moved * self.scale


def norm_of(config: Any, params: Any) -> Norm:
    """A norm of a model."""
    scale = np.asarray(params["scale"], np.float64)
    bias = np.asarray(params["bias"], np.float64) if "bias" in params else np.zeros_like(scale)
    centred = not getattr(config, "root_mean_square", False)
    if isinstance(config, DecoderConfig):
        centred = config.norm == "layer"
        scale = 1 + scale if config.norm == "rms_plus_one" else scale
    names = ("layer_norm_epsilon", "layer_norm_eps", "norm_eps")
    epsilon = next(getattr(config, name) for name in names if hasattr(config, name))
    return Norm(centred, scale, bias, epsilon)


class TokenProducts(NamedTuple):
    """Products of the embeddings that keys and queries read, the mean over tokens taken away.

    Attributes:
        matched: `W_E^T W_E`, of the keys' embedding and the queries'.
        keys: Products of the keys' embedding with itself.
        queries: Products of the queries' embedding with itself.
    """

    matched: Float[np.ndarray, "E E"]
    keys: Float[np.ndarray, "E E"]
    queries: Float[np.ndarray, "E E"]


class CircuitWeights(NamedTuple):
    """Folded weights of one side, and products of its embeddings.

    Attributes:
        heads: Projections with norms folded in.
        matched: `W_E^T W_E`, of the keys' embedding and the queries'; None where queries and keys
            are of different vocabularies.
        written: `W_U W_E`, of the output and the keys' embedding; None for the same reason.
        tokens: Products of centred embeddings; None for the same reason.
    """

    heads: HeadProjections
    matched: Float[np.ndarray, "E E"] | None
    written: Float[np.ndarray, "E E"] | None
    tokens: TokenProducts | None


def circuit_weights(model: Pretrained, centred: bool = False) -> dict[str, CircuitWeights]:
    """Folded weights of every kind of attention of a model, by side."""
    found = {}
    for side, heads in head_projections(model).items():
        _fold(model, side, heads)
        queries, keys = ("decoder", "encoder") if side == "cross" else (side, side)
        matched = written = tokens = None
        if queries == keys or "decoder_words" not in root(model):
            embedding, other = (_embedding(model, stack) for stack in (keys, queries))
            output = _unembedding(model, queries)
            tokens = _token_products(embedding, other, queries == keys)
            if centred:
                embedding, other = (rows - rows.mean(0) for rows in (embedding, other))
                output = output - output.mean(1, keepdims=True)
            matched, written = embedding.T @ other, output @ embedding
        found[side] = CircuitWeights(heads, matched, written, tokens)
    return found


def _token_products(
    keys: Float[np.ndarray, "V E"], queries: Float[np.ndarray, "V E"], same: bool
) -> TokenProducts:
    """Products of centred embeddings of keys and queries, which may be the same."""
    keys, queries = ((rows - rows.mean(0)).astype(np.float64) for rows in (keys, queries))
    matched = keys.T @ queries
    if same:
        return TokenProducts(matched, matched, matched)
    return TokenProducts(matched, keys.T @ keys, queries.T @ queries)


def root(model: Pretrained) -> Any:
    """Parameters of a model without its task head."""
    params = model.params
    return params.get("model") or params.get("bert") or params


def reading_norms(model: Pretrained, side: str) -> list[Norm | None]:
    """The norm through which each layer's queries read the residual stream; None for none."""
    stack = "decoder" if side == "cross" else side
    layers = layer_parameters(model)[stack]
    if "attention_norms" in root(model):  # of a ModernBERT, whose first layer has none
        stacked = {name: np.asarray(a) for name, a in root(model)["attention_norms"].items()}
        rows = [{n: a[i] for n, a in stacked.items()} for i in range(len(layers) - 1)]
        return [None, *(norm_of(model.config, row) for row in rows)]
    if not _reads_normalised(model.config):
        return [None] * len(layers)
    name = "cross_attention_norm" if side == "cross" else "attention_norm"
    return [norm_of(model.config, parameters_below(layer, name)) for layer in layers]


def embedding_norm(model: Pretrained, stack: str) -> Norm | None:
    """The norm of embeddings before the first layer; None for none."""
    inputs = root(model).get("embeddings") or root(model).get(f"{stack}_inputs") or {}
    return norm_of(model.config, inputs["norm"]) if "norm" in inputs else None


def _reads_normalised(config: Any) -> bool:
    """Return whether norms stand before attention."""
    if isinstance(config, BertConfig):
        return config.variant.pre_norm
    if isinstance(config, DecoderConfig):
        return config.norm_places != "after"
    return getattr(config, "norm_first", True)


def _final_norm(model: Pretrained, stack: str) -> Norm | None:
    """The norm behind the last layer."""
    names = ("norm", "final_norm", f"{stack}_norm")
    found = [root(model)[name] for name in names if name in root(model)]
    return norm_of(model.config, found[0]) if found else None


def _words(model: Pretrained, stack: str) -> Float[np.ndarray, "V W"]:
    parameters = root(model)
    if "embeddings" in parameters:
        table = parameters["embeddings"]["word"]
    else:
        separate = stack == "decoder" and "decoder_words" in parameters
        table = parameters["decoder_words" if separate else "words"]
    return np.asarray(table["embedding"], np.float32)


def projected(model: Pretrained, rows: Float[np.ndarray, "N W"]) -> Float[np.ndarray, "N E"]:
    """Rows of embeddings at the width of the layers, without the projection's bias."""
    projection = root(model).get("embedding_projection")
    return rows if projection is None else rows @ np.asarray(projection["kernel"], np.float32)


def _embedding(model: Pretrained, stack: str) -> Float[np.ndarray, "V E"]:
    """W_E: the embedding as the first layer finds it."""
    words, norm = _words(model, stack), embedding_norm(model, stack)
    words = words if norm is None else norm.behind(words).astype(np.float32)
    return projected(model, words)


def _unembedding(model: Pretrained, stack: str) -> Float[np.ndarray, "E V"]:
    """W_U with the final norm in it: of an encoder the transposed word embedding."""
    if stack == "decoder" and "output" in model.params:
        output = np.asarray(model.params["output"], np.float32)
    else:
        output = projected(model, _words(model, stack)).T
    norm = _final_norm(model, stack)
    return output if norm is None else norm.before(output).astype(np.float32)


def _fold(model: Pretrained, side: str, heads: HeadProjections) -> None:
    """Fold the norms of a side into its projections, in place."""
    stack = "decoder" if side == "cross" else side
    layers = layer_parameters(model)[stack]
    norms = reading_norms(model, side)
    of_keys = [_final_norm(model, "encoder")] * len(norms) if side == "cross" else norms
    count = len(heads.query)
    for layer, (read, keys, parameters) in enumerate(
        zip(_spread(norms, count), _spread(of_keys, count), _spread(layers, count), strict=True)
    ):
        if read is not None:
            heads.query[layer] = read.before(heads.query[layer])
        if keys is not None:
            heads.key[layer], heads.value[layer] = (
                keys.before(heads.key[layer]),
                keys.before(heads.value[layer]),
            )
        if after := parameters_below(parameters, "attention_post_norm"):
            heads.output[layer] = norm_of(model.config, after).behind(heads.output[layer])
        if read is not None and read.centred:  # no layer sees the mean of what is written
            heads.output[layer] -= heads.output[layer].mean(-1, keepdims=True)
        for name, kernel in (("query", heads.query), ("key", heads.key)):
            if normed := parameters_below(parameters, f"attention/{name}_norm"):
                scale = norm_of(model.config, normed).scale.astype(np.float32)
                shape = (-1, 1, kernel.shape[-1])  # of every head, or one for all heads
                kernel[layer] *= scale.reshape(shape)


def _spread(rows: Sequence[Any], count: int) -> Sequence[Any]:
    """Rows of L layers, where all may share one."""
    return list(rows) * count if len(rows) == 1 else rows
