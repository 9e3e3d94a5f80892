# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Files of `assets/`: scripts of pages, and the style sheet whose colours figures have too."""

from importlib import resources


def read_asset(name: str) -> str:
    """Text of a file of `assets/`, such as `view.css`."""
    text = (resources.files("flaxattn.views") / "assets" / name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")
