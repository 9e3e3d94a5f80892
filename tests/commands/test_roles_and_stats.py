# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn roles` and `flaxattn stats` as a person types them, and what they write."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from page_payload import payload_of

import flaxattn as fa
from flaxattn.store.extract_to import extract_to
from flaxattn.views.page import Page

LINES = """# sent_id = {number}
1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_
2\tcat\t_\tNOUN\t_\t_\t4\tnsubj\t_\t_
3\tis\t_\tAUX\t_\t_\t4\tcop\t_\t_
4\tsad\t_\tADJ\t_\t_\t0\troot\t_\t_
5\t{last}\t_\tPUNCT\t_\t_\t4\tpunct\t_\t_

"""
TEXTS = ["the cat is sad .", "a b c", "very very sad , the end of a cat", "c d e f g h"]


ENDS, RELATIONS = ("governor", "dependent"), ("nsubj", "punct")
# What compiled steps are shared by: the same relations in every test.
ROLES = ("roles", "a.conllu", "--model", "model", "--relations", "nsubj,punct")


@pytest.fixture(scope="module")
def folder(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("heads")
    bert.save_pretrained(folder / "model")
    trees = [LINES.format(number=f"s{n}", last=".,"[n % 2]) for n in range(6)]
    (folder / "a.conllu").write_text("".join(trees), encoding="utf-8")
    (folder / "a.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    (folder / "pairs.tsv").write_text("text\tb\na b\tc d\nthe cat\tis sad\n", encoding="utf-8")
    return folder


@pytest.mark.slow
def test_a_report_of_roles(run, tmp_path):
    code, out, err = run(*ROLES, "--limit", 5, "--tau", 1.2, "--seed", 3)
    assert code == 0, err
    report = tmp_path / "report"
    facts = json.loads((report / "roles.json").read_text(encoding="utf-8"))
    assert facts["flaxattn"] == fa.__version__
    assert (facts["texts"], facts["model"], facts["seed"]) == (5, "model", 3)
    assert facts["settings"]["relations"] == ["nsubj", "punct"]
    assert (facts["settings"]["tau"], facts["settings"]["correction"]) == (1.2, "bh")
    assert facts["data"][0]["name"] == "a.conllu"
    assert len(facts["data"][0]["sha256"]) == 64
    table = pq.read_table(report / "heads.parquet").to_pylist()
    rows = [row for row in table if (row["kind"], row["name"]) == ("score", "governor(nsubj)")]
    assert [(row["layer"], row["head"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    found = [row["found"] for row in rows]
    assert sum(found) == facts["roles"]["governor(nsubj)"]["heads"]
    assert all(row["low"] <= row["mean"] <= row["high"] and row["texts"] == 5 for row in rows)
    assert all((row["p_corrected"] < 0.05) == row["found"] for row in rows)
    means = [row for row in table if row["kind"] == "mean"]
    assert means and all(row["p"] is None for row in means)
    assert (report / "roles.png").read_bytes().startswith(b"\x89PNG")
    assert "share" in out and "governor(nsubj)" in out
    assert "block: no text allows a score above 1.2" not in out
    assert "5 texts of 7 to 7 positions, 7.0 on average" in out


@pytest.mark.slow
def test_the_page_holds_the_pairs_of_its_claims(run, tmp_path):
    code, _, err = run(*ROLES, "--tau", 0.1, "--alpha", 0.5)
    assert code == 0, err
    held = payload_of(Page("", (tmp_path / "report/roles.html").read_text(encoding="utf-8"), ""))
    claimed = {claim["name"] for claim in held["report"]["claims"]} - {"block", "block_entropy"}
    assert {"governor(nsubj)", "dependent(nsubj)"} <= claimed
    for shaped in held["inputs"]:  # "the cat is sad .": cat <- sad
        pairs = {one["name"]: one for one in shaped["sides"][0]["pairs"]}
        trees = {f"{a}({b})" for a in ENDS for b in (*RELATIONS, "any")}
        assert pairs.keys() - trees == claimed - trees and pairs.keys() <= claimed
        for name, pair in (("governor(nsubj)", [2, 2, 4, 4]), ("dependent(nsubj)", [4, 4, 2, 2])):
            assert name not in pairs or pairs[name]["pairs"] == [pair]
            assert name not in pairs or pairs[name]["about"].endswith("(nsubj)")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["roles", "stats"])
def test_the_page_of_a_head_shows_what_the_tables_hold(run, tmp_path, command):
    loose = ("--tau", 0.1, "--alpha", 0.5, "--relations", "nsubj,punct")
    requested = loose if command == "roles" else ()
    code, _, err = run(command, "a.conllu", "--model", "model", *requested)
    assert code == 0, err
    report = tmp_path / "report"
    held = payload_of(Page("", (report / f"{command}.html").read_text(encoding="utf-8"), ""))
    assert held["levels"][:2] == ["claims", "profile"]
    claims, heads = held["report"]["claims"], held["report"]["heads"]
    table = pq.read_table(report / "heads.parquet").to_pylist()
    means = {(r["kind"], r["name"], r["layer"], r["head"]): r for r in table}
    shown = 0
    for claim in claims:
        row = means.get(("score" if command == "roles" else "mean", *_place(claim)))
        if row is not None and claim["interval"] is not None:
            np.testing.assert_allclose(claim["interval"], [row["low"], row["high"]], rtol=1e-3)
            shown += 1
    assert shown
    rows = pq.read_table(report / "examples.parquet").to_pylist()
    drawn = [
        (*_place(claim), end, rank, weight, outcome)
        for claim in claims
        for end in ("best", "worst")
        for rank, (*_, weight, outcome) in enumerate((claim["examples"] or {}).get(end, ()))
    ]
    assert drawn and len(drawn) == len(rows)
    for row, (*expected, weight, outcome) in zip(rows, drawn, strict=True):
        names = ("claim", "layer", "head", "end", "rank")
        assert [row[name] for name in names] == expected and row["outcome"] == outcome
        assert row["weight"] == pytest.approx(weight, rel=1e-3)
    for layer, head in np.ndindex(2, 2):
        place, share = heads["readings"][layer][head]
        shares = ("next", "previous", "own", "cls", "sep", "punctuation")
        found = {n: means["mean", n, layer, head]["mean"] for n in shares}
        best = max(found, key=lambda name: found[name])
        assert share >= found[best] - 1e-3 and place
    if command == "stats":
        far = pq.read_table(report / "distances.parquet").to_pylist()
        known = {(r["layer"], r["head"], r["other_layer"], r["other_head"]): r for r in far}
        at, distance = heads["nearest"][0][0]
        expected = known[0, 0, at // 2, at % 2]["distance"]
        assert distance == pytest.approx(expected, rel=1e-3) and heads["near_texts"] == 6


def _place(claim):
    return claim["name"], claim["layer"], claim["head"]


@pytest.mark.slow
def test_effects_of_ablation_are_those_of_its_report(run, tmp_path):
    requested = ("a.txt", "--limit", 3)
    words = ("ablate", *requested, "--model", "tiny-bert", "--measure", "importance", "--no-page")
    code, _, err = run(*words, out="worth")
    assert code == 0, err
    worth = json.loads((tmp_path / "worth" / "ablate.json").read_text(encoding="utf-8"))
    assert run("circuits", "--model", "tiny-bert", out="circuits")[0] == 0
    others = ("--facts", tmp_path / "worth", "--facts", tmp_path / "circuits")
    with_effects = ("roles", *requested, "--tau", 0.1, *others)
    code, _, err = run(*with_effects, "--model", "tiny-bert")
    assert code == 0, err
    held = payload_of(Page("", (tmp_path / "report/roles.html").read_text(encoding="utf-8"), ""))
    effects = held["report"]["heads"]["effects"]
    assert list(effects)[:2] == ["ablate: importance", "circuits: copying"]
    mean, low, high = effects["ablate: importance"]
    assert len(worth["heads"]) == np.size(mean)
    for row in worth["heads"]:
        i, j = row["layer"], row["head"]
        assert mean[i][j] == pytest.approx(row["importance"], rel=1e-3)
        far = 1.96 * row["importance_error"]
        assert low[i][j] == pytest.approx(row["importance"] - far, abs=1e-3)
        assert high[i][j] == pytest.approx(row["importance"] + far, abs=1e-3)
    scores = pq.read_table(tmp_path / "circuits" / "circuits.parquet").to_pylist()
    copying, low, _ = effects["circuits: copying"]
    assert copying[0][1] == pytest.approx(scores[1]["copying"], rel=1e-3) and low[0][1] is None
    about = held["report"]["heads"]["effects_about"]
    assert about.startswith("ablate: growth of the loss (mean loss ") and "circuits: from" in about
    code, _, err = run(*with_effects, "--model", "model", out="other")
    assert code == 2 and "worth is of the model tiny-bert; " in err and " is of model." in err
    assert "Give reports of one model." in err


@pytest.mark.slow
def test_the_same_command_gives_the_same_report(run, tmp_path):
    reports = []
    for _ in range(2):
        assert run(*ROLES, "--json")[0] == 0
        names = ("roles.json", "heads.parquet")
        reports.append([(tmp_path / "report" / name).read_bytes() for name in names])
    assert reports[0] == reports[1]


@pytest.mark.slow
def test_tau_that_no_text_reaches_is_printed(run):
    code, out, _ = run(*ROLES)
    assert code == 0
    assert "local: no text allows a score above 3, the highest is" in out
    assert "texts of 14 positions would do" in out
    assert "block: no text allows a score above 3" in out and "no length would do" in out


@pytest.mark.slow
def test_texts_and_pairs_without_trees(run, tmp_path):
    code, out, err = run("stats", "a.txt", "--model", "model", "--lengths", "5-8")
    assert code == 0, err
    assert "3 texts of 5 to 8 positions" in out
    facts = json.loads((tmp_path / "report" / "stats.json").read_text(encoding="utf-8"))
    settings = {"limit": None, "lengths": [5, 8], "annotated": False, "evidence": 5}
    assert facts["settings"] == settings
    table = pq.read_table(tmp_path / "report" / "heads.parquet").to_pylist()
    names = {row["name"] for row in table if row["kind"] == "mean"}
    assert {"entropy", "distance", "max", "sum_sq", "next", "previous", "own", "first"} < names
    assert {"cls", "sep", "punctuation", "own segment", "other segment"} < names
    code, out, err = run(
        "roles", "pairs.tsv", "--pair-column", "b", "--model", "model", "--json", out="pairs"
    )
    assert code == 0, err
    assert json.loads(out)["roles"]["block"]["lengths"]["highest"] > 2


def test_texts_without_trees_test_no_relation_and_say_so(run):
    words = ("--model", "model", "--drawings", "0", "--no-page")
    for name, noted in (("a.txt", True), ("a.conllu", False)):
        code, out, err = run("roles", name, *words, "--overwrite")
        assert code == 0, err
        assert ("no head was tested for nsubj" in out + err) == noted


@pytest.mark.slow
def test_a_store_says_what_its_texts_say(run, folder, bert, tmp_path):
    extract_to(tmp_path / "store", bert, [folder / "a.txt"], capture=fa.Capture(weights=True))
    tables = []
    for words in ([tmp_path / "store"], ["a.txt", "--model", "model"]):
        code, _, err = run("stats", *words, "--overwrite")
        assert code == 0, err
        rows = pq.read_table(tmp_path / "report" / "heads.parquet").to_pylist()
        tables.append({(r["layer"], r["head"], r["kind"], r["name"]): r["mean"] for r in rows})
    assert len(tables[0]) > 100
    for key in tables[0]:
        np.testing.assert_allclose(tables[0][key], tables[1][key], atol=1e-3, err_msg=str(key))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["roles", "a.conllu", "a.txt"], "a.txt has no trees, and other inputs are CoNLL-U"),
        (["roles", "a.conllu", "--relations", "dobj"], "'dobj' is not a relation between words"),
        (["roles", "a.conllu", "--correction", "sidak"], "correction 'sidak' is unknown"),
        (["roles", "a.conllu", "--lengths", "9"], "'9' is not a range such as 20-40."),
        (["roles", "a.conllu", "--lengths", "40-50"], "there is no text to score heads on"),
        (["roles", "none.conllu"], "none.conllu: there is no such file"),
        (["stats", "none.txt"], "none.txt: there is no such file"),
        (
            ["roles", "bad.conllu"],
            "bad.conllu, line 2: sentence 's', word 1 'a': its governor is 5",
        ),
    ],
)
def test_bad_input_is_one_clear_message_and_writes_nothing(run, folder, tmp_path, words, message):
    row = "1\ta\t_\tX\t_\t_\t5\tdep\t_\t_\n\n"
    (folder / "bad.conllu").write_text(f"# sent_id = s\n{row}", encoding="utf-8")
    words = [*words, "--model", "model"] if "--model" not in words else words
    code, _, err = run(*words)
    assert code == 2
    assert message in err
    assert len(err.splitlines()) <= 3
    assert not (tmp_path / "report").exists()


@pytest.mark.slow
def test_bad_sentences_are_listed(run, folder, tmp_path):
    good = (folder / "a.conllu").read_text(encoding="utf-8")
    text = good + "# sent_id = odd\n1\ta\t_\tX\t_\t_\t1\tdep\t_\t_\n\n"
    (folder / "mixed.conllu").write_text(text, encoding="utf-8")
    code, out, err = run(*ROLES, "mixed.conllu", "--on-error", "quarantine")
    assert code == 0, err
    assert "left out: tree: 1" in out
    listed = (tmp_path / "report" / "errors.jsonl").read_text(encoding="utf-8")
    assert json.loads(listed)["message"].startswith("sentence 'odd', word 1 'a': its governors")
    assert (tmp_path / "report" / "roles.json").is_file()
