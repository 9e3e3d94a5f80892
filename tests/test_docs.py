# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What the documents show works: code blocks run, commands exist, links lead somewhere."""

import doctest
import importlib
import importlib.util
import itertools
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), ROOT / "tests/QUARANTINE.md"]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
LANGUAGES = {"python", "sh", "text", "toml", "yaml", "json"}
# First words of a shell line that are neither ours nor make's; nothing else may be shown.
SYSTEM = {"cd", "git", "pip", "source", "pre-commit", "pytest", "python"}

GROUPS = {"search", "store", "tokenizer", "train"}  # commands that have commands


class Block(NamedTuple):
    """A fenced block: the document, its line, the language after the fence and the text."""

    document: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def blocks(path: Path) -> Iterator[Block]:
    text = path.read_text(encoding="utf-8")
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(path.name, line, match.group(1), match.group(2))


BLOCKS = [block for path in DOCUMENTS for block in blocks(path)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
COMMANDS = [
    (block, shlex.split(line, comments=True))
    for block in BLOCKS
    if block.language == "sh"
    for line in block.text.replace("\\\n", " ").splitlines()
    if line.strip() and not line.lstrip().startswith("#")
]


def test_every_block_names_a_language_that_is_checked() -> None:
    assert not [str(block) for block in BLOCKS if block.language not in LANGUAGES]
    assert [block for block in PYTHON if block.document == "README.md"]


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_block_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "block.py"
    script.write_text(block.text, encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(script), run_name="__main__")


def test_examples_in_docstrings_run(sources: dict[str, Path]) -> None:
    shown = [name for name, path in sources.items() if ">>> " in path.read_text(encoding="utf-8")]
    for name in shown:
        result = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
        assert result.attempted and not result.failed, name
    assert "flaxattn.kernels.attention" in shown


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=lambda value: str(value))
def test_shell_command_exists(block: Block, command: list[str]) -> None:
    first, *rest = itertools.dropwhile(re.compile(r"[A-Z_]+=").match, command)
    if first == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for target in (word for word in rest if "=" not in word):
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), f"{block}: {target}"
    elif first == "flaxattn":
        check_flaxattn(rest, str(block))
    elif first.startswith("."):
        assert os.access(ROOT / first, os.X_OK), f"{block}: {first}"
    else:
        assert first in SYSTEM, f"{block}: {first}"
        for script in (word for word in rest if word.endswith(".py")):
            assert (ROOT / script).is_file(), f"{block}: {script}"
        if first == "python" and rest[0] == "-m":
            assert importlib.util.find_spec(rest[1]), f"{block}: {rest[1]}"


def check_flaxattn(arguments: list[str], where: str) -> None:
    """The help of the command knows every option that is shown."""
    words = arguments[: 2 if arguments[0] in GROUPS else 1]
    verb = [word for word in words if not word.startswith("-")]
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    run = subprocess.run(
        [Path(sys.executable).parent / "flaxattn", *verb, "--help"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, f"{where}: flaxattn {verb}: {run.stderr}"
    for option in (word.split("=")[0] for word in arguments if word.startswith("-")):
        assert re.search(rf"(?<!\S){option}\b", run.stdout), f"{where}: {option}"


def anchors(path: Path) -> set[str]:
    """The fragment names of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="(.+?)"', text):
        if re.match(r"[a-z]+:", target):
            assert target.startswith("https://"), f"{path.name}: {target}"
            continue
        name, _, fragment = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), f"{path.name}: {target}"
        assert not fragment or fragment in anchors(file), f"{path.name}: {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_named_in_code_spans_exist(path: Path) -> None:
    spans = re.findall(
        r"`([\w./-]+/[\w.-]+\.(?:py|md|js|css|toml|npz|yaml|png))`", path.read_text()
    )
    missing = [name for name in spans if not list(ROOT.glob(f"**/{name.lstrip('./')}"))]
    assert not missing


def test_the_changelog_knows_this_version() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["dynamic"] == ["version"]
    text = (ROOT / "flaxattn/__init__.py").read_text(encoding="utf-8")
    version = re.findall(r'^__version__ = "(.+)"$', text, flags=re.MULTILINE)[0]
    first = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[
        0
    ]
    assert first == "Unreleased" or ("dev" not in version and first == version)
