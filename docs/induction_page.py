# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The text of `docs/induction.md`: what is claimed, and the sections that show it."""

from typing import Any

from induction_sections import (
    activation_section,
    at,
    contributions_section,
    detect_section,
    interval,
    knockout_section,
    limits_section,
    listed,
    losses_section,
    named,
    paths_section,
    pattern_section,
    weights_section,
)
from page_tables import table

from flaxattn.measures.induction import INDUCTION, PREVIOUS


def claims(facts: dict[str, Any]) -> dict[str, tuple[bool, str]]:
    """Whether each claim about the circuit holds, and the numbers that decide it.

    Args:
        facts: Of the page.
    """
    heads, scores = facts["detected"]["heads"], facts["detected"]["scores"]
    previous, induction = heads[PREVIOUS], heads[INDUCTION]
    best = max(map(max, scores[PREVIOUS]))
    key, first = facts["paths"]["key"], facts["paths"]["first"]
    layer, head = first["head"]
    low = key["low"][layer][head]
    other = max(abs(facts["paths"][into]["means"][layer][head]) for into in ("query", "value"))
    second, added = facts["losses"]["second"], facts["contributions"]["induction"]
    rise, draws = second["rise"][INDUCTION], second["random"]
    return {
        "at least two heads have an induction score of 0.5 or more": (
            len(induction) >= 2,
            f"{len(induction)} heads: {listed(induction)}",
        ),
        "a head has a previous-token score of 0.7 or more": (best >= 0.7, f"{best:.2f}"),
        "a previous-token head has the largest effect through the keys of the induction heads": (
            [layer, head] in previous and low > 0 and first["low"] > 0,
            f"{named(first['head'])}: {at(key, first['head'])}; the next one is "
            f"{named(first['next'])}, {at(key, first['next'])}",
        ),
        "it acts through the keys, not through queries or values": (
            other < 0.1 * key["means"][layer][head],
            f"at most {other:.2f} through either",
        ),
        "the induction heads add to the logit of the word that is repeated": (
            added[1] > 0,
            interval(*added),
        ),
        "without them the loss on the repetition rises more than without any random set": (
            rise[0] > draws[2],
            f"{interval(*rise)} nats; random sets {draws[0]:+.2f} on average, "
            f"{draws[2]:+.2f} at most",
        ),
        "no single head is needed: without any one of them the loss rises by less than 1 nat": (
            max(map(max, facts["losses"]["alone"])) < 1,
            f"{max(map(max, facts['losses']['alone'])):.2f} nats at most",
        ),
    }


def render(facts: dict[str, Any]) -> str:
    """Write the page.

    Args:
        facts: Everything that is on it.
    """
    settings, model = facts["settings"], facts["model"]
    wall, cpu = (sum(each[name] for each in facts["seconds"].values()) for name in ("wall", "cpu"))
    parts = [
        "# The induction circuit of a small GPT-2",
        "<!-- tests: slow -->",
        "`python docs/induction.py` writes this page, its figures and `induction.json`, which has "
        f"more digits. flaxattn {facts['flaxattn']}, jax {facts['jax']}, {facts['date']}, seed "
        f"{settings['seed']}. It took {wall:.0f} seconds on {facts['cores']} cores that were "
        f"shared with other work, {cpu:.0f} seconds of processor time.",
        "A language model that reads `A B … A` can predict `B` by looking back. Elhage et al. "
        "(2021) and Olsson et al. (2022) found how small Transformers do it: a head in an earlier "
        "layer writes to each position which token stands before it, and a later head, the "
        "induction head, looks for the position behind an earlier copy of the current token and "
        f"copies what stands there. Here we look for this circuit in `{model['name']}` "
        f"({model['layers']} layers of {model['heads']} heads), which comes with the library. "
        "Heads are written LAYER.HEAD, both from 0. Intervals are 95% bootstrap intervals over "
        "texts or pairs of texts.",
        "![Scores and effects of every head](induction.png)",
        "Scores of every head, and effects of patching it as a share of the difference between "
        "the two runs; circles are around heads whose effect is significant.",
        "## In short",
        table(
            ["claim", "", "numbers"],
            [
                [claim, "holds" if holds else "**does not hold**", numbers]
                for claim, (holds, numbers) in claims(facts).items()
            ],
        ),
        *detect_section(facts),
        *pattern_section(facts["pattern"]),
        *activation_section(facts),
        *paths_section(facts),
        *weights_section(facts["weights"], facts["detected"]["heads"]),
        *knockout_section(facts["knockout"], facts["detected"]["heads"]),
        *contributions_section(facts["contributions"]),
        *losses_section(facts),
        *limits_section(facts),
    ]
    return "\n\n".join(parts) + "\n"
