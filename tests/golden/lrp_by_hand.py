# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Relevance propagation through a GPT-2 of one layer in NumPy, share by share as AttnLRP has it.

Nothing here takes a gradient: every rule divides the relevance of what comes out among what goes
in, in float64.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import erf


class ByHand(NamedTuple):
    logit: float
    tokens: np.ndarray
    absorbed: float


class HandMadeGPT2:
    def __init__(self, config, params, ids):
        self.config, self.lost = config, 0.0
        model = params["model"]
        self.layer = _float64(_first(model["decoder"]["layers"]))
        self.norm = _float64(model["norm"])
        self.words = np.asarray(model["words"]["embedding"], np.float64)
        places = np.asarray(model["positions"]["embedding"], np.float64)
        self.x = self.words[ids] + places[: len(ids)]

    def relevance(self, position, token):
        layer, heads = self.layer, self.config.n_head
        attention, x = layer["attention"], self.x
        read = self._normed(layer["attention_norm"], x)
        q, k, v = (self._split(_dense(attention[n], read)) for n in ("query", "key", "value"))
        scale = q.shape[-1] ** -0.5
        scores = np.einsum("qhd,khd->hqk", q, k) * scale
        visible = np.tril(np.ones(scores.shape[1:], bool))
        raised = np.where(visible, np.exp(scores - scores.max(-1, keepdims=True)), 0)
        weights = raised / raised.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, v)
        flat = mixed.reshape(len(x), -1)
        attended = _dense(attention["output"], flat)
        middle = x + attended
        fed_in = self._normed(layer["feed_forward_norm"], middle)
        inner = _dense(layer["feed_forward"]["up"], fed_in)
        active = _gelu(inner, self.config.activation_function)
        fed = _dense(layer["feed_forward"]["down"], active)
        last = middle + fed
        final = self._normed(self.norm, last)
        logit = final[position] @ self.words[token]

        above = np.zeros_like(final)
        above[position] = final[position] * self.words[token]
        above = self._through_norm(self.norm, last, final, above)
        to_middle, to_fed = _through_sum(middle, fed, above)
        down = self._through_dense(layer["feed_forward"]["down"], active, fed, to_fed)
        # The identity rule: an activation hands on what it got.
        up = self._through_dense(layer["feed_forward"]["up"], fed_in, inner, down)
        to_middle = to_middle + self._through_norm(layer["feed_forward_norm"], middle, fed_in, up)
        to_x, to_attended = _through_sum(x, attended, to_middle)
        to_flat = self._through_dense(attention["output"], flat, attended, to_attended)
        to_mixed = to_flat.reshape(mixed.shape)
        to_weights, to_v = np.zeros_like(weights), np.zeros_like(v)
        for h in range(heads):
            for i in range(len(x)):
                for j in range(len(x)):
                    share = weights[h, i, j] * v[j, h] / (2 * mixed[i, h]) * to_mixed[i, h]
                    to_weights[h, i, j] += share.sum()
                    to_v[j, h] += share
        spread = to_weights - weights * to_weights.sum(-1, keepdims=True)
        to_scores = np.where(visible, scores, 0) * spread
        self.lost += to_weights.sum() - to_scores.sum()
        to_q, to_k = np.zeros_like(q), np.zeros_like(k)
        for h in range(heads):
            for i in range(len(x)):
                for j in range(i + 1):
                    share = q[i, h] * k[j, h] * scale / (2 * scores[h, i, j]) * to_scores[h, i, j]
                    to_q[i, h] += share
                    to_k[j, h] += share
        to_read = 0
        for name, y, relevance in (("query", q, to_q), ("key", k, to_k), ("value", v, to_v)):
            part = (a.reshape(len(x), -1) for a in (y, relevance))
            to_read = to_read + self._through_dense(attention[name], read, *part)
        to_x = to_x + self._through_norm(layer["attention_norm"], x, read, to_read)
        return ByHand(logit, to_x.sum(-1), self.lost)

    def _split(self, x):
        return x.reshape(len(x), self.config.n_head, -1)

    def _normed(self, params, x):
        centred = x - x.mean(-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(-1, keepdims=True) + self.config.layer_norm_epsilon)
        return centred / spread * params["scale"] + params["bias"]

    def _through_dense(self, params, x, y, relevance):
        """Each input gets the part of an output that it makes; the bias keeps its own."""
        per_unit = relevance / y
        self.lost += (params["bias"] * per_unit).sum()
        return x * (per_unit @ params["kernel"].T)

    def _through_norm(self, params, x, y, relevance):
        """A norm is linear at the standard deviation that it has."""
        centred = x - x.mean(-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(-1, keepdims=True) + self.config.layer_norm_epsilon)
        centring = np.eye(x.shape[-1]) - 1 / x.shape[-1]
        found = np.zeros_like(x)
        for row in range(len(x)):
            kernel = centring / spread[row] * params["scale"][None]
            dense = {"kernel": kernel, "bias": params["bias"]}
            found[row] = self._through_dense(dense, x[row], y[row], relevance[row])
        return found


def _through_sum(a, b, relevance):
    return a / (a + b) * relevance, b / (a + b) * relevance


def _dense(params, x):
    return x @ params["kernel"] + params["bias"]


def _gelu(x, name):
    if name == "gelu":
        return x * (1 + erf(x / 2**0.5)) / 2
    assert name == "gelu_new"
    return x / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def _first(tree):
    return {n: _first(p) if isinstance(p, dict) else np.asarray(p)[0] for n, p in tree.items()}


def _float64(tree):
    if isinstance(tree, dict):
        return {name: _float64(part) for name, part in tree.items()}
    return np.asarray(tree, np.float64)
