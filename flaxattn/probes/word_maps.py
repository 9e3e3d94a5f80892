# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention between the words of a sentence with a tree, from that between tokens: `WordMaps`.

The probes of `dependency` and `parsing` read these. `PositionLabels` says what a word is and where
its tokens are; nothing is measured here.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.text.position_labels import PositionLabels

ROOT = -1
"""In place of a governor: the word has none."""
UNKNOWN = -2
"""In place of a governor: it was cut off, or shares its tokens with the word. It counts nowhere."""


@dataclasses.dataclass(frozen=True)
class WordMaps:
    """Attention between the W words of a sentence, and the tree over them.

    Attributes:
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        weights: Share of attention that the word of a row gives to that of a column.
        first: Share that each word gives to the token the model begins with, `[CLS]`.
        separators: Share that it gives to those that end texts, `[SEP]`.
        governors: Number of the word that each depends on; `ROOT`, or `UNKNOWN`.
        relations: To it, with subtypes; empty for the root.
        types: The tokens of each word: the same for the same word.
        punctuation: True at words that are punctuation by their tag.
        name: What to call the sentence.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    weights: Float[np.ndarray, "L H W W"]
    first: Float[np.ndarray, "L H W"]
    separators: Float[np.ndarray, "L H W"]
    governors: Int[np.ndarray, " W"]
    relations: tuple[str, ...]
    types: tuple[tuple[int, ...], ...]
    punctuation: Bool[np.ndarray, " W"]
    name: str = ""

    def __len__(self) -> int:
        return len(self.governors)


def word_maps_of(
    weights: Float[np.ndarray, "L H N N"],
    layout: PositionLabels,
    layers: tuple[int, ...] | None = None,
    heads: tuple[int, ...] | None = None,
) -> WordMaps:
    """Attention between words: what the tokens of a word give on average, what another's get.

    That is, columns of a split word are summed and rows averaged (Clark et al. 2019, section 4.1).
    Words without tokens, which lie beyond a cut, are left out.
    """
    weights = np.asarray(weights, np.float32)
    count = len(layout)
    if weights.ndim != 4 or weights.shape[2:] != (count, count):
        raise InputError(
            f"Weights between the positions of {layout.name or 'a text'!r} have shape "
            f"{weights.shape}; expected [L, H, {count}, {count}].\n"
            "Give those of one text, without padding."
        )
    kept = [number for number, positions in enumerate(layout.words) if positions]
    if not kept:
        raise InputError(
            f"The text {layout.name or '?'!r} has no words with a tree, so there is nothing to "
            "probe.\nGive sentences of a CoNLL-U file."
        )
    given, between = between_words(weights, [layout.words[number] for number in kept])
    governors, relations = _tree(layout, kept)
    return WordMaps(
        tuple(range(weights.shape[0])) if layers is None else layers,
        tuple(range(weights.shape[1])) if heads is None else heads,
        between,
        given[:, :, layout.first].sum(2),
        given[:, :, layout.separators].sum(2),
        governors,
        relations,
        tuple(tuple(layout.tokens[list(layout.words[number])].tolist()) for number in kept),
        np.array([layout.tags[number] == "PUNCT" for number in kept], bool),
        layout.name,
    )


def between_words(
    weights: Float[np.ndarray, "L H N N"], words: Sequence[Sequence[int]]
) -> tuple[Float[np.ndarray, "L H N W"], Float[np.ndarray, "L H W W"]]:
    """Attention between words: a mean over the query's tokens, a sum over the key's tokens.

    Returns:
        What each token gets of each word, and what the word of a row gives to that of a column.
    """
    members = np.zeros((weights.shape[-1], len(words)), np.float32)
    for place, positions in enumerate(words):
        members[list(positions), place] = 1
    given = np.swapaxes(weights, -1, -2) @ (members / members.sum(0))
    return given, np.swapaxes(given, -1, -2) @ members


def _tree(layout: PositionLabels, kept: list[int]) -> tuple[Int[np.ndarray, " W"], tuple[str, ...]]:
    """Governor and relation of each of the words that have tokens."""
    places = {number: place for place, number in enumerate(kept)}
    governors, relations = np.full(len(kept), ROOT), [""] * len(kept)
    for arc in layout.arcs:
        if arc.dependent in places:
            known = layout.apart(arc.dependent, arc.governor)
            place = places[arc.dependent]
            governors[place] = places[arc.governor] if known else UNKNOWN
            relations[place] = arc.relation
    return governors, tuple(relations)
