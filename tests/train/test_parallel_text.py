# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Parallel text from files of every kind, and how each fault in it is reported."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.errors import InputError
from flaxattn.train.translation_data import TranslationPair, fingerprint, held_out, read_pairs

GERMAN = ["Ein Hund läuft .", "Zwei Männer", "Guten Tag"]
ENGLISH = ["A dog runs .", "Two men", "Good day"]
Write = Callable[[str, str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, content: str | bytes) -> Path:
        data = content.encode() if isinstance(content, str) else content
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return put


def texts(pairs: list[TranslationPair]) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in pairs]


def read(*files: Path, source: str = "", target: str = "", policy: str = "fail"):
    """What was read of the files, and what was left out."""
    bad = BadRows(policy, files[0].parent / "run" if files else None)
    return read_pairs(files, source, target, bad), bad


def message(*files: Path, **given: str) -> list[str]:
    with pytest.raises(InputError) as error:
        read(*files, **given)
    lines = str(error.value).splitlines()
    assert len(lines) <= 3
    return lines


EXPECTED = list(zip(GERMAN, ENGLISH, strict=True))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_two_files(write: Write, end: str, suffix: str) -> None:
    files = [
        write(f"train.{name}{suffix}", "".join(line + end for line in lines))
        for name, lines in (("de", GERMAN), ("en", ENGLISH))
    ]
    pairs, bad = read(*files)
    assert texts(pairs) == EXPECTED
    assert [(pair.file, pair.line) for pair in pairs] == [(str(files[0]), n) for n in (1, 2, 3)]
    assert bad.summary() == {"rows": 3, "kept": 3, "bad": {}}


def test_the_last_line_may_have_no_end_and_the_first_a_byte_order_mark(write: Write) -> None:
    pairs, _ = read(
        write("a.txt", b"\xef\xbb\xbf" + "\n".join(GERMAN).encode()), write("b", "\n".join(ENGLISH))
    )
    assert texts(pairs) == EXPECTED


def test_tables(write: Write) -> None:
    rows = [f"{a}\t{b}\n" for a, b in EXPECTED]
    assert texts(read(write("a.tsv", "".join(rows)))[0]) == EXPECTED
    named = {"source": "de", "target": "en"}
    swapped = ["en\tid\tde\n", *(f"{b}\t7\t{a}\n" for a, b in EXPECTED)]
    assert texts(read(write("b.tsv", "".join(swapped)), **named)[0]) == EXPECTED
    table = write("c.csv", 'de,en\n"Ja, so","Yes, so"\n')
    assert texts(read(table, **named)[0]) == [("Ja, so", "Yes, so")]
    both = read(write("a.tsv.gz", "de\ten\nx\ty\n"), table, **named)[0]
    assert texts(both) == [("x", "y"), ("Ja, so", "Yes, so")]


def test_jsonl_and_parquet(write: Write, tmp_path: Path) -> None:
    named = {"source": "de", "target": "en"}
    rows = [{"de": a, "en": b} for a, b in EXPECTED]
    nested = "".join(json.dumps({"id": 1, "translation": row}) + "\n" for row in rows)
    assert texts(read(write("a.jsonl", nested), **named)[0]) == EXPECTED
    flat = "".join(json.dumps(row) + "\n" for row in rows)
    assert texts(read(write("b.jsonl", flat), **named)[0]) == EXPECTED
    turned = read(write("a.jsonl", nested), source="en", target="de")[0]
    assert texts(turned) == [(b, a) for a, b in EXPECTED]
    pq.write_table(pa.table({"translation": rows}), tmp_path / "c.parquet")
    assert texts(read(tmp_path / "c.parquet", **named)[0]) == EXPECTED


def test_numbers_of_lines_that_differ(write: Write) -> None:
    german = write("x.de", "eins\nzwei\n\nvier\n")
    english = write("x.en", "one\ntwo\nthree\n")
    expected = [
        f"{german} has 4 lines, {english} has 3",
        f"line 3 is the first that is empty in {german} and not in {english}",
        "line i of one must be the translation of line i of the other: repair the files",
    ]
    assert message(german, english) == expected
    assert message(german, english, policy="skip") == expected  # no policy repairs that
    other = message(english, german)
    assert other[0] == f"{english} has 3 lines, {german} has 4"
    assert other[1] == f"line 3 is the first that is empty in {german} and not in {english}"
    same = message(write("y.de", "eins\n\n"), write("y.en", "one\n"))
    assert same[1] == "no line is empty in one file and not in the other"


@pytest.mark.parametrize("policy", ["fail", "skip", "quarantine"])
def test_an_empty_line(write: Write, policy: str) -> None:
    german, english = write("x.de", "eins\n \ndrei\n\n"), write("x.en", "one\ntwo\nthree\n\n")
    if policy == "fail":
        assert message(german, english) == [
            f"{german}, line 2: the line is empty, that of {english} is not",
            'give it at least one word, or pass on_error="skip" to leave it out',
        ]
        return
    pairs, bad = read(german, english, policy=policy)
    assert [(pair.source, pair.target, pair.line) for pair in pairs] == [
        ("eins", "one", 1),
        ("drei", "three", 3),
    ]
    assert bad.summary() == {"rows": 4, "kept": 2, "bad": {"empty": 2}}
    listed = german.parent / "run" / "errors.jsonl"
    assert listed.exists() == (policy == "quarantine")
    if listed.exists():
        rows = [json.loads(line) for line in listed.read_text().splitlines()]
        assert [(row["line"], row["message"]) for row in rows] == [
            (2, f"the line is empty, that of {english} is not"),
            (4, f"the line is empty, as that of {english} is"),
        ]


def test_bytes_that_are_no_utf_8(write: Write) -> None:
    german, english = write("x.de", b"eins\nzw\xe4i\ndrei\n"), write("x.en", "one\ntwo\nthree\n")
    assert message(german, english)[0] == (
        f"{german}, line 2: byte 0xe4 at position 3 is not UTF-8"
    )
    assert message(english, german)[0].startswith(f"{german}, line 2: byte 0xe4")
    pairs, bad = read(german, english, policy="skip")
    assert texts(pairs) == [("eins", "one"), ("drei", "three")]  # the lines after it still match
    assert bad.summary() == {"rows": 3, "kept": 2, "bad": {"encoding": 1}}


def test_an_unknown_language(write: Write) -> None:
    row = json.dumps({"translation": {"de": "ja", "en": "yes", "fr": "oui"}})
    path = write("a.jsonl", row + "\n")
    assert message(path, source="deu", target="en") == [
        f"{path}, line 1: there is no language 'deu'; the nearest is 'de'; there are: de, en, fr",
        "name a language that it has, or add the translation, "
        'or pass on_error="skip" to leave it out',
    ]
    assert message(path, source="de", target="xx")[0] == (
        f"{path}, line 1: there is no language 'xx'; there are: de, en, fr"
    )
    broken = write("b.jsonl", json.dumps({"translation": "ja"}) + "\n")
    assert message(broken, source="de", target="en")[0] == (
        f"{broken}, line 1, column 'translation': expected an object of languages, received str"
    )
    empty = write("c.jsonl", json.dumps({"de": "ja", "en": ""}) + "\n")
    assert "column 'en': the text is empty" in message(empty, source="de", target="en")[0]


def test_languages_must_be_named_for_jsonl(write: Write) -> None:
    path = write("a.jsonl", "{}\n")
    assert message(path, source="de") == [
        f"{path}: the languages are not named",
        "source is 'de', target is ''",
        "name both, for example --source-lang de --target-lang en",
    ]


def test_files_that_are_no_parallel_text(write: Write) -> None:
    one = write("a.de", "x\n")
    for files in ((one,), (one, one, one), (one, write("a.tsv", "x\ty\n")), ()):
        assert message(*files)[0] == "this is not parallel text"
    assert message(one)[1:] == [
        f"received {one}",
        "name two text files, source first, or tables: .tsv .csv .jsonl .parquet",
    ]
    absent = one.with_name("absent.en")
    assert message(one, absent)[0] == f"{absent}: there is no such file"
    blank = write("a.en", "\n")
    assert message(write("b.de", "\n"), blank, policy="skip") == [
        f"no pair to learn from in {one.with_name('b.de')}, {blank}",
        "received 1 rows, 1 problems",
        "give files that hold sentences",
    ]


def test_pairs_are_held_out_by_their_hash() -> None:
    pairs = [TranslationPair(f"s{n % 90}", f"t{n % 90}", "x", n) for n in range(100)]
    train, dev = held_out(pairs, 7)
    assert len(train) + len(dev) == 100
    assert 7 <= len(dev) <= 14
    assert not set(texts(train)) & set(texts(dev))
    again = held_out(pairs[::-1], 7)[1]
    assert set(texts(again)) == set(texts(dev))
    assert len(set(texts(held_out(pairs, 1000)[1]))) <= 10  # at most a tenth of the pairs
    assert len(held_out(pairs[:3], 1)[1]) == 1


def test_a_fingerprint_is_of_texts_and_their_borders() -> None:
    one, two = TranslationPair("ab", "c", "x", 1), TranslationPair("a", "bc", "x", 1)
    assert fingerprint([one]) == fingerprint([one._replace(file="y", line=3)])
    assert fingerprint([one]) != fingerprint([two])
