# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A page's state, given to Python, draws the picture the page shows, filters and pins included."""

import json
import re

import numpy as np
import pytest
from drawn_figures import curves_of, ink, lines_of, one_line, tokens_of
from matplotlib.colors import to_rgba

from flaxattn.errors import InputError
from flaxattn.measures.head_measures import head_values
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_style import format_number, format_weight, head_colour
from flaxattn.views.figures.plot_atlas import plot_atlas
from flaxattn.views.figures.plot_neuron import TOP_DIMENSIONS
from flaxattn.views.figures.plot_state import plot_state

MATRIX = {"drawing": "matrix"}


def only(figure):
    """The one matrix of a figure."""
    return np.asarray(figure.axes[0].images[0].get_array())


def labels(figure):
    return [text.get_text() for text in figure.axes[0].get_yticklabels()]


def title(figure):
    return one_line(figure.axes[0].get_title())


def rows_of(pair, figure, heads, queries=None, keys=None):
    """Opacities that are drawn, by head, query and key."""
    every = range(pair.length)
    return lines_of(figure, heads, list(queries or every), list(keys or every))


def assert_opacities(drawn, shares):
    """Every line is there that a screen can show, as strong as it should be."""
    for place, share in shares.items():
        assert ink(share) < 1 / 255 or abs(drawn[place] - ink(share)) < 1e-6, place
    assert drawn.keys() <= shares.keys()


def weights_of(shares, layer, heads):
    return {
        (h, q, k): float(shares[layer, h, q, k])
        for h in heads
        for q, k in np.ndindex(shares.shape[2:])
    }


def test_a_head_level_draws_lines_of_the_heads_that_are_on(pair):
    state = {"level": "head", "side": "encoder", "layer": 1, "heads": [2, 0], "query": None}
    for given in (state, json.dumps(state)):
        figure = plot_state(pair.trace, given)
        drawn = rows_of(pair, figure, [0, 2])
        assert_opacities(drawn, weights_of(pair.shares, 1, [0, 2]))
        assert title(figure) == "tiny-bert, encoder, layer 1, heads 0 2 opacity: weight"
        assert [text for _, text in tokens_of(figure, "left")] == pair.tokens
        swatches = {p.get_gid(): p.get_facecolor() for p in figure.axes[0].patches if p.get_gid()}
        assert swatches == {f"head-{n}": to_rgba(head_colour(n)) for n in (0, 2)}
    assert_opacities(
        rows_of(pair, plot_state(pair.trace, {}), [0, 1, 2]), weights_of(pair.shares, 0, range(3))
    )


@pytest.mark.parametrize("drawing", ["lines", "matrix"])
def test_gold_pairs_that_are_not_drawn_are_named(pair, drawing):
    state = {"heads": [0], "drawing": drawing}
    named = plot_state(pair.trace, state | {"gold": "subject"}).axes[0].get_title()
    assert "without the gold pairs of subject" in " ".join(named.split())
    assert "gold" not in plot_state(pair.trace, state | {"gold": "none"}).axes[0].get_title()


def test_lines_have_the_colours_of_their_heads(pair):
    curves = curves_of(plot_state(pair.trace, {"heads": [1]}).axes[0])
    expected = to_rgba(head_colour(1))[:3]
    assert (curves.get_edgecolors()[:, :3] == expected).all() and len(curves.get_paths()) > 100
    assert curves.get_linewidths()[0] == 2 * 0.75  # pixels of the page, in points


@pytest.mark.parametrize("opacity", ["row", "heads"])
def test_opacity_is_what_the_state_says(pair, opacity):
    drawn = rows_of(pair, plot_state(pair.trace, {"opacity": opacity}), [0, 1, 2])
    shares = pair.shares / (pair.shares.max(-1, keepdims=True) if opacity == "row" else 3)
    assert_opacities(drawn, weights_of(shares, 0, range(3)))


def test_a_pin_leaves_the_lines_of_its_token_and_writes_their_means(pair):
    for pin, name, other in (({"query": 3}, "left", "right"), ({"key": 5}, "right", "left")):
        figure = plot_state(pair.trace, pin)
        drawn = rows_of(pair, figure, [0, 1, 2])
        place = next(iter(pin.values()))
        at = 1 if name == "left" else 2
        assert {line[at] for line in drawn} == {place}
        means = pair.shares[0].mean(0)[place if name == "left" else np.s_[:, place]]
        shown = {t.get_position()[1]: t.get_text() for t in figure.axes[0].texts}
        texts = [t.get_text() for t in figure.axes[0].texts]
        assert [text for text in texts if re.fullmatch(r"<?\d\.\d{3}", text)] == [
            format_weight(float(mean)) for mean in means
        ]
        held = [p for p in figure.axes[0].patches if p.get_facecolor() == to_rgba("#fff2c9")]
        (row,) = (p.get_y() + p.get_height() / 2 for p in held)
        assert row == tokens_of(figure, name)[place][0] and row in shown, other


def test_a_matrix_frames_what_is_pinned_and_stays_whole(pair):
    figure = plot_state(pair.trace, MATRIX | {"heads": [1, 2], "query": 3, "key": 5})
    np.testing.assert_array_equal(only(figure), pair.shares[0, 1])
    frames = [p.get_bbox().bounds for p in figure.axes[0].patches if p.get_gid() == "pin"]
    assert frames == [(-0.5, 2.5, 13, 1), (4.5, -0.5, 1, 13)]
    drawn = only(plot_state(pair.trace, MATRIX | {"opacity": "row"}))
    np.testing.assert_allclose(drawn, pair.shares[0, 0] / pair.shares[0, 0].max(-1)[:, None])


def test_sentence_pairs_and_hidden_tokens_are_as_in_the_page(pair):
    drawn = only(plot_state(pair.trace, MATRIX | {"attention": "ba"}))
    np.testing.assert_array_equal(drawn, pair.shares[0, 0, pair.boundary :, : pair.boundary])
    figure = plot_state(pair.trace, MATRIX | {"special": "hidden", "first": "hidden"})
    kept = [i for i in range(pair.length) if i not in pair.special]
    rest = pair.shares[0, 0][np.ix_(kept, kept)]
    np.testing.assert_allclose(only(figure), rest / rest.sum(-1, keepdims=True), rtol=1e-5)
    assert labels(figure) == [pair.tokens[i] for i in kept]
    assert "special tokens and first token out, renormalised" in title(figure)
    figure = plot_state(pair.trace, {"attention": "ab"})
    lines = rows_of(pair, figure, [0, 1, 2], range(pair.boundary), range(pair.boundary, 13))
    assert len(lines) > 90 and not dividers(figure)
    (left, right) = dividers(plot_state(pair.trace, {}))
    assert left == right == pair.boundary * 26


def dividers(figure):
    """Heights of the lines between two sentences."""
    return [line.get_ydata()[0] for line in figure.axes[0].lines if line.get_gid() == "divider"]


def test_words_join_their_tokens(translation):
    state = {"side": "encoder", "unit": "words", "heads": [1]}
    figure = plot_state(translation.trace, state)
    tokens = [text for _, text in tokens_of(figure, "left")]
    assert tokens == ["<b>ein</b>", " Haus", " am", " See", "</s>"]
    groups = [[0], [1, 2], [3], [4], [5]]
    whole = translation.shares["encoder"][0, 1]
    expected = {
        (1, i, j): float(whole[np.ix_(a, b)].sum(1).mean())
        for i, a in enumerate(groups)
        for j, b in enumerate(groups)
    }
    assert_opacities(lines_of(figure, [1], range(5), range(5)), expected)


def test_the_slider_of_mass_keeps_the_fewest_heaviest_weights(pair):
    figure = plot_state(pair.trace, MATRIX | {"heads": [2], "mass": 60})
    assert "60% of each row's mass" in title(figure)
    for row, drawn in zip(pair.shares[0, 2], only(figure), strict=True):
        heaviest = np.sort(row)[::-1]
        count = int(np.searchsorted(heaviest.cumsum(), 0.6 - 1e-6)) + 1
        np.testing.assert_array_equal(drawn, np.where(row >= heaviest[count - 1], row, 0))


def test_other_levels_draw_their_figures(pair):
    figure = plot_state(pair.trace, {"level": "atlas", "measure": "own", "order": "value"})
    same = plot_atlas(pair.trace[0], "own", order="value")
    for ours, theirs in zip(figure.axes, same.axes, strict=True):
        assert [t.get_text() for t in ours.texts] == [t.get_text() for t in theirs.texts]
    drawn = np.asarray(figure.axes[0].images[0].get_array())
    np.testing.assert_array_equal(
        drawn, -np.sort(-head_values(pair.trace, "own").values.ravel()).reshape(2, 3)
    )
    model = plot_state(pair.trace, {"level": "model", "first": "hidden", "mass": 50}).axes[0]
    assert model.get_title() == "first token out, renormalised"
    corner = np.asarray(model.images[0].get_array())[: pair.length, : pair.length]
    rest = pair.shares[0, 0].copy()
    rest[:, 0] = 0
    np.testing.assert_allclose(corner, rest / rest.sum(-1, keepdims=True), rtol=1e-5)


@pytest.fixture
def products() -> Trace:
    """A trace whose weights are those of its queries and keys; two heads of 20 features."""
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 1, 1, 6, 2, 20)).astype(np.float32)
    scores = np.einsum("lbqhd,lbkhd->lbhqk", q, k) / np.sqrt(20)
    shares = np.exp(scores)
    shares /= shares.sum(-1, keepdims=True)
    record = AttentionRecord(weights=shares, query=q, key=k, layers=(6,), heads=(0, 1))
    special = np.array([[True, False, False, False, False, False]])
    return Trace(encoder=record, tokens=[list("abcdef")], special=special)


def test_the_neuron_level_draws_the_pinned_query(products):
    state = {"level": "neuron", "side": "encoder", "layer": 6, "heads": [1], "query": 2}
    ax = plot_state(products, state).axes[0]
    assert ax.get_title().startswith("layer 6, head 1, query 2: c")
    ax = plot_state(products, state | {"query": None}).axes[0]
    assert ax.get_title().startswith("layer 6, head 1, query 1: b")  # the first is special


def test_the_neuron_level_sorts_keys_and_dimensions_and_writes_numbers(products):
    state = {"level": "neuron", "heads": [1], "query": 2, "dimensions": "top", "numbers": "on"}
    ax = plot_state(products, state | {"sorting": "weight", "key": 4}).axes[0]
    record = products.encoder
    q, k = np.asarray(record.query)[0, 0, 2, 1], np.asarray(record.key)[0, 0, :, 1]
    shares = np.asarray(record.weights)[0, 0, 1, 2]
    keys, top = np.argsort(-shares), np.argsort(-np.abs(q * k[4]))[:TOP_DIMENSIONS]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["abcdef"[key] for key in keys]
    drawn = [np.asarray(image.get_array()) for image in ax.images]
    np.testing.assert_array_equal(drawn[2], k[keys][:, top])
    np.testing.assert_array_equal(drawn[3], (k * q)[keys][:, top])
    np.testing.assert_allclose(drawn[0][:, 0], shares[keys], rtol=1e-6)
    # What is left out is added up, so that the row still adds up to q·k.
    np.testing.assert_allclose(drawn[3].sum(1) + drawn[4][:, 0], drawn[5][:, 0], rtol=1e-4)
    np.testing.assert_allclose(drawn[5][:, 0], (k @ q)[keys], rtol=1e-5)
    texts = [text.get_text() for text in ax.texts]
    for value in k[keys][:, top].ravel():
        assert format_number(float(value)) in texts
    assert {str(d) for d in top} <= set(texts)
    (frame,) = (p for p in ax.patches if p.get_gid() == "pin")
    row = keys.tolist().index(4)
    assert (frame.get_y(), frame.get_height()) == (row - 0.5, 1)
    bare = plot_state(products, {"level": "neuron", "query": 2}).axes[0]
    assert np.asarray(bare.images[1].get_array()).shape == (6, TOP_DIMENSIONS)
    state = {"level": "neuron", "query": 2, "dimensions": "all", "sorting": "position"}
    assert np.asarray(plot_state(products, state).axes[0].images[1].get_array()).shape == (6, 20)


def test_a_walk_without_a_pinned_key_is_drawn_with_that_of_most_attention(products):
    state = {"level": "neuron", "heads": [1], "query": 2, "walk": "softmax"}
    ax = plot_state(products, state).axes[0]
    (frame,) = (p for p in ax.patches if p.get_gid() == "pin")
    assert frame.get_y() == -0.5, "the first row, as keys are sorted by weight"


def test_cross_attention_starts_at_the_layer_of_the_page(peaked):
    trace = Trace.from_arrays(
        peaked(1, 2, 3),
        [list("abc")],
        cross_weights=peaked(3, 2, 2, keys=3),
        decoder_weights=peaked(1, 2, 2),
        decoder_tokens=[["<s>", "x"]],
        decoder_special=np.array([[True, False]]),
    )
    figure = plot_state(trace, MATRIX | {"side": "cross"})
    np.testing.assert_array_equal(only(figure), np.asarray(trace.cross.weights)[1, 0, 0])
    hidden = plot_state(trace, MATRIX | {"side": "decoder", "special": "hidden"})
    assert labels(hidden) == ["x"] and only(hidden).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("{", r"state: this is not JSON: .*\nCopy it whole from a page\."),
        ("[]", "state: expected a mapping such as .*, received list"),
        (
            {"level": "roof"},
            r"state: level is 'roof'\.\nUse one of .atlas., .model., ",
        ),
        (
            {"unit": "words"},
            "This state shows words; it is not known which tokens of the text make",
        ),
        ({"side": "all"}, "shows all sides in one square, which no figure draws"),
        ({"layer": 9}, r"There is no layer 9\.\nThere are layers 0, 1"),
        ({"heads": [7]}, "There is no head 7"),
        ({"sequence": 4}, "there is no 4"),
        ({"query": 99}, r"state: query is 99\.\nThere are positions 0 to 12 on that side"),
    ],
)
def test_a_state_that_does_not_fit_is_refused_in_three_lines(pair, state, message):
    with pytest.raises(InputError, match=message) as caught:
        plot_state(pair.trace, state)
    assert len(str(caught.value).splitlines()) <= 3
