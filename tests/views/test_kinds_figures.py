# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of weights other than attention, of effects of ablation, and of weights that are NaN."""

import dataclasses
import json

import numpy as np
import pytest
from drawn_figures import one_line

import flaxattn as fa
from flaxattn.attribution.ablation import HeadEffects
from flaxattn.errors import InputError
from flaxattn.measures.head_measures import head_values
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_style import diverging

LENGTH = 4


@pytest.fixture(scope="module")
def trace(peaked) -> Trace:
    """Two layers, three heads, two texts."""
    weights = np.concatenate([peaked(2, 3, LENGTH, seed=s) for s in (0, 1)], 1)
    return Trace.from_arrays(weights, [list("abcd"), list("efgh")])


@pytest.fixture(scope="module")
def norms(peaked) -> np.ndarray:
    """`[L, B, H, Q, K]`."""
    return np.concatenate([peaked(2, 3, LENGTH, seed=s) for s in (7, 8)], 1) * 5


def maps(figure) -> dict[str, np.ndarray]:
    """What the maps of a figure draw, by title."""
    return {ax.get_title(): np.asarray(ax.images[0].get_array()) for ax in figure.axes[:-1]}


def test_maps_are_shares_of_the_largest_of_the_layer_and_say_so(trace, norms):
    figure = fa.plot_heads(trace, heads=[1], sequence=1, weights={"norm": norms})
    peaks = norms[:, 1].max((1, 2, 3))
    expected = [f"layer {n}, head 1\n1 = {peak:.4g}" for n, peak in enumerate(peaks)]
    assert list(maps(figure)) == expected
    for n, drawn in enumerate(maps(figure).values()):
        np.testing.assert_allclose(drawn, norms[n, 1, 1] / peaks[n], rtol=1e-5)
    assert figure.axes[-1].get_ylabel() == "‖αf(x)‖\n÷ the largest value of each layer"
    shares = fa.contributions(trace, ["rollout"])
    (drawn,) = maps(fa.plot_heads(trace, [1], [2], weights=shares)).items()
    assert drawn[0] == "layer 1, head 2"
    np.testing.assert_allclose(drawn[1], shares["rollout"]["encoder"][0][1, 2], atol=1e-6)


def test_signs_have_colours_on_either_side_of_nothing(trace, norms):
    signed = {"gradient": norms - 1}
    for figure in (
        fa.plot_heads(trace, [0], [0], weights=signed),
        fa.plot_model(trace, weights=signed),
    ):
        image = figure.axes[0].images[0]
        assert image.get_clim() == (-1, 1) and image.get_cmap() == diverging()
        assert np.nanmin(image.get_array()) < 0


def test_the_first_key_is_left_out_and_norms_stay_as_they_are(trace, norms):
    figure = fa.plot_heads(trace, [0], [0], weights={"norm": norms}, exclude_first=True)
    ((title, drawn),) = maps(figure).items()
    assert title.endswith("\nfirst token out") and not drawn[:, 0].any()
    np.testing.assert_allclose(drawn[:, 1:], norms[0, 0, 0, :, 1:] / norms[0, 0].max(), rtol=1e-5)


def test_the_atlas_measures_sizes_as_shares_and_draws_effects(trace, norms):
    figure = fa.plot_atlas(trace, "previous", weights={"norm": -norms})
    rows = (norms / norms.sum(-1, keepdims=True)).astype(np.float32)
    expected = head_values(Trace.from_arrays(rows, trace.tokens), "previous").values
    np.testing.assert_allclose(figure.axes[0].images[0].get_array(), expected, atol=1e-6)
    title = one_line(figure.axes[0].get_title())
    assert title == "encoder: previous of ‖αf(x)‖, as shares of each row"
    means = np.array([[0.5, -0.1, 0.0], [0.2, 0.3, -0.4]])
    effects = HeadEffects("ablation", {"head_mask": means}, {"head_mask": means}, 2.5, 12)
    figure = fa.plot_atlas(trace, "ablation", effects=effects, order="value")
    image = figure.axes[0].images[0]
    np.testing.assert_array_equal(image.get_array(), [[0.5, 0.3, 0.2], [0, -0.1, -0.4]])
    assert image.get_clim() == (-0.5, 0.5)
    title = figure.axes[0].get_title().replace("\n", " ")
    assert "mean over 12 texts, whose loss is 2.5" in title


def test_the_state_of_a_page_draws_the_weights_that_it_shows(trace, norms):
    given = {"weights": {"norm": norms, "gradient": norms - 1}}
    state = {"weights": "norm", "layer": 1, "heads": [2], "sequence": 1, "drawing": "matrix"}
    ((title, drawn),) = maps(fa.plot_state(trace, json.dumps(state), **given)).items()
    scaled = norms[1, 1, 2] / norms[1, 1].max()
    np.testing.assert_allclose(drawn, scaled, rtol=1e-5)
    hidden = maps(fa.plot_state(trace, state | {"first": "hidden", "mass": 70}, **given))
    ((title, drawn),) = hidden.items()
    assert (
        "first token out, 70% of each row's mass" in one_line(title) and "renormalised" not in title
    )
    kept = drawn > 0
    np.testing.assert_allclose(drawn[kept], scaled[kept], rtol=1e-5)
    rest = scaled[:, 1:].sum(-1)
    assert (drawn.sum(-1) >= 0.7 * rest - 1e-5).all() and not drawn[:, 0].any()
    atlas = fa.plot_state(trace, state | {"level": "atlas", "measure": "own"}, **given)
    rows = norms[:, 1:] / norms[:, 1:].sum(-1, keepdims=True)
    expected = head_values(Trace.from_arrays(rows, trace.tokens[1:]), "own").values
    np.testing.assert_allclose(atlas.axes[0].images[0].get_array(), expected, atol=1e-6)
    model = fa.plot_state(trace, {"level": "model", "weights": "gradient"}, **given)
    assert model.axes[0].images[0].get_clim() == (-1, 1)


def test_a_prompt_and_its_continuation_are_parts_of_a_state(trace):
    record = dataclasses.replace(trace[0].encoder)
    segments = np.array([[0, 1, 1, 1]])
    written = dataclasses.replace(trace[0], encoder=None, decoder=record, segments=segments)
    matrix = {"heads": [1], "drawing": "matrix"}
    ((title, drawn),) = maps(fa.plot_state(written, {**matrix, "attention": "ba"})).items()
    assert title.endswith("\ncontinuation → prompt")
    np.testing.assert_array_equal(drawn, np.asarray(record.weights)[0, 0, 1, 1:, :1])


def test_what_cannot_be_drawn_is_reported(trace, norms):
    with pytest.raises(InputError, match="A figure draws one kind of weights, received norm, own"):
        fa.plot_heads(trace, weights={"norm": norms, "own": norms})
    with pytest.raises(InputError, match="This state shows the weights 'norm'; plot_state was giv"):
        fa.plot_state(trace, {"weights": "norm"})


@pytest.fixture(scope="module")
def broken(peaked) -> np.ndarray:
    """A row of head 0.1 and all of head 1.0 are NaN."""
    weights = peaked(2, 3, LENGTH)
    weights[0, 0, 1, 2] = np.nan
    weights[1, 0, 0] = np.nan
    return weights


def test_nan_is_hatched_in_maps_and_said(broken):
    trace = Trace.from_arrays(broken, [list("abcd")])
    figure = fa.plot_heads(trace)
    titles = list(maps(figure))
    assert titles[0] == "layer 0, head 0"
    assert titles[1] == "layer 0, head 1\nhatched: 4 are NaN"
    assert titles[3] == "layer 1, head 0\nhatched: 16 are NaN"
    hatches = [ax.patch.get_hatch() for ax in figure.axes[:6]]
    assert [bool(hatch) for hatch in hatches] == [False, True, False, True, False, False]
    drawn = maps(fa.plot_heads(trace, [0], [1], exclude_first=True))
    (array,) = (np.ma.filled(a, np.nan) for a in drawn.values())
    np.testing.assert_array_equal(np.isnan(array).all(1), [False, False, True, False])


def test_a_hatched_cell_is_not_of_one_colour(broken):
    trace = Trace.from_arrays(broken, [list("abcd")])
    figure = fa.plot_heads(trace, [0], [1])
    figure.canvas.draw()
    pixels, ax = np.asarray(figure.canvas.buffer_rgba()), figure.axes[0]

    def colours(row: int) -> int:
        x, y = ax.transData.transform((1.0, row)).astype(int)
        part = pixels[len(pixels) - y - 5 : len(pixels) - y + 5, x - 5 : x + 5, :3]
        return len(np.unique(part.reshape(-1, 3), axis=0))

    assert colours(2) > 1 == colours(1)


def test_nan_has_a_colour_of_its_own_in_thumbnails_and_a_hatch_in_the_atlas(broken):
    trace = Trace.from_arrays(broken, [list("abcd")])
    ax = fa.plot_model(trace).axes[0]
    assert ax.get_title().endswith("red: 20 are NaN") and len(ax.images) == 2
    marked = np.ma.filled(ax.images[1].get_array(), np.nan)
    assert np.nansum(marked) == 20
    ax = fa.plot_atlas(trace).axes[0]
    assert ax.get_title().endswith("\nhatched: not a number")
    assert sorted(tuple(p.get_xy()) for p in ax.patches) == [(-0.5, 0.5), (0.5, -0.5)]
    assert fa.plot_atlas(trace, order="cluster").axes[0].get_title().endswith("not a number")
