# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Two models, or two checkpoints of one, on the same texts: which heads attend differently.

Traces of both go in, text by text; count, mean and spread per head are kept, and no map. The
similarity of two maps is that of Kovaleva et al. 2019 (cosine of the flattened maps) and of Clark
et al. 2019 (Jensen-Shannon divergence). Means say how much a head changed; tests say whether what
it measures (`flaxattn.measures.head_measures.measure`) changed in one direction. Claims follow
`flaxattn.measures.head_change.ClaimRule`.
"""

from collections.abc import Mapping
from typing import Self

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.errors import InputError
from flaxattn.measures.divergence import cosine, jensen_shannon
from flaxattn.measures.head_change import (
    ALIKE,
    LEAST_DIVERGENCE,
    ROLES,
    ClaimRule,
    HeadChange,
    PairedTexts,
    corrected,
    excludes_zero,
    named_role,
    rank,
)
from flaxattn.measures.head_measures import measure
from flaxattn.measures.significance import paired_test, t_test
from flaxattn.pipeline.online_moments import Moments, merged
from flaxattn.trace.record import AttentionRecord, layer_weights
from flaxattn.trace.trace import Trace

MEASURES = (
    "next",
    "previous",
    "own",
    "first",
    "delimiter",
    "same_segment",
    "entropy",
    "distance",
)
"""Measures that are tested for each head of self-attention; for cross-attention, entropy alone."""

_NO_MEAN = ("argmax", "topk_weights", "topk_indices", "received")
Values = dict[tuple[str, str], Float[np.ndarray, "L H"]]


class Comparison:
    """Two models' attention to the same texts, compared while traces come in.

    Memory: a few numbers per head, and for intervals six per head and text, of 20,000 texts at
    most. `merge` joins comparisons of different texts in any order.
    """

    def __init__(self) -> None:
        self._heads: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._found: dict[tuple[str, str], Moments] = {}
        self._first: dict[tuple[str, str], Moments] = {}  # shares in the first model
        self._texts: dict[tuple[str, str], PairedTexts] = {}

    def add(self, first: Trace, second: Trace) -> list[Values]:
        """Add the attention of both models to the same texts.

        Args:
            first: With weights, of texts without padding or with a mask; or with statistics of
                queries, whose means over each text are compared then, by their names.
            second: Trace of the other model: the same tokens, layers and heads.

        Returns:
            What was taken in of each text, by side and name; nan where it is not known.

        Raises:
            InputError: If they are not, or hold no weights of all positions and no statistic in
                common.
        """
        _check_tokens(first, second)
        found: list[Values] = []
        for one, other in [(first, second)] if len(first) == 1 else zip(first, second, strict=True):
            ours, theirs = one.sides, other.sides
            held = [side for side in ours if _comparable(side, ours, theirs)]
            differing = {
                side: _in_both(ours[side], theirs[side]) for side in ours if side in theirs
            }
            differing = {
                side: names for side, names in differing.items() if names and side not in held
            }
            if not held and not differing:
                raise InputError(
                    "The two traces have no weights and no statistic of one side in common.\n"
                    "Ask for them of both models: capture=Capture(weights=True)."
                )
            values: Values = {}
            for side in held:
                values |= self._of_maps(side, ours[side], theirs[side], one)
            for side, names in differing.items():
                values |= self._of_statistics(side, ours[side], theirs[side], names)
            for key, value in values.items():
                _put(self._found, key, _once(value))
                if key[1] in ("divergence", *ROLES):
                    self._texts.setdefault(key, PairedTexts()).add(value)
            found.append(values)
        return found

    def merge(self, other: Self) -> None:
        """Add everything that another one holds.

        Args:
            other: Another one of the same heads; unchanged.

        Raises:
            InputError: If its heads are others.
        """
        for side, heads in other._heads.items():
            self._same_heads(side, heads)
        for mine, theirs in ((self._found, other._found), (self._first, other._first)):
            for key, moments in theirs.items():
                _put(mine, key, moments)
        for key, texts in other._texts.items():
            self._texts.setdefault(key, PairedTexts()).merge(texts)

    def changes(self, rule: ClaimRule | None = None) -> list[HeadChange]:
        """Every head, the one whose attention differs most first.

        Args:
            rule: Level and correction of the tests (their number is heads times measures) and
                seed of the bootstrap; default 0.05, Benjamini and Hochberg's correction, seed 0.

        Raises:
            InputError: For an unknown correction, an alpha outside 0 to 1, or if nothing was taken
                in.
        """
        if not self._found:
            raise InputError("Nothing was compared yet.\nAdd the traces of both models first.")
        rule = rule or ClaimRule()
        tested = {k: paired_test(m)[1] for k, m in self._found.items() if k[1] not in ALIKE}
        p = corrected(tested, rule.correction)
        ends = {key: kept.interval(self._found[key], rule) for key, kept in self._texts.items()}
        changed = self._changed(ends, rule)
        found = [
            self._change(side, place, p, ends, changed, rule.alpha)
            for side, (layers, heads) in self._heads.items()
            for place in np.ndindex(len(layers), len(heads))
        ]
        return sorted(found, key=rank)

    def by_layer(self) -> dict[str, list[tuple[int, float, float]]]:
        """Layer, mean divergence and mean cosine of its heads, by side, layers in order."""
        return {
            side: [
                (layer, float(mean_divergence), float(mean_cosine))
                for layer, mean_divergence, mean_cosine in zip(
                    layers,
                    self._mean(side, "divergence").mean(1),
                    self._mean(side, "cosine").mean(1),
                    strict=True,
                )
            ]
            for side, (layers, _) in self._heads.items()
            if (side, "divergence") in self._found
        }

    @property
    def heads(self) -> Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]:
        """Numbers of layers and heads by side."""
        return self._heads

    @property
    def names(self) -> list[tuple[str, str]]:
        """Sides and names of all that was compared."""
        return list(self._found)

    def place(self, side: str, layer: int, head: int) -> tuple[int, int]:
        """Indices of a head, by the numbers of its layer and itself."""
        layers, heads = self._heads[side]
        return layers.index(layer), heads.index(head)

    def table(self, side: str, name: str) -> Float[np.ndarray, "L H"]:
        """Means over texts of one number of every head.

        Args:
            side: `encoder`, `decoder` or `cross`.
            name: `divergence`, `cosine`, or one of `MEASURES` for its change.

        Raises:
            InputError: If it was not compared.
        """
        if (side, name) not in self._found:
            known = ", ".join(f"{s} {n}" for s, n in self._found)
            raise InputError(f"There is no {name} of {side}.\nThere are {known or 'none'}.")
        return self._mean(side, name)

    def _changed(
        self, ends: Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]], rule: ClaimRule
    ) -> dict[str, Bool[np.ndarray, "L H"]]:
        """Heads whose divergence is above the least, by its interval and by a corrected test."""
        divergences = {k: m for k, m in self._found.items() if k[1] == "divergence"}
        p = corrected(
            {k: t_test(m, LEAST_DIVERGENCE)[1] for k, m in divergences.items()}, rule.correction
        )
        return {k[0]: (ends[k][0] > LEAST_DIVERGENCE) & (p[k] < rule.alpha) for k in divergences}

    def _roles(self, side: str, place: tuple[int, ...]) -> tuple[str, str]:
        """Names of what a head does in both models, over all texts."""
        known = {n: self._first[side, n] for n in ROLES if (side, n) in self._first}
        if not known or not any(moments.counts[place] for moments in known.values()):
            return "", ""
        before = {n: float(m.mean[place]) for n, m in known.items() if m.counts[place]}
        after = {n: share + float(self._found[side, n].mean[place]) for n, share in before.items()}
        return named_role(before), named_role(after)

    def _mean(self, side: str, name: str) -> Float[np.ndarray, "L H"]:
        """Means over texts; nan where nothing is known."""
        moments = self._found[side, name]
        return np.where(moments.counts > 0, moments.mean, np.nan)

    def _of_maps(
        self, side: str, one: AttentionRecord, other: AttentionRecord, text: Trace
    ) -> Values:
        self._same_heads(side, (one.layers, one.heads))
        self._same_heads(side, (other.layers, other.heads))
        maps = [layer_weights(record, record.layers, allow_nan=True) for record in (one, other)]
        maps = [weights.astype(np.float64) for weights in maps]
        broken = np.isnan(maps[0] + maps[1]).any((-2, -1))
        maps = [_shares(weights) for weights in maps]
        before, after = (_measured(side, weights, text) for weights in maps)
        flat = (each.reshape(*each.shape[:2], -1) for each in maps)
        found = {"divergence": jensen_shannon(*maps).mean(-1), "cosine": cosine(*flat)}
        found |= {name: after[name] - before[name] for name in before}
        for name in ROLES.keys() & before.keys():
            share = np.where(broken, np.nan, before[name])
            _put(self._first, (side, name), _once(share))
        return {
            (side, name): np.where(broken, np.nan, value) if broken.any() else value
            for name, value in found.items()
        }

    def _of_statistics(
        self, side: str, one: AttentionRecord, other: AttentionRecord, names: list[str]
    ) -> Values:
        self._same_heads(side, (one.layers, one.heads))
        self._same_heads(side, (other.layers, other.heads))
        means = [
            {name: np.asarray(record.stats[name], np.float64)[:, 0].mean(-1) for name in names}
            for record in (one, other)
        ]
        return {(side, name): means[1][name] - means[0][name] for name in names}

    def _same_heads(self, side: str, heads: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
        known = self._heads.setdefault(side, heads)
        if known != heads:
            raise InputError(
                f"The {side}s differ: layers {_listed(known[0])} with heads {_listed(known[1])}, "
                f"and layers {_listed(heads[0])} with heads {_listed(heads[1])}.\n"
                "Compare models of one shape, or capture the same layers and heads."
            )

    def _change(
        self,
        side: str,
        place: tuple[int, ...],
        p: Mapping[tuple[str, str], np.ndarray],
        ends: Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]],
        changed: Mapping[str, np.ndarray],
        alpha: float,
    ) -> HeadChange:
        layers, heads = self._heads[side]
        names = [name for at, name in p if at == side]
        own = self._found.get((side, "divergence"))
        count = max(int(m.counts[place]) for (at, _), m in self._found.items() if at == side)
        spread = np.nan if own is None or count < 2 else float(own.m2[place]) / (count - 1)
        alike = [self._mean(side, n)[place] if own is not None else np.nan for n in ALIKE]
        levels = {name: float(p[side, name][place]) for name in names}
        significant = tuple(name for name, value in levels.items() if value < alpha)
        claimed = own is not None and bool(changed[side][place])
        roles = self._roles(side, place)
        moved = [n for n, name in ROLES.items() if name in roles and roles[0] != roles[1]]
        marked = [n in significant and bool(_is_change(ends[side, n], place)) for n in moved]
        low, high = ends.get((side, "divergence"), (None, None))
        return HeadChange(
            side=side,
            layer=layers[place[0]],
            head=heads[place[1]],
            divergence=float(alike[0]),
            divergence_error=float(np.sqrt(spread / max(count, 1))),
            interval=(np.nan, np.nan)
            if low is None or high is None
            else (float(low[place]), float(high[place])),
            changed=claimed,
            roles=roles,
            role_changed=claimed and bool(marked) and all(marked),
            cosine=float(alike[1]),
            changes={name: float(self._mean(side, name)[place]) for name in names},
            p=levels,
            significant=significant,
            texts=count,
        )


def _put(found: dict[tuple[str, str], Moments], key: tuple[str, str], moments: Moments) -> None:
    before = found.get(key)
    found[key] = moments if before is None else merged(before, moments)


def _is_change(ends: tuple[np.ndarray, np.ndarray], place: tuple[int, ...]) -> bool:
    """Return whether the interval of a head lies on one side of 0."""
    return bool(excludes_zero(ends[0][place], ends[1][place]))


def _in_both(one: AttentionRecord, other: AttentionRecord) -> list[str]:
    """Statistics of queries that both have."""
    return [name for name in one.stats if name in other.stats and name not in _NO_MEAN]


def _measured(side: str, weights: np.ndarray, text: Trace) -> dict[str, np.ndarray]:
    """Numbers of one text that are tested."""
    if side == "cross":
        logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
        return {"entropy": -(weights * logs).sum(-1).mean(-1)}
    alone = side == "encoder" or not text.decoder_tokens
    special = text.special if alone else text.decoder_special
    segments = text.segments if alone else None
    parts = [None if array is None else np.asarray(array)[0] for array in (special, segments)]
    found = measure(weights, *parts)
    return {name: np.asarray(found[name], np.float64) for name in MEASURES}


def _shares(weights: Float[np.ndarray, "*heads Q K"]) -> Float[np.ndarray, "*heads Q K"]:
    """Rows that sum to one exactly, of weights that were rounded when they were stored."""
    total = weights.sum(-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)


def _once(values: Float[np.ndarray, "L H"]) -> Moments:
    """Moments of a single observation, or of none where it is not known."""
    known = ~np.isnan(values)
    return Moments(known.astype(np.int64), np.where(known, values, 0.0), np.zeros(values.shape))


def _comparable(
    side: str, ours: Mapping[str, AttentionRecord], theirs: Mapping[str, AttentionRecord]
) -> bool:
    if side not in theirs or ours[side].weights is None or theirs[side].weights is None:
        return False
    ours[side].require_whole("A comparison")
    theirs[side].require_whole("A comparison")
    return True


def _check_tokens(first: Trace, second: Trace) -> None:
    """Both read the same tokens: then rows and columns mean the same."""
    for name in ("tokens", "decoder_tokens"):
        ours, theirs = ([list(row) for row in getattr(t, name)] for t in (first, second))
        if ours != theirs or not first.tokens:
            pairs = zip(ours, theirs, strict=False)
            place = next(
                (n for n, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs))
            )
            raise InputError(
                f"The two traces are not of the same {name}: they differ in sequence {place}.\n"
                "Compare models with one tokenizer, on the same texts in the same order."
            )


def _listed(numbers: tuple[int, ...]) -> str:
    whole = numbers == tuple(range(len(numbers))) and len(numbers) > 2
    return f"0 to {len(numbers) - 1}" if whole else ", ".join(map(str, numbers))
