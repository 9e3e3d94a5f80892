# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The page of the induction circuit: its texts are what it says, and its claims hold again."""

import csv
import importlib
import json
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
REDUCED = {"sequences": 4, "length": 25, "pairs": 12, "texts": 6, "repeated": 20, "sets": 5}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("induction")


@pytest.fixture
def facts():
    return json.loads((DOCS / "induction.json").read_text(encoding="utf-8"))


def test_pairs_exchange_two_words_and_end_with_one_of_them(script, tmp_path):
    words = [f" w{number}" for number in range(100)]
    pairs = script.word_pairs(words, 40, 12, seed=3)
    for pair in pairs:
        clean, corrupted = pair.clean.split(), pair.corrupted.split()
        assert len(clean) == len(corrupted) == 13 and len(set(clean)) == 12
        assert clean[-1] == corrupted[-1] and sorted(clean) == sorted(corrupted)
        differ = [n for n in range(13) if clean[n] != corrupted[n]]
        assert len(differ) == 2 and differ[1] - differ[0] >= script.APART
        assert clean[clean.index(clean[-1]) + 1] == pair.answer.strip()
        assert corrupted[corrupted.index(clean[-1]) + 1] == pair.wrong.strip()
    assert script.word_pairs(words, 40, 12, seed=3) == pairs
    script.write_pairs(pairs, tmp_path / "pairs.csv")
    with (tmp_path / "pairs.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [tuple(row.values()) for row in rows] == [tuple(pair[:4]) for pair in pairs]


def test_texts_are_one_token_for_each_word_and_repeated(script):
    import flaxattn as fa

    model = fa.from_pretrained("tiny-gpt2")
    words = script.whole_words(model)
    texts = script.repeated_texts(words, 5, 15, seed=0)
    ids = model.read(texts).given["input_ids"]
    assert ids.shape == (5, 30) and (ids[:, :15] == ids[:, 15:]).all()
    assert all(len(set(row)) == 15 for row in ids.tolist())


def test_claims_of_the_page_hold(script, facts):
    claims = importlib.import_module("induction_page").claims(facts)
    assert len(claims) == 7 and [text for text, (holds, _) in claims.items() if not holds] == []
    assert {"seed", "pairs", "alpha", "correction", "least"} <= set(facts["settings"])
    assert sum(each["wall"] for each in facts["seconds"].values()) < 300, "under five minutes"


def test_a_claim_that_fails_is_reported(script, facts):
    page = importlib.import_module("induction_page")
    facts["paths"]["key"]["low"][2][2] = -1.0
    facts["detected"]["heads"]["induction"] = [[3, 3]]
    failed = [text for text, (holds, _) in page.claims(facts).items() if not holds]
    assert len(failed) == 2 and "largest effect" in failed[1]
    assert page.render(facts).count("**does not hold**") == 2


@pytest.mark.slow
def test_the_circuit_is_found_again_in_other_texts(script):
    words = [word for name, value in REDUCED.items() for word in (f"--{name}", str(value))]
    facts = json.loads(json.dumps(script.gathered(script.parsed([*words, "--seed", "7"]))))
    scores, heads = facts["detected"]["scores"], facts["detected"]["heads"]
    assert sum(score >= 0.5 for row in scores["induction"] for score in row) >= 2
    assert max(map(max, scores["previous token"])) >= 0.7
    means = facts["paths"]["key"]["means"]
    layer, head = facts["paths"]["first"]["head"]
    assert means[layer][head] == max(map(max, means)) and [layer, head] in heads["previous token"]
    assert facts["paths"]["key"]["low"][layer][head] > 0 and facts["paths"]["first"]["low"] > 0
    assert facts["activation"]["clean"] > 0 > facts["activation"]["corrupted"]
    assert script.render(facts).startswith("# The induction circuit")
