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

from flaxattn.errors import InputError, check_arguments
from flaxattn.files import write_text

_WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "the": ("DET", ("the", "the", "a", "every", "this")),
    "old": ("ADJ", ("old", "young", "poor", "strange", "little", "great", "good", "dark")),
    "very": ("ADV", ("very", "rather", "too", "so")),
    "man": ("NOUN", ("man", "woman", "boy", "captain", "doctor", "king", "lady", "horse", "dog")),
    "house": ("NOUN", ("house", "garden", "street", "room", "village", "church", "town")),
    "he": ("PRON", ("he", "she", "they", "we")),
    "who": ("PRON", ("who",)),
    "saw": ("VERB", ("saw", "followed", "found", "watched", "knew", "left", "heard", "met")),
    "slept": ("VERB", ("slept", "laughed", "waited", "came", "spoke", "stood")),
    "slowly": ("ADV", ("slowly", "suddenly", "quietly", "often", "never")),
    "in": ("ADP", ("in", "near", "behind", "before")),
    "of": ("ADP", ("of", "from")),
    "and": ("CCONJ", ("and", "or")),
    "when": ("SCONJ", ("when", "because", "while")),
    ",": ("PUNCT", (",",)),
    ".": ("PUNCT", (".",)),
}
# Word class, number of the governor from 1, relation; 0 is the root.
_TEMPLATES = (
    "the/2/det man/3/nsubj slept/0/root slowly/3/advmod ./3/punct",
    "the/3/det old/3/amod man/4/nsubj saw/0/root the/6/det man/4/obj ./4/punct",
    "he/2/nsubj saw/0/root the/5/det old/5/amod man/2/obj in/8/case the/8/det house/2/obl "
    "./2/punct",
    "in/3/case the/3/det house/6/obl the/5/det man/6/nsubj slept/0/root ./6/punct",
    "the/2/det man/7/nsubj who/4/nsubj saw/2/acl:relcl the/6/det man/4/obj slept/0/root "
    "slowly/7/advmod ./7/punct",
    "he/3/nsubj slowly/3/advmod saw/0/root the/5/det man/3/obj of/8/case the/8/det house/5/nmod "
    "./3/punct",
    "the/2/det man/6/nsubj and/5/cc the/5/det man/2/conj saw/0/root the/9/det old/9/amod man/6/obj "
    "./6/punct",
    "when/3/mark he/3/nsubj slept/8/advcl ,/3/punct the/6/det man/8/nsubj slowly/8/advmod "
    "saw/0/root the/10/det man/8/obj ./8/punct",
    "he/2/nsubj saw/0/root the/4/det man/2/obj and/6/cc slept/2/conj slowly/6/advmod ./2/punct",
    "the/4/det very/3/advmod old/4/amod man/5/nsubj slept/0/root in/8/case the/8/det house/5/obl "
    "./5/punct",
)


@check_arguments()
def sample_treebank(sentences: int = 200, seed: int = 0) -> str:
    """Make sentences with dependency trees, as the text of a CoNLL-U file.

    Ten templates are filled with common words: subjects, objects, adjectives, adverbs, relative
    clauses and the like, with tags and relations of Universal Dependencies.

    >>> import flaxattn as fa
    >>> print(fa.sample_treebank(1).splitlines()[1])
    # text = Every man or this horse heard a dark king.

    Args:
        sentences: Number of different sentences.
        seed: Random seed of templates and words. Different seeds may share sentences.

    Returns:
        CoNLL-U, to be written to a file whose name ends in `.conllu`.

    Raises:
        InputError: If there are fewer than 1 or more than 10,000 sentences.
    """
    if not 1 <= sentences <= 10_000:
        raise InputError(
            f"sample_treebank was asked for {sentences} sentences\n"
            "its templates make 1 to 10,000 different ones\nchoose a number between them"
        )
    pick = random.Random(seed)
    blocks: dict[str, str] = {}
    while len(blocks) < sentences:
        rows = [row.rsplit("/", 2) for row in pick.choice(_TEMPLATES).split()]
        forms = [pick.choice(_WORDS[kind][1]) for kind, _, _ in rows]
        forms[0] = forms[0].capitalize()
        text = " ".join(forms).replace(" ,", ",").replace(" .", ".")
        if text not in blocks:
            blocks[text] = _block(text, forms, rows, len(blocks) + 1)
    return "".join(blocks.values())


def _block(text: str, forms: list[str], rows: Sequence[Sequence[str]], number: int) -> str:
    """One sentence with its tree, and a blank line."""
    lines = [f"# sent_id = sample-{number}", f"# text = {text}"]
    for place, (form, (kind, governor, relation)) in enumerate(zip(forms, rows, strict=True), 1):
        following = forms[place] if place < len(forms) else "."
        note = "SpaceAfter=No" if following in (",", ".") else "_"
        tag = _WORDS[kind][0]
        fields = (place, form, form.lower(), tag, "_", "_", governor, relation, "_", note)
        lines.append("\t".join(map(str, fields)))
    return "\n".join([*lines, "", ""])


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
        folder: Output folder; made if it is not there. Files of the same names are
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
    """The first sentences of a treebank that are not among some texts."""
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
