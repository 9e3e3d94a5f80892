# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The grid shows the strongest role of each head; circles share as many heads as roles do."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Circle

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.measures.role_tests import Reach, Role, Roles, Test
from flaxattn.views.figures.figure_style import page_colours
from flaxattn.views.figures.plot_roles import lens_area, overlap_circles, part_counts
from flaxattn.views.payloads.report_payload import claim_marks

NAMES = ("local", "cls", "delimiter", "governor(nsubj)", "block_entropy")
REACH = Reach(9, 10.0, 1.0, 0.3, 9.0, 0, 1)


def roles_of(found, score):
    """Roles with these decisions and scores, `[names, layers, heads]`."""
    rows = zip(NAMES, found, score, strict=True)
    made = {
        name: Role(name, 9, value, value, value, value, value, there, None, REACH)
        for name, there, value in rows
    }
    layers, heads = (tuple(range(n)) for n in found.shape[1:])
    return Roles(layers, heads, made, Test(), found.size)


@pytest.fixture
def roles():
    rng = np.random.default_rng(3)
    return roles_of(rng.random((5, 6, 8)) < 0.3, rng.random((5, 6, 8)) * 9)


def test_the_grid_has_the_colour_of_the_strongest_role(roles):
    figure = fa.plot_role_grid(roles)
    ax = figure.axes[0]
    drawn = np.asarray(ax.images[0].get_array())
    marks, texts = claim_marks(NAMES), {text.get_position(): text.get_text() for text in ax.texts}
    counts = dict.fromkeys(NAMES, 0)
    none = 0
    for layer, head in itertools.product(range(6), range(8)):
        held = [name for name in NAMES if roles.roles[name].found[layer, head]]
        if not held:
            none += 1
            assert (head, layer) not in texts
            continue
        best = max(held, key=lambda name: roles.roles[name].score[layer, head])
        counts[best] += 1
        ink = to_rgb(page_colours()[marks[best].variable])
        np.testing.assert_allclose(drawn[layer, head], ink)
        assert texts[head, layer] == marks[best].code
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    expected = [f"{marks[name].code}  {name}: {count}" for name, count in counts.items() if count]
    assert names == [*expected, f"no role: {none}"]


def test_a_grid_without_roles_is_pale():
    nothing = np.zeros((5, 2, 3), bool)
    figure = fa.plot_role_grid(roles_of(nothing, np.ones(nothing.shape)))
    assert [t.get_text() for t in figure.axes[0].get_legend().get_texts()] == ["no role: 6"]


def test_counts_of_parts_by_hand(roles):
    names = ["local", "cls", "delimiter"]
    figure = fa.plot_role_overlap(roles, names)
    sets = np.array([roles.roles[name].found.ravel() for name in names])
    counts = part_counts(sets)
    for pattern in itertools.product((False, True), repeat=3):
        exactly = int((pattern == sets.T).all(1).sum())
        assert counts.get(pattern, 0) == (exactly if any(pattern) else 0)
    assert sum(counts.values()) == int(sets.any(0).sum())
    ax = figure.axes[0]
    written = [text.get_text() for text in ax.texts]
    circles = [patch for patch in ax.patches if isinstance(patch, Circle)]
    assert len(circles) == 6, "a disc and an edge for each"
    for name, found in zip(names, sets, strict=True):
        assert f"{name} ({found.sum()})" in written
    numbers = [int(text) for text in written if text.isdigit()]
    hidden = [int(line.rpartition(": ")[2]) for line in written[-1].splitlines()[1:]]
    assert sorted([*numbers, *hidden]) == sorted(counts.values())
    assert written[-1].startswith(f"{int((~sets.any(0)).sum())} of 48 heads have none of these")
    for text in ax.texts:
        if text.get_text().isdigit():  # it stands in the part that it counts
            x, y = text.get_position()
            inside = tuple(
                bool((x - c.center[0]) ** 2 + (y - c.center[1]) ** 2 <= c.radius**2)
                for c in circles[::2]
            )
            assert counts[inside] == int(text.get_text())


@pytest.mark.parametrize("shared", [0, 3, 7, 10])
def test_two_circles_have_the_areas_of_their_heads(shared):
    first = np.arange(40) < 10
    second = (np.arange(40) >= 10 - shared) & (np.arange(40) < 30 - shared)
    circles = overlap_circles(np.array([first, second]))
    np.testing.assert_allclose(np.pi * circles[:, 2] ** 2, [10, 20])
    (x, y, r), (u, v, s) = circles.tolist()
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (400_000, 2)) * r + (x, y)
    inside = (((points - (x, y)) ** 2).sum(1) <= r**2) & (((points - (u, v)) ** 2).sum(1) <= s**2)
    assert inside.mean() * 4 * r**2 == pytest.approx(shared, abs=0.12)
    assert lens_area(r, s, float(np.hypot(x - u, y - v))) == pytest.approx(shared, abs=1e-3)


def test_families_are_the_default(roles):
    figure = fa.plot_role_overlap(roles)
    written = [text.get_text() for text in figure.axes[0].texts]
    both = roles.roles["cls"].found | roles.roles["delimiter"].found
    assert f"delimiters and first tokens ({both.sum()})" in written
    assert f"position ({roles.roles['local'].found.sum()})" in written


def test_refusals(roles):
    with pytest.raises(InputError, match="role 'loca' is unknown\nexpected 1 to 4 of local, cls"):
        fa.plot_role_overlap(roles, ["loca"])
    with pytest.raises(InputError, match="plot_role_overlap: 5 roles given"):
        fa.plot_role_overlap(roles, NAMES)
    nothing = np.zeros((5, 2, 3), bool)
    with pytest.raises(InputError, match="no head has one of these roles, so there is nothing"):
        fa.plot_role_overlap(roles_of(nothing, np.ones(nothing.shape)))
