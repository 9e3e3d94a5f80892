# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Made-up dates: every text means one date, other readers agree, and nothing held out is shown."""

import datetime
import itertools
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import make_dates
import pytest
from date_formats import Format, Span, formats
from date_words import PIECES
from make_dates import (
    EVERYDAY,
    FIRST,
    LAST,
    PARTS,
    dates,
    examples,
    main,
    new_to,
    split,
    write,
)

from flaxattn.errors import InputError

FILES = ("source", "target", "format")
BY_NAME = {one.name: one for one in formats()}
SPLIT = split(formats())
# Numbers that swap places and join up in every way: 1 and 11, 2 and 12, days, months and years.
NUMBERS = (1, 2, 9, 10, 11, 12)
CLOSED = [datetime.date(2000 + y, m, d) for y, m, d in itertools.product(NUMBERS, repeat=3)]
DRAWN = random.Random(0).sample([*dates("train"), *dates("heldout")], 84)
# How `datetime.strptime` calls our pieces; its words are English.
STRPTIME = {
    "d": "%d",
    "dd": "%d",
    "m": "%m",
    "mm": "%m",
    "name": "%B",
    "short": "%b",
    "yyyy": "%Y",
    "yy": "%y",
    "weekday": "%A",
    "wd": "%a",
    "weekday_en": "%A",
    "wd_en": "%a",
}
GERMAN_MONTHS = "j[aä]e?n feb m(?:[aä]e?r|rz) apr mai jun jul aug sep okt nov dez".split()
GERMAN_DAYS = "montag dienstag mittwoch donnerstag freitag samstag sonntag".split()
ENGLISH_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()


def contradictions(
    every: Iterable[Format], among: Sequence[datetime.date], squeeze: bool = False
) -> list[tuple[str, datetime.date, datetime.date]]:
    """Texts that mean two dates; `squeeze` forgets spaces and case, as a tokenizer may."""
    meaning: dict[str, datetime.date] = {}
    found = []
    for one, date in itertools.product(every, among):
        if one.fits(date):
            text = one.render(date)
            text = "".join(text.lower().split()) if squeeze else text
            if meaning.setdefault(text, date) != date:
                found.append((text, date, meaning[text]))
    return found


def pieces(one: Format) -> list[str]:
    return re.findall(r"\{(\w+)\}", one.pattern)


def writers(text: str, date: datetime.date, among: Iterable[Format]) -> list[Format]:
    return [one for one in among if one.fits(date) and one.render(date) == text]


def test_there_are_many_formats() -> None:
    assert len(formats()) == len(BY_NAME) >= 400
    layouts = {one.layout for one in formats()}
    assert len(layouts) >= 300
    assert min(sum(one.language == name for one in formats()) for name in ("en", "de", "any")) > 100
    orders = {tuple(name.split("/")[:2]) for name in layouts}
    assert orders == {(a, b) for a in ("en", "de", "any") for b in ("dmy", "mdy", "ymd")} - {
        ("de", "mdy"),
        ("any", "mdy"),
    }
    for one in formats():
        assert one.name.count("/") == 4
        assert all(pieces(one).count(piece) == 1 for piece in pieces(one))


@pytest.mark.slow
def test_a_text_means_one_date() -> None:
    assert not contradictions(formats(), [*CLOSED, *DRAWN], squeeze=True)


@pytest.mark.parametrize("pattern", ["{d}/{m}/{yyyy}", "{yy}.{m}.{d}", "{d}{m}{yyyy}", "{yy}-{mm}"])
def test_an_ambiguous_format_would_be_found(pattern: str) -> None:
    plain = [one for one in formats() if one.name.endswith("/plain")]
    assert contradictions([*plain, Format("any/other/x/y/z", "any", pattern)], CLOSED)


def test_strptime_reads_what_it_can() -> None:
    read = 0
    for one in formats():
        needed = set(pieces(one)) - {"d", "dd", "m", "mm", "yyyy", "yy"}
        if needed <= STRPTIME.keys() and (one.language != "de" or not needed):
            read += 1
            directives = one.pattern.format(**STRPTIME)
            for date in DRAWN[:12]:
                if one.fits(date):
                    text = one.render(date)
                    assert datetime.datetime.strptime(text, directives).date() == date, one.name
    assert read > 500


def read_german(text: str) -> tuple[int, int, int]:
    """Year, month and day of a German text with a month in letters and a year of four digits."""
    words = re.sub(r"\(\w+\)|\b(mo|di|mi|do|fr|sa|so|montag|\w+(?:tag|woch))\b", "", text.lower())
    year = re.search(r"(?<!\d)\d{4}(?!\d)", words)
    months = [n for n, name in enumerate(GERMAN_MONTHS, 1) if re.search(rf"\b{name}", words)]
    assert year and len(months) == 1, text
    if figures := re.search(r"(?<!\d)\d\d?(?!\d)", words):
        return int(year[0]), months[0], int(figures[0])
    ordinal = re.search(r"\b(\w+?t)(?:er|en|e)\b", words.replace("ß", "ss"))
    assert ordinal, text
    return int(year[0]), months[0], german_number(ordinal[1])


def german_number(ordinal: str) -> int:
    small = "null erst zweit dritt viert fünft sechst siebt acht neunt zehnt elft zwölft".split()
    unit, und, _ = ordinal.partition("und")
    if und or ordinal in ("zwanzigst", "dreissigst"):
        tens = 30 if "dreiss" in ordinal else 20
        names = "null ein zwei drei vier fünf sechs sieben acht neun".split()
        return tens + (names.index(unit) if und else 0)
    return small.index(ordinal) if ordinal in small else teen(ordinal.removesuffix("zehnt"))


def teen(stem: str) -> int:
    return 10 + "null ein zwei drei vier fünf sech sieb acht neun".split().index(stem)


def test_a_reader_of_german_agrees() -> None:
    read = 0
    for one in formats():
        if (
            one.language == "de"
            and "yyyy" in pieces(one)
            and not {"m", "mm", "roman"} & set(pieces(one))
        ):
            read += 1
            for date in DRAWN[:12]:
                expected = (date.year, date.month, date.day)
                assert read_german(one.render(date)) == expected, one.render(date)
    assert read > 150


def test_english_days_and_months() -> None:
    english = PIECES["en"]
    days = [datetime.date(2004, 1, day) for day in range(1, 32)]
    months = [datetime.date(2004, month, 1) for month in range(1, 13)]
    assert " ".join(map(english["nth"], days)) == (
        "1st 2nd 3rd 4th 5th 6th 7th 8th 9th 10th 11th 12th 13th 14th 15th 16th 17th 18th 19th "
        "20th 21st 22nd 23rd 24th 25th 26th 27th 28th 29th 30th 31st"
    )
    assert " ".join(map(english["ordinal"], days)) == (
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth "
        "thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth "
        "twenty-first twenty-second twenty-third twenty-fourth twenty-fifth twenty-sixth "
        "twenty-seventh twenty-eighth twenty-ninth thirtieth thirty-first"
    )
    for piece in ("dotted", "longer", "press"):
        for date in months:
            word, full = english[piece](date), date.strftime("%B")
            assert word == full or full.startswith(word.rstrip(".")), word
            assert word.endswith(".") == (piece != "longer" and word != full), word


@pytest.mark.parametrize(
    ("name", "date", "text"),
    [
        ("en/dmy/nth-name-yyyy/the-of-comma/plain", "1999-05-03", "the 3rd of May, 1999"),
        ("en/dmy/nth-name-yyyy/the-of-comma/capital", "2001-11-11", "The 11th of November, 2001"),
        ("en/mdy/d-m-yy/figures-slashes/plain", "2009-05-04", "5/4/09"),
        ("de/dmy/d-name-yyyy/spaces/weekday-comma", "2010-07-12", "Montag, 12. Juli 2010"),
        ("en/mdy/d-name-yyyy/comma/weekday-comma", "1976-07-04", "Sunday, July 4, 1976"),
        ("en/mdy/ordinal-name-'yy/the/plain", "1971-08-22", "August the twenty-second, '71"),
        ("de/dmy/ordinaler-austrian-yyyy/bare/plain", "1945-01-16", "sechzehnter Jänner 1945"),
        ("de/dmy/ordinalen-ascii-yyyy/den/plain", "1945-03-17", "den siebzehnten Maerz 1945"),
        ("de/dmy/ordinalen-name-yyyy/am/plain", "2068-12-31", "am einunddreißigsten Dezember 2068"),
        ("de/dmy/d-press-yyyy/short-spaces/plain", "1920-01-01", "1. Jän. 1920"),
        ("de/dmy/d-three-yyyy/short-spaces/plain", "1920-03-01", "1. Mrz 1920"),
        ("de/dmy/d-roman-yyyy/roman/plain", "2010-07-12", "12.VII.2010"),
        ("any/ymd/dd-mm-yyyy/compact/plain", "2010-07-02", "20100702"),
    ],
)
def test_written_as_people_do(name: str, date: str, text: str) -> None:
    assert BY_NAME[name].render(datetime.date.fromisoformat(date)) == text


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("the 3rd of May, 1999", "1999-05-03"),
        ("5/4/09", "2009-05-04"),
        ("Montag, 12. Juli 2010", "2010-07-12"),
        ("12.7.2010", "2010-07-12"),
        ("July 12, 2010", "2010-07-12"),
        ("2010-07-12", "2010-07-12"),
    ],
)
def test_what_the_documents_show_is_trained_on(text: str, date: str) -> None:
    assert writers(text, datetime.date.fromisoformat(date), SPLIT.seen)
    assert not contradictions(writers(text, datetime.date.fromisoformat(date), formats()), CLOSED)


def test_weekdays_are_true() -> None:
    names = {name[:n]: i for i, name in enumerate(ENGLISH_DAYS) for n in (3, len(name))}
    german = {name[:n]: i for i, name in enumerate(GERMAN_DAYS) for n in (2, len(name))}
    found = 0
    for one in formats():
        if any(piece.startswith(("weekday", "wd")) for piece in pieces(one)):
            found += 1
            table = german if one.language == "de" or "_de}" in one.pattern else names
            for date in DRAWN[:7]:
                span = one.spans(date)["weekday"]
                word = one.render(date)[span.start : span.stop].lower()
                # 1 January 1900 was a Monday.
                assert table[word] == (date - datetime.date(1900, 1, 1)).days % 7
    assert found > 400


def test_spans_are_where_the_parts_stand() -> None:
    date = datetime.date(2004, 8, 30)
    one = Format("de/dmy/x/y/z", "de", "{weekday}, {ordinaler} {name} '{yy} (ß)", "upper")
    assert one.render(date) == "MONTAG, DREISSIGSTER AUGUST '04 (SS)"
    assert one.spans(date) == {
        "weekday": Span(0, 6),
        "day": Span(8, 20),
        "month": Span(21, 27),
        "year": Span(29, 31),
    }
    for one in formats():
        text, spans = one.render(date), one.spans(date)
        assert {"day", "month", "year"} <= spans.keys()
        parts = {name: text[start:stop] for name, (start, stop) in spans.items()}
        assert parts["year"] in ("2004", "04"), one.name
        assert parts["day"].lower().startswith(("30", "dreißig", "dreissig", "thirtieth"))
        assert parts["month"].lower().startswith(("aug", "8", "08", "viii"))


def test_two_digits_are_read_as_posix_does() -> None:
    one = BY_NAME["en/mdy/d-m-yy/figures-slashes/plain"]
    years = [1968, 1969, 1999, 2000, 2068]
    assert [one.fits(datetime.date(year, 5, 4)) for year in years] == [
        False,
        True,
        True,
        True,
        True,
    ]
    drawn = list(examples(3000, 5, formats(), dates("train")))
    short = {int(e.iso[:4]) for e in drawn if "{yy}" in e.format.pattern}
    long = {int(e.iso[:4]) for e in drawn if "{yyyy}" in e.format.pattern}
    assert min(short) >= 1969 and max(short) == 2068
    assert min(long) < 1910 and max(long) >= 2067


def test_dates_are_held_out_whole() -> None:
    parts = [dates(part) for part in PARTS]
    every = list(itertools.chain(*parts))
    assert len(set(every)) == len(every) == (LAST - FIRST).days + 1
    for part, expected in PARTS.items():
        assert len(dates(part)) / len(every) == pytest.approx(expected, abs=0.005)
        assert {date.month for date in dates(part)} == set(range(1, 13))


def test_formats_are_held_out_by_layout() -> None:
    seen, unseen = SPLIT
    assert {*seen, *unseen} == {*formats()} and len(seen) + len(unseen) == len(formats())
    assert len(unseen) / len(formats()) == pytest.approx(0.1, abs=0.005)
    layouts = {one.layout for one in seen}
    assert not layouts & {one.layout for one in unseen}
    assert layouts >= EVERYDAY
    known = frozenset().union(*(one.vocabulary for one in seen))
    assert not [one.name for one in unseen if not one.vocabulary <= known]
    assert split(formats(), 1).unseen != unseen


def test_letters_and_words_of_unseen_formats_are_known() -> None:
    def words(part: Iterable[Format]) -> set[str]:
        among = [
            datetime.date(2000 + month, month, day) for month in range(1, 13) for day in (3, 20)
        ]
        texts = [one.render(date) for one, date in itertools.product(part, among)]
        return set(re.findall(r"[^\W\d]+|[^\w\s]", " ".join(texts).lower()))

    assert not words(SPLIT.unseen) - words(SPLIT.seen)


@pytest.mark.slow
def test_no_seen_format_writes_an_unseen_row() -> None:
    drawn = examples(60, 3, SPLIT.unseen, dates("heldout"))
    rows = list(new_to(SPLIT.seen, drawn))
    assert 20 < len(rows) < 60
    for row in rows:
        assert not writers(row.text, datetime.date.fromisoformat(row.iso), SPLIT.seen), row.text


def test_an_example_depends_on_its_number_only() -> None:
    few = list(examples(10, 7, formats(), dates("dev")))
    many = list(examples(10_020, 7, formats(), dates("dev")))
    assert few == many[:10]
    assert [e.text for e in examples(10, 8, formats(), dates("dev"))] != [e.text for e in few]
    for one in many[-50:]:
        date = datetime.date.fromisoformat(one.iso)
        assert one.text == one.format.render(date) and date in dates("dev")


def test_the_same_files_whatever_the_machine_is_set_to(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    write(here, 60, 30)
    environment = {**os.environ, "PYTHONHASHSEED": "7", "LC_ALL": "de_DE.UTF-8"}
    environment.pop("PYTHONSAFEPATH", None)  # a script finds the files beside it
    command = [sys.executable, make_dates.__file__, str(there), "--count", "60"]
    run = subprocess.run(
        [*command, "--test-count", "30"], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == f"wrote {there}"
    assert {path.name: path.read_bytes() for path in here.iterdir()} == {
        path.name: path.read_bytes() for path in there.iterdir()
    }


@pytest.mark.slow
def test_the_parts_are_parallel_and_apart(tmp_path: Path) -> None:
    out = tmp_path / "out"
    counts = write(out, 200, 100, seed=3)
    names = split(formats(), 3)
    assert counts == {"seen": len(names.seen), "unseen": len(names.unseen)}
    for part in (*PARTS, "unseen"):
        lines = {
            path.suffix: path.read_text(encoding="utf-8").splitlines()
            for path in out.glob(f"{part}.*")
        }
        rows = 200 if part == "train" else 100
        assert len(lines[".source"]) == len(lines[".target"]) == rows
        among = dates("heldout" if part == "unseen" else part)
        assert {datetime.date.fromisoformat(line) for line in lines[".target"]} <= set(among)
        if part == "train":
            continue
        for text, iso, name in zip(*(lines[f".{n}"] for n in FILES), strict=True):
            assert BY_NAME[name] in (names.unseen if part == "unseen" else names.seen)
            assert BY_NAME[name].render(datetime.date.fromisoformat(iso)) == text
    table = [line.split("\t") for line in (out / "formats.tsv").read_text("utf-8").splitlines()]
    assert [name for name, _, _ in table] == [one.name for one in formats()]
    assert sum(part == "unseen" for _, part, _ in table) == len(names.unseen)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count", "0"], "--count must be at least 1, got 0"),
        (["--test-count", "-1"], "--test-count must be at least 1, got -1"),
        ([], "holds a train.source already\nit may be somebody's text\nname another folder"),
    ],
)
def test_what_cannot_be_written(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.source").write_text("mine\n")
    assert main([str(tmp_path), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("error: ") and error.count("\n") <= 3
    assert [path.name for path in tmp_path.iterdir()] == ["train.source"]


def test_nothing_to_draw_from() -> None:
    old = [datetime.date(1950, 1, 1)]
    with pytest.raises(InputError, match=r"^nothing to draw from\nreceived 1 formats and 1 dates"):
        list(examples(1, 0, [BY_NAME["en/mdy/d-m-yy/figures-slashes/plain"]], old))
    with pytest.raises(InputError, match="received 0 formats"):
        list(examples(1, 0, [], old))
