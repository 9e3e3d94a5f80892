# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Other people's text made harmless where it could act: file names, table cells, terminals.

Pages escape what they show themselves (`flaxattn.views`).
"""

import hashlib
import re
import unicodedata

_LONGEST = 60
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # the direction of text


def safe_name(name: str) -> str:
    """A file name for any string, the same on every system."""
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)
    kept = re.sub(r"\.{2,}", ".", kept)[:_LONGEST].strip(".-")
    if kept == name and kept.split(".")[0].upper() not in _reserved():
        return kept
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{kept.replace('.', '_') or 'text'}-{digest}"


def _reserved() -> set[str]:
    """Names that are devices on Windows."""
    ports = {f"{port}{n}" for port in ("COM", "LPT") for n in range(10)}
    return {"CON", "PRN", "AUX", "NUL", "", *ports}


def csv_cell(text: str) -> str:
    """Text that a spreadsheet shows instead of computing."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def printable(text: str) -> str:
    r"""Text that a terminal shows instead of obeying."""

    def escaped(character: str) -> str:
        obeyed = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        if obeyed or _TURNING.match(character):
            return character.encode("unicode_escape").decode()
        return character

    return "".join(map(escaped, text))
