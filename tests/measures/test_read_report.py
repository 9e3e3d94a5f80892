# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`fa.read_report` gives back what a command wrote, and refuses what it did not write."""

import json
import os
from pathlib import Path

import pytest

import flaxattn as fa
from flaxattn.commands.report_run import ReportRun
from flaxattn.errors import InputError
from flaxattn.files import json_digest
from flaxattn.reports.report import Report


@pytest.fixture
def report(tmp_path: Path) -> Path:
    run = ReportRun(tmp_path / "r", "stats", {"limit": 3})
    facts = {"texts": 2, "entropy": float("nan")}
    files = {"stats.html": b"<p>a</p>"}
    return run.save(Report("stats", facts, {"head": [0, 1]}, {}, files))[0]


def test_the_facts_are_those_that_were_written(report: Path) -> None:
    facts = fa.read_report(str(report))
    assert facts["texts"] == 2 and facts["entropy"] is None and facts["request"] == {"limit": 3}
    assert facts["flaxattn"] == fa.__version__ and "sha256" not in facts
    assert sorted(facts["files"]) == ["heads.parquet", "stats.html"]


@pytest.mark.parametrize("name", ["stats.json", "heads.parquet", "stats.html"])
def test_a_missing_or_changed_file_is_named(report: Path, name: str) -> None:
    file = report.with_name(name)
    whole = file.read_bytes()
    for content in (whole[:-4] + b" " + whole[-3:], whole[:7], b"", None):
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(InputError) as error:
            fa.read_report(report)
        lines = str(error.value).splitlines()
        assert lines[0] == f"{file} is missing or damaged: it is not what flaxattn wrote"
        assert len(lines) == 3 and "overwrite=True" in lines[2]


def test_a_report_names_no_file_outside_its_folder(report: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("mine")
    os.mkfifo(report.parent / "pipe")
    (report.parent / "link").symlink_to("/dev/zero")
    for name in ("../secret", str(tmp_path / "secret"), "pipe", "link", ""):
        facts = {"files": {name: "0"}}
        report.write_text(json.dumps({**facts, "sha256": json_digest(facts)}))
        with pytest.raises(InputError, match="missing or damaged"):
            fa.read_report(report)
    with pytest.raises(InputError, match="missing or damaged"):
        fa.read_report(report.parent / "pipe")


def test_a_store_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="is a store of attention, and a report is expected"):
        fa.read_report(tmp_path)
