# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Several views in one notebook: each is a frame of its own that shares and fetches nothing."""

import html
from html.parser import HTMLParser

import pytest

from flaxattn import head_view
from flaxattn.trace.trace import Trace

ALLOWED = {"allow-scripts", "allow-downloads"}  # no origin, no window, no form, no navigation


class Elements(HTMLParser):
    """Every element of a cell's output with its attributes."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.found, self.loose = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.loose += data


@pytest.fixture(scope="module")
def pages(peaked):
    """The views of three cells; two show the same trace."""
    traces = [Trace.from_arrays(peaked(1, 2, 3), [list(word)]) for word in ("abc", '<&"')]
    return [head_view(trace) for trace in (*traces, traces[0])]


def test_a_notebook_of_views_holds_frames_and_nothing_else(pages):
    cells = Elements("".join(page._repr_html_() for page in pages))
    assert [tag for tag, _ in cells.found] == ["iframe"] * 3 and not cells.loose.strip()
    for (_, attributes), page in zip(cells.found, pages, strict=True):
        assert set(attributes) == {"title", "sandbox", "style", "srcdoc"}
        assert set(attributes["sandbox"].split()) <= ALLOWED
        assert attributes["srcdoc"] == page.html


def test_what_is_in_a_frame_asks_for_nothing(pages):
    for page in pages:
        for tag, attributes in Elements(page.html).found:
            assert tag not in ("link", "img", "object", "embed", "iframe", "base")
            assert not {"src", "srcset", "action", "ping"} & set(attributes), tag
            assert not str(attributes.get("href", "")).strip("#").strip(), tag


def test_the_title_of_a_frame_is_text(peaked):
    trace = Trace.from_arrays(peaked(1, 1, 2), [["a", "b"]], model='"><script>')
    frame = head_view(trace)._repr_html_()
    assert html.escape('"><script>') in frame and "<script" not in frame
