# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A corpus of token ids on disk: documents of sentences, looked at through memory maps.

`flaxattn.train.corpus_writer` makes one. Ids are all there is: the text is not kept, and what a
model makes of them is not known here.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Int64, Integer, UInt64

from flaxattn.train.columns import mapped

INDEX = "corpus.json"
COLUMNS = ("tokens.npy", "sentences.npy", "documents.npy", "hashes.npy")
_AT_ONCE = 2**22  # tokens looked at in one chunk


@dataclasses.dataclass(frozen=True)
class TokenCorpus:
    """All documents of a store, or one side of its held-out split.

    Light to send to another process: the arrays are opened again there, when first used.

    Attributes:
        folder: where the store is.
        side: "all", "training" or "heldout".
        fraction: share of the documents on the held-out side.
    """

    folder: Path
    side: Literal["all", "training", "heldout"] = "all"
    fraction: float = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    @functools.cached_property
    def tokens(self) -> Integer[np.ndarray, " T"]:
        """Ids of all documents of the store, one after another."""
        return mapped(self.folder / "tokens.npy")

    @functools.cached_property
    def sentences(self) -> Int64[np.ndarray, " N"]:
        """Start of each sentence of the store in `tokens`, and at last their end."""
        return mapped(self.folder / "sentences.npy")

    @functools.cached_property
    def documents(self) -> Int64[np.ndarray, " M"]:
        """Start of each document of the store in `sentences`, and at last their end."""
        return mapped(self.folder / "documents.npy")

    @functools.cached_property
    def members(self) -> Int64[np.ndarray, " D"]:
        """Numbers of this side's documents in the store, ascending.

        A document's side depends on its own text only; at least two, those with the smallest
        hashes, are held out.
        """
        hashes: UInt64[np.ndarray, " M"] = mapped(self.folder / "hashes.npy")
        if self.side == "all":
            return np.arange(len(hashes))
        shares = hashes / 2.0**64
        limit = max(self.fraction, float(np.partition(shares, 1)[1]))
        return np.flatnonzero((shares > limit) == (self.side == "training"))

    @functools.cached_property
    def index(self) -> dict[str, Any]:
        """Description of the store: content of `corpus.json`."""
        return json.loads((self.folder / INDEX).read_text(encoding="utf-8"))

    @functools.cached_property
    def digest(self) -> str:
        """Fingerprint of the ids and how they are cut, and of the side."""
        content = [self.index["files"], self.side, self.fraction]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Integer[np.ndarray, " T"]]:
        return (self.document(number) for number in range(len(self)))

    def bounds(self, number: int) -> Int64[np.ndarray, " N"]:
        """Start of each sentence of a document in `tokens`, and the end of the last."""
        start, stop = self.documents[self.members[number] :][:2]
        return self.sentences[start : stop + 1]

    def lengths(self, number: int) -> Int64[np.ndarray, " N"]:
        """Tokens of each sentence of a document."""
        return np.diff(self.bounds(number))

    def document(self, number: int) -> Integer[np.ndarray, " T"]:
        """Ids of a document, its sentences joined."""
        bounds = self.bounds(number)
        return self.tokens[bounds[0] : bounds[-1]]

    def sentence(self, number: int, sentence: int) -> Integer[np.ndarray, " T"]:
        """Ids of one sentence of a document."""
        bounds = self.bounds(number)
        return self.tokens[bounds[:-1][sentence] : bounds[1:][sentence]]

    def split(self, fraction: float) -> tuple["TokenCorpus", "TokenCorpus"]:
        """The training side and the held-out side."""
        return (
            TokenCorpus(self.folder, "training", fraction),
            TokenCorpus(self.folder, "heldout", fraction),
        )

    def chunks(self) -> Iterator[Integer[np.ndarray, " T"]]:
        """All ids of this side in a few long chunks, for counting."""
        if not len(self.members):
            return
        runs = np.split(self.members, np.flatnonzero(np.diff(self.members) > 1) + 1)
        for run in runs:
            start, stop = self.sentences[self.documents[[run[0], run[-1] + 1]]]
            for chunk in range(start, stop, _AT_ONCE):
                yield self.tokens[chunk : min(stop, chunk + _AT_ONCE)]


def count_tokens(corpus: TokenCorpus, vocabulary: int) -> Int64[np.ndarray, " V"]:
    """Count the occurrences of each id."""
    counts = np.zeros(vocabulary, np.int64)
    for chunk in corpus.chunks():
        counts += np.bincount(chunk, minlength=vocabulary)
    return counts


def log_frequencies(corpus: TokenCorpus, vocabulary: int) -> Float32[np.ndarray, " V"]:
    """Natural logarithms of the token frequencies, each count raised by one."""
    counts = count_tokens(corpus, vocabulary) + 1.0
    return np.log(counts / counts.sum()).astype(np.float32)


def unigram_loss(training: TokenCorpus, heldout: TokenCorpus, vocabulary: int) -> float:
    """Cross-entropy in nats of held-out tokens under the training frequencies (add one).

    The loss of a model that ignores context: what masked language modelling must beat.
    """
    counts = count_tokens(heldout, vocabulary)
    return float(-(counts * log_frequencies(training, vocabulary)).sum() / counts.sum())
