# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts laid out by hand, random maps over them, and scores of both."""

import dataclasses

import numpy as np

from flaxattn.measures.scores import dense_values, gathered
from flaxattn.measures.terms import terms_of
from flaxattn.text.position_labels import Arc, PositionLabels

# Words and their pieces: the second one has two, the fourth repeats the first.
ARCS = (Arc(0, 1, "nsubj"), Arc(2, 1, "obj"), Arc(3, 2, "amod"), Arc(4, 2, "nsubj:pass"))


def single(name="t", arcs=ARCS):
    """[CLS] a b ##b c a . [SEP]: one text of five words with a tree."""
    tokens = np.array([1, 10, 11, 12, 13, 10, 14, 2])
    special = np.isin(tokens, (1, 2))
    return PositionLabels(
        tokens=tokens,
        first=tokens == 1,
        separators=tokens == 2,
        special=special,
        punctuation=tokens == 14,
        segments=np.zeros(8, int),
        spelt=np.array([-1, 0, 1, 1, 2, 3, 4, -1]),
        words=[[1], [2, 3], [4], [5], [6]],
        tags=["NOUN", "VERB", "NOUN", "ADJ", "PUNCT"],
        arcs=arcs,
        rare=4,
        name=name,
    )


def pair():
    """[CLS] a b c [SEP] a d b e [SEP]: two texts of three and four words."""
    tokens = np.array([1, 10, 11, 12, 2, 10, 13, 11, 14, 2])
    special = np.isin(tokens, (1, 2))
    return PositionLabels(
        tokens=tokens,
        first=tokens == 1,
        separators=tokens == 2,
        special=special,
        punctuation=np.zeros(10, bool),
        segments=np.array([0] * 5 + [1] * 5),
        spelt=np.where(special, -1, np.arange(10)),
        rare=6,
    )


def plain(count, seed=0):
    """[CLS], so many different words, [SEP]."""
    tokens = np.array([1, *range(10, 10 + count), 2])
    special = np.isin(tokens, (1, 2))
    return dataclasses.replace(
        single(f"p{count}-{seed}"),
        tokens=tokens,
        first=tokens == 1,
        separators=tokens == 2,
        special=special,
        punctuation=np.zeros(len(tokens), bool),
        segments=np.zeros(len(tokens), int),
        spelt=np.where(special, -1, np.arange(len(tokens))),
        words=[[place] for place in range(1, count + 1)],
        tags=["X"] * count,
        arcs=(),
        rare=-1,
    )


def random_maps(layers, heads, length, rng):
    return rng.dirichlet(np.full(length, 0.3), (layers, heads, length))


def scores_from(maps, layouts, asked):
    """Scores of maps `[L, H, N, N]`, one per layout."""
    found = []
    for weights, layout in zip(maps, layouts, strict=True):
        terms = terms_of(layout, asked)
        found.append((terms, dense_values(weights, terms)))
    shape = maps[0].shape
    return gathered(tuple(range(shape[0])), tuple(range(shape[1])), found)
