# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`head_roles`, `head_stats` and `measure` say what the commands say, for every source and side."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import report_cases
from small_encoders import byte_level, unigram, write_encoder
from tokenizers import decoders

import flaxattn as fa
from flaxattn import cli
from flaxattn.errors import InputError
from flaxattn.measures.role_tests import facts
from flaxattn.measures.specs import ScoreSpec
from flaxattn.reports.report import finite

PLAIN = report_cases.TREES[0].split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("door")
    report_cases.write_inputs(folder)
    return folder


def reported(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[dict, list]:
    """JSON and table of heads of `flaxattn roles`."""
    monkeypatch.chdir(folder)
    assert (
        cli.main(
            ["roles", *words, "--out", "report", "--overwrite", "--no-page", "--drawings", "0"]
        )
        == 0
    )
    rows = pq.read_table(folder / "report/heads.parquet").to_pylist()
    return json.loads((folder / "report/roles.json").read_text(encoding="utf-8")), rows


def assert_same(roles: Any, reported: dict) -> None:
    for name, value in json.loads(json.dumps(finite(facts(roles)))).items():
        assert value == reported[name], name


DATES = ("dates.tsv", "--pair-column", "iso", "--model", "tiny-dates")
SOURCES = {
    "encoder": ("trees.conllu",),
    "decoder": ("trees.conllu", "--model", "tiny-gpt2", "--repeats", "0"),
    "cross": DATES,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "side", ["encoder", "decoder", pytest.param("cross", marks=pytest.mark.slow)]
)
def test_a_model_with_texts(side: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report, rows = reported(folder, monkeypatch, *SOURCES[side])
    model = fa.from_pretrained(
        {"encoder": "tiny-bert", "decoder": "tiny-gpt2"}.get(side, "tiny-dates")
    )
    texts = report_cases.DATES if side == "cross" else "trees.conllu"
    assert_same(fa.head_roles(model, texts), report)
    name = {"encoder": "local", "decoder": "induction", "cross": "diagonal"}[side]
    spec = ScoreSpec("score", name)
    moments = fa.measure(model, [" ".join(spec)], texts)[spec]
    means = [row["mean"] for row in rows if (row["kind"], row["name"]) == spec]
    np.testing.assert_allclose(moments.mean.ravel(), means, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("capture", ["weights", "statistics"])
def test_a_store(capture: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    words = report_cases.STORES[capture]
    assert cli.main(["extract", *words, "--out", capture]) == 0
    report, _ = reported(folder, monkeypatch, capture, "--trees", "trees.conllu")
    assert_same(fa.head_roles(folder / capture, trees=["trees.conllu"]), report)


SENTENCES = [
    [
        ("The", "det", 2, " "),
        ("cat’s", "nsubj", 3, " "),
        ("sad", "root", 0, ""),
        (".", "punct", 3, ""),
    ],
    [
        ("It", "nsubj", 3, ""),
        ("’s", "cop", 3, "  "),
        ("café🙂", "root", 0, " "),
        ("東京", "obj", 3, ""),
    ],
]


def write_trees(path: Path) -> list[str]:
    """Sentences with characters of several bytes, as CoNLL-U; their texts."""
    texts, lines = [], list[str]()
    for words in SENTENCES:
        texts.append("".join(form + space for form, _, _, space in words))
        lines.append(f"# text = {texts[-1]}")
        for number, (form, relation, governor, space) in enumerate(words, 1):
            notes = {"": "SpaceAfter=No", "  ": "SpacesAfter=\\s\\s"}.get(space, "_")
            columns = (number, form, "_", "NOUN", "_", "_", governor, relation, "_", notes)
            lines.append("\t".join(map(str, columns)))
        lines.append("")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return texts


@pytest.mark.float16
@pytest.mark.few("sequence")
@pytest.mark.parametrize("kind", ["byte-level", "sequence", "unigram"])
def test_trees_are_joined_to_stores_of_any_tokenizer(tmp_path: Path, kind: str) -> None:
    """Tokens that are parts of characters, or that show other letters than the text has."""
    tokenizer = unigram("<s>", "</s>") if kind == "unigram" else byte_level()
    if kind == "sequence":
        tokenizer.backend.decoder = decoders.Sequence([decoders.ByteLevel()])
    folder = write_encoder(
        tmp_path / "model", "Model", tokenizer, model_type="roberta", pad_token_id=tokenizer.pad_id
    )
    model, trees = fa.from_pretrained(folder), tmp_path / "trees.conllu"
    lines = tmp_path / "texts.txt"
    lines.write_text("\n".join(write_trees(trees)) + "\n", encoding="utf-8")
    fa.extract_to(tmp_path / "store", model, lines)
    specs = ["score governor(nsubj)", "mean next"]
    of_model = fa.measure(model, specs, trees)
    of_store = fa.measure(fa.open_store(tmp_path / "store"), specs, trees=str(trees))
    for spec, moments in of_model.items():
        assert int(moments.counts.max()) == 2
        np.testing.assert_array_equal(moments.counts, of_store[spec].counts)
        # Weights are stored as float16: half a unit of 2**-11 for each of at most 40 keys.
        np.testing.assert_allclose(moments.mean, of_store[spec].mean, atol=40 * 2**-12)


def test_a_trace_says_what_its_model_says(folder: Path) -> None:
    model = fa.from_pretrained("tiny-bert")
    text = " ".join(word.split("/")[0] for word in PLAIN)
    streamed = fa.head_stats(model, [text])
    traced = fa.head_stats(model.trace(text))
    for column, moments in streamed.moments.items():
        if column != ("strongest", "rare"):  # how often words occur is not known to a trace
            np.testing.assert_allclose(traced.moments[column].mean, moments.mean, atol=2e-4)
    assert (
        fa.head_roles(model.trace(text)).roles.keys() == fa.head_roles(model, [text]).roles.keys()
    )


def test_what_cannot_be_measured_is_reported() -> None:
    model = fa.from_pretrained("tiny-bert")
    trace = model.trace("a b")
    with pytest.raises(InputError, match="no text has a score 'score induction' on this side"):
        fa.measure(trace, ["score induction"])
    with pytest.raises(InputError, match="'next' is not a score"):
        fa.measure(trace, ["next"])
    with pytest.raises(InputError, match="did you mean the kind 'score'"):
        fa.measure(model, "scores local", ["a b"])
    with pytest.raises(InputError, match="no text has a score 'score nope'"):
        fa.measure(model, ["score nope"], ["a b"])
    with pytest.raises(InputError, match="specs is empty"):
        fa.measure(model, [], ["a b"])
    with pytest.raises(InputError, match="a model reads texts, and none were given"):
        fa.measure(model, ["mean next"])
    with pytest.raises(InputError, match="a trace holds its texts already"):
        fa.measure(trace, ["mean next"], ["a"])


@pytest.mark.slow
def test_only_what_a_score_needs_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    from flaxattn.measures import score_source

    captures, made = [], score_source.ModelRunner

    def runner(models: Any, program: Any, capture: Any, **options: Any) -> Any:
        captures.append(capture)
        return made(models, program, capture, **options)

    monkeypatch.setattr(score_source, "ModelRunner", runner)
    fa.measure(fa.from_pretrained("tiny-bert"), ["mean next", "mean sep"], ["a b c"])
    (capture,) = captures
    assert [getattr(item, "name", item) for item in capture.stats] == ["next", "received"]
