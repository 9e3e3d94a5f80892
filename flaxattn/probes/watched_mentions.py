# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts that show how a head resolves mentions, kept while they stream, with their gold pairs.

How often a head is right is counted in `mention_resolution`.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from flaxattn.measures.evidence import Evidence
from flaxattn.measures.gold_pairs import HIT, MISS, UNJUDGED, GoldPair, GoldPairs, runs_of
from flaxattn.probes.mention_resolution import FROM_MENTION, MentionScores

_ABOUT = {
    True: (
        "each mention and what it means",
        "the candidate that gets most of the mention's attention is a right one",
    ),
    False: (
        "what each mention means, and the mention",
        "the candidate that attends most to the mention is a right one",
    ),
}


class JudgedMention(NamedTuple):
    """A mention that heads were asked about, and where it stands.

    Attributes:
        number: Of the text among those that were given.
        id: Of the text.
        text: As the model read it.
        positions: Positions of the mention.
        right: Positions of each right candidate.
        scores: Of all heads.
    """

    number: int
    id: str
    text: str
    positions: Sequence[int]
    right: Sequence[Sequence[int]]
    scores: MentionScores


class _Kept(NamedTuple):
    """A mention of a text that is kept, without its scores."""

    group: str
    positions: Sequence[int]
    right: Sequence[Sequence[int]]
    hits: dict[str, Int[np.ndarray, "L H"]]


class MentionText(NamedTuple):
    """A text with mentions.

    Attributes:
        id: What it is called.
        text: As the model read it.
        mentions: In order.
    """

    id: str
    text: str
    mentions: Sequence[_Kept]


class WatchedMentions:
    """Mentions on their way to a count, of which the texts are kept that show heads best.

    A text shows a head by the mean, over its mentions of a group, of the largest attention between
    a mention and a right candidate. Memory: 2 L H bytes for each mention of a kept text.

    Args:
        keep: Number of texts of each group, direction and head.

    Attributes:
        evidence: By direction and group; the empty group is all mentions.
        texts: Those that are kept, by number.
    """

    def __init__(self, keep: int) -> None:
        self.evidence = Evidence(keep)
        self.texts: dict[int, MentionText] = {}

    def __call__(self, mentions: Iterable[JudgedMention]) -> Iterator[JudgedMention]:
        """Yield the same mentions."""
        for count, (number, group) in enumerate(groupby(mentions, lambda one: one.number), 1):
            of_text = list(group)
            self._take(number, [one for one in of_text if one.scores.right])
            if count % 256 == 0:
                self._forget()
            yield from of_text
        self._forget()

    def _take(self, number: int, judged: Sequence[JudgedMention]) -> None:
        weights: dict[tuple[str, str], list[np.ndarray]] = {}
        for one in judged:
            right = list(one.scores.right)
            for direction, scores in one.scores.scores.items():
                for group in dict.fromkeys(("", one.scores.group)):
                    weights.setdefault((direction, group), []).append(scores[right].max(0))
        for question, largest in weights.items():
            self.evidence.add(question, np.mean(largest, 0)[None], [number])
        if judged:
            kept = [_Kept(m.scores.group, m.positions, m.right, _hits(m.scores)) for m in judged]
            self.texts[number] = MentionText(judged[0].id, judged[0].text, kept)

    def _forget(self) -> None:
        kept = self.evidence.texts()
        self.texts = {number: text for number, text in self.texts.items() if number in kept}

    def gold_pairs(self, number: int, direction: str, group: str, name: str) -> GoldPairs:
        """Return the gold pairs of a group of mentions in a text, judged as heads are counted."""
        forward = direction == FROM_MENTION
        pairs: list[GoldPair] = []
        hits: list[np.ndarray] = []
        for one in self.texts[number].mentions:
            if group not in ("", one.group):
                continue
            between = [(one.positions, [k for keys in one.right for k in keys])]
            if not forward:
                between = [(keys, one.positions) for keys in one.right]
            pairs += [GoldPair((min(q), max(q)), runs_of(keys)) for q, keys in between]
            hits += [one.hits[direction]] * len(between)
        about, rule = _ABOUT[forward]
        judged = np.stack(hits, -1) if hits else np.zeros((0, 0, 0), np.int8)
        return GoldPairs(name, about, rule, pairs, judged)


def _hits(scores: MentionScores) -> dict[str, Int[np.ndarray, "L H"]]:
    """Judgements of every head by direction; of equal candidates the first one is taken."""
    hits = {}
    for direction, shares in scores.scores.items():
        known = np.isfinite(shares).all(0)
        taken = np.nan_to_num(shares, nan=-1).argmax(0)
        right = np.where(np.isin(taken, scores.right), HIT, MISS)
        hits[direction] = np.where(known, right, UNJUDGED).astype(np.int8)
    return hits
