# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures have the colours of the page: orange below 0 and blue above it, faint weights lifted."""

import math
import re

import numpy as np
import pytest
from matplotlib.colors import to_hex

import flaxattn as fa
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_style import (
    diverging,
    even_colours,
    head_colour,
    ink_on,
    page_colours,
    sequential,
    weight_colours,
)
from flaxattn.views.figures.plot_atlas import EFFECTS, SHARES
from flaxattn.views.figures.plot_head_numbers import plot_head_values
from flaxattn.views.figures.plot_neuron import TOP_DIMENSIONS
from flaxattn.views.payloads.page_encoding import read_asset


def blended(low: str, high: str, share: float) -> list[int]:
    """Red, green and blue between two `#rrggbb`, worked out by hand."""
    ends = [[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in (low, high)]
    return [round(a + (b - a) * share) for a, b in zip(*ends, strict=True)]


def colour_of(paint, weight):
    norm = paint.get("norm")
    share = norm(weight) if norm else (weight - paint["vmin"]) / (paint["vmax"] - paint["vmin"])
    return [round(255 * part) for part in paint["cmap"](float(share))[:3]]


def near(one, other):
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 2


@pytest.mark.parametrize("weight", [0, 0.01, 0.1, 0.25, 0.5, 1])
def test_weights_are_coloured_by_their_square_root(weight):
    names = ("scale-low", "scale-high", "negative", "paper", "positive")
    low, high, below, none, above = (page_colours()[name] for name in names)
    share = math.sqrt(weight)
    assert near(colour_of(weight_colours(), weight), blended(low, high, share))
    signed = weight_colours(signed=True)
    assert near(colour_of(signed, weight), blended(none, above, share))
    assert near(colour_of(signed, -weight), blended(none, below, share))
    assert near(colour_of(even_colours(1, 0), weight), blended(low, high, weight))
    assert near(colour_of(even_colours(1), -weight), blended(none, below, weight))


def test_colours_are_those_of_the_style_sheet():
    sheet = read_asset("view.css").split('[data-theme="dark"]')[0]
    for name in ("scale-low", "scale-high", "negative", "positive", "head-0", "head-15"):
        assert f"--{name}: {page_colours()[name]};" in sheet
    assert head_colour(3) == head_colour(19) == page_colours()["head-3"]
    assert to_hex(diverging()(0.0)) == page_colours()["negative"]
    assert to_hex(diverging()(1.0)) == page_colours()["positive"]
    assert to_hex(diverging()(0.5)) == page_colours()["paper"]
    assert (ink_on("#0b3b8f"), ink_on("#f1f4f9")) == ("white", "black")


@pytest.mark.slow
def test_every_map_of_a_figure_has_one_of_the_two(peaked, pair):
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 1, 1, 4, 2, 3)).astype(np.float32)
    record = AttentionRecord(weights=peaked(1, 2, 4), query=q, key=k, layers=(0,), heads=(0, 1))
    neuron = fa.plot_neuron(Trace(encoder=record, tokens=[list("abcd")]), 0, 0, 1)
    signed = {"norm": pair.shares[:, None] - 0.2}
    figures = [
        (fa.plot_heads(pair.trace), {"flaxattn"}),
        (fa.plot_heads(pair.trace, weights=signed), {"flaxattn_signed"}),
        (fa.plot_model(pair.trace), {"flaxattn"}),
        (fa.plot_model(pair.trace, weights=signed), {"flaxattn_signed"}),
        (fa.plot_atlas(pair.trace), {"flaxattn"}),
        (fa.plot_compare(pair.trace, pair.trace, 1), {"flaxattn", "flaxattn_signed"}),
        (fa.plot_positions(q[0, 0, :, 0]), {"flaxattn_signed"}),
        (plot_head_values({"a": q[0, 0, :, 0]}, "growth of the loss"), {"flaxattn_signed"}),
        (neuron, {"flaxattn", "flaxattn_signed"}),
    ]
    for figure, expected in figures:
        maps = {image.get_cmap().name for ax in figure.axes for image in ax.images}
        assert maps == expected, figure.axes[0].get_title()


def test_tables_of_the_page_are_repeated_rightly():
    panel = read_asset("panel.js")
    assert tuple(re.findall(r'\["(\w+)", "[^"]+", "share"\]', panel)) == SHARES
    assert re.findall(r"EFFECTS = \[(.*)\]", panel) == [", ".join(f'"{n}"' for n in EFFECTS)]
    (count,) = re.findall(r"TOP_DIMENSIONS = (\d+)", read_asset("neuron.js"))
    assert int(count) == TOP_DIMENSIONS


def test_an_atlas_has_the_range_of_the_page(pair):
    entropy = fa.plot_atlas(pair.trace, "entropy").axes[0].images[0]
    values = np.asarray(entropy.get_array())
    assert entropy.get_clim() == (values.min(), values.max())
    assert fa.plot_atlas(pair.trace, "own").axes[0].images[0].get_clim()[0] == 0


@pytest.mark.browser
@pytest.mark.parametrize("signed", [False, True])
def test_page_and_figure_colour_and_name_the_same_weights(view, pair, tmp_path, signed):
    given = {"weights": {"gradient": pair.shares[:, None] - 0.2}} if signed else {}
    page = fa.head_view(pair.trace, **given).save(tmp_path / "page.html")
    kind = "&weights=gradient" if signed else ""
    view.open(page, f"level=head&drawing=matrix&theme=light{kind}")
    figure = fa.plot_state(pair.trace, view.run("return page.state.json()"), **given)
    image, bar = figure.axes[0].images[0], figure.axes[-1]
    shades = view.run(
        "return [...document.querySelectorAll('.matrix-shade')]"
        ".map((e) => getComputedStyle(e).backgroundColor)"
    )
    marks = view.texts(".matrix-mark")
    assert [f"{tick:g}".replace("-", "−") for tick in bar.get_yticks()] == marks
    names = [tick.get_text() for tick in bar.get_yticklabels()]
    # Where there is no room for them, the numbers next to 0 are left out.
    assert [name or mark for name, mark in zip(names, marks, strict=True)] == marks
    assert {mark for name, mark in zip(names, marks, strict=True) if not name} <= {"0.01", "−0.01"}
    for mark, shade in zip(marks, shades, strict=True):
        drawn = image.get_cmap()(image.norm(float(mark.replace("−", "-"))))
        assert near([round(255 * part) for part in drawn[:3]], map(int, re.findall(r"\d+", shade)))
    assert image.get_cmap() == (diverging() if signed else sequential())
