# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Predictions in a trace: probabilities of the next tokens, and those read off each layer."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from jaxtyping import Bool, Float, Int

SCORES = ("ids", "targets", "follows", "likeliest", "log_probability", "rank")
CONTRIBUTIONS = ("heads", "feed_forward", "embedding", "bias")
WORDS = ("tokens", "alternatives")


@dataclasses.dataclass(frozen=True, eq=False)
class Predictions:
    """Next-token probabilities at each of T positions of B texts, padded as the trace is.

    Logarithms are natural. The target of a position is the token that follows it in the text, of a
    decoder beside an encoder the token that was generated there; where a text ends, it is the
    likeliest token.

    Attributes:
        tokens: Readable target of each position.
        alternatives: Readable tokens that are likeliest there, likeliest first.
        ids: Token ids that the decoder read.
        targets: Token ids of the targets.
        follows: True where the target is a token of the text, False where the text ends.
        likeliest: Log-probabilities of the alternatives.
        log_probability: Log-probability of the target.
        rank: 1 for the likeliest token, 2 for the next, …; equals share the smallest.
        heads: What each head adds to the logit of the target, directly; None where this was not
            computed (`flaxattn.logit_contributions`), like what follows.
        feed_forward: The same of each feed-forward layer, its biases included.
        embedding: The same of the embeddings.
        bias: The same of the biases of attention's output and of the norms.
    """

    tokens: Sequence[Sequence[str]]
    alternatives: Sequence[Sequence[Sequence[str]]]
    ids: Int[np.ndarray, "B T"]
    targets: Int[np.ndarray, "B T"]
    follows: Bool[np.ndarray, "B T"]
    likeliest: Float[np.ndarray, "B T k"]
    log_probability: Float[np.ndarray, "B T"]
    rank: Int[np.ndarray, "B T"]
    heads: Float[np.ndarray, "B T L H"] | None = None
    feed_forward: Float[np.ndarray, "B T L"] | None = None
    embedding: Float[np.ndarray, "B T"] | None = None
    bias: Float[np.ndarray, "B T"] | None = None

    def __post_init__(self) -> None:
        for name, array in self.arrays().items():
            object.__setattr__(self, name, np.asarray(array))

    @classmethod
    def from_parts(cls, words: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """Put together what `words` and `arrays` hand out.

        Args:
            words: Lists of tokens by name.
            arrays: Arrays by name.
        """
        return cls(**{name: words[name] for name in WORDS}, **arrays)

    def words(self) -> dict[str, Any]:
        """Lists of tokens by name."""
        return {name: getattr(self, name) for name in WORDS}

    def arrays(self) -> dict[str, Any]:
        """Arrays that are there, by name."""
        every = {name: getattr(self, name) for name in (*SCORES, *CONTRIBUTIONS)}
        return {name: array for name, array in every.items() if array is not None}

    def one(self, sequence: int, places: Int[np.ndarray, " T"]) -> Self:
        """Predictions of one text at some positions.

        Args:
            sequence: Index of the text.
            places: Its positions without padding.
        """
        arrays = {name: a[sequence : sequence + 1, places] for name, a in self.arrays().items()}
        words = {
            name: [[rows[sequence][i] for i in places.tolist()]]
            for name, rows in self.words().items()
        }
        return self.from_parts(words, arrays)

    def logits(self) -> Float[np.ndarray, "B T"] | None:
        """Sum of all contributions: the logit of each target, before a cap where a model has one.

        None where contributions were not computed.
        """
        fed, embedding, bias = self.feed_forward, self.embedding, self.bias
        if self.heads is None or fed is None or embedding is None or bias is None:
            return None
        return self.heads.sum((-1, -2)) + fed.sum(-1) + embedding + bias

    def __repr__(self) -> str:
        batch, length, count = self.likeliest.shape
        held = "without" if self.heads is None else "with"
        surprise = -float(self.log_probability[self.follows].mean()) if self.follows.any() else 0
        message = f"{surprise:.2f} nats per token" if math.isfinite(surprise) else "not finite"
        return (
            f"Predictions({batch} texts of {length} positions, {count} alternatives, {message}, "
            f"{held} contributions)"
        )


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
