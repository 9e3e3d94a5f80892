# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gold pairs of a text: the key that a claim says a query looks at, by annotation or position.

A page draws them beside attention. What scores count is in `tree_terms` and `encoder_terms`; the
pairs of related words here are those of the score `hit` there.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from flaxattn.measures.tree_terms import ends
from flaxattn.text.position_labels import PositionLabels

_RELATED = re.compile(r"(?:syntactic: )?(governor|dependent)\((.+)\)")
_OFFSETS = {
    "next token": 1,
    "previous token": -1,
    "own token": 0,
    "positional: next": 1,
    "positional: previous": -1,
}


class GoldPair(NamedTuple):
    """A query and the keys of which one should get most of its attention.

    Attributes:
        query: Position of the first piece of the query's word.
        first: Position of the first piece of the other word.
        last: Position of its last piece.
    """

    query: int
    first: int
    last: int


def gold_pairs(
    layout: PositionLabels, claim: str, relations: Sequence[str], *, causal: bool
) -> list[GoldPair]:
    """Find the pairs of a text that a claim is about.

    Args:
        layout: Of the text.
        claim: Name of a role or pattern, such as `governor(nsubj)` or `previous token`.
        relations: What `any` stands for.
        causal: Whether a query sees the keys up to itself only; other pairs are left out.

    Returns:
        The pairs, by query; none for claims that are about no pairs.
    """
    if (offset := _OFFSETS.get(claim.removeprefix("pattern: "))) is not None:
        places = [(q, q + offset) for q in range(len(layout)) if not layout.special[q]]
        pairs = [GoldPair(q, k, k) for q, k in places if 0 <= k < len(layout)]
    elif match := _RELATED.fullmatch(claim):
        words = [ends(arc, match[1]) for arc in layout.linked(match[2], relations)]
        ranges = [(layout.words[i], layout.words[j]) for i, j in words]
        pairs = [GoldPair(query[0], keys[0], keys[-1]) for query, keys in ranges]
    else:
        return []
    return sorted(pair for pair in pairs if not causal or pair.last <= pair.query)
