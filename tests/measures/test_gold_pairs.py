# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gold pairs name the weights that scores count, and hits are those that scores count."""

import dataclasses

import numpy as np
import pytest

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import read_sentences
from flaxattn.corpus.texts import annotated_text
from flaxattn.measures.gold_pairs import (
    HIT,
    MISS,
    UNJUDGED,
    GoldPair,
    gold_keys,
    judged_pairs,
    runs_of,
    score_pairs,
    text_pairs,
)
from flaxattn.measures.scores import dense_values
from flaxattn.measures.specs import KeyRange, ScoreOptions, ScoreSpec
from flaxattn.measures.terms import terms_for
from flaxattn.probes.governor_probe import FROM_GOVERNOR, TO_GOVERNOR, Dependencies, governor_pairs
from flaxattn.probes.word_records import word_maps_of
from flaxattn.text.position_labels import Arc, labels_of
from flaxattn.trace.trace import Trace

TOKENS = "[CLS] the cat ##s saw the dog . [SEP]".split()
WORDS = [[1], [2, 3], [4], [5], [6], [7]]
ARCS = [
    Arc(0, 1, "det"),
    Arc(1, 2, "nsubj"),
    Arc(3, 4, "det"),
    Arc(4, 2, "obj"),
    Arc(5, 2, "punct"),
]
OPTIONS = ScoreOptions(relations=("nsubj", "obj", "det"))


def made(side="encoder", seed=0):
    """A trace of three layers and four heads with its layout."""
    length = len(TOKENS)
    scores = np.random.default_rng(seed).normal(size=(3, 1, 4, length, length)) * 2
    if side == "decoder":
        scores = np.where(np.tril(np.ones((length, length), bool)), scores, -np.inf)
    shares = np.exp(scores)
    shares = (shares / shares.sum(-1, keepdims=True)).astype(np.float32)
    special = np.array([[token.startswith("[") for token in TOKENS]])
    words = [[None, 0, 1, 1, 2, 3, 4, 5, None]]
    given = {"special": special, "words": words}
    if side == "decoder":
        trace = Trace.from_arrays(
            None, [TOKENS], decoder_weights=shares, decoder_tokens=[TOKENS], **given
        )
        trace = dataclasses.replace(trace, decoder_tokens=())
    else:
        trace = Trace.from_arrays(shares, [TOKENS], **given)
    layout = dataclasses.replace(
        labels_of(trace, name="a"), words=WORDS, tags=["X"] * len(WORDS), arcs=ARCS, rare=4
    )
    return trace, layout, shares[:, 0]


def gold_of(column, side="encoder", request=OPTIONS):
    trace, layout, shares = made(side)
    terms = terms_for(trace, layout, side, request, alone=side == "encoder")
    return score_pairs("claim", column, terms, getattr(trace, side), side), terms, shares


@pytest.mark.parametrize("role", ["governor(nsubj)", "dependent(det)", "governor(any)"])
def test_hits_of_a_relation_are_those_that_the_score_counts(role):
    found, terms, shares = gold_of(ScoreSpec("score", role))
    share = dense_values(shares, terms)[ScoreSpec("hit", role)]
    np.testing.assert_allclose((found.hits == HIT).mean(-1), share, atol=1e-6)
    assert 0 < (found.hits == HIT).mean() < 1 and not (found.hits == UNJUDGED).any()


def test_pairs_of_a_relation_are_its_words_by_their_tokens():
    found = gold_of(ScoreSpec("score", "governor(nsubj)"))[0]
    assert found.pairs == [GoldPair((2, 2), ((4, 4),))]
    assert found.about == "each word and its governor (nsubj)"
    turned = gold_of(ScoreSpec("score", "dependent(nsubj)"))[0]
    assert turned.pairs == [GoldPair((4, 4), ((2, 3),))]
    every = gold_of(ScoreSpec("score", "dependent(any)"))[0]
    assert len(every.pairs) == 4 and every.about.endswith("(any relation)")


@pytest.mark.parametrize("name", ["next", "previous"])
def test_hits_of_the_strongest_neighbour_are_those_that_the_score_counts(name):
    column = ScoreSpec("strongest", name)
    found, terms, shares = gold_of(column)
    step = 1 if name == "next" else -1
    assert all(pair.keys == ((pair.query[0] + step,) * 2,) for pair in found.pairs)
    share = dense_values(shares, terms)[column]
    plain = sum(not token.startswith("[") for token in TOKENS)
    np.testing.assert_allclose((found.hits == HIT).sum(-1) / plain, share, atol=1e-6)


@pytest.mark.parametrize(
    ("side", "column"),
    [
        ("encoder", ScoreSpec("mass", "local")),
        ("encoder", ScoreSpec("mass", "delimiter")),
        ("encoder", ScoreSpec("pattern", "same token")),
        ("encoder", ScoreSpec("pattern", "word")),
        ("encoder", ScoreSpec("mean", "sep")),
        ("decoder", ScoreSpec("mass", "local")),
        ("decoder", ScoreSpec("mass", "duplicate")),
        ("decoder", ScoreSpec("mass", "induction")),
    ],
)
def test_the_mass_of_a_score_is_on_its_gold_keys(side, column):
    found, terms, shares = gold_of(column, side)
    gold = gold_keys(found.pairs, len(TOKENS))
    queries = [pair.query[0] for pair in found.pairs]
    counted = len(TOKENS) if column.name in ("local", "delimiter", "sep") else len(queries)
    if side == "decoder" and column.name == "local":
        counted = len(queries)
    mass = np.where(gold, shares[:, :, queries], 0).sum((-2, -1)) / counted
    np.testing.assert_allclose(mass, dense_values(shares, terms)[column], atol=1e-5)
    strongest = shares[:, :, queries].argmax(-1)
    expected = gold[np.arange(len(queries)), strongest]
    assert ((found.hits == HIT) == expected).all() and set(np.unique(found.hits)) <= {MISS, HIT}
    if side == "decoder":
        assert all(last <= pair.query[0] for pair in found.pairs for _, last in pair.keys)


@pytest.mark.parametrize(
    "column", [("mean", "entropy"), ("mean", "own segment"), ("score", "block")]
)
def test_scores_of_no_pairs_have_none(column):
    assert gold_of(ScoreSpec(*column))[0] is None


@pytest.mark.parametrize("direction", [TO_GOVERNOR, FROM_GOVERNOR])
@pytest.mark.parametrize("relation", ["nsubj", "det", "any"])
def test_hits_of_a_probe_are_those_that_it_counts(relation, direction):
    trace, layout, shares = made(seed=3)
    found = governor_pairs(relation, direction, layout, trace.encoder)
    counts = Dependencies.of([word_maps_of(shares, layout)])
    np.testing.assert_array_equal((found.hits == HIT).sum(-1), counts.hits[direction, relation])
    if relation == "nsubj":
        ways = {TO_GOVERNOR: ((2, 3), ((4, 4),)), FROM_GOVERNOR: ((4, 4), ((2, 3),))}
        assert found.pairs == [GoldPair(*ways[direction])]


def test_what_is_out_of_sight_or_not_a_number_is_not_judged():
    trace, layout, shares = made()
    weights = shares[:, None].copy()
    weights[1, 0, 2, 4] = np.nan
    record = dataclasses.replace(trace.encoder, weights=weights)
    pairs = [GoldPair((4, 4), ((1, 1),)), GoldPair((5, 5), ((6, 6),))]
    hits = judged_pairs(pairs, record, None, [KeyRange(1, 1), KeyRange(), KeyRange()])
    assert (hits[0, :, 0] == UNJUDGED).all() and (hits[0, :, 1] != UNJUDGED).all()
    assert hits[1, 2, 0] == UNJUDGED and hits[1, 2, 1] != UNJUDGED
    broken = governor_pairs("nsubj", TO_GOVERNOR, layout, record)
    assert (broken.hits == UNJUDGED)[..., 0].tolist() == [
        [(layer, head) == (1, 2) for head in range(4)] for layer in range(3)
    ]


CONLLU = """# sent_id = a
# text = the cats saw the dog .
1	the	_	DET	_	_	2	det	_	_
2	cats	_	NOUN	_	_	3	nsubj	_	_
3	saw	_	VERB	_	_	0	root	_	_
4	the	_	DET	_	_	5	det	_	_
5	dog	_	NOUN	_	_	3	obj	_	_
6	.	_	PUNCT	_	_	3	punct	_	_

"""


def test_texts_of_a_store_have_pairs_without_a_model(tmp_path):
    (tmp_path / "a.conllu").write_text(CONLLU, encoding="utf-8")
    (sentence,) = read_sentences([tmp_path / "a.conllu"], BadRows())
    trace, layout, _ = made()
    text = annotated_text(sentence)
    names = ("governor(nsubj)", "dependent(obj)", "governor(amod)", "block", "local")
    columns = {name: ScoreSpec("score", name) for name in names}
    found = {one.name: one for one in text_pairs(columns, trace, text, OPTIONS, "encoder")}
    assert found.keys() == {"governor(nsubj)", "dependent(obj)", "local"}
    terms = terms_for(trace, layout, "encoder", OPTIONS, alone=True)
    for name, one in found.items():
        expected = score_pairs(name, columns[name], terms, trace.encoder, "encoder")
        assert one.pairs == expected.pairs and (one.hits == expected.hits).all()
    other = dataclasses.replace(trace, tokens=[["[CLS]", *"abcdefg", "[SEP]"]])
    assert [one.name for one in text_pairs(columns, other, text, OPTIONS, "encoder")] == ["local"]


def test_adjacent_positions_are_joined():
    assert runs_of([5, 1, 2, 2, 7]) == ((1, 2), (5, 5), (7, 7)) and runs_of([]) == ()
