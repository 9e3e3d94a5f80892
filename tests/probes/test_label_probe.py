# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A linear probe finds labels that vectors hold; its control task is learnt by heart or not."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import Word, read_sentences
from flaxattn.errors import InputError
from flaxattn.measures.significance import ratio_interval
from flaxattn.probes.label_probe import (
    LabelProbe,
    control_labels,
    fit_label_probe,
    judge_labels,
    word_labels,
)
from flaxattn.probes.probe_file import load_probe, save_probe
from flaxattn.probes.word_records import WordStates, tree_metric

TAGS = ("NOUN", "VERB", "ADJ")
WIDE = 6


def sentence(number, rng, count=6):
    """State 0 is noise; state 1 holds the part of speech as a direction, among noise."""
    tags = rng.integers(0, 3, count)
    known = rng.normal(size=(count, WIDE)) + 9 * np.eye(WIDE)[tags]
    vectors = np.stack([rng.normal(size=(count, WIDE)), known]).astype(np.float32)
    types = tuple((int(rng.integers(0, 200)), int(tag)) for tag in tags)
    words = tuple(
        Word("w", TAGS[tag], n - 1, "dep", n, n + 1, n, "", f"X{tag}", number_of(tag))
        for n, tag in enumerate(tags)
    )
    tree = tree_metric([-1, *range(count - 1)])
    marks = np.zeros(count, bool)
    return WordStates((0, 1), vectors, tree, types, marks, f"s{number}", words)


def number_of(tag):
    """Only nouns and verbs have a number."""
    return () if tag == 2 else (("Case", "Nom"), ("Number", ("Sing", "Plur")[tag]))


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    return [sentence(number, rng) for number in range(160)]


@pytest.fixture(scope="module")
def judged(texts):
    rng = np.random.default_rng(1)
    blind = [
        dataclasses.replace(one, vectors=rng.normal(size=one.vectors.shape).astype(np.float32))
        for one in texts
    ]
    return judge_labels(texts[:120], texts[120:], untrained=(blind[:120], blind[120:]))


def test_labels_of_every_kind(texts):
    words = texts[0]
    assert word_labels("upos")(words) == [word.tag for word in words.words]
    assert word_labels("xpos")(words) == [f"X{TAGS.index(word.tag)}" for word in words.words]
    expected = [{"NOUN": "Sing", "VERB": "Plur", "ADJ": None}[word.tag] for word in words.words]
    assert word_labels("feats.Number")(words) == expected
    for what in ("pos", "feats.", "feats", "feats.A=b"):
        with pytest.raises(InputError, match=r"are unknown\nexpected upos, xpos or feats\.NAME"):
            word_labels(what)


def test_treebanks_have_all_three(tmp_path):
    path = tmp_path / "a.conllu"
    rows = [
        "1\tCats\tcat\tNOUN\tNNS\tNumber=Plur|Case=Nom\t2\tnsubj\t_\t_",
        "2\tsleep\tsleep\tVERB\t_\t_\t0\troot\t_\t_",
    ]
    path.write_text("\n".join([*rows, "", ""]))
    ((first, second),) = [one.words for one in read_sentences([path], BadRows())]
    assert (first.tag, first.xpos) == ("NOUN", "NNS")
    assert set(first.feats) == {("Number", "Plur"), ("Case", "Nom")}
    assert (second.tag, second.xpos, second.feats) == ("VERB", "", ())


@pytest.mark.parametrize("what", ["upos", "feats.Number"])
def test_the_fit_is_the_least_of_its_loss(texts, what):
    """Beside SciPy's minimiser on the loss as the docstring has it."""
    some, labels, penalty = texts[:12], word_labels(what), 0.05
    found = fit_label_probe(some, labels, 0, what=what, penalty=penalty)
    assert found is not None and found.settled
    pairs = [pair for one in some for pair in zip(one.of_layer(0), labels(one), strict=True)]
    x = np.array([vector for vector, label in pairs if label], np.float64)
    y = np.array([found.labels.index(label) for _, label in pairs if label])
    assert found.words == len(y)
    standard = (x - x.mean(0)) / x.std(0)
    count = len(found.labels)

    def scores(flat):
        weights, bias = flat[:-count].reshape(count, -1), flat[-count:]
        if count == 2:  # only the second label has coefficients
            weights, bias = weights * [[0], [1]], bias * [0, 1]
        return standard @ weights.T + bias, weights

    def loss(flat):
        logits, weights = scores(flat)
        mean = (logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]).mean()
        return mean + penalty / 2 * (weights**2).sum()

    best = minimize(loss, np.zeros(count * (WIDE + 1)), method="BFGS", options={"gtol": 1e-7})
    expected = scores(best.x)[0]
    logits = x @ found.coefficients.T.astype(np.float64) + found.bias
    shares = [np.exp(one - logsumexp(one, axis=1, keepdims=True)) for one in (logits, expected)]
    np.testing.assert_allclose(shares[0], shares[1], atol=2e-3)
    predicted = [label for one in some for label in found.predict(one)]
    every = np.concatenate([one.of_layer(0) for one in some])
    standard = (every - x.mean(0)) / x.std(0)
    assert (
        np.mean(
            [
                found.labels.index(a) == b
                for a, b in zip(predicted, scores(best.x)[0].argmax(1), strict=True)
            ]
        )
        > 0.98
    )


def test_the_state_with_labels_is_found(judged):
    noise, known = judged.scores
    assert judged.best == 1 and judged.probe.layer == 1
    assert known.accuracy > 0.98 and noise.accuracy < 0.5
    assert known.low <= known.accuracy <= known.high
    assert known.selectivity == pytest.approx(known.accuracy - known.control)
    assert known.selectivity_low < known.selectivity < known.selectivity_high
    assert known.selectivity > 0.4, "word types are not in the vectors"
    assert known.untrained < 0.5
    assert judged.words == 240
    facts = judged.facts()
    assert facts["layer"] == 1 and facts["labels"] == sorted(TAGS)
    assert facts["scores"]["accuracy"] == known.accuracy


def test_baselines_and_accuracy_by_hand(texts, judged):
    train, test = texts[:120], texts[120:]
    common = Counter(word.tag for one in train for word in one.words).most_common(1)[0][0]
    requested = [
        (kind, word.tag) for one in test for kind, word in zip(one.types, one.words, strict=True)
    ]
    assert judged.majority == pytest.approx(np.mean([tag == common for _, tag in requested]))
    seen: dict = {}
    for one in train:
        for kind, word in zip(one.types, one.words, strict=True):
            seen.setdefault(kind, Counter())[word.tag] += 1
    guesses = [max(sorted(seen[k]), key=seen[k].get) if k in seen else common for k, _ in requested]
    right = np.mean([guess == tag for guess, (_, tag) in zip(guesses, requested, strict=True)])
    assert judged.by_type == pytest.approx(right)
    predicted = [label for one in test for label in judged.probe.predict(one)]
    shares = np.mean([label == tag for label, (_, tag) in zip(predicted, requested, strict=True)])
    assert judged.scores[1].accuracy == pytest.approx(shares)


def test_a_control_label_belongs_to_a_type(texts):
    labels = word_labels("feats.Number")
    control = control_labels(texts, labels, 3)
    kinds: dict = {}
    for one in texts:
        for kind, label, drawn in zip(one.types, labels(one), control(one), strict=True):
            assert (label is None) == (drawn is None)
            if drawn is not None:
                assert kinds.setdefault(kind, drawn) == drawn
    shares = [
        np.mean([label == "Sing" for label in some])
        for some in (kinds.values(), [x for one in texts for x in labels(one) if x])
    ]
    assert abs(shares[0] - shares[1]) < 0.1
    assert control_labels(texts, labels, 4)(texts[0]) != control(texts[0]) or len(kinds) < 8


def test_memory_of_types_has_no_selectivity():
    """Vectors that name the word type learn the control task as well as the labels."""
    rng = np.random.default_rng(2)
    texts = []
    for number in range(200):
        one = sentence(number, rng)
        types = tuple((int(rng.integers(0, 12)),) for _ in one.types)
        tags = [TAGS[kind[0] % 3] for kind in types]
        words = tuple(w._replace(tag=tag) for w, tag in zip(one.words, tags, strict=True))
        vectors = np.eye(12, dtype=np.float32)[[kind[0] for kind in types]][None]
        texts.append(
            dataclasses.replace(one, layers=(0,), vectors=vectors, types=types, words=words)
        )
    judged = judge_labels(texts[:150], [t for t in texts[150:]], seed=1)
    (only,) = judged.scores
    assert only.accuracy == only.control == 1 and only.selectivity == 0 == only.selectivity_low


def test_intervals_are_those_of_sentences_drawn_anew():
    rng = np.random.default_rng(0)
    wholes = rng.integers(1, 20, 40).astype(float)
    parts = np.floor(wholes * rng.random(40))
    low, high = ratio_interval(parts, wholes, 0.9, 4000, 1)
    ratios = []
    for _ in range(4000):
        chosen = rng.integers(0, 40, 40)
        ratios.append(parts[chosen].sum() / wholes[chosen].sum())
    np.testing.assert_allclose([low, high], np.quantile(ratios, [0.05, 0.95]), atol=0.01)
    assert np.isnan(ratio_interval(parts[:1], wholes[:1], 0.9, 10, 1)).all()


def test_a_probe_is_saved_and_read(judged, texts, tmp_path):
    save_probe(judged.probe, tmp_path / "p.safetensors", {"model": "m"})
    probe = load_probe(tmp_path / "p.safetensors").probe
    assert isinstance(probe, LabelProbe) and probe.labels == judged.probe.labels
    assert probe.predict(texts[0]) == judged.probe.predict(texts[0])
    narrow = dataclasses.replace(texts[0], vectors=texts[0].vectors[..., :3])
    with pytest.raises(InputError, match="reads vectors of 6 numbers; 's0' has some of 3"):
        probe.predict(narrow)


def test_states_that_are_nan_have_no_scores(texts):
    broken = [
        dataclasses.replace(one, vectors=one.vectors * np.array([np.nan, 1], "f4")[:, None, None])
        for one in texts
    ]
    judged = judge_labels(broken[:120], broken[120:])
    assert judged.probes[0] is None and judged.best == 1
    plain = judged.scores[0].plain()
    assert plain.pop("layer") == 0 and set(plain.values()) == {None}
    nothing = [dataclasses.replace(one, vectors=one.vectors * np.nan) for one in texts]
    with pytest.raises(InputError, match="every hidden state that was requested is NaN"):
        judge_labels(nothing[:120], nothing[120:])


def test_what_cannot_be_probed(texts):
    with pytest.raises(InputError, match=r"have no label of feats\.Tense\nexpected two or more"):
        fit_label_probe(texts, word_labels("feats.Tense"), 0, what="feats.Tense")
    with pytest.raises(InputError, match=r"only the label 'Nom' of feats\.Case"):
        fit_label_probe(texts, word_labels("feats.Case"), 0, what="feats.Case")
    with pytest.raises(InputError, match="penalty is 0\nexpected a number above 0"):
        fit_label_probe(texts, word_labels("upos"), 0, penalty=0)
    bare = [
        dataclasses.replace(one, words=tuple(w._replace(feats=()) for w in one.words))
        for one in texts[120:]
    ]
    with pytest.raises(InputError, match=r"no word to judge on has a label of feats\.Number"):
        judge_labels(texts[:120], bare, "feats.Number")
    with pytest.raises(InputError, match="are among those it is fitted to"):
        judge_labels(texts, texts)
