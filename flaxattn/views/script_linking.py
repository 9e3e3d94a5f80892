# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Joins the ES modules of `assets/` into one classic script that may stand in a page.

A module imports by `import { a, b } from "./x.js";` and exports by `export` before a declaration,
each at the start of a line. Nothing else of the language is looked at: it is no bundler.
"""

import re
from collections.abc import Callable

_IMPORT = re.compile(r'^import \{([^{}]*)\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_DECLARED = re.compile(
    r"^(export )?(?:async )?(?:function\*?|class|const|let|var) (\w+)", re.MULTILINE
)
_LEFT = re.compile(r"^(?:import|export)\b.*|^(?:const|let|var) [\[{].*", re.MULTILINE)
_BLOCK = re.compile(r"^[ \t]*/\*.*?\*/\n", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^[ \t]*//.*\n", re.MULTILINE)


def link(entry: str, read: Callable[[str], str]) -> str:
    """One strict script with everything that a module needs, each module after those it imports.

    Whole lines of comment and indentation are left out. All top-level names share one scope, so
    each may be declared once only, exported or not.
    """
    order: dict[str, str] = {}
    exports: dict[str, set[str]] = {}
    homes: dict[str, str] = {}

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise ValueError(f"{' imports '.join((*path, name))}: modules import in a circle.")
        if name in order:
            return
        text = _text(name, path, read)
        for names, other in _IMPORT.findall(text):
            visit(other, (*path, name))
            _check_imported(name, names, other, exports[other])
        body = _IMPORT.sub("", text)
        exports[name] = {found for export, found in _DECLARED.findall(body) if export}
        for _, found in _DECLARED.findall(body):
            if found in homes:
                raise ValueError(f"{name} declares {found}, which {homes[found]} declares too.")
            homes[found] = name
        order[name] = _plain(name, body)

    visit(entry, ())
    return '"use strict";\n' + "\n".join(order.values())


def _text(name: str, path: tuple[str, ...], read: Callable[[str], str]) -> str:
    try:
        return read(name).replace("\r\n", "\n")
    except FileNotFoundError:
        raise ValueError(
            f"{path[-1] if path else 'A page'} imports {name}: no such file."
        ) from None


def _check_imported(name: str, names: str, other: str, exported: set[str]) -> None:
    for wanted in filter(None, (part.strip() for part in names.split(","))):
        if wanted not in exported:
            raise ValueError(f"{name} imports {wanted} from {other}, which does not export it.")


def _plain(name: str, body: str) -> str:
    """A module without comments, and without the word `export`."""
    text = _LINE.sub("", _BLOCK.sub("", body))
    text = re.sub(r"^export (?=(?:async )?(?:function|class|const|let)\b)", "", text, flags=re.M)
    left = _LEFT.search(text)
    if left:
        raise ValueError(f"{name}: {left[0]!r} is not understood here.")
    return re.sub(r"^[ \t]+", "", text.strip("\n"), flags=re.M) + "\n"
