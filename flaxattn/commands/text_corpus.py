# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Corpora of commands: a small one in memory, a store, or a model with texts."""

import dataclasses
import itertools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from flaxattn.commands.head_request import Request
from flaxattn.corpus.bad_rows import BadRows, Problem, excerpt
from flaxattn.corpus.input_files import find_inputs, fingerprint
from flaxattn.corpus.rows import read_rows, text_of
from flaxattn.corpus.texts import TextPair, read_text_pairs
from flaxattn.errors import InputError

if TYPE_CHECKING:
    from flaxattn.measures.head_roles import TextSource
    from flaxattn.pipeline.progress_reporter import ProgressReporter
    from flaxattn.pretrained.pretrained_model import Pretrained
    from flaxattn.store.open_store import Store


class TextCorpus(NamedTuple):
    """Texts that were read from files.

    Attributes:
        texts: At least one.
        second: The second text of each pair, where a column of them was named.
        labels: Number of the class of each, where a column of them was named.
        source: Names, sizes and digests of the files, and how many rows were used.
    """

    texts: list[str]
    second: list[str] | None
    labels: list[int] | None
    source: dict[str, Any]


def read_corpus(
    inputs: Sequence[str],
    columns: Sequence[str | None],
    limit: int | None,
    on_error: str,
    folder: Path | None = None,
) -> TextCorpus:
    """The texts of some files."""
    text, pair, label = columns
    wanted = [name for name in columns if name is not None]
    files, bad = find_inputs(inputs, folder=folder), BadRows(on_error)
    found: list[tuple[str, str | None, int | None]] = []
    for file in files:
        if len(found) == limit:
            break
        if file.problem:
            bad.report(file.problem)
            continue
        for row in read_rows(file.path, wanted, bad, kind=file.kind):
            values = [text_of(row, name, bad) if name else None for name in (text, pair)]
            number = _label(row, label, bad)
            parts = [values[0], "" if pair is None else values[1], 0 if label is None else number]
            if None in parts:
                continue
            found.append((str(values[0]), values[1], number))
            if len(found) == limit:
                break
    if not found:
        raise InputError(
            f"There is no text in {', '.join(map(str, inputs))}.\nName files with one in each row."
        )
    prints = [mark._asdict() for mark in fingerprint(files)]
    source = {"files": prints, "texts": len(found), "left_out": dict(bad.counts)}
    seconds = None if pair is None else [str(row[1]) for row in found]
    labels = None if label is None else [int(row[2] or 0) for row in found]
    return TextCorpus([row[0] for row in found], seconds, labels, source)


def read_pairs(
    inputs: Sequence[str],
    limit: int | None,
    on_error: str,
    folder: Path | None = None,
    *,
    wrong: bool = False,
    prefix: str | None = None,
) -> tuple[list[TextPair], dict[str, Any]]:
    """The pairs of some tables, and names, sizes and digests of the files, as `read_corpus`."""
    files, bad = find_inputs(inputs, folder=folder), BadRows(on_error)
    for problem in [file.problem for file in files if file.problem]:
        bad.report(problem)
    paths = [(file.path, file.kind) for file in files if not file.problem]
    pairs = list(itertools.islice(read_text_pairs(paths, bad, wrong=wrong, prefix=prefix), limit))
    if not pairs:
        raise InputError(
            f"There is no pair of texts in {', '.join(map(str, inputs))}.\n"
            "Name tables with the columns clean, corrupted and answer, and a row for each pair."
        )
    prints = [mark._asdict() for mark in fingerprint(files)]
    return pairs, {"files": prints, "pairs": len(pairs), "left_out": dict(bad.counts)}


def _label(row: Any, column: str | None, bad: BadRows) -> int | None:
    """The number of a class; CSV and TSV have it as text."""
    if column is None:
        return None
    value = row.values[column]
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    message = "expected the number of a class, from 0"
    bad.report(Problem(row.file, row.line, column, "label", message, excerpt(value)))
    return None


def head_source(
    request: Request, progress: "ProgressReporter"
) -> "tuple[Pretrained | Store, TextSource | None]":
    """Open the store that was named, or load the model and count its texts."""
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.store.open_store import open_store

    if request.store:
        progress(f"loading {request.inputs[0]}", 0)
        return open_store(request.inputs[0]), None
    texts = counted_texts(request, progress)
    progress(f"loading {request.model}", 0)
    return from_pretrained(request.model), texts


def counted_texts(request: Request, progress: "ProgressReporter") -> "TextSource":
    """The texts of some files, read once so that bad rows are refused before a model is loaded."""
    from flaxattn.corpus.bad_rows import BadRows

    texts = _texts(request)
    policy = "fail" if request.on_error == "fail" else "skip"
    count = 0
    for _ in itertools.islice(texts.read(BadRows(policy)), request.limit):
        progress("reading texts", 1)
        count += 1
    return dataclasses.replace(texts, count=count)


def _texts(request: Request) -> "TextSource":
    from flaxattn.corpus.dependency_trees import read_sentences
    from flaxattn.corpus.input_files import describe_files, find_inputs, fingerprint
    from flaxattn.corpus.texts import Columns, annotated_text, read_texts
    from flaxattn.measures.head_roles import TextSource

    names = shlex.join(map(str, request.inputs))
    if request.annotated:
        paths = [Path(name) for name in request.inputs]
        return TextSource(
            lambda bad: map(annotated_text, read_sentences(paths, bad)),
            True,
            None,
            lambda: describe_files(paths),
            names,
        )
    files = find_inputs(request.inputs, folder=request.out)
    columns = Columns(request.text_column, request.pair_column)
    return TextSource(
        lambda bad: read_texts(files, columns, bad),
        False,
        None,
        lambda: [entry._asdict() for entry in fingerprint(files)],
        names,
    )
