# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of roles of heads: how many heads of each layer have each, how they overlap; and means.

The numbers come from `flaxattn.measures`; nothing is tested or measured here.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from flaxattn.errors import check_arguments
from flaxattn.measures.role_tests import Roles
from flaxattn.views.figures.figure_scale import page_colours
from flaxattn.views.figures.plot_heads import add_scale, draw_map, map_axes, write_tokens
from flaxattn.views.figures.shown_once import shown_once
from flaxattn.views.payloads.claim_marks import claim_marks

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
