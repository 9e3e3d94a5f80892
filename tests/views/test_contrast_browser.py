# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Text of every level against what is behind it: WCAG 2.2 AA, in both themes."""

import numpy as np
import pytest
import view_cases

import flaxattn as fa
from flaxattn.measures.claims import Claim, TopText
from flaxattn.measures.gold_pairs import GoldPair, GoldPairs, PairExamples, judged_pairs
from flaxattn.trace.trace import Trace
from flaxattn.views.evidence_page import EvidenceReport, Numbers, evidence_page
from flaxattn.views.payloads.report_payload import HeadPages

pytestmark = [pytest.mark.browser, pytest.mark.slow]

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
  const row = element.closest(".token");
  const image = row ? getComputedStyle(row).backgroundImage : "";
  const colours = image.match(/rgba?\\([^)]*\\)/g) || [];
  const stripes = colours.map((colour) => over(channels(colour), below));
  const ratioOn = (ground) => {
    const pair = [luminance(over([r, g, b, a * opacity], ground)), luminance(ground)];
    pair.sort((x, y) => y - x);
    return (pair[0] + 0.05) / (pair[1] + 0.05);
  };
  const size = parseFloat(style.fontSize);
  const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
  const ratio = Math.min(...[below, ...stripes].map(ratioOn));
  const name = `${element.tagName}.${element.className}: ${node.textContent.trim().slice(0, 30)}`;
  if (ratio < (large ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${name}`);
}
return [...new Set(found)];
"""

COMPARED = {
    "compare": "level=head&compare=difference&query=2",
    "together": "level=head&compare=together&query=2",
    "together, heads": "level=head&compare=together",
    "together, matrix": "level=head&compare=together&drawing=matrix&query=2&key=3",
    "claims of the atlas": "level=atlas&compare=difference",
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contrast")
    return view_cases.one(folder), view_cases.compared(folder)


@pytest.fixture(scope="module")
def profile_page(peaked, tmp_path_factory):
    """A report with a page for each head, which has examples of one claim."""
    claims = [Claim("subject", 0, 0, 5.0, "p 0.001", texts=(TopText(0, 9.0),))]
    values = {"subject": np.ones((1, 2))}
    heads = HeadPages(9, values, {}, "95 %", PairExamples(claims), np.zeros((1, 2), int))
    numbers = {"encoder": Numbers((0,), (0, 1), values)}
    report = EvidenceReport("Roles", "tiny", "About.", numbers, "score", heads=heads)
    trace = Trace.from_arrays(peaked(1, 2, 4), ["the cat sat down".split()])

    def gold(_, one):
        pairs = [GoldPair((n, n), ((0, 0),)) for n in range(4)]
        return {"encoder": [GoldPairs("subject", "", "", pairs, judged_pairs(pairs, one.encoder))]}

    page = evidence_page(report, claims, (0,), [trace], gold)
    return page.save(tmp_path_factory.mktemp("profile") / "roles.html")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", [*view_cases.LEVELS, *COMPARED])
def test_text_stands_out_from_what_is_behind_it(view, pages, name, theme):
    page = pages[name in COMPARED]
    view.open(page, f"{(view_cases.LEVELS | COMPARED)[name]}&theme={theme}")
    assert view.run(CONTRASTS) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_of_the_page_of_a_head_stands_out(view, profile_page, theme):
    view.open(profile_page, f"head=0.0&theme={theme}")
    assert view.run("return document.querySelectorAll('.end mark').length") > 0
    assert view.run(CONTRASTS) == []


@pytest.fixture(scope="module")
def predictions(tmp_path_factory):
    model = fa.from_pretrained("tiny-gpt2")
    _, trace = model.generate("The old", max_new_tokens=3, trace=True, predictions=5)
    page = fa.head_view(fa.logit_contributions(model, trace))
    return page.save(tmp_path_factory.mktemp("contrast") / "predictions.html")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_predictions_stand_out_from_what_is_behind_them(view, predictions, theme):
    for settings in ("level=head", "level=text", "level=head&drawing=matrix"):
        view.open(predictions, f"{settings}&query=2&theme={theme}")
        assert view.texts(".logits .value")
        assert view.run(CONTRASTS) == []
