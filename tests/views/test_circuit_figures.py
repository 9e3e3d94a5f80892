# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of circuits and of the logit lens hold the numbers that they are given."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from drawn_figures import one_line
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.trace.token_predictions import LogitLens


@pytest.fixture(autouse=True)
def closed() -> Any:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def dates() -> Any:
    return fa.from_pretrained("tiny-dates")


def test_maps_have_the_scores_of_every_side(dates: Any) -> None:
    circuits = fa.head_circuits(dates)
    axes = [ax for ax in fa.plot_circuits(circuits).axes if ax.images and ax.get_title()]
    titles = [one_line(ax.get_title()) for ax in axes]
    # Nothing of cross-attention, whose queries and keys are of different vocabularies.
    assert [t for t in titles if t.startswith("encoder")] == [
        "encoder: copying",
        "encoder: matching",
        "encoder: prefix matching",
        "encoder: previous token",
    ]
    assert "decoder: prefix matching" in titles and not any("cross" in t for t in titles)
    tables = dict(zip(titles, axes, strict=True))
    drawn = np.ma.filled(tables["decoder: copying"].images[0].get_array(), np.nan)
    np.testing.assert_allclose(drawn, circuits.copying["decoder"])
    assert tables["decoder: copying"].images[0].get_clim() == (-1, 1)


def test_arrows_are_the_strongest_pairs_and_point_upwards(dates: Any) -> None:
    circuits = fa.head_circuits(dates)
    figure = fa.plot_composition(circuits, "query", 5)
    ax = figure.axes[0]
    arrows = [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
    heads = [patch for patch in ax.patches if isinstance(patch, Circle)]
    assert len(arrows) == 5 and len(heads) == 4 * (3 + 2 + 2)
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "encoder 0",
        "encoder 1",
        "encoder 2",
        "decoder 0",
        "cross 0",
        "decoder 1",
        "cross 1",
    ]
    ends = [arrow._posA_posB for arrow in arrows]
    assert all(high > low for (_, low), (_, high) in ends)
    widths = [arrow.get_linewidth() for arrow in arrows]
    assert widths == sorted(widths)  # the strongest is drawn last
    edges = circuits.edges("query")
    title = one_line(ax.get_title())
    assert title.startswith(f"Q-composition of tiny-dates: the 5 strongest of {len(edges)} pairs")
    assert title.endswith(f"random matrices have {circuits.expected:.3f}")


def test_a_model_without_pairs_has_no_graph(bert: Any) -> None:
    circuits = fa.head_circuits(bert)
    with pytest.raises(InputError, match="has 4 pairs of heads with K-composition"):
        fa.plot_composition(circuits, count=0)
    with pytest.raises(InputError, match="kind: expected one of"):
        fa.plot_composition(circuits, "keys")


def lens() -> LogitLens:
    shares = np.log(np.array([[[0.5], [0.25]], [[0.9], [0.1]]]))
    return LogitLens(
        tokens=["a", "$b$"],
        targets=["b", "c"],
        alternatives=[[["x"], ["y"]], [["b"], ["a longer token"]]],
        follows=np.array([True, False]),
        target_ids=np.array([1, 2]),
        best_ids=np.array([[[3], [4]], [[1], [2]]]),
        likeliest=shares,
        log_probability=shares[..., 0],
        rank=np.array([[2, 3], [1, 1]]),
    )


def test_cells_have_the_likeliest_tokens_and_right_ones_a_frame() -> None:
    ax = fa.plot_logit_lens(lens()).axes[0]
    np.testing.assert_allclose(ax.images[0].get_array(), [[0.5, 0.25], [0.9, 0.1]])
    cells = {t.get_position(): t.get_text() for t in ax.texts}
    assert cells == {(0, 0): "x", (1, 0): "y", (0, 1): "b", (1, 1): "a longer …"}
    frames = [patch.get_xy() for patch in ax.patches if isinstance(patch, Rectangle)]
    assert frames == [(-0.47, 0.55)]  # where nothing follows there is none
    assert [t.get_text() for t in ax.get_yticklabels()] == ["embeddings", "layer 0"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["a", "$b$"]
    assert fa.plot_logit_lens(lens(), first=1).axes[0].images[0].get_array().shape == (2, 1)
    with pytest.raises(InputError, match="first, count: expected positions 0 to 1"):
        fa.plot_logit_lens(lens(), first=2)
