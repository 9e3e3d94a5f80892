# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reports do not overwrite each other: a folder per command, and refusal of another run's."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from flaxattn.commands import report_run
from flaxattn.commands.report_run import ReportRun
from flaxattn.errors import InputError
from flaxattn.reports.report import REPORT_FILES, Report

COMMANDS = ("ablate", "compare", "probe", "roles", "stats", "weights")


def folder_of(path: Path, command: str, overwrite: bool = False, **options: Any) -> ReportRun:
    return ReportRun(path, command, options, overwrite)


def write(folder: ReportRun, **beside: bytes) -> list[Path]:
    names = {name.replace("_", "."): content for name, content in beside.items()}
    return folder.save(Report(folder.command, {"seed": 0}, {"head": [0]}, {}, names))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_folder_of_its_own(typed, command):
    code, out, _ = typed(command, "--help")
    words = "".join(out.split())
    assert code == 0 and f"report-{command}" in words and "--overwrite" in words


@pytest.mark.parametrize("first", COMMANDS)
@pytest.mark.parametrize("second", COMMANDS)
def test_no_command_replaces_the_report_of_another(tmp_path, first, second):
    written = write(folder_of(tmp_path / "r", first, tau=3))
    before = {path: path.read_bytes() for path in written}
    if first == second:
        assert write(folder_of(tmp_path / "r", second, tau=3)) == written
        return
    with pytest.raises(InputError) as refused:
        write(folder_of(tmp_path / "r", second, tau=3))
    lines = str(refused.value).splitlines()
    assert len(lines) == 3 and f"{first}.json of flaxattn {first}" in lines[0]
    assert "--out" in lines[2] and "--overwrite" in lines[2]
    assert {path: path.read_bytes() for path in written} == before


def test_another_run_of_the_same_command_is_refused_and_the_option_is_named(tmp_path):
    write(folder_of(tmp_path, "roles", tau=3.0, pande_parity=False))
    with pytest.raises(InputError, match=r"of another run, in which --pande-parity differs"):
        folder_of(tmp_path, "roles", tau=3.0, pande_parity=True).check()
    other = [{"name": "a.txt", "sha256": "0"}]
    with pytest.raises(InputError, match=r"of another run, in which INPUTS differs"):
        folder_of(tmp_path, "roles", tau=3.0, pande_parity=False, inputs=other).check()


def test_standard_input_is_never_the_same(tmp_path):
    write(folder_of(tmp_path, "stats", inputs=["-"]))
    with pytest.raises(InputError, match="whose standard input is not known"):
        folder_of(tmp_path, "stats", inputs=["-"]).check()


def test_a_report_without_a_request_and_a_damaged_one_are_reports_too(tmp_path):
    (tmp_path / "stats.json").write_text('{"flaxattn": "0.1"}', encoding="utf-8")
    with pytest.raises(InputError, match="of a run whose options are unknown"):
        folder_of(tmp_path, "stats").check()
    (tmp_path / "stats.json").write_text('{"flaxattn": "0.', encoding="utf-8")
    with pytest.raises(InputError, match="of a run whose options are unknown"):
        folder_of(tmp_path, "stats").check()
    (tmp_path / "stats.json").write_text('{"mine": 1}', encoding="utf-8")
    folder_of(tmp_path, "stats").check()


def test_overwrite_leaves_no_file_of_the_report_that_it_replaces(tmp_path):
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    write(folder_of(tmp_path, "stats"), stats_html=b"page", evidence_parquet=b"1")
    write(folder_of(tmp_path, "roles", overwrite=True), evidence_parquet=b"2")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"roles.json", "heads.parquet", "evidence.parquet", "notes.txt"}
    assert (tmp_path / "evidence.parquet").read_bytes() == b"2"


def test_digests_tell_inputs_apart(tmp_path):
    text, model = tmp_path / "a.txt", tmp_path / "model"
    text.write_text("a\n", encoding="utf-8")
    model.mkdir()
    (model / "config.json").write_text("{}", encoding="utf-8")
    one = report_run._identity([str(text), model, "tiny-bert", None])
    assert one[2:] == ["tiny-bert", None]
    (model / "config.json").write_text("{ }", encoding="utf-8")
    other = report_run._identity([str(text), model, "tiny-bert", None])
    assert one[0] == other[0] and one[1] != other[1]
    assert json.loads(json.dumps(one)) == one


def test_a_folder_is_refused_before_work_starts(typed, tmp_path, monkeypatch):
    text = tmp_path / "a.txt"
    text.write_text("A cat sat.\n", encoding="utf-8")
    words = ("weights", text, "--kinds", "attention", "--out", tmp_path / "r")
    assert typed(*words)[0] == 0
    assert typed(*words)[0] == 0, "the same run again"
    facts = json.loads((tmp_path / "r" / "weights.json").read_text(encoding="utf-8"))
    assert facts["request"]["inputs"][0]["name"] == "a.txt"

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("work started")

    monkeypatch.setattr("flaxattn.pretrained.from_pretrained.from_pretrained", never)
    monkeypatch.setattr("flaxattn.commands.text_corpus.read_corpus", never)
    for command in ("weights", "ablate", "stats", "roles"):
        code, _, error = typed(command, text, "--limit", 1, "--out", tmp_path / "r")
        assert code == 2 and len(error.splitlines()) == 3 and "weights.json" in error
    text.write_text("Two cats sat.\n", encoding="utf-8")
    code, _, error = typed(*words)
    assert code == 2 and "in which INPUTS differs" in error


@pytest.mark.parametrize("damage", [b"", b"PAR1", None])
def test_the_report_of_the_same_run_is_read_with_all_of_its_files(tmp_path, damage):
    table = write(folder_of(tmp_path, "stats", tau=3))[1]
    folder_of(tmp_path, "stats", tau=3).check()
    table.unlink() if damage is None else table.write_bytes(damage)
    with pytest.raises(InputError) as refused:
        folder_of(tmp_path, "stats", tau=3).check()
    first, second, third = str(refused.value).splitlines()
    assert first.endswith("stats.json of a run whose options are unknown")
    assert second == f"{table} is missing or damaged: it is not what flaxattn wrote"
    assert third.endswith("replace that report with --overwrite")
    folder_of(tmp_path, "stats", overwrite=True, tau=3).check()


@pytest.mark.slow
def test_names_of_report_files_stand_in_one_place(repository):
    names = {name for files in REPORT_FILES.values() for name in files}
    folders = (repository / "flaxattn" / name for name in ("commands", "reports"))
    for path in (path for folder in folders for path in folder.glob("*.py")):
        if path.name not in ("report.py", "demo.py"):  # the latter writes no report
            tree = ast.parse(path.read_text(encoding="utf-8"))
            words = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
            assert not words & names, path.name
