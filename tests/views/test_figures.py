# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures show the numbers of a trace under its tokens, whatever the tokens are."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager

from flaxattn.errors import InputError
from flaxattn.trace.trace import Trace
from flaxattn.views.figures import figure_style
from flaxattn.views.figures.figure_style import drawable, write_title
from flaxattn.views.figures.plot_heads import plot_heads

HOSTILE = ["$x_1$", "$", "\\frac{", "_", "😀", "日本", "\u202eש", "a\nb\x00", "\ud800", "", "</b>"]


def pixels(figure) -> np.ndarray:
    """What a figure looks like, drawn with every warning an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba()).copy()


@pytest.mark.slow
def test_maps_are_the_weights_of_the_trace(pair):
    figure = plot_heads(pair.trace)
    maps = figure.axes[:6]
    for index, ax in enumerate(maps):
        layer, head = divmod(index, 3)
        assert ax.get_title() == f"layer {layer}, head {head}"
        (image,) = ax.images
        assert (np.asarray(image.get_array()) == pair.shares[layer, head]).all()
        assert image.get_clim() == (0, 1)
    assert [text.get_text() for text in maps[0].get_yticklabels()] == pair.tokens
    assert [text.get_text() for text in maps[3].get_xticklabels()] == pair.tokens
    assert maps[0].get_ylabel() == "attends from"
    assert maps[3].get_xlabel() == "attended to"
    assert figure.axes[6].get_ylabel() == "attention weight"


def test_layers_and_heads_are_chosen_by_number(peaked):
    trace = Trace.from_arrays(peaked(2, 2, 3), [list("abc")], layers=[8, 10], heads=[3, 5])
    figure = plot_heads(trace, layers=[10], heads=[5, 3])
    assert [ax.get_title() for ax in figure.axes[:2]] == ["layer 10, head 5", "layer 10, head 3"]
    shown = np.asarray(figure.axes[0].images[0].get_array())
    assert (shown == np.asarray(trace.encoder.weights)[1, 0, 1]).all()


def test_it_draws_into_axes_of_ones_own(pair):
    figure, axes = plt.subplots(1, 2)
    assert plot_heads(pair.trace, layers=[1], heads=[2], ax=axes[1]) is figure
    assert not axes[0].images
    assert (np.asarray(axes[1].images[0].get_array()) == pair.shares[1, 2]).all()
    assert len(figure.axes) == 2


@pytest.mark.slow
def test_the_same_trace_gives_the_same_picture(pair):
    first, second = (pixels(plot_heads(pair.trace, layers=[0], heads=[0])) for _ in range(2))
    assert (first == second).all()


def test_hostile_tokens_are_drawn_as_written_without_a_warning(peaked):
    trace = Trace.from_arrays(peaked(1, 1, len(HOSTILE)), [HOSTILE])
    figure = plot_heads(trace)
    pixels(figure)
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == [drawable(token) for token in HOSTILE]
    assert not any(label.get_parse_math() for label in labels)


def test_drawable_changes_only_what_cannot_be_drawn():
    for token in ("$x_1$", "_", "\\frac{", "</b>", "naïve", "ש", ""):
        assert drawable(token) == token
    assert drawable("a\n") in ("a␊", "a⟨U+000A⟩")
    assert drawable("\u202eש") == "⟨U+202E⟩ש"
    assert drawable("\U0010fffe") == "⟨U+10FFFE⟩"


def test_long_tokens_and_long_texts_are_cut_to_what_can_be_read(peaked):
    tokens = ["x" * 50] + ["t"] * 299
    trace = Trace.from_arrays(peaked(1, 1, 300), [tokens])
    labels = plot_heads(trace).axes[0].get_yticklabels()
    assert labels[0].get_text() == "x" * 39 + "…"
    assert len(labels) == 100


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"layers": [5]}, "There is no layer 5.\nThere are layers 0, 1."),
        ({"heads": [9]}, "There is no head 9.\nThere are heads 0, 1, 2."),
        ({"sequence": -2}, "The trace has sequences 0 to 0; there is no -2."),
    ],
)
def test_what_is_not_there_is_named(pair, request_, message):
    with pytest.raises(InputError) as caught:
        plot_heads(pair.trace, **request_)
    assert str(caught.value) == message


def test_one_axes_takes_one_map(pair):
    with pytest.raises(InputError) as caught:
        plot_heads(pair.trace, ax=plt.subplots()[1])
    assert str(caught.value) == (
        "`ax` takes one map; 2 layers x 3 heads were requested.\n"
        "Name one: plot_heads(trace, layers=[0], heads=[3], ax=ax)."
    )


def test_a_trace_without_weights_says_what_to_capture():
    trace = Trace.from_arrays(tokens=[["a"]], stats={"lse": np.zeros((1, 1, 1, 1))})
    with pytest.raises(InputError, match=r"holds only lse\.\nCapture them: model\.trace"):
        plot_heads(trace)


def test_too_many_maps_are_refused(peaked):
    trace = Trace.from_arrays(peaked(24, 16, 2), [["a", "b"]])
    with pytest.raises(
        InputError, match=r"^24 layers x 16 heads are too many maps; a figure takes"
    ):
        plot_heads(trace)


def test_the_first_token_is_left_out_and_the_figure_says_so(peaked):
    weights = np.tril(peaked(1, 2, 4))
    weights /= weights.sum(-1, keepdims=True)
    trace = Trace.from_arrays(weights, [list("abcd")])
    figure = plot_heads(trace, exclude_first=True)
    for head, ax in enumerate(figure.axes[:2]):
        share = weights[0, 0, head, :, 0].mean()
        name = f"layer 0, head {head}\nfirst token out ({share:.0%}),\nrenormalised"
        assert ax.get_title() == name
        shown = np.asarray(ax.images[0].get_array())
        rest = weights[0, 0, head, 1:, 1:]
        np.testing.assert_allclose(shown[1:, 1:], rest / rest.sum(-1, keepdims=True), rtol=1e-6)
        assert not shown[:, 0].any() and not shown[0].any()
    pixels(figure)


@pytest.fixture
def chinese_font(tmp_path):
    """A font with two Chinese characters, the only one beside DejaVu for one test."""
    builder = FontBuilder(1000)
    builder.setupGlyphOrder([".notdef", "ni", "hao"])
    builder.setupCharacterMap({0x4F60: "ni", 0x597D: "hao"})
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((900, 0), (900, 900), (0, 900)):
        pen.lineTo(corner)
    pen.closePath()
    square = pen.glyph()
    builder.setupGlyf({name: square for name in (".notdef", "ni", "hao")})
    builder.setupHorizontalMetrics({name: (1000, 0) for name in (".notdef", "ni", "hao")})
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": "Two Characters", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(tmp_path / "two.ttf")
    known = font_manager.fontManager
    before = list(known.ttflist)
    known.ttflist[:] = [font for font in before if font.name.startswith("DejaVu")]
    known.addfont(tmp_path / "two.ttf")
    figure_style._fonts.cache_clear()
    figure_style._font_of.cache_clear()
    yield "Two Characters"
    known.ttflist[:] = before
    figure_style._fonts.cache_clear()
    figure_style._font_of.cache_clear()


def test_characters_are_drawn_in_any_font_that_has_them(peaked, chinese_font):
    tokens = ["你好", "abc", "سلام", "\U0010fffe"]
    figure = plot_heads(Trace.from_arrays(peaked(1, 1, 4), [tokens]))
    labels = figure.axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == [*tokens[:3], "⟨U+10FFFE⟩"]
    assert labels[0].get_fontfamily() == ["DejaVu Sans", chinese_font]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of a character that no font has
        pixels(figure)


def test_titles_are_broken_into_lines_that_fit(pair):
    model = "a model whose name is longer than its figure is wide, by far and more than once " * 2
    figure = plot_heads(pair.trace, layers=[0], heads=[0])
    write_title(figure.axes[0], model)
    figure.canvas.draw()
    title, whole = figure.axes[0].title.get_window_extent(), figure.bbox
    assert title.x0 >= whole.x0 and title.x1 <= whole.x1
    assert " ".join(figure.axes[0].get_title().split()) == model.strip()
