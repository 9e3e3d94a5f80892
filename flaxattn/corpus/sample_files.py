# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Small files of our own in the formats that commands read, so that each can be tried at once.

The sentences are made from templates; what is measured on them holds for sentences like these.
"""

import csv
import io
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from flaxattn.corpus.sample_treebank import sample_treebank
from flaxattn.errors import InputError, check_arguments
from flaxattn.files import write_text

_NOUNS = ("lady", "girl", "horse", "king", "man", "captain", "child", "doctor")
_PLACES = ("house", "garden", "river", "sea", "door", "ship")
_GOOD = ("happy", "kind", "pleased", "bright", "gentle", "brave")
_BAD = ("sad", "angry", "cruel", "dark", "afraid", "tired")
# Words of the numbers below 20, by number.
_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_HELDOUT = 200  # numbers of the development set


@check_arguments()
def sample_files(folder: Path | str, seed: int = 0) -> dict[str, Path]:
    """Write small files to try commands on.

    >>> import flaxattn as fa
    >>> files = fa.sample_files("samples")
    >>> files["corpus.txt"].read_text().splitlines()[0]
    'Every man or this horse heard a dark king.'

    Args:
        folder: Where they are written; made if it is not there. Files of the same names are
            replaced.
        seed: Random seed of sentences, pairs, labels and numbers.

    Returns:
        Paths by name: `treebank.conllu` and `train.conllu` (200 and 400 sentences with trees, none
        in both), `corpus.txt` (the former as plain text), `labels.csv` and `labels-dev.csv`
        (columns text and label), `pairs.csv` (clean and corrupted texts for `fa.patch`), and
        numbers in words and in digits for a translation model (`numbers.en`, `numbers.digits`,
        `numbers-dev.en`, `numbers-dev.digits`).

    Raises:
        InputError: If the name of the folder is empty.
        OSError: If the folder cannot be written.
    """
    if not str(folder):
        raise InputError("sample_files got no folder\nexpected a name such as samples")
    pick = random.Random(seed)
    treebank = sample_treebank(200, seed)
    sentences = _texts(treebank)
    others = _without(sample_treebank(600, seed + 1), set(sentences), 400)
    numbers = pick.sample(range(1_000_000), 6000 + _HELDOUT)
    train, dev = numbers[_HELDOUT:], numbers[:_HELDOUT]
    labels = _labels(pick)
    texts = {
        "treebank.conllu": treebank,
        "train.conllu": others,
        "corpus.txt": _lines(sentences),
        "labels.csv": _table(("text", "label"), labels[60:]),
        "labels-dev.csv": _table(("text", "label"), labels[:60]),
        "pairs.csv": _table(("clean", "corrupted", "answer", "wrong"), _pairs(pick)),
        "numbers.en": _lines(map(_in_words, train)),
        "numbers.digits": _lines(map(_in_digits, train)),
        "numbers-dev.en": _lines(map(_in_words, dev)),
        "numbers-dev.digits": _lines(map(_in_digits, dev)),
    }
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_text(place / name, text)
    return {name: place / name for name in texts}


def _texts(treebank: str) -> list[str]:
    """The sentences of a treebank as they are written."""
    mark = "# text = "
    return [line.removeprefix(mark) for line in treebank.splitlines() if line.startswith(mark)]


def _without(treebank: str, texts: set[str], count: int) -> str:
    """The first sentences of a treebank that are none of some texts."""
    blocks = [block for block in treebank.split("\n\n") if block]
    kept = [block for block in blocks if _texts(block)[0] not in texts]
    return "".join(f"{block}\n\n" for block in kept[:count])


def _labels(pick: random.Random) -> list[tuple[str, str]]:
    """Sentences about people who are well or not, labelled by their adjective."""
    rows = []
    for noun in _NOUNS:
        for place in _PLACES:
            for label, words in (("good", _GOOD), ("bad", _BAD)):
                for word in pick.sample(words, 3):
                    rows.append((f"The {noun} in the {place} was {word}.", label))
    pick.shuffle(rows)
    return rows


def _pairs(pick: random.Random) -> list[tuple[str, str, str, str]]:
    """Texts that repeat a phrase but for its last word, with that word and the other text's."""
    template = "the old {0} and the {1} were happy. the old {0} and the"
    rows = []
    for noun in _NOUNS:
        for _ in range(4):
            first, second = pick.sample([other for other in _NOUNS if other != noun], 2)
            clean, corrupted = (template.format(noun, word) for word in (first, second))
            rows.append((clean, corrupted, f" {first}", f" {second}"))
    return rows


def _in_words(number: int) -> str:
    """A number below a million in English words."""
    if number >= 1000:
        rest = f" {_in_words(number % 1000)}" if number % 1000 else ""
        return f"{_in_words(number // 1000)} thousand{rest}"
    if number >= 100:
        rest = f" and {_in_words(number % 100)}" if number % 100 else ""
        return f"{_SMALL[number // 100]} hundred{rest}"
    if number >= 20:
        rest = f" {_SMALL[number % 10]}" if number % 10 else ""
        return f"{_TENS[number // 10 - 2]}{rest}"
    return _SMALL[number]


def _in_digits(number: int) -> str:
    """The digits of a number, apart, as words that BLEU counts."""
    return " ".join(str(number))


def _lines(texts: Iterable[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([columns, *rows])
    return file.getvalue()
