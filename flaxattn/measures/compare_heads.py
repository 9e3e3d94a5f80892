# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Two models, or two checkpoints of one, on the same texts: which heads attend differently.

Traces of both go in, text by text; count, mean and spread per head are kept, and no map. The
similarity of two maps is that of Kovaleva et al. 2019 (cosine of the flattened maps) and of Clark
et al. 2019 (Jensen-Shannon divergence). Means say how much a head changed; tests say whether what
it measures (`flaxattn.measures.head_measures.measure`) changed in one direction. Numbers of every
head on each text are kept for bootstrap intervals; `ClaimRule` says when a change is claimed.
`role_changes` compares the roles of two models, such as before and after fine-tuning.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from flaxattn.errors import InputError
from flaxattn.measures.divergence import cosine, jensen_shannon
from flaxattn.measures.head_measures import MAJORITY, measure
from flaxattn.measures.role_tests import Roles, Test, find_roles
from flaxattn.measures.scores import ScoreAccumulator, Scores, moments_of, scores_of
from flaxattn.measures.significance import (
    CORRECTIONS,
    adjusted,
    bootstrap_interval,
    paired_test,
    t_test,
)
from flaxattn.measures.specs import ScoreOptions
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


@dataclasses.dataclass(frozen=True)
class ClaimRule:
    """Conditions on which a change between two models is claimed.

    Attributes:
        alpha: Level of the tests; intervals hold 1 - alpha.
        correction: For the number of tests: `none`, `bonferroni` or `bh`.
        draws: Number of draws of the bootstrap.
        seed: Seed of the draws.

    Raises:
        InputError: For an unknown correction or an alpha outside 0 to 1.
    """

    alpha: float = 0.05
    correction: str = "bh"
    draws: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise InputError(f"alpha is {self.alpha}, expected a number between 0 and 1.")
        if self.correction not in CORRECTIONS:
            raise InputError(
                f"correction {self.correction!r} is unknown.\n"
                f"Choose one of {', '.join(CORRECTIONS)}."
            )

    def __str__(self) -> str:
        """The rule in words, for reports and pages."""
        level = f"{100 * (1 - self.alpha):g} %"
        return (
            f"A head is said to have changed where the {level} bootstrap interval of its "
            f"divergence over the texts ({self.draws:,} draws, seed {self.seed}) lies above "
            f"{LEAST_DIVERGENCE} nats and a one-sided t-test agrees at {self.alpha:g}, with "
            f"{_NAMES[self.correction]} for the number of heads. Of such a head, a role is said to "
            f"have changed where the {level} interval of the paired difference of its share or "
            "score excludes 0 and the paired t-test agrees, corrected for heads and roles. "
            "With a single text nothing is claimed."
        )


@dataclasses.dataclass(frozen=True)
class HeadChange:
    """Difference of one head of the second model from that of the first.

    Attributes:
        side: `encoder`, `decoder` or `cross`.
        layer: Number of the layer.
        head: Number of the head.
        divergence: Jensen-Shannon divergence in nats, mean over queries and then over texts; from
            0 to log 2; nan, as the cosine, where statistics were compared and no maps.
        divergence_error: Standard error of that mean over texts; nan for a single text.
        interval: Bootstrap interval of that mean over texts; nan for a single text.
        changed: Whether a change is claimed, by `ClaimRule`.
        roles: What the head does in the first model and in the second, over all texts; `mixed`
            where nothing gets more than half of its attention, empty where it is not known.
        role_changed: Whether a change of that is claimed, by `ClaimRule`.
        cosine: Cosine of the flattened maps, mean over texts.
        changes: Second minus first of every measure, mean over texts; nan if it is not known.
        p: P-value of the paired two-sided t-test of each change, corrected.
        significant: Measures whose corrected p is below alpha.
        texts: Number of texts that the head was compared on.
    """

    side: str
    layer: int
    head: int
    divergence: float
    divergence_error: float
    interval: tuple[float, float]
    changed: bool
    roles: tuple[str, str]
    role_changed: bool
    cosine: float
    changes: Mapping[str, float]
    p: Mapping[str, float]
    significant: tuple[str, ...]
    texts: int


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


LEAST_DIVERGENCE = 0.01
"""Nats that the interval of a head's divergence must exceed for a change to be claimed."""
_KEPT = 20_000  # texts whose numbers stay in memory
_NAMES: dict[str, str] = dict(
    zip(
        CORRECTIONS,
        (
            "without correction",
            "Bonferroni’s correction",
            "Holm’s correction",
            "Benjamini and Hochberg’s correction",
        ),
        strict=True,
    )
)


class PairedTexts:
    """Numbers of every head, text by text.

    Memory: one number for each head and text, of 20,000 texts at most. With more texts none is
    kept, and intervals are those of the t distribution.
    """

    def __init__(self) -> None:
        self._values: list[Float[np.ndarray, "L H"]] = []
        self._count = 0

    def add(self, values: Float[np.ndarray, "L H"]) -> None:
        """Add a text."""
        self._values.append(np.asarray(values, np.float32))
        self._count += 1
        self._drop()

    def merge(self, other: Self) -> None:
        """Add all texts of another one."""
        self._values.extend(other._values)
        self._count += other._count
        self._drop()

    def _drop(self) -> None:
        if self._count > _KEPT:
            self._values.clear()

    def interval(
        self, moments: Moments, rule: ClaimRule
    ) -> tuple[Float[np.ndarray, "L H"], Float[np.ndarray, "L H"]]:
        """Interval of the mean over texts, whatever the order of the texts.

        Returns:
            Lower and upper end; nan where fewer than two texts have a number.
        """
        if self._count > _KEPT:
            return _t_interval(moments, rule.alpha)
        shape = moments.mean.shape
        flat = np.sort(np.stack(self._values).astype(np.float64).reshape(self._count, -1), axis=0)
        counts = (~np.isnan(flat)).sum(0)
        ends = np.full((2, flat.shape[1]), np.nan)
        for count in np.unique(counts):  # sorted, what is known comes first
            some = counts == count
            parts = flat[:count, some], 1 - rule.alpha, rule.draws, rule.seed
            ends[:, some] = bootstrap_interval(*parts)
        return ends[0].reshape(shape), ends[1].reshape(shape)


def excludes_zero(
    low: Float[np.ndarray, "*shape"], high: Float[np.ndarray, "*shape"]
) -> Bool[np.ndarray, "*shape"]:
    """Return whether intervals lie on one side of 0."""
    return (low > 0) | (high < 0)


def _t_interval(moments: Moments, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean plus and minus its standard error times the quantile of the t distribution."""
    count = np.asarray(moments.counts, np.float64)
    freedom = np.maximum(count - 1, 1)
    error = np.sqrt(np.maximum(moments.m2, 0) / freedom / np.maximum(count, 1))
    reach = stats.t.ppf(1 - alpha / 2, freedom) * error
    few = count < 2
    return (
        np.where(few, np.nan, moments.mean - reach),
        np.where(few, np.nan, moments.mean + reach),
    )


ALIKE = ("divergence", "cosine")
ROLES = {
    "next": "next token",
    "previous": "previous token",
    "own": "own token",
    "delimiter": "delimiters",
    "first": "first token",
}
"""Names of the shares of which one that is above one half names what a head does."""


def corrected(
    p: Mapping[tuple[str, str], np.ndarray], correction: str
) -> dict[tuple[str, str], np.ndarray]:
    """P-values of several tables, corrected for all of them together."""
    if not p:
        return {}
    flat = adjusted(np.concatenate([values.ravel() for values in p.values()]), correction)
    parts = np.split(flat, np.cumsum([values.size for values in p.values()])[:-1])
    return {k: part.reshape(p[k].shape) for k, part in zip(p, parts, strict=True)}


def named_role(shares: Mapping[str, float]) -> str:
    """Name of what gets more than half of the attention, or `mixed`."""
    best = max(shares, key=lambda name: shares[name])
    return ROLES[best] if shares[best] > MAJORITY else "mixed"


def rank(change: HeadChange) -> tuple[bool, float, float]:
    """Sort key: largest change first, unknown ones last, then the smallest p-value."""
    surest = min((p for p in change.p.values() if not np.isnan(p)), default=1.0)
    return bool(np.isnan(change.divergence)), -np.nan_to_num(change.divergence), surest


_SCORES = ScoreOptions(annotated=False)
_COUNTED = ("gained", "lost", "unsupported")


@dataclasses.dataclass(frozen=True)
class RoleChange:
    """Change of one role in one layer.

    Attributes:
        role: Name of the role.
        layer: Number of the layer.
        before: Number of its heads that had the role.
        after: Number of heads that have it.
        gained: Heads that have it and had it not.
        lost: Heads that had it and have it not.
        unsupported: Heads that have it in one of the two only, where the difference between the
            two supports no claim; `gained` and `lost` leave them out.
    """

    role: str
    layer: int
    before: int
    after: int
    gained: tuple[int, ...]
    lost: tuple[int, ...]
    unsupported: tuple[int, ...] = ()


def role_changes(
    before: Mapping[str, Bool[np.ndarray, "L H"]],
    after: Mapping[str, Bool[np.ndarray, "L H"]],
    layers: Iterable[int] | None = None,
    supported: Mapping[str, Bool[np.ndarray, "L H"]] | None = None,
) -> list[RoleChange]:
    """Changes of roles, the layers and roles with most changes first.

    Args:
        before: Whether each head has each role, in the first model.
        after: In the second: the same roles and heads.
        layers: Numbers of the layers; default 0, 1, ….
        supported: Whether the difference between the two supports a claim, by role; default it
            does everywhere.

    Returns:
        An entry for every role and layer.

    Raises:
        InputError: If roles or shapes differ.
    """
    if set(before) != set(after):
        differ = ", ".join(sorted(set(before) ^ set(after)))
        raise InputError(f"Only one of the tables has {differ}.\nFind the same roles in both.")
    found = []
    for role, had in before.items():
        old, new = np.asarray(had, bool), np.asarray(after[role], bool)
        numbers = list(range(len(old)) if layers is None else layers)
        if old.shape != new.shape or old.ndim != 2 or len(numbers) != len(old):
            raise InputError(
                f"{role}: tables of shape {list(old.shape)} and {list(new.shape)} for "
                f"{len(numbers)} layers.\nExpected [L, H] both."
            )
        sure = np.ones_like(old) if supported is None else np.asarray(supported[role], bool)
        for number, x, y, z in zip(numbers, old, new, sure, strict=True):
            parts = (y & ~x & z, x & ~y & z, (x ^ y) & ~z)
            heads = [tuple(np.flatnonzero(row).tolist()) for row in parts]
            found.append(RoleChange(role, number, int(x.sum()), int(y.sum()), *heads))
    return sorted(found, key=lambda change: -len(change.gained) - len(change.lost))


@dataclasses.dataclass(frozen=True)
class RoleDifference:
    """A role that the tests find on a head in one of two models only.

    Attributes:
        role: Name of the role.
        layer: Number of the layer.
        head: Number of the head.
        before: Mean score in the first model.
        after: In the second.
        interval: Bootstrap interval of the mean of the paired differences.
        p: P-value of the paired t-test, corrected for heads and roles.
        claimed: Whether a change is claimed.
    """

    role: str
    layer: int
    head: int
    before: float
    after: float
    interval: tuple[float, float]
    p: float
    claimed: bool


class RolesOfBoth:
    """Scores of the heads of two models, added text by text.

    Memory: a few numbers per head and role, and for intervals one per text, of 20,000 at most.

    Args:
        test: How roles are found.
        rule: How changes are claimed; default at the level and with the correction of the test.
    """

    def __init__(self, test: Test, rule: ClaimRule | None = None) -> None:
        self._test = test
        self._rule = rule or ClaimRule(test.alpha, test.correction)
        self._tallies = ScoreAccumulator(), ScoreAccumulator()
        self._texts: dict[str, PairedTexts] = {}
        self._moments: dict[str, Moments] = {}

    def add(self, first: Trace, second: Trace) -> dict[str, Float[np.ndarray, "L H"]]:
        """Add the attention of both models to a text, if they are encoders."""
        found: list[Scores] = []
        for tally, trace in zip(self._tallies, (first, second), strict=True):
            record = None if trace.decoder is not None else trace.encoder
            if record is not None and record.weights is not None and trace.special is not None:
                found.append(scores_of([trace], _SCORES))
                tally.add(found[-1])
        if len(found) < 2:
            return {}
        one, other = (scores.values for scores in found)
        differences = {
            column.name: np.subtract(other[column], one[column], dtype=np.float64)
            for column in one
            if column.kind == "score" and column in other
        }
        for name, values in differences.items():
            self._texts.setdefault(name, PairedTexts()).add(values[0])
            moments, before = moments_of(values), self._moments.get(name)
            self._moments[name] = moments if before is None else merged(before, moments)
        return {name: values[0] for name, values in differences.items()}

    @property
    def names(self) -> list[str]:
        """Names of the roles that were compared."""
        return list(self._moments)

    def table(self, name: str) -> Float[np.ndarray, "L H"]:
        """Mean over texts of second less first of the score of a role."""
        return self._moments[name].mean

    def found(self) -> tuple[Roles, Roles] | None:
        """Roles of both; None where nothing was taken in."""
        one, other = self._tallies
        if not one.moments or not other.moments:
            return None
        return find_roles(one, _SCORES, self._test), find_roles(other, _SCORES, self._test)

    def summary(self, heads: Sequence[HeadChange]) -> "RoleSummary":
        """Changes of every role in every layer, and what they rest on."""
        found = self.found()
        if found is None:
            return RoleSummary(self._test, [], [], [])
        layers, numbers = found[0].layers, found[0].heads
        changed = np.zeros((len(layers), len(numbers)), bool)
        for head in heads:
            if head.side == "encoder":
                changed[layers.index(head.layer), numbers.index(head.head)] = head.changed
        tests = {("", n): paired_test(m)[1] for n, m in self._moments.items()}
        p = {name: table for (_, name), table in corrected(tests, self._rule.correction).items()}
        ends = {n: kept.interval(self._moments[n], self._rule) for n, kept in self._texts.items()}
        claimed = {
            name: changed & excludes_zero(*ends[name]) & (p[name] < self._rule.alpha) for name in p
        }
        tables = [{n: role.found for n, role in roles.roles.items()} for roles in found]
        changes = role_changes(tables[0], tables[1], layers, claimed)
        differences = [
            RoleDifference(
                name,
                layers[i],
                numbers[j],
                float(found[0].roles[name].score[i, j]),
                float(found[1].roles[name].score[i, j]),
                (float(ends[name][0][i, j]), float(ends[name][1][i, j])),
                float(p[name][i, j]),
                bool(claimed[name][i, j]),
            )
            for name in tables[0]
            for i, j in np.argwhere(tables[0][name] ^ tables[1][name]).tolist()
        ]
        return RoleSummary(self._test, changes, differences, found[0].warnings())


@dataclasses.dataclass(frozen=True)
class RoleSummary:
    """Changes of roles between two models.

    Attributes:
        test: How roles were found.
        changes: Changes of every role in every layer; empty if no text was added.
        differences: Roles that the tests find in one of the two models only.
        warnings: To be read before the counts are believed.
    """

    test: Test
    changes: Sequence[RoleChange]
    differences: Sequence[RoleDifference]
    warnings: Sequence[str]

    def facts(self) -> dict[str, Any]:
        """All of them, ready for JSON."""
        return {
            "test": dataclasses.asdict(self.test),
            "changes": [dataclasses.asdict(change) for change in self.changes],
            "differences": [dataclasses.asdict(row) for row in self.differences],
            "warnings": list(self.warnings),
        }


def role_lines(changes: Sequence[RoleChange]) -> list[str]:
    """Describe each role in a line: heads by layer, before and after."""
    lines = []
    for role in dict.fromkeys(change.role for change in changes):
        own = sorted((c for c in changes if c.role == role), key=lambda change: change.layer)
        before, after = (
            " ".join(str(getattr(c, when)) for c in own) for when in ("before", "after")
        )
        counts = {what: sum(len(getattr(c, what)) for c in own) for what in _COUNTED}
        message = ", ".join(f"{n} {what}" for what, n in counts.items() if n or what != _COUNTED[2])
        lines.append(f"{role}: heads by layer {before} -> {after}; {message}")
    return lines
