# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Mentions and what came before them: candidates, three baselines, and heads that know."""

import numpy as np
import pytest

from flaxattn.corpus.mentions import Document, DocumentWord, Mention
from flaxattn.probes.head_coreference import (
    FROM_MENTION,
    HEAD_WORD,
    NEAREST,
    RULES,
    TO_MENTION,
    Coreference,
    antecedent_scores,
    antecedents,
)

WORDS = [
    *(("Anna", "NNP"), ("saw", "VBD"), ("dogs", "NNS"), ("and", "CC"), ("Carl", "NNP")),
    *(("she", "PRP"), ("fed", "VBD"), ("them", "PRP"), ("Anna", "NNP"), ("left", "VBD")),
    *(("Carl", "NNP"), ("'s", "POS"), ("friend", "NN")),
]
# Entity, first word, the one after the last, head.
MENTIONS = [
    Mention("A", 0, 1, 0),
    Mention("D", 2, 3, 2),
    Mention("C", 4, 5, 4),
    Mention("A", 5, 6, 5),
    Mention("D", 7, 8, 7),
    Mention("A", 8, 9, 8),
    Mention("F", 10, 13, 12),
    Mention("C", 10, 12, 10),
]


@pytest.fixture
def document():
    words, start = [], 0
    for form, tag in WORDS:
        words.append(DocumentWord(form, tag, (start, start + len(form)), 1))
        start += len(form) + 1
    text = " ".join(form for form, _ in WORDS)
    return Document("d", text, tuple(words), tuple(MENTIONS), "f", 1)


def test_candidates_and_baselines(document):
    found = {one.mention.head: one for one in antecedents(document)}
    assert list(found) == [5, 7, 8, 10]
    assert {head: one.candidates for head, one in found.items()} == {
        5: (0, 2, 4),
        7: (0, 2, 4, 5),
        8: (0, 2, 4, 5, 7),
        10: (0, 2, 4, 5, 7, 8),
    }
    rights = {h: [one.candidates[n] for n in one.right] for h, one in found.items()}
    assert rights == {5: [0], 7: [2], 8: [0, 5], 10: [4]}

    def taken(name):
        answers = {head: one.simple[name] for head, one in found.items()}
        return {h: None if n is None else found[h].candidates[n] for h, n in answers.items()}

    assert taken(NEAREST) == {5: 4, 7: 5, 8: 7, 10: 8}
    assert taken(HEAD_WORD) == {5: None, 7: None, 8: 0, 10: 4}
    # she: Carl agrees as far as anybody knows; them: dogs are many, Carl is one; Anna and Carl by
    # their words ("Carl 's" is not "Carl", but its head is).
    assert taken(RULES) == {5: 4, 7: 2, 8: 0, 10: 4}


def test_heads_that_know_and_heads_that_do_not(document):
    count = len(WORDS)
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(count), (2, 2, count)).astype(np.float32) * 0.1
    for head, right in ((5, 0), (7, 2), (8, 5), (10, 4)):
        weights[0, 1, head, right] = 0.8  # knows
        weights[1, 0, right, head] = 0.8  # is known
        weights[1, 1, head, 1] = 0.9  # looks at a word that is not a mention
        weights[1, 1, head, right] = 0.5
    among = Coreference.of(antecedent_scores(document, weights, (0, 1), (0, 1)))
    assert among.accuracy(FROM_MENTION)[0, 1] == 1 and among.accuracy(TO_MENTION)[1, 0] == 1
    assert among.accuracy(FROM_MENTION)[1, 1] == 1
    assert among.counts == {"": 4, "pronoun": 2, "proper": 2}
    assert among.baselines() == {NEAREST: 0, HEAD_WORD: 0.5, RULES: 0.75}
    assert among.baseline("proper") == (HEAD_WORD, 1)
    everything = Coreference.of(
        antecedent_scores(document, weights, (0, 1), (0, 1), among_words=True)
    )
    assert everything.accuracy(FROM_MENTION)[0, 1] == 1
    assert everything.accuracy(FROM_MENTION)[1, 1] == 0
    assert everything.baselines() == among.baselines()
    (one, *_) = antecedent_scores(document, weights, (0, 1), (0, 1), among_words=True)
    others = [word for word in range(count) if word != 5]
    np.testing.assert_array_equal(
        one.scores[FROM_MENTION], np.moveaxis(weights[:, :, 5][..., others], 2, 0)
    )
    np.testing.assert_array_equal(
        one.scores[TO_MENTION], np.moveaxis(weights[:, :, others, 5], 2, 0)
    )
