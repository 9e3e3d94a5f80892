# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Roles of heads on any side of a model: of a decoder, whose queries see some keys, and of cross.

The sieve bias score of `terms` compares with uniform attention over all N keys. A query that sees
n keys only is compared with uniform attention over these: its score is n times the mass on the set
F of keys it is expected to look at, over the size of F. Queries without a choice do not count: they
have no key in F, or all they see is in F, as the first one of a decoder. So uniform attention
scores exactly 1 on every role here, and a score is again a lift. Sets named here are

* of self-attention: `local` (two positions to either side), `own`, `previous`, `next` and `first`
  position, `delimiter` (pieces the model adds), `duplicate` (the same token elsewhere, before the
  query in a decoder), `induction` (decoder: what followed the same token before), and relations of
  a tree, in a decoder those whose other word came before;
* of cross-attention: `diagonal` (the source position as far along as the target's, and one to
  either side), `end` (pieces that the model adds after the source), `first`, `copy` (source pieces
  that read as the written one).

The causal baseline, `diagonal` and `copy` are ours; no publication is known to define them so.
Maps come in whole; where they come from is not known here.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.errors import InputError
from flaxattn.measures.entropy import entropies
from flaxattn.measures.score_terms import WINDOW, ScoreName, ScoreOptions, ends, related
from flaxattn.text.position_labels import (
    UNIVERSAL_RELATIONS,
    UNIVERSAL_TAGS,
    PositionLabels,
    layout_of,
)
from flaxattn.trace.trace import Trace

ROWS = ("entropy", "max", "sum_sq")
"""Statistics that are no sums of weights; `row_statistics` computes them."""
_SELF = ("local", "own", "previous", "first", "delimiter", "duplicate")
_NAMES = {
    "encoder": (*_SELF, "next"),
    "decoder": (*_SELF, "induction"),
    "cross": ("diagonal", "end", "first", "copy"),
}
_MEANS = {
    "encoder": ("own", "previous", "next", "first", "delimiter", "distance"),
    "decoder": ("own", "previous", "first", "delimiter", "distance"),
    "cross": _NAMES["cross"],
}


class Sieves(NamedTuple):
    """What is asked of the maps of one text.

    Attributes:
        linear: Coefficients of weights by column: a number is their sum over a map.
        ceilings: The highest score that a head could have, by role.
    """

    linear: dict[ScoreName, Float[np.ndarray, "Q K"]]
    ceilings: dict[str, float]


def columns(side: str, asked: ScoreOptions) -> tuple[ScoreName, ...]:
    """The sums of weights that a text of a side may have.

    Args:
        side: `encoder`, `decoder` or `cross`.
        asked: Which relations.
    """
    tree = [] if side == "cross" else asked.syntactic
    scored = [
        ScoreName(kind, name) for name in (*_NAMES[side], *tree) for kind in ("score", "mass")
    ]
    means = [ScoreName("mean", name) for name in _MEANS[side]]
    if tree:
        means += [
            ScoreName("mean", "dependency"),
            *(ScoreName("tag", tag) for tag in UNIVERSAL_TAGS),
        ]
    return (*scored, *(ScoreName("control", name) for name in tree), *means)


def self_sieves(layout: PositionLabels, asked: ScoreOptions, *, causal: bool) -> Sieves:
    """Sets of keys of self-attention over a text.

    Args:
        layout: Of the text; its trees are used where `asked.annotated`.
        asked: Which relations, and the seed of unrelated words.
        causal: Whether a query sees the keys up to itself only.
    """
    count = len(layout)
    place = np.arange(count)
    offset = place - place[:, None]
    seen = offset <= 0 if causal else np.ones((count, count), bool)
    same = (layout.tokens == layout.tokens[:, None]) & layout.plain & layout.plain[:, None]
    sets = {
        "local": abs(offset) <= WINDOW,
        "own": offset == 0,
        "previous": offset == -1,
        "first": np.broadcast_to(place == 0, seen.shape),
        "delimiter": np.broadcast_to(layout.special, seen.shape),
        "duplicate": same & (offset != 0),
    }
    if causal:
        followed = np.roll(same, 1, axis=1)
        followed[:, 0] = False
        sets["induction"] = followed & (offset < 0)
    else:
        sets["next"] = offset == 1
    found = _sums(sets, seen)
    each = 1 / max(count, 1)
    sums = {**sets, "distance": abs(offset)}
    for name in _MEANS["decoder" if causal else "encoder"]:
        found.linear[ScoreName("mean", name)] = sums[name] * each
    if asked.annotated:
        _add_tree(found, layout, asked, seen)
        _add_words(found, layout, seen)
    return found


def cross_sieves(
    written: Sequence[str], pieces: Sequence[str], special: Bool[np.ndarray, " K"]
) -> Sieves:
    """Sets of keys of attention from a target to its source.

    Args:
        written: What the decoder wrote at each of Q positions.
        pieces: Of the source, K.
        special: True at source pieces the model adds.
    """
    queries, keys = len(written), len(pieces)
    place, target = np.arange(keys), np.arange(queries)
    centre = (2 * target + 1) * keys // (2 * max(queries, 1))
    last = max(np.flatnonzero(~special), default=-1)
    shape = queries, keys
    sets = {
        "diagonal": abs(place - centre[:, None]) <= 1,
        "end": np.broadcast_to(special & (place > last), shape),
        "first": np.broadcast_to(place == 0, shape),
        "copy": np.array([[w == p for p in pieces] for w in written]).reshape(shape) & ~special,
    }
    found = _sums(sets, np.ones(shape, bool))
    for name, members in sets.items():
        found.linear[ScoreName("mean", name)] = members / max(queries, 1)
    return found


def _sums(sets: Mapping[str, Bool[np.ndarray, "Q K"]], seen: Bool[np.ndarray, "Q K"]) -> Sieves:
    """Scores, masses and ceilings of sets, over the queries that have a choice."""
    found = Sieves({}, {})
    visible = seen.sum(1)
    for name, keys in sets.items():
        keys = keys & seen
        size = keys.sum(1)
        counted = (size > 0) & (size < visible)
        if not counted.any():
            continue
        lift = counted * visible / np.maximum(size, 1) / counted.sum()
        found.linear[ScoreName("score", name)] = keys * lift[:, None]
        found.linear[ScoreName("mass", name)] = keys * (counted / counted.sum())[:, None]
        found.ceilings[name] = float(lift.sum())
    return found


def _add_tree(
    found: Sieves, layout: PositionLabels, asked: ScoreOptions, seen: Bool[np.ndarray, "N N"]
) -> None:
    """Related words, and unrelated ones as far apart; of a decoder those that are seen."""
    for name, arcs, others in related(layout, asked):
        for side in ("governor", "dependent"):
            role = f"{side}({name})"
            words = _visible([ends(arc, side) for arc in arcs], layout, seen)
            drawn = _visible([ends(arc, side) for arc in others], layout, seen)
            if not words:
                continue
            lift, mass, ceiling = _between(words, layout, seen)
            found.linear[ScoreName("score", role)] = lift
            found.linear[ScoreName("mass", role)] = mass
            found.ceilings[role] = ceiling
            if drawn:
                found.linear[ScoreName("control", role)] = _between(drawn, layout, seen)[0]


def _add_words(found: Sieves, layout: PositionLabels, seen: Bool[np.ndarray, "N N"]) -> None:
    """Mass on parts of speech, and on words that an arc links to the query in either direction."""
    count = len(layout)
    for tag in UNIVERSAL_TAGS:
        members = [p for w, t in zip(layout.words, layout.tags, strict=True) if t == tag for p in w]
        keys = np.zeros(count)
        keys[members] = 1 / count
        found.linear[ScoreName("tag", tag)] = keys * seen
    arcs = layout.linked("any", UNIVERSAL_RELATIONS)
    both = [ends(arc, side) for arc in arcs for side in ("governor", "dependent")]
    known = sum(1 for word in layout.words if word)
    if linked := _visible(both, layout, seen):
        mass = _between(linked, layout, seen)[1]
        found.linear[ScoreName("mean", "dependency")] = mass * len(linked) / known


def _visible(
    words: Sequence[tuple[int, int]], layout: PositionLabels, seen: Bool[np.ndarray, "N N"]
) -> list[tuple[int, int]]:
    """Pairs of words of which the first sees the second."""
    return [(i, j) for i, j in words if seen[layout.words[i][0], layout.words[j][-1]]]


def _between(
    words: Sequence[tuple[int, int]], layout: PositionLabels, seen: Bool[np.ndarray, "N N"]
) -> tuple[Float[np.ndarray, "N N"], Float[np.ndarray, "N N"], float]:
    """Lift and mass between pairs of words, averaged over them, and the highest lift."""
    lift, mass = np.zeros(seen.shape), np.zeros(seen.shape)
    visible, ceiling = seen.sum(1), 0.0
    for one, other in words:
        queries, keys = layout.words[one], layout.words[other]
        share = 1 / len(queries) / len(words)
        for query in queries:
            lift[query, keys] += visible[query] / len(keys) * share
            mass[query, keys] += share
            ceiling += float(visible[query]) / len(keys) * share
    return lift, mass, ceiling


def row_statistics(weights: Float[Any, "*heads Q K"]) -> list[Any]:
    """The statistics of `ROWS` of every query; 0 where it sees nothing.

    Args:
        weights: NumPy or JAX.

    Returns:
        `[*heads, Q]` each, entropy in nats.
    """
    return [entropies(weights), weights.max(-1), (weights**2).sum(-1)]


def values_of(
    weights: Float[np.ndarray, "L H Q K"], sieves: Sieves
) -> dict[ScoreName, Float[np.ndarray, "L H"]]:
    """The numbers of every head on one text, from whole maps.

    Args:
        weights: Rows that sum to one, of a text without padding.
        sieves: Of the text.

    Returns:
        float64 by column.
    """
    weights = np.asarray(weights, np.float64)
    found = {c: np.einsum("lhqk,qk->lh", weights, terms) for c, terms in sieves.linear.items()}
    for name, rows in zip(ROWS, row_statistics(weights), strict=True):
        found[ScoreName("mean", name)] = np.asarray(rows).mean(-1)
    return found


def sieves_of(told: Trace, layout: PositionLabels, side: str, asked: ScoreOptions) -> Sieves:
    """The sets of keys of one text on a side of a model.

    Args:
        told: The text and, beside an encoder, its target; what attention saw is not looked at.
        layout: Of the text: of the source where there is a target.
        side: `encoder`, `decoder` or `cross`.
        asked: Which relations; trees are over sources.

    Raises:
        InputError: If the trace does not tell the pieces that the side needs.
    """
    if side == "cross":
        if not told.written or told.special is None:
            raise InputError(
                "Roles of cross-attention need the pieces that were written, and which pieces of "
                "the source are special.\nTrace texts with their targets, or give written= and "
                "special= to Trace.from_arrays."
            )
        return cross_sieves(told.written[0], told.tokens[0], np.asarray(told.special[0], bool))
    if side == "decoder" and told.decoder_tokens:
        target = Trace(
            tokens=told.decoder_tokens, special=told.decoder_special, words=told.decoder_words
        )
        plain = dataclasses.replace(asked, annotated=False)
        return self_sieves(layout_of(target), plain, causal=True)
    return self_sieves(layout, asked, causal=side == "decoder")
