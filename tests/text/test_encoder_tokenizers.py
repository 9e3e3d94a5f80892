# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of the encoders beside BERT: pairs, special tokens and words as in transformers."""

from pathlib import Path

import numpy as np
import pytest
import transformers
from small_encoders import byte_level, unigram, write_encoder, write_residues

import flaxattn as fa
from flaxattn.pretrained.pretrained_encoders import FIRST, PUNCTUATION, SEPARATOR, SPECIAL
from flaxattn.text.tokenizer import Tokenizer

FIRST_TEXT, SECOND_TEXT = "The cat is sad, very sad.", "She was there"


@pytest.mark.parametrize("kind", ["byte-level", "unigram", "unigram-roberta"])
def test_pairs_have_their_special_tokens_and_segments(kind: str) -> None:
    made = {"byte-level": byte_level, "unigram": unigram}
    tokenizer = made[kind]() if kind in made else unigram("<s>", "</s>")
    batch = tokenizer.encode([FIRST_TEXT, "cat"], [SECOND_TEXT, "sad"])
    tokens = tokenizer.convert_ids_to_tokens(batch.input_ids[0])
    start, stop = ("[CLS]", "[SEP]") if kind == "unigram" else ("<s>", "</s>")
    assert tokens[0] == start and tokens[-1] == stop
    assert tokens.count(stop) == (2 if kind == "unigram" else 3)
    assert (tokenizer.cls_id, tokenizer.sep_id) == (batch.input_ids[0, 0], batch.input_ids[0, -1])
    kinds = batch.token_type_ids[0].tolist()
    boundary = kinds.index(1)
    assert kinds == [0] * boundary + [1] * (len(kinds) - boundary)
    assert tokens[boundary - 1] == stop and tokens[boundary] != stop
    words = [word for word in batch.word_ids[0] if word is not None]
    assert len(words) == len(tokens) - batch.special[0].sum()
    real = int(batch.attention_mask[1].sum())
    assert not batch.token_type_ids[1, real:].any()
    assert (batch.input_ids[1, real:] == tokenizer.pad_id).all()


def test_byte_level_ids_are_those_of_transformers(tmp_path: Path) -> None:
    tokenizer = byte_level()
    tokenizer.save(tmp_path)
    theirs = transformers.RobertaTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    ours = tokenizer.encode(FIRST_TEXT, SECOND_TEXT)
    assert ours.input_ids[0].tolist() == theirs(FIRST_TEXT, SECOND_TEXT)["input_ids"]
    assert tokenizer.mask_id == theirs.mask_token_id and tokenizer.pad_id == theirs.pad_token_id


def test_residues_without_tokenizer_json(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_dir(write_residues(tmp_path))
    theirs = transformers.EsmTokenizer(str(tmp_path / "vocab.txt"))
    for text in ("MKTAY", "M K<mask>TA", "AB jo Z", "MKT.A-"):
        assert tokenizer.encode(text).input_ids[0].tolist() == theirs(text)["input_ids"], text
    assert tokenizer.encode("MK", "TA").input_ids[0].tolist() == theirs("MK", "TA")["input_ids"]
    assert tokenizer.mask_id == theirs.mask_token_id
    assert tokenizer.encode("MKT").tokens[0] == ["<cls>", "M", "K", "T", "<eos>"]
    tokenizer.save(tmp_path / "again")
    again = Tokenizer.from_dir(tmp_path / "again")
    assert again.encode("M K<mask>TA").input_ids.tolist() == [theirs("M K<mask>TA")["input_ids"]]


def test_characters_of_byte_level_tokens(tmp_path: Path) -> None:
    """A token that begins with a blank stands for what follows the blank, as in transformers."""
    tokenizer = byte_level()
    tokenizer.save(tmp_path)
    theirs = transformers.RobertaTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for limit in (64, 12):
        ours = tokenizer.encode(FIRST_TEXT, SECOND_TEXT, max_length=limit, truncate=True)
        expected = theirs(FIRST_TEXT, SECOND_TEXT, return_offsets_mapping=True)["offset_mapping"]
        spans = [tuple(span) for span in expected]
        assert ours.offsets[0] == spans if limit == 64 else set(ours.offsets[0]) < set(spans)
    plain = tokenizer.encode("a cat is a cat")
    for (start, stop), token in zip(plain.offsets[0], plain.tokens[0], strict=True):
        assert "a cat is a cat"[start:stop] == token.strip() or token.startswith("<")


@pytest.mark.parametrize("kind", ["roberta", "albert"])
def test_key_classes(kind: str, tmp_path: Path) -> None:
    tokenizer = byte_level() if kind == "roberta" else unigram()
    pad = tokenizer.pad_id
    folder = write_encoder(tmp_path, "Model", tokenizer, model_type=kind, pad_token_id=pad)
    model = fa.from_pretrained(folder)
    reading = model.read("cat , sad .", "The cat")
    classes, metadata = reading.given["key_classes"][0], reading.metadata
    ids = reading.given["input_ids"][0]
    special = np.asarray(metadata.special)[0]
    np.testing.assert_array_equal(classes >> SPECIAL & 1, special)
    np.testing.assert_array_equal(classes >> FIRST & 1, ids == tokenizer.cls_id)
    np.testing.assert_array_equal(classes >> SEPARATOR & 1, ids == tokenizer.sep_id)
    marks = [token.strip() in (",", ".") for token in metadata.tokens[0]]
    np.testing.assert_array_equal(classes >> PUNCTUATION & 1, marks)
    assert sum(marks) == 2
    segments = np.asarray(metadata.segments)[0]
    assert {0, 1} == set(segments.tolist())
