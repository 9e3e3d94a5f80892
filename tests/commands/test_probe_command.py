# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn probe` as a person types it, the report it leaves, and the maps it is made of."""

import functools
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from page_payload import payload_of

import flaxattn as fa
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import read_sentences
from flaxattn.errors import InputError
from flaxattn.files import sha256_of
from flaxattn.pipeline.tokenize_texts import ReadingOptions
from flaxattn.pretrained.from_pretrained import untrained
from flaxattn.probes.governor_probe import Dependencies
from flaxattn.probes.parsing_probe import attachment
from flaxattn.probes.probe_file import load_probe
from flaxattn.probes.word_records import ROOT, word_maps
from flaxattn.views.page import Page

FORMS = "a b c d e f g h the cat is very".split()


def gold_names(page):
    """Names of the gold pairs of each text of a page."""
    payload = payload_of(Page("", page.read_text(encoding="utf-8"), ""))
    return [[pairs["name"] for pairs in one["sides"][0]["pairs"]] for one in payload["inputs"]]


def trees(path, count, seed):
    """Sentences of six words and a full stop, each word hanging on the one before or the root."""
    rng = np.random.default_rng(seed)
    blocks = []
    for number in range(count):
        root = int(rng.integers(1, 7))
        lines = [f"# sent_id = {path.stem}-{number}"]
        for place, form in enumerate([*rng.choice(FORMS, 6), "."], 1):
            head = (
                0 if place == root else root if place in (1, 7) or rng.random() < 0.3 else place - 1
            )
            relation = "root" if not head else "punct" if place == 7 else "nsubj:x"
            tag = "PUNCT" if place == 7 else "NOUN"
            lines.append(f"{place}\t{form}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\t_")
        blocks.append("\n".join(lines) + "\n\n")
    path.write_text("".join(blocks), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def folder(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probes")
    bert.save_pretrained(folder / "model")
    trees(folder / "a.conllu", 8, 0)
    trees(folder / "train.conllu", 24, 1)
    (folder / "a.txt").write_text("a b\n", encoding="utf-8")
    return folder


@pytest.fixture
def probe(run):
    return functools.partial(run, "probe")


@pytest.mark.slow
def test_maps_between_words_are_those_of_the_model(bert, folder):
    sentences = list(read_sentences([folder / "a.conllu"], BadRows()))
    seen = []
    found = list(
        word_maps(bert, sentences, ReadingOptions(watch=lambda _, count: seen.append(count)))
    )
    assert seen == [8] and [words.name for words in found] == [s.id for s in sentences]
    for sentence, words in zip(sentences, found, strict=True):
        weights = np.asarray(bert.trace(sentence.text).encoder.weights)[:, 0]
        np.testing.assert_allclose(words.weights, weights[..., 1:-1, 1:-1], atol=1e-5)
        np.testing.assert_allclose(words.first, weights[..., 1:-1, 0], atol=1e-5)
        np.testing.assert_allclose(words.separators, weights[..., 1:-1, -1], atol=1e-5)
        assert words.governors.tolist() == [word.governor for word in sentence.words]
        assert words.governors.tolist().count(ROOT) == 1
        assert words.punctuation.tolist() == [False] * 6 + [True]


@pytest.mark.slow
def test_an_untrained_model_has_other_attention(bert, folder):
    blind = untrained(bert, 3)
    assert blind.name == "b, untrained"
    sentences = list(read_sentences([folder / "a.conllu"], BadRows()))[:1]
    (one,), (other,) = word_maps(bert, sentences), word_maps(blind, sentences)
    assert abs(one.weights - other.weights).max() > 0.005
    assert one.types == other.types


def test_only_encoders_are_probed(gpt2, folder):
    sentences = read_sentences([folder / "a.conllu"], BadRows())
    with pytest.raises(InputError, match="'g' is not an encoder"):
        list(word_maps(gpt2, sentences))


@pytest.mark.slow
def test_the_whole_report(probe, folder, tmp_path, bert):
    words = ("a.conllu", "--model", "model", "--train", "train.conllu", "--train-limit", 20)
    code, printed, error = probe(*words, "--seed", 4)
    assert code == 0, error
    assert "all heads together attach" in printed and "selectivity" in printed
    out = tmp_path / "report"
    report = json.loads((out / "probe.json").read_text())
    assert report["flaxattn"] == fa.__version__ and report["seed"] == 4
    assert report["heads_chosen_on"] == "other sentences"
    digests = [files["files"][0]["sha256"] for files in report["data"]]
    assert digests == [sha256_of(folder / "a.conllu"), sha256_of(folder / "train.conllu")]
    assert [files["limit"] for files in report["data"]] == [None, 20]
    scores = report["parser"]["uas"]
    assert set(scores) == {"tree", "fitted", "control", "offset"}
    assert report["parser"]["words"] == 48 and report["parser"]["fitted_to_words"] == 140
    names = {one["relation"] for one in report["relations"]}
    assert names == {"any", "nsubj", "nsubj:x", "punct"}
    saved = load_probe(out / "probe.safetensors")
    assert saved.notes["parser"] == report["parser"] and saved.probe.words == 140
    sentences = list(read_sentences([folder / "a.conllu"], BadRows()))
    texts = list(word_maps(bert, sentences))
    assert scores["tree"] == pytest.approx(100 * attachment(saved.probe.governors, texts).score)
    found = Dependencies.of(texts)
    table = pq.read_table(out / "heads.parquet").to_pylist()
    assert len(table) == 4 * 2 * 4
    for row in table:
        expected = found.accuracy(row["direction"], row["relation"])[row["layer"], row["head"]]
        assert row["accuracy"] == pytest.approx(expected)
    assert (out / "probe.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_an_untrained_model_is_probed_beside(probe, tmp_path):
    words = ("a.conllu", "--model", "model", "--train", "train.conllu", "--untrained")
    code, printed, _ = probe(*words)
    report = json.loads((tmp_path / "report" / "probe.json").read_text())
    assert code == 0 and "untrained" in printed
    assert 0 <= report["parser"]["uas"]["untrained"] <= 100


def test_without_other_sentences_heads_are_chosen_where_they_are_judged(probe, tmp_path):
    code, printed, _ = probe("a.conllu", "--model", "model", "--limit", 4, "--json")
    report = json.loads(printed)
    assert code == 0 and report["parser"] is None
    assert report["heads_chosen_on"] == "the same sentences, which flatters"
    best = {one["relation"]: one for one in report["relations"]}
    assert best["punct"]["words"] == 4
    table = pq.read_table(tmp_path / "report" / "heads.parquet").to_pylist()
    most = max(row["accuracy"] for row in table if row["relation"] == "any")
    assert best["any"]["accuracy"] == most
    assert not (tmp_path / "report" / "probe.safetensors").exists()


def test_whom_pronouns_mean(probe, folder, tmp_path, bert):
    lines = [
        "1 [the cat] is very sad , a b c d [he] is",
        "2 the cat is very sad , [a b] c d [he] is",
        "3 [c d] e f g h , [she] is",
        "4 c d e [f g] h , [she] is",
    ]
    (folder / "p.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    code, printed, error = probe("p.txt", "--model", "model", "--pronouns", "winobias")
    assert code == 0 and "Whom mentions mean" in printed, error
    report = json.loads((tmp_path / "report" / "probe.json").read_text())
    assert report["texts"] == "winobias" and report["left_out"] == {}
    assert {g["group"]: g["mentions"] for g in report["groups"]} == {
        "": 4,
        "p.txt, masculine": 2,
        "p.txt, feminine": 2,
    }
    hits = np.zeros((2, 2))
    for line in lines:
        text = line[2:].replace("[", "").replace("]", "")
        weights = np.asarray(bert.trace(text).encoder.weights)[:, 0]
        forms = text.split()
        pronoun = 1 + max(forms.index(form) for form in ("he", "she") if form in forms)
        one, other = (1, 2), ((7, 8) if "he" in forms else (4, 5))
        right, wrong = (one, other) if line[2] == "[" else (other, one)
        hits += sum(weights[:, :, pronoun, k] for k in right) > sum(
            weights[:, :, pronoun, k] for k in wrong
        )
    for row in pq.read_table(tmp_path / "report" / "heads.parquet").to_pylist():
        if (row["group"], row["direction"]) == ("", "from mention"):
            assert row["accuracy"] == hits[row["layer"], row["head"]] / 4
            assert row["baseline"] == 0.5
    assert (tmp_path / "report" / "probe.png").is_file()
    best = report["groups"][0]
    claims = {claim["name"]: claim for claim in report["evidence"]["claims"]}
    assert claims.keys() == {"all mentions", "p.txt, masculine", "p.txt, feminine"}
    assert claims["all mentions"]["value"] == best["accuracy"]
    texts = {claim["text"] for claim in claims["all mentions"]["texts"]}
    assert texts == {0, 1, 2, 3}
    gold = [name for names in gold_names(tmp_path / "report" / "probe.html") for name in names]
    assert gold.count("all mentions") == 4 and len(gold) == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a.txt",), "a.txt has no trees by its name"),
        (("a.conllu", "--train", "a.txt"), "a.txt has no trees by its name"),
        (("a.conllu", "--untrained"), "needs --train"),
        (("a.conllu", "--train", "a.conllu"), "8 of 8 sentences to judge the probe on are among"),
        (("a.conllu", "--train", "train.conllu", "--penalty", "0"), "a penalty above 0"),
        (("a.txt", "--pronouns", "gap"), "column 'ID': no such column"),
        (("a.txt", "--pronouns", "gap", "--untrained"), "is not for --pronouns"),
        (("a.txt", "--pronouns", "gap", "--seed", "0"), "is not for --pronouns, only for the prob"),
        (("a.txt", "--pronouns", "gap", "--penalty", "1"), "is not for --pronouns"),
        (("a.conllu", "--structural"), "needs --train"),
        (("a.conllu", "--structural", "--load", "x"), "is another kind of probe"),
        (("a.conllu", "--structural", "--states"), "is another kind of probe"),
        (("a.conllu", "--states"), "needs --train"),
        (("a.conllu", "--train", "train.conllu", "--labels", "upos"), "only for --states"),
        (
            ("a.conllu", "--states", "--train", "train.conllu", "--labels", "tense"),
            "labels 'tense' are unknown",
        ),
        (
            ("a.conllu", "--states", "--train", "train.conllu", "--labels", "feats.Tense"),
            "has a label of feats.Tense",
        ),
        (("a.conllu", "--train", "train.conllu", "--rank", "2"), "only for --structural"),
        (
            ("a.conllu", "--structural", "--train", "train.conllu", "--layers", "0,x"),
            "not a list of",
        ),
        (("a.conllu", "--structural", "--train", "train.conllu", "--layers", "7"), "layer is 7, "),
        (("a.conllu", "--load", "absent"), "There is no probe file 'absent'"),
        (("a.conllu", "--load", "a.txt", "--train", "a.conllu"), "is not for --load"),
        (("a.txt", "--coreference"), "expected at least 6"),
        (("a.txt", "--pronouns", "magic"), "choose one of gap, winobias, winogender"),
        (("absent.conllu",), "there is no such file"),
        (("absent.conllu", "--on-error", "skip"), "no sentence has a relation to probe"),
    ],
)
def test_wrong_use(probe, tmp_path, words, message):
    code, _, error = probe(*words, "--model", "model")
    assert code == 2 and message in error, error
    assert len(error.splitlines()) <= 3 and not (tmp_path / "report").exists()


def tagged(source, path):
    """The same trees with a part of speech and a number that follow from the form."""
    lines = []
    for line in source.read_text(encoding="utf-8").splitlines():
        fields = line.split("\t")
        if len(fields) == 10 and fields[3] != "PUNCT":
            fields[3] = ("NOUN", "VERB")[len(fields[1]) > 1]
            fields[5] = "Number=" + ("Sing", "Plur")[ord(fields[1][0]) % 2]
        lines.append("\t".join(fields))
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


@pytest.mark.slow
def test_labels_in_hidden_states_and_a_probe_on_other_sentences(probe, folder, tmp_path):
    for name in ("a", "train"):
        tagged(folder / f"{name}.conllu", folder / f"tagged-{name}.conllu")
    words = ("tagged-a.conllu", "--model", "model", "--train", "tagged-train.conllu", "--states")
    code, printed, error = probe(*words, "--untrained", "--seed", 4)
    assert code == 0, error
    assert "upos in hidden states" in printed and "untrai" in printed
    out = tmp_path / "report"
    report = json.loads((out / "probe.json").read_text())
    found = report["states"]
    assert found["labels"] == ["NOUN", "PUNCT", "VERB"]
    assert [row["layer"] for row in found["layers"]] == [0, 1, 2]
    assert found["scores"]["accuracy"] > 0.8 and found["scores"]["untrained"] > 0.5
    assert report["settings"]["penalty"] == 0.01
    table = pq.read_table(out / "layers.parquet").to_pylist()
    assert table == found["layers"]
    assert (out / "probe.png").read_bytes().startswith(b"\x89PNG")
    (out / "probe.safetensors").rename(folder / "labels.safetensors")
    again = ("tagged-a.conllu", "--model", "model", "--load", "labels.safetensors", "--overwrite")
    code, printed, error = probe(*again, "--json")
    assert code == 0, error
    assert json.loads(printed)["scores"]["accuracy"] == found["scores"]["accuracy"]
    words = (*words, "--overwrite", "--labels")
    code, printed, error = probe(*words, "feats.Number", "--layers", "0,-1", "--penalty", 0.1)
    assert code == 0, error
    assert "feats.Number in hidden states" in printed
    found = json.loads((out / "probe.json").read_text())["states"]
    assert found["labels"] == ["Plur", "Sing"] and len(found["layers"]) == 2
    assert found["layers"][0]["untrained"] is None


@pytest.mark.slow
def test_trees_in_hidden_states_and_a_probe_on_other_sentences(probe, folder, tmp_path):
    words = ("a.conllu", "--model", "model", "--structural", "--train", "train.conllu")
    code, printed, error = probe(
        *words, "--layers", "0,-1", "--rank", 3, "--epochs", 2, "--seed", 4
    )
    assert code == 0, error
    assert "Trees in hidden states" in printed and "selectivity" in printed
    out = tmp_path / "report"
    report = json.loads((out / "probe.json").read_text())
    found = report["structural"]
    assert [row["layer"] for row in found["layers"]] == [0, 2] and found["untrained"] is None
    assert report["seed"] == 4 and report["settings"]["rank"] == 3
    assert report["data"][1]["files"][0]["sha256"] == sha256_of(folder / "train.conllu")
    table = pq.read_table(out / "layers.parquet").to_pylist()
    assert [(row["what"], row["layer"]) for row in table] == [
        ("probe", 0),
        ("probe", 2),
        ("chain", None),
        ("control", found["layer"]),
    ]
    assert table[0]["uuas"] == found["layers"][0]["uuas"]
    assert (out / "probe.png").read_bytes().startswith(b"\x89PNG")
    saved = load_probe(out / "probe.safetensors")
    assert saved.notes["structural"] == found and saved.probe.layer == found["layer"]
    (out / "probe.safetensors").rename(folder / "s.safetensors")
    code, printed, error = probe(
        "a.conllu", "--model", "model", "--load", "s.safetensors", "--json", "--overwrite"
    )
    assert code == 0, error
    report = json.loads(printed)
    assert report["scores"] == pytest.approx(found["scores"])
    assert report["probe"]["notes"]["model"] == "model"
    assert pq.read_table(out / "scores.parquet").to_pylist() == [report["scores"]]


@pytest.mark.slow
def test_whom_mentions_of_documents_mean(probe, folder, tmp_path):
    lines = ["#begin document (d)"]
    for place, said in enumerate(("(1)", "-", "(2)", "(1)", "-", "(2)")):
        tag = "PRP" if place == 3 else "NN"
        lines.append(f"d 0 {place} {FORMS[place]} {tag} * {said}")
    (folder / "d.conll").write_text("\n".join([*lines, "#end document", ""]), encoding="utf-8")
    code, said, error = probe("d.conll", "--model", "model", "--coreference")
    assert code == 0 and "Among all words" in said, error
    report = json.loads((tmp_path / "report" / "probe.json").read_text())
    assert report["texts"] == "documents"
    for part in ("groups", "among_all_words"):
        assert {one["group"]: one["mentions"] for one in report[part]} == {
            "": 2,
            "nominal": 1,
            "pronoun": 1,
        }
        assert report[part][0]["baselines"] == {"nearest": 0, "head word": 0, "rules": 0}
    table = pq.read_table(tmp_path / "report" / "heads.parquet").to_pylist()
    assert {row["candidates"] for row in table} == {"mentions", "words"}
    assert len(table) == 2 * 3 * 2 * 4
    assert [one["name"] for one in report["evidence"]["claims"]] == [
        "all mentions",
        "nominal",
        "pronoun",
    ]
    assert gold_names(tmp_path / "report" / "probe.html") == [
        ["all mentions", "nominal", "pronoun"]
    ]
    again = ("d.conll", "--model", "model", "--coreference", "--no-page", "--overwrite")
    assert probe(*again)[0] == 0
    assert not (tmp_path / "report" / "probe.html").exists()
