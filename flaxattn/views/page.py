# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One self-contained, offline HTML file: assets and a payload in, a `Page` out.

It knows nothing of attention. Scripts are linked into one; a payload reaches the browser only as
escaped JSON, and a content security policy forbids everything else.
"""

import base64
import dataclasses
import hashlib
import html
import json
import os
import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from flaxattn.errors import InputError
from flaxattn.files import readable_size, write_text
from flaxattn.views.payloads.page_encoding import (
    decompressed,
    pack,
    read_asset,
    script_json,
    visible,
)

_PICTURES = (".pdf", ".png", ".svg", ".jpg", ".jpeg", ".webp", ".ps")
_PAYLOAD = re.compile(r'(?<=class="flaxattn-payload">)(.*?)(?=</script>)')

LIST_STYLE = "texts.css"
"""The style sheet of the list of texts, which no other page has."""


@dataclasses.dataclass(frozen=True, repr=False)
class Page:
    """A view as one HTML file. It shows itself in a notebook.

    Attributes:
        title: Title of the document.
        html: The complete document; needs no network and no other file.
        summary: What the page holds, in a few words.
        height: Height in CSS pixels that it takes in a notebook.
    """

    title: str
    html: str
    summary: str
    height: int = 600

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page. A file of that name is replaced at once, or left as it is on an error."""
        if Path(path).suffix.lower() in _PICTURES:
            raise InputError(
                f"A page is HTML, and {str(path)!r} names another format.\n"
                "Name it page.html, or call fa.plot_heads(trace).savefig(…) for a figure."
            )
        return write_text(path, self.html, "a page")

    def decompressed(self) -> "Page":
        """A larger page without compression, for browsers from before 2023."""
        start, payload, end = _PAYLOAD.split(self.html, maxsplit=1)
        plain = script_json(decompressed(json.loads(payload)))
        return dataclasses.replace(self, html=f"{start}{plain}{end}")

    def _repr_html_(self) -> str:
        """The page in a frame of its own: no script, style or id can clash with the notebook's."""
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{self.height}px;border:0;resize:vertical" '
            f'srcdoc="{html.escape(self.html)}"></iframe>'
        )

    __html__ = _repr_html_

    def __repr__(self) -> str:
        return f"Page({self.summary}, {readable_size(len(self.html))})"


def build_page(
    payload: Mapping[str, Any],
    *,
    title: str,
    summary: str,
    height: int,
    entry: str = "main.js",
) -> Page:
    """Wrap a payload into a page."""
    packed = {**payload, **pack(payload.get("blocks", {}))}
    script, style = link(entry, read_asset), _style()
    parts = {
        "title": html.escape(visible(title)),
        "payload": script_json(packed),
        "script": script,
        "style": style,
        "script_hash": text_hash(script),
        "style_hash": text_hash(style),
    }
    document = re.sub(r"@\{(\w+)\}", lambda match: parts[match[1]], read_asset("page.html"))
    return Page(title=title, html=document, summary=summary, height=height)


def add_data(document: str, name: str, data: Mapping[str, Any]) -> str:
    """A page with more data beside its payload, which its script finds by a class."""
    body, _, end = document.rpartition("</body>")
    script = f'<script type="application/json" class="flaxattn-{name}">{script_json(data)}</script>'
    return f"{body}{script}\n</body>{end}"


def _style() -> str:
    """All style sheets of pages without notes and blanks, `view.css` with its colours first."""
    folder = resources.files("flaxattn.views") / "assets"
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".css"))
    names.sort(key=lambda name: name != "view.css")
    style = "".join(read_style(name) for name in names if name != LIST_STYLE)
    style = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    return re.sub(r"\s*\n\s*", " ", re.sub(r"(?<=[{};,])\s*\n\s*", "", style))


def read_style(name: str) -> str:
    """A style sheet of `assets/` without the comment at its beginning."""
    return re.sub(r"^/\*.*?\*/\n", "", read_asset(name), flags=re.MULTILINE | re.DOTALL)


def text_hash(text: str) -> str:
    """The name by which a content security policy allows exactly this inline text."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


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
