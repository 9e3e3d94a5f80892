# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From text files to BERT pretraining batches: documents, sentence pairs, masks.

Instances follow `create_pretraining_data.py` of the BERT paper's code; masks are drawn afresh in
every epoch from (seed, epoch, index), so a batch depends on nothing but the recipe and where the
run stands. This file knows no model and no loss.
"""

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float32, Int32, Int64

from flaxattn.errors import InputError
from flaxattn.tokens import Tokenizer
from flaxattn.train.recipe import Recipe
from flaxattn.train.sentences import paragraphs, split_sentences

AnyArray = np.ndarray | Array  # NumPy outside of jit, JAX inside
Sentence = list[int]
Document = list[Sentence]


class Instance(NamedTuple):
    """Two segments of token ids and whether the second one is a random one."""

    first: Sentence
    second: Sentence
    is_random: bool


class Batch(NamedTuple):
    """What one update sees; P is the number of gathered positions per sequence."""

    input_ids: Int32[AnyArray, "B S"]
    attention_mask: Int32[AnyArray, "B S"]
    token_type_ids: Int32[AnyArray, "B S"]
    masked_positions: Int32[AnyArray, "B P"]
    masked_ids: Int32[AnyArray, "B P"]
    masked_weights: Float32[AnyArray, "B P"]
    next_sentence_label: Int32[AnyArray, " B"]


class Position(NamedTuple):
    """Where a run stands in its data: the pass, and the first instance of its next batch."""

    epoch: int = 0
    start: int = 0


def read_documents(files: Sequence[Path], recipe: Recipe) -> list[list[str]]:
    """Documents of some text files, each a list of sentences.

    Args:
        files: UTF-8 text; paragraphs are separated by blank lines.
        recipe: `paragraphs_per_document` consecutive paragraphs make one document; no document
            crosses a file's end.

    Raises:
        InputError: a file is missing or not UTF-8, or all of them hold fewer than four documents.
    """
    documents = []
    for path in files:
        parts = paragraphs(read_text(path))
        for start in range(0, len(parts), recipe.paragraphs_per_document):
            group = parts[start : start + recipe.paragraphs_per_document]
            documents.append([s for part in group for s in split_sentences(part)])
    documents = [document for document in documents if document]
    if len(documents) < 4:
        raise InputError(
            f"too little text: {len(documents)} documents in {len(files)} files\n"
            "next-sentence pairs need 2 for training and 2 held out\n"
            "add text, or lower paragraphs_per_document"
        )
    return documents


def read_text(path: Path) -> str:
    """Content of a UTF-8 file.

    Raises:
        InputError: it cannot be read, or holds an invalid byte, whose line is named.
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}\n{error.strerror}\nname a text file") from error
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path} is not valid UTF-8\n"
            f"byte {raw[error.start]:#04x} in line {line}\n"
            "save the file as UTF-8"
        ) from error


def split_heldout(
    documents: Sequence[list[str]], fraction: float
) -> tuple[list[list[str]], list[list[str]]]:
    """Training and held-out documents; a document's side depends on its own content only.

    At least two documents, those with the smallest hashes, are held out.
    """
    shares = []
    for document in documents:
        digest = hashlib.sha256("\n".join(document).encode("utf-8")).digest()
        shares.append(int.from_bytes(digest[:8], "big") / 2**64)
    limit = max(fraction, sorted(shares)[1])
    training = [d for d, share in zip(documents, shares, strict=True) if share > limit]
    heldout = [d for d, share in zip(documents, shares, strict=True) if share <= limit]
    return training, heldout


def tokenize(documents: Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[Document]:
    """Token ids of every sentence; sentences and documents without a token are dropped."""
    flat = tokenizer.ids([sentence for document in documents for sentence in document])
    result, start = [], 0
    for document in documents:
        rows = [row for row in flat[start : start + len(document)] if row]
        start += len(document)
        if rows:
            result.append(rows)
    return result


def build_instances(
    documents: Sequence[Document], number: int, length: int, short_prob: float, rng: random.Random
) -> Iterator[Instance]:
    """Sentence pairs of one document (BERT paper §A.2, as coded).

    Args:
        documents: all of them; the random second segments come from the others.
        number: index of the document to cut up.
        length: S, sequence length with the three special tokens.
        short_prob: probability that the whole document is packed to a random shorter length.
        rng: source of every choice.

    Yields:
        Pairs with at most S - 3 tokens and at least one token on each side. The share of random
        pairs is slightly above one half, because a lone sentence always gets a random partner.
    """
    document, room = documents[number], length - 3
    target = rng.randint(2, room) if rng.random() < short_prob else room
    chunk: list[Sentence] = []
    i = 0
    while i < len(document):
        chunk.append(document[i])
        if i == len(document) - 1 or sum(map(len, chunk)) >= target:
            end = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            first = [token for sentence in chunk[:end] for token in sentence]
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                second = _random_segment(documents, number, target - len(first), rng)
                i -= len(chunk) - end  # the unused sentences go back
            else:
                second = [token for sentence in chunk[end:] for token in sentence]
            yield Instance(*_truncate_pair(first, second, room, rng), is_random)
            chunk = []
        i += 1


def _random_segment(
    documents: Sequence[Document], number: int, target: int, rng: random.Random
) -> Sentence:
    other = number
    for _ in range(10):
        other = rng.randrange(len(documents))
        if other != number:
            break
    segment: Sentence = []
    for sentence in documents[other][rng.randrange(len(documents[other])) :]:
        segment.extend(sentence)
        if len(segment) >= target:
            break
    return segment


def _truncate_pair(
    first: Sentence, second: Sentence, room: int, rng: random.Random
) -> tuple[Sentence, Sentence]:
    start, stop = [0, 0], [len(first), len(second)]
    while stop[0] - start[0] + stop[1] - start[1] > room:
        longer = 0 if stop[0] - start[0] > stop[1] - start[1] else 1
        if rng.random() < 0.5:
            start[longer] += 1
        else:
            stop[longer] -= 1
    return first[start[0] : stop[0]], second[start[1] : stop[1]]


def choose_masks(
    ids: Int32[np.ndarray, " S"],
    special: Sequence[int],
    count: int,
    vocabulary: int,
    mask_id: int,
    rng: np.random.Generator,
) -> tuple[Int32[np.ndarray, " S"], Int32[np.ndarray, " N"]]:
    """Hide `count` tokens: 80 % become the mask, 10 % stay, 10 % become any id of the vocabulary.

    Args:
        ids: one sequence without padding.
        special: positions that are never chosen.
        count: N, how many to predict; fewer where there are fewer candidates.
        vocabulary: V; the random ids are uniform over all of it, special tokens included.
        mask_id: the id that hides.
        rng: source of every choice.

    Returns:
        The changed ids, and the chosen positions in ascending order.
    """
    candidates = np.setdiff1d(np.arange(len(ids), dtype=np.int32), special)
    chosen = np.sort(rng.permutation(candidates)[:count])
    draw = rng.random(len(chosen))
    anything = rng.integers(vocabulary, size=len(chosen))
    hidden = ids.copy()
    hidden[chosen] = np.where(draw < 0.8, mask_id, np.where(draw < 0.9, ids[chosen], anything))
    return hidden, chosen


@dataclass
class Feed:
    """Batches of a corpus, each a function of the recipe and a position.

    Attributes:
        documents: token ids per sentence per document.
        tokenizer: gives the special ids and V.
        recipe: seed, batch size and masking.
        label: keeps the random numbers of training and evaluation apart.
    """

    documents: list[Document]
    tokenizer: Tokenizer
    recipe: Recipe
    label: str = "train"

    def __post_init__(self) -> None:
        self._built: tuple[tuple[int, int], list[Instance]] | None = None

    def epoch(self, epoch: int, length: int) -> list[Instance]:
        """All instances of one pass, shuffled; the last pass asked for is kept in memory."""
        if self._built is None or self._built[0] != (epoch, length):
            key = f"{self.recipe.seed}/{self.label}/{length}/{epoch}"
            instances = []
            for number in range(len(self.documents)):
                rng = random.Random(f"{key}/{number}")
                short = self.recipe.short_sequence_prob
                instances += build_instances(self.documents, number, length, short, rng)
            random.Random(key).shuffle(instances)
            if len(instances) < self.recipe.rows(length):
                raise InputError(
                    f"too little text for one {self.label} batch\n"
                    f"it takes {self.recipe.rows(length)} pairs, an epoch has {len(instances)}\n"
                    "add text, or lower batch_size"
                )
            self._built = ((epoch, length), instances)
        return self._built[1]

    def batch(self, position: Position, length: int) -> Batch:
        """The batch at a position; sequences of at most `length` tokens, padded to it."""
        instances = self.epoch(position.epoch, length)
        indices = range(position.start, position.start + self.recipe.rows(length))
        rows = [self._row(instances[i], (position.epoch, i), length) for i in indices]
        return Batch(*(np.stack(column) for column in zip(*rows, strict=True)))

    def advance(self, position: Position, length: int) -> Position:
        """The position after it; an incomplete last batch is left out."""
        after = position.start + self.recipe.rows(length)
        if after + self.recipe.rows(length) > len(self.epoch(position.epoch, length)):
            return Position(position.epoch + 1, 0)
        return Position(position.epoch, after)

    def _row(self, instance: Instance, key: tuple[int, int], length: int) -> Batch:
        tokens, recipe = self.tokenizer, self.recipe
        first = [tokens.cls_id, *instance.first, tokens.sep_id]
        ids = np.array([*first, *instance.second, tokens.sep_id], np.int32)
        size, most = len(ids), recipe.predictions(length)
        label = int.from_bytes(self.label.encode(), "big") % 2**31
        rng = np.random.default_rng((recipe.seed, label, length, *key))
        count = min(most, max(1, round(size * recipe.masked_lm_prob)))
        special = (0, len(first) - 1, size - 1)
        hidden, chosen = choose_masks(ids, special, count, tokens.vocab_size, tokens.mask_id, rng)
        types = np.arange(size) >= len(first)
        return Batch(
            _padded(hidden, length, tokens.pad_id),
            _padded(np.ones(size), length),
            _padded(types, length),
            _padded(chosen, most),
            _padded(ids[chosen], most),
            _padded(np.ones(len(chosen)), most).astype(np.float32),
            np.array(instance.is_random, np.int32),
        )


def _padded(values: np.ndarray, length: int, fill: int = 0) -> np.ndarray:
    result = np.full(length, fill, np.int32)
    result[: len(values)] = values
    return result


def log_frequencies(documents: Sequence[Document], vocabulary: int) -> Float32[np.ndarray, " V"]:
    """Natural logarithms of the token frequencies, each count raised by one."""
    counts = count_tokens(documents, vocabulary) + 1.0
    return np.log(counts / counts.sum()).astype(np.float32)


def unigram_loss(
    training: Sequence[Document], heldout: Sequence[Document], vocabulary: int
) -> float:
    """Cross-entropy in nats of held-out tokens under the training frequencies (add one).

    The loss of a model that ignores context: what masked language modelling must beat.
    """
    seen = count_tokens(heldout, vocabulary)
    return float(-(seen * log_frequencies(training, vocabulary)).sum() / seen.sum())


def count_tokens(documents: Sequence[Document], vocabulary: int) -> Int64[np.ndarray, " V"]:
    """How often each id occurs."""
    flat = [token for document in documents for sentence in document for token in sentence]
    return np.bincount(np.array(flat, np.int64), minlength=vocabulary)
