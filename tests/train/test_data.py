# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Instance construction against its definition: scripted choices, invariants and shares.

Token ids here encode where they come from: 100 times the sentence plus the place in it, and the
document in the ten thousands.
"""

import random
from pathlib import Path

import numpy as np
import pytest

from flaxattn.errors import InputError
from flaxattn.tokens import Tokenizer, train_wordpiece
from flaxattn.train import data
from flaxattn.train.recipe import Recipe
from flaxattn.train.sentences import paragraphs, split_sentences


def document(number: int, lengths: list[int]) -> data.Document:
    return [
        [10000 * number + 100 * sentence + place for place in range(length)]
        for sentence, length in enumerate(lengths)
    ]


@pytest.fixture(scope="module")
def documents() -> list[data.Document]:
    rng = random.Random(0)
    sizes = [[rng.randint(1, 25) for _ in range(rng.randint(1, 40))] for _ in range(300)]
    return [document(number + 1, lengths) for number, lengths in enumerate(sizes)]


@pytest.fixture(scope="module")
def pairs(documents: list[data.Document]) -> list[tuple[int, data.Instance]]:
    """About five thousand instances of length 64, each with the number of its document."""
    found = []
    for number in range(len(documents)):
        for repeat in range(2):
            rng = random.Random(f"{repeat}/{number}")
            made = data.build_instances(documents, number, 64, 0.1, rng)
            found += [(number + 1, instance) for instance in made]
    return found


class Scripted(random.Random):
    """Answers with a list of prepared draws, in order, and fails when asked for another kind."""

    def __init__(self, *draws: tuple[str, float]) -> None:
        super().__init__()
        self.draws = list(draws)

    def _next(self, kind: str) -> float:
        wanted, value = self.draws.pop(0)
        assert wanted == kind
        return value

    def random(self) -> float:
        return self._next("random")

    def randint(self, a: int, b: int) -> int:
        value = int(self._next("int"))
        assert a <= value <= b
        return value

    def randrange(self, stop: int) -> int:
        value = int(self._next("range"))
        assert 0 <= value < stop
        return value


def test_scripted_choices_give_the_instances_worked_out_by_hand() -> None:
    corpus = [document(0, [3, 3, 3, 2]), document(1, [2, 2, 9])]
    rng = Scripted(
        ("random", 0.5),  # not a short document: target 7 = length 10 - 3
        ("int", 1),  # sentences 0-2 reach 7: the first one is A
        ("random", 0.4),  # a random next: sentences 1 and 2 go back
        ("range", 0),  # this document itself: drawn again
        ("range", 1),
        ("range", 0),  # from the first sentence of document 1 until 4 tokens
        ("int", 2),  # sentences 1-3 reach 7: two are A
        ("random", 0.6),  # the actual next
        ("random", 0.4),  # 8 tokens, one too many: A is longer and loses its front
    )
    made = list(data.build_instances(corpus, 0, 10, 0.1, rng))
    assert not rng.draws
    assert made == [
        ([0, 1, 2], [10000, 10001, 10100, 10101], True),
        ([101, 102, 200, 201, 202], [300, 301], False),
    ]


def test_a_lone_sentence_always_gets_a_random_partner() -> None:
    corpus = [document(0, [9]), document(1, [9])]
    rng = Scripted(
        ("random", 0.05),
        ("int", 4),  # a short document: target 4
        ("range", 1),
        ("range", 0),
        *[("random", 0.9)] * 11,  # 18 tokens to 7: ends are cut, of B first when both are equal
    )
    (made,) = data.build_instances(corpus, 0, 10, 0.1, rng)
    assert made == ([0, 1, 2, 3], [10000, 10001, 10002], True)


def test_segments_fit_and_are_never_empty(pairs: list[tuple[int, data.Instance]]) -> None:
    sizes = [(len(pair.first), len(pair.second)) for _, pair in pairs]
    assert max(a + b for a, b in sizes) == 61
    assert min(min(a, b) for a, b in sizes) >= 1


def test_each_segment_is_one_stretch_of_one_document(
    documents: list[data.Document], pairs: list[tuple[int, data.Instance]]
) -> None:
    flat = [[token for sentence in d for token in sentence] for d in documents]
    place = {token: i for tokens in flat for i, token in enumerate(tokens)}
    for number, pair in pairs:
        assert {token // 10000 for token in pair.first} == {number}
        other = {token // 10000 for token in pair.second}
        assert len(other) == 1
        assert (other == {number}) != pair.is_random
        for segment in (pair.first, pair.second):
            places = [place[token] for token in segment]
            assert places == list(range(places[0], places[0] + len(places)))
        if not pair.is_random:
            assert place[pair.second[0]] > place[pair.first[-1]]


def test_every_sentence_opens_some_segment_or_is_inside_one(
    documents: list[data.Document],
) -> None:
    """Nothing is lost at a document's end, nor when unused sentences go back."""
    corpus = [document(1, [5] * 30), document(2, [5] * 30)]
    for seed in range(50):
        made = list(data.build_instances(corpus, 0, 64, 0.0, random.Random(seed)))
        seen = {t for pair in made for t in pair.first + (pair.second * (not pair.is_random))}
        sentences = {t // 100 for t in seen if t // 10000 == 1}
        assert len(sentences) == 30
        assert made[-1].first[-1] // 100 == 129 or made[-1].second[-1] // 100 == 129


def test_the_share_of_random_pairs_is_slightly_above_one_half() -> None:
    corpus = [document(n, [8] * 40) for n in range(40)]
    labels = [
        pair.is_random
        for number in range(40)
        for repeat in range(10)
        for pair in data.build_instances(
            corpus, number, 64, 0.1, random.Random(f"{repeat}{number}")
        )
    ]
    assert len(labels) > 3000
    assert 0.5 < np.mean(labels) < 0.58


def test_short_documents_are_about_one_in_ten() -> None:
    corpus = [document(n, [4] * 60) for n in range(2)]
    short = 0
    for seed in range(1000):
        first = next(data.build_instances(corpus, 0, 64, 0.1, random.Random(seed)))
        short += len(first.first) + len(first.second) < 50
    assert 55 < short < 125  # 100 times the chance that the drawn target is clearly shorter


def test_truncation_takes_single_tokens_from_both_ends_of_the_longer_side() -> None:
    fronts, backs = 0, 0
    for seed in range(200):
        first, second = data._truncate_pair(
            list(range(30)), list(range(10)), 20, random.Random(seed)
        )
        assert (len(first), len(second)) == (10, 10)
        fronts, backs = fronts + first[0], backs + 29 - first[-1]
    assert abs(fronts - backs) < 0.1 * (fronts + backs)


@pytest.fixture(scope="module")
def masked() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Two thousand maskings of the same 100 tokens: ids, hidden ids, chosen positions."""
    ids = np.arange(1000, 1100, dtype=np.int32)
    made = []
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        hidden, chosen = data.choose_masks(ids, (0, 50, 99), 15, 2000, 4, rng)
        made.append((ids, hidden, chosen))
    return made


def test_exactly_the_chosen_positions_change_and_no_special_one(
    masked: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
) -> None:
    counts = np.zeros(100)
    for ids, hidden, chosen in masked:
        assert len(set(chosen.tolist())) == 15
        assert not {0, 50, 99} & set(chosen.tolist())
        assert set(np.flatnonzero(ids != hidden)) <= set(chosen.tolist())
        counts[chosen] += 1
    expected = 2000 * 15 / 97
    assert np.abs(counts[np.setdiff1d(np.arange(100), [0, 50, 99])] - expected).max() < 100


def test_eighty_ten_ten(masked: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> None:
    before = np.concatenate([ids[chosen] for ids, _, chosen in masked])
    after = np.concatenate([hidden[chosen] for _, hidden, chosen in masked])
    random_ones = after[(after != 4) & (after != before)]
    assert abs((after == 4).mean() - 0.8) < 0.01
    assert abs((after == before).mean() - 0.1) < 0.01
    assert abs(len(random_ones) / len(after) - 0.1) < 0.01
    assert random_ones.min() < 5  # the whole vocabulary, special tokens included
    assert abs(random_ones.mean() - 1000) < 50
    assert random_ones.max() > 1990


def test_fewer_candidates_than_predictions() -> None:
    hidden, chosen = data.choose_masks(
        np.array([2, 7, 3], np.int32), (0, 2), 5, 10, 4, np.random.default_rng(0)
    )
    assert chosen.tolist() == [1]
    assert hidden[[0, 2]].tolist() == [2, 3]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece(["a few words for a small vocabulary of pieces"] * 3, 60, True)


@pytest.fixture(scope="module")
def feed(tokenizer: Tokenizer) -> data.Feed:
    rng = random.Random(1)
    corpus = [
        [[rng.randint(5, 59) for _ in range(rng.randint(3, 12))] for _ in range(30)]
        for _ in range(20)
    ]
    return data.Feed(corpus, tokenizer, Recipe(batch_size=8, lengths=(32,)))


def test_a_batch_has_the_published_layout(feed: data.Feed, tokenizer: Tokenizer) -> None:
    batch = feed.batch(data.Position(), 32)
    assert batch.input_ids.shape == (8, 32)
    assert batch.masked_positions.shape == (8, 5)
    for row in range(8):
        size = int(batch.attention_mask[row].sum())
        count = int(batch.masked_weights[row].sum())
        assert count == min(5, max(1, round(0.15 * size)))
        ids = batch.input_ids[row].copy()
        ids[batch.masked_positions[row, :count]] = batch.masked_ids[row, :count]
        stops = np.flatnonzero(ids == tokenizer.sep_id)
        assert ids[0] == tokenizer.cls_id
        assert stops[-1] == size - 1
        assert batch.token_type_ids[row].tolist() == [
            int(stops[0] < place < size) for place in range(32)
        ]
        assert (ids[size:] == tokenizer.pad_id).all()
        assert batch.masked_positions[row, count:].tolist() == [0] * (5 - count)


def test_batches_depend_on_seed_epoch_and_place_only(feed: data.Feed) -> None:
    def ids(feed: data.Feed, *position: int) -> list[list[int]]:
        return feed.batch(data.Position(*position), 32).input_ids.tolist()

    again = data.Feed(feed.documents, feed.tokenizer, feed.recipe)
    other_seed = data.Feed(
        feed.documents, feed.tokenizer, Recipe(batch_size=8, lengths=(32,), seed=1)
    )
    first = ids(feed, 0, 8)
    ids(feed, 1, 0)
    assert ids(feed, 0, 8) == ids(again, 0, 8) == first
    assert first != ids(again, 1, 8)
    assert first != ids(other_seed, 0, 8)


def test_masks_differ_from_epoch_to_epoch_for_the_same_tokens(feed: data.Feed) -> None:
    instance = feed.epoch(0, 32)[0]
    rows = [feed._row(instance, (epoch, 0), 32).input_ids.tolist() for epoch in range(5)]
    assert len({tuple(row) for row in rows}) > 1


def test_a_pass_ends_with_its_last_full_batch(feed: data.Feed) -> None:
    position, count = data.Position(), 0
    while position.epoch == 0:
        position, count = feed.advance(position, 32), count + 1
    assert position == data.Position(1, 0)
    assert count == len(feed.epoch(0, 32)) // 8


def test_too_few_instances_for_a_batch(feed: data.Feed) -> None:
    small = data.Feed(feed.documents[:2], feed.tokenizer, Recipe(batch_size=999))
    with pytest.raises(InputError) as error:
        small.batch(data.Position(), 32)
    assert "it takes 3996 pairs, an epoch has" in str(error.value)


def test_heldout_documents_are_chosen_by_content() -> None:
    texts = [[f"document {number}"] for number in range(2000)]
    training, heldout = data.split_heldout(texts, 0.1)
    assert len(training) + len(heldout) == 2000
    assert 150 < len(heldout) < 250
    backwards = data.split_heldout(texts[::-1], 0.1)[1]
    assert sorted(backwards) == sorted(heldout)
    assert len(data.split_heldout(texts[:20], 0.0)[1]) == 2


def test_documents_are_groups_of_paragraphs_within_a_file(tmp_path: Path) -> None:
    for name in "ab":
        text = "\n\n".join(f"{name} one.\nTwo {i}." for i in range(5))
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    documents = data.read_documents(files, Recipe(paragraphs_per_document=2))
    assert [len(document) for document in documents] == [4, 4, 2, 4, 4, 2]
    assert documents[0][:2] == ["a one.", "Two 0."]


def test_sentences_end_where_they_should() -> None:
    text = (
        'Mr. Pip met Dr. J. T. Smith. "Who are you?" he asked. I am he. (So it was.) It cost 3.5 '
        "pounds! And then? no. Yes, he said no. Then it was I. He left."
    )
    assert split_sentences(text) == [
        "Mr. Pip met Dr. J. T. Smith.",
        '"Who are you?" he asked.',
        "I am he.",
        "(So it was.)",
        "It cost 3.5 pounds!",
        "And then? no.",
        "Yes, he said no.",
        "Then it was I.",
        "He left.",
    ]
    assert " ".join(split_sentences(text)) == text
    assert paragraphs("\ufeffa\nb\r\n\r\n \n\nc  d\n") == ["a b", "c d"]


def test_unigram_loss_is_the_entropy_of_even_frequencies() -> None:
    even = [[[token for token in range(50)] * 200]]
    assert data.unigram_loss(even, even, 50) == pytest.approx(np.log(50), abs=1e-6)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"one paragraph only.", "too little text: 1 documents in 1 files"),
        (b"fine\nStra\xdfe\n", "byte 0xdf in line 2"),
        (None, "cannot read"),
    ],
)
def test_unusable_files(tmp_path: Path, content: bytes | None, part: str) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as error:
        data.read_documents([path], Recipe())
    assert part in str(error.value)
    assert len(str(error.value).splitlines()) <= 3
