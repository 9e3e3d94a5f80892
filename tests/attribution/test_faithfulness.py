# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""All kinds of attribution are judged on the same texts, by the numbers of the model itself."""

import numpy as np
import pytest
from scipy import stats
from small_decoders import write_decoder

import flaxattn as fa
from flaxattn.attribution import faithfulness
from flaxattn.attribution.faithfulness import TokenAttributions
from flaxattn.attribution.relevance import TokenScore, predictions, slopes_of
from flaxattn.errors import InputError

TEXTS = ["the cat is very sad .", "a cat is a cat , a b", "the d e f cat"]
TARGETS = ["a b c d", "the cat", "e f g"]


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    return fa.from_pretrained(write_decoder(tmp_path_factory.mktemp("models") / "gemma"))


FAMILIES = [
    "modern",
    *(pytest.param(n, marks=pytest.mark.slow) for n in ("gemma", "t5", "seq2seq")),
]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_on_every_family(request, family):
    model = request.getfixturevalue(family)
    both = family in ("t5", "seq2seq")
    second = TARGETS if both else None
    found = fa.faithfulness(
        model, TEXTS, second, kinds=faithfulness.KINDS, steps=4, random_orders=2
    )
    assert (
        set(faithfulness.KINDS) - set(found.kinds)
        == set(found.refused)
        == ({"flow"} if both else set())
    )
    assert found.deletion.shape == found.insertion.shape == (len(found.kinds), 3, 5)
    assert found.shares.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert np.isfinite(found.deletion).all() and (found.deletion >= 0).all()
    # All tokens are the text itself, for every kind; no tokens are the same for every kind.
    for one, ends in ((found.deletion[..., 0], found.insertion[..., -1]),) * 2:
        np.testing.assert_allclose(one, np.broadcast_to(one[:1], one.shape), rtol=1e-5)
        np.testing.assert_allclose(one, ends, rtol=1e-5)
    np.testing.assert_allclose(found.deletion[..., -1], found.insertion[..., 0], rtol=1e-5)
    explained = predictions(model, TEXTS, second)
    for number, one in enumerate(explained):
        out = model.module.apply({"params": model.params}, **one.row.given)
        scores = np.asarray(out.logits, np.float64)[0, one.position]
        likelihood = np.exp(scores[one.target]) / np.exp(scores).sum()
        np.testing.assert_allclose(found.deletion[0, number, 0], likelihood, rtol=1e-3)


@pytest.mark.slow
def test_a_step_is_the_model_without_these_tokens(modern):
    found = fa.faithfulness(modern, TEXTS[:1], kinds=["input_gradient"], steps=3, scale="log")
    (one,) = predictions(modern, TEXTS[:1])
    scores = TokenAttributions(modern, one).of("input_gradient")
    places = np.flatnonzero(one.removable)
    order = sorted(places, key=lambda place: -scores[place])
    for step in range(4):
        mask = np.array(one.row.given["attention_mask"])
        mask[0, order[: round(len(order) * step / 3)]] = 0
        given = {**one.row.given, "attention_mask": mask}
        logits = modern.module.apply({"params": modern.params}, **given).logits
        logits = np.asarray(logits, np.float64)[0, one.position]
        expected = logits[one.target] - np.log(np.exp(logits).sum())
        assert found.deletion[0, 0, step] == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_integrated_gradients_add_up_to_the_change_of_the_logit(modern):
    """Many points are needed where attention is peaked; the slope is then the whole change."""
    (one,) = predictions(modern, TEXTS[:1])
    count, score = 4096, TokenScore(modern.module)
    points = ((np.arange(count) + 0.5) / count).astype(np.float32)
    total = 0.0
    for some in points.reshape(8, -1):
        given = {n: np.repeat(a, len(some), axis=0) for n, a in one.given(modern.limit).items()}
        slopes = slopes_of(score, modern.params, given, None, scale=some)
        total += float((np.asarray(slopes.tokens["encoder"]).sum(1) / some).sum()) / count
    ends = {n: np.repeat(a, 2, axis=0) for n, a in one.given(modern.limit).items()}
    ends = slopes_of(score, modern.params, ends, None, scale=np.array([1e-6, 1], np.float32))
    assert total == pytest.approx(float(ends.score[1] - ends.score[0]), rel=2e-2, abs=2e-2)


def test_the_ranking_has_intervals_and_paired_tests():
    rng = np.random.default_rng(4)
    texts, base = 40, np.linspace(1, 0, 6)
    deletion = np.stack([base**3, base**1.2, base])[:, None] + rng.normal(0, 0.1, (3, texts, 1))
    insertion = np.stack([1 - base**3, 1 - base**1.2, 1 - base])[:, None]
    insertion = insertion + rng.normal(0, 0.1, (3, texts, 1))
    kinds = ("attention", "norm", "random")
    rows = ("x",) * texts, (5,) * texts
    found = fa.Faithfulness(kinds, base[::-1], deletion, insertion, "probability", *rows)
    table = found.table()
    assert [row["kind"] for row in table] == ["attention", "norm", "random"]
    assert [row["rank"] for row in table] == [1, 2, 3]
    gaps = found.areas()["gap"]
    raw = [stats.ttest_rel(gaps[n], gaps[2]).pvalue for n in (0, 1)]
    small, large = sorted(raw)
    corrected = {min(raw): min(1, 2 * small), max(raw): max(min(1, 2 * small), large)}
    for row, p in zip(table, raw, strict=False):
        assert row["p"] == pytest.approx(corrected[p], rel=1e-6)
        assert row["low"] < row["gap"] < row["high"]
        place = kinds.index(row["kind"])
        assert row["difference"] == pytest.approx((gaps[place] - gaps[2]).mean())
    assert np.isnan(table[2]["p"])


@pytest.mark.slow
def test_one_text_and_no_random_order(modern):
    found = fa.faithfulness(modern, TEXTS[:1], kinds=["attention", "attention"], steps=2)
    (row,) = found.table()
    assert np.isnan(row["p"]) and np.isnan(row["low"]) and found.kinds == ("attention",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kinds": ["saliency"]}, "no attributions of kind 'saliency'"),
        ({"kinds": []}, "kinds: expected one or more of"),
        ({"scale": "logit"}, "scale 'logit' is unknown"),
        ({"steps": 1}, "received steps=1"),
        ({"texts": ["a"]}, r"Text 0 \(from 0\) has 0 tokens that can be removed"),
    ],
)
def test_what_cannot_be_judged_is_refused(modern, changes, message):
    with pytest.raises(InputError, match=message) as refusal:
        fa.faithfulness(modern, **{"texts": TEXTS, **changes})
    assert len(str(refusal.value).splitlines()) <= 3


@pytest.mark.slow
def test_only_kinds_that_the_model_lacks_are_an_error(seq2seq):
    with pytest.raises(InputError, match="flow: Attention flow is that of one stack"):
        fa.faithfulness(seq2seq, TEXTS, TARGETS, kinds=["flow"])


@pytest.mark.slow
def test_a_text_of_two_tokens_that_can_be_removed_is_judged(modern):
    counts = {
        text: int(predictions(modern, [text])[0].removable.sum()) for text in ("ab", "abc", "abcd")
    }
    text = next(text for text, count in counts.items() if count == 2)
    found = fa.faithfulness(modern, [text], kinds=["attention"], steps=2)
    assert found.deletion.shape == (1, 1, 3) and np.isfinite(found.deletion).all()
