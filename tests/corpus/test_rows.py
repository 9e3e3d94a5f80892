# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of every kind of file, what is said of those that cannot be read, and the three policies."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flaxattn.corpus.bad_rows import FIXES, WHOLE_FILE
from flaxattn.corpus.rows import BadRows, Problem, excerpt, read_rows, text_of
from flaxattn.corpus.sample_files import sample_treebank
from flaxattn.errors import InputError

Write = Callable[..., Path]
GOOD = [b"a one\tb one\t0", b"a two\tb two\t1", b"a three\tb three\t0"]
HEADER = b"a\tb\tlabel"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def file(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return file


def values(path: Path, columns: list[str] | None = None, **options: Any) -> list[list[Any]]:
    rows = read_rows(path, columns, BadRows("fail"), **options)
    return [list(row.values.values()) for row in rows]


def codes(path: Path, columns: list[str] | None = None) -> tuple[int, dict[str, int]]:
    """How many rows are good, and the problems of the others."""
    bad = BadRows("skip")
    kept = len(list(read_rows(path, columns, bad)))
    assert bad.summary()["kept"] == kept
    return kept, dict(bad.counts)


def message(path: Path, columns: list[str] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        list(read_rows(path, columns, BadRows("fail")))
    text = str(caught.value)
    assert len(text.splitlines()) <= 3
    assert text.startswith(str(path))
    return text


def test_the_same_rows_from_every_kind(write: Write, tmp_path: Path) -> None:
    rows = [['x, "y"', "0"], ["é\u2028z", "1"]]
    write("a.tsv", "text\tlabel\n" + "".join("\t".join(r) + "\n" for r in rows))
    write("a.csv", 'text,label\r\n"x, ""y""",0\r\né\u2028z,1')
    lines = "".join(json.dumps({"text": t, "label": n}) + "\n" for t, n in rows)
    write("a.jsonl", b"\xef\xbb\xbf" + lines.encode())
    write("a.jsonl.gz", gzip.compress(lines.encode()))
    write("a.jsonl.zst", pa.compress(lines.encode(), "zstd", asbytes=True))
    table = pa.table({"text": [r[0] for r in rows], "label": [r[1] for r in rows]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_stream(tmp_path / "a.arrow", table.schema) as stream:
        stream.write_table(table, max_chunksize=1)
    for kind in ("tsv", "csv", "jsonl", "jsonl.gz", "jsonl.zst", "parquet", "arrow"):
        assert values(tmp_path / f"a.{kind}", ["text", "label"]) == rows, kind
        assert values(tmp_path / f"a.{kind}", ["label"]) == [["0"], ["1"]], kind
    assert values(tmp_path / "a.tsv", ["t", "n"], header=False)[1:] == rows
    assert values(write("a.txt", "one\n\n two\n")) == [["one"], [""], [" two"]]
    assert values(write("b.txt", "a\tb\n1\t2\n"), kind="tsv") == [["1", "2"]]


def test_sentences_with_trees_are_rows_of_a_text_and_a_name(tmp_path: Path) -> None:
    path = tmp_path / "trees.conllu"
    path.write_text(sample_treebank(3), encoding="utf-8")
    with gzip.open(tmp_path / "trees.conllu.gz", "wb") as file:
        file.write(path.read_bytes())
    plain = values(path)
    assert len(plain) == 3 and plain == values(tmp_path / "trees.conllu.gz")
    assert plain[0][0].endswith(".") and plain[0][1] == "sample-1"
    assert values(path, ["text"]) == [row[:1] for row in plain]
    assert codes(path, ["sentence"]) == (0, {"missing-header": 1})


def test_marks_and_line_ends(write: Write) -> None:
    marked = write("a.tsv", b"\xef\xbb\xbfa\tb\r\n1\t2\r3\t4\n5\t6")
    assert values(marked, ["a", "b"]) == [["1", "2"], ["3", "4"], ["5", "6"]]
    assert [row.line for row in read_rows(marked, None, BadRows())] == [2, 3, 4]
    quoted = write("a.csv", 'a,b\n"one\ntwo",2\n3,4\n')
    assert [(r.line, r.values["a"]) for r in read_rows(quoted, None, BadRows())] == [
        (2, "one\ntwo"),
        (4, "3"),
    ]


BAD_LINES = {
    "short-row": b"only one field",
    "long-row": b"a\tb\t1\tmore",
    "encoding": b"caf\xe9\tb\t1",
    "nul": b"a\0\tb\t1",
}


@pytest.mark.parametrize("code", BAD_LINES)
@pytest.mark.parametrize("policy", ["skip", "quarantine"])
def test_good_rows_are_those_of_a_file_without_bad_ones(
    code: str, policy: str, write: Write, tmp_path: Path
) -> None:
    clean = write("clean.tsv", b"\n".join([HEADER, *GOOD]))
    mixed = write("mixed.tsv", b"\n".join([HEADER, GOOD[0], BAD_LINES[code], *GOOD[1:]]))
    bad = BadRows(policy, tmp_path / "run")
    kept = [row.values for row in read_rows(mixed, None, bad)]
    assert kept == [row.values for row in read_rows(clean, None, BadRows())]
    assert bad.summary() == {"rows": 4, "kept": 3, "bad": {code: 1}}
    path = tmp_path / "run" / "errors.jsonl"
    assert path.exists() == (policy == "quarantine")
    if path.exists():
        listed = [json.loads(line) for line in path.read_text().splitlines()]
        assert [(row["file"], row["line"], row["code"]) for row in listed] == [
            (str(mixed), 3, code)
        ]
        assert set(listed[0]) == {"file", "line", "column", "code", "message", "excerpt"}
        assert len(listed[0]["excerpt"]) <= 80
    text = message(mixed)
    assert f"{mixed}, line 3: " in text
    assert f"{FIXES[code]}" in text


def test_a_run_that_starts_again_lists_a_row_once(write: Write, tmp_path: Path) -> None:
    path = write("a.tsv", b"\n".join([HEADER, b"x", *GOOD, b"y"]))
    for _ in range(2):
        list(read_rows(path, None, BadRows("quarantine", tmp_path)))
    assert len((tmp_path / "errors.jsonl").read_text().splitlines()) == 2


def test_the_wording_of_a_short_row(write: Write) -> None:
    path = write("a.tsv", b"\n".join([HEADER, GOOD[0], b"a b\x1b[31m c", GOOD[1]]))
    assert message(path) == (
        f"{path}, line 3: expected 3 fields, received 1\n"
        "received: a b\\x1b[31m c\n"
        "give the row all its fields"
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('{"text": "a"', "json"),
        ('{"text": "a",}', "json"),
        ("[1]", "json"),
        ("{" * 100000, "json"),
        ('{"text": ' + "1" * 5000 + "}", "json"),
        ('{"text": "a", "text": "b"}', "duplicate-key"),
        ('{"text": "a", "n": NaN}', "nan-literal"),
        ('{"text": "a", "n": -Infinity}', "nan-literal"),
        ('{"txet": "a"}', "missing-column"),
        ('{"text": null}', "null"),
        ('{"text": 7}', "not-text"),
        ('{"text": {"a": 1}}', "nested"),
        ('{"text": ""}', "empty"),
        ('{"text": " \\t"}', "empty"),
        ('{"text": "\\ud800"}', "surrogate"),
        ('{"text": "\\u0000"}', "nul"),
    ],
)
def test_lines_of_json_that_cannot_be_used(line: str, code: str, write: Write) -> None:
    good = [json.dumps({"text": text}) for text in ("a" * 10**6, "\u202eb\x07", "e\u0301" * 9)]
    path = write("a.jsonl", "\n".join([good[0], line, *good[1:], ""]))
    bad = BadRows("skip")
    texts = [text_of(row, "text", bad) for row in read_rows(path, ["text"], bad)]
    assert [text for text in texts if text] == [json.loads(line)["text"] for line in good]
    assert bad.summary() == {"rows": 4, "kept": 3, "bad": {code: 1}}
    with pytest.raises(InputError, match=r"a\.jsonl, line 2") as caught:
        [text_of(row, "text", BadRows()) for row in read_rows(path, ["text"], BadRows())]
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.slow
def test_a_file_that_ends_too_early(write: Write) -> None:
    assert codes(write("a.jsonl", '{"a": 1}\n{"a": ')) == (1, {"truncated": 1})
    assert codes(write("a.tsv", "a\tb\n1\t2\n3")) == (1, {"truncated": 1})
    lines = "".join(f"{os.urandom(20).hex()}\n" for _ in range(20000)).encode()
    whole = gzip.compress(lines)
    for name, packed in (
        ("a.txt.gz", whole),
        ("a.txt.zst", pa.compress(lines, "zstd", asbytes=True)),
    ):
        kept, found = codes(write(name, packed[: len(packed) // 2]))
        assert 0 < kept < 20000
        assert found == {"truncated-file": 1}
        assert codes(write(name, packed[:-1]))[1] == {"truncated-file": 1}
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 255
    assert codes(write("b.txt.gz", bytes(damaged)))[1].keys() <= {"damaged", "encoding", "nul"}


def test_an_open_quote_costs_one_row(write: Write) -> None:
    path = write("a.csv", 'a,b\n1,2\n"open,3\n"x, y",4\n"two\nlines",5\n6,7\n')
    bad = BadRows("skip")
    kept = [row.values["a"] for row in read_rows(path, None, bad)]
    assert kept == ["1", "x, y", "two\nlines", "6"]
    assert bad.summary() == {"rows": 5, "kept": 4, "bad": {"unclosed-quote": 1}}
    assert "line 3: a quote is opened and never closed" in message(path)
    assert codes(write("b.csv", 'a,b\n1,2\n3,"open')) == (1, {"unclosed-quote": 1})
    assert codes(write("c.csv", b'a,b\n"x\n\xff",2\n3,4\n')) == (1, {"encoding": 1})
    assert codes(write("d.csv", "a,b\n1,2,3\n1\n4,5\n")) == (1, {"long-row": 1, "short-row": 1})


def test_columns_that_are_not_there(write: Write, tmp_path: Path) -> None:
    assert message(write("a.tsv", "sentense\tlabel\nx\t1\n"), ["sentence", "label"]) == (
        f"{tmp_path}/a.tsv, line 1, column 'sentence': no such column; the nearest is 'sentense'; "
        "there are: sentense, label\n"
        "add the column, or name the right one, as in text_column='text'"
    )
    assert codes(write("b.csv", "a,a\n1,2\n"), ["a"]) == (0, {"duplicate-column": 1})
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    assert codes(tmp_path / "a.parquet", ["text"]) == (0, {"missing-header": 1})


def test_files_that_are_none(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo.tsv")
    (tmp_path / "link.tsv").symlink_to("nothing")
    (tmp_path / "folder.tsv").mkdir()
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    write("empty.tsv", b"")
    write("zip.csv", b"PK\x03\x04 and so on")
    write("parquet.csv", (tmp_path / "none.parquet").read_bytes())
    write("text.parquet", b"a,b\n")
    write("text.tsv.gz", b"a\tb\n")
    write("gz.tsv", gzip.compress(b"a\tb\n"))
    write("zst.jsonl", pa.compress(b"{}", "zstd", asbytes=True))
    write("gz.jsonl.zst", gzip.compress(b"{}"))
    write("sheet.xlsx", b"x")
    write("array.txt", b"\x93NUMPY\x01\0v\0{'descr': '|O'")
    write("array.npy", b"\x93NUMPY\x01\0v\0{'descr': '|O'")
    write("pickle.jsonl", b"\x80\x04\x95\n")
    write("pickle.pkl", b"\x80\x04\x95\n")
    write("text.arrow", b"a,b\n")
    write("wide.tsv", "a\tb\n".encode("utf-16"))
    write("broken.parquet", (tmp_path / "none.parquet").read_bytes()[:-20] + b"PAR1")
    expected = {
        "fifo.tsv": "not-a-file",
        "link.tsv": "dangling-link",
        "folder.tsv": "directory",
        "absent.tsv": "missing-file",
        "empty.tsv": "empty-file",
        "none.parquet": "empty-file",
        "zip.csv": "wrong-extension",
        "parquet.csv": "wrong-extension",
        "text.parquet": "wrong-extension",
        "text.tsv.gz": "wrong-extension",
        "gz.tsv": "wrong-extension",
        "zst.jsonl": "wrong-extension",
        "gz.jsonl.zst": "wrong-extension",
        "sheet.xlsx": "wrong-extension",
        "array.txt": "wrong-extension",
        "array.npy": "wrong-extension",
        "pickle.jsonl": "wrong-extension",
        "pickle.pkl": "wrong-extension",
        "text.arrow": "wrong-extension",
        "wide.tsv": "utf-16",
        "broken.parquet": "damaged",
    }
    for name, code in expected.items():
        assert codes(tmp_path / name) == (0, {code: 1}), name
        assert code in WHOLE_FILE
        assert FIXES[code] in message(tmp_path / name)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("flaxattn.corpus.input_files.open", refuse, raising=False)
    assert codes(write("shut.tsv", "a\n")) == (0, {"unreadable": 1})


def test_parquet_text_that_is_not_utf8(tmp_path: Path) -> None:
    raw = pa.array([b"good", b"caf\xe9", b"fine"]).view(pa.string())
    pq.write_table(pa.table({"text": raw}), tmp_path / "a.parquet")
    assert codes(tmp_path / "a.parquet", ["text"]) == (2, {"encoding": 1})
    assert "a.parquet, line 2, column 'text'" in message(tmp_path / "a.parquet")


def test_a_line_that_is_too_long(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flaxattn.corpus.input_files.LONGEST", 100)
    path = write("a.txt", "short\n" + "x" * 1000 + "\nlast\n")
    bad = BadRows("skip")
    assert [row.values["text"] for row in read_rows(path, None, bad)] == ["short", "last"]
    assert bad.counts == {"too-long": 1}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("size", [97, 100, 101, 102, 203, 1000])
def test_lines_around_one_that_is_too_long(
    write: Write, monkeypatch: pytest.MonkeyPatch, end: str, size: int
) -> None:
    """Whatever ends lines, and wherever the pieces are cut that are read."""
    lines = ["a" * 60, "b" * 60, "", "x" * size, "c" * 98, *["d" * n for n in range(1, 40)]]
    path = write("a.txt", end.join(lines))
    whole = [(row.line, row.values["text"]) for row in read_rows(path, None, BadRows())]
    assert whole == list(enumerate(lines, 1))
    monkeypatch.setattr("flaxattn.corpus.input_files.LONGEST", 100)
    bad = BadRows("skip")
    found = [(row.line, row.values["text"]) for row in read_rows(path, None, bad)]
    long = size + len(end) > 100
    assert found == [row for row in whole if not (long and row[0] == 4)]
    assert bad.counts == ({"too-long": 1} if long else {})


def test_policies_are_checked() -> None:
    with pytest.raises(InputError, match="choose one of fail, skip, quarantine"):
        BadRows("ignore")
    with pytest.raises(InputError, match="needs a folder"):
        BadRows("quarantine")


def test_an_excerpt_is_short_and_printable() -> None:
    assert excerpt("é \u202e\ud800\n") == "é \\u202e\\ud800\\n"
    assert len(excerpt("\x00" * 500)) == 80
    assert len(str(Problem("f", 1, "c", "nul", "m", "e")).splitlines()) == 3
