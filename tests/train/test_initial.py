# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Word vectors by counting: shape, scale, and words in the same company end up together."""

import random

import numpy as np

from flaxattn.train.bert_mlm import word_vectors


def test_words_of_the_same_company_are_neighbours() -> None:
    """Ids 0-4 stand after 10, ids 5-9 after 12; before 11 stand all: only the left side tells."""
    rng = random.Random(0)
    words: list[int] = []
    for _ in range(4000):
        group = rng.randrange(2)
        words += [10 + 2 * group, 5 * group + rng.randrange(5), 11]
    vectors = word_vectors([np.array(words)], 20, 6, window=1)
    np.testing.assert_allclose((vectors[:13] ** 2).mean(1), 1, rtol=1e-4)
    assert not vectors[13:].any()  # never seen
    unit = vectors[:10] / np.linalg.norm(vectors[:10], axis=1, keepdims=True)
    cosines = unit @ unit.T
    assert cosines[:5, :5].min() > 0.9
    assert cosines[:5, 5:].max() < 0.5


def test_they_are_reproducible() -> None:
    document = np.array([random.Random(n).randrange(30) for n in range(500)])
    one, two = (word_vectors([document], 30, 8, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one, two)
