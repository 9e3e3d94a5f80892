# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Claims on a page, and numbers of the page of each head in a report.

A claim has a mark (family, shape, letter, hue) and gold pairs. The page of a head has its reading,
examples, nearest heads and effects. Examples are chosen in `flaxattn.measures.gold_pairs`; what a
page does with all of it is in `assets/head_profile.js`.
"""

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError
from flaxattn.measures.claims import Claim
from flaxattn.measures.gold_pairs import (
    HIT,
    OUTCOMES,
    STRONGEST,
    GoldPair,
    GoldPairs,
    HeadExamples,
    PairExample,
    PairExamples,
    judged_pairs,
    runs_of,
)
from flaxattn.measures.head_similarity import MeanDistances, nearest_heads
from flaxattn.measures.specs import recorded_ranges
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import Blocks, visible

SHADES = 3
"""Shades of a family, from dark to light, then again from the first."""


class ClaimFamily(NamedTuple):
    """Claims of one kind.

    Attributes:
        letter: With which the codes of its claims begin.
        name: For a legend.
        marker: Its shape, by the name that matplotlib gives it.
    """

    letter: str
    name: str
    marker: str


class Mark(NamedTuple):
    """The mark of one claim.

    Attributes:
        family: Index in `FAMILIES`.
        number: Number of the claim in its family, from 1.
    """

    family: int
    number: int

    @property
    def code(self) -> str:
        """Letter of the family and number, such as `S7`; no two claims of a page share one."""
        return f"{FAMILIES[self.family].letter}{self.number}"

    @property
    def variable(self) -> str:
        """The variable of the style sheet that holds its colour, such as `claim-2-0`."""
        return f"claim-{self.family}-{(self.number - 1) % SHADES}"


FAMILIES = (
    ClaimFamily("P", "position", "s"),
    ClaimFamily("D", "delimiters and first tokens", "o"),
    ClaimFamily("S", "syntax", "^"),
    ClaimFamily("C", "coreference", "D"),
    ClaimFamily("W", "words and repeats", "h"),
    ClaimFamily("A", "alignment", "v"),
    ClaimFamily("B", "breadth", "P"),
    ClaimFamily("O", "other", "X"),
)
"""In this order in legends; the last takes what no other does."""

_RELATIONS = (
    "acl advcl advmod amod appos aux case cc ccomp clf compound conj cop csubj dep det discourse "
    "dislocated expl fixed flat goeswith iobj list mark nmod nsubj nummod obj obl orphan parataxis "
    "punct reparandum root vocative xcomp dobj pobj prep poss any"
)
# A name belongs to the first family whose words it has, whole.
_WORDS = {
    "S": rf"governors?|dependents?|syntactic|dependency|subtree|{_RELATIONS.replace(' ', '|')}",
    "C": r"coreference|corefer\w*|mentions?|antecedents?|pronouns?|proper|nominal",
    "A": r"alignment|diagonal|copy|source|other text",
    "W": r"induction|duplicate|same token|related token|rare|word",
    "D": r"cls|sep|delimiters?|first|end|punctuation|sink|special",
    "B": r"block|block_entropy|bag of words|segment|same_segment|entropy|max|sum_sq|lse|broad",
    "P": r"local|next|previous|own|positional|distance",
}
_FIRST = [(letter, re.compile(rf"(?<!\w)(?:{words})(?!\w)")) for letter, words in _WORDS.items()]


def claim_marks(names: Iterable[str]) -> dict[str, Mark]:
    """Assign a mark to each claim."""
    marks, counts = {}, Counter[int]()
    for name in dict.fromkeys(names):
        family = _family(name)
        counts[family] += 1
        marks[name] = Mark(family, counts[family])
    return marks


def _family(name: str) -> int:
    text = name.lower()
    if text.startswith("own segment") or "other segment" in text:
        letter = "B"  # nearly all keys, wherever they are
    elif re.search(r"\beffect\b", text):
        letter = "O"  # of patching, at a segment that may be called "first"
    else:
        letter = next((letter for letter, words in _FIRST if words.search(text)), "O")
    return next(i for i, family in enumerate(FAMILIES) if family.letter == letter)


OFF = "none"
"""In place of the name of a claim: no gold pairs are drawn."""
_PER_BYTE = 4

GivenPairs = Mapping[str, Any]
"""Pairs by name, as `flaxattn.views.trace_views.head_view` takes them."""


def add_pairs(
    shaped: dict[str, Any],
    gold: Mapping[str, Sequence[GoldPairs]],
    one: Trace,
    blocks: Blocks,
    number: int,
    *,
    second: bool = False,
) -> None:
    """Put gold pairs beside the weights of a text."""
    for about in shaped["sides"]:
        side = about["name"]
        if second and "second" not in about:
            continue
        part = about["second"] if second else about
        prefix = f"{number}/{side}/{'second/' if second else ''}pairs"
        given = [found for found in gold.get(side, ()) if visible(found.name) != OFF]
        if not given:
            continue
        record: AttentionRecord = getattr(one, side)
        rows = [record.layers.index(layer) for layer in about["layers"]]
        columns = [record.heads.index(head) for head in about["heads"]]
        part["pairs"] = [
            {
                "name": visible(found.name),
                "about": visible(found.about),
                "rule": found.rule,
                "pairs": [[*pair.query, *sum(pair.keys, ())] for pair in found.pairs],
                "hits": blocks.add(f"{prefix}/{place}", _packed(found.hits[rows][:, columns])),
            }
            for place, found in enumerate(given)
        ]


def add_given(
    inputs: Sequence[dict[str, Any]],
    trace: Trace,
    given: GivenPairs | None,
    taken: Sequence[int],
    start: dict[str, Any],
    blocks: Blocks,
    second: Trace | None = None,
) -> GoldPairs | None:
    """Put the pairs that a caller gives beside the weights of the texts of a page."""
    names = []
    every: list[dict[str, list[GoldPairs]]] = []
    if given is not None:
        held = [side for side, record in trace.sides.items() if record.weights is not None]
        usual = start["side"] if start["side"] in held else held[0]
        every = read_pairs(trace, given, usual)
        others = [] if second is None else read_pairs(second, given, usual)
        names = [visible(name) for name in given]
        for number, (place, shaped) in enumerate(zip(taken, inputs, strict=True)):
            add_pairs(shaped, every[place], trace[place], blocks, number)
            if second is not None:
                add_pairs(shaped, others[place], second[place], blocks, number, second=True)
        start.setdefault("gold", (*names, OFF)[0])
    if start.get("gold", OFF) not in (OFF, *names):
        raise InputError(
            f"state: gold is {start['gold']!r}, and the page has no such gold pairs.\n"
            f"It has {', '.join((*names, OFF))}; give others as pairs={{…}}."
        )
    shown = every[taken[start["sequence"]]].get(start["side"], []) if every else []
    return next((found for found in shown if visible(found.name) == start["gold"]), None)


def most_hit(
    gold: GoldPairs | None, record: AttentionRecord | None, layers: Sequence[int]
) -> dict[str, Any]:
    """Layer and head that hit most of some pairs, of equal ones the first, as a state."""
    if gold is None or record is None or not gold.pairs:
        return {}
    rows = [record.layers.index(layer) for layer in layers]
    counts = (gold.hits[rows] == HIT).sum(-1)
    layer, head = map(int, np.unravel_index(int(counts.argmax()), counts.shape))
    return {"layer": layers[layer], "heads": [record.heads[head]]}


def read_pairs(
    trace: Trace, given: GivenPairs | None, side: str
) -> list[dict[str, list[GoldPairs]]]:
    """Gold pairs as they were given, judged by the weights of each text, by side."""
    if given is not None and not isinstance(given, Mapping):
        raise InputError(
            f"pairs: expected a mapping from names to pairs, received {type(given).__name__}.\n"
            'Name them: pairs={"subject": [(3, 1)]}, query before key.'
        )
    ones = [trace[b] for b in range(len(trace))]
    found: list[dict[str, list[GoldPairs]]] = [{} for _ in ones]
    for name, pairs in (given or {}).items():
        if not isinstance(name, str) or not name.strip() or visible(name) == OFF:
            raise InputError(
                f"pairs: {name!r} cannot be a name.\nName them by what they are, such as 'subject'."
            )
        by_side = pairs if isinstance(pairs, Mapping) else {side: pairs}
        for where, every in by_side.items():
            _check_side(trace, name, where)
            each = _each_text(name, every, len(ones))
            for sides, one, requested in zip(found, ones, each, strict=True):
                judged = _judged(name, requested, getattr(one, where), where)
                sides.setdefault(where, []).append(judged)
    return found


def _check_side(trace: Trace, name: str, side: str) -> None:
    held = [known for known, record in trace.sides.items() if record.weights is not None]
    if side not in held:
        raise InputError(
            f"pairs[{name!r}] are of {side!r}; this trace has weights of {', '.join(held)}.\n"
            f"Name one of them: pairs={{{name!r}: {{{held[0]!r}: [(3, 1)]}}}}."
        )


def _each_text(name: str, given: Any, texts: int) -> list[list[tuple[int, int]]]:
    """A list of pairs for each text."""
    try:
        every = [_pairs(given)] if _is_flat(given) else [_pairs(some) for some in given]
    except (TypeError, ValueError):
        raise InputError(
            f"pairs[{name!r}]: expected pairs of a query and a key, such as [(3, 1), (5, 4)].\n"
            "Use whole numbers; of several texts, a list of such pairs for each."
        ) from None
    if len(every) != texts:
        raise InputError(
            f"pairs[{name!r}] are of {len(every)} texts; the trace has {texts}.\n"
            "Give a list of pairs for each text; it may be empty."
        )
    return every


def _is_flat(given: Any) -> bool:
    """Return whether pairs are those of one text."""
    return len(given) == 0 or all(len(item) == 2 and np.ndim(item[0]) == 0 for item in given)


def _pairs(given: Any) -> list[tuple[int, int]]:
    found = np.asarray(given).reshape(-1, 2) if len(given) else np.zeros((0, 2), int)
    if not np.issubdtype(found.dtype, np.integer) or len(found) != len(given):
        raise ValueError
    return [(int(query), int(key)) for query, key in found]


def _judged(
    name: str, pairs: Sequence[tuple[int, int]], record: AttentionRecord, side: str
) -> GoldPairs:
    """Pairs with the heads that hit them; keys of one query are alternatives."""
    queries, keys = np.shape(record.weights)[-2:]
    for query, key in pairs:
        if not (0 <= query < queries and 0 <= key < keys):
            raise InputError(
                f"pairs[{name!r}]: there is no pair {(query, key)} in the {side}.\n"
                f"Its text has queries 0 to {queries - 1} and keys 0 to {keys - 1}.\n"
                "Count positions from 0, without padding."
            )
    by_query: dict[int, list[int]] = {}
    for query, key in pairs:
        by_query.setdefault(query, []).append(key)
    gold = [GoldPair((query, query), runs_of(found)) for query, found in by_query.items()]
    ranges = () if side == "cross" else recorded_ranges(record, side)
    return GoldPairs(name, "", STRONGEST, gold, judged_pairs(gold, record, None, ranges))


def _packed(hits: np.ndarray) -> np.ndarray:
    """Two bits for each value, the first in the lowest bits."""
    flat = hits.reshape(-1).astype(np.uint8)
    padded = np.pad(flat, (0, -len(flat) % _PER_BYTE)).reshape(-1, _PER_BYTE)
    return (padded << np.arange(0, 8, 2, dtype=np.uint8)).sum(1, dtype=np.uint8)


NEAREST = 5
"""Number of other heads that the page of a head names."""
_DIGITS = 4
_PLACES = {
    "next": "the next token",
    "previous": "the previous token",
    "own": "its own token",
    "cls": "the special token at the beginning",
    "sep": "the separators",
    "first": "the first token",
    "punctuation": "punctuation",
    "delimiter": "special tokens",
    "duplicate": "the same token elsewhere",
    "induction": "the token after an earlier occurrence of its own",
    "diagonal": "the source tokens as far along",
    "end": "the special tokens at the end of the source",
    "copy": "the source tokens that read the same",
}
"""Places that a head may look at, by the name of the share of attention on them."""

Interval = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class MeasuredEffects:
    """Numbers of the heads from other reports, such as effects of ablation or of patching.

    Attributes:
        values: Number, and ends of its 95 % interval, by name, `[L, H]` each; nan where unknown.
        about: What was measured on which texts, in a sentence for each report.
    """

    values: Mapping[str, tuple[Float[np.ndarray, "L H"], ...]]
    about: str


@dataclasses.dataclass(frozen=True)
class Nearness:
    """Distances between all heads of a side.

    Attributes:
        distances: All pairs, condensed as scipy has it; between 0 and 1.
        texts: Number of texts that they are means over.
    """

    distances: Float[np.ndarray, " P"]
    texts: int


@dataclasses.dataclass(frozen=True)
class HeadPages:
    """Part of a report that its pages of single heads show, of one side.

    Attributes:
        texts: Number of texts that were measured.
        shares: Mean share of attention by name of a place, `[L, H]` each; others are passed over.
        intervals: Interval of the number of a claim, by name, layer and head.
        level: Meaning of these intervals.
        examples: Gold pairs of the texts of the page; filled when the page is made.
        broken: Number of texts on which the attention of each head is NaN or infinite, `[L, H]`.
        nearness: Distances between heads; None to measure them on the texts of the page.
        effects: Numbers from other reports; None where none was given.
        command: Command that would measure the effects.
    """

    texts: int
    shares: Mapping[str, Float[np.ndarray, "L H"]]
    intervals: Mapping[tuple[str, int, int], Interval]
    level: str
    examples: PairExamples
    broken: Int[np.ndarray, "L H"]
    nearness: Nearness | None = None
    effects: MeasuredEffects | None = None
    command: str = ""


def reading(
    shares: Mapping[str, Float[np.ndarray, "L H"]], layer: int, head: int
) -> tuple[str, float] | None:
    """Tell where a head looks: the place with the largest mean share of its attention.

    Returns:
        The place in words, and its share; of equal shares the first. None where none is known.
    """
    known = [
        (name, float(values[layer, head]))
        for name in _PLACES
        if (values := shares.get(name)) is not None and math.isfinite(values[layer, head])
    ]
    if not known:
        return None
    name, share = max(known, key=lambda one: one[1])
    return _PLACES[name], share


def pages_payload(
    pages: HeadPages, layers: Sequence[int], heads: Sequence[int], measured: MeanDistances
) -> dict[str, Any]:
    """Return what the pages of heads show beside the claims, as JSON holds it."""
    near = pages.nearness or Nearness(measured.distances, measured.texts)
    count = len(layers) * len(heads)
    nearest: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    if near.texts:
        nearest = nearest_heads(near.distances, count, NEAREST)
    effects = pages.effects
    return {
        "texts": pages.texts,
        "level": pages.level,
        "readings": [[_read(pages, i, j) for j in range(len(heads))] for i in range(len(layers))],
        "broken": np.asarray(pages.broken).tolist(),
        "near_texts": near.texts,
        "nearest": [[[at, _rounded(far)] for at, far in row] for row in nearest],
        "command": pages.command,
        "effects_about": effects.about if effects else "",
        "effects": {
            name: [_table(part) for part in parts]
            for name, parts in (effects.values if effects else {}).items()
        },
    }


def claim_payload(pages: HeadPages, claim: Claim, places: Mapping[int, int]) -> dict[str, Any]:
    """Return the interval and the examples of a claim, as JSON holds them."""
    found = pages.examples.of(claim)
    low, high = pages.intervals.get((claim.name, claim.layer, claim.head), (math.nan, math.nan))
    ends = [_rounded(low), _rounded(high)]
    return {
        "interval": None if None in ends else ends,
        "examples": None if found is None else _examples(found, places),
    }


def _examples(found: HeadExamples, places: Mapping[int, int]) -> dict[str, Any]:
    def example(one: PairExample) -> list[Any]:
        return [places[one.text], one.place, _rounded(one.weight), OUTCOMES[one.outcome]]

    return {
        "best": [example(one) for one in found.best],
        "worst": [example(one) for one in found.worst],
        "candidates": found.candidates,
        "texts": found.texts,
    }


def _read(pages: HeadPages, layer: int, head: int) -> list[Any] | None:
    found = reading(pages.shares, layer, head)
    return None if found is None else [found[0], _rounded(found[1])]


def _table(values: Float[np.ndarray, "L H"]) -> list[list[float | None]]:
    return [[_rounded(float(value)) for value in row] for row in values]


def _rounded(value: float) -> float | None:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
