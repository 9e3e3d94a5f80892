# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every block of the README and of the site's pages runs, in order, in a folder of its page.

The Python blocks of a page share a namespace. A page with the line `<!-- tests: slow -->` is left
to `make all`. Training is a process of its own, as tests compute with strict dtypes. Pages of
results are in `tests/test_docs.py`; those of the reference are made of what other tests run.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_blocks import ROOT, Block, blocks, check_command, commands

from flaxattn import cli

DOCS = ROOT / "docs"
SLOW = "<!-- tests: slow -->"
LANGUAGES = {"python", "sh", "text"}
PAGES = [
    ROOT / "README.md",
    DOCS / "index.md",
    *(page for page in sorted(DOCS.glob("*/*.md")) if page.parent.name != "reference"),
]


def is_slow(page: Path) -> bool:
    return SLOW in page.read_text(encoding="utf-8")


def run_command(words: list[str], where: str) -> None:
    """Run a command of ours; others are only checked to exist."""
    check_command(words, where)
    if words[0] == "cd":
        os.chdir(words[1])
    if words[0] != "flaxattn" or words[1] == "doctor":
        return
    if words[1] != "train":
        assert cli.main(words[1:]) == 0, f"{where}: {words}"
        return
    environment = {**os.environ, "XLA_FLAGS": ""}
    program = [sys.executable, "-m", *words]
    run = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{where}: {words}\n{run.stdout}\n{run.stderr}"


def run_block(block: Block, names: dict[str, Any]) -> None:
    if block.language == "python":
        text = "\n" * block.line + block.text  # tracebacks name the line of the page
        program = compile(text, block.document, "exec")
        if block.runs:
            exec(program, names)
    elif block.language == "sh":
        for words in commands(block):
            if block.runs:
                run_command(words, str(block))
            else:
                check_command(words, str(block))


@pytest.mark.few("index", "first-page")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if is_slow(page) else [])
        for page in PAGES
    ],
)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        assert block.language in LANGUAGES, str(block)
        run_block(block, names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_are_relative_or_https(page: Path) -> None:
    """Sphinx follows those between pages as it builds; nothing is fetched."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        assert re.fullmatch(r"https://[\w.-]+(/\S*)?|(?!/)[\w./#-]+", target), target
