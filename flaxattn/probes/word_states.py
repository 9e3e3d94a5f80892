# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Hidden states of the words of a sentence with a tree: `WordStates`, what structural probes read.

`PositionLabels` says what a word is and where its tokens are; nothing is measured here.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.corpus.dependency_trees import Word
from flaxattn.errors import InputError
from flaxattn.probes.tree_metrics import TreeMetric, tree_metric
from flaxattn.probes.word_maps import ROOT
from flaxattn.text.position_labels import PositionLabels


@dataclasses.dataclass(frozen=True)
class WordStates:
    """Vectors of the W words of a sentence, and the tree over them.

    Attributes:
        layers: Numbers of the hidden states: 0 for the embeddings, n for the output of the n-th
            layer.
        vectors: Mean of the states of a word's tokens.
        tree: Distances and depths.
        types: The tokens of each word: the same for the same word.
        punctuation: True at words that are punctuation by their tag.
        name: What to call the sentence.
        words: The words as the treebank has them, with parts of speech and features.
    """

    layers: tuple[int, ...]
    vectors: Float[np.ndarray, "L W E"]
    tree: TreeMetric
    types: tuple[tuple[int, ...], ...]
    punctuation: Bool[np.ndarray, " W"]
    name: str = ""
    words: tuple[Word, ...] = ()

    def __len__(self) -> int:
        return len(self.types)

    def of_layer(self, layer: int) -> Float[np.ndarray, "W E"]:
        """The vectors of a hidden state."""
        if layer not in self.layers:
            raise InputError(
                f"The sentence {self.name!r} has hidden states {[*self.layers]}, not {layer}.\n"
                "Ask for that one when states are read: layers=."
            )
        return self.vectors[self.layers.index(layer)]


class Kept(NamedTuple):
    """The words of a layout that have a vector of their own.

    Attributes:
        numbers: Of the words.
        shares: What each position gives to each of these words; columns sum to one.
    """

    numbers: list[int]
    shares: Float[np.ndarray, "N W"]


def kept_words(layout: PositionLabels) -> Kept:
    """The words that a probe can tell apart: those with a token that no earlier word has.

    Words beyond a cut have none, and the second of two words that are written as one has none
    either ("im" is "in" and "dem").
    """
    taken: set[int] = set()
    numbers = []
    for number, positions in enumerate(layout.words):
        if not taken.issuperset(positions):
            numbers.append(number)
            taken.update(positions)
    if not numbers:
        raise InputError(
            f"The text {layout.name or '?'!r} has no words with a tree, so there is nothing to "
            "probe.\nGive sentences of a CoNLL-U file."
        )
    shares = np.zeros((len(layout), len(numbers)), np.float32)
    for place, number in enumerate(numbers):
        shares[list(layout.words[number]), place] = 1 / len(layout.words[number])
    return Kept(numbers, shares)


def word_states_of(
    vectors: Float[np.ndarray, "L W E"],
    layout: PositionLabels,
    kept: Kept,
    layers: tuple[int, ...],
    words: Sequence[Word],
) -> WordStates:
    """Vectors of words beside the tree over them, in which words without a vector still stand."""
    governors = [ROOT] * len(layout.words)
    for arc in layout.arcs:
        governors[arc.dependent] = arc.governor
    return WordStates(
        layers,
        vectors,
        tree_metric(governors).among(kept.numbers),
        tuple(tuple(layout.tokens[list(layout.words[n])].tolist()) for n in kept.numbers),
        np.array([layout.tags[number] == "PUNCT" for number in kept.numbers], bool),
        layout.name,
        tuple(words[number] for number in kept.numbers),
    )
