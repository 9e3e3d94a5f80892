# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Roles of decoders and of cross-attention: uniform attention is 1 under the mask, pure heads."""

import dataclasses

import laid_out
import numpy as np
import pytest

from flaxattn.errors import InputError
from flaxattn.measures.role_tests import Test, find_roles
from flaxattn.measures.scores import ScoreAccumulator, dense_values, scores_of
from flaxattn.measures.specs import ScoreOptions, ScoreSpec
from flaxattn.measures.terms import cross_terms, self_terms, side_terms, terms_of
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace

PLAIN = ScoreOptions(annotated=False)
TREE = ScoreOptions(relations=("nsubj", "obj"))
WRITTEN = ["x", "b", "y", "c", "d", "</s>"]
SOURCE, SPECIAL = ["a", "b", "b", "c", "</s>"], np.array([False] * 4 + [True])


def uniform(mask):
    """Every query looks alike at all it sees."""
    return (mask / mask.sum(1, keepdims=True))[None, None]


def causal(count):
    return np.tri(count, dtype=bool)


def text(words, name="t"):
    """A text without special pieces, of words given by number."""
    layout = laid_out.plain(len(words), name)
    inner = slice(1, -1)
    fields = ("first", "separators", "special", "punctuation", "segments", "spelt")
    cut = {field: getattr(layout, field)[inner] for field in fields}
    words_of = [[place] for place in range(len(words))]
    return dataclasses.replace(layout, tokens=np.array(words), words=words_of, **cut)


@pytest.mark.parametrize("side", ["encoder", "decoder", "cross"])
def test_uniform_attention_scores_exactly_one_on_every_role(side):
    if side == "cross":
        terms, mask = cross_terms(WRITTEN, SOURCE, SPECIAL), np.ones((6, 5), bool)
    else:
        mask = causal(8) if side == "decoder" else np.ones((8, 8), bool)
        terms = self_terms(laid_out.single(), TREE, causal=side == "decoder")
    found = dense_values(uniform(mask), terms)
    scores = {c.name: v.item() for c, v in found.items() if c.kind in ("score", "control")}
    assert scores == {name: pytest.approx(1, abs=1e-12) for name in scores}
    expected = {
        "encoder": {"local", "own", "previous", "first", "delimiter", "duplicate", "next"},
        "decoder": {"local", "own", "previous", "first", "delimiter", "duplicate", "induction"},
        "cross": {"diagonal", "end", "first", "copy"},
    }[side]
    assert {name for name in scores if "(" not in name} == expected
    trees = {name for name in scores if "(" in name}
    both = {
        f"{end}({name})" for end in ("governor", "dependent") for name in ("nsubj", "obj", "any")
    }
    # The only object comes after its verb, which therefore never sees it.
    unseen = {"decoder": {"dependent(obj)"}, "cross": both}.get(side, set())
    assert trees == both - unseen
    log = np.log(mask.sum(1)).mean()
    assert found[ScoreSpec("mean", "entropy")].item() == pytest.approx(log)


def brute(weights, mask, keys):
    """Mean lift over the queries that have a choice, with loops."""
    lifts, masses, tops = [], [], []
    for i, row in enumerate(mask):
        visible = [j for j in range(len(row)) if row[j]]
        members = [j for j in visible if keys(i, j)]
        if members and len(members) < len(visible):
            mass = sum(weights[i, j] for j in members)
            lifts.append(len(visible) * mass / len(members))
            masses.append(mass)
            tops.append(len(visible) / len(members))
    return np.mean(lifts), np.mean(masses), np.mean(tops)


def test_roles_of_a_decoder_are_what_loops_make_them():
    tokens = [7, 5, 7, 6, 5, 7, 7, 9]
    layout = text(tokens)
    mask = causal(8)
    rng = np.random.default_rng(0)
    weights = rng.random((8, 8)) * mask
    weights /= weights.sum(1, keepdims=True)
    terms = self_terms(layout, PLAIN, causal=True)
    found = dense_values(weights[None, None], terms)
    sets = {
        "local": lambda i, j: abs(i - j) <= 2,
        "own": lambda i, j: i == j,
        "previous": lambda i, j: j == i - 1,
        "first": lambda i, j: j == 0,
        "duplicate": lambda i, j: j != i and tokens[i] == tokens[j],
        "induction": lambda i, j: 0 < j < i and tokens[j - 1] == tokens[i],
    }
    for name, keys in sets.items():
        lift, mass, top = brute(weights, mask, keys)
        assert found[ScoreSpec("score", name)].item() == pytest.approx(lift), name
        assert found[ScoreSpec("mass", name)].item() == pytest.approx(mass), name
        assert terms.ceilings[name] == pytest.approx(top), name
    assert "delimiter" not in terms.ceilings
    offset = abs(np.subtract.outer(range(8), range(8)))
    distance = (weights * offset).sum() / 8
    assert found[ScoreSpec("mean", "distance")].item() == pytest.approx(distance)
    assert found[ScoreSpec("mean", "first")].item() == pytest.approx(weights[:, 0].mean())
    assert found[ScoreSpec("mean", "max")].item() == pytest.approx(weights.max(1).mean())
    assert found[ScoreSpec("mean", "sum_sq")].item() == pytest.approx((weights**2).sum() / 8)


def test_relations_in_a_decoder_are_those_it_sees():
    layout = laid_out.single()  # 1 a, 2-3 b, 4 c, 5 a, 6 .
    terms = self_terms(layout, TREE, causal=True)
    mask = causal(8)
    weights = np.random.default_rng(1).random((8, 8)) * mask
    weights /= weights.sum(1, keepdims=True)
    found = dense_values(weights[None, None], terms)
    # nsubj: word 0 on word 1, which comes after it; and nsubj:pass: word 4 on word 2, before it.
    verb = np.mean([weights[i, 1] * (i + 1) for i in (2, 3)])
    assert found[ScoreSpec("score", "dependent(nsubj)")].item() == pytest.approx(verb)
    assert found[ScoreSpec("score", "governor(nsubj)")].item() == pytest.approx(weights[6, 4] * 7)
    assert found[ScoreSpec("mass", "governor(nsubj)")].item() == pytest.approx(weights[6, 4])


def test_tags_and_linked_words_as_those_of_an_encoder():
    """Where every key is seen they are the numbers of `terms`; in a decoder, of what is seen."""
    layout = laid_out.single()
    weights = laid_out.random_maps(1, 2, 8, np.random.default_rng(5))
    known = dense_values(weights, terms_of(layout, TREE))
    both = dense_values(weights, self_terms(layout, TREE, causal=False))
    names = [column for column in known if column.kind == "tag"]
    for column in (*names, ScoreSpec("mean", "dependency")):
        np.testing.assert_allclose(both[column], known[column], atol=1e-12, err_msg=str(column))
    masked = weights * causal(8)
    found = dense_values(masked, self_terms(layout, TREE, causal=True))
    linked = [(2, 1), (3, 1), (4, 2), (4, 3), (5, 4), (6, 4)]  # pieces that see what is linked
    shares = {2: 0.5, 3: 0.5}
    mass = sum(masked[..., i, j] * shares.get(i, 1) for i, j in linked) / 5
    np.testing.assert_allclose(found[ScoreSpec("mean", "dependency")], mass)
    verbs = masked[..., [2, 3]].sum((-1, -2)) / 8
    np.testing.assert_allclose(found[ScoreSpec("tag", "VERB")], verbs)


def test_roles_of_cross_attention_are_what_loops_make_them():
    rng = np.random.default_rng(2)
    weights = rng.dirichlet(np.ones(5), 6)
    terms = cross_terms(WRITTEN, SOURCE, SPECIAL)
    found = dense_values(weights[None, None], terms)
    centres = [0, 1, 2, 2, 3, 4]
    sets = {
        "diagonal": lambda i, j: abs(j - centres[i]) <= 1,
        "end": lambda i, j: j == 4,
        "first": lambda i, j: j == 0,
        "copy": lambda i, j: j < 4 and WRITTEN[i] == SOURCE[j],
    }
    for name, keys in sets.items():
        lift, _, top = brute(weights, np.ones((6, 5), bool), keys)
        assert found[ScoreSpec("score", name)].item() == pytest.approx(lift), name
        assert terms.ceilings[name] == pytest.approx(top), name
    target = [SOURCE[0], "z"]
    assert "copy" in cross_terms(target, SOURCE, SPECIAL).ceilings
    assert "copy" not in cross_terms(["z", "z"], SOURCE, SPECIAL).ceilings


def pure(mask, keys):
    """Looks at some of the keys it sees; where there are none, at all of them alike."""
    weights = np.zeros(mask.shape)
    for i, row in enumerate(mask):
        visible = np.flatnonzero(row)
        members = [j for j in visible if keys(i, j)] or list(visible)
        weights[i, members] = 1 / len(members)
    return weights


def test_pure_heads_of_a_decoder_have_exactly_their_roles():
    """Heads in one order, and in another one."""
    rng = np.random.default_rng(3)
    texts = [text(rng.permutation(np.arange(40) % 12 + 5), str(n)) for n in range(6)]
    mask = causal(40)
    kinds = ["first", "previous", "own", "duplicate", "induction", "uniform"]
    traces = []
    for layout in texts:
        t = layout.tokens.tolist()
        sets = {
            "first": lambda i, j: j == 0,
            "previous": lambda i, j: j == i - 1,
            "own": lambda i, j: j == i,
            "duplicate": lambda i, j, t=t: j != i and t[i] == t[j] and i - j > 2,
            "induction": lambda i, j, t=t: 0 < j < i - 2 and t[j - 1] == t[i] and t[j] != t[i],
            "uniform": lambda i, j: True,
        }
        maps = np.stack([pure(mask, sets[kind]) for kind in kinds])
        traces.append(decoder_trace(maps[None, None], [str(n) for n in t]))
    tally = ScoreAccumulator.of(scores_of(traces, PLAIN, side="decoder"))
    found = find_roles(tally, PLAIN, Test(tau=3))
    expected = [["first"], ["local", "previous"], ["local", "own"], ["duplicate"], ["induction"]]
    assert [found.of(0, head) for head in range(6)] == [*expected, []]
    order = [4, 2, 0, 5, 1, 3]
    turned = [
        dataclasses.replace(t, decoder=t.decoder.map(lambda _, a: a[:, :, np.array(order)]))
        for t in traces
    ]
    again = find_roles(
        ScoreAccumulator.of(scores_of(turned, PLAIN, side="decoder")), PLAIN, Test(tau=3)
    )
    for name, role in found.roles.items():
        np.testing.assert_allclose(again.roles[name].p, role.p[:, order], atol=1e-12)


def decoder_trace(weights, tokens):
    special = np.zeros((1, len(tokens)), bool)
    record = AttentionRecord(weights=weights, layers=(0,), heads=tuple(range(weights.shape[2])))
    return Trace(decoder=record, tokens=[tokens], special=special)


def test_pure_heads_of_cross_attention():
    rng = np.random.default_rng(4)
    traces = []
    for n in range(6):
        source = [f"s{k}" for k in range(20 + n)] + ["</s>"]
        written = [f"t{k}" for k in range(15)]
        copied = rng.permutation(15)[:5]
        for place in copied:
            written[place] = source[(place * 7 + 3) % 20]
        count = len(source)
        mask = np.ones((15, count), bool)
        maps = [
            pure(mask, lambda i, j, c=count: j == (2 * i + 1) * c // 30),
            pure(mask, lambda i, j, c=count: j == c - 1),
            pure(mask, lambda i, j, s=source, w=written: s[j] == w[i]),
            pure(mask, lambda i, j: True),
        ]
        traces.append(cross_trace(np.stack(maps)[None, None], source, written))
    roles = find_roles(
        ScoreAccumulator.of(scores_of(traces, PLAIN, side="cross")), PLAIN, Test(tau=3)
    )
    assert [roles.of(0, head) for head in range(4)] == [["diagonal"], ["end"], ["copy"], []]
    assert roles.roles["end"].reach.keys == pytest.approx(1)
    assert roles.roles["diagonal"].reach.needed == 9  # at the ends there are two keys, not three


def cross_trace(weights, source, written):
    special = np.array([[piece == "</s>" for piece in source]])
    read = [["<s>", *written[:-1]]]
    return Trace.from_arrays(
        cross_weights=weights,
        tokens=[source],
        decoder_tokens=read,
        written=[written],
        special=special,
    )


def test_the_length_that_would_do_is_reported_for_decoders():
    """Own, previous and first: the highest score of N positions is (N + 2) / 2, above 6 from 11."""
    for lengths in ((6, 8, 7), (10,) * 3):
        texts = [text(list(range(5, 5 + size)), str(size)) for size in lengths]
        traces = [
            decoder_trace(uniform(causal(len(t)))[None], [str(n) for n in t.tokens]) for t in texts
        ]
        tally = ScoreAccumulator.of(scores_of(traces, PLAIN, side="decoder"))
        roles = find_roles(tally, PLAIN, Test(tau=6))
        reach = roles.roles["previous"].reach
        assert reach.highest == (max(lengths) + 2) / 2
        assert reach.out == 3 and reach.needed == 11
        assert any("previous: no text allows a score above 6" in w for w in roles.warnings())


def test_what_has_no_such_side_is_reported():
    trace = decoder_trace(uniform(causal(3))[None], ["a", "b", "c"])
    with pytest.raises(InputError, match=r"none of side 'cross'.*\nIt has weights of decoder"):
        scores_of([trace], PLAIN, side="cross")
    with pytest.raises(InputError, match="need the tokens that were written"):
        side_terms(trace, laid_out.single(), "cross", PLAIN)
