# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Row statistics that scores are sums of, by name, and how each is captured or derived.

A source is one number per query. Most are statistics of the kernel under the same name; a few are
derived from two of them, or from the position of the strongest key.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from flaxattn.kernels.contract import Capture, Labels, Sieve
from flaxattn.measures.side_labels import (
    ALONG,
    END,
    FIRST_POSITION,
    PLAIN,
    PREVIOUS_TOKEN,
    SOURCE_POSITION,
    SPECIAL,
    TOKEN,
)

WINDOW = 2
"""Positions to either side that are local, as in the notebooks of Pande et al."""
_FAR = 1 << 30
_DIAGONAL = tuple(f"diagonal {way}" for way in ("before", "centre", "after"))
_SIEVES = (
    Sieve("next", offsets=(1, 1)),
    Sieve("previous", offsets=(-1, -1)),
    Sieve("own", offsets=(0, 0)),
    Sieve("local", offsets=(-WINDOW, WINDOW)),
    Sieve("own segment", same_segment=True),
    Sieve("block", key_class=PLAIN, same_segment=True),
    Sieve("other block", key_class=PLAIN, same_segment=False),
    Sieve("entropy in block", key_class=PLAIN, same_segment=True, statistic="entropy"),
    Sieve("strongest", key_class=PLAIN, statistic="argmax"),
    Sieve("special", key_class=SPECIAL),
    Sieve("first", key_class=FIRST_POSITION),
    Sieve("end", key_class=END),
    Sieve("same token", same_token=True),
    Sieve("same token elsewhere", same_token=True, same_segment=False),
    Sieve("duplicate before", same_label=(TOKEN, TOKEN), offsets=(-_FAR, -1)),
    Sieve("duplicate after", same_label=(TOKEN, TOKEN), offsets=(1, _FAR)),
    Sieve("induction", same_label=(TOKEN, PREVIOUS_TOKEN), offsets=(-_FAR, -1)),
    Sieve("copy", same_label=(TOKEN, TOKEN)),
    *(
        Sieve(name, same_label=(label, SOURCE_POSITION))
        for name, label in zip(_DIAGONAL, ALONG, strict=True)
    ),
)
SIEVES: Mapping[str, Sieve] = {sieve.name: sieve for sieve in _SIEVES}
"""Sets of keys that sources are the attention to."""
PLAIN_STATISTICS = ("entropy", "distance", "max", "sum_sq")
"""Statistics of the kernel that are sources under their own name."""
SETS: Mapping[str, tuple[str, ...]] = {
    "delimiter": ("special",),
    "duplicate": ("duplicate before", "duplicate after"),
    "diagonal": _DIAGONAL,
}
"""Sources that a set of keys consists of, where it is not one of the same name."""
_NEIGHBOURS = {"next": 1, "previous": -1}
STRONGEST, RECEIVED, PAIRS, ARGMAX = "strongest", "received", "pairs", "argmax"
_TIMES = " x entropy"


def parts_of(source: str) -> tuple[str, ...]:
    """Statistics of the kernel that a source is made of."""
    if source.endswith(_TIMES):
        return source.removesuffix(_TIMES), "entropy"
    if source.startswith(f"{STRONGEST} "):
        return (STRONGEST,)
    return (ARGMAX,) if source.startswith(f"{ARGMAX} ") else (source,)


def request_for(parts: Iterable[str]) -> tuple[str | Sieve, ...]:
    """`Capture.stats` that records statistics of the kernel, each once."""
    return tuple(SIEVES.get(name, name) for name in dict.fromkeys(parts))


def source_of(source: str, stats: Mapping[str, Any], rare: Any, space: Any = np) -> Any:
    """The row statistic of a name."""
    if source.endswith(_TIMES):
        return stats[source.removesuffix(_TIMES)] * stats["entropy"]
    kind, _, where = source.partition(" ")
    if kind not in (STRONGEST, ARGMAX) or not where:
        return stats[source]
    keys = stats[kind]
    wanted = rare
    if where in _NEIGHBOURS:
        wanted = space.arange(keys.shape[-1], dtype=np.int32) + _NEIGHBOURS[where]
        wanted = wanted.reshape((1,) * (keys.ndim - 1) + wanted.shape)
    return (keys == wanted).astype(np.float32)


def recorded_parts(
    stats: Mapping[str, np.ndarray], capture: Capture, labels: Labels
) -> dict[str, np.ndarray]:
    """Statistics of the kernel by the names used here, as far as a record holds them.

    A sieve counts by its conditions, not by its name. Where the strongest keys of each query were
    recorded, the strongest one of the text itself is among them, if enough were.
    """
    names = (*PLAIN_STATISTICS, RECEIVED, ARGMAX)
    found = {name: np.asarray(stats[name]) for name in names if name in stats}
    held = {_meaning(sieve): sieve.name for sieve in capture.sieves}
    for name, sieve in SIEVES.items():
        recorded = held.get(_meaning(sieve))
        if recorded is not None and recorded in stats and not _reads_classes(sieve):
            found[name] = np.asarray(stats[recorded])
    if "topk_indices" in stats:
        keys = np.asarray(stats["topk_indices"])
        found.setdefault(ARGMAX, keys[..., 0])
        special = np.asarray(labels.key_class) >> SPECIAL & 1 == 1
        if keys.shape[-1] >= min(len(special), special.sum() + 1):
            plain = (keys >= 0) & ~special[np.maximum(keys, 0)]
            first = np.take_along_axis(keys, plain.argmax(-1)[..., None], -1)[..., 0]
            found[STRONGEST] = np.where(plain.any(-1), first, -1)
    return found


def _meaning(sieve: Sieve) -> tuple[Any, ...]:
    return *sieve.conditions, sieve.statistic


def _reads_classes(sieve: Sieve) -> bool:
    """Return whether it reads labels whose numbers mean something else to whoever recorded them."""
    return sieve.key_class is not None or sieve.same_label is not None


_ALL_MAPS = "weights=True"
_TOP = 4  # with at most three delimiters, the strongest token of the text is among the first four


def capture_hint(part: str) -> str:
    """Arguments of `Capture` that would record a statistic, for a message."""
    sieve = SIEVES.get(part)
    if part == STRONGEST:
        return f'stats=("topk({_TOP})",)'
    if sieve is not None and not _reads_classes(sieve):
        names = ("offsets", "same_segment", "same_token")
        values = {name: getattr(sieve, name) for name in names}
        given = [f"{name}={value}" for name, value in values.items() if value is not None]
        return f'stats=(Sieve("{part}", {", ".join(given)}),)'
    if sieve is not None or part == PAIRS:
        return _ALL_MAPS
    return f'stats=("{part}",)'
