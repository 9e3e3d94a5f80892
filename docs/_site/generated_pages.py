# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reference pages, written before Sphinx reads the sources: the API and the commands.

They lie in `docs/reference`, which git ignores. A page is written only when it changed, so that a
second build reads nothing twice.
"""

import shutil
from pathlib import Path

from sphinx.application import Sphinx

from _site import api_pages, command_pages


def write_pages(folder: Path, pages: dict[str, str]) -> None:
    """Make a folder hold these pages and no other.

    Args:
        folder: The folder, made if it is absent.
        pages: Text by file name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name not in pages:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _generate(app: Sphinx) -> None:
    reference = Path(app.srcdir) / "reference"
    write_pages(reference / "api", api_pages.pages())
    write_pages(reference / "commands", command_pages.pages())


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the pages once Sphinx knows its folders."""
    app.connect("builder-inited", _generate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
