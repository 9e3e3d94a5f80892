# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The named hostile files: headers that lie, and little that unfolds to much. Each with the parser
that must refuse it, by its name in `hostile_cases`, and what it must say.
"""

import base64
import gzip
import json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

MUCH = 100_000_000  # bytes that a small file unfolds to


class Hostile(NamedTuple):
    """A file.

    Attributes:
        parser: Name of the parser.
        message: Part of what it must say.
        data: Makes the content.
    """

    parser: str
    message: str
    data: Callable[[], bytes]


def header(text: Any, data: bytes = b"\0" * 16, length: int | None = None) -> bytes:
    """A safetensors file."""
    facts = text if isinstance(text, bytes) else json.dumps(text).encode()
    return struct.pack("<Q", len(facts) if length is None else length) + facts + data


def entry(start: int, stop: int, dtype: str = "F32", shape: Any = (2,)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def twice() -> bytes:
    """The same key twice."""
    one = json.dumps(entry(0, 8))
    return header(f'{{"a": {one}, "a": {one}}}'.encode(), b"\0" * 8)


def unfolding() -> bytes:
    """A file of inseq of one JSON string."""
    return gzip.compress(b'"' + b"x" * MUCH + b'"', 1)


def scores() -> bytes:
    """A file of inseq with one array, which is said to be small."""
    packed = base64.b64encode(gzip.compress(b"\0" * MUCH, 1)).decode()
    array = {"__ndarray__": f"b64.gz:{packed}", "dtype": "float32", "shape": [5, 2, 2, 2]}
    tokens = [{"token": word} for word in "abcde"]
    text = {"source": tokens[:3], "target": tokens, "target_attributions": array}
    text |= {"attr_pos_start": 3, "attr_pos_end": 5}
    return json.dumps({"sequence_attributions": [text]}).encode()


def line(pack: Callable[[bytes], bytes]) -> Callable[[], bytes]:
    """One line that does not end."""
    return lambda: pack(b'{"text": "' + b"x" * MUCH)


def zstandard(data: bytes) -> bytes:
    return pa.compress(data, "zstd", asbytes=True)


_OURS, _LONG = "safetensors of others", "the line has more than"
HOSTILE = {
    "length beyond the file": Hostile(_OURS, "does not fit", lambda: header({}, length=10_000)),
    "enormous length": Hostile(_OURS, "does not fit", lambda: header({}, length=2**63)),
    "header of 100 MB": Hostile(_OURS, "claims", lambda: header(b" " * 100 * 2**20)),
    "overlap": Hostile(_OURS, "", lambda: header({"a": entry(0, 8), "b": entry(4, 12)})),
    "hole": Hostile(_OURS, "", lambda: header({"a": entry(0, 8), "b": entry(12, 20)})),
    "negative offset": Hostile(_OURS, "", lambda: header({"a": entry(-8, 0)})),
    "key twice": Hostile(_OURS, "twice", twice),
    "dtype and size": Hostile(_OURS, "", lambda: header({"a": entry(0, 8, "F16")}, b"\0" * 8)),
    "bad UTF-8": Hostile(_OURS, "", lambda: header(b'{"\xff": {}}')),
    "JSON that unfolds": Hostile("inseq zipped", "unfolds to more than", unfolding),
    "scores that unfold": Hostile("inseq old", "more than 160 bytes", scores),
    "gzip of one line": Hostile("table jsonl.gz", _LONG, line(lambda b: gzip.compress(b, 1))),
    "Zstandard of one line": Hostile("table jsonl.zst", _LONG, line(zstandard)),
}
