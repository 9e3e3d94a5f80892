# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From documents to rows of tokens for next-word prediction: cut, packed, dealt out by number.

Documents share rows and do not see each other: each has a segment of its own and counts its
positions from 0. Each token has a label, the token that it has to predict: for the last token of a
document the end of the text, for the last token of a chunk the token that follows it. No token
predicts anything of another document. No model is run here.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int, Int32, Int64
from tokenizers import decoders

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.train.corpus import TokenCorpus
from flaxattn.train.documents import read_texts
from flaxattn.train.instances import AnyArray, packing_of, places_of, row_table, spread
from flaxattn.train.lm_recipe import LanguageModelRecipe

_WINDOW = 2**15  # chunks that rows are made of together


class TextBatch(NamedTuple):
    """B rows of S tokens; a row holds documents, or chunks of them, one after the other.

    Attributes:
        input_ids: tokens.
        attention_mask: 1 on tokens, 0 on padding.
        position_ids: place within the chunk.
        segment_ids: number of the chunk in its row, from 1; 0 on padding.
        labels: the token that follows each in its document; after the last one the end of the text.
        label_mask: 1 where a prediction counts.
    """

    input_ids: Int32[AnyArray, "B S"]
    attention_mask: Int32[AnyArray, "B S"]
    position_ids: Int32[AnyArray, "B S"]
    segment_ids: Int32[AnyArray, "B S"]
    labels: Int32[AnyArray, "B S"]
    label_mask: Float32[AnyArray, "B S"]


class Chunks(NamedTuple):
    """n stretches of tokens of a corpus, each of one document.

    Attributes:
        start: first token in the corpus.
        size: how many tokens.
        skipped: how many of the first ones only give context: their predictions count elsewhere.
        last: whether the document ends with it.
    """

    start: Int64[np.ndarray, " n"]
    size: Int64[np.ndarray, " n"]
    skipped: Int64[np.ndarray, " n"]
    last: Bool[np.ndarray, " n"]

    def first(self, tokens: int) -> "Chunks":
        """The first chunks, as many as it takes for so many predictions; 0 for all."""
        counted = np.cumsum(self.size - self.skipped)
        stop = int(np.searchsorted(counted, tokens)) + 1 if tokens else len(counted)
        return Chunks(*(column[:stop] for column in self))


def read_plain(
    files: Sequence[Path], recipe: LanguageModelRecipe, bad: BadRows
) -> Iterator[list[str]]:
    """Documents as they are to be learnt, each a list of one text."""
    separator = "\n" if recipe.reflow else "\n\n"
    for text in read_texts(files, recipe, bad, as_written=not recipe.reflow):
        if text:
            yield [separator.join(text)]


def cut_chunks(corpus: TokenCorpus, block: int, stride: int) -> Chunks:
    """Windows of documents that predict each token after the first of a document exactly once."""
    starts = corpus.sentences[corpus.documents]
    begin, end = starts[corpus.members], starts[corpus.members + 1]
    length = end - begin
    windows = 1 + np.maximum(0, -((block - length) // stride))
    number = np.arange(windows.sum()) - np.repeat(np.cumsum(windows) - windows, windows)
    offset = number * stride
    left = np.repeat(length, windows) - offset
    return Chunks(
        start=np.repeat(begin, windows) + offset,
        size=np.minimum(block, left),
        skipped=np.where(number > 0, block - stride, 0),
        last=left <= block,
    )


class TokenRows:
    """Chunks of a corpus in rows of S tokens, any of which come as a batch.

    Memory: 48 bytes per chunk; the tokens stay on disk.
    """

    def __init__(
        self, corpus: TokenCorpus, chunks: Chunks, block: int, most: int, end_id: int
    ) -> None:
        """Pack."""
        self.block, self.chunks = block, chunks
        self._corpus, self._most, self._end = corpus, most, end_id
        order, counts = [], [np.zeros(1, np.int64)]
        for first in range(0, len(chunks.size), _WINDOW):
            table = row_table(chunks.size[first : first + _WINDOW], block, most)
            order.append(table[table >= 0] + first)
            counts.append((table >= 0).sum(1))
        self._order, self._firsts = np.concatenate(order), np.cumsum(np.concatenate(counts))

    def __len__(self) -> int:
        return len(self._firsts) - 1

    def batch(self, numbers: Int[np.ndarray, " b"], count: int | None = None) -> TextBatch:
        """Some rows."""
        rows = len(numbers) if count is None else count
        row, number, chunk = self._of(numbers)
        found = Chunks(*(column[chunk] for column in self.chunks))
        sizes, place = found.size.astype(np.int32), np.arange(self.block)
        places = places_of(row, number, sizes)
        index = np.minimum(found.start[:, None] + place, len(self._corpus.tokens) - 1)
        ids = self._corpus.tokens[index].astype(np.int32)
        after = np.minimum(found.start + found.size, len(self._corpus.tokens) - 1)
        labels = np.roll(ids, -1, axis=1)
        closing = np.where(found.last, self._end, self._corpus.tokens[after])
        labels[np.arange(len(sizes)), sizes - 1] = closing
        scored = (place >= found.skipped[:, None]).astype(np.int32)
        packing = packing_of(sizes, places, (rows, self.block, self._most))
        ids, labels, scored = (spread(x, sizes, places, rows) for x in (ids, labels, scored))
        return TextBatch(
            ids,
            (np.asarray(packing.segment_ids) > 0).astype(np.int32),
            packing.position_ids,
            packing.segment_ids,
            labels,
            scored.astype(np.float32),
        )

    def names(self, numbers: Int[np.ndarray, " b"]) -> list[str]:
        """Sources of some rows, for a person to find them."""
        chunk = self._of(numbers)[2]
        starts = self._corpus.sentences[self._corpus.documents]
        found = []
        for start, size in zip(self.chunks.start[chunk], self.chunks.size[chunk], strict=True):
            document = int(np.searchsorted(starts, start, side="right")) - 1
            first = start - starts[document]
            found.append(f"document {document}, tokens {first} to {first + size - 1}")
        return found

    def _of(
        self, numbers: Int[np.ndarray, " b"]
    ) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """Row, number in the row, and number of each chunk of some rows."""
        firsts = self._firsts[numbers]
        counts = self._firsts[np.asarray(numbers) + 1] - firsts
        row = np.repeat(np.arange(len(numbers)), counts)
        number = np.arange(len(row)) - np.searchsorted(row, row)
        return row, number, self._order[firsts[row] + number]


def bytes_per_token(tokenizer: Tokenizer) -> Int64[np.ndarray, " V"]:
    """Number of UTF-8 bytes of each token of a vocabulary; special ones have none.

    Exact for byte-level chunks; of other tokenizers, what decoding each chunk by itself gives.
    """
    backend = tokenizer.backend
    added = backend.get_added_tokens_decoder()
    exact = isinstance(backend.decoder, decoders.ByteLevel)
    sizes = np.zeros(tokenizer.vocab_size, np.int64)
    for chunk, number in backend.get_vocab().items():
        if number in added:
            sizes[number] = 0 if added[number].special else len(chunk.encode())
        else:  # a byte-level chunk has a letter for each byte
            sizes[number] = len(chunk) if exact else len(backend.decode([number]).encode())
    return sizes
