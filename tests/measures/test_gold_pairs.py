# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gold pairs of a text whose tree and pieces are written by hand."""

import dataclasses

import numpy as np
import pytest

from flaxattn.measures.gold_pairs import GoldPair, gold_pairs
from flaxattn.text.position_labels import Arc, PositionLabels

# [CLS] she read ##s old books [SEP]; she <- reads -> books -> old
WORDS = [[1], [2, 3], [4], [5]]
ARCS = [Arc(0, 1, "nsubj"), Arc(3, 1, "obj:x"), Arc(2, 3, "amod")]


@pytest.fixture
def layout() -> PositionLabels:
    special = np.isin(np.arange(7), [0, 6])
    none = np.zeros(7, bool)
    blank = {"first": none, "separators": none, "punctuation": none, "segments": np.zeros(7, int)}
    return PositionLabels(
        tokens=np.arange(7), special=special, spelt=np.arange(7), words=WORDS, arcs=ARCS, **blank
    )


@pytest.mark.parametrize(
    ("claim", "pairs"),
    [
        ("governor(nsubj)", [(1, 2, 3)]),
        ("dependent(nsubj)", [(2, 1, 1)]),
        ("syntactic: governor(obj)", [(5, 2, 3)]),
        ("governor(obj:x)", [(5, 2, 3)]),
        ("governor(any)", [(1, 2, 3), (4, 5, 5)]),
        ("pattern: next token", [(1, 2, 2), (2, 3, 3), (3, 4, 4), (4, 5, 5), (5, 6, 6)]),
        ("previous token", [(1, 0, 0), (2, 1, 1), (3, 2, 2), (4, 3, 3), (5, 4, 4)]),
        ("positional: previous", [(1, 0, 0), (2, 1, 1), (3, 2, 2), (4, 3, 3), (5, 4, 4)]),
        ("own token", [(n, n, n) for n in range(1, 6)]),
        ("local", []),
        ("governor(det)", []),
    ],
)
def test_pairs_are_those_of_the_tree_and_of_positions(layout, claim, pairs):
    assert gold_pairs(layout, claim, ("nsubj", "amod"), causal=False) == [
        GoldPair(*pair) for pair in pairs
    ]


@pytest.mark.parametrize(
    ("claim", "pairs"),
    [
        ("governor(nsubj)", []),
        ("dependent(nsubj)", [(2, 1, 1)]),
        ("governor(obj)", [(5, 2, 3)]),
        ("next token", []),
        ("own token", [(n, n, n) for n in range(1, 6)]),
    ],
)
def test_a_decoder_has_no_pair_with_a_later_key(layout, claim, pairs):
    found = gold_pairs(layout, claim, ("nsubj",), causal=True)
    assert found == [GoldPair(*pair) for pair in pairs]


def test_words_without_pieces_have_no_pairs(layout):
    cut = dataclasses.replace(layout, words=[[1], [2, 3], [4], []])
    assert gold_pairs(cut, "governor(obj)", (), causal=False) == []
    assert gold_pairs(cut, "governor(nsubj)", (), causal=False) == [GoldPair(1, 2, 3)]
