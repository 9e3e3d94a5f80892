# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Documents of a server without a script: their frame, policy, and pages that give an answer.

They look like pages of attention: colours, type and controls are those of `assets/view.css`.
"""

import functools
import html
import re
from collections.abc import Sequence

from flaxattn.views.background_jobs import Progress
from flaxattn.views.page import LIST_STYLE, read_style, text_hash
from flaxattn.views.payloads.asset_files import read_asset
from flaxattn.views.payloads.encoded_weights import visible


def document(store: str, tab: str, body: str, *, root: str = "", refresh: str = "") -> str:
    """A document of a store."""
    current = ' aria-current="page"'
    parts = {
        "title": escaped(f"{store} · texts"),
        "style": _style(),
        "store": escaped(store),
        "root": html.escape(root or "./"),
        "on_texts": current if tab == "texts" else "",
        "on_atlas": current if tab == "atlas" else "",
        "refresh": refresh,
        "body": body,
    }
    return re.sub(r"@\{(\w+)\}", lambda match: parts[match[1]], read_asset("texts.html"))


def answer(*paragraphs: str) -> str:
    """HTML of a box with paragraphs of HTML."""
    shown = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return f'<div class="answer" role="status">{shown}</div>'


def escaped(text: str) -> str:
    """Text as HTML, with control characters made visible."""
    return html.escape(visible(text))


def message_page(
    store: str, text: str, links: Sequence[tuple[str, str]], *, root: str = "", above: str = ""
) -> str:
    """A page that says why there is no list, or no text."""
    first, _, rest = text.partition("\n")
    lines = ["\n".join(map(escaped, part.split("\n"))) for part in (first, rest) if part]
    onward = " · ".join(f'<a href="{html.escape(place)}">{name}</a>' for place, name in links)
    return document(store, "", f"{above}\n{answer(*lines, onward)}", root=root)


def waiting_page(store: str, work: str, progress: Progress, *, tab: str, root: str = "") -> str:
    """A page that says how far a computation is, and asks again every second."""
    percent = int(100 * progress.share)
    bar = f'<progress max="100" value="{percent}" aria-label="Finished">{percent}%</progress>'
    again = "It is computed once; this page asks again every second."
    body = answer(f"{escaped(work)}: {percent}%", bar, again)
    refresh = '<meta http-equiv="refresh" content="1">\n'
    return document(store, tab, body, root=root, refresh=refresh)


def list_policy() -> str:
    """The content security policy of these pages: their own style and form, nothing else."""
    return (
        f"default-src 'none'; style-src 'sha256-{text_hash(_style())}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


@functools.cache
def _style() -> str:
    """The style of pages and that of the list; without a script, the system chooses the theme."""
    pages = read_style("view.css")
    dark = re.search(r'^:root\[data-theme="dark"\] (\{.*?^\})', pages, re.MULTILINE | re.DOTALL)
    assert dark is not None
    system = f"@media (prefers-color-scheme: dark) {{\n:root {dark[1]}\n}}\n"
    return pages.replace(dark[0], system) + read_style(LIST_STYLE)
