# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of JSON, one a line, each with a digest of itself and of all rows before it: `chain`.

So a row that was removed, repeated, moved or changed is seen at the first line that does not follow
from the lines before it. The end of a file may be missing: that is what a killed run leaves, which
was writing a line, or whose last lines were not on the disk yet. Nothing here knows what a row
says.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flaxattn.errors import CheckpointError

_PLAIN, _CHECKSUM, _CHAIN = range(3)  # what earlier versions wrote, and what RowChain writes
_SEAL = re.compile(r', "(?:crc32": "([0-9a-f]{8})|chain": "([0-9a-f]{16}))"\}\Z')
_SEAL_LENGTH = len(', "chain": "0123456789abcdef"}')


class RowChain:
    """The lines of one file, from its first row on."""

    def __init__(self) -> None:
        self._digest = ""

    def line(self, row: Mapping[str, Any], *, escape: bool = True) -> str:
        """Return the next row as a line, with its end."""
        text = json.dumps(row, ensure_ascii=escape)
        return f'{text[:-1]}, "chain": "{self.digest(text)}"}}\n'

    def digest(self, text: str) -> str:
        """Return the digest of the next row."""
        whole = hashlib.sha256(f"{self._digest}{text}".encode(errors="surrogatepass"))
        self._digest = whole.hexdigest()[:16]
        return self._digest


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a file, without their digests.

    The last lines of the file may be missing or cut, as a killed run leaves them.
    """
    *lines, rest = path.read_bytes().split(b"\n")
    if _is_whole(rest):
        lines.append(rest)  # only the end of the line is missing
    elif rest and not rest.startswith(b"{"):
        raise _damaged(path, len(lines) + 1)
    chain = RowChain()
    rows = [_row(path, number, line, chain) for number, line in enumerate(lines, 1)]
    expected = max((kind for _, kind in rows), default=_PLAIN)
    for number, (_, kind) in enumerate(rows, 1):
        if kind != expected:
            raise _damaged(path, number)
    return [row for row, _ in rows]


def _row(path: Path, number: int, line: bytes, chain: RowChain) -> tuple[dict[str, Any], int]:
    """A row, and what seals it."""
    try:
        text = line.decode()
        seal = _SEAL.search(text, max(0, len(text) - _SEAL_LENGTH))
        bare = text if seal is None else text[: seal.start()] + "}"
        row = json.loads(bare)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, number) from error
    # Without a digest a row ends with a number; what ends otherwise had one.
    if not isinstance(row, dict) or (seal is None and text.endswith('"}')):
        raise _damaged(path, number)
    if seal is None:
        return row, _PLAIN
    checksum, digest = seal.groups()
    expected = chain.digest(bare) if checksum is None else f"{zlib.crc32(bare.encode()):08x}"
    if expected != (digest if checksum is None else checksum):
        raise _damaged(path, number)
    return row, _CHAIN if checksum is None else _CHECKSUM


def _is_whole(rest: bytes) -> bool:
    """Return whether the last line holds more than the beginning of a row."""
    try:
        json.JSONDecoder().raw_decode(rest.decode(errors="replace"))
    except (ValueError, RecursionError):
        return False
    return True


def _damaged(path: Path, number: int) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged: line {number} is not what was written\n"
        "it was changed, or rows before it were removed, repeated or moved\n"
        "copy the file again, or start the run again with --fresh"
    )
