# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens as a person should see them. Not for turning ids back into running text."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tokenizers

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Spelling(NamedTuple):
    """How the entries of a vocabulary spell text.

    Attributes:
        bytes: Whether each letter stands for a byte, as in GPT-2.
        byte_tokens: Whether entries such as `<0x0A>` stand for a byte, as in Llama 2.
        replaced: Strings in entries, and what they stand for, such as `▁` for a space.
        suffix: End of an entry that ends a word, such as `</w>`; empty for none.
        added: Entries that are text as they are.
    """

    bytes: bool = False
    byte_tokens: bool = False
    replaced: tuple[tuple[str, str], ...] = ()
    suffix: str = ""
    added: frozenset[str] = frozenset()


def spelling_of(backend: tokenizers.Tokenizer) -> Spelling:
    """How a tokenizer spells text, by every step of its decoder.

    Without a decoder, the steps before the model tell it.
    """
    spelled = Spelling(added=frozenset(t.content for t in _added(backend)))
    steps = list(_steps(backend.decoder, "decoders"))
    if not steps:
        steps = list(_steps(backend.pre_tokenizer, "pretokenizers"))
        before = _steps(backend.normalizer, "normalizers")
        steps += [_space(step) for step in before if step.get("pattern") == {"String": " "}]
        suffix = getattr(backend.model, "end_of_word_suffix", None)
        steps += [{"type": "BPEDecoder", "suffix": suffix}] if suffix else []
    for step in steps:
        match step["type"]:
            case "ByteLevel":
                spelled = spelled._replace(bytes=True)
            case "ByteFallback":
                spelled = spelled._replace(byte_tokens=True)
            case "Metaspace":
                mark = step.get("replacement", "▁")
                spelled = spelled._replace(replaced=(*spelled.replaced, (mark, " ")))
            case "Replace" if isinstance(mark := step["pattern"].get("String"), str) and mark:
                pair = (mark, step["content"])
                spelled = spelled._replace(replaced=(*spelled.replaced, pair))
            case "BPEDecoder":
                spelled = spelled._replace(suffix=step["suffix"])
    return spelled


def readable(tokens: Sequence[str], spelling: Spelling) -> list[str]:
    """Tokens as a person should see them.

    WordPiece tokens stay as BERT shows them (`##ing`). Letters and entries that stand for bytes
    become text again, with an incomplete character as `<0xF0>`. SentencePiece's `▁` becomes the
    space that it stands for, and so does a mark at the end of a word, as `</w>`.
    """
    return [_readable(token, spelling) for token in tokens]


def splits_words(backend: tokenizers.Tokenizer) -> bool:
    """Return whether a tokenizer separates words at spaces before it looks for tokens."""
    if backend.pre_tokenizer is None:
        return False
    text = "a b"
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    return len(backend.pre_tokenizer.pre_tokenize_str(text)) > 1


def _readable(token: str, spelling: Spelling) -> str:
    if token in spelling.added:
        return token
    if spelling.bytes:
        return _from_letters(token)
    if spelling.byte_tokens and (match := _BYTE.fullmatch(token)):
        byte = int(match[1], 16)
        return chr(byte) if byte < 128 else token
    for mark, text in spelling.replaced:
        token = token.replace(mark, text)
    if spelling.suffix and token.endswith(spelling.suffix):
        token = token.removesuffix(spelling.suffix) + " "
    return token


def _added(backend: tokenizers.Tokenizer) -> list[tokenizers.AddedToken]:
    return list(backend.get_added_tokens_decoder().values())


def _steps(part: Any, children: str) -> Iterator[dict[str, Any]]:
    """Yield the steps of a part of a tokenizer, those of a sequence one by one."""
    if part is None:
        return
    waiting = [json.loads(part.__getstate__())]
    while waiting:
        step = waiting.pop(0)
        if step["type"] == "Sequence":
            waiting = step[children] + waiting
        else:
            yield step


def _space(step: dict[str, Any]) -> dict[str, Any]:
    """The step of a decoder that undoes a replacement of spaces."""
    return {"type": "Replace", "pattern": {"String": step["content"]}, "content": " "}


def _letters() -> dict[str, int]:
    """Byte of each letter of a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in plain}
    others = (byte for byte in range(256) if byte not in plain)
    table.update({chr(256 + number): byte for number, byte in enumerate(others)})
    return table


_LETTERS = _letters()


def _from_letters(token: str) -> str:
    if any(letter not in _LETTERS for letter in token):
        return token  # no entry of such a vocabulary, kept as it is written
    raw = bytes(_LETTERS[letter] for letter in token)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(chr(b) if b < 128 else f"<0x{b:02X}>" for b in raw)
