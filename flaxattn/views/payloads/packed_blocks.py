# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The blocks of a payload as one base85 text, compressed; `assets/decoding.js` unpacks it."""

import base64
import zlib
from collections.abc import Mapping
from typing import Any

_LEVEL = 6  # of zlib; 9 takes five times as long and saves one percent
# Short matches of noisy numbers cost more than the numbers themselves.
_STRATEGY = zlib.Z_FILTERED

# The alphabet of RFC 1924, without the characters that mean something in HTML.
_TO_PAGE = bytes.maketrans(b"&<>", b",.:")
_FROM_PAGE = bytes.maketrans(b",.:", b"&<>")


def pack(blocks: Mapping[str, bytes]) -> dict[str, Any]:
    """Join blocks and compress them."""
    places, start = {}, 0
    for name, data in blocks.items():
        places[name] = [start, start + len(data)]
        start += len(data)
    packer = zlib.compressobj(_LEVEL, strategy=_STRATEGY)
    packed = b"".join([*map(packer.compress, blocks.values()), packer.flush()])
    return {"blocks": places, "data": _text(packed), "compressed": True}


def decompressed(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a payload whose data every browser reads without decompressing."""
    if not payload["compressed"]:
        return dict(payload)
    data = zlib.decompress(decode_text(payload["data"]))
    return {**payload, "data": _text(data), "compressed": False}


def decode_text(text: str) -> bytes:
    """Return the bytes behind the base85 text of a page."""
    return base64.b85decode(text.encode("ascii").translate(_FROM_PAGE))


def _text(data: bytes) -> str:
    return base64.b85encode(data).translate(_TO_PAGE).decode("ascii")
