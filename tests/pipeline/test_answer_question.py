# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`fa.answer_question` beside a search over every span of every window, written out in loops."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tokenizers
from small_decoders import write_decoder
from small_encoders import byte_level, unigram, write_encoder
from tokenizers import models, pre_tokenizers, processors

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.text.tokenizer import Tokenizer

QUESTION = "Who said that the river is slow?"
CONTEXT = (
    "She said that he was not there.  Berlin lies on the Spree; the river is slow, because it "
    "could not find food to eat. 12.07.2003 is a date, and so is 2003-07-12; the cat is very sad."
)


def word_pieces() -> Tokenizer:
    """BERT's kind, of single letters and their continuations."""
    letters = [chr(n) for n in range(33, 127)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "is", *letters]
    tokens += [f"##{letter}" for letter in letters]
    backend = tokenizers.Tokenizer(
        models.WordPiece({piece: n for n, piece in enumerate(tokens)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return Tokenizer(backend, {})


KINDS = {
    "bert": (word_pieces, {}),
    "roberta": (byte_level, {"model_type": "roberta", "pad_token_id": 1}),
    "albert": (unigram, {"model_type": "albert", "pad_token_id": 0}),
}


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("readers")
    found = {}
    for name, (tokenizer, settings) in KINDS.items():
        write_encoder(folder / name, "ForQuestionAnswering", tokenizer(), **settings)
        found[name] = fa.from_pretrained(folder / name)
    return found


def windows_by_hand(model: Any, question: str, context: str, room: int, stride: int) -> list[Any]:
    """Ids of each window, the place of its first token of the context, and where that begins."""
    backend = model.tokenizer.backend
    requested = backend.encode(question, add_special_tokens=False).ids
    ids = backend.encode(context, add_special_tokens=False).ids
    pair = backend.encode("a", "a")
    special = [n for n, mark in zip(pair.ids, pair.special_tokens_mask, strict=True) if mark]
    between = special[1:-1]
    size = room - len(requested) - len(special)
    found, start = [], 0
    while True:
        part = ids[start : start + size]
        head = [special[0], *requested, *between]
        found.append(([*head, *part, special[-1]], len(head), len(part), start))
        if start + size >= len(ids):
            return found
        start += size - stride


def by_hand(
    model: Any, context: str, windows: list[Any], most: int
) -> tuple[dict[tuple[int, int], float], float]:
    """Scores of spans of characters, and of no answer."""
    whole = model.tokenizer.backend.encode(context, add_special_tokens=False)
    best: dict[tuple[int, int], float] = {}
    nulls = []
    for ids, head, size, start in windows:
        types = np.zeros((1, len(ids)), np.int64)
        if model.tokenizer.token_types() or model.config.model_type == "albert":
            types[0, head:] = 1
        out = model(np.array([ids]), token_type_ids=types)
        places = [0, *range(head, head + size)]
        shares = []
        for scores in (out.start_logits, out.end_logits):
            chosen = np.exp(np.asarray(scores, np.float64)[0, places])
            shares.append(chosen / chosen.sum())
        nulls.append(shares[0][0] * shares[1][0])
        scores = {}
        for i, j in itertools.product(range(size), range(size)):
            if not i <= j < i + most:
                continue
            first, last = whole.word_ids[start + i], whole.word_ids[start + j]
            low = min(
                o[0] for o, w in zip(whole.offsets, whole.word_ids, strict=True) if w == first
            )
            high = max(
                o[1] for o, w in zip(whole.offsets, whole.word_ids, strict=True) if w == last
            )
            product = shares[0][1 + i] * shares[1][1 + j]
            if context[low:high].strip():
                span = trimmed(context, (low, high))
                scores[span] = scores.get(span, 0) + product
        for span, score in scores.items():
            best[span] = max(score, best.get(span, 0))
    return best, min(nulls)


def trimmed(context: str, span: tuple[int, int]) -> tuple[int, int]:
    low, high = span
    while context[low].isspace():
        low += 1
    while context[high - 1].isspace():
        high -= 1
    return low, high


@pytest.mark.slow
@pytest.mark.few("80-20-15-roberta")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("room", "stride", "most"), [(80, 20, 15), (70, 9, 4), (60, 0, 1)])
def test_answers_are_the_best_of_all_spans(
    readers: dict[str, Any], name: str, room: int, stride: int, most: int
) -> None:
    model = readers[name]
    options = {"max_length": room, "stride": stride, "max_answer_tokens": most}
    found = fa.answer_question(model, QUESTION, CONTEXT, 40, null_answer=True, **options)
    windows = windows_by_hand(model, QUESTION, CONTEXT, room, stride)
    assert len(windows) > 1
    expected, null = by_hand(model, CONTEXT, windows, most)
    every = [(score, *span) for span, score in expected.items()]
    every = sorted([*every, (null, 0, 0)], key=lambda one: (-one[0], *one[1:]))[:40]
    np.testing.assert_allclose([one.score for one in found], [one[0] for one in every], 1e-4)
    known = {(low, high): score for score, low, high in every}
    for one in found:
        if (one.start, one.end) in known:  # others tie with the last one
            np.testing.assert_allclose(one.score, known[one.start, one.end], 1e-4)
        assert one.answer == CONTEXT[one.start : one.end] == one.answer.strip()
        assert one.end == 0 or one.window[0] <= one.start <= one.end <= one.window[1]
    shorter = fa.answer_question(model, QUESTION, CONTEXT, 3, **options)
    assert shorter == [one for one in found if one.answer][:3]


@pytest.mark.slow
def test_several_questions_are_answered_in_order(readers: dict[str, Any]) -> None:
    model = readers["bert"]
    questions, contexts = [QUESTION, "Where?", "What?"], [CONTEXT, "the cat is sad", CONTEXT[20:]]
    together = fa.answer_question(model, questions, contexts, 2)
    for question, context, answers in zip(questions, contexts, together, strict=True):
        alone = fa.answer_question(model, question, context, 2)
        assert [one.answer for one in alone] == [one.answer for one in answers]
        np.testing.assert_allclose([a.score for a in alone], [a.score for a in answers], 1e-4)
    assert fa.answer_question(model, [], []) == []


def test_no_answer_is_the_first_token(readers: dict[str, Any]) -> None:
    """A head that scores the first token of its input highest answers that there is none."""
    model = readers["bert"]
    context = "the cat is sad"
    best = fa.answer_question(model, "Who?", context, 1, null_answer=True)
    plain = fa.answer_question(model, "Who?", context, 10**6)
    assert all(one.answer for one in plain)
    assert sum(one.score for one in plain) < 1
    words = {(one.start, one.end) for one in plain}
    starts, ends = [0, 4, 8, 11], [3, 7, 10, 14]
    assert words == {(a, b) for a in starts for b in ends if a < b}
    null = next(
        one
        for one in fa.answer_question(model, "Who?", context, 99, null_answer=True)
        if not one.answer
    )
    assert (null.start, null.end) == (0, 0)
    assert best[0] == max([*plain, null], key=lambda one: one.score)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": 0}, "top is 0\nexpected at least 1"),
        ({"stride": -1}, "stride is -1\nexpected at least 0"),
        ({"max_answer_tokens": 0}, "max_answer_tokens is 0\nexpected at least 1"),
        ({"question": ["a"]}, "received 1 questions and 1 contexts\nexpected a context for each"),
        ({"question": " "}, "text 0 is empty"),
        ({"context": ""}, "second text 0 is empty"),
        ({"question": "w " * 200}, "the first text has 200 tokens, which leave room for 0 of the"),
        ({"question": ["a", "w " * 200], "context": ["a", "b"]}, "question 1: the first text has"),
    ],
)
def test_requests_that_are_refused(
    readers: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        fa.answer_question(readers["bert"], **{"question": "a", "context": "b", **options})
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 3


def test_models_without_the_head_are_refused(readers: dict[str, Any], tmp_path: Path) -> None:
    decoder = fa.from_pretrained(write_decoder(tmp_path / "decoder"))
    for model in (decoder, fa.from_pretrained("tiny-bert")):
        with pytest.raises(InputError, match="which finds no answers in a text\nname an encoder"):
            fa.answer_question(model, "a", "b")
    with pytest.raises(InputError, match="came without a tokenizer"):
        fa.answer_question(dataclasses.replace(readers["bert"], tokenizer=None), "a", "b")


def test_scores_that_are_nan_are_refused(readers: dict[str, Any]) -> None:
    model = readers["bert"]
    params = jax.tree.map(lambda array: array * np.float32("nan"), model.params)
    broken = dataclasses.replace(model, params=params)
    with pytest.raises(InputError, match="start_logits are NaN or infinite for question 0"):
        fa.answer_question(broken, "a", "b")
