# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reports that commands wrote, read again: their facts, and one number per head.

All files are compared with their digests first. Each kind of report has its own table; here they
all become columns of one number per head.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flaxattn.errors import InputError, check_arguments
from flaxattn.files import file_inside, json_digest, sha256_of
from flaxattn.store.store_layout import is_store

_VERSION = "flaxattn"


@check_arguments()
def read_report(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the facts of a report, after all of its files were compared with their digests.

    >>> import contextlib, io
    >>> from pathlib import Path
    >>> import flaxattn as fa
    >>> from flaxattn.cli import main
    >>> _ = Path("corpus.txt").write_text("The cat is very sad.", encoding="utf-8")
    >>> with contextlib.redirect_stdout(io.StringIO()):  # `flaxattn stats` in a shell
    ...     code = main(["stats", "corpus.txt", "--out", "REPORT", "--no-page"])
    >>> fa.read_report("REPORT")["request"]["model"]
    'tiny-bert'

    Args:
        path: Folder of the report, or its JSON file, such as `report-stats/stats.json`.

    Returns:
        The facts: `flaxattn` (its version), `request` (options and inputs of the run), `files`
        (digests of the other files by name), and what the command measured. Numbers that were not
        finite are None.

    Raises:
        InputError: If a file of the report is missing, or is not what was written.
    """
    file = _facts_file(Path(path))
    try:
        facts = dict(json.loads(file.read_bytes() if file.is_file() else b""))
        digest, files = facts.pop("sha256"), dict(facts["files"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _not_as_written(file) from error
    if digest != json_digest(facts):
        raise _not_as_written(file)
    for name, expected in files.items():
        try:
            same = sha256_of(file_inside(file.parent, name)) == expected
        except OSError as error:
            raise _not_as_written(file.parent / name) from error
        if not same:
            raise _not_as_written(file.parent / name)
    return facts


def is_report(path: Path) -> bool:
    """Return whether a JSON file is a report, or is damaged so that it may have been one."""
    if not path.is_file():
        return False
    try:
        facts = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return True
    return isinstance(facts, dict) and _VERSION in facts


def _not_as_written(path: Path) -> InputError:
    return InputError(
        f"{path} is missing or damaged: it is not what flaxattn wrote\n"
        "no number of this report was read\n"
        "copy the folder again, or make the report again with overwrite=True"
    )


Head = tuple[str, int, int]
"""Side, layer and head."""
_NORMAL = 1.959963984540054  # standard errors of a 95 % interval


class _Number(NamedTuple):
    """A number of a head in a table; None where it is not known."""

    head: Head
    column: str
    value: float | None
    low: float | None = None
    high: float | None = None


_Rows = Iterator[_Number]
_ERROR = "_error"  # end of the name of a standard error
_TABLE = "heads.parquet"  # that of commands which do not name one after themselves
_NOT_SCORES = frozenset(("side", "layer", "head", "prefix_layer", "prefix_head"))


@dataclasses.dataclass(frozen=True)
class ReportNumbers:
    """Numbers of the heads of a model, from one report.

    Attributes:
        command: Name of the command that wrote it.
        folder: Folder of the report.
        model: What the model was called.
        identity: Digests of the model by name, as far as the report has any.
        columns: Numbers by head, by name of the column; nan where there is none.
        intervals: Ends of their 95 % intervals, where the report has them.
        facts: All facts of the report.
    """

    command: str
    folder: Path
    model: str
    identity: Mapping[str, Any]
    columns: Mapping[str, Mapping[Head, float]]
    intervals: Mapping[str, Mapping[Head, tuple[float, float]]]
    facts: Mapping[str, Any]


def read_head_numbers(path: str | PathLike[str]) -> ReportNumbers:
    """Read the numbers of heads from a report.

    They are the mean scores of `roles`, the means of `stats`, the accuracies of `probe`, the
    effects of `ablate` and `patch`, the scores of `circuits`, and means over texts of `weights`.
    """
    import pyarrow.parquet as pq

    file = _facts_file(Path(path))
    facts, command = read_report(file), file.stem
    reader = _READERS.get(command)
    table = next((n for n in (f"{command}.parquet", _TABLE) if n in facts["files"]), None)
    if reader is None or table is None:
        raise InputError(
            f"{file.parent} is a report of flaxattn {command}, which has no numbers of the heads "
            f"of a model.\nGive reports of {', '.join(_READERS)}."
        )
    sums: dict[str, dict[Head, tuple[float, int]]] = {}
    intervals: dict[str, dict[Head, tuple[float, float]]] = {}
    rows = reader(pq.read_table(file.parent / table).to_pylist(), facts)
    for head, name, value, low, high in rows:
        if head[1] < 0 or head[2] < 0:
            continue  # all heads of a layer together
        if low is not None and high is not None:
            intervals.setdefault(name, {})[head] = low, high
        total, count = sums.setdefault(name, {}).get(head, (0.0, 0))
        known = value is not None
        sums[name][head] = (total + value, count + 1) if known else (total, count)
    columns = {
        name: {head: total / count if count else np.nan for head, (total, count) in one.items()}
        for name, one in sums.items()
    }
    if not columns:
        raise InputError(
            f"{file.parent} is a report of flaxattn {command} without a number of a single head.\n"
            "Patch or probe heads, not layers."
        )
    model = facts.get("model") or facts["request"].get("model")
    identity = digests_of(facts)
    return ReportNumbers(command, file.parent, str(model), identity, columns, intervals, facts)


def report_labels(reports: Sequence[ReportNumbers]) -> list[str]:
    """Names of reports: that of the command, with the folder where a command has several."""
    times = Counter(report.command for report in reports)
    found = [r.command if times[r.command] == 1 else f"{r.command} {r.folder}" for r in reports]
    if len({report.folder.resolve() for report in reports}) < len(found):
        raise InputError("A report is named twice.\nName each folder once.")
    return found


def check_same_model(first: ReportNumbers, second: ReportNumbers) -> None:
    """Refuse reports of different models.

    Digests are compared where both reports have them, or else names.
    """
    ours, theirs = first.identity, second.identity
    kind = next((kind for kind in ("parameters", "files") if kind in ours and kind in theirs), None)
    if kind == "parameters" and ours["architecture"] != theirs["architecture"]:
        kind = "files" if "files" in ours and "files" in theirs else None  # one has another head
    same = ours[kind] == theirs[kind] if kind else _name(first) == _name(second)
    if not same:
        other = "" if first.model != second.model else ", which has other parameters"
        raise InputError(
            f"{second.folder} is of the model {second.model}{other}; "
            f"{first.folder} is of {first.model}.\nGive reports of one model."
        )


def _name(report: ReportNumbers) -> str:
    return Path(report.model).name


def digests_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Digests of the model of a report: of its parameters, and of the files of its directory."""
    found: dict[str, Any] = {}
    if mark := facts.get("fingerprint"):
        found |= {"parameters": mark["parameters"], "architecture": mark["architecture"]}
    requested = facts.get("request", {}).get("model")
    if isinstance(requested, Mapping) and requested.get("files"):
        found["files"] = requested["files"]
    return found


def _facts_file(path: Path) -> Path:
    """The JSON file of the only report in a folder."""
    if not path.is_dir():
        return path
    if is_store(path):
        raise InputError(
            f"{path} is a store of attention, and a report is expected\n"
            f"make one of it first, for example: flaxattn stats {path} -o REPORT"
        )
    found = sorted(file for file in path.glob("*.json") if is_report(file))
    if len(found) != 1:
        raise InputError(
            f"{path} holds {len(found)} reports, expected one.\n"
            "Give the folder of one report, or its JSON file."
        )
    return found[0]


def _of_scores(kind: str) -> Callable[[list[dict[str, Any]], Mapping[str, Any]], _Rows]:
    """Read the rows of one kind in a table of scores."""

    def read(rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> _Rows:
        for row in rows:
            if row["kind"] == kind:
                head = facts["side"], row["layer"], row["head"]
                yield _Number(head, row["name"], row["mean"], row.get("low"), row.get("high"))

    return read


def _of_probe(rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> _Rows:
    """Read accuracies; those of pronouns have a group in place of a relation."""
    del facts
    for row in rows:
        if "accuracy" in row:
            names = (row.get("relation") or row.get("group"), row["direction"])
            name = " ".join(str(part) for part in names if part)
            if row.get("candidates") == "words":
                name += " among words"
            yield _Number(("encoder", row["layer"], row["head"]), name, row["accuracy"])


def _of_patch(rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> _Rows:
    """Read effects; indirect ones of mediation, since direct ones are of all but the head."""
    del facts
    for row in rows:
        if row["kind"] != "direct":
            where = "" if row["positions"] == "all" else f" at {row['positions']}"
            head = row["side"], row["layer"], row["head"]
            yield _Number(
                head, f"{row['kind']}{where}", row["effect"], row.get("low"), row.get("high")
            )


def _of_columns(rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> _Rows:
    """Read every column of numbers in a table with a row for each head."""
    del facts
    for row in rows:
        head = row["side"], row["layer"], row["head"]
        for name, value in row.items():
            if name in _NOT_SCORES or name.endswith(_ERROR):
                continue
            ends: tuple[float, ...] = ()
            if value is not None and (error := row.get(f"{name}{_ERROR}")) is not None:
                ends = value - _NORMAL * error, value + _NORMAL * error
            yield _Number(head, name.replace("_", " "), value, *ends)


def _of_maps(rows: list[dict[str, Any]], facts: Mapping[str, Any]) -> _Rows:
    """Read measures of maps, of each text; their means are taken."""
    for row in rows:
        named = {name: value for name, value in row.items() if name not in ("text", "kind")}
        for number in _of_columns([named], facts):
            yield number._replace(column=f"{row['kind']} {number.column}")


_READERS: dict[str, Callable[[list[dict[str, Any]], Mapping[str, Any]], _Rows]] = {
    "roles": _of_scores("score"),
    "stats": _of_scores("mean"),
    "probe": _of_probe,
    "ablate": _of_columns,
    "patch": _of_patch,
    "circuits": _of_columns,
    "weights": _of_maps,
}
