# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Notebooks run from top to bottom without a network, and the files keep what a run printed.

Every notebook of `docs/tutorials` and `examples` is checked; none is named here.
"""

import ast
import importlib.util
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
LARGEST = 4e6  # bytes of a file
MEASURED = re.compile(r"\d+\.\d+|\d+ ?%")


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("run_notebooks", DOCS / "run_notebooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()
PATHS = SCRIPT.notebooks()


def cells_of(path: Path, kind: str) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_there_are_notebooks() -> None:
    assert PATHS


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    for cell in cells_of(path, "markdown"):
        for target in re.findall(r"\]\(([^)\s]+)\)", source(cell)):
            assert target.startswith("https://") or (path.parent / target).exists(), target


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_first_cell_installs_the_library_where_it_is_missing(path: Path) -> None:
    first = json.loads(path.read_text(encoding="utf-8"))["cells"][0]
    assert first["cell_type"] == "code" and source(first) == SCRIPT.INSTALL
    assert not any("%%capture" in source(cell) for cell in cells_of(path, "code")), "hides errors"
    installs = [cell for cell in cells_of(path, "code") if "pip install" in source(cell)]
    assert len(installs) == 1


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_outputs_are_kept_and_show_no_failure(path: Path) -> None:
    cells = cells_of(path, "code")
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in outputs), "no figure"
    for output in outputs:
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr", "".join(output["text"])
    assert path.stat().st_size < LARGEST
    text = path.read_text(encoding="utf-8")
    for trace in ("/home/", "/root/", "/work/", "/tmp/", "site-packages"):
        assert trace not in text, f"{trace} is a path of a machine"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_prose_quotes_no_measured_number(path: Path) -> None:
    """Numbers with a fraction, and percentages, come out of cells."""
    prose = "\n".join(
        re.sub(r"`[^`]*`|\]\([^)]*\)", "", source(c)) for c in cells_of(path, "markdown")
    )
    assert MEASURED.findall(prose) == []


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_cells_are_python_with_public_names_that_exist(path: Path) -> None:
    import flaxattn as fa

    for cell in cells_of(path, "code")[1:]:
        tree = ast.parse(re.sub(r"^[%!].*$", "", source(cell), flags=re.MULTILINE))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert node.value.id != "fa" or node.attr in fa.__all__, node.attr


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path) -> None:
    start = time.monotonic()
    notebook = SCRIPT.executed(path)
    assert time.monotonic() - start < SCRIPT.SECONDS
    kept = [len(cell["outputs"]) > 0 for cell in cells_of(path, "code")]
    again = [len(cell.outputs) > 0 for cell in notebook.cells if cell.cell_type == "code"]
    assert again == kept, "the same cells have outputs"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("scoring heads: 364, 116.2/s", True),
        ("training: 60 of 60 steps, loss 0.001, done", True),
        ("extracting: 3 s so far", True),
        ("UserWarning: the text is long", False),
        ("Error: 3 texts are bad", False),
    ],
)
def test_progress_is_no_warning(line: str, expected: bool) -> None:
    import nbformat

    output = nbformat.v4.new_output("stream", name="stderr", text=f"{line}\n")
    assert SCRIPT._is_progress(output) == expected


@pytest.mark.slow
def test_a_run_keeps_outputs_and_leaves_the_file_alone(tmp_path: Path) -> None:
    import nbformat

    draw = "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2])"
    cells = [nbformat.v4.new_code_cell(text) for text in ("a = 6 * 7", "a", "print('é')", draw)]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "a.ipynb")
    before = (tmp_path / "a.ipynb").read_bytes()
    notebook = SCRIPT.executed(tmp_path / "a.ipynb")
    assert (tmp_path / "a.ipynb").read_bytes() == before
    first, second, third, fourth = notebook.cells
    assert first.outputs == [] and second.outputs[0].data["text/plain"] == "42"
    assert third.outputs[0].text == "é\n"
    assert [cell.id for cell in notebook.cells] == ["cell-0", "cell-1", "cell-2", "cell-3"]
    assert "image/png" in fourth.outputs[0].data, "figures are shown, although tests draw none"
    assert sys.version.split()[0] not in str(notebook.metadata)
