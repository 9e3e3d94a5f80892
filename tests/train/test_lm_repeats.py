# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rows to copy from: every span stands twice, and what cannot be known does not count."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from flaxattn.errors import InputError
from flaxattn.train.corpus import TokenCorpus
from flaxattn.train.lm import RepeatedRows, TextFeed
from flaxattn.train.lm_model import TokenRows, cut_chunks
from flaxattn.train.recipe import LanguageModelRecipe
from flaxattn.train.settings import build

BLOCK, END_ID, VOCABULARY = 64, 0, 500
UNIFORM, FREQUENT, PASSAGE = np.eye(3).tolist()
Store = Callable[[Sequence], TokenCorpus]


def recipe(**settings: Any) -> LanguageModelRecipe:
    values = {"block": BLOCK, "repeat_share": 0.5, "repeat_spans": [3, 20], "steps": 9, **settings}
    return build(LanguageModelRecipe, values)


@pytest.fixture(scope="module")
def corpus(store: Store) -> TokenCorpus:
    """Documents that count up, so that a passage is known by its steps; two ids in three occur."""
    documents = [[list(range(first, first + 40))] for first in range(1, 300, 60)]
    return store([*documents, [[301, 302]]])


def rows_of(corpus: TokenCorpus, **settings: Any) -> RepeatedRows:
    return RepeatedRows(corpus, recipe(**settings), VOCABULARY, END_ID)


def texts(rows: RepeatedRows, count: int) -> list[tuple[list[int], list[int], list[float]]]:
    """Ids, labels and counted predictions of every text in the first rows."""
    found = []
    for number in range(count):
        row = rows[number]
        for text in range(1, int(np.max(row.segment_ids)) + 1):
            here = np.asarray(row.segment_ids) == text
            places = np.asarray(row.position_ids)[here]
            assert places.tolist() == list(range(len(places)))
            parts = (row.input_ids, row.labels, row.label_mask)
            found.append(tuple(np.asarray(part)[here].tolist() for part in parts))
    return found


@pytest.mark.parametrize("mix", [UNIFORM, FREQUENT, PASSAGE])
def test_a_span_stands_twice_and_only_what_can_be_copied_counts(
    corpus: TokenCorpus, mix: list[float]
) -> None:
    """Against brute force: the second copy but its first token, and a passage's own tokens."""
    begun, lengths = [], set()
    for ids, labels, counted in texts(rows_of(corpus, repeat_mix=mix), 60):
        begins = ids[0] == END_ID
        begun.append(begins)
        span = len(ids) // 2
        assert len(ids) == 2 * span + begins
        once = ids[begins : begins + span]
        assert once == ids[begins + span :] and END_ID not in once
        assert labels[:-1] == ids[1:]
        expected = [0.0] * begins + [float(mix == PASSAGE)] * (span - 1) + [0.0]
        assert counted == expected + [1.0] * (span - 1) + [0.0]
        lengths.add(span)
    assert 0.3 < np.mean(begun) < 0.7
    assert max(lengths) == 20
    assert min(lengths) == (2 if mix == PASSAGE else 3)  # one document has two tokens


@pytest.mark.slow
def test_random_spans_have_all_ids_alike_or_those_of_the_text(corpus: TokenCorpus) -> None:
    uniform = [i for ids, *_ in texts(rows_of(corpus, repeat_mix=UNIFORM), 400) for i in ids]
    counts = np.bincount(uniform, minlength=VOCABULARY)[1:]
    assert counts.min() > 0 and len(counts) == VOCABULARY - 1
    assert abs(counts[:200].mean() / counts[200:].mean() - 1) < 0.05
    frequent = [i for ids, *_ in texts(rows_of(corpus, repeat_mix=FREQUENT), 400) for i in ids]
    of_text = set(np.concatenate([np.asarray(document) for document in corpus]).tolist())
    assert set(frequent) - {END_ID} == of_text


def test_a_passage_stays_in_its_document_and_on_the_training_side(corpus: TokenCorpus) -> None:
    training, heldout = corpus.split(0.3)
    known = set(np.concatenate(list(training)).tolist())
    assert not known & set(np.concatenate(list(heldout)).tolist())
    for ids, *_ in texts(rows_of(training, repeat_mix=PASSAGE), 60):
        once = ids[ids[0] == END_ID :][: len(ids) // 2]
        assert once == list(range(once[0], once[0] + len(once)))
        assert set(once) <= known


def test_a_row_depends_on_its_number_and_the_seed_alone(corpus: TokenCorpus) -> None:
    rows, again = rows_of(corpus), rows_of(corpus)
    later = rows[7]
    assert all(np.array_equal(a, b) for a, b in zip(later, again[7], strict=True))
    assert not np.array_equal(later.input_ids, rows[8].input_ids)
    assert not np.array_equal(later.input_ids, rows_of(corpus, seed=1)[7].input_ids)


def feed(corpus: TokenCorpus, part: int = 0, parts: int = 1) -> TextFeed:
    chosen = recipe(batch_size=8, repeat_share=0.25)
    rows = TokenRows(corpus, cut_chunks(corpus, BLOCK, BLOCK), BLOCK, 8, END_ID)
    repeats = RepeatedRows(corpus, chosen, VOCABULARY, END_ID)
    return TextFeed(rows, chosen, part, parts, repeats=repeats)


def test_a_batch_ends_with_its_share_of_repeats(corpus: TokenCorpus) -> None:
    plain = TextFeed(
        TokenRows(corpus, cut_chunks(corpus, BLOCK, BLOCK), BLOCK, 8, END_ID),
        dataclasses.replace(recipe(batch_size=6), repeat_share=0.0),
    )
    repeats = rows_of(corpus)
    for step in (0, 3):
        batch = feed(corpus)[step]
        for column, text in zip(batch, plain[step], strict=True):
            np.testing.assert_array_equal(np.asarray(column)[:6], text)
        for place in (6, 7):
            for column, row in zip(batch, repeats[2 * step + place - 6], strict=True):
                np.testing.assert_array_equal(np.asarray(column)[place], row)
    assert feed(corpus).names(3)[-2:] == ["repeated row 6", "repeated row 7"]


def test_hosts_share_a_batch_with_repeats(corpus: TokenCorpus) -> None:
    """The last of four hosts has nothing but repeats."""
    whole = feed(corpus)[2]
    parts = [feed(corpus, part, 4)[2] for part in range(4)]
    for column, *some in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(column, np.concatenate(some))


def test_an_epoch_counts_text_alone() -> None:
    plain, mixed = (
        LanguageModelRecipe(epochs=3, batch_size=16, repeat_share=share) for share in (0.0, 0.25)
    )
    assert (plain.for_rows(160, 192).steps, mixed.for_rows(160, 192).steps) == (30, 40)
    assert (mixed.text_rows, mixed.repeated_rows) == (12, 4)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"repeat_share": 1.0}, ["repeat_share must be in [0, 1), got 1.0"]),
        (
            {"repeat_share": 0.01},
            ["repeat_share 0.01 is 0 of the 16 rows of a batch", "rows of both kinds"],
        ),
        (
            {"repeat_share": 0.3, "repeat_spans": [130, 140]},
            ["repeat_spans [130, 140] do not fit block 256", "repeat_spans=[2,128]"],
        ),
        ({"repeat_share": 0.3, "repeat_spans": [9, 8]}, ["repeat_spans [9, 8] do not fit"]),
        ({"repeat_share": 0.3, "repeat_spans": [1, 8]}, ["repeat_spans [1, 8] do not fit"]),
        ({"repeat_share": 0.3, "repeat_spans": [8]}, ["repeat_spans [8] do not fit"]),
        (
            {"repeat_mix": [0.5, 0.6, 0.1]},
            ["repeat_mix needs three shares that add up to 1", "received [0.5, 0.6, 0.1]"],
        ),
        ({"repeat_mix": [1.5, -0.5, 0]}, ["received [1.5, -0.5, 0.0]"]),
        ({"repeat_mix": [0.5, 0.5]}, ["received [0.5, 0.5]"]),
        ({"model_dropout": 1.0}, ["model_dropout must be in [0, 1), got 1.0"]),
        ({"model_dropout": -0.1}, ["model_dropout must be in [0, 1), got -0.1"]),
    ],
)
def test_settings_refused(changes: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(InputError) as error:
        build(LanguageModelRecipe, changes)
    assert len(str(error.value).splitlines()) <= 3
    assert all(part in str(error.value) for part in parts)
