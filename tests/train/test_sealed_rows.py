# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rows with checksums: no flipped bit and no lost end of a line changes what is read."""

import json
from pathlib import Path

import pytest

from flaxattn.errors import CheckpointError
from flaxattn.train.sealed_rows import read_rows, sealed_row

ROWS = [
    {"step": 2, "kind": "training", "loss": 4.5, "tokens": 90},
    {"step": 2, "kind": "heldout", "loss": 4.25, "accuracy": 0.5},
    {"step": 4, "kind": "training", "loss": float("inf"), "tokens": 180},
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(map(sealed_row, ROWS)))
    return file


def test_every_flipped_bit_is_found(path: Path) -> None:
    whole = path.read_bytes()
    assert read_rows(path) == ROWS
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError) as error:
            read_rows(path)
        assert str(error.value).startswith(f"{path} is damaged: line ")
        assert len(str(error.value).splitlines()) == 3


def test_a_line_that_was_being_written_is_left_out(path: Path) -> None:
    whole = path.read_bytes()
    start = whole.rindex(b"\n", 0, -1) + 1
    for cut in range(start, len(whole) + 1):
        path.write_bytes(whole[:cut])
        assert read_rows(path) == (ROWS if cut >= len(whole) - 1 else ROWS[:2])
    path.write_bytes(b"")
    assert read_rows(path) == []


def test_rows_of_an_earlier_version_have_no_checksums(path: Path) -> None:
    plain = "".join(json.dumps(row) + "\n" for row in ROWS)
    path.write_text(plain)
    assert read_rows(path) == ROWS
    path.write_text(plain + '{"step": 9, "ki')
    assert read_rows(path) == ROWS
    path.write_text(plain + sealed_row(ROWS[0]))
    with pytest.raises(CheckpointError, match="line 1 is not what was written"):
        read_rows(path)
