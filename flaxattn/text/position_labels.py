# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Labels of the positions of one text, known before attention is looked at: `PositionLabels`.

Special tokens, segments, tokens of words, and the tree over the words where there is one.
`measures.terms` chooses the weights that a head is judged by from these labels. No model, no file,
no attention.
"""

import dataclasses
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from flaxattn.errors import InputError
from flaxattn.trace.trace import Trace

UNIVERSAL_RELATIONS = (
    *("acl", "advcl", "advmod", "amod", "appos", "aux", "case", "cc", "ccomp", "clf", "compound"),
    *("conj", "cop", "csubj", "dep", "det", "discourse", "dislocated", "expl", "fixed", "flat"),
    *("goeswith", "iobj", "list", "mark", "nmod", "nsubj", "nummod", "obj", "obl", "orphan"),
    *("parataxis", "punct", "reparandum", "vocative", "xcomp"),
)
"""The relations of Universal Dependencies 2 between two words; `root` has one only."""

UNIVERSAL_TAGS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN"),
    *("PUNCT", "SCONJ", "SYM", "VERB", "X"),
)
"""The parts of speech of Universal Dependencies 2."""


class Arc(NamedTuple):
    """A word and what it depends on, both as numbers of words from 0."""

    dependent: int
    governor: int
    relation: str


@dataclasses.dataclass(frozen=True)
class PositionLabels:
    """One text, or pair of texts, of N positions without padding.

    Attributes:
        tokens: A number per position, the same where the tokens are the same.
        first: True at the token that a model begins with, `[CLS]`.
        separators: True at the tokens that end segments, `[SEP]`.
        special: True at every token the model adds, these two kinds among them.
        punctuation: True at tokens that are punctuation.
        segments: Segment of each position.
        spelt: Number of the word that each token spells a part of, -1 for special tokens.
        words: Tokens of each annotated word; empty where the text was cut before it.
        tags: Part of speech of each annotated word.
        arcs: The tree over the annotated words.
        rare: Position of the rarest token of the text; -1 if frequencies are not known.
        name: What to call the text in errors and draws.
    """

    tokens: Int[np.ndarray, " N"]
    first: Bool[np.ndarray, " N"]
    separators: Bool[np.ndarray, " N"]
    special: Bool[np.ndarray, " N"]
    punctuation: Bool[np.ndarray, " N"]
    segments: Int[np.ndarray, " N"]
    spelt: Int[np.ndarray, " N"]
    words: Sequence[Sequence[int]] = ()
    tags: Sequence[str] = ()
    arcs: Sequence[Arc] = ()
    rare: int = -1
    name: str = ""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def plain(self) -> Bool[np.ndarray, " N"]:
        """Positions of the text itself."""
        return ~self.special

    @property
    def pair(self) -> bool:
        """Return whether there are two texts."""
        return bool((self.segments[self.plain] != self.segments[self.plain][:1]).any())

    def linked(self, requested: str, relations: Sequence[str]) -> list[Arc]:
        """Arcs of a relation between words that do not share tokens."""
        names = {*relations} if requested == "any" else {requested}
        return [
            arc
            for arc in self.arcs
            if (arc.relation in names or arc.relation.split(":")[0] in names)
            and self.disjoint(arc.dependent, arc.governor)
        ]

    def disjoint(self, word: int, other: int) -> bool:
        """Return whether two annotated words have tokens, none of them in common."""
        one, two = self.words[word], self.words[other]
        return bool(one) and bool(two) and (one[-1] < two[0] or two[-1] < one[0])


def labels_of(
    metadata: Trace,
    *,
    tokens: Int[np.ndarray, " N"] | None = None,
    name: str = "",
) -> PositionLabels:
    """The layout of a trace of one text, as far as a trace has it.

    The first special token at the beginning is `[CLS]`, all others are separators.
    """
    if metadata.special is None or len(metadata) != 1:
        raise InputError(
            f"Roles need one text and its special tokens; the trace holds {len(metadata)} texts"
            f"{'' if metadata.special is not None else ' and does not tell them'}.\n"
            "Give special=, True at [CLS] and [SEP], to Trace.from_arrays; take trace[0]."
        )
    readable = list(metadata.tokens[0])
    special = np.asarray(metadata.special[0], bool)
    if tokens is None:
        tokens = np.unique(readable, return_inverse=True)[1]
    first = special & (np.arange(len(readable)) == 0)
    segments = np.zeros(len(readable), int) if metadata.segments is None else metadata.segments[0]
    marks = np.array([is_punctuation(token) for token in readable], bool)
    return PositionLabels(
        tokens=np.asarray(tokens),
        first=first,
        separators=special & ~first,
        special=special,
        punctuation=marks & ~special,
        segments=np.asarray(segments),
        spelt=_spelt(metadata, special, np.asarray(segments)),
        name=name,
    )


def is_punctuation(token: str) -> bool:
    """Return whether every character of a token is punctuation."""
    return all(unicodedata.category(character)[0] == "P" for character in token)


def _spelt(
    metadata: Trace, special: Bool[np.ndarray, " N"], segments: Int[np.ndarray, " N"]
) -> Int[np.ndarray, " N"]:
    """Words of both texts, numbered through; each token is one where nobody says."""
    if not metadata.words:
        return np.where(special, -1, np.arange(len(special)))
    numbers = np.array([-1 if number is None else number for number in metadata.words[0]])
    both = numbers + segments * (numbers.max(initial=0) + 1)
    return np.where(special | (numbers < 0), -1, both)
