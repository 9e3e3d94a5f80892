# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A figure of the strongest role of every head: layers by heads, coloured by role.

The numbers come from `flaxattn.measures.role_tests`; nothing is tested here.
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

from flaxattn.errors import check_arguments
from flaxattn.measures.role_tests import Roles
from flaxattn.views.figures.figure_scale import page_colours
from flaxattn.views.figures.plot_heads import write_tokens
from flaxattn.views.figures.shown_once import shown_once
from flaxattn.views.payloads.claim_marks import claim_marks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
