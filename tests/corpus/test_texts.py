# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts of a corpus: every bad input as an extraction meets it, and ids of every sort.

How lines and rows are read is tested beside `tables`.
"""

import gzip
import json
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flaxattn.corpus.bad_rows import FIXES, BadRows
from flaxattn.corpus.input_files import find_inputs
from flaxattn.corpus.texts import Columns, Text, read_texts
from flaxattn.errors import InputError

PAIRS = Columns("text", "other", "id")
GOOD = [
    {"text": "a", "other": "one character", "id": "1"},
    {"text": "m" * 10**6, "other": "a million characters", "id": "x"},
    {
        "text": "w" * 50_000 + " \u202ertl e\u0301\u0302\u0303 👩\u200d👩\u200d👧 \x07",
        "other": "5",
        "id": "a/b",
    },
]


def texts(path: Path, columns: Columns, bad: BadRows | None = None) -> list[Text]:
    return list(read_texts(find_inputs([path]), columns, bad or BadRows()))


def jsonl(*rows: object) -> bytes:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    return b"".join(line + b"\n" for line in lines)


def table(end: str, *rows: object) -> bytes:
    """CSV or TSV with the columns of `GOOD`, the good ones first quoted where that is possible."""
    comma = "," if end == "csv" else "\t"
    lines = [comma.join(GOOD[0]).encode()]
    for row in rows:
        text = comma.join(map(str, row.values())) if isinstance(row, dict) else ""
        lines.append(row if isinstance(row, bytes) else text.encode())
    return b"".join(line + b"\n" for line in lines)


class Case(NamedTuple):
    """A bad row among good ones: in which kind of file, its code, and the column that is named."""

    kind: str
    row: bytes | dict[str, Any]
    code: str
    column: str = ""


def changed(**values: Any) -> dict[str, Any]:
    return {"text": "good", "other": "too", "id": "new", **values}


def lacking(name: str) -> dict[str, Any]:
    return {key: value for key, value in changed().items() if key != name}


ROWS = {
    "empty string": Case("jsonl", changed(text=""), "empty", "text"),
    "spaces only": Case("jsonl", changed(text=" \t\u3000"), "empty", "text"),
    "null": Case("jsonl", changed(text=None), "null", "text"),
    "invalid UTF-8": Case("csv", b"a\xff,b,new", "encoding"),
    "Latin-1": Case("tsv", "café\tb\tnew".encode("latin1"), "encoding"),
    "NUL": Case("tsv", b"a\0\tb\tnew", "nul"),
    "NUL in JSON": Case("jsonl", changed(text="a\0"), "nul", "text"),
    "lone surrogate": Case("jsonl", changed(text="\ud800"), "surrogate", "text"),
    "missing column": Case("jsonl", lacking("text"), "missing-column", "text"),
    "renamed column": Case("jsonl", {**lacking("text"), "txet": "a"}, "missing-column", "text"),
    "extra field": Case("csv", b"a,b,new,more", "long-row"),
    "short row": Case("tsv", b"a\tb", "short-row"),
    "unclosed quote": Case("csv", b'"a,b,new', "unclosed-quote"),
    "trailing comma": Case("jsonl", b'{"text": "a", "other": "b", "id": "new",}', "json"),
    "duplicate key": Case("jsonl", b'{"text": "a", "text": "b"}', "duplicate-key"),
    "nested object": Case("jsonl", changed(text={"a": 1}), "nested", "text"),
    "mixed types": Case("jsonl", changed(text=7), "not-text", "text"),
    "NaN literal": Case("jsonl", b'{"text": NaN, "other": "b", "id": "new"}', "nan-literal"),
    "empty second sentence": Case("jsonl", changed(other=""), "empty", "other"),
    "missing second": Case("jsonl", lacking("other"), "missing-column", "other"),
    "duplicate id": Case("jsonl", changed(id="1"), "duplicate-id", "id"),
    "duplicate number": Case("jsonl", changed(id=1), "duplicate-id", "id"),
    "missing id": Case("jsonl", lacking("id"), "missing-column", "id"),
    "null id": Case("jsonl", changed(id=None), "null", "id"),
    "empty id": Case("tsv", b"a\tb\t", "empty", "id"),
    "id of another type": Case("jsonl", changed(id=1.5), "not-text", "id"),
    "id with NUL": Case("jsonl", changed(id="a\0"), "nul", "id"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_bad_row_is_reported_and_the_others_are_as_without_it(name: str, tmp_path: Path) -> None:
    kind, row, code, column = ROWS[name]
    make = jsonl if kind == "jsonl" else lambda *rows: table(kind, *rows)
    clean, mixed = tmp_path / "clean" / f"a.{kind}", tmp_path / "mixed" / f"a.{kind}"
    for path, rows in ((clean, GOOD), (mixed, [GOOD[0], row, *GOOD[1:]])):
        path.parent.mkdir()
        path.write_bytes(make(*rows))
    line = 2 if kind == "jsonl" else 3
    with pytest.raises(InputError) as error:
        texts(mixed, PAIRS)
    message = str(error.value).splitlines()
    place = f"{mixed}, line {line}" + (f", column {column!r}" if column else "")
    assert message[0].startswith(f"{place}: ")
    assert message[-1] == f"{FIXES[code]}"
    assert len(message) in (2, 3)

    expected = [replace(text, line=0) for text in texts(clean, PAIRS)]
    assert [(text.text, text.text_b) for text in expected] == [
        (g["text"], g["other"]) for g in GOOD
    ]
    for policy in ("skip", "quarantine"):
        bad = BadRows(policy, tmp_path / "out")
        assert [replace(text, line=0) for text in texts(mixed, PAIRS, bad)] == expected
        assert bad.summary() == {"rows": 4, "kept": 3, "bad": {code: 1}}
    (listed,) = (tmp_path / "out/errors.jsonl").read_text(encoding="utf-8").splitlines()
    problem = json.loads(listed)
    assert {k: problem[k] for k in ("file", "line", "column", "code")} == {
        **{"file": str(mixed), "line": line, "column": column, "code": code}
    }
    assert len(problem["excerpt"]) <= 80


def whole_file(name: str, content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    return make


def rows_of(rows: int) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        pq.write_table(pa.table({"text": ["a"] * rows}), folder / "a.parquet")
        return folder / "a.parquet"

    return make


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.txt")
    return folder / "pipe.txt"


def dangling(folder: Path) -> Path:
    (folder / "link.txt").symlink_to("nothing")
    return folder / "link.txt"


LINES = "".join(f"{os.urandom(20).hex()}\n" for _ in range(9)).encode()
FILES = {
    "empty file": (whole_file("a.txt", b""), "empty-file"),
    "no rows": (rows_of(0), "empty-file"),
    "UTF-16": (whole_file("a.txt", "text\n".encode("utf-16")), "utf-16"),
    "missing column": (whole_file("a.csv", b"sentence\nx\n"), "missing-header"),
    "gz truncated": (whole_file("a.txt.gz", gzip.compress(LINES)[:-40]), "truncated-file"),
    "zst truncated": (
        whole_file("a.txt.zst", pa.compress(LINES, "zstd", asbytes=True)[:-4]),
        "truncated-file",
    ),
    "wrong extension": (whole_file("a.jsonl", b"PAR1"), "wrong-extension"),
    "a pickle": (whole_file("a.pkl", b"\x80\x04."), "wrong-extension"),
    "NumPy objects": (whole_file("a.npy", b"\x93NUMPY\x01\0"), "wrong-extension"),
    "dangling link": (dangling, "dangling-link"),
    "FIFO": (fifo, "not-a-file"),
    "absent": (lambda folder: folder / "absent.txt", "missing-file"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_reported_and_the_others_are_read(name: str, tmp_path: Path) -> None:
    make, code = FILES[name]
    good = tmp_path / "good.txt"
    good.write_text("one\ntwo\n")
    files = find_inputs([make(tmp_path), good])
    with pytest.raises(InputError) as error:
        list(read_texts(files, Columns(), BadRows()))
    assert FIXES[code] in str(error.value) and len(str(error.value).splitlines()) <= 3
    bad = BadRows("skip")
    found = [text for text in read_texts(files, Columns(), bad) if text.file == "good.txt"]
    assert [text.text for text in found] == ["one", "two"]
    assert bad.counts == {code: 1}
    summary = bad.summary()
    assert summary["rows"] == summary["kept"]


def test_line_ends_marks_and_the_last_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n four ")
    assert texts(path, Columns()) == [
        Text(0, "a.txt:1", "one", None, "a.txt", 1),
        Text(1, "a.txt:2", "two", None, "a.txt", 2),
        Text(2, "a.txt:3", "three", None, "a.txt", 3),
        Text(3, "a.txt:4", " four ", None, "a.txt", 4),
    ]
    path.write_bytes(b"one\n\ntwo\n")
    with pytest.raises(InputError, match="line 2, column 'text': the text is empty"):
        texts(path, Columns())


def test_numbers_continue_over_files_and_bad_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(jsonl({"text": "a"}, {"text": ""}, {"text": "b"}))
    (tmp_path / "b.jsonl").write_bytes(jsonl({"text": ""}, {"text": "c", "more": 1}))
    bad = BadRows("skip")
    found = list(read_texts(find_inputs([tmp_path]), Columns(), bad))
    assert [(text.index, text.id) for text in found] == [
        (0, "a.jsonl:1"),
        (1, "a.jsonl:3"),
        (2, "b.jsonl:2"),
    ]
    assert bad.summary() == {"rows": 5, "kept": 3, "bad": {"empty": 2}}


def test_plain_text_has_no_second_column(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    for columns in (Columns(pair="other"), Columns(id="name")):
        with pytest.raises(InputError, match=r"a\.txt, column '\w+': plain text has no columns"):
            texts(path, columns)


HOSTILE = [
    *("../../etc/passwd", "/etc/passwd", "..\\..\\x", "CON", "a" * 300, "dot.", "%2e%2e/", "~/x"),
    *("a/b", "a\u2215b", "\u202egpj.exe", "e\u0301", "é", "X", "x", "$(touch canary)", "\x1b[31m"),
]


def test_ids_and_columns_are_data_and_stay_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for column in HOSTILE:
        rows = [{column: name, "text": name} for name in HOSTILE]
        Path("a.jsonl").write_bytes(jsonl(*rows))
        found = texts(Path("a.jsonl"), Columns(id=column))
        assert [text.id for text in found] == HOSTILE
        assert [text.id for text in texts(Path("a.jsonl"), Columns(column))] == [
            f"a.jsonl:{line}" for line in range(1, len(HOSTILE) + 1)
        ]
    assert os.listdir() == ["a.jsonl"]


def peak(rows: int, folder: Path) -> int:
    path = folder / f"{rows}.jsonl"
    with path.open("w") as file:
        for number in range(rows):
            file.write(f'{{"text": "a text with number {number}", "id": "id-{number}"}}\n')
    (found,) = find_inputs([path])
    tracemalloc.start()
    assert sum(1 for _ in read_texts([found], Columns(id="id"), BadRows())) == rows
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    peak(100, tmp_path)  # imports
    # A set of the ids would take 540 kB more.
    assert peak(10_000, tmp_path) < peak(1_000, tmp_path) + 2**18


def test_two_text_files_are_pairs_of_lines(tmp_path: Path) -> None:
    """However their names end, compressed or not; a text beside them keeps its place."""
    (tmp_path / "train.de").write_bytes(b"ein\r\nzwei  \n\ndrei")
    with gzip.open(tmp_path / "train.en.gz", "wb") as file:
        file.write("one\n\ufefftwo\n \nthree\n".encode())
    files = find_inputs([(tmp_path / "train.de", str(tmp_path / "train.en.gz"))])
    bad = BadRows("skip")
    found = list(read_texts(files, Columns(pair="pair"), bad))
    assert found == [
        Text(0, "train.de:1", "ein", "one", "train.de", 1),
        Text(1, "train.de:2", "zwei  ", "\ufefftwo", "train.de", 2),
        Text(2, "train.de:4", "drei", "three", "train.de", 4),
    ]
    assert bad.summary() == {"rows": 4, "kept": 3, "bad": {"empty": 1}}


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_parallel_files_of_unequal_length_are_refused_whatever_the_policy(
    tmp_path: Path, policy: str
) -> None:
    (tmp_path / "a.txt").write_text("a\nb\nc\n")
    (tmp_path / "b.txt").write_text("a\n\nb\nc\n")
    files = find_inputs([(tmp_path / "a.txt", tmp_path / "b.txt")])
    with pytest.raises(InputError) as error:
        list(read_texts(files, Columns(pair="pair"), BadRows(policy)))
    one, two, three = str(error.value).splitlines()
    assert one == f"{tmp_path / 'a.txt'} has 3 lines, {tmp_path / 'b.txt'} has 4"
    assert two.startswith("line 2 is the first that is empty in ") and "repair the files" in three


def test_files_that_make_no_parallel_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    (tmp_path / "b.tsv").write_text("a\tb\n")
    for pair in ((tmp_path / "a.txt", tmp_path / "b.tsv"), ("-", "a.txt")):
        with pytest.raises(InputError, match="are not parallel text\nexpected two text files"):
            find_inputs([pair])
    with pytest.raises(InputError, match="is named twice"):
        find_inputs([(tmp_path / "a.txt", tmp_path / "a.txt")])
    (file,) = find_inputs([(tmp_path / "a.txt", tmp_path / "gone.txt")])
    with pytest.raises(InputError, match=r"gone.txt: there is no such file"):
        list(read_texts([file], Columns(pair="pair"), BadRows()))
    (tmp_path / "b.txt").write_text("b\n")
    (file,) = find_inputs([(tmp_path / "a.txt", tmp_path / "b.txt")])
    with pytest.raises(InputError, match="column 'name': plain text has no columns"):
        list(read_texts([file], Columns(pair="pair", id="name"), BadRows()))
