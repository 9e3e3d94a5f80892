# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Readers of vocabularies, BERT's tokenizer pipeline, and checks of texts.

Nothing here encodes a text; use `flaxattn.text.tokenizer.Tokenizer`.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from flaxattn.errors import CheckpointError, InputError
from flaxattn.text.text_lists import text_list

_ESM_START, _ESM_STOP = "<cls>", "<eos>"
SPECIAL_TOKENS = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
# How families beside BERT write them, where tokenizer_config.json does not say.
OTHER_SPECIAL_TOKENS = {
    "pad_token": ("<pad>",),
    "unk_token": ("<unk>",),
    "cls_token": ("<s>", "<cls>"),
    "sep_token": ("</s>", "<eos>"),
    "mask_token": ("<mask>",),
}


def bert_backend(vocabulary: dict[str, int], settings: dict[str, Any]) -> tokenizers.Tokenizer:
    """BERT's normaliser, splitter, WordPiece and template around a vocabulary."""
    names = {key: settings.get(key, default) for key, default in SPECIAL_TOKENS.items()}
    names = {key: v["content"] if isinstance(v, dict) else v for key, v in names.items()}
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=names["unk_token"]))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    known = [tokenizers.AddedToken(n, special=True) for n in names.values() if n in vocabulary]
    backend.add_special_tokens(known)
    start, stop = names["cls_token"], names["sep_token"]
    for token in (start, stop):
        if token not in vocabulary:
            raise CheckpointError(
                f"the vocabulary has no {token}\n"
                f"expected it among the {len(vocabulary)} lines of vocab.txt\n"
                "add it, or name the right token in tokenizer_config.json"
            )
    backend.post_processor = processors.TemplateProcessing(
        single=f"{start}:0 $A:0 {stop}:0",
        pair=f"{start}:0 $A:0 {stop}:0 $B:1 {stop}:1",
        special_tokens=[(start, vocabulary[start]), (stop, vocabulary[stop])],
    )
    return backend


def residue_backend(vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
    """ESM's pipeline: every entry of the vocabulary that occurs in a text is a token."""
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    longest = sorted(vocabulary, key=len, reverse=True)
    known = tokenizers.Regex("|".join(map(re.escape, longest)))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(known, "isolated")]
    )
    marks = [token for token in longest if token.startswith("<")]
    backend.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in marks])
    start, stop = _ESM_START, _ESM_STOP
    backend.post_processor = processors.TemplateProcessing(
        single=f"{start} $A {stop}",
        pair=f"{start} $A {stop} $B:1 {stop}:1",
        special_tokens=[(token, vocabulary[token]) for token in (start, stop)],
    )
    return backend


def read_text(path: Path) -> str:
    """Content of a UTF-8 file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}\n{error.strerror}\nname a readable file") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not valid UTF-8\n"
            f"byte {error.object[error.start]:#04x} at position {error.start}\n"
            "save the file as UTF-8"
        ) from error


def read_tokenizer_json(path: Path) -> tokenizers.Tokenizer:
    """Pipeline of a `tokenizer.json`."""
    text = read_text(path)
    try:
        return encoded(tokenizers.Tokenizer.from_str, text)
    except Exception as error:  # the package raises bare Exception for every malformed file
        raise CheckpointError(
            f"{path} is not a tokenizer\n{shortened(str(error))}\nfetch the file again"
        ) from error


def encoded(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Result of a call of the `tokenizers` package that runs a tokenizer on text."""
    try:
        return call(*given, **named)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, which no module exports
            raise
        raise CheckpointError(
            f"the tokenizer fails on a text: {shortened(str(error))}\n"
            "a regular expression in its tokenizer.json is faulty or takes too long\n"
            "fetch tokenizer.json again, or leave the text out"
        ) from error


def read_vocabulary(path: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    """BERT's pipeline around a `vocab.txt`."""
    lines = read_text(path).split("\n")
    vocabulary = {token: number for number, token in enumerate(lines) if token}
    try:
        if _ESM_START in vocabulary and SPECIAL_TOKENS["cls_token"] not in vocabulary:
            return residue_backend(vocabulary)
        return bert_backend(vocabulary, settings)
    except CheckpointError:
        raise
    except Exception as error:  # the package raises bare Exception
        raise CheckpointError(
            f"{path} and tokenizer_config.json make no tokenizer\n{shortened(str(error))}\n"
            "fetch both again"
        ) from error


def checked_texts(texts: str | Sequence[str], what: str) -> list[str]:
    """One text or several as a list, each fit to be encoded."""
    items = text_list(texts, what)
    if not items:
        raise InputError(
            f"expected a {what} or a non-empty list of them\n"
            f"received {type(texts).__name__}: {shortened(repr(texts))}\n"
            "pass str, or list[str]"
        )
    for number, item in enumerate(items):
        if not isinstance(item, str):
            raise InputError(
                f"{what} {number} is not a string\n"
                f"expected str, received {type(item).__name__}: {shortened(repr(item))}\n"
                "decode bytes with .decode('utf-8') first"
            )
        if not item.strip():
            raise InputError(
                f"{what} {number} is empty\n"
                f"received {item!r}, which holds no token\n"
                "leave it out, or give it at least one word"
            )
        _check_unicode(item, f"{what} {number}")
    return items


def _check_unicode(text: str, where: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"{where} is not valid Unicode\n"
            f"lone surrogate U+{ord(text[error.start]):04X} at character {error.start}\n"
            "decode the source as UTF-8, or drop the character"
        ) from error


def shortened(text: str, limit: int = 60) -> str:
    """At most `limit` characters of a text, on one line, for an error message."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
