# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of JSON, one a line, each with a checksum of itself as its last field: `crc32`.

A line that a killed run was writing is no damage: it is cut, at the end of the file, and its row
is left out. Nothing here knows what a row says.
"""

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flaxattn.errors import CheckpointError

_SEAL = re.compile(r', "crc32": "([0-9a-f]{8})"\}')
_SEAL_LENGTH = len(', "crc32": "00000000"}')


def sealed_row(row: Mapping[str, Any]) -> str:
    """A row as a line, with its end.

    Args:
        row: At least one value that JSON can hold; the last one is no string.
    """
    text = json.dumps(row)
    return f'{text[:-1]}, "crc32": "{_checksum(text)}"}}\n'


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a file, without their checksums.

    Args:
        path: The file. One without any checksum, as earlier versions wrote it, is read too.

    Raises:
        CheckpointError: A line is not what was written.
    """
    *lines, rest = path.read_bytes().split(b"\n")
    if _is_whole(rest):
        lines.append(rest)  # only the end of the line is missing
    elif rest and not rest.startswith(b"{"):
        raise _damaged(path, len(lines) + 1)
    rows = [_row(path, number, line) for number, line in enumerate(lines, 1)]
    if len({sealed for _, sealed in rows}) > 1:
        raise _damaged(path, next(n for n, (_, sealed) in enumerate(rows, 1) if not sealed))
    return [row for row, _ in rows]


def _row(path: Path, number: int, line: bytes) -> tuple[dict[str, Any], bool]:
    """A row, and whether it has a checksum."""
    try:
        text = line.decode()
        seal = _SEAL.fullmatch(text, max(0, len(text) - _SEAL_LENGTH))
        row = json.loads(text if seal is None else text[: seal.start()] + "}")
    except (ValueError, RecursionError) as error:
        raise _damaged(path, number) from error
    # Without a checksum a row ends with a number; what ends otherwise had one.
    if not isinstance(row, dict) or (seal is None and text.endswith('"}')):
        raise _damaged(path, number)
    if seal is not None and seal[1] != _checksum(text[: seal.start()] + "}"):
        raise _damaged(path, number)
    return row, seal is not None


def _is_whole(rest: bytes) -> bool:
    """Return whether the last line holds more than the beginning of a row."""
    try:
        json.JSONDecoder().raw_decode(rest.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return True


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _damaged(path: Path, number: int) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged: line {number} is not what was written\n"
        "its checksum differs, or it is no row\n"
        "copy the file again, or start the run again with --fresh"
    )
