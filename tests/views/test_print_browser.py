# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pages printed without background graphics: colours keep their meaning, nothing is cut off."""

import base64
import io
import time

import numpy as np
import pytest
from PIL import Image

from flaxattn.measures.claims import Claim
from flaxattn.trace.trace import Trace
from flaxattn.views.evidence_page import EvidenceReport, Numbers, evidence_page
from flaxattn.views.trace_views import head_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SHEETS = {"A4": (8.27, 11.69), "Letter": (8.5, 11)}
LEVELS = {
    "lines": "level=head&layer=1&heads=0-2&query=3",
    "matrix": "level=head&drawing=matrix&heads=1",
    "atlas": "level=atlas&measure=entropy",
    "model": "level=model",
    "text": "level=text&layer=1&heads=2&query=3",
}
# What stands beyond the edges of the sheet, of all that can be seen.
BEYOND = """
return [...document.querySelectorAll("main *")].filter((e) => {
  const box = e.getBoundingClientRect();
  const seen = box.width && e.checkVisibility() && !e.closest(".spoken");
  return seen && (box.right > 691 || box.left < -1);
}).map((e) => e.tagName + "." + e.className);
"""
SHOWN = (
    "return [...document.querySelectorAll(arguments[0])].filter((e) => e.checkVisibility()).length"
)


@pytest.fixture(scope="module")
def claims(tmp_path_factory):
    values = np.array([[5.0, 0.5, 1.0], [0.25, 3.5, 0.15]])
    sides = {"encoder": Numbers((0, 1), (0, 1, 2), {"local": values, "sep": values})}
    report = EvidenceReport("Roles of heads", "tiny", "Twenty texts.", sides, "score")
    made = [Claim("local", 0, 0, 5.0), Claim("sep", 1, 1, 3.5)]
    page = evidence_page(report, made, (), ())
    return page.save(tmp_path_factory.mktemp("printed") / "roles.html")


def printed(view, folder, sheet="A4"):
    """Pixels `[Y, X, 3]` of the first printed page, and how many pages there are."""
    width, height = SHEETS[sheet]
    requested = {"printBackground": False, "paperWidth": width, "paperHeight": height}
    data = base64.b64decode(view.browser.execute_cdp_cmd("Page.printToPDF", requested)["data"])
    path = folder / "printed.pdf"
    path.write_bytes(data)
    view.browser.get(f"{path.as_uri()}#toolbar=0&navpanes=0&view=FitH")
    time.sleep(1.5)  # the viewer has no sign of when it has drawn
    shot = Image.open(io.BytesIO(view.browser.get_screenshot_as_png())).convert("RGB")
    return np.asarray(shot).astype(int), data.count(b"/Type /Page\n")


def near(pixels, colour):
    """Pixels of about a `#rrggbb` colour; scaling blurs edges."""
    expected = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((np.abs(pixels - expected).max(-1) < 14).sum())


def hexed(colour):
    """`#rrggbb` of `rgb(r, g, b)`."""
    return "#" + "".join(f"{int(part):02x}" for part in colour[4:-1].split(","))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_of_lines_and_bars_are_on_paper(view, pair, tmp_path, theme):
    view.open(pair.page, f"{LEVELS['lines']}&theme={theme}")
    view.run("dispatchEvent(new Event('beforeprint'))")
    colours = view.run("return [page.colourOf(0), page.colourOf(2)]")
    view.run("dispatchEvent(new Event('afterprint'))")
    pixels, _ = printed(view, tmp_path)
    assert min(near(pixels, colour) for colour in colours) > 150
    assert near(pixels, "#ffffff") > 0.4 * pixels.shape[0] * pixels.shape[1]


@pytest.mark.parametrize("sheet", SHEETS)
def test_cells_of_the_atlas_keep_their_colours(view, pair, tmp_path, sheet):
    view.open(pair.page, LEVELS["atlas"])
    colours = [cell["colour"] for cell in view.run("return view.drawn()")]
    pixels, pages = printed(view, tmp_path, sheet)
    assert pages == 1
    assert min(near(pixels, hexed(colour)) for colour in colours) > 100


def test_shades_of_text_and_of_claims_are_on_paper(view, pair, claims, tmp_path):
    view.open(pair.page, LEVELS["text"])
    strongest = view.run(
        "const fills = [...document.querySelectorAll('.run')].map((e) => e.style.backgroundColor);"
        "const dark = (c) => c ? c.match(/\\d+/g).reduce((a, b) => a + +b, 0) : 999;"
        "return fills.sort((a, b) => dark(a) - dark(b))[0]"
    )
    pixels, _ = printed(view, tmp_path)
    assert near(pixels, hexed(strongest)) > 60
    view.open(claims, "")
    cell = view.run("return view.drawn()[0].colour")
    mark = view.run("return document.querySelector('.panel .fact path').getAttribute('fill')")
    pixels, _ = printed(view, tmp_path)
    assert near(pixels, hexed(cell)) > 100 and near(pixels, mark) > 40


@pytest.mark.parametrize("level", LEVELS)
def test_paper_has_title_model_and_settings_and_no_controls(view, pair, level):
    view.open(pair.page, LEVELS[level])
    view.run("dispatchEvent(new Event('beforeprint'))")
    assert view.run(SHOWN, "h1, .model, .printed") == 3
    assert view.run(SHOWN, ".controls, .tab, .sign, .tip, select, input") == 0
    assert view.run(BEYOND) == []
    output = view.texts(".printed")[0]
    expected = {
        "lines": "Head · Layer 1 · Drawn as Lines · Attention All · Opacity weight · Mass 100 % · "
        "Heads 0, 2",
        "matrix": "Drawn as Matrix",
        "atlas": "Atlas · Number entropy, nats · Order by layer",
        "model": "Model · Attention All · Opacity weight",
        "text": "Text · Layer 1 · Shaded by attention from the token",
    }[level]
    assert expected in output
    view.run("dispatchEvent(new Event('afterprint'))")
    assert view.run(SHOWN, ".sign") > 4 and view.run(SHOWN, ".printed") == 0


def test_the_theme_and_the_drawing_come_back_after_printing(view, pair):
    view.open(pair.page, f"{LEVELS['lines']}&theme=dark")
    before = view.lines(), view.run("return page.colours"), view.run("return location.hash")
    view.run("dispatchEvent(new Event('beforeprint'))")
    assert view.run("return document.documentElement.dataset.theme") == "light"
    view.run("dispatchEvent(new Event('afterprint'))")
    assert view.run("return document.documentElement.dataset.theme") == "dark"
    assert before == (
        view.lines(),
        view.run("return page.colours"),
        view.run("return location.hash"),
    )


def test_a_long_text_is_printed_whole(view, peaked, tmp_path):
    length = 150
    trace = Trace.from_arrays(peaked(24, 2, length), [[f"t{n}" for n in range(length)]])
    page = head_view(trace, layer=0, heads=[0]).save(tmp_path / "long.html")
    view.open(page, "query=2&heads=0&layer=0&mass=100")
    expected = {key for _, _, key in view.lines()}
    on_screen = [bool(value) for value in view.texts(".right .token .value")]
    assert sum(on_screen) < len(expected)
    view.run("dispatchEvent(new Event('beforeprint'))")
    values = view.texts(".right .token .value")
    assert {key for key, value in enumerate(values) if value} == expected
    view.run("dispatchEvent(new Event('afterprint'))")
    view.open(page, "level=model")
    assert view.run("return view.grid.cells.some((c) => c.button.dataset.painted !== view.shown)")
    view.run("dispatchEvent(new Event('beforeprint'))")
    assert view.run("return view.grid.cells.every((c) => c.button.dataset.painted === view.shown)")
    view.run("dispatchEvent(new Event('afterprint'))")
    view.open(page, "query=2&heads=0")
    _, pages = printed(view, tmp_path)
    assert pages >= 4
