# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Vocabulary pieces as a person should see them. Not for turning ids back into running text."""

from collections.abc import Sequence
from typing import Any

from tokenizers import decoders


def readable(pieces: Sequence[str], decoder: Any = None) -> list[str]:
    """Pieces as a person should see them.

    WordPiece pieces stay as BERT shows them (`##ing`). Byte-level pieces are written in an
    alphabet of printable stand-ins for bytes; they become text again, with an incomplete
    character as `<0xF0>`. SentencePiece's `▁` becomes a space.

    Args:
        pieces: vocabulary entries.
        decoder: the decoder of the tokenizer they come from; it tells the kind.

    Returns:
        As many strings.
    """
    if isinstance(decoder, decoders.ByteLevel):
        table = _byte_alphabet()
        return [_from_bytes(piece, table) for piece in pieces]
    if isinstance(decoder, decoders.Metaspace):
        return [piece.replace("▁", " ") for piece in pieces]
    return list(pieces)


def _byte_alphabet() -> dict[str, int]:
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in plain}
    others = (byte for byte in range(256) if byte not in plain)
    table.update({chr(256 + number): byte for number, byte in enumerate(others)})
    return table


def _from_bytes(piece: str, table: dict[str, int]) -> str:
    if any(letter not in table for letter in piece):
        return piece  # an added token, kept as it is written
    raw = bytes(table[letter] for letter in piece)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(chr(b) if b < 128 else f"<0x{b:02X}>" for b in raw)
