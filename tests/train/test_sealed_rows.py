# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rows with digests: no flipped bit, lost row or lost end of a line changes what is read."""

import itertools
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from flaxattn.errors import CheckpointError
from flaxattn.train.report import RowChain, read_metrics

ROWS = [
    {"step": 2, "kind": "training", "loss": 4.5, "tokens": 90},
    {"step": 2, "kind": "heldout", "loss": 4.25, "accuracy": 0.5},
    {"step": 4, "kind": "training", "loss": float("inf"), "tokens": 180},
]


def lines_of(rows: list[dict[str, Any]]) -> list[str]:
    chain = RowChain()
    return [chain.line(row) for row in rows]


def checksummed(row: dict[str, Any]) -> str:
    """A line of an earlier version."""
    text = json.dumps(row)
    return f'{text[:-1]}, "crc32": "{zlib.crc32(text.encode()):08x}"}}\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(lines_of(ROWS)))
    return file


def test_every_flipped_bit_is_found(path: Path) -> None:
    whole = path.read_bytes()
    assert read_metrics(path) == ROWS
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError) as error:
            read_metrics(path)
        assert str(error.value).startswith(f"{path} is damaged: line ")
        assert len(str(error.value).splitlines()) == 3


def test_a_line_that_was_being_written_is_left_out(path: Path) -> None:
    whole = path.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(start, len(whole) + 1):
        path.write_bytes(whole[:cut])
        assert read_metrics(path) == (ROWS if cut >= len(whole) - 1 else ROWS[:2])
    path.write_bytes(b"")
    assert read_metrics(path) == []


def test_rows_of_an_earlier_version_have_no_checksums(path: Path) -> None:
    plain = "".join(json.dumps(row) + "\n" for row in ROWS)
    path.write_text(plain)
    assert read_metrics(path) == ROWS
    path.write_text(plain + '{"step": 9, "ki')
    assert read_metrics(path) == ROWS
    path.write_text(plain + lines_of(ROWS)[0])
    with pytest.raises(CheckpointError, match="line 1 is not what was written"):
        read_metrics(path)


def test_rows_of_an_earlier_version_have_a_checksum_each(path: Path) -> None:
    old = "".join(map(checksummed, ROWS))
    path.write_text(old)
    assert read_metrics(path) == ROWS
    path.write_text(old.replace("4.5", "4.6"))
    with pytest.raises(CheckpointError, match="line 1 is not what was written"):
        read_metrics(path)
    for mixed in (old + lines_of(ROWS)[0], lines_of(ROWS)[0] + old, old + json.dumps(ROWS[0])):
        path.write_text(mixed)
        with pytest.raises(CheckpointError, match=r"line \d is not what was written"):
            read_metrics(path)


@pytest.mark.slow
def test_every_removed_repeated_or_moved_row_is_named(path: Path) -> None:
    """All sequences of up to 5 of 4 lines: read as they were written, or refused."""
    rows = [{"step": step, "kind": "training", "loss": 4.5 / step} for step in (1, 2, 3, 4)]
    lines, refused = lines_of(rows), 0
    for length in range(6):
        for order in itertools.product(range(4), repeat=length):
            path.write_text("".join(lines[n] for n in order))
            right = next((k for k, n in enumerate(order) if k != n), length)
            if right == length:
                assert read_metrics(path) == rows[:length]
                continue
            with pytest.raises(CheckpointError) as error:
                read_metrics(path)
            assert f"{path} is damaged: line {right + 1} is not" in str(error.value)
            refused += 1
    assert refused == 1365 - 5


def test_equal_rows_have_different_digests() -> None:
    first, second = lines_of([ROWS[0], ROWS[0]])
    assert first != second
