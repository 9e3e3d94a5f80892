# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Parquet and Arrow files: those that are damaged or cut short, and those that hold pickles."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flaxattn.corpus.bad_rows import FIXES, WHOLE_FILE, BadRows
from flaxattn.corpus.rows import read_rows
from flaxattn.errors import InputError

TABLE = pa.table({"text": [f"text {n}" for n in range(5000)], "n": range(5000)})


def stream(path: Path, table: pa.Table = TABLE) -> Path:
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    return path


def footed(path: Path, table: pa.Table = TABLE) -> Path:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)
    return path


def parquet(path: Path, table: pa.Table = TABLE) -> Path:
    pq.write_table(table, path, write_page_checksum=True, compression="none")
    return path


KINDS = {"a.arrow": stream, "b.arrow": footed, "c.parquet": parquet}


def read(path: Path, columns: list[str] | None = None) -> tuple[list[object], dict[str, int]]:
    bad = BadRows("skip")
    kept = [row.values["text"] for row in read_rows(path, columns, bad)]
    return kept, dict(bad.counts)


@pytest.mark.parametrize("name", KINDS)
def test_rows_come_in_order_and_know_their_number(name: str, tmp_path: Path) -> None:
    path = KINDS[name](tmp_path / name)
    assert read(path, ["text"]) == (TABLE["text"].to_pylist(), {})
    last = list(read_rows(path, None, BadRows()))[-1]
    assert (last.line, last.values) == (5000, {"text": "text 4999", "n": 4999})
    assert read(path, ["txt"]) == ([], {"missing-header": 1})
    assert read(KINDS[name](path, TABLE.slice(0, 0))) == ([], {"empty-file": 1})


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("share", [0.3, 0.9, 1.0])
def test_a_file_that_was_cut_short_is_told(name: str, share: float, tmp_path: Path) -> None:
    path = KINDS[name](tmp_path / name)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole)) - 8])  # a stream without its end looks whole
    kept, found = read(path)
    assert len(kept) < 5000
    assert found in ({"truncated-file": 1}, {"damaged": 1})


def test_a_flipped_bit_in_a_page_with_a_checksum_is_told(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet")
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"text 2500")] ^= 1
    path.write_bytes(whole)
    kept, found = read(path, ["text"])
    assert found == {"damaged": 1}
    assert kept == TABLE["text"].to_pylist()[: len(kept)]


@pytest.mark.parametrize("name", KINDS)
def test_a_pickled_type_is_refused_before_pyarrow_sees_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    program = f"cposix\nsystem\n(S'touch {canary}'\ntR.".encode()  # a pickle that runs a command
    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": program,
    }
    schema = pa.schema([pa.field("text", pa.string(), metadata=metadata)])
    path = KINDS[name](tmp_path / name, TABLE.select(["text"]).cast(schema))

    def unreachable(*_: object, **__: object) -> None:
        raise AssertionError("the schema was interpreted")

    for reader in ("open_stream", "open_file"):
        monkeypatch.setattr(pa.ipc, reader, unreachable)
    monkeypatch.setattr(pq, "ParquetFile", unreachable)
    assert read(path) == ([], {"pickled": 1})
    assert not canary.exists()
    assert "pickled" in WHOLE_FILE
    with pytest.raises(InputError) as error:
        list(read_rows(path, None, BadRows()))
    assert str(error.value) == (
        f"{path}: a column has an extension type that is a pickle, which is never opened\n"
        f"{FIXES['pickled']}; --on-error skip goes on without"
    )
