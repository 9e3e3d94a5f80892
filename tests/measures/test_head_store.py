# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reports out of stores say what reports on texts say; what a store does not tell is named."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import flaxattn as fa
from flaxattn import cli
from flaxattn.kernels.contract import Sieve
from flaxattn.store.extract_to import extract_to

pytestmark = pytest.mark.slow

FORMS = "a b c the cat is very sad , .".split()
LARGE = ("score", "control", "beyond")
SIEVES = (
    Sieve("after", offsets=(1, 1)),
    Sieve("before", offsets=(-1, -1)),
    Sieve("self", offsets=(0, 0)),
    Sieve("near", offsets=(-2, 2)),
)


def trees(count, rng):
    """CoNLL-U of random sentences, each word but the first hanging on one before it."""
    blocks = []
    for number in range(count):
        lines = [f"# sent_id = s{number}"]
        for place in range(1, int(rng.integers(3, 12))):
            governor = int(rng.integers(place)) if place > 1 else 0
            relation = "root" if place == 1 else str(rng.choice(["nsubj", "obj", "punct"]))
            governor = max(governor, 1) if place > 1 else 0
            form = str(rng.choice(FORMS))
            lines.append(f"{place}\t{form}\t_\tX\t_\t_\t{governor}\t{relation}\t_\t_")
        blocks.append("\n".join(lines) + "\n\n")
    return "".join(blocks)


@pytest.fixture(scope="module")
def folder(bert, tmp_path_factory):
    """A model, trees, their texts, a store of maps in three shards, and one of statistics."""
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.corpus.dependency_trees import read_sentences

    folder = tmp_path_factory.mktemp("stores")
    bert.save_pretrained(folder / "model")
    path = folder / "a.conllu"
    path.write_text(trees(20, np.random.default_rng(0)), encoding="utf-8")
    texts = [sentence.text for sentence in read_sentences([path], BadRows())]
    (folder / "a.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    made = {
        "maps": fa.Capture(weights=True),
        "recorded": fa.Capture(stats=("entropy", "distance", "received", "topk(4)", *SIEVES)),
        "some": fa.Capture(stats=("entropy",)),
        "none": fa.Capture(query=True),
    }
    for name, capture in made.items():
        options = {"shard_texts": 8} if name == "maps" else {}
        extract_to(folder / name, bert, [folder / "a.txt"], capture=capture, **options)
    return folder


def numbers(folder):
    rows = pq.read_table(folder / "heads.parquet").to_pylist()
    return {(r["layer"], r["head"], r["kind"], r["name"]): r for r in rows}


def assert_same(one, other, longest=13):
    """Shares and means to 1e-5; a lift is a share times at most the longest text."""
    for key, row in one.items():
        scale = longest if key[2] in LARGE or key[3].endswith("score") else 1
        assert row["texts"] == other[key]["texts"], key
        for name in ("mean", "sd", "low", "high"):
            assert row[name] == pytest.approx(other[key][name], abs=1e-5 * scale, nan_ok=True), key


@pytest.fixture(scope="module")
def reports(folder, tmp_path_factory):
    """Stats and roles of the texts with their trees, read by the model."""
    out = tmp_path_factory.mktemp("reports")
    requested = {"roles": ["--relations", "nsubj,obj", "--tau", "1.2"], "stats": []}
    for name, words in requested.items():
        given = [name, folder / "a.conllu", "--model", folder / "model", "-o", out / name, *words]
        assert cli.main([str(word) for word in given]) == 0
    return out


@pytest.mark.parametrize("command", ["roles", "stats"])
def test_a_store_of_maps_says_what_the_model_says(run, reports, tmp_path, command):
    words = ("--relations", "nsubj,obj", "--tau", 1.2) if command == "roles" else ()
    code, _, err = run(command, "maps", "--trees", "a.conllu", *words)
    assert code == 0, err
    one, other = numbers(tmp_path / "report"), numbers(reports / command)
    assert one.keys() == other.keys() and len(one) > 300
    assert_same(one, other)
    facts, theirs = (
        json.loads((path / f"{command}.json").read_text(encoding="utf-8"))
        for path in (tmp_path / "report", reports / command)
    )
    assert facts["data"][1] == theirs["data"][0], "the file of trees, with its digest"
    for ours, its in zip(facts["labels"], theirs["labels"], strict=True):
        assert [ours[n] for n in ("layer", "head", "label")] == list(its.values())[:3]
        assert ours["evidence"] == pytest.approx(its["evidence"], abs=1e-3)
    for ours, its in zip(facts["evidence"]["claims"], theirs["evidence"]["claims"], strict=True):
        assert (ours["name"], ours["layer"], ours["head"]) == (
            its["name"],
            its["layer"],
            its["head"],
        )
        # Texts that are equal but for rounding may change places.
        scores = [[text["score"] for text in claim["texts"]] for claim in (ours, its)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    one, other = facts["evidence"]["texts"], theirs["evidence"]["texts"]
    assert len(one.keys() & other.keys()) >= 8
    for number in one.keys() & other.keys():
        assert one[number]["id"] == other[number]["id"] == f"s{number}"
        assert one[number]["text"] == other[number]["text"]
    assert facts["refused"] == {}


def test_a_store_of_statistics_says_what_it_can(run, reports, tmp_path):
    code, out, err = run("stats", "recorded", "--trees", "a.conllu")
    assert code == 0, err
    one, other = numbers(tmp_path / "report"), numbers(reports / "stats")
    assert one.keys() < other.keys()
    assert_same(one, other)
    kinds = {(kind, name) for _, _, kind, name in one}
    assert {("mean", "entropy"), ("mean", "next"), ("mean", "cls"), ("tag", "X")} < kinds
    assert {("score", "local"), ("score", "sep"), ("strongest", "rare")} < kinds
    assert {("strongest", "next"), ("hit", "governor(nsubj)"), ("pattern", "own")} < kinds
    assert not {("mean", "max"), ("score", "governor(nsubj)"), ("score", "block")} & kinds
    refused = json.loads((tmp_path / "report" / "stats.json").read_text())["refused"]
    assert "mean: max" in refused['Capture(stats=("max",))']
    assert "score: governor(nsubj)" in refused["Capture(weights=True)"]
    assert 'Capture(stats=("max",)) would hold it: mean: max' in out
    missing = {name for names in refused.values() for name in names}
    known = {f"{kind}: {name}" for kind, name in kinds}
    every = {f"{kind}: {name}" for _, _, kind, name in other}
    assert missing | known | {"mean: other segment"} | {n for n in every if "beyond" in n} >= every
    assert not missing & known


def test_roles_from_statistics(run, reports, tmp_path):
    words = ("--trees", "a.conllu", "--relations", "nsubj,obj", "--tau", 1.2)
    code, _, err = run("roles", "recorded", *words)
    assert code == 0, err
    one, other = numbers(tmp_path / "report"), numbers(reports / "roles")
    for key, row in one.items():
        if key[2] == "score":
            assert row["p"] == pytest.approx(other[key]["p"], rel=1e-3, abs=1e-6)
    found = json.loads((tmp_path / "report" / "roles.json").read_text())["roles"]
    assert set(found) == {"local", "cls", "sep", "delimiter"}
    page = (tmp_path / "report" / "roles.html").read_text(encoding="utf-8")
    assert "No attention travels with this page." in page


def test_no_model_is_loaded_for_a_store(run, monkeypatch):
    monkeypatch.setattr("flaxattn.pretrained.from_pretrained.from_pretrained", None)
    assert run("stats", "maps", "--limit", 9, "--lengths", "3-40", "--no-page")[0] == 0


def test_only_the_page_is_left_out(run, tmp_path):
    code, out, _ = run("stats", "some", "--no-page")
    assert code == 0 and "stats.html" not in out
    names = {path.name for path in (tmp_path / "report").iterdir()}
    assert names == {"stats.json", "heads.parquet", "evidence.parquet", "stats.png"}


def edited(folder, name, old, new):
    text = (folder / "a.conllu").read_text(encoding="utf-8")
    (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    return name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("stats", "none"), "none holds no weights and no statistics of an encoder"),
        (("roles", "some"), "some holds no statistic that a role is scored by"),
        (("stats", "a.txt", "--trees", "a.conllu", "--model", "model"), "a.txt is not a store"),
        (
            ("stats", "maps", "--trees", "a.txt"),
            "a.txt, line 1: expected 10 fields",
        ),
        (("stats", "maps", "--trees", "fewer.conllu"), "maps has 20 texts, and fewer.conllu 19"),
        (("stats", "maps", "--trees", "gone.conllu"), "gone.conllu: there is no such file"),
        (("stats", "maps", "--trees", "other.conllu"), "word 1 'sad': the store has another text"),
        (("stats", "maps", "--evidence", "0"), "'--evidence'"),
    ],
)
def test_what_does_not_fit_is_named(run, folder, tmp_path, words, message):
    whole = (folder / "a.conllu").read_text(encoding="utf-8")
    (folder / "fewer.conllu").write_text(whole.rsplit("# sent_id", 1)[0], encoding="utf-8")
    first = whole.splitlines()[1].split("\t")[1]
    other = "sad" if first != "sad" else "cat"
    edited(folder, "other.conllu", f"1\t{first}\t", f"1\t{other}\t")
    code, _, err = run(*words)
    assert code == 2
    assert message.replace("'sad'", repr(other)) in err
    assert len(err.splitlines()) <= 3
    assert not (tmp_path / "report").exists()


def test_a_sentence_that_is_another_can_be_left_out(run, folder, tmp_path):
    whole = (folder / "a.conllu").read_text(encoding="utf-8")
    blocks = whole.split("\n\n")
    blocks[3] = blocks[3].replace("\t0\troot", "\t1\troot")  # no tree
    blocks[5] = blocks[5] + "\n" + f"{blocks[5].count(chr(10)) + 1}\tsad\t_\tX\t_\t_\t1\tobj\t_\t_"
    (folder / "holes.conllu").write_text("\n\n".join(blocks), encoding="utf-8")
    code, out, err = run("stats", "maps", "--trees", "holes.conllu", "--on-error", "skip")
    assert code == 0, err
    assert "left out: another-text: 1" in out and "left out: tree: 1" in out
    assert "18 texts" in out
    facts = json.loads((tmp_path / "report" / "stats.json").read_text(encoding="utf-8"))
    assert not {"3", "5"} & facts["evidence"]["texts"].keys()
