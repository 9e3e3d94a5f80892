# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""In the frame of a notebook, picture and panel are both in sight, at widths that cells have."""

import numpy as np
import pytest

from flaxattn.trace.trace import Trace
from flaxattn.views.trace_views import atlas_view, head_view, text_view

pytestmark = pytest.mark.browser

VIEWS = {"head": head_view, "text": text_view, "atlas": atlas_view}
PICTURES = {"head": ".stage", "text": ".running", "atlas": ".grid"}
BOXES = """
const panels = [...document.querySelectorAll(".panel")];
return [document.querySelector(arguments[0]), panels.find((e) => e.checkVisibility())]
  .map((e) => { const b = e.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; });
"""


@pytest.fixture(scope="module")
def trace(peaked):
    tokens = [f"token{n}" for n in range(16)]
    positions = np.arange(16)[None]
    return Trace.from_arrays(
        peaked(4, 12, 16),
        [tokens],
        special=positions == 0,
        segments=(positions > 8).astype(int),
        model="bert-base-uncased",
    )


@pytest.mark.parametrize("width", [700, 850, 1000])
@pytest.mark.parametrize("name", VIEWS)
def test_panel_and_picture_are_in_the_frame(view, trace, tmp_path, name, width):
    frame = VIEWS[name](trace)._repr_html_()
    path = tmp_path / "cell.html"
    style = f"margin:0;width:{width}px"
    path.write_text(f'<!doctype html><body style="{style}">{frame}', encoding="utf-8")
    view.browser.get(path.as_uri())
    view.browser.switch_to.frame(0)
    try:
        view.until("Boolean(page)")
        assert view.run("return innerWidth") == width
        height = view.run("return innerHeight")
        picture, panel = view.run(BOXES, PICTURES[name])
        assert panel[0] >= picture[2], "side by side"
        assert picture[2] - picture[0] >= 340 and panel[2] <= width
        assert max(picture[3], panel[3]) <= height, "no scrolling"
        assert view.run("return document.documentElement.scrollWidth") <= width
    finally:
        view.browser.switch_to.default_content()


def test_a_phone_has_the_panel_below(view, trace, tmp_path):
    page = head_view(trace).save(tmp_path / "page.html")
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    view.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        view.open(page)
        picture, panel = view.run(BOXES, ".stage")
        assert panel[1] >= picture[3] and panel[2] - panel[0] > 340
        assert view.run("return document.documentElement.scrollWidth") == 390
    finally:
        view.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
