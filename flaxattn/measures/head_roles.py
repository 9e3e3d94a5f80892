# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Roles and statistics of heads in one call, from a model and texts: `head_roles`, `head_stats`.

Texts are read, and the model runs over them; roles are defined and tested in `flaxattn.measures`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import Sentence, is_annotated, read_sentences
from flaxattn.corpus.input_files import find_inputs
from flaxattn.corpus.texts import Columns, read_texts
from flaxattn.errors import InputError
from flaxattn.measures.head_scores import head_scores
from flaxattn.measures.role_tests import Roles, Test, find_roles
from flaxattn.measures.score_terms import PAPER_RELATIONS, ScoreOptions, check_relations
from flaxattn.measures.scores import Tally
from flaxattn.pipeline.labelled_texts import Subject, subject_of
from flaxattn.pipeline.reading_options import ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained

Texts = str | os.PathLike[str] | Iterable[str | os.PathLike[str] | Sentence]
"""The path of a file; or a list of texts (strings), of files (`Path`), of sentences with trees."""


def head_stats(
    model: Pretrained,
    texts: Texts,
    relations: Sequence[str] = PAPER_RELATIONS,
    *,
    seed: int = 0,
    pande_parity: bool = False,
    reading: ReadingOptions | None = None,
) -> Tally:
    """Means and variances of what every head does, over texts; no map is kept.

    Cost: one pass over the texts. Memory: see `head_scores`.

    Args:
        model: A BERT with its tokenizer.
        texts: The path of a file, CoNLL-U by its name or another one that `flaxattn extract`
            reads, with a column `text`; or a list, in which a string is a text, a `Path` a file
            and a `Sentence` a text with its tree. Either all have trees or none has.
        relations: Of Universal Dependencies, whose words heads are asked for; `any` is among them
            anyway. They count where there are trees.
        seed: Of unrelated words.
        pande_parity: Whether scores are those of the notebooks of Pande et al., errors included.
        reading: How texts are read.

    Raises:
        InputError: For a model that is no BERT, an unknown relation, a text that cannot be used, or
            none, or where only some texts have trees.
    """
    return _tallied(model, texts, relations, seed, pande_parity, reading or ReadingOptions())[0]


def head_roles(
    model: Pretrained,
    texts: Texts,
    relations: Sequence[str] = PAPER_RELATIONS,
    *,
    test: Test | None = None,
    seed: int = 0,
    reading: ReadingOptions | None = None,
) -> Roles:
    """Test which heads are local, syntactic, of the own text or of delimiters (Pande et al. 2021).

    Args:
        model: A BERT with its tokenizer.
        texts: See `head_stats`; without trees no head is syntactic.
        relations: Roles of their own.
        test: Threshold, level and correction; default 3, 5 %, Benjamini-Hochberg.
        seed: Of unrelated words.
        reading: How texts are read.

    Raises:
        InputError: See `head_stats`.
    """
    test = test or Test()
    parity = test.pande_parity
    tally, asked = _tallied(model, texts, relations, seed, parity, reading or ReadingOptions())
    return find_roles(tally, asked, test)


def _tallied(
    model: Pretrained,
    texts: Texts,
    relations: Sequence[str],
    seed: int,
    pande_parity: bool,
    reading: ReadingOptions,
) -> tuple[Tally, ScoreOptions]:
    bad = BadRows() if reading.bad is None else reading.bad
    annotated, subjects = _subjects(texts, bad)
    asked = ScoreOptions(check_relations(relations), annotated, seed, pande_parity)
    tally = Tally()
    for part in head_scores(
        model,
        subjects,
        asked,
        truncate=reading.truncate,
        bad=bad,
        batch_tokens=reading.batch_tokens,
        watch=lambda count: reading.watch("scoring heads", count),
    ):
        tally.add(part)
    if not tally.moments:
        raise InputError("there is no text to score heads on\ngive texts, or files that hold some")
    return tally, asked


def _subjects(texts: Texts, bad: BadRows) -> tuple[bool, Iterator[Subject]]:
    """Whether there are trees, and the texts."""
    given = [Path(texts)] if isinstance(texts, str | os.PathLike) else [*texts]
    trees = [
        isinstance(one, Sentence) or (not isinstance(one, str) and is_annotated(Path(one)))
        for one in given
    ]
    if any(trees) and not all(trees):
        raise InputError(
            f"text {trees.index(False)} has no tree, and others have one\n"
            "give either sentences with trees or texts without"
        )
    return any(trees), _each(given, bad)


def _each(given: Sequence[str | os.PathLike[str] | Sentence], bad: BadRows) -> Iterator[Subject]:
    for number, one in enumerate(given):
        if isinstance(one, Sentence):
            yield subject_of(one)
        elif isinstance(one, str):
            yield Subject(str(number), one)
        elif is_annotated(Path(one)):
            yield from map(subject_of, read_sentences([Path(one)], bad))
        else:
            found = read_texts(find_inputs([str(one)]), Columns(), bad)
            yield from (Subject(t.id, t.text, t.text_b, None, t.file, t.line) for t in found)
