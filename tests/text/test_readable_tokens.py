# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Readable tokens, words and characters are right for every decoder of `tokenizers`."""

import re
from typing import Any

import numpy as np
import pytest
import tokenizers
from tokenizers import (
    AddedToken,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokens import decoded_spans, words_decoded, words_read

LINES = ["the cat sat on the mat .", "the lower lowest cat was tired of the mat"]
TEXTS = [
    "the cat sat on the mat",
    "the  lowest cat\twas tired",
    "café 🙂 the 東京 cat’s mat",
    " the cat",
    "low-est: mat.",
    "👩‍👩‍👧",
]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def trained(model: Any, trainer: Any, **parts: Any) -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(model)
    for name, part in parts.items():
        setattr(made, name, part)
    made.train_from_iterator(LINES * 3, trainer)
    return made


def byte_level(decoder: Any, **parts: Any) -> tokenizers.Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>"],
        show_progress=False,
    )
    before = {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=False)} | parts
    return trained(models.BPE(), trainer, **before, decoder=decoder)


def over_spaces(*last: Any, prefix: bool = True, split: bool = False) -> tokenizers.Tokenizer:
    """Byte pairs over ▁, other letters as bytes: Llama's kind, or without a prefix Gemma's."""
    vocabulary = {token: number for number, token in enumerate(["<unk>", "<s>", *BYTES, "▁"])}
    merges: list[tuple[str, str]] = []
    for letter in sorted(set("".join(LINES)) - {" "}):
        vocabulary.setdefault(letter, len(vocabulary))
    for word in ("▁the", "▁cat", "the", "▁low", "mat"):
        for end in range(2, len(word) + 1):
            merges.append((word[: end - 1], word[end - 1]))
            vocabulary.setdefault(word[:end], len(vocabulary))
    model = models.BPE(
        vocabulary, list(dict.fromkeys(merges)), unk_token="<unk>", byte_fallback=True
    )
    made = tokenizers.Tokenizer(model)
    steps = [normalizers.Prepend("▁")] if prefix else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "▁")])
    if split:
        made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *last]
    )
    made.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    return made


def unigram(byte_fallback: bool) -> tokenizers.Tokenizer:
    letters = [(letter, -3.0) for letter in sorted(set("".join(LINES + TEXTS)) - {*" \t"})]
    words = [("▁", -2.0), ("▁the", -1.0), ("▁cat", -1.0), ("low", -1.0), ("est", -1.0)]
    entries = [("<unk>", 0.0), ("<s>", 0.0), *words]
    entries += [(byte, -8.0) for byte in BYTES] if byte_fallback else letters
    entries += [(letter, -3.0) for letter in "cathemswo" if byte_fallback]
    made = tokenizers.Tokenizer(models.Unigram(entries, 0, byte_fallback))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    if byte_fallback:
        made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    made.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    return made


def wordpiece() -> tokenizers.Tokenizer:
    letters = sorted(set("".join(LINES + TEXTS)) - {*" \t"})
    entries = ["[UNK]", "<s>", "the", "cat", "low", *letters, *(f"##{c}" for c in letters)]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(entries))}
    made = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece(cleanup=False)
    made.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    return made


def suffixed() -> tokenizers.Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=120,
        end_of_word_suffix="</w>",
        initial_alphabet=sorted(set("".join(TEXTS)) - {*" \t"}),
        special_tokens=["<unk>", "<s>"],
        show_progress=False,
    )
    return trained(
        models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
        trainer,
        pre_tokenizer=pre_tokenizers.WhitespaceSplit(),
        decoder=decoders.BPEDecoder(),
    )


STRIP = decoders.Strip(" ", 1, 0)
SPLIT = pre_tokenizers.Split(tokenizers.Regex(r" ?\S+|\s"), "isolated")
KINDS = {
    "byte-level": lambda: byte_level(decoders.ByteLevel()),
    "byte-level-in-a-sequence": lambda: byte_level(decoders.Sequence([decoders.ByteLevel()])),
    "byte-level-after-a-split": lambda: byte_level(
        decoders.ByteLevel(),
        pre_tokenizer=pre_tokenizers.Sequence(
            [SPLIT, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        ),
    ),
    "byte-level-no-decoder": lambda: byte_level(None),
    "llama": lambda: over_spaces(STRIP),
    "gemma": lambda: over_spaces(prefix=False, split=True),
    "metaspace": lambda: unigram(False),
    "unigram-bytes": lambda: unigram(True),
    "wordpiece": wordpiece,
    "suffix": suffixed,
}


def opened(kind: str) -> Tokenizer:
    """A tokenizer that begins a text with `<s>`."""
    backend = KINDS[kind]()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A $B:1", special_tokens=[("<s>", backend.token_to_id("<s>"))]
    )
    return Tokenizer(backend)


def expected(text: str, spans: Any) -> list[int | None]:
    """Number of the word between blanks that the first letter of each span is in."""
    numbers: list[int | None] = []
    for span in spans:
        shown = None if span is None else re.search(r"\S", text[span[0] :])
        if span is None or shown is None:
            numbers.append(None)
        else:
            numbers.append(len(text[: span[0] + shown.start() + 1].split()) - 1)
    return numbers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_words_and_characters_of_a_text(kind: str, text: str) -> None:
    tokenizer = opened(kind)
    batch = tokenizer.encode(text)
    spans, special = batch.spans()[0], batch.special[0]
    words = words_read(text, spans, special)
    assert words == expected(text, spans)
    assert {word for word in words if word is not None} == set(range(len(text.split())))
    for token, span in zip(batch.tokens[0], spans, strict=True):
        assert "▁" not in token and "Ġ" not in token and "</w>" not in token
        if span is None or "<0x" in token or token in ("[UNK]", "<unk>"):
            continue
        assert token.removeprefix("##").strip() in text[slice(*span)], (token, span)
    covered = {place for span in spans if span is not None for place in range(*span)}
    assert covered >= {place for place, letter in enumerate(text) if not letter.isspace()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_words_and_characters_of_decoded_tokens(kind: str, text: str) -> None:
    """Ids alone tell the words of the text that they are decoded to."""
    tokenizer = opened(kind)
    ids = [*tokenizer.encode(text).input_ids[0].tolist(), 1]  # and a special token or padding
    special = np.array([number == ids[0] or n == len(ids) - 1 for n, number in enumerate(ids)])
    decoded = tokenizer.decode(ids[:-1], skip_special_tokens=False)
    tokens = tokenizer.readable_tokens(ids)
    spans = decoded_spans(decoded, tokens, special)
    words = words_decoded(decoded, tokens, spans, special)
    assert words[0] is None and words[-1] is None
    plain = decoded.removeprefix("<s>")
    found = [word for word in words if word is not None]
    if kind == "byte-level-no-decoder":  # tokenizers joins the letters that stand for bytes
        return
    assert set(found) == set(range(len(plain.split()))) and found == sorted(found)
    for token, span in zip(tokens, spans, strict=True):
        odd = "<0x" in token or token in ("[UNK]", "<unk>", "<s>", "##\u200d")
        if span is not None and not odd:
            assert token.removeprefix("##").strip() in decoded[slice(*span)]


@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_words_of_an_encoder_whose_tokenizer_splits_none(kind: str) -> None:
    tokenizer = opened(kind)
    batch = tokenizer.encode(["the cat sat"], ["on the mat"])
    for side, text in enumerate(("the cat sat", "on the mat")):
        own = batch.token_type_ids[0] == side
        spans = [s if mine else None for s, mine in zip(batch.spans()[0], own, strict=True)]
        words = [w for w, mine in zip(batch.word_ids[0], own, strict=True) if mine]
        assert [w for w in words if w is not None] == [
            w for w in expected(text, spans) if w is not None
        ]
        assert set(words) - {None} == {0, 1, 2}


def test_an_added_token_is_shown_as_it_is_written() -> None:
    backend = KINDS["byte-level"]()
    backend.add_tokens(["café", "Ġx"])
    shown = Tokenizer(backend).encode("the café cat").tokens[0]
    assert "café" in shown
    assert Tokenizer(backend).readable_tokens([backend.token_to_id("Ġx")]) == ["Ġx"]


def test_bytes_that_are_characters_are_shown_as_these() -> None:
    tokenizer = opened("llama")
    shown = tokenizer.encode("the\ncat é").tokens[0]
    assert shown[0] == "<s>" and "\n" in shown and shown[-2:] == ["<0xC3>", "<0xA9>"]
