# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Shares on earlier occurrences, against a loop over every query and key."""

import numpy as np
import pytest

from flaxattn.measures.head_measures import repeated_token_shares

TOKENS = list("abcabcaab")


def causal(heads: int, length: int, seed: int = 0) -> np.ndarray:
    weights = np.tril(np.random.default_rng(seed).random((heads, length, length)))
    return weights / weights.sum(-1, keepdims=True)


def test_shares_are_those_of_a_loop():
    weights = causal(3, len(TOKENS))
    shares = repeated_token_shares(weights, TOKENS)
    for name, step in (("duplicate", 0), ("induction", 1)):
        for head in range(3):
            rows = []
            for query, token in enumerate(TOKENS):
                earlier = [i for i in range(query) if TOKENS[i] == token and i + step < query]
                if earlier:
                    rows.append(sum(weights[head, query, i + step] for i in earlier))
            assert shares[name][head] == pytest.approx(np.mean(rows), abs=1e-12)


def test_an_induction_head_has_a_share_of_one():
    weights = np.eye(6)
    for query in (3, 4, 5):
        weights[query] = np.eye(6)[query - 2]
    shares = repeated_token_shares(weights[None], list("abcabc"))
    assert shares["induction"] == [1] and shares["duplicate"] == [0]


@pytest.mark.parametrize("tokens", ["abcdef", "abcdab"])
def test_too_few_repeats_tell_nothing(tokens):
    assert repeated_token_shares(causal(1, 6), list(tokens)) == {}


def test_attention_to_later_tokens_is_not_measured():
    weights = np.full((1, 9, 9), 1 / 9)
    assert repeated_token_shares(weights, TOKENS) == {}


def test_nan_is_not_measured():
    weights = causal(1, 9)
    weights[0, 4] = np.nan
    assert repeated_token_shares(weights, TOKENS) == {}
