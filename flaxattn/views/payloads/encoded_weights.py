# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Makes numbers and text fit to travel inside a page: quantised weights, safe JSON, visible text.

It knows nothing of a level or of HTML tags; `page.py` does the wrapping, `assets/decoding.js`
decodes.
"""

import base64
import json
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError

Precision = Literal["float16", "uint8"]

# Largest distance between a weight and what the page shows: half a step of float16 below 1, and
# half of 1/255 of the row's maximum, which itself is rounded to float16.
ERROR: dict[Precision, float] = {"float16": 2.0**-12, "uint8": (1 + 2.0**-10) / 510}

FLOAT16_BYTES = 8_000_000  # up to here a page keeps float16; larger ones are halved by uint8
PAGE_BYTES = 64_000_000  # beyond this a browser tab becomes slow or dies

_CONTROLS: dict[int, int | str] = {code: f"⟨U+{code:04X}⟩" for code in range(0x80, 0xA0)}
_CONTROLS |= {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
_UNSAFE = re.compile("[<>&\u2028\u2029]")


def visible(text: str) -> str:
    """Text as it is, except that characters which draw nothing are made visible.

    The control characters U+0000 to U+001F and U+007F become their control pictures (a line feed
    is U+240A), U+0080 to U+009F become their code point in angle brackets, and half of a surrogate
    pair, which no file can hold, becomes U+FFFD.
    """
    return re.sub("[\ud800-\udfff]", "\ufffd", text.translate(_CONTROLS))


def script_json(value: Any) -> str:
    r"""JSON that can stand inside a `<script>` element: it holds no `<`, `>`, `&` and only ASCII.

    Args:
        value: Anything `json.dumps` takes; NaN and infinities are refused with a ValueError.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def payload_bytes(shape: Sequence[int], precision: Precision) -> int:
    """Characters that weights of shape `[L, H, Q, K]` take in the page, base64 included."""
    layers, heads, queries, keys = shape
    raw = 2 * keys if precision == "float16" else keys + 2
    return layers * -(-heads * queries * raw // 3) * 4


def choose_precision(
    shape: Sequence[int], asked: Precision | None, *others: Sequence[int]
) -> Precision:
    """The precision the weights of a page are stored in.

    Args:
        shape: `[L, H, Q, K]`.
        asked: What the caller insists on; None chooses float16 while that is small.
        *others: Shapes of further weights on the same page.

    Raises:
        InputError: If the precision is unknown or the page would be too large for a browser.
    """
    if asked not in (None, "float16", "uint8"):
        raise InputError(f'Unknown precision {asked!r}.\nUse "float16", "uint8" or None.')
    shapes = [tuple(shape), *map(tuple, others)]
    small = _total_bytes(shapes, "float16") <= FLOAT16_BYTES
    precision: Precision = asked or ("float16" if small else "uint8")
    size = _total_bytes(shapes, precision)
    if size > PAGE_BYTES:
        fits = PAGE_BYTES // _total_bytes([(1, *shape[1:]) for shape in shapes], "uint8")
        cure = f"at most {fits} layers (include_layers=[…])" if fits else "a shorter text"
        if asked == "float16" and _total_bytes(shapes, "uint8") <= PAGE_BYTES:
            cure = 'precision="uint8"'
        raise InputError(
            f"The page would be {size / 1e6:,.0f} MB; browsers manage {PAGE_BYTES / 1e6:.0f} MB.\n"
            f"Its weights have layers, heads, queries, keys = {', '.join(map(str, shapes))}.\n"
            f"Use {cure}."
        )
    return precision


def _total_bytes(shapes: Sequence[Sequence[int]], precision: Precision) -> int:
    return sum(payload_bytes(shape, precision) for shape in shapes)


def encode_weights(weights: Float[np.ndarray, "H Q K"], precision: Precision) -> str:
    """One layer's weights as base64, little-endian.

    `float16`: H Q K halves. `uint8`: first H Q halves, the maximum of each row, then H Q K
    bytes, each `round(255 w / maximum)`, so that faint rows keep their relative sizes; a row that
    holds NaN has NaN for its maximum, and reads as NaN throughout.

    Args:
        weights: Attention between 0 and 1, or NaN.
        precision: How they are stored; the largest error is `ERROR[precision]`.
    """
    if precision == "float16":
        return _base64(weights.astype("<f2"))
    peaks = weights.max(axis=-1, keepdims=True).astype("<f2")
    divisor = np.where(peaks > 0, peaks, 1).astype(np.float32)
    steps = np.nan_to_num(np.rint(255 * (weights / divisor)))
    return _base64(peaks, np.minimum(steps, 255).astype(np.uint8))


class Blocks:
    """The binary part of a payload: bytes by name, as base64.

    Attributes:
        data: Text by name, as it stands in the page.
    """

    def __init__(self) -> None:
        self.data: dict[str, str] = {}

    def add(self, name: str, *arrays: np.ndarray) -> str:
        """Store arrays one after the other, little-endian.

        Args:
            name: Of the block; new.
            *arrays: Of any dtype that the browser reads: uint8, float16, ….

        Returns:
            The name.
        """
        return self.put(name, _base64(*(a.astype(a.dtype.newbyteorder("<")) for a in arrays)))

    def put(self, name: str, text: str) -> str:
        """Store what is base64 already.

        Args:
            name: Of the block; new.
            text: Its bytes.

        Returns:
            The name.
        """
        assert name not in self.data, name
        self.data[name] = text
        return name


def _base64(*arrays: np.ndarray) -> str:
    return base64.b64encode(b"".join(array.tobytes() for array in arrays)).decode("ascii")
