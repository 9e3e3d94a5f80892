# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Files that are saved from a page hold what is on it, and are made soon and small."""

import base64
import io
from xml.etree import ElementTree

import numpy as np
import pytest
from drawn_figures import svg_texts
from PIL import Image

from flaxattn.trace.trace import Trace
from flaxattn.views.trace_views import head_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LENGTH = 128
SAVE = """
const done = arguments[0], start = performance.now(), said = [];
const message = document.querySelector(".saving");
new MutationObserver(() => said.push(message.hidden ? "" : message.textContent))
  .observe(message, { attributes: true });
window.download = (name, kind, blob) => {
  const time = performance.now() - start, reader = new FileReader();
  reader.addEventListener("load", () => done([time, reader.result, said]));
  reader.readAsDataURL(blob);
};
document.querySelector("button.png").click();
"""


@pytest.fixture(scope="module")
def long(peaked, tmp_path_factory):
    """A page of 128 tokens and 12 heads, whose lines are too many to be drawn again."""
    tokens = [[f"token{i}" for i in range(LENGTH)]]
    page = head_view(Trace.from_arrays(peaked(1, 12, LENGTH), tokens), 0, state={"mass": 100})
    return page.save(tmp_path_factory.mktemp("long") / "page.html")


def save(view):
    """Seconds, the file, the image and what was said meanwhile."""
    time, data, messages = view.browser.execute_async_script(SAVE)
    file = base64.b64decode(data.split(",")[1])
    return time / 1000, file, Image.open(io.BytesIO(file)).convert("RGB"), messages


def test_an_image_of_128_tokens_is_made_soon_and_small(view, long):
    view.open(long, "level=head&theme=light")
    seconds, file, image, messages = save(view)
    assert seconds < 2 and len(file) < 5_000_000
    assert messages[0].startswith("Making the PNG file")
    view.until("document.querySelector('.saving').hidden")
    drawn = view.run(
        "const canvas = view.page.canvas, n = canvas.getContext('2d').getImageData("
        "0, 0, canvas.width, canvas.height).data; let sum = 0;"
        "for (let i = 3; i < n.length; i += 4) sum += n[i] > 8; return sum"
    )
    middle = np.asarray(image)[88:, 240:-240]
    assert abs((middle.min(2) < 250).sum() / drawn - 1) < 0.05  # the lines of the page


def test_a_file_has_no_line_that_cannot_be_seen(view, pair):
    view.open(pair.page, "level=head")
    root = ElementTree.fromstring(view.svg())
    opacities = [float(n.get("stroke-opacity", "")) for n in root.iter() if n.get("stroke-opacity")]
    count = view.run("return view.drawn().lines.length")
    seen = view.run(
        "return view.drawn().lines.filter((l) => Math.round(255 * 1.8 * l.opacity)).length"
    )
    assert len(opacities) == seen < count
    assert min(opacities) >= 0.5 / 255 - 1e-4 and opacities == sorted(opacities)


def by_class(root, name):
    return [node for node in root.iter() if node.get("class") == name]


def test_lines_are_saved_with_marks_numbers_and_divider(view, pair):
    view.open(pair.page, "level=head&query=2&heads=0-2&theme=light&first=hidden")
    root = ElementTree.fromstring(view.svg())
    (held,) = by_class(root, "held")
    style = "return page.style(arguments[0])"
    assert held.get("fill") == view.run(style, "--held")
    row = view.run("return view.geometry.left.get(2)")
    assert float(held.get("y")) + float(held.get("height")) / 2 == row
    boundary = pair.boundary * float(held.get("height"))
    assert [float(line.get("y1")) for line in by_class(root, "divider")] == [boundary] * 2
    assert svg_texts(root, "direction") == ["→"]
    assert svg_texts(root, "column") == ["attends from", "attended to"]
    assert svg_texts(root, "colour") == ["0", "2"]
    colours = [box.get("fill") for box in by_class(root, "swatch")]
    assert colours == [view.run(style, f"--head-{n}") for n in (0, 2)]
    values = svg_texts(root, "value")
    assert values == list(filter(None, view.texts(".right .value"))) and len(values) > 10
    stripes = by_class(root, "stripe")
    assert {s.get("fill").split(", 0")[0] for s in stripes} == {
        f"rgba({', '.join(str(int(c[i : i + 2], 16)) for i in (1, 3, 5))}" for c in colours
    }
    tokens = by_class(root, "token")
    out = [node.text for node in tokens if node.get("text-decoration") == "line-through"]
    assert out == [pair.tokens[0]]


def test_a_matrix_is_saved_with_frames_and_its_legend(view, pair):
    view.open(pair.page, "level=head&drawing=matrix&heads=1&query=3&key=5")
    root = ElementTree.fromstring(view.svg())
    place, window = view.run("const { place, window } = view.matrix; return [place, window]")
    row, column = by_class(root, "held")
    size = window["size"]
    assert float(row.get("y")) == pytest.approx(place["top"] + 3 * size)
    assert float(column.get("x")) == pytest.approx(place["left"] + 5 * size)
    texts = ["".join(node.itertext()) for node in root.iter() if node.tag.endswith("}text")]
    assert texts[-6:] == view.texts(".matrix-mark")
    assert "rows: attends from; columns: attended to; weight" in texts


@pytest.mark.parametrize("level", ["atlas", "model"])
def test_grids_keep_the_names_of_axes_and_the_scale(view, pair, level):
    view.open(pair.page, f"level={level}")
    view.until("!view.root.dataset.waiting || view.root.dataset.waiting === '0'")
    root = ElementTree.fromstring(view.svg())
    assert svg_texts(root, "axes") == ["layers ↓ heads →"]
    assert svg_texts(root, "mark") == view.texts(f"#level-{level} .legend-mark")
    assert svg_texts(root, "unit")[0] in view.texts(f"#level-{level} .status span")


def test_long_captions_are_broken_into_lines(view, peaked, tmp_path):
    model = "a model with a name that is far longer than the picture of it can be wide " * 3
    page = head_view(Trace.from_arrays(peaked(1, 2, 3), [list("abc")], model=model))
    for level in ("atlas", "model", "head"):
        view.open(page.save(tmp_path / "page.html"), f"level={level}")
        root = ElementTree.fromstring(view.svg())
        (caption,) = by_class(root, "caption")
        lines = [span.text or "" for span in caption]
        assert len(lines) > 1 and " ".join(lines) == " ".join((root[0].text or "").split(" "))
        width = float(root.get("width", ""))
        script = (
            "const pen = document.createElement('canvas').getContext('2d');"
            "pen.font = '14px system-ui, sans-serif';"
            "return arguments[0].map((line) => pen.measureText(line).width)"
        )
        assert max(view.run(script, lines)) <= width
