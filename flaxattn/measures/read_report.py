# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reading a report that a command wrote, after all of its files were compared with their digests.

The commands write reports; nothing here knows what the facts of one say.
"""

import json
from os import PathLike
from pathlib import Path
from typing import Any

from flaxattn.errors import InputError, check_arguments
from flaxattn.files import file_inside, json_digest, sha256_of

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
    >>> fa.read_report("REPORT/stats.json")["request"]["model"]
    'tiny-bert'

    Args:
        path: JSON file of the report, such as `report-stats/stats.json`; the other files are beside
            it.

    Returns:
        The facts: `flaxattn` (its version), `request` (options and inputs of the run), `files`
        (digests of the other files by name), and what the command measured. Numbers that were not
        finite are None.

    Raises:
        InputError: If a file of the report is missing, or is not what was written.
    """
    file = Path(path)
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
