# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Instance construction against its definition: scripted choices, a naive copy, and shares.

Token ids here encode where they come from: 100 times the sentence plus the place in it, and the
document in the ten thousands.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaxattn.errors import InputError
from flaxattn.train.corpus import TokenCorpus, mapped
from flaxattn.train.pretraining_data import PAIR, Outline, SegmentPair, cut_document, write_plan

Sizes = list[list[int]]
Made = tuple[list[int], list[int], bool]


def outline_of(sizes: Sizes) -> Outline:
    """Documents by the lengths of their sentences; all of them may be used."""
    flat = [size for document in sizes for size in document]
    sentences = np.array([0, *itertools.accumulate(flat)])
    documents = np.array([0, *itertools.accumulate(map(len, sizes))])
    return Outline(*map(memoryview, (sentences, documents, np.arange(len(sizes)))))


def document(number: int, lengths: list[int]) -> list[list[int]]:
    return [
        [10000 * number + 100 * sentence + place for place in range(length)]
        for sentence, length in enumerate(lengths)
    ]


def tokens_of(sizes: Sizes) -> list[int]:
    nested = [document(number, lengths) for number, lengths in enumerate(sizes)]
    return [token for one in nested for sentence in one for token in sentence]


def cut(
    sizes: Sizes, number: int, length: int, rng: random.Random, short: float = 0.1
) -> list[Made]:
    """The pairs of a document, as ids."""
    tokens = tokens_of(sizes)

    def ids(pair: SegmentPair) -> Made:
        first = tokens[pair.first : pair.first + pair.first_length]
        second = tokens[pair.second : pair.second + pair.second_length]
        return first, second, pair.is_random

    return [ids(pair) for pair in cut_document(outline_of(sizes), number, length, short, rng)]


class Scripted(random.Random):
    """Answers with a list of prepared draws, in order; a string of bits is for `getrandbits`."""

    def __init__(self, *draws: float | str) -> None:
        super().__init__()
        self.draws = list(draws)

    def random(self) -> float:
        value = self.draws.pop(0)
        assert isinstance(value, float)
        return value

    def getrandbits(self, k: int) -> int:
        if not k:
            return 0
        value = self.draws.pop(0)
        assert isinstance(value, str)
        assert len(value) == k
        return int(value, 2)


def test_scripted_choices_give_the_instances_worked_out_by_hand() -> None:
    rng = Scripted(
        0.5,  # not a short document: target 7 = length 10 - 3
        0.0,  # sentences 0-2 reach 7: the first of them alone is A
        0.4,  # a random next: sentences 1 and 2 go back
        0.1,  # document 0, which is this one: drawn again
        0.6,  # document 1
        0.0,  # from its first sentence until 4 tokens
        0.5,  # sentences 1-3 reach 7: two of them are A
        0.6,  # the actual next
        "1",  # 8 tokens, one too many: A is longer and loses its front
    )
    made = cut([[3, 3, 3, 2], [2, 2, 9]], 0, 10, rng)
    assert not rng.draws
    assert made == [
        ([0, 1, 2], [10000, 10001, 10100, 10101], True),
        ([101, 102, 200, 201, 202], [300, 301], False),
    ]


def test_a_lone_sentence_always_gets_a_random_partner() -> None:
    rng = Scripted(
        0.05,
        0.4,  # a short document: target 4 of 2 to 7
        0.6,
        0.0,  # document 1, first sentence
        "00100",  # 18 tokens to 7, B gives one more: 5 of A, one from the front
        "111111",  # 6 of B, all from the front
    )
    assert cut([[9], [9]], 0, 10, rng) == [([1, 2, 3, 4], [10006, 10007, 10008], True)]
    assert not rng.draws


def naive(sizes: Sizes, number: int, length: int, rng: random.Random) -> list[Made]:
    """The definition with lists and one token at a time, drawing in the same order."""
    documents = [document(n, lengths) for n, lengths in enumerate(sizes)]
    room = length - 3
    target = 2 + int(rng.random() * (room - 1)) if rng.random() < 0.1 else room
    made: list[Made] = []
    chunk: list[list[int]] = []
    i = 0
    while i < len(documents[number]):
        chunk.append(documents[number][i])
        if i == len(documents[number]) - 1 or sum(map(len, chunk)) >= target:
            end = 1
            if len(chunk) >= 2:
                end = 1 + int(rng.random() * (len(chunk) - 1))
            first = [token for sentence in chunk[:end] for token in sentence]
            second: list[int] = []
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                for _ in range(10):
                    other = int(rng.random() * len(documents))
                    if other != number:
                        break
                start = int(rng.random() * len(documents[other]))
                for sentence in documents[other][start:]:
                    second += sentence
                    if len(second) >= target - len(first):
                        break
                i -= len(chunk) - end
            else:
                second = [token for sentence in chunk[end:] for token in sentence]
            made.append((*truncated(first, second, room, rng), is_random))
            chunk = []
        i += 1
    return made


def truncated(
    first: list[int], second: list[int], room: int, rng: random.Random
) -> tuple[list[int], list[int]]:
    sizes = [len(first), len(second)]
    while sum(sizes) > room:
        sizes[0 if sizes[0] > sizes[1] else 1] -= 1
    kept = []
    for segment, size in zip((first, second), sizes, strict=True):
        bits = rng.getrandbits(len(segment) - size)
        front = bin(bits).count("1")
        kept.append(segment[front : front + size])
    return kept[0], kept[1]


documents_of_any_size = st.lists(
    st.lists(st.integers(1, 60), min_size=1, max_size=12), min_size=1, max_size=5
)


@given(documents_of_any_size, st.integers(5, 64), st.integers(0, 2**32))
def test_pointers_say_what_the_definition_says(sizes: Sizes, length: int, seed: int) -> None:
    for number in range(len(sizes)):
        expected = naive(sizes, number, length, random.Random(seed))
        assert cut(sizes, number, length, random.Random(seed)) == expected


@given(documents_of_any_size, st.integers(5, 64), st.integers(0, 2**32))
def test_invariants(sizes: Sizes, length: int, seed: int) -> None:
    made = cut(sizes, 0, length, random.Random(seed))
    tokens = tokens_of(sizes)
    place = {token: i for i, token in enumerate(tokens)}
    for first, second, is_random in made:
        assert min(len(first), len(second)) >= 1
        assert len(first) + len(second) <= length - 3
        assert {token // 10000 for token in first} == {0}
        other = {token // 10000 for token in second}
        assert len(other) == 1
        assert is_random or other == {0}
        assert len(sizes) == 1 or (other == {0}) != is_random or len(sizes) < 3
        for segment in (first, second):
            assert [place[t] for t in segment] == list(
                range(place[segment[0]], place[segment[0]] + len(segment))
            )
        if not is_random:
            assert place[second[0]] > place[first[-1]]
    starts = [place[first[0]] for first, _, _ in made]
    assert starts == sorted(starts)


def test_nothing_is_lost_at_a_documents_end_nor_when_sentences_go_back() -> None:
    for seed in range(50):
        made = cut([[5] * 30, [5] * 30], 0, 64, random.Random(seed), short=0.0)
        seen = {t for first, second, other in made for t in first + second * (not other)}
        assert {t // 100 for t in seen} == set(range(30))
        last_first, last_second, _ = made[-1]
        assert 29 in {last_first[-1] // 100, last_second[-1] // 100}


def test_a_next_sentence_is_random_every_second_time() -> None:
    """Judged where the document still continues, so that no lone sentence is among them."""
    outline, labels = outline_of([[8] * 60] * 2), []
    for seed in range(800):
        made = cut_document(outline, 0, 64, 0.0, random.Random(seed))
        labels += [pair.is_random for pair in made if pair.first < 8 * 30]
    sigma = 0.5 / len(labels) ** 0.5
    assert len(labels) > 4000
    assert abs(np.mean(labels) - 0.5) < 4 * sigma


def test_the_share_of_random_pairs_is_slightly_above_one_half() -> None:
    outline = outline_of([[8] * 40] * 2)
    labels = [
        pair.is_random
        for seed in range(400)
        for pair in cut_document(outline, 0, 64, 0.1, random.Random(seed))
    ]
    assert len(labels) > 3000
    assert 0.5 < np.mean(labels) < 0.58


def test_a_random_document_is_any_other_one_and_any_start() -> None:
    sizes, number = [[4] * 10] * 6, 2
    found = []
    for seed in range(1500):
        made = cut(sizes, number, 16, random.Random(seed))
        found += [second[0] // 100 for _, second, is_random in made if is_random]
    documents = np.bincount([place // 100 for place in found], minlength=6)
    starts = np.bincount([place % 100 for place in found], minlength=10)
    assert documents[number] == 0
    for counts, expected in ((np.delete(documents, number), 1 / 5), (starts, 1 / 10)):
        sigma = (len(found) * expected * (1 - expected)) ** 0.5
        assert np.abs(counts - len(found) * expected).max() < 4 * sigma


def test_one_document_in_ten_is_packed_to_a_random_shorter_length() -> None:
    outline, sizes = outline_of([[1] * 200] * 2), []
    for seed in range(4000):
        pair = cut_document(outline, 0, 64, 0.1, random.Random(seed))[0]
        if not pair.is_random:  # else it ends with the other document
            sizes.append(pair.first_length + pair.second_length)
    expected = 0.1 * 59 / 60  # of the targets 2 to 61, one is the usual one
    sigma = (expected * (1 - expected) / len(sizes)) ** 0.5
    assert abs(np.mean(np.array(sizes) < 61) - expected) < 4 * sigma
    assert min(sizes) == 2


def test_truncation_takes_tokens_from_both_ends_alike() -> None:
    fronts, backs = 0, 0
    for seed in range(400):
        made = cut([[20, 30], [20, 30]], 0, 33, random.Random(seed), short=0.0)
        for first, _, _ in made:
            sentence, place = divmod(first[0] % 10000, 100)
            full = 20 if sentence == 0 else 30
            fronts += place
            backs += full - 1 - first[-1] % 100 if len(first) < full else 0
    cut_off = fronts + backs
    assert cut_off > 1000
    assert abs(fronts - cut_off / 2) < 4 * (cut_off / 4) ** 0.5


@pytest.fixture(scope="module")
def corpus(store: Callable[[Sequence], TokenCorpus]) -> TokenCorpus:
    rng = random.Random(0)
    sizes = [[rng.randint(1, 25) for _ in range(rng.randint(1, 40))] for _ in range(200)]
    return store([document(number, lengths) for number, lengths in enumerate(sizes)])


def test_a_plan_holds_the_pairs_of_every_document_in_another_order(
    corpus: TokenCorpus, tmp_path: Path
) -> None:
    count = write_plan(tmp_path / "plan.npy", corpus, 64, 0.1, "key")
    plan = mapped(tmp_path / "plan.npy")
    expected = []
    for number in range(200):
        rng = random.Random(f"key/{number}")
        expected += cut_document(Outline.of(corpus), number, 64, 0.1, rng)
    assert plan.dtype == PAIR
    assert count == len(plan) == len(expected)
    assert sorted(plan.tolist()) == sorted(map(tuple, expected))
    assert plan.tolist() != list(map(tuple, expected))
    assert [path.name for path in tmp_path.iterdir()] == ["plan.npy"]
    documents = np.searchsorted(corpus.sentences[corpus.documents], plan["first"], side="right")
    assert abs(np.corrcoef(documents, np.arange(count))[0, 1]) < 4 / count**0.5


def test_a_plan_of_one_side_stays_on_it(corpus: TokenCorpus, tmp_path: Path) -> None:
    training, heldout = corpus.split(0.2)
    starts = corpus.sentences[corpus.documents[:-1]]
    for side in (training, heldout):
        write_plan(tmp_path / "plan.npy", side, 32, 0.1, "key")
        plan = mapped(tmp_path / "plan.npy")
        places = np.concatenate([plan["first"], plan["second"]])
        found = np.searchsorted(starts, places, side="right") - 1
        assert set(found.tolist()) == set(side.members.tolist())


def test_plans_differ_by_key_only(corpus: TokenCorpus, tmp_path: Path) -> None:
    plans = []
    for name, key in (("a", "0"), ("b", "0"), ("c", "1")):
        write_plan(tmp_path / f"{name}.npy", corpus, 64, 0.1, key)
        plans.append(mapped(tmp_path / f"{name}.npy").tolist())
    assert plans[0] == plans[1]
    assert plans[0] != plans[2]


def test_a_length_without_room(corpus: TokenCorpus, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="length 4 has no room for a pair of sentences; 5 has"):
        write_plan(tmp_path / "plan.npy", corpus, 4, 0.1, "key")
    write_plan(tmp_path / "plan.npy", corpus, 5, 0.1, "key")
    plan = mapped(tmp_path / "plan.npy")
    assert set(plan["first_length"] + plan["second_length"]) == {2}
