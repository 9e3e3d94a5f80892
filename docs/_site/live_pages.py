# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention pages inside the site: made of built-in models while it is built.

In Markdown, `{attention-page} pair` in a colon fence shows the page of that name in a frame.
"""

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = "live"


def _pair() -> Any:
    import flaxattn as fa

    model = fa.from_pretrained("tiny-bert")
    trace = model.trace("The cat is very sad.", "Because it could not find food to eat.")
    return fa.head_view(trace)


def _neurons() -> Any:
    import flaxattn as fa

    model = fa.from_pretrained("tiny-bert")
    request = fa.Capture(weights=True, query=True, key=True, value=True)
    trace = model.trace("The cat is very sad.", capture=request)
    return fa.neuron_view(trace)


def _alignment() -> Any:
    import flaxattn as fa

    trace = fa.from_pretrained("tiny-dates").trace("Montag, 12. Juli 2010")
    return fa.head_view(trace, side="cross")


def _induction() -> Any:
    import flaxattn as fa

    model = fa.from_pretrained("tiny-gpt2")
    text = "The captain saw the ship at sea. The captain saw the ship"
    return fa.head_view(model.trace(text), layer=3)


# Name in Markdown -> the page. The pages that no document shows are not made.
PAGES: dict[str, Callable[[], Any]] = {
    "pair": _pair,
    "neurons": _neurons,
    "alignment": _alignment,
    "induction": _induction,
}


class AttentionPage(SphinxDirective):
    """A frame with an attention page, and a link that opens it alone."""

    required_arguments = 1
    option_spec: ClassVar = {"height": directives.positive_int, "title": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """Return the frame, and remember that its page is to be made."""
        name = self.arguments[0]
        if name not in PAGES:
            raise self.error(f"no attention page {name!r}: there are {', '.join(PAGES)}")
        self.env.metadata[self.env.docname].setdefault(FOLDER, set()).add(name)
        up = "../" * self.env.docname.count("/")
        title = html.escape(self.options.get("title", "Attention page"), quote=True)
        address, height = f"{up}{FOLDER}/{name}.html", self.options.get("height", 640)
        frame = (
            f'<iframe class="attention-page" src="{address}" title="{title}" '
            f'style="height:{height}px"></iframe>'
            f'<p class="attention-page-link"><a href="{address}">Open this page alone</a></p>'
        )
        return [nodes.raw("", frame, format="html")]


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(exist_ok=True)
    shown = [facts.get(FOLDER, set()) for facts in app.env.metadata.values()]
    for name in sorted(set().union(*shown)):
        PAGES[name]().save(folder / f"{name}.html")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive, and make the pages that it showed once the site is written."""
    app.add_directive("attention-page", AttentionPage)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
