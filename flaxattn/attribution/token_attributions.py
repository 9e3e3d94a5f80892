# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of input tokens for one prediction, by every kind of attribution there is.

Maps are brought down to tokens by `flaxattn.attribution.token_scores`; AttnLRP, gradient times
input and integrated gradients score tokens themselves.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from flaxattn.attribution.attribution_maps import zeroing_of
from flaxattn.attribution.contribution_maps import TextMaps, contributions
from flaxattn.attribution.explained_predictions import Prediction, TokenScore
from flaxattn.attribution.generic_relevance import generic_relevance
from flaxattn.attribution.relevance import (
    Slopes,
    recorded,
    sizes_of,
    slopes_of,
    tokens_of,
    weight_gradients,
)
from flaxattn.attribution.rollout import attention_flow
from flaxattn.attribution.token_scores import token_scores
from flaxattn.kernels.contract import Capture
from flaxattn.pretrained.head_projections import output_projections
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.selection import layer_weights
from flaxattn.trace.trace import Trace

_PATH = 16  # points between no input and the input
_VALUES = Capture(weights=True, value=True)


class TokenAttributions:
    """Scores of the input tokens of one prediction; what kinds share is computed once.

    Args:
        model: That predicts.
        prediction: What is explained: its logit.
    """

    def __init__(self, model: Pretrained, prediction: Prediction) -> None:
        self._model, self._prediction = model, prediction
        self._given = prediction.given(model.limit)
        self._sizes = sizes_of(prediction.row.metadata)
        self._makers: dict[str, Callable[[], Any]] = {
            "attention": lambda: self._scores("attention", self._attention),
            "rollout": lambda: self._scores("rollout", self._attention),
            "flow": self._flow,
            "norm": lambda: self._scores("norm", self._contributed("norm")),
            "effective": lambda: self._scores("effective", self._contributed("effective")),
            "zeroing": lambda: self._scores("zeroing", zeroing_of(model, prediction.row)),
            "gradient": lambda: self._scores("gradient", self._gradients),
            "chefer": lambda: self._scores("chefer", generic_relevance(self._gradients)),
            "relevance": self._relevance,
            "input_gradient": lambda: self._source(self._plain),
            "integrated": self._integrated,
        }

    def check(self) -> None:
        """Refuse a model whose attention to the text is NaN or infinite."""
        _ = self._trace

    def of(self, kind: str) -> Float[np.ndarray, " S"]:
        """Scores of the tokens of the text, or of the source; larger is more important."""
        return np.asarray(self._makers[kind](), np.float64)

    @cached_property
    def _recorded(self) -> Trace:
        return recorded(self._model.module, self._model.params, self._given)

    @cached_property
    def _trace(self) -> Trace:
        return self._model.seen(self._prediction.row, _VALUES)

    @cached_property
    def _attention(self) -> TextMaps:
        sides = self._trace.sides.items()
        return {side: layer_weights(record, record.layers) for side, record in sides}

    @cached_property
    def _plain(self) -> Slopes:
        return self._slopes(rules=False)

    @cached_property
    def _gradients(self) -> TextMaps:
        return weight_gradients(self._recorded, self._plain, self._sizes)

    def _slopes(self, rules: bool) -> Slopes:
        score = TokenScore(self._model.module)
        return slopes_of(score, self._model.params, self._given, self._recorded, rules=rules)

    def _relevance(self) -> Float[np.ndarray, " S"]:
        return self._source(self._slopes(rules=True))

    def _source(self, slopes: Slopes) -> Float[np.ndarray, " S"]:
        """Input times gradient, of the source where there is one."""
        tokens = tokens_of(self._recorded, slopes, self._sizes)
        return tokens["encoder" if "encoder" in tokens else "decoder"]

    def _scores(self, kind: str, maps: TextMaps) -> Float[np.ndarray, " S"]:
        return token_scores(kind, maps, self._prediction.position)

    def _contributed(self, name: str) -> TextMaps:
        projections = output_projections(self._model) if name == "norm" else None
        found = contributions(self._trace, [name], projections=projections)[name]
        return {side: maps for side, (maps,) in found.items()}

    def _flow(self) -> Float[np.ndarray, " S"]:
        if "cross" in self._trace.sides:
            return self._scores("flow", self._attention)  # which is refused
        place = self._prediction.position
        chosen: Sequence[int] | None = None if place is None else [place]
        return attention_flow(self._trace, positions=chosen).mean(0)

    def _integrated(self) -> Float[np.ndarray, " S"]:
        """Input times the mean gradient on the way from no input (Sundararajan et al. 2017)."""
        points = ((np.arange(_PATH) + 0.5) / _PATH).astype(np.float32)
        given = {name: np.repeat(array, _PATH, axis=0) for name, array in self._given.items()}
        score = TokenScore(self._model.module)
        slopes = slopes_of(score, self._model.params, given, None, scale=points)
        side = "encoder" if "encoder" in self._recorded.sides else "decoder"
        means = (np.asarray(slopes.tokens[side]) / points[:, None]).mean(0)
        return means[: self._sizes[side][0]]
