# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of roles of heads: counts by layer, the strongest role of each, circles of overlap."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.ndimage import distance_transform_edt
from scipy.optimize import brentq, minimize

from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.role_tests import Roles
from flaxattn.views.figures.figure_style import page_colours, shown_once
from flaxattn.views.figures.plot_heads import add_scale, draw_map, map_axes, write_tokens
from flaxattn.views.payloads.report_payload import FAMILIES, claim_marks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@shown_once
@check_arguments()
def plot_roles(roles: Roles) -> "Figure":
    """Draw the share of heads of each layer with a role, and of those with another one too.

    Pale is 0, dark blue 1. Roles have the codes and the hues of the page. On the right, a row shows
    of the heads with its role how many have that of the column; a role that no head has is pale
    throughout.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> roles = fa.head_roles(model, ["The cat is very sad.", "It was late."])
    >>> figure = fa.plot_roles(roles)

    Args:
        roles: From `fa.head_roles`.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: If `roles` is not a `Roles`.
    """
    import matplotlib.pyplot as plt

    names = list(roles.roles)
    marks = claim_marks(names)
    coded = [f"{name}  {marks[name].code}" for name in names]
    layers = [str(layer) for layer in roles.layers]
    found = np.stack([roles.roles[name].found for name in names])
    share = found.mean(2)
    flat = found.reshape(len(names), -1).astype(float)
    both = flat @ flat.T / np.maximum(flat.sum(1), 1)[:, None]
    size = (0.2 * (len(layers) + len(names)) + 4.0, 0.2 * len(names) + 2.2)
    ratios = [max(len(layers), 4), max(len(names), 4)]
    figure, axes = plt.subplots(
        1, 2, figsize=size, width_ratios=ratios, layout="constrained", squeeze=False
    )
    draw_map(axes[0, 0], share, "heads of a layer with the role", even=True)
    write_tokens(axes[0, 0], coded, layers, names=("role", "layer"))
    draw_map(axes[0, 1], both, "heads of the row with the column's role", even=True)
    write_tokens(axes[0, 1], names, coded, rows=False, names=("", "role"))
    for axis in (axes[0, 0].yaxis, axes[0, 1].xaxis):
        for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True):
            label.set_color(page_colours()[marks[names[round(place)]].variable])
    add_scale(axes, "share of heads")
    return figure


@shown_once
def plot_head_means(
    layers: tuple[int, ...],
    heads: tuple[int, ...],
    means: Mapping[str, Float[np.ndarray, "L H"]],
    label: str = "share of attention",
) -> "Figure":
    """Draw shares per head, a map for each measure, pale at 0 and dark blue at 1."""
    across = min(len(means), 4)
    down = -(-len(means) // across)
    labels = [[str(number) for number in numbers] for numbers in (layers, heads)]
    axes = map_axes(*labels, rows=range(down), columns=range(across))
    for place, ax in enumerate(axes.flat):
        if place >= len(means):
            ax.set_visible(False)
            continue
        name = list(means)[place]
        draw_map(ax, means[name], name, even=True)
        last = place + across >= len(means)
        write_tokens(ax, *labels, rows=place % across == 0, columns=last, names=("layer", "head"))
    add_scale(axes, label)
    return axes[0, 0].figure


_NONE = "#f0f0ee"  # of heads without a role
_CODED = 1200  # heads up to which each cell has the code of its role


def strongest_roles(roles: Roles) -> Int[np.ndarray, "L H"]:
    """Return for each head the index of its role with the highest mean score; -1 without a role."""
    scores = np.stack(
        [np.where(role.found, role.score, -np.inf) for role in roles.roles.values()]
        or [np.full((len(roles.layers), len(roles.heads)), -np.inf)]
    )
    return np.where(np.isfinite(scores).any(0), scores.argmax(0), -1)


@shown_once
@check_arguments()
def plot_role_grid(roles: Roles) -> "Figure":
    """Draw a square for each head, in the colour and with the code of its strongest role.

    The strongest role of a head is that with the highest mean score, its lift over uniform
    attention, among those that the test found (Pande et al. 2021). A head may have others, which
    `fa.plot_role_overlap` counts. Pale squares have none.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> roles = fa.head_roles(model, ["The cat is very sad.", "It was late."] * 4)
    >>> fa.plot_role_grid(roles).savefig("grid.png")

    Args:
        roles: From `fa.head_roles`.

    Returns:
        The figure, to be shown or saved with `figure.savefig`.

    Raises:
        InputError: For anything but roles.
    """
    import matplotlib.pyplot as plt
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Patch

    names = list(roles.roles)
    marks, strongest = claim_marks(names), strongest_roles(roles)
    inks = [page_colours()[marks[name].variable] for name in names]
    colours = np.array([to_rgb(ink) for ink in [*inks, _NONE]])  # the last one is that of -1
    count = [int((strongest == number).sum()) for number in range(-1, len(names))]
    shown = [number for number in range(len(names)) if count[number + 1]]
    height = max(0.28 * len(roles.layers), 0.2 * len(shown)) + 1.4
    size = (0.28 * len(roles.heads) + 4.2, height)
    figure, ax = plt.subplots(figsize=size, layout="constrained")
    ax.imshow(colours[strongest], aspect="equal", interpolation="nearest")
    labels = [[str(number) for number in numbers] for numbers in (roles.layers, roles.heads)]
    write_tokens(ax, *labels, names=("layer", "head"))
    if strongest.size <= _CODED:
        for (layer, head), number in np.ndenumerate(strongest):
            if number >= 0:
                dark = colours[number] @ (0.3, 0.6, 0.1) < 0.55
                code = marks[names[number]].code
                ink = "white" if dark else "black"
                ax.text(head, layer, code, ha="center", va="center", fontsize=5.5, color=ink)
    patches = [
        Patch(color=inks[n], label=f"{marks[names[n]].code}  {names[n]}: {count[n + 1]}")
        for n in shown
    ]
    patches.append(Patch(color=_NONE, label=f"no role: {count[0]}"))
    legend = ax.legend(
        handles=patches, loc="upper left", bbox_to_anchor=(1.02, 1), fontsize=7, frameon=False
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    ax.set_title("strongest role of each head", fontsize=9)
    return figure


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
