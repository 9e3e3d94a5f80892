# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figure of effects of patching has every unit, and a ring around causal ones."""

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.attribution.patch_effects import PatchReport, UnitEffects


def report(
    shape: tuple[int, int, int], groups: tuple[str, ...], sides: tuple[str, ...], **request: str
) -> PatchReport:
    """Effects of T = 14 pairs, drawn at random; the first unit of each side is causal."""
    effects = []
    for number, side in enumerate(sides):
        each = np.random.default_rng(number).normal(size=(*shape, 14))
        each[0, 0, 0] = 5.0 + np.arange(14) / 10
        effects.append(UnitEffects.of(side, "", each, 0.05, "bonferroni", 0))
    pairs = tuple(fa.TextPair("a b", "a c", "b", "c") for _ in range(14))
    requested = fa.PatchRequest(**request)  # type: ignore[arg-type]
    both = np.ones(14), np.zeros(14)
    return PatchReport(requested, "m", pairs, groups, *both, tuple(effects), 0.05, "bonferroni", 0)


def maps(figure: object) -> list:
    return [ax for ax in figure.axes if ax.images]  # type: ignore[attr-defined]


def rings(ax: object) -> list[tuple[int, int]]:
    found = [line for line in ax.lines if line.get_fillstyle() == "none"]  # type: ignore[attr-defined]
    return [(int(line.get_ydata()[0]), int(line.get_xdata()[0])) for line in found]


def test_heads_are_a_map_for_each_side_on_one_scale() -> None:
    found = report((3, 4, 1), ("all",), ("encoder", "cross"))
    axes = maps(fa.plot_patch_effects(found))
    assert [ax.get_title() for ax in axes] == ["encoder: activation", "cross: activation"]
    far = max(np.abs(one.means).max() for one in found.effects)
    for ax, one in zip(axes, found.effects, strict=True):
        np.testing.assert_allclose(ax.images[0].get_array(), one.means[..., 0])
        assert rings(ax) == [(i, j) for i, j, _ in np.argwhere(one.causal).tolist()] == [(0, 0)]
        assert ax.images[0].get_clim() == pytest.approx((-far, far))
        assert (ax.get_ylabel(), ax.get_xlabel()) == ("layer", "head")


def test_segments_have_a_map_each() -> None:
    names = ("first", "before", "changed", "after", "answered")
    found = report((3, 4, 5), names, ("decoder",), positions="segment")
    axes = maps(fa.plot_patch_effects(found))
    assert [ax.get_title().splitlines()[-1] for ax in axes] == list(names)
    for group, ax in enumerate(axes):
        means = found.effects[0].means[..., group]
        np.testing.assert_allclose(ax.images[0].get_array(), means)
    assert [rings(ax) for ax in axes] == [[(0, 0)], [], [], [], []]


def test_positions_are_columns_of_a_map_of_heads_or_layers() -> None:
    names = tuple(map(str, range(7)))
    by_head = report((3, 4, 7), names, ("decoder",), positions="token")
    (ax,) = maps(fa.plot_patch_effects(by_head))
    assert ax.images[0].get_array().shape == (12, 7)
    assert [label.get_text() for label in ax.get_yticklabels()][5:7] == ["1.1", "1.2"]
    request = {"by": "layer", "site": "layer_output", "positions": "token"}
    by_layer = report((3, 1, 7), names, ("decoder",), **request)
    (ax,) = maps(fa.plot_patch_effects(by_layer))
    np.testing.assert_allclose(ax.images[0].get_array(), by_layer.effects[0].means[:, 0])
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("layer", "position")


def test_the_legend_says_what_a_ring_is() -> None:
    figure = fa.plot_patch_effects(report((2, 2, 1), ("all",), ("decoder",), metric="kl"))
    texts = [text.get_text() for text in figure.texts]
    assert texts == ["ring: causal, p ≤ 0.05 (bonferroni), 14 pairs"]
    assert figure.axes[-1].get_ylabel() == "effect on the KL divergence (nats)"
