# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The first picture of a page, the sentence above it, and bars of one length in a browser."""

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.trace.trace import Trace

pytestmark = pytest.mark.browser
WIDTHS = """
const bars = document.querySelectorAll(".panel .bar");
return [...bars].map((bar) => bar.getBoundingClientRect().width);
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A head of previous tokens in layer 1; the others are broad."""
    weights = np.full((2, 1, 2, 6, 6), 1 / 6, np.float32)
    weights[1, 0, 1] = 0.9 * np.eye(6, k=-1) + 0.1 / 6
    weights /= weights.sum(-1, keepdims=True)
    trace = Trace.from_arrays(weights, [list("abcdef")])
    return fa.head_view(trace).save(tmp_path_factory.mktemp("opening") / "page.html")


def test_it_opens_at_one_telling_head_and_says_what_it_does(view, page):
    view.open(page)
    assert view.run("return [page.state.layerNumber(), page.state.heads]") == [1, [1]]
    (sentence,) = view.texts(".reading")
    assert sentence == "Layer 1, head 1 looks at the previous token: 76 % of its attention."
    drawn = view.lines()
    pinned = view.run("return page.state.query")
    assert {query for _, query, _ in drawn} == {pinned}
    assert max(drawn, key=lambda line: drawn[line]) == (1, pinned, pinned - 1)
    view.press("ESCAPE")
    assert {query for _, query, _ in view.lines()} == set(range(6))


def test_pointing_at_another_token_shows_its_lines_until_the_pointer_leaves(view, page):
    view.open(page)
    pinned = view.run("return page.state.query")
    other = 3 if pinned != 3 else 4
    panel = view.texts(".panel")
    assert "Pinned. Esc shows all lines again." in panel[0]
    view.point(view.token("left", other))
    assert {query for _, query, _ in view.lines()} == {other}
    assert "Pinned" not in view.texts(".panel")[0] and view.texts(".panel") != panel
    view.point("h1")
    assert {query for _, query, _ in view.lines()} == {pinned}
    assert view.texts(".panel") == panel


def test_the_other_lines_stay_faintly_behind_those_of_the_token(view, page):
    view.open(page)
    opacity = view.find(".lines .all").value_of_css_property("opacity")
    assert 0.1 <= float(opacity) <= 0.2
    view.press("ESCAPE")
    assert view.find(".lines .all").value_of_css_property("opacity") == "1"


def test_the_sentence_follows_the_heads(view, page):
    view.open(page, "layer=0&heads=0")
    assert view.texts(".reading") == ["Layer 0, head 0 attends broadly: entropy 1.8 nats."]
    view.open(page, "layer=0&heads=0-1")
    (sentence,) = view.texts(".reading")
    assert sentence == "2 heads of layer 0; double-click a number above to see one head."


def test_bars_of_a_list_have_tracks_of_one_length_and_say_their_scale(view, translation):
    view.open(translation.page, "query=1")
    widths = view.run(WIDTHS)
    assert len(widths) > 3 and max(widths) - min(widths) < 0.01
    hints = " ".join(view.texts(".panel .hint"))
    largest = view.texts(".panel .fact .value")[0]
    assert f"The longest bar is {largest}." in hints
    view.open(translation.page, "query=1&key=2")
    assert "a full bar is a weight of 1" in " ".join(view.texts(".panel .hint"))


def test_bars_of_a_difference_are_as_long_whatever_their_sign(view, tmp_path, peaked):
    traces = [Trace.from_arrays(peaked(1, 2, 6, seed=s), [list("abcdef")]) for s in (0, 1)]
    page = fa.compare_view(*traces).save(tmp_path / "two.html")
    view.open(page, "level=head&query=3&heads=0-1&compare=difference")
    texts = view.texts(".panel .fact .value")
    assert any(text.startswith("−") for text in texts) and any(text[0] != "−" for text in texts)
    widths = view.run(WIDTHS)
    assert max(widths) - min(widths) < 0.01
