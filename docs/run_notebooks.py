# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Run notebooks from top to bottom and keep their outputs in the files.

    python docs/run_notebooks.py docs/tutorials/gpt2_attends.ipynb

Without names, every notebook of `docs/tutorials` and `examples` is run. `tests/test_notebooks.py`
runs the same notebooks with `executed` and checks what lies in the files.
"""

import argparse
import os
import re
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("docs/tutorials", "examples")
SECONDS = 300  # for a whole notebook on two cores
INSTALL = """\
# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
# Install the library where it is missing, as on a hosted notebook.
import importlib.util

if importlib.util.find_spec("flaxattn") is None:
    %pip install -q flaxattn"""
"""The first cell of every notebook."""
ENVIRONMENT = {
    **{"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1", "NO_COLOR": "1", "XLA_FLAGS": ""},
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}
"""Environment of the kernel, whoever starts it: nothing is downloaded, the devices are those of the
machine, and figures are shown."""
PROGRESS = re.compile(r"\w[\w ]*: ([\d,]+ of )?[\d,]+( \w+)?, .*|\w[\w ]*: .* so far.*|\s*")
"""A line of progress, which only a slow machine prints."""


def notebooks() -> list[Path]:
    """All notebooks, in order."""
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.ipynb"))]


def executed(path: Path) -> Any:
    """Return a notebook with the outputs of a run in an empty folder.

    Args:
        path: The notebook, which is not changed.

    Raises:
        CellExecutionError: If a cell fails.
        CellTimeoutError: If a cell takes longer than `SECONDS`.
    """
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # of Jupyter's own
        import nbformat
        from nbclient import NotebookClient

        notebook = nbformat.read(path, 4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(notebook, timeout=SECONDS, resources=resources, record_timing=False)
        client.execute(env={**os.environ, **ENVIRONMENT})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if not _is_progress(one)]
    return tidied(notebook)


def _is_progress(output: Any) -> bool:
    """Return whether an output is progress of a long call, and nothing else."""
    lines = output.get("text", "").splitlines()
    return output.get("name") == "stderr" and all(PROGRESS.fullmatch(line) for line in lines)


def tidied(notebook: Any) -> Any:
    """Drop what differs from machine to machine: versions, names of cells, settings of editors.

    Args:
        notebook: Changed in place.
    """
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook.metadata = type(notebook.metadata)(
        kernelspec=kernel, language_info={"name": "python", "file_extension": ".py"}
    )
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", type(cell.metadata)()
    return notebook


def main() -> None:
    """Run the notebooks that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("paths", type=Path, nargs="*", help="notebooks; default all")
    for path in parser.parse_args().paths or notebooks():
        import nbformat

        start = time.perf_counter()
        nbformat.write(executed(path), path)
        size = path.stat().st_size / 1e6
        print(f"{path}: {time.perf_counter() - start:.0f} s, {size:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
