# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The nine tasks of GLUE and its diagnostic set AX, as a table (Wang et al. 2019); own tasks.

Columns, labels, files, metrics and names of submissions. Labels of GLUE are in the order of the
`glue` data set on the Hugging Face Hub, so that label ids agree with it. A task of a user's own
files takes its columns and metrics from the recipe, its labels from the training data or a model.
"""

import dataclasses
import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.rows import Row, read_rows
from flaxattn.errors import InputError
from flaxattn.train.recipe import ClassifyRecipe

_MANY = 20  # labels that a small data set may have
_INFINITE = float("inf")


class FileLayout(NamedTuple):
    """One way in which a part of a task lies on the disk.

    Attributes:
        files: Read one after the other; all must be there.
        texts: Columns of the first and, for pairs, the second text.
        label: Column of the label; empty in a test set.
        names: All columns in order, for files without a header.
        kind: Format of files whose name does not show it.
    """

    files: tuple[str, ...]
    texts: tuple[str, ...]
    label: str = ""
    names: tuple[str, ...] = ()
    kind: str | None = None


@dataclasses.dataclass(frozen=True)
class GlueTask:
    """Facts about a task.

    Attributes:
        name: Name on the Hub, such as "sst2".
        folder: Folder of the classic download, such as "SST-2".
        columns: Columns of the texts, as on the Hub.
        labels: Names in the order of their ids; none for regression.
        metrics: Official ones; GLUE's score of the task is their mean.
        parts: Layouts of each part, the first that is there is taken.
        submissions: File of each test part's predictions.
        writes_names: Whether a submission has label names instead of ids.
        limits: Smallest and largest value of a regression.
        own: Whether it is a user's own: its parts name their files and are looked for nowhere
            else, and labels go by their names alone.
    """

    name: str
    folder: str
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    parts: Mapping[str, tuple[FileLayout, ...]]
    submissions: Mapping[str, str]
    writes_names: bool = False
    limits: tuple[float, float] = (0.0, 5.0)
    own: bool = False

    @property
    def command(self) -> str:
        """Command that trains a model for it."""
        return "flaxattn train classify" if self.own else f"flaxattn train glue --task {self.name}"

    @property
    def is_regression(self) -> bool:
        """Return whether the answer is a number."""
        return not self.labels

    @property
    def num_outputs(self) -> int:
        """Width of the classifier."""
        return len(self.labels) or 1

    @property
    def dev_parts(self) -> tuple[str, ...]:
        """Parts with labels to evaluate on; the first decides which checkpoint is best."""
        return tuple(part for part in self.parts if part.startswith("dev"))

    @property
    def test_parts(self) -> tuple[str, ...]:
        """Parts to predict for a submission."""
        return tuple(part for part in self.parts if part in self.submissions)


def label_name(value: Any) -> str:
    """Name of the class that a cell holds; empty where it holds none."""
    return "" if value is None else str(value).strip()


_CLASSES = ("entailment", "neutral", "contradiction")
_PAIR = ("sentence1", "sentence2")
_COLA = ("source", "label", "mark", "sentence")
_AX = (
    FileLayout(("diagnostic.tsv",), _PAIR),
    FileLayout(("diagnostic/diagnostic.tsv",), _PAIR),
    FileLayout(("../diagnostic/diagnostic.tsv",), _PAIR),
    FileLayout(("../AX/diagnostic.tsv",), _PAIR),
    FileLayout(("AX.tsv",), _PAIR),
    FileLayout(("../AX/AX.tsv",), _PAIR),
)


def _classic(texts: tuple[str, ...], label: str) -> dict[str, tuple[FileLayout, ...]]:
    """`train.tsv`, `dev.tsv` and `test.tsv`, all with a header."""
    return {
        "train": (FileLayout(("train.tsv",), texts, label),),
        "dev": (FileLayout(("dev.tsv",), texts, label),),
        "test": (FileLayout(("test.tsv",), texts),),
    }


def _task(
    name: str,
    folder: str,
    labels: tuple[str, ...],
    metrics: tuple[str, ...] = ("accuracy",),
    columns: tuple[str, ...] = _PAIR,
    label: str = "label",
    **more: tuple[FileLayout, ...],
) -> GlueTask:
    """A task in the usual layout, with more layouts for some parts."""
    parts = _classic(columns, label)
    parts |= {part: (*parts[part], *layouts) for part, layouts in more.items()}
    names = name in ("qnli", "rte")
    submission = {"test": f"{folder}.tsv"}
    return GlueTask(name, folder, columns, labels, metrics, parts, submission, names)


def _headless(*files: str) -> FileLayout:
    return FileLayout(files, ("sentence",), "label", _COLA)


def _mrpc() -> GlueTask:
    texts = ("#1 String", "#2 String")
    txt = "msr_paraphrase_{}.txt"
    parts = _classic(texts, "Quality")
    parts["train"] += (FileLayout((txt.format("train"),), texts, "Quality", kind="tsv"),)
    parts["test"] += (FileLayout((txt.format("test"),), texts, kind="tsv"),)
    labels = ("not_equivalent", "equivalent")
    metrics = ("accuracy", "f1")
    return GlueTask("mrpc", "MRPC", _PAIR, labels, metrics, parts, {"test": "MRPC.tsv"})


def _stsb() -> GlueTask:
    parts = _classic(_PAIR, "score")
    for part in parts:
        file = (f"stsb-en-{part}.csv",)
        label = "" if part == "test" else "score"
        parts[part] += (FileLayout(file, _PAIR, label, (*_PAIR, "score")),)
    metrics = ("pearson", "spearman")
    return GlueTask("stsb", "STS-B", _PAIR, (), metrics, parts, {"test": "STS-B.tsv"})


def _mnli() -> GlueTask:
    def one(file: str, label: str = "gold_label") -> tuple[FileLayout, ...]:
        return (FileLayout((file,), _PAIR, label),)

    parts = {
        "train": one("train.tsv"),
        "dev": one("dev_matched.tsv"),
        "dev_mismatched": one("dev_mismatched.tsv"),
        "test": one("test_matched.tsv", ""),
        "test_mismatched": one("test_mismatched.tsv", ""),
        "ax": _AX,
    }
    submissions = {"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "ax": "AX.tsv"}
    columns = ("premise", "hypothesis")
    return GlueTask("mnli", "MNLI", columns, _CLASSES, ("accuracy",), parts, submissions, True)


def _ax() -> GlueTask:
    columns = ("premise", "hypothesis")
    return GlueTask("ax", "AX", columns, _CLASSES, (), {"ax": _AX}, {"ax": "AX.tsv"}, True)


def _cola() -> GlueTask:
    parts = {
        "train": (_headless("train.tsv"), _headless("in_domain_train.tsv")),
        "dev": (
            _headless("dev.tsv"),
            _headless("in_domain_dev.tsv", "out_of_domain_dev.tsv"),
        ),
        "test": (FileLayout(("test.tsv",), ("sentence",)),),
    }
    labels = ("unacceptable", "acceptable")
    files = {"test": "CoLA.tsv"}
    return GlueTask("cola", "CoLA", ("sentence",), labels, ("matthews",), parts, files)


def _qqp() -> GlueTask:
    columns = ("question1", "question2")
    labels = ("not_duplicate", "duplicate")
    return _task("qqp", "QQP", labels, ("accuracy", "f1"), columns, "is_duplicate")


_ENTAILMENT = ("entailment", "not_entailment")
TASKS: Mapping[str, GlueTask] = {
    task.name: task
    for task in (
        _cola(),
        _task("sst2", "SST-2", ("negative", "positive"), columns=("sentence",)),
        _mrpc(),
        _stsb(),
        _qqp(),
        _mnli(),
        _task("qnli", "QNLI", _ENTAILMENT, columns=("question", "sentence")),
        _task("rte", "RTE", _ENTAILMENT),
        _task("wnli", "WNLI", ("not_entailment", "entailment")),
        _ax(),
    )
}
# What a part is called in other layouts: those of the Hub, and plain files.
PART_NAMES: Mapping[str, tuple[str, ...]] = {
    "train": ("train",),
    "dev": ("dev", "validation", "validation_matched", "dev_matched", "valid"),
    "dev_mismatched": ("validation_mismatched", "dev_mismatched"),
    "test": ("test", "test_matched"),
    "test_mismatched": ("test_mismatched",),
    "ax": ("ax", "diagnostic"),
}


def find_task(name: str) -> GlueTask:
    """The task of a name, however it is written: `sst2`, `SST-2`, `sts_b`."""
    wanted = name.lower().replace("-", "").replace("_", "")
    if wanted in TASKS:
        return TASKS[wanted]
    near = difflib.get_close_matches(wanted, TASKS, 1)
    raise InputError(
        f"no GLUE task {name!r}"
        + (f"; the nearest is {near[0]!r}" if near else "")
        + f"\nthere are {', '.join(TASKS)}\nname one with --task"
    )


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
