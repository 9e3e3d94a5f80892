# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The sample files are read back by the readers of commands, and say what they claim to say."""

import csv
from pathlib import Path

import pytest

import flaxattn as fa
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import read_sentences
from flaxattn.corpus.texts import read_text_pairs

VALUES = {
    **{word: n for n, word in enumerate("zero one two three four five six".split())},
    **{word: n + 7 for n, word in enumerate("seven eight nine ten eleven twelve".split())},
    **{word: n + 13 for n, word in enumerate("thirteen fourteen fifteen sixteen".split())},
    **{word: n + 17 for n, word in enumerate("seventeen eighteen nineteen".split())},
    **{word: 10 * n for n, word in enumerate("twenty thirty forty fifty".split(), 2)},
    **{word: 10 * n for n, word in enumerate("sixty seventy eighty ninety".split(), 6)},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return fa.sample_files(tmp_path_factory.mktemp("samples") / "new")


def number(words: str) -> int:
    """The value of English number words."""
    total = part = 0
    for word in words.replace(" and ", " ").split():
        if word == "thousand":
            total, part = part * 1000, 0
        elif word == "hundred":
            part *= 100
        else:
            part += VALUES[word]
    return total + part


@pytest.mark.slow
def test_the_treebanks_have_no_sentence_in_common(files: dict[str, Path], tmp_path: Path) -> None:
    bad = BadRows("fail", tmp_path)
    test, train = (
        [s.text for s in read_sentences([files[name]], bad)]
        for name in ("treebank.conllu", "train.conllu")
    )
    assert (len(test), len(train)) == (200, 400)
    assert not set(test) & set(train)
    assert files["corpus.txt"].read_text(encoding="utf-8").splitlines() == test


@pytest.mark.parametrize("part", ["numbers", "numbers-dev"])
def test_numbers_in_words_are_the_digits(files: dict[str, Path], part: str) -> None:
    words = files[f"{part}.en"].read_text(encoding="utf-8").splitlines()
    digits = files[f"{part}.digits"].read_text(encoding="utf-8").splitlines()
    assert len(words) == len(digits) >= 200
    assert [number(line) for line in words] == [int(line.replace(" ", "")) for line in digits]


def test_training_and_development_parts_share_nothing(files: dict[str, Path]) -> None:
    for one, other in (("numbers.en", "numbers-dev.en"), ("labels.csv", "labels-dev.csv")):
        first, second = (
            set(files[name].read_text(encoding="utf-8").splitlines()[1:]) for name in (one, other)
        )
        assert first and second and not first & second


def test_labels_follow_the_words(files: dict[str, Path]) -> None:
    for name in ("labels.csv", "labels-dev.csv"):
        with files[name].open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert {row["label"] for row in rows} == {"good", "bad"}
        words: dict[str, set[str]] = {}
        for row in rows:
            words.setdefault(row["text"].rsplit(" ", 1)[1], set()).add(row["label"])
        assert words["happy."] == {"good"} and words["sad."] == {"bad"}
        assert all(len(labels) == 1 for labels in words.values())


def test_pairs_differ_in_one_word_and_repeat_the_answer(
    files: dict[str, Path], tmp_path: Path
) -> None:
    bad = BadRows("fail", tmp_path)
    pairs = list(read_text_pairs([(files["pairs.csv"], None)], bad, wrong=True))
    assert len(pairs) == 32
    for pair in pairs:
        clean, corrupted = pair.clean.split(), pair.corrupted.split()
        changed = [(a, b) for a, b in zip(clean, corrupted, strict=True) if a != b]
        assert changed == [(pair.answer.strip(), str(pair.wrong).strip())]


def test_the_same_seed_writes_the_same(files: dict[str, Path], tmp_path: Path) -> None:
    again, other = fa.sample_files(tmp_path / "a"), fa.sample_files(tmp_path / "b", seed=1)
    for name, path in files.items():
        assert again[name].read_bytes() == path.read_bytes()
        assert other[name].read_bytes() != path.read_bytes()
