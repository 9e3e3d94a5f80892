# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The page that lists texts of a store, some at a time, each a link to the page of its attention.

It holds no script. Rows come in as `flaxattn.store.find_texts` finds them; `serving.py` hands it
out.
"""

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from importlib import resources
from urllib.parse import urlencode

from flaxattn.store.find_texts import Found
from flaxattn.views.payloads.encoded_weights import visible

PAGE = 50
"""Texts on one page."""

_LONGEST = 240  # characters of a text that are shown
_STYLE = """
:root{color-scheme:light dark;--rule:#8884}
body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:70rem;padding:1rem 1.5rem}
h1{font-size:1.2rem;overflow-wrap:anywhere}
form{display:flex;gap:.5rem;align-items:end;flex-wrap:wrap}
input,button{font:inherit;padding:.3rem .6rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.35rem .6rem;border-bottom:1px solid var(--rule)}
td{overflow-wrap:anywhere}
th:nth-child(-n+3),td:nth-child(-n+3){width:1%;white-space:nowrap}
td:nth-child(2){white-space:normal;min-width:8rem}
:is(th,td):is(:nth-child(1),:nth-child(3)){text-align:right;font-variant-numeric:tabular-nums}
.second{opacity:.75}
nav{display:flex;gap:1.5rem;padding:1rem 0}
"""


def texts_page(
    name: str, total: int, found: Sequence[Found], *, start: int, words: str, more: bool
) -> str:
    """The list of texts as a document.

    Args:
        name: Of the store.
        total: Texts in its plan.
        found: Those to list.
        start: Where the list begins, as the address told.
        words: What was searched; empty if nothing.
        more: Whether there are further texts.

    Returns:
        HTML without a script; every text is escaped, control characters are made visible.
    """
    parts = {
        "title": _escaped(f"{name} · texts"),
        "style": _STYLE,
        "words": _escaped(words),
        "said": _escaped(_said(total, found, words)),
        "rows": "\n".join(map(_row, found)),
        "links": _links(found, start, words, more),
    }
    template = (resources.files("flaxattn.views") / "assets" / "texts.html").read_text("utf-8")
    return re.sub(r"@\{(\w+)\}", lambda match: parts[match[1]], template.replace("\r\n", "\n"))


def texts_policy() -> str:
    """The content security policy of such a page: its own style, its own form, nothing else."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )


def _escaped(text: str) -> str:
    return html.escape(visible(text))


def _said(total: int, found: Sequence[Found], words: str) -> str:
    what = f" with “{words}”" if words else ""
    if not found:
        return f"No text{what} from here on; the store has {total:,}."
    count = f"{len(found)} text{'' if len(found) == 1 else 's'}{what}"
    return f"{count}, numbers {found[0].example} to {found[-1].example} of {total:,}"


def _row(text: Found) -> str:
    second = "" if text.text_b is None else f'<div class="second">{_cut(text.text_b)}</div>'
    return (
        f'<tr><td><a href="text/{text.example}">{text.example}</a></td><td>{_escaped(text.id)}'
        f"</td><td>{text.tokens}</td><td>{_cut(text.text or '')}{second}</td></tr>"
    )


def _cut(text: str) -> str:
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return f"<bdi>{_escaped(shown)}</bdi>"


def _links(found: Sequence[Found], start: int, words: str, more: bool) -> str:
    """Links to other stretches of the list."""
    links = []
    if start > 0:
        before = 0 if words else max(0, start - PAGE)
        links.append((before, "From the start" if words else "Back"))
    if more and found:
        links.append((found[-1].example + 1, "Next"))
    given = {"q": words} if words else {}
    return "".join(
        f'<a href="?{html.escape(urlencode({**given, "from": place}))}">{name}</a>'
        for place, name in links
    )
