# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Coreference in one call, from a model and files: `head_coreference`.

Texts are read, and the model runs over them; what is counted then is in `flaxattn.measures`.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.coreference_documents import read_documents
from flaxattn.corpus.mentions import Document
from flaxattn.corpus.pronouns import Pronoun, read_pronouns
from flaxattn.errors import InputError, check_arguments
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.probes.antecedents import antecedent_scores
from flaxattn.probes.mention_maps import document_maps, judged_mentions
from flaxattn.probes.mention_resolution import Coreference, Resolver
from flaxattn.probes.pronoun_maps import pronoun_maps
from flaxattn.probes.watched_mentions import JudgedMention

DOCUMENTS = "documents"
_Kind = TypeVar("_Kind", Pronoun, Document)
Texts = str | os.PathLike[str] | Iterable[Pronoun | Document | str | os.PathLike[str]]
"""A file, or several files, pronouns or documents."""


class HeadCoreference(NamedTuple):
    """Results of single heads in resolving mentions.

    Attributes:
        found: How often each head is right.
        best: The best head, for all mentions and each group of them.
        among_words: Of documents, how often each head is right if every other word is a candidate;
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
    candidates are, so that results with every other word as one are told beside.

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
        pooling: Of pronouns: see `pronoun_scores`.
        reading: How texts are read. `truncate` is for pronouns.
        passing: Looks at the mentions of `texts` on their way, such as
            `watched_mentions.WatchedMentions`.

    Returns:
        How often each head is right, and the best heads. Counts of mentions; accuracies are shares
        between 0 and 1.

    Raises:
        InputError: For a model that is no BERT, an unknown form, a text that cannot be used, or
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
