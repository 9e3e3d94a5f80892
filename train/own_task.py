# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A classification task of a user's own files, in the form that GLUE's tasks have.

Its columns and metrics come from the recipe, its labels from the training data or from a model.
`glue` trains and evaluates it as it does a task of GLUE.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.rows import Row, read_rows
from flaxattn.errors import InputError
from flaxattn.train.glue_tasks import FileLayout, GlueTask, label_name
from flaxattn.train.recipe import ClassifyRecipe

_MANY = 20  # labels that a small data set may have
_INFINITE = float("inf")


def own_task(
    train: Sequence[Path],
    dev: Sequence[Path],
    recipe: ClassifyRecipe,
    labels: Sequence[str] | None = None,
) -> GlueTask:
    """Return the task of files with texts and labels."""
    texts = (recipe.text_column, *([recipe.pair_column] if recipe.pair_column else []))
    files = [*train, *dev]
    if recipe.regression:
        labels = ()
    elif labels is None:
        labels = _labels(train, recipe)

    def layouts(paths: Sequence[Path]) -> tuple[FileLayout, ...]:
        names = tuple(str(path.absolute()) for path in paths)
        return (FileLayout(names, texts, recipe.label_column),) if paths else ()

    parts = {"train": layouts(train)} if train else {}
    metrics = ("pearson", "spearman") if recipe.regression else ("accuracy", "macro_f1")
    return GlueTask(
        name=recipe.task,
        folder=", ".join(dict.fromkeys(path.name for path in files)),
        columns=texts,
        labels=tuple(labels),
        metrics=metrics,
        parts={**parts, "dev": layouts(dev)},
        submissions={},
        limits=(-_INFINITE, _INFINITE),
        own=True,
    )


def _labels(files: Sequence[Path], recipe: ClassifyRecipe) -> tuple[str, ...]:
    """Names of the classes of the training examples."""
    column = recipe.label_column
    counts = Counter(_names(files, column, BadRows("skip")))
    if not counts:
        counts = Counter(_names(files, column, BadRows("fail")))  # says what is wrong
    where = f"column {column!r} of {', '.join(path.name for path in files)}"
    if len(counts) < 2:
        only = f"one label only, {next(iter(counts))!r}" if counts else "no label"
        raise InputError(
            f"{where} has {only}\nexpected two or more\nname the right one with --label-column"
        )
    if len(counts) > max(_MANY, counts.total() // 2):
        raise InputError(
            f"{where} has {len(counts)} labels in {counts.total()} rows\n"
            "expected a class that several rows share\n"
            "name the right column with --label-column, or add --regression to predict numbers"
        )
    return tuple(sorted(counts, key=_order))


def _names(files: Sequence[Path], column: str, bad: BadRows) -> Iterator[str]:
    rows: Iterator[Row] = (row for path in files for row in read_rows(path, (column,), bad))
    yield from filter(None, (label_name(row.values[column]) for row in rows))


def _order(name: str) -> tuple[Any, ...]:
    """Key that puts numbers by size before other names."""
    try:
        return (0, float(name), name)
    except ValueError:
        return (1, 0.0, name)
