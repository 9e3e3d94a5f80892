# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attribution maps are measured group by group, with the same numbers as all at once."""

import numpy as np
import pytest

from flaxattn.reports import weights

TEXTS = ["the cat is sad .", "a b c", "the", "a cat", "b is a cat ."]
WHERE = ("text", "kind", "side", "layer", "head")
KINDS = ("attention", "norm", "effective", "rollout")


def test_texts_are_grouped_by_the_bytes_of_their_attention(monkeypatch):
    monkeypatch.setattr(weights, "_HELD", 10)
    parts = weights._groups([4, 6, 1, 99, 5, 5, 5])
    assert [(part.start, part.stop) for part in parts] == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 7)]
    assert weights._groups([99]) == [slice(0, 1)]


@pytest.mark.slow
def test_groups_have_the_numbers_and_the_order_of_all_texts_together(bert, monkeypatch):
    report = weights.weights(bert, TEXTS, kinds=KINDS)
    monkeypatch.setattr(weights, "_HELD", 1)
    whole = report.table.to_pylist()
    alone = weights.weights(bert, TEXTS, kinds=KINDS).table.to_pylist()
    assert not report.facts["refused"] and len(whole) == len(alone)
    assert [row["kind"] for row in whole] == sorted((row["kind"] for row in whole), key=KINDS.index)
    for one, other in zip(whole, alone, strict=True):
        assert [one[name] for name in WHERE] == [other[name] for name in WHERE]
        np.testing.assert_allclose(
            [np.nan if one[name] is None else one[name] for name in one if name not in WHERE],
            [np.nan if other[name] is None else other[name] for name in one if name not in WHERE],
            rtol=1e-5,
            atol=1e-6,
        )
