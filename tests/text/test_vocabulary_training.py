# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""BPE vocabularies: text comes back as it went in, in the same pieces every time."""

import random
import unicodedata
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import transformers
from hypothesis import given, settings

from flaxattn.errors import InputError
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import EOS, PAD, UNK, train_bpe

SENTENCES = [
    "Zwei junge weiße Männer sind im Freien, in der Nähe vieler Büsche.",
    "Two young, White males are outside near many bushes.",
    'Ein kleines Mädchen (3) klettert in ein "Spielhaus" aus Holz!',
    "A little girl climbing into a wooden playhouse...",
    "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster.",
    "Two men are at the stove preparing food, 50% of it.",
]


@pytest.fixture(scope="module")
def learnt() -> Tokenizer:
    return train_bpe(SENTENCES, 200, 64)


def test_special_tokens_have_their_ids(learnt: Tokenizer) -> None:
    assert [learnt.backend.token_to_id(t) for t in ("<pad>", "</s>", "<unk>")] == [PAD, EOS, UNK]
    assert (PAD, EOS, UNK) == (0, 1, 2)
    assert (learnt.pad_id, learnt.unk_id, learnt.max_length) == (0, 2, 64)
    assert learnt.vocab_size == 200


def test_only_the_end_is_added(learnt: Tokenizer) -> None:
    encoded = learnt.encode(["Two men", "A little girl"])
    ends = encoded.attention_mask.sum(1) - 1
    assert encoded.input_ids[np.arange(2), ends].tolist() == [EOS, EOS]
    assert encoded.special.sum(1).tolist() == [
        1 + pad for pad in (encoded.attention_mask == 0).sum(1)
    ]
    assert [learnt.ids(["Two men"])[0], [EOS]] == [
        encoded.input_ids[0, : ends[0]].tolist(),
        [EOS],
    ]


@pytest.mark.parametrize("text", SENTENCES)
def test_text_comes_back(learnt: Tokenizer, text: str) -> None:
    assert learnt.decode(learnt.encode(text).input_ids[0]) == text
    spaced = "  " + text.replace(" ", " \t ") + " "
    assert learnt.ids([spaced]) == learnt.ids([text])
    assert learnt.ids([unicodedata.normalize("NFD", text)]) == learnt.ids([text])


@settings(max_examples=60)
@given(st.text(alphabet='abnde (),."!üößZT3\u00a0\n\t', max_size=40))
def test_any_text_of_known_characters_comes_back_but_for_white_space(text: str) -> None:
    learnt = train_bpe(SENTENCES, 120)
    known = "".join(c for c in text if c.isspace() or learnt.ids([c])[0][-1] != UNK)
    assert learnt.decode(learnt.ids([known])[0]) == " ".join(known.split())


def test_digits_can_be_tokens_of_their_own() -> None:
    dates = ["12 May 1999", "3.12.2004", "(20100712)"] * 5
    learnt = train_bpe(dates, 60, split_digits=True)
    tokens = learnt.readable_tokens(learnt.ids(["12 May 1999"])[0])
    assert [p for p in tokens if any(map(str.isdigit, p))] == [
        *(" 1", "2"),
        *(" 1", "9", "9", "9"),
    ]
    for text in dates[:3]:
        assert learnt.decode(learnt.ids([text])[0]) == text


def test_words_are_those_between_spaces(learnt: Tokenizer) -> None:
    for text in SENTENCES:
        encoded = learnt.encode(text)
        words = [word for word in encoded.word_ids[0] if word is not None]
        assert sorted(set(words)) == list(range(len(text.split())))
        assert words == sorted(words)


def test_no_token_joins_punctuation_with_something_else(learnt: Tokenizer) -> None:
    for piece in set(learnt.backend.get_vocab()) - {"<pad>", "</s>", "<unk>"}:
        inner = piece.removeprefix("▁")
        if len(inner) > 1:
            assert not any(unicodedata.category(c).startswith("P") for c in inner), piece


def test_the_same_text_gives_the_same_tokens_among_many_ties() -> None:
    pick = random.Random(0)
    words = ["".join(pick.choices("abcdefgh", k=4)) for _ in range(300)]  # every pair ties
    first = train_bpe(words, 150).backend.to_str()
    assert all(train_bpe(words, 150).backend.to_str() == first for _ in range(4))
    assert train_bpe(iter(words), 150).backend.to_str() == first


def test_unknown_characters_are_one_unknown_token(learnt: Tokenizer) -> None:
    assert learnt.ids(["日本"])[0].count(UNK) == 1


def test_what_cannot_be_learnt_from() -> None:
    with pytest.raises(InputError) as error:
        train_bpe([" ", ""], 100)
    assert str(error.value).splitlines() == [
        "no text to learn a vocabulary from",
        "received 2 files or texts, all empty",
        "give texts, or name files, that hold some",
    ]
    with pytest.raises(InputError) as error:
        train_bpe(["abcdefgh"], 8)
    assert str(error.value).splitlines() == [
        "a vocabulary of 8 tokens is too small",
        "the texts have 9 characters, and 3 tokens are special",
        "raise vocab_size",
    ]


def test_it_is_saved_and_opened(learnt: Tokenizer, tmp_path: Path) -> None:
    learnt.save(tmp_path)
    again = Tokenizer.from_dir(tmp_path)
    assert again.ids(SENTENCES) == learnt.ids(SENTENCES)
    assert again.settings == learnt.settings


def test_transformers_opens_it_with_the_same_ids(learnt: Tokenizer, tmp_path: Path) -> None:
    learnt.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in SENTENCES:
        ids = learnt.encode(text).input_ids[0].tolist()
        assert theirs(text)["input_ids"] == ids
        assert theirs.decode(ids, skip_special_tokens=True) == text
    assert (theirs.pad_token_id, theirs.eos_token_id, theirs.unk_token_id) == (PAD, EOS, UNK)
