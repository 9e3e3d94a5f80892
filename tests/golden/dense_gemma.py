# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The small Gemma 3 of `small_decoders` in float64 NumPy, which shares no code with the package.

Every attention weight and every value may be multiplied by a factor, so that what a weight, a value
or a head does is found by changing it.
"""

from typing import NamedTuple

import numpy as np

EPSILON = 1e-6


class Layer(NamedTuple):
    """Results of one layer: weights `[H, S, S]`, values `[S, H, D]`, vectors `[H, S, E]`, output.

    Queries and keys `[S, H, D]` are those `before` they are rotated and after, `rotated`.
    """

    weights: np.ndarray
    value: np.ndarray
    vectors: np.ndarray
    before: tuple[np.ndarray, np.ndarray]
    rotated: tuple[np.ndarray, np.ndarray]
    output: np.ndarray


class DenseGemma:
    """A model with the parameters of `PretrainedDecoder`, one text at a time."""

    def __init__(self, model):
        self.config, tree = model.config, model.params["model"]
        self.words = np.asarray(tree["words"]["embedding"], np.float64)
        self.last_norm = np.asarray(tree["norm"]["scale"], np.float64)
        self.layers = tree["decoder"]["layers"]

    def parameter(self, layer, name):
        """A parameter of a layer by its path."""
        leaf = self.layers
        for part in name.split("/"):
            leaf = leaf[part]
        return np.asarray(leaf, np.float64)[layer]

    def run(self, ids, *, factors=None, kept=None):
        """Layers and logits; `factors [L, H, S, S]` are of weights, `kept [L, S]` of values."""
        c = self.config
        x = self.words[ids] * c.hidden_size**0.5
        found = []
        for number in range(c.num_hidden_layers):
            value = None if kept is None else kept[number]
            layer = self.layer(number, x, None if factors is None else factors[number], value)
            found.append(layer)
            x = layer.output
        return found, normed(x, self.last_norm) @ self.words.T

    def layer(self, number, x, factors=None, kept=None):
        """One layer over its input `[S, E]`."""
        c, p = self.config, lambda name: self.parameter(number, name)
        heads, groups = c.num_attention_heads, c.num_key_value_heads
        read = normed(x, p("attention_norm/scale"))
        q = (read @ p("attention/query/kernel")).reshape(len(x), heads, -1)
        k, v = (
            (read @ p(f"attention/{n}/kernel")).reshape(len(x), groups, -1)
            for n in ("key", "value")
        )
        q = normed(q, p("attention/query_norm/scale"))
        k = normed(k, p("attention/key_norm/scale"))
        k, v = (np.repeat(a, heads // groups, axis=1) for a in (k, v))
        window = c.windows[number]
        rotary = c.rotary if window is None else c.local_rotary
        factor = rotary.factor or 1.0
        turned = rotated(q, rotary.rope_theta, factor), rotated(k, rotary.rope_theta, factor)
        scores = np.einsum("qhd,khd->hqk", *turned) / np.sqrt(c.query_pre_attn_scalar)
        weights = softmax(np.where(visible(len(x), window), scores, -np.inf))
        used = weights if factors is None else weights * factors
        values = v if kept is None else v * kept[:, None, None]
        vectors = np.einsum(
            "khd,hde->hke", v, p("attention/output/kernel").reshape(heads, -1, c.hidden_size)
        )
        joined = np.einsum("hqk,khd->qhd", used, values).reshape(len(x), -1)
        attended = joined @ p("attention/output/kernel")
        x = x + normed(attended, p("attention_post_norm/scale"))
        read = normed(x, p("feed_forward_norm/scale"))
        inner = gelu(read @ p("feed_forward/gate/kernel")) * (read @ p("feed_forward/up/kernel"))
        fed = inner @ p("feed_forward/down/kernel")
        x = x + normed(fed, p("feed_forward_post_norm/scale"))
        return Layer(weights, v, vectors, (q, k), turned, x)

    def loss(self, ids, **changed):
        """Mean negative log-likelihood of each token after the first."""
        _, logits = self.run(ids, **changed)
        logs = logits[:-1] - logits[:-1].max(-1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
        return -logs[np.arange(len(ids) - 1), ids[1:]].mean()


def visible(length, window):
    """True where a query sees a key."""
    behind = np.arange(length)[:, None] - np.arange(length)
    return (behind >= 0) & (behind < (window or length))


def normed(x, scale):
    """RMS norm with Gemma's 1 + scale."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * (1 + np.asarray(scale))


def rotated(x, theta, factor):
    """Pairs (i, i + D / 2) of each position as complex numbers, turned by their angle."""
    half = x.shape[-1] // 2
    angles = np.arange(len(x))[:, None] / factor * theta ** (-np.arange(half) / half)
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)[:, None]
    return np.concatenate([turned.real, turned.imag], -1)


def softmax(scores):
    """Over the last axis."""
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def gelu(x):
    """The approximation with tanh."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
