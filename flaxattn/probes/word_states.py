# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Hidden states of the words of a sentence with a tree, and the distances and depths in the tree.

`PositionLabels` says what a word is and where its tokens are. The metric of a tree is what
structural probes should say, of the tree itself and of a control task.
"""

import dataclasses
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import minimum_spanning_tree

from flaxattn.corpus.dependency_trees import Word
from flaxattn.errors import InputError
from flaxattn.probes.word_maps import ROOT
from flaxattn.text.position_labels import PositionLabels


class TreeMetric(NamedTuple):
    """A tree as numbers.

    Attributes:
        distances: Edges on the way from each word to each other one.
        depths: Edges from the root to each word.
    """

    distances: Int[np.ndarray, "W W"]
    depths: Int[np.ndarray, " W"]

    def among(self, kept: Sequence[int]) -> "TreeMetric":
        """Restrict the metric to some words; the path between two of them may lead over others."""
        return TreeMetric(self.distances[np.ix_(kept, kept)], self.depths[kept])


def tree_metric(governors: Sequence[int]) -> TreeMetric:
    """Distances and depths of a tree. Cost: W²."""
    count = len(governors)
    below: list[list[int]] = [[] for _ in range(count + 1)]
    for word, governor in enumerate(governors):
        below[governor].append(word)
    (root,) = below[ROOT]
    distances, depths = np.zeros((count, count), np.int32), np.zeros(count, np.int32)
    order = [root]
    for governor in order:  # grows: a word comes after its governor
        for word in below[governor]:
            row = distances[governor, order] + 1
            distances[word, order] = distances[order, word] = row
            depths[word] = depths[governor] + 1
            order.append(word)
    return TreeMetric(distances, depths)


def control_metric(
    types: Sequence[tuple[int, ...]], punctuation: Bool[np.ndarray, " W"], seed: int = 0
) -> TreeMetric:
    """Metric of a random tree that depends on the words alone: our control for structural probes.

    The first word is the root, and the last one hangs on it; a type, that is, a word with the same
    tokens, hangs on the one or on the other, as was drawn for all sentences. Hewitt and Liang
    (2019) let a type attach to itself too, which no word of a tree can do.
    """
    places = np.flatnonzero(~punctuation)
    first, last = (int(places[0]), int(places[-1])) if len(places) else (0, len(types) - 1)
    governors = [ROOT] * len(types)
    for place, positions in enumerate(types):
        if place != first:
            drawn = zlib.crc32(repr((seed, positions)).encode()) % 2
            governors[place] = last if drawn and place != last else first
    return tree_metric(governors)


def chain_metric(count: int) -> TreeMetric:
    """Metric of a chain, each word hanging on the one before: a baseline without a model."""
    places = np.arange(count, dtype=np.int32)
    return TreeMetric(abs(places[:, None] - places), places)


def spanning_edges(
    distances: Float[np.ndarray, "W W"] | Int[np.ndarray, "W W"], counted: Bool[np.ndarray, " W"]
) -> set[tuple[int, int]]:
    """Edges of the tree over some words with the least sum of distances."""
    places = np.flatnonzero(counted)
    # SciPy takes 0 for no edge; one more on every edge leaves the least tree what it is.
    among = distances[np.ix_(places, places)].astype(np.float64) + 1
    edges = np.argwhere(minimum_spanning_tree(among).toarray() > 0)
    pairs = np.sort(places[edges], 1).tolist()
    return {(low, high) for low, high in pairs}


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
        numbers: Numbers of the words.
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
