# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pieces are found in their text without a tokenizer: as the tokenizer says, or an error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import flaxattn as fa
from flaxattn.text.tokens import PlaceError, positions_of_words, token_spans


@pytest.fixture(scope="module")
def reader():
    return fa.from_pretrained("tiny-bert").tokenizer


@pytest.mark.parametrize(
    ("text", "tokens", "spans"),
    [
        ("Öl, naïve!", ["ol", ",", "nai", "##ve", "!"], [(0, 2), (2, 3), (4, 7), (7, 9), (9, 10)]),
        ("a  \u00ad b", ["a", "b"], [(0, 1), (5, 6)]),
        ("x\U0001f600y z", ["[UNK]", "z"], [(0, 3), (4, 5)]),
        ("… no", ["[UNK]", "no"], [(0, 1), (2, 4)]),
        ("漢字 a", ["[UNK]", "字", "a"], [(0, 1), (1, 2), (3, 4)]),
        ("##x", ["#", "#", "x"], [(0, 1), (1, 2), (2, 3)]),
        ("Ein Haus", ["▁Ein", "▁Ha", "us"], [(0, 3), (4, 6), (6, 8)]),
    ],
)
def test_spans(text, tokens, spans):
    assert token_spans(text, tokens, [False] * len(tokens)) == spans


def test_special_tokens_have_no_span():
    assert token_spans("a b", ["[CLS]", "a", "[SEP]"], [1, 0, 1]) == [(0, 0), (0, 1), (0, 0)]


@pytest.mark.parametrize(
    ("text", "tokens", "at"), [("a cat", ["a", "dog"], 2), ("a", ["a", "b"], 1), ("", ["[UNK]"], 0)]
)
def test_another_text_is_reported_by_its_first_difference(text, tokens, at):
    with pytest.raises(PlaceError) as error:
        token_spans(text, tokens, [False] * len(tokens))
    assert error.value.start == at and error.value.token == len(tokens) - 1


@given(st.lists(st.text("abcé ,.!'#-Ü漢€\U0001f600\u00ad…", min_size=1, max_size=8), max_size=6))
def test_words_have_the_tokens_that_the_tokenizer_says(reader, parts):
    text = " ".join(["a", *parts])
    encoded = reader.encode(text, max_length=1 << 20)
    special = encoded.special[0].tolist()
    starts = [at for at in range(len(text)) if not text[at].isspace()]
    words = [(at, at + 1) for at in starts if text[at].isalnum()]
    ours = positions_of_words(words, token_spans(text, encoded.tokens[0], special), special)
    assert ours == positions_of_words(words, encoded.offsets[0], special)
