# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Roles of any side, summed on the device, are those of whole maps; so is how alike heads are."""

import numpy as np
import pytest

from flaxattn.corpus.dependency_trees import Sentence, Word
from flaxattn.corpus.texts import Text, annotated_text
from flaxattn.errors import InputError
from flaxattn.measures.divergence import jensen_shannon
from flaxattn.measures.head_similarity import beginning, head_pairs
from flaxattn.measures.score_source import default_side, head_scores
from flaxattn.measures.scores import scores_of
from flaxattn.measures.specs import ScoreOptions, ScoreSpec
from flaxattn.pipeline.extraction import extract
from flaxattn.pipeline.tokenize_texts import ReadingOptions

pytestmark = pytest.mark.slow

PLAIN = ScoreOptions(annotated=False)
WORDS = "a b c the cat is very sad , .".split()


@pytest.fixture(scope="module")
def some():
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, size)) for size in (3, 12, 1, 7, 9)]


def assert_same(one, other):
    assert one.values.keys() == other.values.keys()
    assert (one.layers, one.heads, one.side) == (other.layers, other.heads, other.side)
    np.testing.assert_array_equal(one.lengths, other.lengths)
    for column, values in one.values.items():
        scale = one.lengths if column.kind in ("score", "control", "beyond") else np.ones(len(one))
        gap = abs(values - other.values[column]) / scale[:, None, None]
        assert (np.isnan(values) == np.isnan(other.values[column])).all(), column
        assert np.nan_to_num(gap).max() < 1e-5, (column, np.nanmax(gap))
    for role, ceilings in one.ceilings.items():
        np.testing.assert_allclose(ceilings, other.ceilings[role], rtol=1e-6)


def subjects(texts, targets=None):
    seconds = [None] * len(texts) if targets is None else targets
    return [Text(n, str(n), *pair) for n, pair in enumerate(zip(texts, seconds, strict=True))]


def test_a_decoder(gpt2, some):
    watched = []
    reading = ReadingOptions(watch=lambda _, count: watched.append(count))
    (found,) = head_scores(gpt2, subjects(some), PLAIN, reading=reading)
    assert_same(scores_of(extract(gpt2, some), PLAIN, side="decoder"), found)
    assert sum(watched) == 5 and found.side == "decoder"
    assert ScoreSpec("score", "induction") in found.values


@pytest.mark.parametrize("side", ["cross", pytest.param("decoder", marks=pytest.mark.slow)])
def test_an_encoder_decoder(seq2seq, some, side):
    targets = some[::-1]
    (found,) = head_scores(seq2seq, subjects(some, targets), PLAIN, side=side)
    assert_same(scores_of(extract(seq2seq, some, targets), PLAIN, side=side), found)
    names = {column.name for column in found.values}
    assert ("diagonal" in names) == (side == "cross")


@pytest.mark.slow
def test_targets_that_are_not_given_are_written(seq2seq, some):
    (found,) = head_scores(
        seq2seq, subjects(some), PLAIN, side="encoder", reading=ReadingOptions(batch_tokens=48)
    )
    assert_same(scores_of(extract(seq2seq, some), PLAIN, side="encoder"), found)


def test_relations_in_a_decoder(gpt2):
    """Against the weights themselves; every word is a piece."""
    options = ScoreOptions(relations=("nsubj",))
    sentence = Sentence(
        "s",
        "the cat is sad",
        (
            Word("the", "DET", 1, "det", 0, 3, 1),
            Word("cat", "NOUN", 3, "nsubj", 4, 7, 2),
            Word("is", "AUX", 3, "cop", 8, 10, 3),
            Word("sad", "ADJ", -1, "root", 11, 14, 4),
        ),
        "a.conllu",
        1,
    )
    (found,) = head_scores(gpt2, [annotated_text(sentence)], options)
    (trace,) = extract(gpt2, [sentence.text])
    weights = np.asarray(trace.decoder.weights)[:, 0]
    score = found.values[ScoreSpec("score", "dependent(nsubj)")][0]
    np.testing.assert_allclose(score, 4 * weights[..., 3, 1], atol=1e-5)
    assert ScoreSpec("score", "governor(nsubj)") not in found.values


@pytest.mark.parametrize(
    "family",
    ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gpt2", "seq2seq"))],
)
def test_how_alike_heads_are(request, some, family):
    model = request.getfixturevalue(family)
    side = default_side(model)
    given = subjects(some, some[::-1] if family == "seq2seq" else None)
    pairs = head_pairs(model, given)
    traces = extract(model, some, some[::-1] if family == "seq2seq" else None)
    maps = []
    for trace in traces:
        weights = np.asarray(getattr(trace, side).weights)[:, 0]
        maps.append(weights.reshape(-1, *weights.shape[2:]))
    expected = np.mean(
        [
            [[jensen_shannon(one, other).mean() for other in heads] for one in heads]
            for heads in maps
        ],
        axis=0,
    )
    np.testing.assert_allclose(pairs.moments.mean, expected, atol=2e-6)
    assert pairs.texts == 5 and pairs.layers[0] == 0 and len(pairs.heads) == len(expected)
    starts = np.stack([beginning(heads) for heads in maps])
    order = np.argsort([s[0, 0, 0] for s in starts])
    mine = np.argsort([s[0, 0, 0] for s in pairs.beginnings])
    if family != "gpt2":  # whose first query sees itself only
        np.testing.assert_allclose(pairs.beginnings[mine], starts[order], atol=2e-6)


def test_what_a_model_has_not(bert, gpt2, some):
    with pytest.raises(InputError, match="'g' has no attention of side 'cross'\nit has decoder"):
        next(head_scores(gpt2, subjects(some), PLAIN, side="cross"))
    with pytest.raises(InputError, match="the notebooks are about an encoder by itself"):
        next(head_scores(gpt2, subjects(some), ScoreOptions(annotated=False, pande_parity=True)))
    with pytest.raises(InputError, match="reads single texts, received pairs"):
        next(head_scores(gpt2, subjects(some, some), PLAIN))
    assert (default_side(bert), default_side(gpt2)) == ("encoder", "decoder")
    assert head_pairs(bert, []) is None
