# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn heads` puts reports of real commands side by side, as `fa.head_concordance` does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import flaxattn as fa

Typed = Callable[..., tuple[int, str, str]]

TEXT = "the old {0} and the {1} were happy . the old {0} and the"
WORDS = ("king", "lady", "girl", "horse")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    turned = [WORDS[n:] + WORDS[:n] for n in range(len(WORDS))]
    rows = [(TEXT.format(*w[:2]), TEXT.format(w[0], w[2]), *w[1:3]) for w in turned]
    lines = ["clean,corrupted,answer,wrong", *(",".join(row) for row in rows)]
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "texts.txt").write_text("".join(f"{row[0]}\n" for row in rows), encoding="utf-8")
    return folder


@pytest.fixture
def reports(folder: Path, run: Typed, capsys: pytest.CaptureFixture[str]) -> list[Path]:
    """Reports of three commands on one model, made once."""
    commands = {
        "roles": ("roles", "texts.txt", "--repeats", "0", "--drawings", "0", "--no-page"),
        "patch": ("patch", "pairs.csv", "--controls", "0", "--no-page"),
        "circuits": ("circuits",),
    }
    for name, words in commands.items():
        if not (folder / name).exists():
            code, _, err = run(*words, "--model", "tiny-gpt2", out=folder / name)
            assert code == 0, err
    capsys.readouterr()
    return [folder / name for name in commands]


@pytest.mark.slow
def test_reports_are_put_side_by_side(run: Typed, reports: list[Path], tmp_path: Path) -> None:
    code, out, err = run("heads", *reports, "--draws", "99", "--seed", "3")
    assert code == 0, err
    found = fa.head_concordance(reports, draws=99, seed=3)
    facts = fa.read_report(tmp_path / "report" / "heads.json")
    assert facts["columns"] == list(found.columns) and facts["heads"] == 24
    assert facts["model"] == "tiny-gpt2" and facts["side"] == "decoder" and facts["seed"] == 3
    assert [one["name"] for one in facts["data"]] == ["roles", "patch", "circuits"]
    for row, one in zip(facts["correlations"], found.rows(), strict=True):
        for name, value in one.items():
            assert row[name] == pytest.approx(value) or (row[name] is None and value != value)
    heads = pq.read_table(tmp_path / "report" / "heads.parquet").to_pylist()
    written = pq.read_table(reports[1] / "patch.parquet").to_pylist()
    effects = {(row["layer"], row["head"]): row["effect"] for row in written}
    assert len(heads) == 24 and heads[0]["side"] == "decoder"
    for row in heads:
        assert row["patch: activation"] == effects[row["layer"], row["head"]]
    pairs = pq.read_table(tmp_path / "report" / "correlations.parquet").to_pylist()
    assert pairs == facts["correlations"]
    induction = next(
        row
        for row in pairs
        if {row["first"], row["second"]} == {"roles: induction", "patch: activation"}
    )
    assert induction["spearman"] > 0.5 and induction["heads"] == 24
    assert "Agreement of reports on 24 heads of tiny-gpt2" in out
    assert f"left out, since they do not vary: {', '.join(found.left_out)}" in out
    assert max(map(len, out[: out.index("left out")].splitlines())) <= 80
    assert (tmp_path / "report" / "heads.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_columns_are_chosen_and_json_is_printed(run: Typed, reports: list[Path]) -> None:
    words = ("--columns", "patch:*", "--columns", "roles: induction", "--draws", "9", "--json")
    code, out, err = run("heads", *reports, *words)
    assert code == 0, err
    (row,) = json.loads(out)["correlations"]
    assert (row["first"], row["second"]) == ("roles: induction", "patch: activation")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Columns of two reports or more are compared; received one or none."),
        (("circuits", "--side", "encoder"), "Not all reports have encoder."),
        (("circuits", "--columns", "x*"), "No column matches 'x*'."),
        (("circuits", "--correction", "fdr"), "Expected draws of 1 or more and a correction of no"),
        (("absent",), "absent is missing or damaged: it is not what flaxattn wrote"),
        (("other",), "other is of the model tiny-bert; patch is of tiny-gpt2."),
    ],
)
def test_what_cannot_be_compared_is_refused(
    words: tuple[str, ...],
    message: str,
    run: Typed,
    reports: list[Path],
    folder: Path,
    tmp_path: Path,
) -> None:
    del reports
    if "other" in words and not (folder / "other").exists():
        assert run("circuits", "--model", "tiny-bert", out=folder / "other")[0] == 0
    code, _, err = run("heads", "patch", *words)
    assert code == 2 and message in err
    assert len(err[err.index("error: ") :].strip().splitlines()) <= 3
    assert not (tmp_path / "report").exists()


@pytest.mark.slow
def test_reports_of_ablation_name_the_side(run: Typed, folder: Path, tmp_path: Path) -> None:
    words: Any = ("ablate", "texts.txt", "--limit", "2", "--model", "tiny-gpt2", "--no-page")
    code, _, err = run(*words, "--measure", "importance", out="worth")
    assert code == 0, err
    rows = pq.read_table(tmp_path / "worth" / "ablate.parquet").to_pylist()
    assert {row["side"] for row in rows} == {"decoder"} and len(rows) == 24
    assert fa.read_report(tmp_path / "worth" / "ablate.json")["model"] == "tiny-gpt2"
