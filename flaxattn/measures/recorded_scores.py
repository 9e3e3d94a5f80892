# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of heads from statistics that were recorded instead of maps, and what they leave unknown.

Definitions are in `terms`; `dense` adds up the same sums from maps. Which capture would hold what
is missing is said here, by name.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int

from flaxattn.kernels.contract import Capture, Sieve
from flaxattn.measures.score_terms import WINDOW, ScoreName, Terms
from flaxattn.text.position_labels import PositionLabels

_PLAIN = ("entropy", "distance", "max", "sum_sq")
_SIEVES = {
    "next": Sieve("next", offsets=(1, 1)),
    "previous": Sieve("previous", offsets=(-1, -1)),
    "own": Sieve("own", offsets=(0, 0)),
    "local": Sieve("local", offsets=(-WINDOW, WINDOW)),
    "own segment": Sieve("own segment", same_segment=True),
    "same token": Sieve("same token", same_token=True),
    "same token elsewhere": Sieve("same token elsewhere", same_token=True, same_segment=False),
}
_NEIGHBOURS = {"next": 1, "previous": -1}
_TOP = 4  # with at most three delimiters, the strongest plain key is among the first four
_MAPS = "weights=True"
_RECEIVED, _STRONGEST = "received", "strongest"


def recorded_values(
    stats: Mapping[str, np.ndarray], capture: Capture, layout: PositionLabels, terms: Terms
) -> dict[ScoreName, Float[np.ndarray, "*heads"]]:
    """Every number of every head on one text that its statistics tell.

    Args:
        stats: By name, `[*heads, N]`, those of `topk` with R values behind.
        capture: What they were asked with: a sieve counts by its conditions, not by its name.
        layout: Of the text.
        terms: The sums wanted, see `terms.terms_of`.

    Returns:
        float64 by column; those that need what is not there are left out.
    """
    rows = _sources(stats, capture, layout)
    found: dict[ScoreName, np.ndarray] = {}
    lacking = {column for column, source in terms.rows if source not in rows}
    for (column, source), coefficients in terms.rows.items():
        if column not in lacking:
            found[column] = found.get(column, 0) + rows[source] @ coefficients
    if _RECEIVED in stats:
        received = np.asarray(stats[_RECEIVED], np.float64)
        found |= {column: received @ each for column, each in terms.keys.items()}
    strongest = _strongest(stats, layout)
    if strongest is not None:
        for column, hits in terms.hits.items():
            i, low, high, c = (np.array(part) for part in zip(*hits, strict=True))
            keys = strongest[..., i]
            found[column] = ((keys >= low) & (keys <= high)) @ c
    return found


def requests_of(terms: Terms) -> dict[ScoreName, str]:
    """What would record each number of a text: arguments of `Capture`, by column.

    Args:
        terms: Of the text.
    """
    found: dict[ScoreName, str] = {}
    for column, source in terms.rows:
        found.setdefault(column, _request(source))
    found |= dict.fromkeys(terms.keys, f'stats=("{_RECEIVED}",)')
    found |= dict.fromkeys(terms.hits, f'stats=("topk({_TOP})",)')
    return found | dict.fromkeys(terms.pairs, _MAPS)


def _request(source: str) -> str:
    """What records a statistic of queries."""
    if source in _PLAIN:
        return f'stats=("{source}",)'
    if source in _SIEVES:
        given = {"offsets": None, "same_segment": None, "same_token": None}
        told = {name: getattr(_SIEVES[source], name) for name in given}
        parts = [f"{name}={value}" for name, value in told.items() if value is not None]
        return f'stats=(Sieve("{source}", {", ".join(parts)}),)'
    if source.startswith(_STRONGEST):
        return f'stats=("topk({_TOP})",)'
    if source.startswith("argmax"):
        return 'stats=("argmax",)'
    return _MAPS


def _sources(
    stats: Mapping[str, np.ndarray], capture: Capture, layout: PositionLabels
) -> dict[str, Float[np.ndarray, "*heads N"]]:
    """The statistics of queries that `terms.SOURCES` names, as far as they are known."""
    found = {name: np.asarray(stats[name], np.float64) for name in _PLAIN if name in stats}
    known = {_conditions(sieve): sieve.name for sieve in capture.sieves}
    for name, sieve in _SIEVES.items():
        held = known.get(_conditions(sieve))
        if held is not None and held in stats:
            found[name] = np.asarray(stats[held], np.float64)
    place = np.arange(len(layout))
    largest = stats.get("argmax")
    if largest is None and "topk_indices" in stats:
        largest = stats["topk_indices"][..., 0]
    strongest = _strongest(stats, layout)
    for name, step in _NEIGHBOURS.items():
        if largest is not None:
            found[f"argmax {name}"] = (largest == place + step).astype(np.float64)
        if strongest is not None:
            found[f"strongest {name}"] = (strongest == place + step).astype(np.float64)
    if strongest is not None:
        found["strongest rare"] = (strongest == layout.rare).astype(np.float64)
    return found


def _conditions(sieve: Sieve) -> tuple[object, ...]:
    return sieve.key_class, sieve.offsets, sieve.same_segment, sieve.same_token


def _strongest(
    stats: Mapping[str, np.ndarray], layout: PositionLabels
) -> Int[np.ndarray, "*heads N"] | None:
    """The strongest key of each query, delimiters apart; None if too few were recorded to tell."""
    keys = stats.get("topk_indices")
    if keys is None or keys.shape[-1] < min(len(layout), layout.special.sum() + 1):
        return None
    open_ = (keys >= 0) & ~layout.special[np.maximum(keys, 0)]
    first = np.take_along_axis(keys, open_.argmax(-1)[..., None], -1)[..., 0]
    return np.where(open_.any(-1), first, -1)
