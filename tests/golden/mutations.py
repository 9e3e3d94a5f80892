# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Hostile copies of valid files: edits that hypothesis draws, shrinks and repeats.

Nothing here knows a format; what JSON, YAML and tables share is that values stand as words and
numbers between other characters.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import strategies as st

_SCALE = 2**20
_LONGEST = 2**17  # bytes of a span that is copied or removed
_VALUE = re.compile(rb'"[^"\\\n]*"|-?[0-9][0-9.eE+-]*|true|false|null|[A-Za-z_]\w*')
_WORDS = (
    *(b"-1", b"0", b"1e999", b"-1e-999", b"NaN", b"9223372036854775808", b"1" * 400, b"0.5"),
    *(b"null", b"true", b"[]", b"{}", b'""', b'"x"', b"[[[[1]]]]", b'"../../etc/passwd"', b"~"),
    *(b"[" * 3000, b'"' + b"x" * 4000 + b'"', b"4294967296", b"-9223372036854775809", b"1 2"),
)
_SPANS = (
    *(b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\n", b"\r\n\r\n", b"\t", b'"'),
    *(b"\x1b[31m", "\u202e\u2028".encode(), b"!!python/object/apply:os.system [a]", b"<script>"),
    *(b"a" * 5000, b"\0" * 5000, b"\n" * 3000, b"9" * 5000, b"e\xcc\x81" * 500, b"&a [*a,*a]"),
)
_NUMBERS = (0, 1, -1, 2**31 - 1, 2**32, 2**63 - 1, -(2**63), 2**40, 7)


class Edit(NamedTuple):
    """One change.

    Attributes:
        kind: `flip`, `cut`, `remove`, `copy`, `insert`, `value` or `number`.
        place: Where, in parts of a million of the file.
        other: Where to, how long, or which one.
    """

    kind: str
    place: int
    other: int


def edits() -> st.SearchStrategy[list[Edit]]:
    """One to three changes."""
    kinds = st.sampled_from(("flip", "cut", "remove", "copy", "insert", "value", "value", "number"))
    numbers = st.integers(0, _SCALE - 1)
    return st.lists(st.builds(Edit, kinds, numbers, numbers), min_size=1, max_size=3)


def edited(data: bytes, changes: Sequence[Edit]) -> bytes:
    """A file's content after some changes."""
    for change in changes:
        data = _edited(data, change)
    return data


def untouched(data: bytes, changes: Sequence[Edit]) -> int:
    """How many bytes at the beginning of a file are as they were."""
    after = edited(data, changes)
    size = min(len(data), len(after))
    return next((i for i in range(size) if data[i] != after[i]), size)


def _edited(data: bytes, change: Edit) -> bytes:
    place, other = (number * len(data) // _SCALE for number in change[1:])
    match change.kind:
        case "flip" if data:
            return data[:place] + bytes([data[place] ^ 1 << change.other % 8]) + data[place + 1 :]
        case "cut":
            return data[:place]
        case "remove":
            return data[:place] + data[place + 1 + min(other // 4, _LONGEST) :]
        case "copy":
            span = data[place : place + 1 + min(len(data) // 4, _LONGEST)]
            return data[:other] + span + data[other:]
        case "insert":
            return data[:place] + _SPANS[change.other % len(_SPANS)] + data[place:]
        case "number":
            number = _NUMBERS[change.other % len(_NUMBERS)].to_bytes(8, "little", signed=True)
            return data[:place] + number + data[place + 8 :]
        case _:
            found = _VALUE.search(data, place) or _VALUE.search(data)
            if found is None:
                return data
            word = _WORDS[change.other % len(_WORDS)]
            return data[: found.start()] + word + data[found.end() :]
