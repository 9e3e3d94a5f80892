# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Single heads as classifiers of dependencies, beside the best fixed offset (Clark et al. 2019).

For every word the head names another one: the word it attends to most, or that attends to it most.
How often is that its governor? A head counts for something only where it beats the best offset,
such as "the next word": `lift` says by how many points. Nothing is fitted here: see
`parsing_probe`. For pages there are the gold pairs of a sentence, judged in the same way, and the
attention to the right words, which separates sentences that show a relation well from the others.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, Self, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.measures.claims import Evidence
from flaxattn.measures.gold_pairs import HIT, MISS, UNJUDGED, GoldPair, GoldPairs, runs_of
from flaxattn.probes.word_records import WordMaps, word_maps_of
from flaxattn.text.position_labels import PositionLabels
from flaxattn.trace.record import AttentionRecord, layer_weights

Item = TypeVar("Item")


class HeadCounts(Generic[Item]):
    """Counts of the heads of one model.

    Attributes:
        layers: Number of the layer at each index; empty before anything was counted.
        heads: Number of the head at each index.
    """

    def __init__(self) -> None:
        self.layers: tuple[int, ...] = ()
        self.heads: tuple[int, ...] = ()

    @classmethod
    def of(cls, items: Iterable[Item]) -> Self:
        """Return the counts of some items.

        Args:
            items: Items of one model.
        """
        found = cls()
        for item in items:
            found.add(item)
        return found

    def add(self, item: Item) -> None:
        """Add an item.

        Args:
            item: Item of the same model.

        Raises:
            InputError: If it is of a model with other heads.
        """
        raise NotImplementedError

    def of_heads(self, layers: tuple[int, ...], heads: tuple[int, ...]) -> None:
        """Note of which heads an item is.

        Args:
            layers: Number of the layer at each index.
            heads: Number of the head at each index.

        Raises:
            InputError: If others were counted before.
        """
        if self.layers and (layers, heads) != (self.layers, self.heads):
            raise InputError(
                f"Heads of two models cannot be added up: {len(self.layers)} layers of "
                f"{len(self.heads)} heads, then {len(layers)} of {len(heads)}.\n"
                f"Keep one {type(self).__name__} for each model."
            )
        self.layers, self.heads = layers, heads


TO_GOVERNOR = "to governor"
"""The word that a dependent attends to most is its governor."""
FROM_GOVERNOR = "from governor"
"""The word that attends most to a dependent is its governor: maps transposed."""

_Question = tuple[str, str]  # direction, relation


class Classifier(NamedTuple):
    """The head that finds a relation best.

    Attributes:
        relation: Between the two words.
        direction: Side from which the answer is read.
        layer: Number of its layer.
        head: Its number.
        words: Number of words.
        accuracy: Share of them for which it is right.
        offset: The fixed offset it is compared with, key minus query.
        baseline: Share for which that is right.
    """

    relation: str
    direction: str
    layer: int
    head: int
    words: int
    accuracy: float
    offset: int
    baseline: float

    @property
    def lift(self) -> float:
        """Percentage points above the baseline."""
        return 100 * (self.accuracy - self.baseline)


def named_words(words: WordMaps) -> dict[str, Int[np.ndarray, "L H W"]]:
    """The word that each head names as the governor of each word, by direction."""
    weights = words.weights.copy()
    places = np.arange(len(words))
    weights[..., places, places] = -1  # no word is its own governor
    return {TO_GOVERNOR: weights.argmax(-1), FROM_GOVERNOR: weights.argmax(-2)}


class Dependencies(HeadCounts[WordMaps]):
    """Counts of the relations that each head finds; added up sentence by sentence, in any order.

    Attributes:
        hits: Words for which each head is right, by direction and relation.
        offsets: Frequency of each distance from a word to its right answer, likewise.
        broken: Heads whose attention is NaN in some sentence; False where that is none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.broken: Bool[np.ndarray, "L H"] | bool = False
        self.hits: dict[_Question, Int[np.ndarray, "L H"]] = {}
        self.offsets: dict[_Question, Counter[int]] = {}

    def add(self, item: WordMaps) -> None:
        """Add a sentence. A relation counts with its subtype and without, and as `any`.

        Args:
            item: Item of the same model.

        Raises:
            InputError: If it is of a model with other heads.
        """
        words = item
        self.of_heads(words.layers, words.heads)
        self.broken = self.broken | np.isnan(words.weights).any((-2, -1))
        named = named_words(words)
        for place in np.flatnonzero(words.governors >= 0).tolist():
            governor, relation = int(words.governors[place]), words.relations[place]
            for name in dict.fromkeys(("any", relation.split(":")[0], relation)):
                for direction, answers in named.items():
                    question = direction, name
                    right = (answers[..., place] == governor).astype(int)
                    self.hits[question] = self.hits.get(question, 0) + right
                    self.offsets.setdefault(question, Counter())[governor - place] += 1

    def merge(self, other: Self) -> None:
        """Add everything that another one holds.

        Args:
            other: Another one of the same model; unchanged.

        Raises:
            InputError: If it is of a model with other heads.
        """
        if not other.hits:
            return
        self.of_heads(other.layers, other.heads)
        self.broken = self.broken | other.broken
        for question, hits in other.hits.items():
            self.hits[question] = self.hits.get(question, 0) + hits
            offsets = self.offsets.setdefault(question, Counter())
            offsets.update(other.offsets[question])

    def accuracy(self, direction: str, relation: str) -> Float[np.ndarray, "L H"]:
        """Share of words for which each head is right.

        Args:
            direction: One of the three of this file.
            relation: Relation of Universal Dependencies, or `any`.

        Returns:
            nan for heads whose attention is NaN in some sentence.

        Raises:
            InputError: If no sentence has the relation.
        """
        hits = self.hits.get((direction, relation))
        if hits is None:
            known = ", ".join(sorted({name for _, name in self.hits})) or "none"
            raise InputError(f"no head was asked about {relation!r} {direction}\nthere are {known}")
        return np.where(self.broken, np.nan, hits / self.offsets[direction, relation].total())

    def best(self, chosen_on: Self | None = None) -> list[Classifier]:
        """The best head for every relation, commonest relations first.

        Args:
            chosen_on: Other sentences, on which head, direction and offset are chosen; relations
                that they lack are left out. Default the same ones, as Clark et al. did, which
                flatters: the best of many heads is partly luck. Their offset was one of -3 to 2 and
                stopped at the ends of the sentence; here it is any and does not stop.

        Returns:
            One per relation.
        """
        other = self if chosen_on is None else chosen_on
        names = {name for _, name in self.hits.keys() & other.hits.keys()}
        found = [self._best(name, other) for name in names]
        return sorted(found, key=lambda one: (-one.words, one.relation))

    def _best(self, name: str, other: Self) -> Classifier:
        directions = [
            d for d, relation in other.hits if relation == name and (d, name) in self.hits
        ]

        def lift(direction: str) -> float:
            best = np.nan_to_num(other.accuracy(direction, name), nan=-1).max()
            return float(best - other.baseline(direction, name, other)[1])

        direction = max(directions, key=lift)
        chosen = np.nan_to_num(other.accuracy(direction, name), nan=-1)
        layer, head = np.unravel_index(int(chosen.argmax()), chosen.shape)
        offset, baseline = self.baseline(direction, name, other)
        return Classifier(
            name,
            direction,
            self.layers[layer],
            self.heads[head],
            self.offsets[direction, name].total(),
            float(self.accuracy(direction, name)[layer, head]),
            offset,
            baseline,
        )

    def baseline(
        self, direction: str, relation: str, chosen_on: Self | None = None
    ) -> tuple[int, float]:
        """The commonest offset, and how often it is right.

        Args:
            direction: One of the three of this file.
            relation: That some sentence has.
            chosen_on: Sentences on which it is the commonest; default the same.
        """
        other = self if chosen_on is None else chosen_on
        common = other.offsets[direction, relation]
        # Of two as common the nearer one, so that merging in any order gives the same.
        offset = min(common, key=lambda step: (-common[step], abs(step), step))
        offsets = self.offsets[direction, relation]
        return offset, offsets[offset] / offsets.total()


_TOLD = {
    True: (
        "each word and its governor ({})",
        "the word gives no other word more of its attention than its governor",
    ),
    False: (
        "each governor and its dependent ({})",
        "no other word gives the dependent a larger share of its attention",
    ),
}


def governor_pairs(
    relation: str, direction: str, layout: PositionLabels, record: AttentionRecord
) -> GoldPairs:
    """The gold pairs of a relation, from the word that attends to the word attended to."""
    forward = direction == TO_GOVERNOR
    kept = [positions for positions in layout.words if positions]
    weights = np.asarray(layer_weights(record, record.layers, allow_nan=True))
    words = word_maps_of(weights, layout)
    places = [
        place
        for place in np.flatnonzero(words.governors >= 0).tolist()
        if relation in ("any", words.relations[place], words.relations[place].split(":")[0])
    ]
    pairs = []
    for place in places:
        dependent, governor = kept[place], kept[words.governors[place]]
        query, keys = (dependent, governor) if forward else (governor, dependent)
        pairs.append(GoldPair((query[0], query[-1]), runs_of(keys)))
    about, rule = _TOLD[forward]
    named = "any relation" if relation == "any" else relation
    return GoldPairs(relation, about.format(named), rule, pairs, _hits(words, places, direction))


def _hits(words: WordMaps, places: list[int], direction: str) -> Int[np.ndarray, "L H P"]:
    answers = named_words(words)[direction][..., places]
    hits = np.where(answers == words.governors[places], HIT, MISS)
    broken = np.isnan(words.weights).any((-2, -1))
    return np.where(broken[..., None], UNJUDGED, hits).astype(np.int8)


def arc_weights(words: WordMaps) -> dict[tuple[str, str], Float[np.ndarray, "L H"]]:
    """Mean share of attention along the arcs of each relation, in either direction."""
    arcs: dict[str, list[int]] = {}
    for place in np.flatnonzero(words.governors >= 0).tolist():
        relation = words.relations[place]
        for name in dict.fromkeys(("any", relation.split(":")[0], relation)):
            arcs.setdefault(name, []).append(place)
    found = {}
    for name, places in arcs.items():
        governors = words.governors[places]
        found[TO_GOVERNOR, name] = words.weights[..., places, governors].mean(-1)
        found[FROM_GOVERNOR, name] = words.weights[..., governors, places].mean(-1)
    return found


class Watched:
    """Sentences on their way to a probe, of which those are remembered that show relations best.

    Args:
        keep: Number of texts of each relation, direction and head.

    Attributes:
        evidence: By direction and relation.
        names: Names of the sentences that are kept, by number.
    """

    def __init__(self, keep: int) -> None:
        self.evidence = Evidence(keep)
        self.names: dict[int, str] = {}
        self._count = 0

    def __call__(self, sentences: Iterable[WordMaps]) -> Iterator[WordMaps]:
        """The same sentences."""
        for words in sentences:
            number, self._count = self._count, self._count + 1
            for question, weights in arc_weights(words).items():
                self.evidence.add(question, weights[None], [number])
            self.names[number] = words.name
            if self._count % 256 == 0:
                self._forget()
            yield words
        self._forget()

    def _forget(self) -> None:
        kept = self.evidence.texts()
        self.names = {number: name for number, name in self.names.items() if number in kept}
