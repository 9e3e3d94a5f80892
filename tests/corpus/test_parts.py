# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A corpus that is read in parts is the corpus that is read as a whole, whatever the format."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flaxattn.corpus.bad_rows import ListedProblems
from flaxattn.corpus.input_files import FilePart, InputFile, KeptOpen, find_inputs
from flaxattn.corpus.rows import RowPlace
from flaxattn.corpus.texts import Columns, Text, read_parts, read_texts, text_places

ROWS = [f"word {n} " * (1 + n % 4) for n in range(11)]
LINES = "\n".join(ROWS[:4]) + "\r\n" + ROWS[4] + "\r" + "\n\nZü " + "\n".join(ROWS[5:])
CSV = (
    'id,text\n1,one\n\n2,"two\nlines, ""quoted"""\n3,"open\n4,four\n5,five,more\n6,"six\n\n"\n7,é\n'
)
TSV = "text\tid\n" + "".join(f'{row}"\t{n}\n\n' for n, row in enumerate(ROWS)) + "short\n"
JSONL = "".join(f'{{"text": "{row}", "id": {n}}}\n \n' for n, row in enumerate(ROWS)) + '{"text"'
WORD = "{0}\tword{0}\t_\t_\t_\t_\t{1}\tdep\t_\t_\n"
TREES = "# newdoc\n\n" + "".join(
    f"# sent_id = s{n}\n" + WORD.format(1, 0) + WORD.format(2, 1 if n != 3 else 7) + "\n"
    for n in range(6)
)


def as_text(content: str | bytes) -> Callable[[Path], Path]:
    """A file of these characters or bytes."""

    def write(path: Path) -> Path:
        data = content.encode() if isinstance(content, str) else content
        if path.suffix == ".gz":
            data = gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :])
        if path.suffix == ".zst":
            with pa.OSFile(str(path), "wb") as file, pa.CompressedOutputStream(file, "zstd") as out:
                out.write(data)
            return path
        path.write_bytes(data)
        return path

    return write


def as_table(path: Path) -> Path:
    """A Parquet or Arrow file of several groups of rows, one of them without a text."""
    texts = [*ROWS[:5], None, *ROWS[5:]]
    column = pa.array(texts).dictionary_encode() if "words" in path.stem else texts
    table = pa.table({"id": list(range(len(texts))), "text": column})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=4)
        return path
    kind = pa.ipc.new_file if "footed" in path.stem else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as file, kind(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return path


PLAIN, NAMED = Columns(), Columns(id="id")
FILES = {
    "a.txt": (as_text("\ufeff" + LINES), PLAIN),
    "bytes.txt": (as_text(b"one\ntw\xffo\nthr\0ee\nfour"), PLAIN),
    "old.txt": (as_text(LINES.replace("\n", "\r")), PLAIN),
    "a.txt.gz": (as_text(LINES), PLAIN),
    "a.txt.zst": (as_text(LINES), PLAIN),
    "a.csv": (as_text(CSV), NAMED),
    "a.csv.gz": (as_text(CSV), PLAIN),
    "a.tsv": (as_text(TSV), NAMED),
    "a.jsonl": (as_text(JSONL), NAMED),
    "a.jsonl.zst": (as_text(JSONL), PLAIN),
    "a.conllu": (as_text(TREES), NAMED),
    "a.parquet": (as_table, NAMED),
    "words.parquet": (as_table, PLAIN),
    "words.arrow": (as_table, PLAIN),
    "footed.arrow": (as_table, PLAIN),
    "stream.arrow": (as_table, PLAIN),
}


def check_parts(files: list[InputFile], columns: Columns, least: int) -> None:
    """Read files as a whole and in parts of one to three rows, forwards and backwards."""
    bad = ListedProblems("skip")
    whole = list(read_texts(files, columns, bad))
    places: list[tuple[InputFile, RowPlace, int]] = []
    for file in files:
        found = text_places(file, columns, ListedProblems("skip"))
        places += [(file, place, offset) for place, offset in found]
    assert len(places) == bad.rows_read >= least
    sizes = {place.line + 1: place.size for _, place, _ in places}
    assert all(len(text.text) <= sizes[text.line] for text in whole)
    assert len(whole) < len(places) or not bad.problems
    opened = KeptOpen()
    for size in (1, 2, 3):
        texts: dict[int, list[Text]] = {}
        problems: dict[int, list[str]] = {}
        starts = list(range(0, len(places), size))
        for start in [*starts, *reversed(starts)]:
            group = places[start : start + size]
            file, first, offset = group[0]
            part = FilePart(first.line, group[-1][1].stop, first.offset, offset, opened)
            own = ListedProblems("skip")
            texts[start] = list(read_parts([(file, part)], columns, own, 100))
            assert [text.index for text in texts[start]] == list(
                range(100, 100 + len(texts[start]))
            )
            assert own.rows_read == len(group)
            problems[start] = list(map(str, own.problems))
        found_texts = [(t.id, t.text, t.text_b, t.line) for s in starts for t in texts[s]]
        assert found_texts == [(t.id, t.text, t.text_b, t.line) for t in whole]
        assert [one for start in starts for one in problems[start]] == list(map(str, bad.problems))
    opened.close()


@pytest.mark.parametrize("name", FILES)
def test_parts_of_a_file_are_the_file(name: str, tmp_path: Path) -> None:
    write, columns = FILES[name]
    check_parts(find_inputs([write(tmp_path / name)]), columns, 4)


def test_parts_of_parallel_files_are_the_files(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_bytes(b"one\ntwo\r\n\nfour\nfi\xffve\nsix")
    (tmp_path / "a.de.gz").write_bytes(gzip.compress("eins\nzwei\n\nvier\nfünf\nsechs".encode()))
    files = find_inputs([(tmp_path / "a.en", tmp_path / "a.de.gz")])
    check_parts(files, Columns(pair="pair"), 6)


def test_a_line_that_is_too_long_hides_none_after_it(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n" + b"x" * (16 * 2**20 + 5) + b"\r\ntwo\n" + b"y" * 2**24 + b"\nthree")
    check_parts(find_inputs([path]), PLAIN, 5)
