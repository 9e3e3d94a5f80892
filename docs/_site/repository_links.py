# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Links of documents that are read in the repository too, such as `../BENCHMARKS.md`.

There they lead to a file of the repository; on the site they lead to the page that shows it.
"""

import posixpath
import re

from sphinx.application import Sphinx

# Files at the top of the repository, and the pages of the site that include them.
PAGES = {
    "BENCHMARKS.md": "project/benchmarks.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "how-to/add-a-model.md",
    "README.md": "index.md",
}


def on_site(page: str, text: str) -> str:
    """Return the text of a page with links to files of the repository turned to pages.

    Args:
        page: Name of the page, without its ending, such as `start/install`.
        text: Its Markdown.

    Returns:
        The text with the links replaced.
    """
    up = "../" * (page.count("/") + 1)

    def replaced(link: re.Match[str]) -> str:
        target = posixpath.relpath(PAGES[link.group(1)], posixpath.dirname(page) or ".")
        return f"]({target}"

    names = "|".join(re.escape(name) for name in PAGES)
    return re.sub(rf"\]\({re.escape(up)}({names})(?=[#)])", replaced, text)


def _read(app: Sphinx, page: str, content: list[str]) -> None:
    content[0] = on_site(page, content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Rewrite pages as they are read."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
