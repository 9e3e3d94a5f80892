# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention and hidden states of the words of sentences with trees: `WordMaps`, `WordStates`.

`PositionLabels` says what a word is and where its tokens are. Encoders run over sentences, which
are read as for scores of heads, and what their tokens have is joined by word. The metric of a tree,
its distances and depths, is what structural probes should say, of the tree itself and of a control
task. Nothing is measured here.
"""

import collections
import dataclasses
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse.csgraph import minimum_spanning_tree

from flaxattn.corpus.dependency_trees import Sentence, Word
from flaxattn.corpus.texts import Text, annotated_text
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.pipeline.extraction import Options, extract_shards
from flaxattn.pipeline.tokenize_texts import (
    DEFAULTS,
    TOGETHER,
    LabelledText,
    ReadingOptions,
    groups_of,
    label_texts,
)
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.position_labels import PositionLabels
from flaxattn.trace.record import AttentionRecord, layer_weights

ROOT = -1
"""In place of a governor: the word has none."""
UNKNOWN = -2
"""In place of a governor: it was cut off, or shares its tokens with the word. It counts nowhere."""


@dataclasses.dataclass(frozen=True)
class WordMaps:
    """Attention between the W words of a sentence, and the tree over them.

    Attributes:
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        weights: Share of attention that the word of a row gives to that of a column.
        first: Share that each word gives to the token the model begins with, `[CLS]`.
        separators: Share that it gives to those that end texts, `[SEP]`.
        governors: Number of the word that each depends on; `ROOT`, or `UNKNOWN`.
        relations: To it, with subtypes; empty for the root.
        types: The tokens of each word: the same for the same word.
        punctuation: True at words that are punctuation by their tag.
        name: What to call the sentence.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    weights: Float[np.ndarray, "L H W W"]
    first: Float[np.ndarray, "L H W"]
    separators: Float[np.ndarray, "L H W"]
    governors: Int[np.ndarray, " W"]
    relations: tuple[str, ...]
    types: tuple[tuple[int, ...], ...]
    punctuation: Bool[np.ndarray, " W"]
    name: str = ""

    def __len__(self) -> int:
        return len(self.governors)


def word_maps_of(
    weights: Float[np.ndarray, "L H N N"],
    layout: PositionLabels,
    layers: tuple[int, ...] | None = None,
    heads: tuple[int, ...] | None = None,
) -> WordMaps:
    """Attention between words: what the tokens of a word give on average, what another's get.

    That is, columns of a split word are summed and rows averaged (Clark et al. 2019, section 4.1).
    Words without tokens, which lie beyond a cut, are left out.
    """
    weights = np.asarray(weights, np.float32)
    count = len(layout)
    if weights.ndim != 4 or weights.shape[2:] != (count, count):
        raise InputError(
            f"Weights between the positions of {layout.name or 'a text'!r} have shape "
            f"{weights.shape}; expected [L, H, {count}, {count}].\n"
            "Give those of one text, without padding."
        )
    kept = [number for number, positions in enumerate(layout.words) if positions]
    if not kept:
        raise InputError(
            f"The text {layout.name or '?'!r} has no words with a tree, so there is nothing to "
            "probe.\nGive sentences of a CoNLL-U file."
        )
    given, between = between_words(weights, [layout.words[number] for number in kept])
    governors, relations = _tree(layout, kept)
    return WordMaps(
        tuple(range(weights.shape[0])) if layers is None else layers,
        tuple(range(weights.shape[1])) if heads is None else heads,
        between,
        given[:, :, layout.first].sum(2),
        given[:, :, layout.separators].sum(2),
        governors,
        relations,
        tuple(tuple(layout.tokens[list(layout.words[number])].tolist()) for number in kept),
        np.array([layout.tags[number] == "PUNCT" for number in kept], bool),
        layout.name,
    )


def between_words(
    weights: Float[np.ndarray, "L H N N"], words: Sequence[Sequence[int]]
) -> tuple[Float[np.ndarray, "L H N W"], Float[np.ndarray, "L H W W"]]:
    """Attention between words: a mean over the query's tokens, a sum over the key's tokens.

    Returns:
        What each token gets of each word, and what the word of a row gives to that of a column.
    """
    members = np.zeros((weights.shape[-1], len(words)), np.float32)
    for place, positions in enumerate(words):
        members[list(positions), place] = 1
    given = np.swapaxes(weights, -1, -2) @ (members / members.sum(0))
    return given, np.swapaxes(given, -1, -2) @ members


def _tree(layout: PositionLabels, kept: list[int]) -> tuple[Int[np.ndarray, " W"], tuple[str, ...]]:
    """Governor and relation of each of the words that have tokens."""
    places = {number: place for place, number in enumerate(kept)}
    governors, relations = np.full(len(kept), ROOT), [""] * len(kept)
    for arc in layout.arcs:
        if arc.dependent in places:
            known = layout.disjoint(arc.dependent, arc.governor)
            place = places[arc.dependent]
            governors[place] = places[arc.governor] if known else UNKNOWN
            relations[place] = arc.relation
    return governors, tuple(relations)


_WINDOW = 4 * TOGETHER  # sentences whose maps between tokens are in memory


def word_maps(
    model: Pretrained,
    sentences: Iterable[Sentence],
    reading: ReadingOptions = DEFAULTS,
) -> Iterator[WordMaps]:
    """Attention between the words of sentences, in order.

    Memory: 4 L H N² bytes for each of 256 sentences of N positions, and what the caller keeps.

    Args:
        model: A BERT with its tokenizer.
        sentences: With their trees.
        reading: How texts are read.

    Yields:
        Maps of a sentence.

    Raises:
        InputError: For a model that is not a BERT, or a sentence that cannot be used.
        UnavailableError: If memory does not suffice for small batches.
    """
    if not isinstance(model, PretrainedBert):
        raise InputError(
            f"probes read the attention of encoders; {model.name!r} is not an encoder\nname a BERT"
        )
    for read, record in whole_maps(model, map(annotated_text, sentences), reading):
        weights = layer_weights(record, record.layers, allow_nan=True)
        yield word_maps_of(weights, read.layout, record.layers, record.heads)


def whole_maps(
    model: PretrainedBert, texts: Iterable[Text], reading: ReadingOptions
) -> Iterator[tuple[LabelledText, AttentionRecord]]:
    """Attention between the tokens of texts, in order."""
    held: collections.deque[list[LabelledText]] = collections.deque()
    maps, tokens = Capture(weights=True), reading.batch_tokens
    options = Options(
        capture=maps,
        truncate=reading.truncate,
        batch_tokens=tokens,
        allow_nonfinite=reading.allow_nonfinite,
    )
    for (shard,) in extract_shards([model], _labelled(model, texts, reading, held), options):
        read = held.popleft()
        for found, trace in zip(read, shard.traces, strict=True):
            assert trace.encoder is not None
            yield found, trace.encoder
        reading.watch("reading heads", len(read))


def _labelled(
    model: PretrainedBert,
    texts: Iterable[Text],
    reading: ReadingOptions,
    held: collections.deque[list[LabelledText]],
) -> Iterator[list[Text]]:
    """The texts that can be read, window by window; `held` gets them with their labels."""
    for window in groups_of(itertools.islice(texts, reading.limit), _WINDOW):
        groups = groups_of(window, TOGETHER)
        read = [one for g in groups for one in label_texts(model, g, reading)]
        if read:
            held.append(read)
            yield [one.text for one in read]


class TreeMetric(NamedTuple):
    """A tree as numbers.

    Attributes:
        distances: Edges on the way from each word to each other one.
        depths: Edges from the root to each word.
    """

    distances: Int[np.ndarray, "W W"]
    depths: Int[np.ndarray, " W"]

    def among(self, kept: Sequence[int]) -> "TreeMetric":
        """Restrict the metric to some words; the path between two of them may lead over others."""
        return TreeMetric(self.distances[np.ix_(kept, kept)], self.depths[kept])


def tree_metric(governors: Sequence[int]) -> TreeMetric:
    """Distances and depths of a tree. Cost: W²."""
    count = len(governors)
    below: list[list[int]] = [[] for _ in range(count + 1)]
    for word, governor in enumerate(governors):
        below[governor].append(word)
    (root,) = below[ROOT]
    distances, depths = np.zeros((count, count), np.int32), np.zeros(count, np.int32)
    order = [root]
    for governor in order:  # grows: a word comes after its governor
        for word in below[governor]:
            row = distances[governor, order] + 1
            distances[word, order] = distances[order, word] = row
            depths[word] = depths[governor] + 1
            order.append(word)
    return TreeMetric(distances, depths)


def control_metric(
    types: Sequence[tuple[int, ...]], punctuation: Bool[np.ndarray, " W"], seed: int = 0
) -> TreeMetric:
    """Metric of a random tree that depends on the words alone: our control for structural probes.

    The first word is the root, and the last one hangs on it; a type, that is, a word with the same
    tokens, hangs on the one or on the other, as was drawn for all sentences. Hewitt and Liang
    (2019) let a type attach to itself too, which no word of a tree can do.
    """
    places = np.flatnonzero(~punctuation)
    first, last = (int(places[0]), int(places[-1])) if len(places) else (0, len(types) - 1)
    governors = [ROOT] * len(types)
    for place, positions in enumerate(types):
        if place != first:
            drawn = zlib.crc32(repr((seed, positions)).encode()) % 2
            governors[place] = last if drawn and place != last else first
    return tree_metric(governors)


def chain_metric(count: int) -> TreeMetric:
    """Metric of a chain, each word hanging on the one before: a baseline without a model."""
    places = np.arange(count, dtype=np.int32)
    return TreeMetric(abs(places[:, None] - places), places)


def spanning_edges(
    distances: Float[np.ndarray, "W W"] | Int[np.ndarray, "W W"], counted: Bool[np.ndarray, " W"]
) -> set[tuple[int, int]]:
    """Edges of the tree over some words with the least sum of distances."""
    places = np.flatnonzero(counted)
    # SciPy takes 0 for no edge; one more on every edge leaves the least tree what it is.
    among = distances[np.ix_(places, places)].astype(np.float64) + 1
    edges = np.argwhere(minimum_spanning_tree(among).toarray() > 0)
    pairs = np.sort(places[edges], 1).tolist()
    return {(low, high) for low, high in pairs}


@dataclasses.dataclass(frozen=True)
class WordStates:
    """Vectors of the W words of a sentence, and the tree over them.

    Attributes:
        layers: Numbers of the hidden states: 0 for the embeddings, n for the output of the n-th
            layer.
        vectors: Mean of the states of a word's tokens.
        tree: Distances and depths.
        types: The tokens of each word: the same for the same word.
        punctuation: True at words that are punctuation by their tag.
        name: What to call the sentence.
        words: The words as the treebank has them, with parts of speech and features.
    """

    layers: tuple[int, ...]
    vectors: Float[np.ndarray, "L W E"]
    tree: TreeMetric
    types: tuple[tuple[int, ...], ...]
    punctuation: Bool[np.ndarray, " W"]
    name: str = ""
    words: tuple[Word, ...] = ()

    def __len__(self) -> int:
        return len(self.types)

    def of_layer(self, layer: int) -> Float[np.ndarray, "W E"]:
        """The vectors of a hidden state."""
        if layer not in self.layers:
            raise InputError(
                f"The sentence {self.name!r} has hidden states {[*self.layers]}, not {layer}.\n"
                "Ask for that one when states are read: layers=."
            )
        return self.vectors[self.layers.index(layer)]


class Kept(NamedTuple):
    """The words of a layout that have a vector of their own.

    Attributes:
        numbers: Numbers of the words.
        shares: What each position gives to each of these words; columns sum to one.
    """

    numbers: list[int]
    shares: Float[np.ndarray, "N W"]


def kept_words(layout: PositionLabels) -> Kept:
    """The words that a probe can tell apart: those with a token that no earlier word has.

    Words beyond a cut have none, and the second of two words that are written as one has none
    either ("im" is "in" and "dem").
    """
    taken: set[int] = set()
    numbers = []
    for number, positions in enumerate(layout.words):
        if not taken.issuperset(positions):
            numbers.append(number)
            taken.update(positions)
    if not numbers:
        raise InputError(
            f"The text {layout.name or '?'!r} has no words with a tree, so there is nothing to "
            "probe.\nGive sentences of a CoNLL-U file."
        )
    shares = np.zeros((len(layout), len(numbers)), np.float32)
    for place, number in enumerate(numbers):
        shares[list(layout.words[number]), place] = 1 / len(layout.words[number])
    return Kept(numbers, shares)


def word_states_of(
    vectors: Float[np.ndarray, "L W E"],
    layout: PositionLabels,
    kept: Kept,
    layers: tuple[int, ...],
    words: Sequence[Word],
) -> WordStates:
    """Vectors of words beside the tree over them, in which words without a vector still stand."""
    governors = [ROOT] * len(layout.words)
    for arc in layout.arcs:
        governors[arc.dependent] = arc.governor
    return WordStates(
        layers,
        vectors,
        tree_metric(governors).among(kept.numbers),
        tuple(tuple(layout.tokens[list(layout.words[n])].tolist()) for n in kept.numbers),
        np.array([layout.tags[number] == "PUNCT" for number in kept.numbers], bool),
        layout.name,
        tuple(words[number] for number in kept.numbers),
    )
