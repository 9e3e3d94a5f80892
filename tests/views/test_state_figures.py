# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A page's state, given to Python, draws the picture the page shows, filters and pins included."""

import json

import numpy as np
import pytest

from flaxattn.errors import InputError
from flaxattn.measures.head_values import head_values
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.plot_atlas import plot_atlas
from flaxattn.views.figures.plot_state import plot_state


def maps(figure):
    """What the maps of a figure draw, by title."""
    return {ax.get_title(): np.asarray(ax.images[0].get_array()) for ax in figure.axes[:-1]}


def only(figure):
    """The one map of a figure."""
    ((_, array),) = maps(figure).items()
    return array


def labels(figure):
    return [text.get_text() for text in figure.axes[0].get_yticklabels()]


def test_a_head_level_draws_the_heads_that_are_on(pair):
    state = {"level": "head", "side": "encoder", "layer": 1, "heads": [2, 0], "query": None}
    for given in (state, json.dumps(state)):
        drawn = maps(plot_state(pair.trace, given))
        assert list(drawn) == ["layer 1, head 2", "layer 1, head 0"]
        np.testing.assert_array_equal(drawn["layer 1, head 0"], pair.shares[1, 0])
    assert list(maps(plot_state(pair.trace, {}))) == [f"layer 0, head {n}" for n in range(3)]


def test_pins_leave_one_row_or_column(pair):
    one = {"heads": [1]}
    drawn = plot_state(pair.trace, one | {"query": 3})
    np.testing.assert_array_equal(only(drawn), pair.shares[0, 1, 3:4])
    assert labels(drawn) == [pair.tokens[3]]
    drawn = plot_state(pair.trace, one | {"key": 5})
    np.testing.assert_array_equal(only(drawn), pair.shares[0, 1, :, 5:6])


def test_sentence_pairs_and_hidden_tokens_are_as_in_the_page(pair):
    drawn = only(plot_state(pair.trace, {"heads": [0], "attention": "ba"}))
    np.testing.assert_array_equal(drawn, pair.shares[0, 0, pair.boundary :, : pair.boundary])
    figure = plot_state(pair.trace, {"heads": [0], "special": "hidden", "first": "hidden"})
    kept = [i for i in range(pair.length) if i not in pair.special]
    rest = pair.shares[0, 0][np.ix_(kept, kept)]
    np.testing.assert_allclose(only(figure), rest / rest.sum(-1, keepdims=True), rtol=1e-5)
    assert labels(figure) == [pair.tokens[i] for i in kept]
    assert "special tokens and first token out, renormalised" in next(iter(maps(figure)))


def test_the_slider_of_mass_keeps_the_fewest_heaviest_weights(pair):
    figure = plot_state(pair.trace, {"heads": [2], "mass": 60})
    assert "60% of each row's mass" in next(iter(maps(figure)))
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
    model = plot_state(pair.trace, {"level": "model", "first": "hidden"}).axes[0]
    assert model.get_title() == "first token out, renormalised"
    corner = np.asarray(model.images[0].get_array())[: pair.length, : pair.length]
    rest = pair.shares[0, 0].copy()
    rest[:, 0] = 0
    np.testing.assert_allclose(corner, rest / rest.sum(-1, keepdims=True), rtol=1e-5)


def test_the_neuron_level_draws_the_pinned_query(peaked):
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 1, 1, 4, 2, 3)).astype(np.float32)
    seen = AttentionRecord(weights=peaked(1, 2, 4), query=q, key=k, layers=(6,), heads=(0, 1))
    trace = Trace(encoder=seen, tokens=[list("abcd")])
    state = {"level": "neuron", "side": "encoder", "layer": 6, "heads": [1], "query": 2}
    ax = plot_state(trace, state).axes[0]
    assert ax.get_title().startswith("layer 6, head 1, query 2: c")


def test_cross_attention_starts_at_the_layer_of_the_page(peaked):
    trace = Trace.from_arrays(
        peaked(1, 2, 3),
        [list("abc")],
        cross_weights=peaked(3, 2, 2, keys=3),
        decoder_weights=peaked(1, 2, 2),
        decoder_tokens=[["<s>", "x"]],
        decoder_special=np.array([[True, False]]),
    )
    figure = plot_state(trace, {"side": "cross", "heads": [0]})
    np.testing.assert_array_equal(only(figure), np.asarray(trace.cross.weights)[1, 0, 0])
    hidden = plot_state(trace, {"side": "decoder", "heads": [0], "special": "hidden"})
    assert labels(hidden) == ["x"] and only(hidden).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("{", r"This state is no JSON: .*\nCopy it whole from the page\."),
        ("[]", "A state is a JSON object, received list"),
        (
            {"level": "roof"},
            r"state: level is 'roof'\.\nUse one of .atlas., .model., ",
        ),
        ({"unit": "words"}, "This state shows words; figures draw the pieces"),
        ({"side": "all"}, "shows all sides in one square, which no figure draws"),
        ({"layer": 9}, r"There is no layer 9\.\nThere are layers 0, 1"),
        ({"heads": [7]}, "There is no head 7"),
        ({"sequence": 4}, "there is no 4"),
        ({"query": 99}, "shows no position of the text: all are filtered away"),
    ],
)
def test_a_state_that_does_not_fit_is_told_in_three_lines(pair, state, message):
    with pytest.raises(InputError, match=message) as caught:
        plot_state(pair.trace, state)
    assert len(str(caught.value).splitlines()) <= 3
