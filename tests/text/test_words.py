# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Words of tokens are the words between spaces, read or written, whatever the tokenizer."""

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from flaxattn.text.tokens import words_read, words_written

TEXTS = ("The house's roof, 3.5 m high -- isn't blue.", "Über  den 日本 Wolken", "a", " x ")


def tokenizer(kind: str) -> Tokenizer:
    """A tokenizer of a kind, small enough that words are cut up."""
    if kind == "unigram":
        letters = [(letter, -3.0) for letter in sorted({*"".join(TEXTS), "▁"} - {" "})]
        vocabulary = [("<unk>", 0.0), *letters, ("▁h", -2.0), ("ou", -2.0)]
        made = Tokenizer(models.Unigram(vocabulary, unk_id=0))
    else:
        made = Tokenizer(models.BPE())
    if kind == "bytes":
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
    else:
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        made.decoder = decoders.Metaspace()
    if kind != "unigram":
        alphabet = pre_tokenizers.ByteLevel.alphabet() if kind == "bytes" else []
        trainer = trainers.BpeTrainer(
            vocab_size=300, initial_alphabet=alphabet, show_progress=False
        )
        made.train_from_iterator(TEXTS[:1], trainer)
        if kind == "pieces":
            made.train_from_iterator(TEXTS, trainer)
    return made


@pytest.mark.parametrize("kind", ["pieces", "bytes", "unigram"])
@pytest.mark.parametrize("text", TEXTS)
def test_they_are_the_words_between_spaces(kind: str, text: str) -> None:
    made = tokenizer(kind)
    encoding = made.encode(text)
    plain = [False] * len(encoding)
    read = words_read(text, encoding.offsets, plain)
    for (start, end), number in zip(encoding.offsets, read, strict=True):
        for place in range(start, end):
            if not text[place].isspace():
                # What ends before the next space holds all words so far, and this one as the last.
                assert number == len(text[: place + 1].split()) - 1
    assert set(read) - {None} == set(range(len(text.split())))
    written = words_written(encoding.ids, plain, made.decode)
    assert made.decode(encoding.ids).split() == text.split()
    pairs = {(a, b) for a, b in zip(read, written, strict=True) if b is not None}
    assert all(a == b for a, b in pairs)
    assert {b for _, b in pairs} == set(range(len(text.split())))


def test_special_tokens_are_part_of_none() -> None:
    places = [(0, 0), (0, 3), (3, 4), (4, 8), (0, 0), (0, 0)]
    special = [True, False, False, False, True, True]
    assert words_read("ein Haus", places, special) == [None, 0, 1, 1, None, None]
    texts: dict[int, str] = {5: "a", 6: "b", 7: " c", 8: ""}

    def decode(ids: Any) -> str:
        return "".join(texts[i] for i in ids)

    special = [False, False, False, False, True]
    assert words_written([5, 6, 8, 7, 1], special, decode) == [0, 0, None, 1, None]


def test_a_language_tag_is_not_counted() -> None:
    assert words_read(">>deu<< a b", [(0, 0), (7, 9), (9, 11)], [True, False, False]) == [
        None,
        0,
        1,
    ]
