# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Labels of the positions of one text that score definitions read: classes, tokens, their order.

Self-attention and cross-attention have labels of different kinds; the constants here are the bits
and indices that the sieves of `score_sources` name.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from flaxattn.kernels.contract import Labels
from flaxattn.text.position_labels import PositionLabels

PLAIN, SPECIAL, FIRST_POSITION, END = range(4)
"""Bits of `Labels.key_class`: of the text itself, added by the model, at 0, added behind."""
TOKEN = 0
"""Label of queries and of keys: the token, -1 where it is special."""
PREVIOUS_TOKEN = 1
"""Label of keys of self-attention: the token before, -1 where it is special or none."""
ALONG = (1, 2, 3)
"""Labels of queries of cross-attention: source positions as far along as the target's."""
SOURCE_POSITION = 1
"""Label of keys of cross-attention: the position itself."""


class SideLabels(NamedTuple):
    """Labels of one text on one side of a model.

    Attributes:
        labels: NumPy arrays without the axis B.
        queries: Q.
        keys: K.
        rare: Position of the rarest token of the text; -1 if frequencies are not known.
    """

    labels: Labels
    queries: int
    keys: int
    rare: int = -1


def self_labels(layout: PositionLabels) -> SideLabels:
    """Labels of self-attention over a text."""
    count = len(layout)
    tokens = np.where(layout.special, -1, _numbered(layout.tokens))
    previous = np.roll(tokens, 1)
    previous[:1] = -1
    labels = _labels(
        key_class=_classes(layout.special, np.zeros(count, bool)),
        query_segment=layout.segments,
        key_segment=layout.segments,
        query_token=layout.tokens,
        key_token=layout.tokens,
        query_labels=tokens[None],
        key_labels=np.stack([tokens, previous]),
    )
    return SideLabels(labels, count, count, layout.rare)


def cross_labels(
    written: Sequence[str], tokens: Sequence[str], special: Bool[np.ndarray, " K"]
) -> SideLabels:
    """Labels of attention from a target to its source."""
    queries, keys = len(written), len(tokens)
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    own = np.array([numbers.get(token, -1) for token in written], np.int32)
    key_tokens = np.where(special, -1, [numbers[token] for token in tokens])
    centre = (2 * np.arange(queries) + 1) * keys // (2 * max(queries, 1))
    last = max(np.flatnonzero(~special), default=-1)
    ends = special & (np.arange(keys) > last)
    labels = _labels(
        key_class=_classes(special, ends),
        query_labels=np.stack([own, centre - 1, centre, centre + 1]),
        key_labels=np.stack([key_tokens, np.arange(keys)]),
    )
    return SideLabels(labels, queries, keys)


def _labels(**arrays: Any) -> Labels:
    narrow: dict[str, Any] = {n: np.asarray(a, np.int32) for n, a in arrays.items()}
    return Labels(**narrow)


def _numbered(tokens: np.ndarray) -> np.ndarray:
    return np.unique(tokens, return_inverse=True)[1]


def _classes(special: Bool[np.ndarray, " K"], ends: Bool[np.ndarray, " K"]) -> np.ndarray:
    members = {PLAIN: ~special, SPECIAL: special, FIRST_POSITION: _first(len(special)), END: ends}
    return np.bitwise_or.reduce([m.astype(np.int32) << bit for bit, m in members.items()])


def _first(count: int) -> Bool[np.ndarray, " K"]:
    return np.arange(count) == 0
