# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Text of every level against what is behind it: WCAG 2.2 AA, in both themes."""

import pytest
import view_cases

pytestmark = pytest.mark.browser

# Contrast of every visible piece of text, by its computed colours: the ratio of WCAG 2.2, and the
# one that its size asks for. Stripes behind a token in focus are drawn with an outline of letters.
CONTRASTS = """
if (document.querySelector("main").textContent.length < 50) return ["nothing is drawn"];
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function channels(colour) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
}
const over = ([r, g, b, a], below) => [r, g, b].map((c, i) => c * a + below[i] * (1 - a)).concat(1);
function behind(element) {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    layers.push(channels(getComputedStyle(at).backgroundColor));
  }
  return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
}
const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
function luminance([r, g, b]) {
  const [x, y, z] = [r, g, b].map((c) => linear(c / 255));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}
const found = [];
const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const element = node.parentElement;
  const seen = element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  if (!node.textContent.trim() || !seen) continue;
  if (element.closest("option, .spoken, [disabled]")) continue;
  const style = getComputedStyle(element);
  const below = behind(element);
  const opacity = Number(style.opacity);
  const [r, g, b, a] = channels(style.color);
  const pair = [luminance(over([r, g, b, a * opacity], below)), luminance(below)];
  pair.sort((x, y) => y - x);
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const ratio = (pair[0] + 0.05) / (pair[1] + 0.05);
  const name = `${element.tagName}.${element.className}: ${node.textContent.trim().slice(0, 30)}`;
  if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${name}`);
}
return [...new Set(found)];
"""
SETTINGS = {
    "atlas": "level=atlas",
    "atlas by number": "level=atlas&order=value",
    "model": "level=model",
    "lines": "level=head&layer=0&heads=0-1",
    "token": "level=head&layer=1&query=3",
    "matrix": "level=head&drawing=matrix&query=2",
    "neuron": "level=neuron&query=3&numbers=on",
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contrast")
    return view_cases.one(folder), view_cases.compared(folder)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", [*SETTINGS, "compare"])
def test_text_stands_out_from_what_is_behind_it(view, pages, name, theme):
    page = pages[name == "compare"]
    settings = SETTINGS.get(name, "level=head&compare=difference&query=2")
    view.open(page, f"{settings}&theme={theme}")
    assert view.run(CONTRASTS) == []
