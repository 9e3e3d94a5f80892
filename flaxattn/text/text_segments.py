# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Segments of a long text, which a tokenizer reads one by one with the ids of the whole text.

A tokenizer takes some 200 bytes of memory per character of what it reads at once. A text is cut
only where its normalizer and pre-tokenizer never join the characters on both sides. Where that is
unknown, or a text has no such place, the text stays whole.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import tokenizers

SEGMENT = 2**16  # characters at least
_SPACE = re.compile(r"(?<=[^\W_])(?= [^\W_])")
# Behind Chinese and Japanese letters, which need no space, also before punctuation.
_STOP = "[。，、！？；：]"
_SPACE_OR_STOP = re.compile(
    rf"(?<=[^\W_])(?=[ \n][^\W_])|(?<=[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5])(?={_STOP})"
)
# Normalizers that change a character by itself, or together with its combining marks.
_LOCAL = {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Strip", "StripAccents"}
_ONE_SPACE = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
_SPLITS_AT_SPACE = {"BertPreTokenizer", "ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit"}


def segments_of(text: str, backend: tokenizers.Tokenizer) -> Iterator[str]:
    """Yield the segments of a text in order; joined, they are the text."""
    boundary = _boundary(backend) if len(text) > SEGMENT else None
    start = 0
    while boundary and (match := boundary.search(text, start + SEGMENT)):
        yield text[start : match.start()]
        start = match.start()
    yield text[start:]


def _boundary(backend: tokenizers.Tokenizer) -> re.Pattern[str] | None:
    """Pattern of the places where a text may be cut; None for nowhere."""
    normalizers = _steps(backend.normalizer, "normalizers")
    steps = _steps(backend.pre_tokenizer, "pretokenizers")
    kinds = {step["type"] for step in normalizers if step != _ONE_SPACE}
    added = backend.get_added_tokens_decoder().values()
    joined = any(one.rstrip or re.search(rf"\s|{_STOP}", one.content) for one in added)
    if joined or not steps or not kinds <= _LOCAL or steps[0]["type"] not in _SPLITS_AT_SPACE:
        return None
    first = steps[0]
    spaces_count = first["type"] == "ByteLevel" or first.get("prepend_scheme") == "never"
    whole = not first.get("use_regex", True) or not first.get("split", True)
    if whole or ("Strip" in kinds and spaces_count):  # a segment begins with a space
        return None
    wide = first["type"] in ("BertPreTokenizer", "ByteLevel") and not first.get("add_prefix_space")
    return _SPACE_OR_STOP if wide else _SPACE


def _steps(part: Any, members: str) -> list[dict[str, Any]]:
    """The settings of a normalizer or pre-tokenizer, or of each where it is a sequence."""
    settings = {} if part is None else json.loads(part.__getstate__())
    return settings.get(members, [settings] if settings else [])
