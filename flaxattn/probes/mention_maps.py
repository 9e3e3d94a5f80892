# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an encoder over documents with marked mentions and hands out attention between their words.

Which mention means which is decided in `flaxattn.measures`.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from flaxattn.corpus.bad_rows import Problem
from flaxattn.corpus.mentions import Document
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_bert import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.probes.antecedents import antecedent_scores, antecedents
from flaxattn.probes.extract_word_maps import whole_maps
from flaxattn.probes.watched_mentions import JudgedMention
from flaxattn.probes.word_maps import between_words
from flaxattn.text.words import pieces_of_words
from flaxattn.trace.selection import layer_weights

POSITIONS = 128
"""Most positions of a document, special pieces counted (Clark et al. 2019)."""
_LONGEST = 1 << 30


class DocumentMaps(NamedTuple):
    """Attention between the W words of the beginning of a document.

    Attributes:
        document: As far as it was read.
        weights: Share of attention that the word of a row gives to that of a column.
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        number: Of the document among those that were given.
        pieces: Positions of each word.
    """

    document: Document
    weights: Float[np.ndarray, "L H W W"]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    number: int
    pieces: Sequence[Sequence[int]]


def document_maps(
    model: Pretrained,
    documents: Iterable[Document],
    *,
    positions: int = POSITIONS,
    reading: ReadingOptions = DEFAULTS,
) -> Iterator[DocumentMaps]:
    """Attention between the words of documents, in order; each is read as far as there is room.

    Documents end at the last word that fits; mentions that reach beyond it are left out.
    """
    if not isinstance(model, PretrainedBert):
        raise InputError(
            f"probes read the attention of encoders; {model.name!r} is none\nname a BERT"
        )
    if positions < 4:
        raise InputError(f"{positions} positions hold no two words\ngive 4 or more, such as 128")
    waiting: dict[str, _Cut] = {}

    def texts() -> Iterator[Text]:
        for number, document in enumerate(documents):
            cut = _cut(model, number, document, min(positions, model.limit))
            if isinstance(cut, Problem):
                reading.problems.report(cut)
                continue
            name = f"{number} {document.id}"  # ids may repeat
            waiting[name] = cut
            yield Text(0, name, cut.document.text, None, document.file, document.line)

    for read, seen in whole_maps(model, texts(), dataclasses.replace(reading, truncate=False)):
        cut = waiting.pop(read.text.id)
        weights = layer_weights(seen, seen.layers, allow_nan=True)
        between = between_words(np.asarray(weights, np.float32), cut.pieces)[1]
        yield DocumentMaps(cut.document, between, seen.layers, seen.heads, cut.number, cut.pieces)


@dataclasses.dataclass(frozen=True)
class _Cut:
    """The beginning of a document, and the pieces of each of its words."""

    number: int
    document: Document
    pieces: list[list[int]]


def _cut(model: PretrainedBert, number: int, document: Document, room: int) -> _Cut | Problem:
    assert model.tokenizer is not None
    encoded = model.tokenizer.encode(document.text, max_length=_LONGEST)
    special = encoded.special[0].tolist()
    pieces = pieces_of_words([word.span for word in document.words], encoded.offsets[0], special)
    count = 0
    for word, its in zip(document.words, pieces, strict=True):
        if not its:
            told = (
                f"document {document.id!r}, word {word.form!r}: the tokenizer makes no piece of it"
            )
            return Problem(document.file, word.line, "", "no-pieces", told)
        if its[-1] + 1 >= room:  # one more piece ends the text
            break
        count += 1
    if not count:
        told = f"document {document.id!r}: its first word has more pieces than there is room for"
        return Problem(document.file, document.line, "", "no-pieces", told)
    return _Cut(number, document.until(count), pieces[:count])


def judged_mentions(maps: DocumentMaps) -> Iterator[JudgedMention]:
    """Scores of the mentions of a document that have an antecedent, and where these stand."""
    document, weights, layers, heads, number, pieces = maps
    scores = antecedent_scores(document, weights, layers, heads)
    for one, of_heads in zip(antecedents(document), scores, strict=True):
        right = [pieces[one.candidates[place]] for place in one.right]
        asked = pieces[one.mention.head]
        yield JudgedMention(number, document.id, document.text, asked, right, of_heads)
