# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Parallel text that teaches a model to rewrite written dates as ISO 8601, made up here.

    python examples/dates/make_dates.py DATES

writes the files that `tiny-dates` is trained on and judged by: one date per line in `*.source`,
such as "Montag, 12. Juli 2010", and 2010-07-12 in the same line of `*.target`. No corpus is read.
The formats are those of `date_formats`.

What is held out. Dates are split by hash: a date is in one of train, dev and heldout whatever the
format. A tenth of the formats is unseen: whole layouts, in all their dresses, are never trained on.
They are new combinations of pieces, separators and orders that other layouts have, so an unseen
format has no unknown word in it. The most common ones are never set aside.

    train     seen formats, training dates
    dev       seen formats, dates for choosing a checkpoint
    heldout   seen formats, held-out dates
    unseen    unseen formats, held-out dates, and only where no seen format writes the same text
"""

import argparse
import datetime
import functools
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from date_formats import Format, formats, share
from date_words import TWO_DIGIT_YEARS

from flaxattn.errors import FlaxattnError, InputError
from flaxattn.files import written_whole
from flaxattn.train.pretraining_data import raw_draws

FIRST, LAST = datetime.date(1900, 1, 1), datetime.date(2068, 12, 31)
PARTS: Mapping[str, float] = {"heldout": 0.05, "dev": 0.05, "train": 0.9}
UNSEEN = 0.1  # share of the formats
ROWS, TEST_ROWS, SEED = 500_000, 5_000, 0
# What people write most is never set aside: the built-in model has to know it.
EVERYDAY = frozenset(
    {
        "en/dmy/d-name-yyyy/spaces",
        "en/dmy/d-short-yyyy/spaces",
        "en/dmy/nth-name-yyyy/spaces",
        "en/dmy/nth-name-yyyy/the-of-comma",
        "en/mdy/d-name-yyyy/comma",
        "en/mdy/nth-name-yyyy/comma",
        "en/mdy/d-m-yy/figures-slashes",
        "en/mdy/d-m-yyyy/figures-slashes",
        "en/mdy/dd-mm-yyyy/figures-slashes",
        "de/dmy/d-name-yyyy/spaces",
        "de/dmy/d-austrian-yyyy/spaces",
        "de/dmy/d-m-yy/figures",
        "de/dmy/d-m-yyyy/figures",
        "de/dmy/dd-mm-yyyy/figures",
        "any/ymd/dd-mm-yyyy/hyphens",
    }
)
_CHUNK = 10_000
# A format that two layouts share for some dates shows it on one of these: every month, both with
# a day of one figure and of two.
_PROBES = [datetime.date(2004, month, day) for month in range(1, 13) for day in (5, 15)]


class DateExample(NamedTuple):
    """A date as somebody wrote it, in ISO 8601, and the format it is written in."""

    text: str
    iso: str
    format: Format


class Split(NamedTuple):
    """The formats that are trained on, and those that are not."""

    seen: tuple[Format, ...]
    unseen: tuple[Format, ...]


def dates(part: str) -> tuple[datetime.date, ...]:
    """The dates from 1900 to 2068 of a part: "train", "dev" or "heldout"."""
    return _all_dates()[part]


@functools.cache
def _all_dates() -> dict[str, tuple[datetime.date, ...]]:
    parts: dict[str, list[datetime.date]] = {part: [] for part in PARTS}
    bounds = list(itertools.accumulate(PARTS.values()))
    for day in range(FIRST.toordinal(), LAST.toordinal() + 1):
        date = datetime.date.fromordinal(day)
        place = share(f"date {date.isoformat()}")
        part = next(name for name, bound in zip(PARTS, bounds, strict=True) if place < bound)
        parts[part].append(date)
    return {part: tuple(found) for part, found in parts.items()}


def split(every: Sequence[Format], seed: int = SEED) -> Split:
    """Set a tenth of the formats aside, by whole layouts.

    A layout may go only if every piece, order, skeleton and dress in it is also in one that stays,
    and never one of `EVERYDAY`.

    Args:
        every: formats, all those of a layout among them.
        seed: another one sets other layouts aside.

    Returns:
        Both parts, in the order of `every`.
    """
    layouts: dict[str, set[str]] = {}
    for one in every:
        layouts.setdefault(one.layout, set()).update(one.vocabulary)
    left = Counter(itertools.chain.from_iterable(layouts.values()))
    sizes = Counter(one.layout for one in every)
    aside, count = set(), 0
    for layout in sorted(layouts, key=lambda name: share(f"{seed} {name}")):
        fits = count + sizes[layout] <= UNSEEN * len(every)
        if fits and layout not in EVERYDAY and all(left[word] > 1 for word in layouts[layout]):
            aside.add(layout)
            count += sizes[layout]
            left.subtract(layouts[layout])
    seen = tuple(one for one in every if one.layout not in aside)
    return Split(seen, tuple(one for one in every if one.layout in aside))


def examples(
    count: int, seed: int, formats: Sequence[Format], dates: Sequence[datetime.date]
) -> Iterator[DateExample]:
    """Draw a format and then a date it can write, again and again.

    Example n is the same for every count. A format with two figures for the year gets dates from
    1969 to 2068 only.

    Args:
        count: number of examples.
        seed: of the draws.
        formats: to choose from, each as likely as any other.
        dates: to choose from.

    Raises:
        InputError: there is no format, or no date that a format can write.
    """
    recent = [date for date in dates if date.year in TWO_DIGIT_YEARS]
    if not formats or not dates or (not recent and any(one.two_digits for one in formats)):
        raise InputError(
            "nothing to draw from\n"
            f"received {len(formats)} formats and {len(dates)} dates, {len(recent)} of them in "
            "1969 to 2068\ngive at least one format, and a date that it can write"
        )
    for first in range(0, count, _CHUNK):
        drawn = raw_draws(f"dates {seed}", first, min(_CHUNK, count - first), 2)
        for which, when in drawn.tolist():
            one = formats[which % len(formats)]
            pool = recent if one.two_digits else dates
            date = pool[when % len(pool)]
            yield DateExample(one.render(date), date.isoformat(), one)


def new_to(seen: Sequence[Format], drawn: Iterator[DateExample]) -> Iterator[DateExample]:
    """Leave out examples whose text one of the seen formats writes too.

    "May 3, 2009" is full and short month at once: it says nothing about an unseen format.
    """
    written: dict[str, set[Format]] = {}
    for one, date in itertools.product(seen, _PROBES):
        written.setdefault(one.render(date), set()).add(one)

    @functools.cache
    def rivals(unseen: Format) -> list[Format]:
        both = set().union(*(written.get(unseen.render(date), ()) for date in _PROBES))
        return sorted(both, key=lambda one: one.name)

    for example in drawn:
        date = datetime.date.fromisoformat(example.iso)
        if all(one.render(date) != example.text for one in rivals(example.format)):
            yield example


def write(
    out: Path, count: int = ROWS, test_count: int = TEST_ROWS, seed: int = SEED
) -> dict[str, int]:
    """Write the parallel text of every part, and the list of formats.

    Args:
        out: gets `train.source`, `train.target`, the same for dev, heldout and unseen, for these
            three also `*.format` with the name of each line's format, and `formats.tsv`: name,
            "seen" or "unseen", and 5 March 2004 as an example.
        count: rows of train.
        test_count: rows of each of the others.
        seed: of the split of the formats and of the draws.

    Returns:
        The number of seen and of unseen formats.

    Raises:
        InputError: a count is no positive number, or `out` holds such files.
        CheckpointError: they cannot be written.
    """
    for name, number in (("count", count), ("test-count", test_count)):
        if number < 1:
            raise InputError(f"--{name} must be at least 1, got {number}")
    if (out / "train.source").exists():
        raise InputError(
            f"{out} holds a train.source already\nit may be somebody's text\nname another folder"
        )
    seen, unseen = split(formats(), seed)
    with written_whole(out) as folder:
        for part in PARTS:
            rows = count if part == "train" else test_count
            _write_part(folder, part, examples(rows, seed, seen, dates(part)))
        drawn = examples(sys.maxsize, seed, unseen, dates("heldout"))
        _write_part(folder, "unseen", itertools.islice(new_to(seen, drawn), test_count))
        kinds = {**dict.fromkeys(seen, "seen"), **dict.fromkeys(unseen, "unseen")}
        table = [f"{one.name}\t{kinds[one]}\t{one.render(_PROBES[4])}\n" for one in formats()]
        (folder / "formats.tsv").write_text("".join(table), encoding="utf-8", newline="\n")
    return {"seen": len(seen), "unseen": len(unseen)}


def _write_part(folder: Path, part: str, drawn: Iterator[DateExample]) -> None:
    with (
        open(folder / f"{part}.source", "w", encoding="utf-8", newline="\n") as source,
        open(folder / f"{part}.target", "w", encoding="utf-8", newline="\n") as target,
    ):
        names = []
        for example in drawn:
            source.write(example.text + "\n")
            target.write(example.iso + "\n")
            names.append(example.format.name)
    if part != "train":
        text = "".join(name + "\n" for name in names)
        (folder / f"{part}.format").write_text(text, encoding="utf-8", newline="\n")


def main(words: Sequence[str] | None = None) -> int:
    """Write the parallel text that the command line asks for.

    Args:
        words: of the command line.

    Returns:
        The exit code: 0, or 2 for what cannot be done as asked.
    """
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("out", type=Path, help="Output folder.")
    parser.add_argument("--count", type=int, default=ROWS, help="Number of training rows.")
    parser.add_argument(
        "--test-count",
        type=int,
        default=TEST_ROWS,
        help="Number of rows of the dev and test parts.",
    )
    parser.add_argument(
        "--seed", type=int, default=SEED, help="Random seed of the split and of the dates."
    )
    given = parser.parse_args(words)
    try:
        found = write(given.out, given.count, given.test_count, given.seed)
    except FlaxattnError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{found['seen']} formats to train on, {found['unseen']} unseen")
    print(f"wrote {given.out.resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
