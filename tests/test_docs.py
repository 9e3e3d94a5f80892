# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What the documents show works: code blocks run, commands exist, links lead somewhere."""

import re
import runpy
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_blocks import Block, blocks, check_command, commands

ROOT = Path(__file__).resolve().parent.parent
# Pages of results are read in the repository, too; tests/docs has the other pages of the site.
RESULTS = sorted(set(ROOT.glob("docs/*.md")) - {ROOT / "docs/index.md"})
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *RESULTS, ROOT / "tests/QUARANTINE.md"]
LANGUAGES = {"python", "sh", "text", "toml", "yaml", "json"}


BLOCKS = [block for path in DOCUMENTS for block in blocks(path)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
ALONE = [block for block in PYTHON if block.document not in {path.name for path in RESULTS}]
SLOW = "<!-- tests: slow -->"
FOLDERS = ("flaxattn", "kernels", "train", "benchmarks", "docs", "examples", "tests", "typings")
FILES = [f"/{path.relative_to(ROOT)}" for name in FOLDERS for path in (ROOT / name).rglob("*")]
FILES += [f"/{path.name}" for path in ROOT.iterdir()]
COMMANDS = [
    (block, command) for block in BLOCKS if block.language == "sh" for command in commands(block)
]


def test_every_block_names_a_language_that_is_checked() -> None:
    assert not [str(block) for block in BLOCKS if block.language not in LANGUAGES]
    assert [block for block in PYTHON if block.document == "README.md"]


@pytest.mark.parametrize("block", ALONE, ids=str)
def test_python_block_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "block.py"
    script.write_text(block.text, encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(script), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=page.stem, marks=[pytest.mark.slow] if SLOW in page.read_text() else []
        )
        for page in RESULTS
        if any(block.language == "python" for block in blocks(page))
    ],
)
def test_python_blocks_of_results_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            text = "\n" * block.line + block.text  # tracebacks name the line of the page
            exec(compile(text, block.document, "exec"), names)


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=lambda value: str(value))
def test_shell_command_exists(block: Block, command: list[str]) -> None:
    check_command(command, str(block))


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
    ends = [f"/{name.lstrip('./')}" for name in spans]
    assert not [end for end in ends if not any(file.endswith(end) for file in FILES)]


def test_the_changelog_knows_this_version() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["dynamic"] == ["version"]
    text = (ROOT / "flaxattn/__init__.py").read_text(encoding="utf-8")
    version = re.findall(r'^__version__ = "(.+)"$', text, flags=re.MULTILINE)[0]
    first = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)[
        0
    ]
    assert first == "Unreleased" or ("dev" not in version and first == version)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
