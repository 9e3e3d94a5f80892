# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Shared parts of `flaxattn stats`, `roles` and `probe`: from inputs to scores, and a report.

Inputs are CoNLL-U, other texts, or a store, which `store_source` reads. Scores are defined in
`flaxattn.measures`; what a person types is in `head_request`.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flaxattn.commands.head_request import Request
from flaxattn.commands.report_files import described
from flaxattn.commands.text_lines import cost

if TYPE_CHECKING:
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.corpus.texts import Text
    from flaxattn.measures.role_tests import Roles
    from flaxattn.measures.score_source import ScoreSource
    from flaxattn.measures.score_terms import ScoreOptions
    from flaxattn.measures.scored_corpus import ScoredCorpus
    from flaxattn.pipeline.progress_reporter import ProgressReporter
    from flaxattn.pipeline.reading_options import ReadingOptions

_NORMAL = 1.959963984540054
_KEPT = 4096  # texts that are kept in memory
LOWEST = 2
"""Number of texts with the lowest scores kept for each claim and head."""


def gathered(
    request: Request,
    asked: "ScoreOptions",
    progress: "ProgressReporter",
    shown: Sequence[str] = ("score",),
) -> "ScoredCorpus":
    """Scores of the heads of a model on a corpus."""
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.measures.scored_corpus import collect

    reading = request.reading(BadRows(request.on_error, request.out), progress)
    if request.store:
        progress(f"loading {request.inputs[0]}", 0)
        source, count = _of_store(request, asked, reading)
    else:
        source, count = _of_model(request, asked, reading, progress)
    progress.announce(_cost(request, source, count))
    progress.expect("scoring heads", count)
    lowest = LOWEST if request.page else 0
    return collect(source, shown, request.evidence, reading.problems, lowest)


def _of_store(
    request: Request, asked: "ScoreOptions", reading: "ReadingOptions"
) -> "tuple[ScoreSource, int]":
    """The store that was named, and the number of its texts."""
    from flaxattn.measures.store_source import store_source
    from flaxattn.store.open_store import open_store

    store = open_store(request.inputs[0])
    data = [{"name": store.path.name, "plan_sha256": store.plan_sha256}]
    source = store_source(store, request.trees or [], asked, reading, request.side)
    source.facts["data"] = data + described(request.trees or [])
    source.facts["fingerprint"] = dict(store.plan["model"])
    return source, min(len(store), request.limit or len(store))


def _of_model(
    request: Request,
    asked: "ScoreOptions",
    reading: "ReadingOptions",
    progress: "ProgressReporter",
) -> "tuple[ScoreSource, int]":
    """The model that was named with its texts, and their number."""
    from flaxattn.measures.score_source import model_source
    from flaxattn.pretrained.from_pretrained import from_pretrained

    every, data, count = counted_inputs(request, reading.problems, progress)
    progress(f"loading {request.model}", 0)
    model = from_pretrained(request.model)
    source = model_source(model, every, asked, reading, request.side)
    source.facts |= {"model": request.model, "data": data}
    return source, count


def counted_inputs(
    request: Request, bad: "BadRows", progress: "ProgressReporter"
) -> "tuple[Iterator[Text], list[dict[str, Any]], int]":
    """The texts, what files they are from, and their number.

    Texts are read before a model is loaded, so that bad rows are refused early. Those of a large
    corpus are not kept, so they are read twice.
    """
    from flaxattn.corpus.bad_rows import BadRows

    def passed(texts: "Iterator[Text]") -> "Iterator[Text]":
        for text in itertools.islice(texts, request.limit):
            progress("reading texts", 1)
            yield text

    texts, data = read_inputs(request, bad)
    first = list(itertools.islice(passed(texts), _KEPT))
    count = len(first)
    if count == _KEPT:
        policy = "fail" if request.on_error == "fail" else "skip"
        count = sum(1 for _ in passed(read_inputs(request, BadRows(policy))[0]))
    return itertools.chain(first, texts), data, count


def _cost(request: Request, source: "ScoreSource", count: int) -> str:
    """Say what a run will do."""
    if source.model is None:
        return cost(count, f"the store {request.inputs[0]}", "read once")
    heads = ", ".join(
        f"{layers * heads} heads ({name})" for name, (layers, heads) in source.model.masks().items()
    )
    return cost(count, request.model, f"{heads}; one forward pass over all texts")


def read_inputs(request: Request, bad: "BadRows") -> tuple[Iterator["Text"], list[dict[str, Any]]]:
    """The texts, and what files they are from."""
    from flaxattn.corpus.dependency_trees import read_sentences
    from flaxattn.corpus.input_files import find_inputs, fingerprint
    from flaxattn.corpus.texts import Columns, annotated_text, read_texts

    if request.annotated:
        paths = [Path(name) for name in request.inputs]
        return map(annotated_text, read_sentences(paths, bad)), described(paths)
    files = find_inputs(request.inputs, folder=request.out)
    texts = read_texts(files, Columns(request.text_column, request.pair_column), bad)
    return texts, [entry._asdict() for entry in fingerprint(files)]


def rows_of(
    corpus: "ScoredCorpus", roles: "Roles | None" = None, seed: int = 0
) -> dict[str, list[Any]]:
    """One row per head and number: columns of `heads.parquet`."""
    from flaxattn.measures.scores import intervals

    tally = corpus.tally
    drawn = None if corpus.scores is None else intervals(corpus.scores, seed=seed)
    names = ("layer", "head", "kind", "name", "texts", "mean", "sd", "low", "high")
    tested = ("t", "p", "p_corrected", "found", "p_beyond") if roles else ()
    rows: dict[str, list[Any]] = {name: [] for name in (*names, *tested)}
    for column, (counts, mean, m2) in sorted(tally.moments.items()):
        deviation = np.sqrt(m2 / np.maximum(counts - 1, 1))
        error = _NORMAL * deviation / np.sqrt(np.maximum(counts, 1))
        low, high = (mean - error, mean + error) if drawn is None else drawn[column]
        role = roles.roles.get(column.name) if roles and column.kind == "score" else None
        for i, j in np.ndindex(mean.shape):
            spread = deviation[i, j] if counts[i, j] > 1 else np.nan
            numbers = (mean[i, j], spread, low[i, j], high[i, j])
            where = (tally.layers[i], tally.heads[j], *column, int(counts[i, j]))
            values = [*where, *(float(number) for number in numbers)]
            if tested and role is None:
                values += [None] * len(tested)
            elif role is not None:
                beyond = None if role.beyond is None else float(role.beyond[i, j])
                each = (role.t[i, j], role.p[i, j], role.corrected[i, j])
                values += [*(float(n) for n in each), bool(role.found[i, j]), beyond]
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
    return rows
