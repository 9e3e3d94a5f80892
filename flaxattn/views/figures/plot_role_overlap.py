# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Circles of the heads that have roles: how many heads have one, and how many have several.

Areas of circles, and of what two of them share, are numbers of heads as nearly as circles allow;
the numbers themselves are written into the parts.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.ndimage import distance_transform_edt
from scipy.optimize import brentq, minimize

from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.role_tests import Roles
from flaxattn.views.figures.figure_scale import page_colours
from flaxattn.views.figures.shown_once import shown_once
from flaxattn.views.payloads.claim_marks import FAMILIES, claim_marks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST = 4  # circles, whose parts can still be distinguished
_APART = 1.08  # of the sum of radii, between circles that share nothing
_GRID = 400  # points of each axis at which parts are looked for
_ROOM = 0.012  # of the width, that a part needs around its number

Members = Mapping[str, Bool[np.ndarray, "L H"]]
Circles = Float[np.ndarray, "N 3"]


@shown_once
@check_arguments()
def plot_role_overlap(roles: Roles, names: Sequence[str] | None = None) -> "Figure":
    """Draw a circle for each role, or family of roles, with the heads that have it.

    Numbers count the heads of each part: those with these roles and none of the others. Parts that
    circles cannot show are listed below (Pande et al. 2021 draw such circles of local, syntactic,
    delimiter and block heads).

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> roles = fa.head_roles(model, ["The cat is very sad.", "It was late."] * 4)
    >>> fa.plot_role_overlap(roles).savefig("overlap.png")

    Args:
        roles: From `fa.head_roles`.
        names: One to four roles; default the families of roles that most heads have, at most four,
            where a head belongs to a family with any of its roles.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: For an unknown role, more than four, or where no head has one.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patches import Circle

    members, inks = _members(roles, names)
    titles, sets = list(members), np.array([found.ravel() for found in members.values()])
    circles = overlap_circles(sets)
    figure, ax = plt.subplots(figsize=(5.2, 4.4), layout="constrained")
    middle = circles[:, :2].mean(0)
    for (x, y, radius), title, ink, found in zip(circles.tolist(), titles, inks, sets, strict=True):
        ax.add_patch(Circle((x, y), radius, facecolor=ink, alpha=0.3, linewidth=0))
        ax.add_patch(Circle((x, y), radius, facecolor="none", edgecolor=ink, linewidth=1.2))
        away = np.array([x, y]) - middle
        away = away / np.linalg.norm(away) if np.linalg.norm(away) > 1e-9 else np.array([0.0, 1.0])
        spot = np.array([x, y]) + away * (radius + 0.06 * circles[:, 2].max())
        align = "center" if abs(away[0]) < 0.3 else "left" if away[0] > 0 else "right"
        rise = "bottom" if away[1] >= 0 else "top"
        ax.text(
            float(spot[0]),
            float(spot[1]),
            f"{title} ({int(found.sum())})",
            ha=align,
            va=rise,
            fontsize=8,
            color=ink,
            parse_math=False,
        )
    hidden = []
    spots = _spots(circles)
    for pattern, count in part_counts(sets).items():
        if pattern in spots:
            ax.text(*spots[pattern], str(count), ha="center", va="center", fontsize=8)
        else:
            both = " and ".join(
                title for title, inside in zip(titles, pattern, strict=True) if inside
            )
            hidden.append(f"{both}: {count}")
    outside = int((~sets.any(0)).sum())
    notes = [f"{outside} of {sets.shape[1]} heads have none of these", *hidden]
    ax.text(
        0.5,
        -0.02,
        "\n".join(notes),
        transform=ax.transAxes,
        ha="center",
        va="top",
        fontsize=7,
        parse_math=False,
    )
    ax.set_aspect("equal")
    ax.autoscale_view()
    ax.margins(0.22)
    ax.set_axis_off()
    return figure


def part_counts(sets: Bool[np.ndarray, "N heads"]) -> dict[tuple[bool, ...], int]:
    """Number of heads with exactly the same roles, by which these are; none without heads."""
    counts: dict[tuple[bool, ...], int] = {}
    for head in sets.T.tolist():
        if any(head):
            counts[tuple(head)] = counts.get(tuple(head), 0) + 1
    return counts


def overlap_circles(sets: Bool[np.ndarray, "N heads"]) -> Circles:
    """Place circles so that areas are numbers of heads: x, y and radius of each.

    Circles have exactly that area; what each two of them share has it exactly for two circles, and
    as nearly as least squares of distances allow for more.
    """
    count = len(sets)
    radii = np.sqrt(sets.sum(1) / np.pi)
    wanted = np.zeros((count, count))
    for i, j in itertools.combinations(range(count), 2):
        shared = float((sets[i] & sets[j]).sum())
        wanted[i, j] = wanted[j, i] = _distance(radii[i], radii[j], shared)
    angles = 2 * np.pi * np.arange(count) / count
    start = np.stack([np.cos(angles), np.sin(angles)], 1) * wanted.max() / 2

    def strain(flat: np.ndarray) -> float:
        places = flat.reshape(count, 2)
        return sum(
            (np.linalg.norm(places[i] - places[j]) - wanted[i, j]) ** 2
            for i, j in itertools.combinations(range(count), 2)
        )

    places = minimize(strain, start.ravel(), method="L-BFGS-B").x.reshape(count, 2)
    return np.column_stack([places, radii])


def lens_area(one: float, other: float, distance: float) -> float:
    """Area that two circles share."""
    if distance >= one + other:
        return 0.0
    if distance <= abs(one - other):
        return float(np.pi * min(one, other) ** 2)
    parts = 0.0
    for r, s in ((one, other), (other, one)):
        half = np.arccos(np.clip((distance**2 + r**2 - s**2) / (2 * distance * r), -1, 1))
        parts += r**2 * (half - np.sin(2 * half) / 2)
    return float(parts)


def _distance(one: float, other: float, shared: float) -> float:
    """Distance at which two circles share an area."""
    low, high = abs(one - other), one + other
    if shared <= 0:
        return float(_APART * high)
    if shared >= np.pi * min(one, other) ** 2 * (1 - 1e-9):
        return float(low)
    found: Any = brentq(lambda d: lens_area(one, other, d) - shared, low, high)
    return float(found)


def _spots(circles: Circles) -> dict[tuple[bool, ...], tuple[float, float]]:
    """The roomiest point of every part that circles make, by which circles it is in."""
    low = (circles[:, :2] - circles[:, 2:]).min(0)
    high = (circles[:, :2] + circles[:, 2:]).max(0)
    step = float((high - low).max()) / _GRID
    xs, ys = (np.arange(a - step, b + 2 * step, step) for a, b in zip(low, high, strict=True))
    x, y = np.meshgrid(xs, ys)
    inside = np.stack([(x - a) ** 2 + (y - b) ** 2 <= r**2 for a, b, r in circles.tolist()])
    spots = {}
    for pattern in itertools.product((False, True), repeat=len(circles)):
        part = (inside == np.array(pattern)[:, None, None]).all(0)
        if any(pattern) and part.any():
            room = np.asarray(distance_transform_edt(np.pad(part, 1)))[1:-1, 1:-1]
            place = np.unravel_index(int(room.argmax()), room.shape)
            if room[place] >= _ROOM * _GRID:
                spots[pattern] = (float(x[place]), float(y[place]))
    return spots


def _members(roles: Roles, names: Sequence[str] | None) -> tuple[Members, list[str]]:
    """Heads of each circle by its name, and its colour."""
    marks, colours = claim_marks(roles.roles), page_colours()
    members: dict[str, np.ndarray] = {}
    if names is None:
        for name, role in roles.roles.items():
            family = FAMILIES[marks[name].family].name
            members[family] = members.get(family, np.zeros_like(role.found)) | role.found
        held = sorted((f for f in members if members[f].any()), key=lambda f: -members[f].sum())
        members = {family: members[family] for family in held[:_MOST]}
        places = [[family.name for family in FAMILIES].index(name) for name in members]
        inks = [colours[f"claim-{place}-0"] for place in places]
    else:
        chosen = list(dict.fromkeys([names] if isinstance(names, str) else names))
        unknown = [name for name in chosen if name not in roles.roles]
        if unknown or not 1 <= len(chosen) <= _MOST:
            problem = f"role {unknown[0]!r} is unknown" if unknown else f"{len(chosen)} roles given"
            raise InputError(
                f"plot_role_overlap: {problem}\nexpected 1 to {_MOST} of {', '.join(roles.roles)}"
            )
        members = {name: roles.roles[name].found for name in chosen}
        inks = [colours[marks[name].variable] for name in chosen]
    filled = {name: found for name, found in members.items() if found.any()}
    if not filled:
        raise InputError(
            "no head has one of these roles, so there is nothing to draw\n"
            "test with a lower tau, or on more texts"
        )
    return filled, [ink for ink, found in zip(inks, members.values(), strict=True) if found.any()]
