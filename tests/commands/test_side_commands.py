# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn roles`, `stats` and `weights` of every family as a person types them."""

import itertools
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from flaxattn.reports.report import WEIGHT_KINDS

pytestmark = pytest.mark.slow

TEXTS = ["the cat is sad .", "a b c a b c a b", "very very sad , the end of a cat", "c d e f g h"]
TREE = """# sent_id = {number}
1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_
2\tcat\t_\tNOUN\t_\t_\t4\tnsubj\t_\t_
3\tis\t_\tAUX\t_\t_\t4\tcop\t_\t_
4\tsad\t_\tADJ\t_\t_\t0\troot\t_\t_

"""


@pytest.fixture(scope="module")
def folder(gpt2, seq2seq, bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sides")
    for name, model in {"gpt2": gpt2, "seq2seq": seq2seq, "bert": bert}.items():
        model.save_pretrained(folder / name)
    (folder / "a.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    pairs = [f"{text}\t{other}" for text, other in zip(TEXTS, TEXTS[::-1], strict=True)]
    (folder / "pairs.tsv").write_text("\n".join(["text\tb", *pairs]) + "\n", encoding="utf-8")
    trees = [TREE.format(number=f"s{n}") for n in range(4)]
    (folder / "a.conllu").write_text("".join(trees), encoding="utf-8")
    return folder


def test_roles_of_a_decoder(run, tmp_path):
    words = ("roles", "a.conllu", "--model", "gpt2", "--relations", "nsubj", "--tau", 1.2)
    code, out, err = run(*words, "--drawings", 2, "--repeats", 2)
    assert code == 0, err
    facts = json.loads((tmp_path / "report" / "roles.json").read_text(encoding="utf-8"))
    assert (facts["side"], facts["texts"]) == ("decoder", 4)
    assert {"local", "own", "previous", "first", "dependent(nsubj)"} <= set(facts["roles"])
    assert not {"cls", "sep", "block", "governor(nsubj)"} & set(facts["roles"])
    chance = facts["false_positives"]
    assert chance["texts"] == 4 and chance["other_trees"]["drawings"] == 2
    assert chance["untrained"]["tests"] > 0
    assert "by chance: the model before training has" in out
    assert "by chance: under other trees, 2 times drawn" in out
    assert set(facts["repeated"]["heads"]) == {"previous_token", "duplicate_token", "induction"}
    first = facts["repeated"]["heads"]["induction"][0]
    assert first["found"] == (first["p_corrected"] < 0.05) and len(first) == 6
    table = pq.read_table(tmp_path / "report" / "heads.parquet").to_pylist()
    assert any((row["kind"], row["name"]) == ("score", "previous") for row in table)


@pytest.mark.slow
def test_stats_of_cross_attention_with_a_map_of_its_heads(run, tmp_path):
    words = ("stats", "pairs.tsv", "--pair-column", "b", "--model", "seq2seq")
    code, out, err = run(*words)
    assert code == 0, err
    report = tmp_path / "report"
    facts = json.loads((report / "stats.json").read_text(encoding="utf-8"))
    likeness = facts["likeness"]
    assert facts["side"] == "cross" and likeness["texts"] == 4
    assert sorted(itertools.chain(*likeness["groups"])) == ["0.0", "0.1", "0.2", "0.3"]
    assert 0 <= likeness["stress_of_the_map"] < 1
    assert all(0 <= value <= 1 for value in likeness["variability"].values())
    places = pq.read_table(report / "likeness.parquet").to_pylist()
    assert [(row["layer"], row["head"]) for row in places] == [(0, n) for n in range(4)]
    distances = pq.read_table(report / "distances.parquet").to_pylist()
    assert len(distances) == 6 and all(0 < row["divergence"] < np.log(2) for row in distances)
    assert (report / "likeness.png").read_bytes().startswith(b"\x89PNG")
    assert "diag." in out
    code, _, err = run(*words, "--compared", 0, "--overwrite")
    assert code == 0, err
    assert json.loads((report / "stats.json").read_text(encoding="utf-8"))["likeness"] == {}
    assert not (report / "likeness.parquet").exists()


def test_weights_of_every_kind(run, tmp_path):
    code, out, err = run(
        "weights", "a.txt", "--model", "bert", "--limit", 2, "--kinds", ",".join(WEIGHT_KINDS)
    )
    assert code == 0, err
    facts = json.loads((tmp_path / "report" / "weights.json").read_text(encoding="utf-8"))
    # This one has no head, so there is no loss.
    headless = {"gradient", "relevance", "chefer"}
    assert set(facts["refused"]) == headless and "gradient: " in out
    assert {row["kind"] for row in facts["heads"]} == {*WEIGHT_KINDS} - headless
    rows = pq.read_table(tmp_path / "report" / "heads.parquet").to_pylist()
    each = {kind: [row for row in rows if row["kind"] == kind] for kind in WEIGHT_KINDS}
    assert [len(each[kind]) for kind in WEIGHT_KINDS] == [8, 8, 8, 0, 4, 0, 0, 4, 2]
    assert {(row["layer"], row["head"]) for row in each["rollout"]} == {(0, -1), (1, -1)}
    assert {(row["layer"], row["head"]) for row in each["flow"]} == {(-1, -1)}
    for kind in ("attention", "rollout", "zeroing"):
        assert all(abs(row["total"] - 1) < 1e-3 for row in each[kind])
    assert (tmp_path / "report" / "weights.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_weights_of_an_encoder_decoder(run, tmp_path):
    words = ("weights", "pairs.tsv", "--pair-column", "b", "--model", "seq2seq", "--limit", 2)
    code, _, err = run(*words)
    assert code == 0, err
    facts = json.loads((tmp_path / "report" / "weights.json").read_text(encoding="utf-8"))
    assert facts["refused"] == {}
    sides = {(row["kind"], row["side"]) for row in facts["heads"]}
    kinds = (*WEIGHT_KINDS[:5], "relevance", "chefer")
    three = {(kind, side) for kind in kinds for side in ("encoder", "decoder", "cross")}
    assert sides == {*three, ("rollout", "encoder")}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["roles", "a.txt", "--model", "gpt2", "--side", "cross"], "has no attention of side"),
        (["stats", "a.txt", "--model", "bert", "--side", "decoder"], "it has encoder"),
        (["roles", "a.txt", "--model", "gpt2", "--pande-parity"], "an encoder by itself"),
        (["weights", "a.txt", "--kinds", "norm,magic"], "'magic' is not one of attention"),
        (["weights", "a.txt", "--model", "bert", "--kinds", "gradient"], "none of gradient can"),
    ],
)
def test_wrong_use_is_one_clear_message_and_writes_nothing(run, tmp_path, words, message):
    code, _, err = run(*words)
    assert code == 2 and message in err
    assert len(err.splitlines()) <= 3 and not (tmp_path / "report").exists()
