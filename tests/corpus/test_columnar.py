# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Parquet and Arrow files: those that are damaged or cut short, and those that hold pickles."""

import subprocess
import sys
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
def test_a_file_that_was_cut_short_is_reported(name: str, share: float, tmp_path: Path) -> None:
    path = KINDS[name](tmp_path / name)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole)) - 8])  # a stream without its end looks whole
    kept, found = read(path)
    assert len(kept) < 5000
    assert found in ({"truncated-file": 1}, {"damaged": 1})


def test_a_flipped_bit_in_a_page_with_a_checksum_is_reported(tmp_path: Path) -> None:
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
        f"{FIXES['pickled']}"
    )


SHARED = """
import resource, sys
import subprocess
import sys
from pathlib import Path
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.rows import read_rows
import pyarrow.parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
bad = BadRows("skip")
lengths = [len(row.values["text"]) for row in read_rows(Path(sys.argv[1]), ["text"], bad)]
used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
print(len(lengths), sum(lengths), dict(bad.counts), used)
"""


def shared(path: Path, megabytes: int, rows: int) -> Path:
    """A small file whose rows share one long entry of a dictionary."""
    entry = pa.array(["the cat is sad, so " + "x" * (megabytes * 10**6 - 19)])
    table = pa.table({"text": pa.DictionaryArray.from_arrays(pa.array([0] * rows), entry)})
    pq.write_table(table, path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 20_000
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("megabytes", "rows", "kept"),
    [(15, 100, "100 1500000000 {}"), (40, 20, "0 0 {'too-long': 20}")],
)
def test_rows_that_share_a_long_value_are_read_one_by_one(
    megabytes: int, rows: int, kept: str, tmp_path: Path
) -> None:
    path = shared(tmp_path / "a.parquet", megabytes, rows)
    command = [sys.executable, "-P", "-c", SHARED, str(path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    printed, used = answer.rsplit(maxsplit=1)
    assert printed == kept and int(used) < 10 * megabytes
