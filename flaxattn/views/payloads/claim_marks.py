# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Marks of claims: a family with a shape, a letter and a hue, and a number in the family.

Sixteen colours cannot tell forty claims apart, and heads have them already. So a claim is named by
its code, such as `S7`; shape and hue say its family, a shade which of its neighbours it is. The
page (`assets/claim_marks.js`) and figures draw what is assigned here.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

SHADES = 3
"""Shades of a family, from dark to light, then again from the first."""


class ClaimFamily(NamedTuple):
    """Claims of one kind.

    Attributes:
        letter: With which the codes of its claims begin.
        name: For a legend.
        marker: Its shape, by the name that matplotlib gives it.
    """

    letter: str
    name: str
    marker: str


class Mark(NamedTuple):
    """The mark of one claim.

    Attributes:
        family: Index in `FAMILIES`.
        number: Of the claim in its family, from 1.
    """

    family: int
    number: int

    @property
    def code(self) -> str:
        """Letter of the family and number, such as `S7`; no two claims of a page share one."""
        return f"{FAMILIES[self.family].letter}{self.number}"

    @property
    def variable(self) -> str:
        """The variable of the style sheet that holds its colour, such as `claim-2-0`."""
        return f"claim-{self.family}-{(self.number - 1) % SHADES}"


FAMILIES = (
    ClaimFamily("P", "position", "s"),
    ClaimFamily("D", "delimiters and first tokens", "o"),
    ClaimFamily("S", "syntax", "^"),
    ClaimFamily("C", "coreference", "D"),
    ClaimFamily("W", "words and repeats", "h"),
    ClaimFamily("A", "alignment", "v"),
    ClaimFamily("B", "breadth", "P"),
    ClaimFamily("O", "other", "X"),
)
"""In this order in legends; the last takes what no other does."""

_RELATIONS = (
    "acl advcl advmod amod appos aux case cc ccomp clf compound conj cop csubj dep det discourse "
    "dislocated expl fixed flat goeswith iobj list mark nmod nsubj nummod obj obl orphan parataxis "
    "punct reparandum root vocative xcomp dobj pobj prep poss any"
)
# A name belongs to the first family whose words it has, whole.
_WORDS = {
    "S": rf"governors?|dependents?|syntactic|dependency|subtree|{_RELATIONS.replace(' ', '|')}",
    "C": r"coreference|corefer\w*|mentions?|antecedents?|pronouns?|proper|nominal",
    "A": r"alignment|diagonal|copy|source|other text",
    "W": r"induction|duplicate|same token|related token|rare|word",
    "D": r"cls|sep|delimiters?|first|end|punctuation|sink|special",
    "B": r"block|block_entropy|bag of words|segment|same_segment|entropy|max|sum_sq|lse|broad",
    "P": r"local|next|previous|own|positional|distance",
}
_FIRST = [(letter, re.compile(rf"(?<!\w)(?:{words})(?!\w)")) for letter, words in _WORDS.items()]


def claim_marks(names: Iterable[str]) -> dict[str, Mark]:
    """Assign a mark to each claim."""
    marks, counts = {}, Counter[int]()
    for name in dict.fromkeys(names):
        family = _family(name)
        counts[family] += 1
        marks[name] = Mark(family, counts[family])
    return marks


def _family(name: str) -> int:
    text = name.lower()
    if text.startswith("own segment") or "other segment" in text:
        letter = "B"  # nearly all keys, wherever they are
    elif re.search(r"\beffect\b", text):
        letter = "O"  # of patching, at a segment that may be called "first"
    else:
        letter = next((letter for letter, words in _FIRST if words.search(text)), "O")
    return next(i for i, family in enumerate(FAMILIES) if family.letter == letter)
