# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The parsing probe finds a tree that heads hold, its optimum is the optimum, and files keep it."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
import scipy.optimize
import scipy.special

from flaxattn.errors import InputError
from flaxattn.probes import parsing_probe
from flaxattn.probes.parsing_probe import (
    attachment,
    by_offset,
    control_task,
    fit_parsing_probe,
    judge_parsing,
)
from flaxattn.probes.probe_file import load_probe, save_probe
from flaxattn.probes.word_records import ROOT, UNKNOWN, WordMaps


def random_tree(count, rng):
    order = rng.permutation(count)
    governors = np.full(count, ROOT)
    for place in range(1, count):
        governors[order[place]] = order[rng.integers(place)]
    return governors


def sentence(number, rng, *, tree=True, count=6):
    """Random maps of 2 layers x 3 heads; head 1 of layer 0 gives half to governor, root to SEP."""
    shares = rng.dirichlet(np.full(count + 2, 0.5), (2, 3, count))
    governors = random_tree(count, rng)
    if tree:
        shares[0, 1] *= 0.5
        for place, governor in enumerate(governors):
            shares[0, 1, place, count + 1 if governor == ROOT else governor] += 0.5
    return WordMaps(
        (0, 1),
        (0, 1, 2),
        shares[..., :count].astype(np.float32),
        shares[..., count].astype(np.float32),
        shares[..., count + 1].astype(np.float32),
        governors,
        tuple("" if g == ROOT else "dep" for g in governors),
        tuple((int(piece),) for piece in rng.integers(0, 40, count)),
        np.arange(count) == count - 1,
        f"s{number}",
    )


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    return [sentence(number, rng) for number in range(60)]


@pytest.fixture(scope="module")
def probe(texts):
    return fit_parsing_probe(texts[:40])


def test_the_head_that_holds_the_tree_is_found(texts, probe):
    found = attachment(probe.governors, texts[40:])
    assert found.score > 0.95 and found.words == 20 * 5, "punctuation is not counted"
    assert np.unravel_index(probe.given.argmax(), (2, 3)) == (0, 1)
    assert np.unravel_index(probe.separators.argmax(), (2, 3)) == (0, 1)
    assert probe.settled and probe.words == 240
    assert probe.bias[0] < 0, "no word is its own governor"


def test_a_head_that_is_exactly_the_tree_gives_a_score_of_one():
    rng = np.random.default_rng(1)
    made = []
    for number in range(20):
        words = sentence(number, rng)
        weights = np.zeros_like(words.weights)
        places = np.flatnonzero(words.governors >= 0)
        weights[1, 2, places, words.governors[places]] = 1
        last = np.zeros_like(words.separators)
        last[1, 2, words.governors == ROOT] = 1
        made.append(dataclasses.replace(words, weights=weights, separators=last))
    fitted = fit_parsing_probe(made[:10])
    assert attachment(fitted.governors, made[10:]).score == 1


def test_the_gradient_is_that_of_finite_differences(texts):
    rng = np.random.default_rng(2)
    flat = rng.normal(size=26)
    target = texts[0].governors.copy()
    target[1] = UNKNOWN
    _, slope = parsing_probe._loss(flat, texts[0], target)
    numeric = scipy.optimize.approx_fprime(
        flat, lambda at: parsing_probe._loss(at, texts[0], target)[0], 1e-4
    )
    np.testing.assert_allclose(slope, numeric, rtol=2e-2, atol=2e-2)


def test_the_optimum_is_that_of_a_plain_conditional_logit(texts):
    """Features laid out one by one, the loss as the textbook has it, slopes by differences."""
    some, penalty, rows, answers = texts[:8], 0.05, [], []
    for words in some:
        for j, i in np.ndindex(6, 6):
            own = [words.weights[..., j, i].ravel(), words.weights[..., i, j].ravel()]
            rows.append(np.concatenate([*own, np.zeros(12), [i == j, 0]]))
            if i == 5:
                root = [words.first[..., j].ravel(), words.separators[..., j].ravel()]
                rows.append(np.concatenate([np.zeros(12), *root, [0, 1]]))
        answers += [6 if g == ROOT else g for g in words.governors]
    features = np.array(rows, float).reshape(48, 7, 26)

    def loss(flat):
        logs = scipy.special.log_softmax(features @ flat, axis=1)
        return -logs[np.arange(48), answers].mean() + penalty / 2 * flat @ flat

    oracle = scipy.optimize.minimize(loss, np.zeros(26), method="BFGS")
    fitted = fit_parsing_probe(some, penalty=penalty)
    assert loss(np.zeros(26)) == pytest.approx(np.log(7))
    parts = [fitted.given, fitted.received, fitted.first, fitted.separators, fitted.bias]
    ours = np.concatenate([part.ravel() for part in parts]).astype(float)
    np.testing.assert_allclose(ours, oracle.x, atol=0.01)
    assert fitted.loss + penalty / 2 * ours @ ours == pytest.approx(oracle.fun, abs=1e-5)


@pytest.mark.slow
def test_permuting_heads_permutes_the_probe(texts, probe):
    order = [2, 0, 1]

    def moved(words):
        fields = {n: getattr(words, n)[:, order] for n in ("weights", "first", "separators")}
        return dataclasses.replace(words, **fields)

    other = fit_parsing_probe([moved(words) for words in texts[:40]])
    np.testing.assert_allclose(other.given, probe.given[:, order], atol=0.05)
    assert other.loss == pytest.approx(probe.loss, abs=1e-3)


def test_control_and_untrained_probes_know_nothing(texts):
    rng = np.random.default_rng(4)
    blind = [sentence(number, rng, tree=False) for number in range(60)]
    blind = [
        dataclasses.replace(b, governors=w.governors) for b, w in zip(blind, texts, strict=True)
    ]
    judged = judge_parsing(texts[:40], texts[40:], untrained=(blind[:40], blind[40:]))
    assert judged.tree.score > 0.95 and judged.fitted.score > 0.95
    assert judged.control.score < 0.6 and judged.selectivity > 35
    assert judged.untrained is not None and judged.untrained.score < 0.4
    assert judged.baseline.score < 0.4
    facts = judged.facts()
    assert facts["uas"]["tree"] == 100 * judged.tree.score and facts["words"] == 100
    json.dumps(facts)


def test_the_control_task_asks_the_same_of_the_same_word_everywhere(texts):
    task = control_task(7)
    answers = {}
    for words in texts:
        for place, answer in enumerate(task(words)):
            options = {"itself": place, "first": 0, "last": len(words) - 1}
            fitting = {name for name, option in options.items() if option == answer}
            assert fitting
            known = answers.setdefault(words.types[place], fitting)
            answers[words.types[place]] = known & fitting
    assert all(answers.values()) and len({min(names) for names in answers.values()}) == 3
    other = control_task(8)
    assert any((task(words) != other(words)).any() for words in texts)
    cut = dataclasses.replace(texts[0], governors=np.full(6, UNKNOWN))
    assert (task(cut) == UNKNOWN).all()


def test_offsets(texts):
    assert by_offset(2)(texts[0]).tolist() == [2, 3, 4, 5, ROOT, ROOT]
    chain = dataclasses.replace(texts[0], governors=np.array([1, 2, 3, 4, 5, ROOT]))
    assert attachment(by_offset(1), [chain]).score == 1


def test_a_file_keeps_the_probe_and_shows_every_kind_of_damage(tmp_path, probe, texts):
    path = save_probe(probe, tmp_path / "p.safetensors", {"model": "m"})
    saved = load_probe(path)
    assert saved.notes == {"model": "m"}
    for field in dataclasses.fields(probe):
        np.testing.assert_array_equal(getattr(saved.probe, field.name), getattr(probe, field.name))
    assert (saved.probe.governors(texts[50]) == probe.governors(texts[50])).all()
    data = path.read_bytes()
    assert save_probe(probe, tmp_path / "q.safetensors", {"model": "m"}).read_bytes() == data
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.safetensors", "q.safetensors"]
    with pytest.raises(InputError, match="folder that does not exist"):
        save_probe(probe, tmp_path / "no" / "p.safetensors")
    head = data.index(b"__metadata__")
    for damage, message in (
        (data[:-3], "is damaged"),
        (data[:-1] + bytes([data[-1] ^ 1]), "is not what was written"),
        (data.replace(b'\\"kind\\": \\"parsing\\"', b'\\"kind\\": \\"weather\\"'), "weather probe"),
        (
            data.replace(b'\\"heads\\": [0, 1, 2]', b'\\"heads\\": [0, 1   ]'),
            "are not those of a pars",
        ),
        (data.replace(b'\\"loss\\"', b'\\"lots\\"'), "not that of a probe"),
        (b"", "is damaged"),
        (safetensors.numpy.save({"x": np.zeros(2)}), "no probe"),
    ):
        assert damage != data and head
        path.write_bytes(damage)
        with pytest.raises(InputError) as raised:
            load_probe(path)
        assert message in str(raised.value) and len(str(raised.value).splitlines()) <= 3
    with pytest.raises(InputError, match="There is no probe file"):
        load_probe(tmp_path / "absent")


def test_what_cannot_be_fitted_or_judged(texts, probe):
    with pytest.raises(InputError, match="cannot be fitted to 0 sentences"):
        fit_parsing_probe([])
    with pytest.raises(InputError, match="penalty 0"):
        fit_parsing_probe(texts, penalty=0)
    unknown = dataclasses.replace(texts[0], governors=np.full(6, UNKNOWN))
    with pytest.raises(InputError, match="has a word with a known governor"):
        fit_parsing_probe([unknown])
    other = dataclasses.replace(texts[0], layers=(4, 5))
    with pytest.raises(InputError, match="'s0' was read by other heads"):
        fit_parsing_probe([texts[1], other])
    narrow = dataclasses.replace(texts[0], heads=(0, 1))
    with pytest.raises(InputError, match="reads 2 layers of 3 heads; 's0' has 2 of 2"):
        probe.scores(narrow)
    with pytest.raises(InputError, match=r"1 of 2 sentences .* such as 's1'"):
        judge_parsing(texts[:5], [texts[1], texts[9]])
    with pytest.raises(InputError, match="received 5 and 0"):
        judge_parsing(texts[:5], [])
