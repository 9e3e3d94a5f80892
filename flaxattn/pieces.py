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


def word_numbers(
    pieces: Sequence[str], special: Sequence[Any], decoder: Any = None
) -> list[int | None]:
    """Number of the whitespace word that each piece belongs to, as Pharaoh alignments count them.

    A word starts at a piece that begins with a space or with SentencePiece's `▁`, at the first
    piece and after a special piece or a blank one. WordPiece keeps no spaces: there every piece
    without `##` starts a word. Where a tokenizer has no decoder its pieces are whole words.

    Args:
        pieces: what `readable` made of one sequence.
        special: true at pieces the model adds, and at padding.
        decoder: the decoder of the tokenizer.

    Returns:
        From 0; None for special pieces and for blank ones.
    """
    numbers: list[int | None] = []
    word, inside = -1, False
    for piece, added in zip(pieces, special, strict=True):
        if added or not piece.strip(" \t\n▁"):
            numbers.append(None)
            inside = False
            continue
        word += not inside or _starts_word(piece, decoder)
        inside = True
        numbers.append(word)
    return numbers


def _starts_word(piece: str, decoder: Any) -> bool:
    if decoder is None:
        return True
    if isinstance(decoder, decoders.WordPiece):
        return not piece.startswith("##")
    return piece[0] == "▁" or piece[0].isspace()


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
