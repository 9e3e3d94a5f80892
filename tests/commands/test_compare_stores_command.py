# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn compare` of two stores, `ablate` of one, and the evidence that both commands give."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import small_bert

import flaxattn as fa
from flaxattn.store.extract_to import extract_to

TEXTS = ["The cat is very sad.", "Because it could not find food.", "A dog.", "It is a cat."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two models, and what each saw: maps, or statistics."""
    folder = tmp_path_factory.mktemp("stores")
    (folder / "a.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    (folder / "other.txt").write_text("\n".join([*TEXTS[:3], "It is a dog."]), encoding="utf-8")
    captures = {
        "maps": fa.Capture(weights=True),
        "recorded": fa.Capture(stats=("entropy", "distance", "argmax")),
    }
    for number, name in enumerate(("one", "two")):
        small_bert.save(folder / name, heads=2, deviation=0.4, seed=number)
        model = fa.from_pretrained(folder / name)
        for kind, capture in captures.items():
            extract_to(folder / f"{name}-{kind}", model, [folder / "a.txt"], capture=capture)
    extract_to(folder / "other", model, [folder / "other.txt"], capture=captures["maps"])
    return folder


def heads(path):
    rows = json.loads((path / "compare.json").read_text(encoding="utf-8"))["heads"]
    return {(row["layer"], row["head"]): row for row in rows}


@pytest.mark.slow
def test_stores_compare_as_their_models_do(run, tmp_path):
    assert run("compare", "one", "two", "a.txt", out="models")[0] == 0
    code, _, err = run("compare", "one-maps", "two-maps", out="stores")
    assert code == 0, err
    one, other = heads(tmp_path / "models"), heads(tmp_path / "stores")
    assert one.keys() == other.keys() and len(one) == 4
    for head, row in one.items():
        for name, value in row.items():
            if isinstance(value, float):
                assert other[head][name] == pytest.approx(value, abs=1e-5), name
    report = json.loads((tmp_path / "stores" / "compare.json").read_text(encoding="utf-8"))
    theirs = json.loads((tmp_path / "models" / "compare.json").read_text(encoding="utf-8"))
    assert [s["name"] for s in report["data"]["stores"]] == ["one-maps", "two-maps"]
    assert all(len(s["plan_sha256"]) == 64 for s in report["data"]["stores"])
    texts = [[t["text"] for t in c["texts"]] for c in report["evidence"]["claims"]]
    assert texts == [[t["text"] for t in c["texts"]] for c in theirs["evidence"]["claims"]]
    assert report["evidence"]["texts"]["2"]["text"] == TEXTS[2] and report["refused"] == {}
    table = pq.read_table(tmp_path / "stores" / "evidence.parquet").to_pylist()
    first = [row for row in table if row["claim"] == "divergence"][:4]
    assert [row["rank"] for row in first] == [0, 1, 2, 3]
    apart = [row["score"] for row in first]
    assert apart == sorted(apart, reverse=True)
    assert np.mean(apart) == pytest.approx(first[0]["value"], abs=1e-5)
    page = (tmp_path / "stores" / "compare.html").read_text(encoding="utf-8")
    assert "How heads differ" in page and "4 of the 4 texts" in page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("roles", "one-maps", "--model", "one"), "--model"),
        (("roles", "one-maps", "--batch-tokens", 64), "--batch-tokens"),
        (("stats", "one-recorded", "--text-column", "line"), "--text-column"),
        (("stats", "one-recorded", "--truncate"), "--truncate"),
        (("compare", "one-maps", "two-maps", "--pair-column", "other"), "--pair-column"),
    ],
)
def test_how_texts_are_read_is_refused_beside_a_store(run, tmp_path, words, option):
    store = words[1]
    code, _, err = run(*words)
    assert code == 2 and not (tmp_path / "report").exists()
    assert [line for line in err.splitlines() if line] == [
        f"error: {option} says how texts are read; {store} is a store, whose texts were read "
        "when it was written",
        f"leave {option} out, or give the texts in place of the store",
    ]


@pytest.mark.slow
def test_stores_of_statistics_compare_these(run, tmp_path):
    assert run("compare", "one-maps", "two-maps", out="maps")[0] == 0
    code, printed, err = run("compare", "one-recorded", "two-recorded")
    assert code == 0, err
    one, other = heads(tmp_path / "maps"), heads(tmp_path / "report")
    for head, row in one.items():
        for name in ("entropy_change", "distance_change"):
            assert other[head][name] == pytest.approx(row[name], abs=1e-5)
        assert other[head]["divergence"] is None and "argmax_change" not in other[head]
    refused = json.loads((tmp_path / "report" / "compare.json").read_text())["refused"]
    assert {"divergence", "cosine", "next"} < set(refused["Capture(weights=True)"])
    assert "not in these stores, Capture(weights=True) would hold it: divergence" in printed


@pytest.mark.slow
def test_what_heads_are_worth_is_shown_by_texts(run, tmp_path):
    code, printed, err = run("ablate", "a.txt", "--model", "one", "--batch-size", 2, "--json")
    assert code == 0, err
    report = json.loads(printed)
    task = fa.head_task(fa.from_pretrained("one"), TEXTS, batch=2)
    each = fa.ablate(task).each["head_mask"]
    means = each.mean(-1)
    claims = {(c["name"], c["layer"], c["head"]): c for c in report["evidence"]["claims"]}
    assert claims
    for (name, layer, head), claim in claims.items():
        if name != "ablation":
            continue
        assert claim["value"] == pytest.approx(means[layer, head], abs=1e-5)
        best = np.argsort(-each[layer, head], kind="stable").tolist()
        assert [text["text"] for text in claim["texts"]] == best
    assert "What heads are worth" in (tmp_path / "report" / "ablate.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "one-maps", "two"), "one-maps is a store and two is not"),
        (("compare", "one", "two-maps", "a.txt"), "two-maps is a store and one is not"),
        (("compare", "one-maps", "two-maps", "a.txt"), "two stores have their texts already"),
        (("compare", "one", "two"), "no text was named"),
        (("compare", "one-maps", "other"), "text 3 is not the same in both: token 4"),
        (
            ("compare", "one-maps", "two-recorded"),
            "no weights and no statistic of one side in common",
        ),
        (("ablate", "one-maps"), "give the texts and the model: flaxattn ablate a.txt --model"),
    ],
)
def test_what_does_not_fit_is_reported(run, tmp_path, words, message):
    code, _, err = run(*words)
    assert code == 2 and message in err, err
    assert len(err.splitlines()) <= 3
    assert not (tmp_path / "report").exists()
