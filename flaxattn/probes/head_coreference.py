# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Coreference scores of heads from a model and files: `head_coreference`, and pronouns (GAP).

It runs the model over the texts; the counts are computed in `flaxattn.measures`.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from flaxattn.corpus.bad_rows import BadRows, Problem
from flaxattn.corpus.coreference_documents import Document, read_documents
from flaxattn.corpus.pronouns import Pronoun, read_pronouns
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError, check_arguments
from flaxattn.pipeline.labelled_texts import LabelledText
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.probes.mention_resolution import (
    Coreference,
    JudgedMention,
    Resolver,
    antecedent_scores,
    antecedents,
    pronoun_scores,
)
from flaxattn.probes.word_maps import between_words, whole_maps
from flaxattn.text.token_spans import positions_of_words
from flaxattn.trace.record import layer_weights

DOCUMENTS = "documents"
_Kind = TypeVar("_Kind", Pronoun, Document)
Texts = str | os.PathLike[str] | Iterable[Pronoun | Document | str | os.PathLike[str]]
"""A file, or several files, pronouns or documents."""


class HeadCoreference(NamedTuple):
    """Results of single heads in resolving mentions.

    Attributes:
        found: Frequency with which each head is right.
        best: The best head, for all mentions and each group of them.
        among_words: For documents, how often each head is right if every other word is a candidate;
            None of pronouns.
        best_among_words: The best head there; none of pronouns.
    """

    found: Coreference
    best: list[Resolver]
    among_words: Coreference | None
    best_among_words: list[Resolver]


@check_arguments()
def head_coreference(
    model: Pretrained,
    texts: Texts,
    form: str = DOCUMENTS,
    chosen_on: Texts | None = None,
    *,
    pooling: str = "sum",
    reading: ReadingOptions = DEFAULTS,
    passing: Callable[[Iterable[JudgedMention]], Iterable[JudgedMention]] = iter,
) -> HeadCoreference:
    """Ask every head whom pronouns mean, or which mention another one of a document repeats.

    A head is right about a mention of a document if its head word attends most to the head word of
    one of its antecedents (or the other way: `to mention`), among head words of mentions before it.
    Documents are cut to 128 positions. Clark et al. (2019) do so too, but do not say what the
    candidates are, so that results with every other word as one are reported too.

    >>> import flaxattn as fa
    >>> from flaxattn.corpus.pronouns import Pronoun
    >>> text = "Mary met John before she left."
    >>> pronoun = Pronoun("one", text, (21, 24), ((0, 4), (9, 13)), 0, "all", "", 1)
    >>> result = fa.head_coreference(fa.from_pretrained("tiny-bert"), [pronoun], "gap")
    >>> len(result.best) >= 1
    True

    Args:
        model: A BERT with its tokenizer.
        texts: Files, or what `read_pronouns` or `read_documents` give.
        form: `documents` (CoNLL-2012, or CoNLL-U by its name), `gap`, `winobias` or `winogender`.
        chosen_on: Other texts, on which head and direction are chosen; default the same, which
            flatters.
        pooling: Pooling of pronouns: see `pronoun_scores`.
        reading: How texts are read. `truncate` is for pronouns.
        passing: Looks at the mentions of `texts` on their way, such as
            `watched_mentions.WatchedMentions`.

    Returns:
        How often each head is right, and the best heads. Counts of mentions; accuracies are shares
        between 0 and 1.

    Raises:
        InputError: For a model that is not a BERT, an unknown form, a text that cannot be used, or
            none in which a mention has a right candidate.
    """
    other = None if chosen_on is None else _counted(model, chosen_on, form, pooling, reading)
    found = _counted(model, texts, form, pooling, reading, passing)
    best = found[0].best(other and other[0])
    if form != DOCUMENTS:
        return HeadCoreference(found[0], best, None, [])
    return HeadCoreference(found[0], best, found[1], found[1].best(other and other[1]))


def _counted(
    model: Pretrained,
    texts: Texts,
    form: str,
    pooling: str,
    reading: ReadingOptions,
    passing: Callable[[Iterable[JudgedMention]], Iterable[JudgedMention]] = iter,
) -> tuple[Coreference, Coreference]:
    """Counts among mentions, and among all words."""
    bad = reading.problems
    found, among_words = Coreference(), Coreference()
    if form != DOCUMENTS:
        pronouns = _pronouns(texts, form, bad)
        judged = pronoun_maps(model, pronouns, pooling=pooling, reading=reading)
    else:
        judged = _document_mentions(model, _documents(texts, bad), reading, among_words)
    for one in passing(judged):
        found.add(one.scores)
    return found, among_words


def _document_mentions(
    model: Pretrained,
    documents: Iterable[Document],
    reading: ReadingOptions,
    among_words: Coreference,
) -> Iterator[JudgedMention]:
    """Mentions of documents; what they get among all words is counted on the way."""
    for maps in document_maps(model, documents, reading=reading):
        for scores in antecedent_scores(*maps[:4], among_words=True):
            among_words.add(scores)
        yield from judged_mentions(maps)


def _each(texts: Texts) -> Iterator[Pronoun | Document | Path]:
    for one in [texts] if isinstance(texts, str | os.PathLike) else texts:
        yield Path(one) if isinstance(one, str | os.PathLike) else one


def _pronouns(texts: Texts, form: str, bad: BadRows) -> Iterator[Pronoun]:
    for one in _each(texts):
        if isinstance(one, Path):
            yield from read_pronouns([one], form, bad)
        else:
            yield _known(one, Pronoun, form)


def _documents(texts: Texts, bad: BadRows) -> Iterator[Document]:
    for one in _each(texts):
        if isinstance(one, Path):
            yield from read_documents([one], bad)
        else:
            yield _known(one, Document, DOCUMENTS)


def _known(one: Pronoun | Document, kind: type[_Kind], form: str) -> _Kind:
    if not isinstance(one, kind):
        raise InputError(
            f"form {form!r} reads a {kind.__name__}, received a {type(one).__name__}\n"
            "name the form of the texts"
        )
    return one


POSITIONS = 128
"""Most positions of a document, special tokens counted (Clark et al. 2019)."""
_LONGEST = 1 << 30


class DocumentMaps(NamedTuple):
    """Attention between the W words of the beginning of a document.

    Attributes:
        document: As far as it was read.
        weights: Share of attention that the word of a row gives to that of a column.
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        number: Number of the document among those that were given.
        positions: Positions of each word.
    """

    document: Document
    weights: Float[np.ndarray, "L H W W"]
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    number: int
    positions: Sequence[Sequence[int]]


def document_maps(
    model: Pretrained,
    documents: Iterable[Document],
    *,
    positions: int = POSITIONS,
    reading: ReadingOptions = DEFAULTS,
) -> Iterator[DocumentMaps]:
    """Attention between the words of documents, in order; each is read as far as there is room.

    Documents end at the last word that fits; mentions that reach beyond it are left out.

    Holds the maps of a document: 4 L H W² bytes.
    """
    if not isinstance(model, PretrainedBert):
        raise InputError(
            f"probes read the attention of encoders; {model.name!r} is not an encoder\nname a BERT"
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

    for read, record in whole_maps(model, texts(), dataclasses.replace(reading, truncate=False)):
        cut = waiting.pop(read.text.id)
        weights = layer_weights(record, record.layers, allow_nan=True)
        between = between_words(np.asarray(weights, np.float32), cut.positions)[1]
        yield DocumentMaps(
            cut.document, between, record.layers, record.heads, cut.number, cut.positions
        )


@dataclasses.dataclass(frozen=True)
class _Cut:
    """The beginning of a document, and the tokens of each of its words."""

    number: int
    document: Document
    positions: list[list[int]]


def _cut(model: PretrainedBert, number: int, document: Document, room: int) -> _Cut | Problem:
    assert model.tokenizer is not None
    encoded = model.tokenizer.encode(document.text, max_length=_LONGEST)
    special = encoded.special[0].tolist()
    positions = positions_of_words(
        [word.span for word in document.words], encoded.offsets[0], special
    )
    count = 0
    for word, its in zip(document.words, positions, strict=True):
        if not its:
            message = (
                f"document {document.id!r}, word {word.form!r}: the tokenizer makes no token of it"
            )
            return Problem(document.file, word.line, "", "no-tokens", message)
        if its[-1] + 1 >= room:  # one more token ends the text
            break
        count += 1
    if not count:
        message = f"document {document.id!r}: its first word has more tokens than there is room for"
        return Problem(document.file, document.line, "", "no-tokens", message)
    return _Cut(number, document.until(count), positions[:count])


def judged_mentions(maps: DocumentMaps) -> Iterator[JudgedMention]:
    """Scores of the mentions of a document that have an antecedent, and where these stand."""
    document, weights, layers, heads, number, positions = maps
    scores = antecedent_scores(document, weights, layers, heads)
    for one, of_heads in zip(antecedents(document), scores, strict=True):
        right = [positions[one.candidates[place]] for place in one.right]
        requested = positions[one.mention.head]
        yield JudgedMention(number, document.id, document.text, requested, right, of_heads)


def pronoun_maps(
    model: Pretrained,
    pronouns: Iterable[Pronoun],
    *,
    pooling: str = "sum",
    reading: ReadingOptions = DEFAULTS,
) -> Iterator[JudgedMention]:
    """Attention between pronouns and those whom they may mean, in order."""
    if not isinstance(model, PretrainedBert):
        raise InputError(
            f"probes read the attention of encoders; {model.name!r} is not an encoder\nname a BERT"
        )
    waiting: dict[str, tuple[int, Pronoun]] = {}

    def texts() -> Iterator[Text]:
        for number, one in enumerate(pronouns):
            name = f"{number} {one.id}"  # ids may repeat
            waiting[name] = number, one
            yield Text(0, name, one.text, None, one.file, one.line)

    for read, record in whole_maps(model, texts(), reading):
        number, one = waiting.pop(read.text.id)
        pronoun, *candidates = _places(model, one, read)
        if not pronoun or not all(candidates):
            message = f"the tokenizer leaves nothing of the pronoun {one.id!r}, or of a candidate"
            reading.problems.report(Problem(one.file, one.line, "", "no-tokens", message))
            continue
        scores = pronoun_scores(
            layer_weights(record, record.layers, allow_nan=True),
            pronoun,
            candidates,
            one.right,
            group=one.group,
            layers=record.layers,
            heads=record.heads,
            pooling=pooling,
        )
        right = [] if one.right is None else [candidates[one.right]]
        yield JudgedMention(number, one.id, one.text, pronoun, right, scores)


def _places(model: PretrainedBert, one: Pronoun, read: LabelledText) -> list[list[int]]:
    """Positions of the pronoun and of each candidate."""
    assert model.tokenizer is not None
    encoded = model.tokenizer.encode(one.text, max_length=1 << 30)
    offsets = encoded.offsets[0][: len(read.layout)]
    special = read.layout.special.tolist()
    return positions_of_words([one.span, *one.candidates], offsets, special)
