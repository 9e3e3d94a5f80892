# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`LogitLens`: the tokens that each layer's hidden state stands for, read as the last one is.

Made by `flaxattn.logit_lens`; no model is known here.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class LogitLens:
    """Tokens that each of N = L + 1 hidden states of a text predicts, at each of T positions.

    State 0 is the embeddings, state n the residual stream after layer n - 1; the last is the
    model's own prediction. Logarithms are natural.

    Attributes:
        tokens: Readable tokens that were read at each position.
        targets: Readable true token of each position: the one that follows it, of a masked language
            model the one that stands there; where there is none, the likeliest of the last state.
        alternatives: Readable likeliest tokens of each state and position, likeliest first.
        follows: False where the text has no true token: at its end, at masks and special tokens.
        target_ids: Ids of the targets.
        best_ids: Ids of the alternatives.
        likeliest: Log-probabilities of the alternatives.
        log_probability: Log-probability of the target.
        rank: 1 where the target is the likeliest token, 2 for the next, …
        model: Name of the model.
    """

    tokens: Sequence[str]
    targets: Sequence[str]
    alternatives: Sequence[Sequence[Sequence[str]]]
    follows: Bool[np.ndarray, " T"]
    target_ids: Int[np.ndarray, " T"]
    best_ids: Int[np.ndarray, "N T k"]
    likeliest: Float[np.ndarray, "N T k"]
    log_probability: Float[np.ndarray, "N T"]
    rank: Int[np.ndarray, "N T"]
    model: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the states, from the embeddings to the last layer."""
        return ("embeddings", *(f"layer {n}" for n in range(len(self.rank) - 1)))

    def rows(self) -> list[dict[str, Any]]:
        """A row for each state and position; layer -1 is the embeddings."""
        return [
            {
                "layer": state - 1,
                "position": position,
                "token": self.tokens[position],
                "target": self.targets[position],
                "follows": bool(self.follows[position]),
                "probability": float(np.exp(self.log_probability[state, position])),
                "rank": int(self.rank[state, position]),
                "tokens": list(self.alternatives[state][position]),
                "probabilities": np.exp(self.likeliest[state, position]).tolist(),
            }
            for state, position in np.ndindex(*self.rank.shape)
        ]

    def __repr__(self) -> str:
        states, positions, count = self.likeliest.shape
        return (
            f"LogitLens({self.model!r}: {states} states of {positions} positions, "
            f"{count} alternatives)"
        )
