# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Specifications of scores of heads: what a score is a sum of, over the attention of one text.

`Terms` holds the coefficients of the sums; `terms` makes them and `scores` evaluates them. A
score is one of four kinds of sums:

* rows: coefficients times a statistic of each query;
* keys: coefficients times what each key receives from all queries;
* pairs: coefficients times single weights;
* hits: coefficients times whether a query's strongest key, delimiters apart, lies in a range.

The statistic of a row is one number per query. Most are statistics of the kernel under the same
name; a few are derived from two of them, or from the position of the strongest key.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture, Labels, Sieve
from flaxattn.text.position_labels import UNIVERSAL_RELATIONS, PositionLabels
from flaxattn.trace.record import AttentionRecord

PLAIN, SPECIAL, FIRST_POSITION, END = range(4)
"""Bits of `Labels.key_class`: of the text itself, added by the model, at 0, added behind."""
TOKEN = 0
"""Label of queries and of keys: the token, -1 where it is special."""
PREVIOUS_TOKEN = 1
"""Label of keys of self-attention: the token before, -1 where it is special or none."""
ALONG = (1, 2, 3)
"""Labels of queries of cross-attention: source positions as far along as the target's."""
SOURCE_POSITION = 1
"""Label of keys of cross-attention: the position itself."""


class SideLabels(NamedTuple):
    """Labels of one text on one side of a model.

    Attributes:
        labels: NumPy arrays without the axis B.
        queries: Q.
        keys: K.
        rare: Position of the rarest token of the text; -1 if frequencies are not known.
    """

    labels: Labels
    queries: int
    keys: int
    rare: int = -1


def self_labels(layout: PositionLabels) -> SideLabels:
    """Labels of self-attention over a text."""
    count = len(layout)
    tokens = np.where(layout.special, -1, _numbered(layout.tokens))
    previous = np.roll(tokens, 1)
    previous[:1] = -1
    labels = _labels(
        key_class=_classes(layout.special, np.zeros(count, bool)),
        query_segment=layout.segments,
        key_segment=layout.segments,
        query_token=layout.tokens,
        key_token=layout.tokens,
        query_labels=tokens[None],
        key_labels=np.stack([tokens, previous]),
    )
    return SideLabels(labels, count, count, layout.rare)


def cross_labels(
    written: Sequence[str], tokens: Sequence[str], special: Bool[np.ndarray, " K"]
) -> SideLabels:
    """Labels of attention from a target to its source."""
    queries, keys = len(written), len(tokens)
    numbers = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    own = np.array([numbers.get(token, -1) for token in written], np.int32)
    key_tokens = np.where(special, -1, [numbers[token] for token in tokens])
    centre = (2 * np.arange(queries) + 1) * keys // (2 * max(queries, 1))
    last = max(np.flatnonzero(~special), default=-1)
    ends = special & (np.arange(keys) > last)
    labels = _labels(
        key_class=_classes(special, ends),
        query_labels=np.stack([own, centre - 1, centre, centre + 1]),
        key_labels=np.stack([key_tokens, np.arange(keys)]),
    )
    return SideLabels(labels, queries, keys)


def _labels(**arrays: Any) -> Labels:
    narrow: dict[str, Any] = {n: np.asarray(a, np.int32) for n, a in arrays.items()}
    return Labels(**narrow)


def _numbered(tokens: np.ndarray) -> np.ndarray:
    return np.unique(tokens, return_inverse=True)[1]


def _classes(special: Bool[np.ndarray, " K"], ends: Bool[np.ndarray, " K"]) -> np.ndarray:
    members = {PLAIN: ~special, SPECIAL: special, FIRST_POSITION: _first(len(special)), END: ends}
    return np.bitwise_or.reduce([m.astype(np.int32) << bit for bit, m in members.items()])


def _first(count: int) -> Bool[np.ndarray, " K"]:
    return np.arange(count) == 0


class KeyRange(NamedTuple):
    """Range of keys around a query of self-attention.

    Attributes:
        left: Number of positions before a query that it sees; None for all.
        right: Number of positions behind it; None for all.
    """

    left: int | None = None
    right: int | None = None

    def counts(self, length: int) -> Int[np.ndarray, " Q"]:
        """Number of keys that each query of a text sees."""
        place = np.arange(length)
        first = np.zeros(length, int) if self.left is None else np.maximum(place - self.left, 0)
        last = np.full(length, length - 1)
        if self.right is not None:
            last = np.minimum(place + self.right, length - 1)
        return last - first + 1

    def mask(self, length: int) -> Bool[np.ndarray, "Q K"]:
        """True where a query of a text sees a key."""
        offset = np.arange(length) - np.arange(length)[:, None]
        visible = np.ones((length, length), bool)
        visible &= True if self.left is None else offset >= -self.left
        return visible & (True if self.right is None else offset <= self.right)

    def covers(self, queries: Sequence[int], keys: Sequence[int]) -> bool:
        """Return whether each of some queries sees each of some keys."""
        before = self.left is None or queries[-1] - keys[0] <= self.left
        return before and (self.right is None or keys[-1] - queries[0] <= self.right)


EVERY_KEY, CAUSAL = KeyRange(), KeyRange(right=0)


def ranges_of(config: Any) -> tuple[KeyRange, ...]:
    """Range of keys of each layer of a model with windows; empty for a model without any.

    A layer without a window has `EVERY_KEY`, also that of a decoder.
    """
    windows = getattr(config, "windows", ())
    if all(window is None for window in windows):
        return ()
    return tuple(_range(window) for window in windows)


def recorded_ranges(record: AttentionRecord, side: str) -> tuple[KeyRange, ...]:
    """Range of keys of each layer of a record with windows; empty for one without any."""
    last = 0 if side == "decoder" else None
    return tuple(
        EVERY_KEY
        if window is None
        else KeyRange(window[0], last if window[1] is None else window[1])
        for window in record.sliding_windows
    )


def windows_in(ranges: Sequence[KeyRange]) -> tuple[KeyRange, ...]:
    """The windows among the ranges of layers, each once."""
    return tuple(each for each in dict.fromkeys(ranges) if each != EVERY_KEY)


def _range(window: tuple[int, int] | int | None) -> KeyRange:
    if isinstance(window, int):
        return KeyRange(window - 1, 0)
    return EVERY_KEY if window is None else KeyRange(*window)


SIDE_ROLES = (
    *("own", "previous", "next", "first", "duplicate", "induction"),
    *("diagonal", "end", "copy"),
)
"""Roles of decoders, of their encoders and of cross-attention, which `terms` defines."""
PAPER_RELATIONS = ("nsubj", "obj", "amod", "advmod")
"""Those of the paper; Universal Dependencies call its dobj obj."""


class ScoreSpec(NamedTuple):
    """Name of a score of a head: `("score", "local")`.

    The kinds are `mean` (statistics, averaged over queries), `tag` (mass on a part of speech),
    `score` and `mass` of a role (lift, and share of attention), `control` (the score of pairs of
    unrelated words as far apart), `beyond` (the difference of the two), `pattern`, `strongest`
    (shares of queries) and `hit` (share of related words).
    """

    kind: str
    name: str


@dataclasses.dataclass(frozen=True)
class ScoreOptions:
    """Roles to look for, and how they are defined.

    Attributes:
        relations: Relations of dependency trees, each a role in either direction.
        annotated: Whether the texts have trees.
        seed: Seed of the unrelated words that related ones are compared with.
        pande_parity: Whether to repeat the public notebooks of "The heads hypothesis", errors
            included: the last two bands counted one key too large, block scores times the row's
            entropy, the first separator a query of the second block, no block in single texts,
            tokens found at their first occurrence.
        only: Scores to evaluate; None for all. Scores that are left out cost nothing.
    """

    relations: tuple[str, ...] = PAPER_RELATIONS
    annotated: bool = True
    seed: int = 0
    pande_parity: bool = False
    only: tuple[ScoreSpec, ...] | None = None

    @property
    def syntactic(self) -> list[str]:
        """Roles of a tree: from a word to its governor, and to a dependent."""
        names = [*self.relations, "any"] if self.annotated else []
        return [f"{side}({name})" for name in names for side in ("governor", "dependent")]

    @property
    def roles(self) -> list[str]:
        """Every role that may have a score; which ones do depends on the side of the model."""
        block = ["block"] if self.pande_parity else ["block", "block_entropy"]
        return ["local", "cls", "sep", "delimiter", *block, *SIDE_ROLES, *self.syntactic]


@dataclasses.dataclass
class Terms:
    """The sums of one text. A column that is not there has no value for it: no such words.

    Attributes:
        labels: Labels of the text's positions, which the statistics read.
        rows: Row statistic and coefficients per query; some scores have two.
        keys: Coefficients per key.
        pairs: Query, key and coefficient of single weights.
        hits: Query, first and last key, and coefficient.
        ceilings: The highest score that a head could have, by role.
        counts: Number of pairs of words of each syntactic role.
        offsets: Words between them, key minus query.
    """

    labels: SideLabels
    rows: dict[tuple[ScoreSpec, str], Float[np.ndarray, " Q"]] = dataclasses.field(
        default_factory=dict
    )
    keys: dict[ScoreSpec, Float[np.ndarray, " K"]] = dataclasses.field(default_factory=dict)
    pairs: dict[ScoreSpec, list[tuple[int, int, float]]] = dataclasses.field(default_factory=dict)
    hits: dict[ScoreSpec, list[tuple[int, int, int, float]]] = dataclasses.field(
        default_factory=dict
    )
    ceilings: dict[str, float] = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    offsets: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return self.labels.keys

    @functools.cached_property
    def places(self) -> dict[tuple[int, int], int]:
        """Every single weight that is needed, with its place; asked when the terms are complete."""
        pairs = dict.fromkeys((i, j) for found in self.pairs.values() for i, j, _ in found)
        return {pair: place for place, pair in enumerate(pairs)}

    @property
    def columns(self) -> set[ScoreSpec]:
        """The scores that have a value."""
        rows = {column for column, _ in self.rows}
        return rows | self.keys.keys() | self.pairs.keys() | self.hits.keys()

    def restricted(self, only: Sequence[ScoreSpec] | None) -> "Terms":
        """The terms of some scores, and of those that they are differences of."""
        if only is None:
            return self
        wanted = {*only}
        wanted |= {
            ScoreSpec(kind, name) for own, name in only if own == "beyond" for kind in _APART
        }
        wanted |= {_OWN} if _OTHER in wanted else set()
        return dataclasses.replace(
            self,
            rows={key: row for key, row in self.rows.items() if key[0] in wanted},
            keys={key: row for key, row in self.keys.items() if key in wanted},
            pairs={key: row for key, row in self.pairs.items() if key in wanted},
            hits={key: row for key, row in self.hits.items() if key in wanted},
        )


_APART = ("score", "control")  # `beyond` is their difference
_OWN, _OTHER = ScoreSpec("mean", "own segment"), ScoreSpec("mean", "other segment")


def check_relations(relations: Sequence[str]) -> tuple[str, ...]:
    """Relations that can be requested; `all` stands for every universal one."""
    if list(relations) == ["all"]:
        return UNIVERSAL_RELATIONS
    for relation in relations:
        if relation.split(":")[0] not in UNIVERSAL_RELATIONS:
            raise InputError(
                f"{relation!r} is not a relation between words in Universal Dependencies\n"
                f"choose of {', '.join(UNIVERSAL_RELATIONS)}, or all"
            )
    if not relations:
        raise InputError("no relation is named\nname nsubj, say, or all")
    return tuple(dict.fromkeys(relations))


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
