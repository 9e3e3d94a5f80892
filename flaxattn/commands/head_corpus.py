# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs of `flaxattn stats`, `roles` and `search`: a store, or a model with texts."""

import dataclasses
import itertools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from flaxattn.commands.head_request import Request

if TYPE_CHECKING:
    from flaxattn.measures.head_roles import TextSource
    from flaxattn.pipeline.progress_reporter import ProgressReporter
    from flaxattn.pretrained.pretrained_model import Pretrained
    from flaxattn.store.open_store import Store


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
