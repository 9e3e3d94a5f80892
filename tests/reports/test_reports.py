# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every function that returns a report, from Python and from the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import flaxattn as fa
from flaxattn.corpus.sample_files import sample_treebank
from flaxattn.errors import InputError
from flaxattn.probes.structural_probe import Fitting
from flaxattn.reports.report import REPORT_FILES, Report, page_file

TEXTS = ["The cat is very sad.", "Because it could not find food.", "A dog sat."]

PROBE = ("probe", "treebank.conllu", "--train", "train.conllu")
PRONOUNS = (
    "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
    "1\tAnna saw Berta's dog and she smiled.\tshe\t25\tAnna\t0\tTRUE\tBerta\t9\tFALSE\tu\n"
)


def bert() -> Any:
    return fa.from_pretrained("tiny-bert")


def masked() -> Any:
    return fa.from_pretrained("tiny-bert", head="BertForMaskedLM")


def gpt2() -> Any:
    return fa.from_pretrained("tiny-gpt2")


def patched() -> Report:
    texts = {"king": ("lady", "girl"), "queen": ("girl", "lady"), "man": ("horse", "lady")}
    pattern = "the old {} and the {} were happy. the old {} and the"
    pairs = [
        fa.TextPair(
            *(pattern.format(who, one, who) for one in words), *words, source=f"pairs.csv:{line}"
        )
        for line, (who, words) in enumerate(texts.items(), start=2)
    ]
    rows = [",".join((p.clean, p.corrupted, p.answer, p.wrong or "")) for p in pairs]
    Path("pairs.csv").write_text("\n".join(("clean,corrupted,answer,wrong", *rows)) + "\n")
    return fa.patch_report(gpt2(), pairs, controls=2)


def correlated() -> Report:
    for seed in (0, 1):
        fa.circuits_report(gpt2(), drawings=2, seed=seed).save(f"CIRCUITS{seed}")
    return fa.heads_report(["CIRCUITS0", "CIRCUITS1"], columns=["*: copying"], draws=10)


def applied() -> Report:
    fa.label_report(bert(), "treebank.conllu", "train.conllu", layers=[2]).save("FITTED")
    return fa.applied_probe_report(bert(), "treebank.conllu", "FITTED/probe.safetensors")


REPORTS: dict[str, tuple[Callable[[], Report], tuple[str, ...]]] = {
    "compare": (
        lambda: fa.compare(bert(), bert(), TEXTS),
        ("compare", "tiny-bert", "tiny-bert", "texts.txt"),
    ),
    "weights": (
        lambda: fa.weights(masked(), TEXTS, kinds=("attention", "norm")),
        ("weights", "texts.txt", "--kinds", "attention,norm"),
    ),
    "roles": (
        lambda: fa.roles_report(bert(), TEXTS, drawings=0),
        ("roles", "texts.txt", "--drawings", "0"),
    ),
    "stats": (lambda: fa.stats_report(bert(), TEXTS), ("stats", "texts.txt")),
    "ablate": (
        lambda: fa.ablation_report(masked(), TEXTS, measures=["importance"]),
        ("ablate", "texts.txt", "--measure", "importance"),
    ),
    "patch": (patched, ("patch", "pairs.csv", "--controls", "2")),
    "faithfulness": (
        lambda: fa.faithfulness_report(masked(), TEXTS, kinds=("attention", "random"), steps=3),
        ("faithfulness", "texts.txt", "--kinds", "attention,random", "--steps", "3"),
    ),
    "circuits": (
        lambda: fa.circuits_report(gpt2(), drawings=2),
        ("circuits", "--drawings", "2"),
    ),
    "probe": (
        lambda: fa.probe_report(bert(), "treebank.conllu"),
        ("probe", "treebank.conllu"),
    ),
    "probe --structural": (
        lambda: fa.structural_report(
            bert(), "treebank.conllu", "train.conllu", [2], fitting=Fitting(epochs=2)
        ),
        (*PROBE, "--structural", "--layers", "2", "--epochs", "2"),
    ),
    "probe --states": (
        lambda: fa.label_report(bert(), "treebank.conllu", "train.conllu", layers=[2]),
        (*PROBE, "--states", "--layers", "2"),
    ),
    "probe --load": (applied, ("probe", "treebank.conllu", "--load", "FITTED/probe.safetensors")),
    "probe --pronouns": (
        lambda: fa.coreference_report(bert(), "pronouns.tsv", "gap"),
        ("probe", "pronouns.tsv", "--pronouns", "gap"),
    ),
    "heads": (
        correlated,
        ("heads", "CIRCUITS0", "CIRCUITS1", "--columns", "*: copying", "--draws", "10"),
    ),
}


@pytest.mark.few("compare", "weights", "roles", "structural", "load", "pronouns", "heads")
@pytest.mark.parametrize("name", REPORTS)
def test_a_report_from_python_is_that_of_the_command(
    name: str, typed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    sentences = sample_treebank(60).strip().split("\n\n")
    for file, some in (("treebank.conllu", sentences[:30]), ("train.conllu", sentences[30:])):
        Path(file).write_text("\n\n".join(some) + "\n\n", encoding="utf-8")
    Path("pronouns.tsv").write_text(PRONOUNS, encoding="utf-8")
    make, words = REPORTS[name]
    report = make()
    name = report.name
    written = report.save("python")
    assert typed(*words, "--out", "command")[0] == 0
    assert {path.name for path in written} <= set(REPORT_FILES[name])
    assert sorted(p.name for p in Path("command").iterdir()) == sorted(p.name for p in written)
    assert pq.read_table(Path("python", report.table_name)).to_pylist() == (
        pq.read_table(Path("command", report.table_name)).to_pylist()
    )
    ours, theirs = (fa.read_report(out) for out in ("python", "command"))
    for facts in (ours, theirs):
        facts.get("evidence", {}).pop("texts", None)  # which have other names
        for key in ("data", "request", "files", "settings"):
            facts.pop(key, None)
    assert ours == theirs


@pytest.fixture(scope="module")
def report() -> Report:
    return fa.stats_report(fa.from_pretrained("tiny-bert"), TEXTS, compared=0)


@pytest.mark.slow
def test_a_page_that_was_looked_at_is_saved_as_it_was(tmp_path: Path) -> None:
    def saved(folder: str, *, shown: bool) -> dict[str, bytes]:
        made = fa.roles_report(fa.from_pretrained("tiny-bert"), TEXTS, drawings=0)
        if shown:
            assert made._repr_html_() is not None
        return {path.name: path.read_bytes() for path in made.save(tmp_path / folder)}

    first, second = saved("first", shown=False), saved("second", shown=True)
    for name in ("examples.parquet", page_file("roles")):
        assert first[name] == second[name], name


def test_without_a_page_a_notebook_shows_the_table() -> None:
    made = fa.weights(fa.from_pretrained("tiny-bert"), TEXTS[:1], kinds=("attention",))
    html = made._repr_html_()
    assert made.page is None and html is not None and "<th>layer</th>" in html


def test_a_limit_cuts_labels_too() -> None:
    with pytest.warns(UserWarning, match="freshly initialised"):
        model = fa.from_pretrained("tiny-bert", "BertForSequenceClassification", num_labels=2)
    made = fa.ablation_report(
        model,
        TEXTS,
        labels=[0, 1, 0],
        measures=["importance"],
        reading=fa.ReadingOptions(limit=2),
    )
    assert made.facts["data"]["texts"] == 2


def test_a_report_shows_itself_in_a_line_and_in_a_notebook(report: Report) -> None:
    assert len(repr(report)) < 100 and f"{report.table.num_rows:,} rows" in repr(report)
    html = report._repr_html_()
    assert html is not None and html.startswith("<iframe") and "next" in html
    assert report.figure.axes


def test_a_saved_report_is_replaced_only_where_that_is_requested(
    report: Report, tmp_path: Path
) -> None:
    report.save(tmp_path)
    page = tmp_path / page_file("stats")
    assert page.is_file()
    with pytest.raises(InputError, match=r"holds a report already: stats\.json"):
        report.save(tmp_path)
    assert page_file("stats") not in {
        p.name for p in report.save(tmp_path, overwrite=True, page=False)
    }
    assert not page.exists(), "a stale page would show another report"


def test_traces_and_models_give_the_same_numbers() -> None:
    model = fa.from_pretrained("tiny-bert")
    traces = [model.trace(text) for text in TEXTS]
    read = fa.stats_report(traces, compared=0).result.moments
    run = fa.stats_report(model, TEXTS, compared=0).result.moments
    for name in ("next", "own", "entropy"):
        assert read["mean", name].mean == pytest.approx(run["mean", name].mean, abs=1e-5)
