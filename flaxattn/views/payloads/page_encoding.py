# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Data of a page, encoded: files of `assets/`, quantized weights, safe JSON, packed blocks, state.

The state is JSON that says what a page shows, by the numbers of the model. A page gives it to copy,
and takes it to begin with. `assets/settings.js` has the same table of settings; a test compares the
two.
"""

import base64
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.errors import InputError
from flaxattn.trace.record import AttentionRecord, layer_weights


def read_asset(name: str) -> str:
    """Text of a file of `assets/`, such as `view.css`."""
    text = (resources.files("flaxattn.views") / "assets" / name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")


Precision = Literal["uint11", "uint8", "float16"]

# Largest distance between a weight and what the page shows: half a step of float16 below 1; of the
# others half a step of the row's maximum, which is itself rounded, up to bfloat16 for uint11 and to
# float16 for uint8.
ERROR: dict[Precision, float] = {
    "float16": 2.0**-12,
    "uint11": (1 + 2.0**-7) / 4092,
    "uint8": (1 + 2.0**-10) / 510,
}

_STEPS = 2046  # of uint11 up to the maximum of a row
_NAN = 2047  # in place of a number of steps

FINE_BYTES = 8_000_000  # up to here a page keeps uint11; larger ones are halved by uint8
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
    """JSON that can stand inside a `<script>` element: ASCII without `<`, `>` and `&`."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def payload_bytes(shape: Sequence[int], precision: Precision) -> int:
    """Most characters that weights `[L, H, Q, K]` take in the page; compression leaves fewer."""
    layers, heads, queries, keys = shape
    rows = heads * queries
    size = {
        "float16": 2 * rows * keys,
        "uint11": 2 * rows + rows * keys + -(-3 * rows * keys // 8),
        "uint8": 2 * rows + rows * keys,
    }
    return layers * -(-size[precision] * 5 // 4)


def choose_precision(
    shape: Sequence[int], wanted: Precision | None, *others: Sequence[int]
) -> Precision:
    """The precision the weights of a page are stored in."""
    if wanted not in (None, *ERROR):
        raise InputError(
            f'Unknown precision {wanted!r}.\nUse "uint11", "uint8", "float16" or None.'
        )
    shapes = [tuple(shape), *map(tuple, others)]
    small = _total_bytes(shapes, "uint11") <= FINE_BYTES
    precision: Precision = wanted or ("uint11" if small else "uint8")
    size = _total_bytes(shapes, precision)
    if size > PAGE_BYTES:
        fits = PAGE_BYTES // _total_bytes([(1, *shape[1:]) for shape in shapes], "uint8")
        cure = f"at most {fits} layers (include_layers=[…])" if fits else "a shorter text"
        if wanted not in (None, "uint8") and _total_bytes(shapes, "uint8") <= PAGE_BYTES:
            cure = 'precision="uint8"'
        raise InputError(
            f"The page would be {size / 1e6:,.0f} MB; browsers manage {PAGE_BYTES / 1e6:.0f} MB.\n"
            f"Its weights have layers, heads, queries, keys = {', '.join(map(str, shapes))}.\n"
            f"Use {cure}."
        )
    return precision


def _total_bytes(shapes: Sequence[Sequence[int]], precision: Precision) -> int:
    return sum(payload_bytes(shape, precision) for shape in shapes)


def encode_weights(weights: Float[np.ndarray, "H Q K"], precision: Precision) -> bytes:
    """One layer's weights as bytes, little-endian.

    `float16`: H Q K halves. The others scale each row by its maximum, so that faint rows keep
    their relative sizes. `uint11`: first H Q bfloat16, the maxima; then `round(2046 w / maximum)`,
    first a byte with the upper eight bits of each weight, then the lower three bits of all of them
    without gaps, which compress better apart; 2047 is NaN. `uint8`: first H Q halves, the maxima,
    then H Q K bytes, each `round(255 w / maximum)`; a row that holds NaN has NaN for its maximum,
    and reads as NaN throughout.
    """
    if precision == "float16":
        return weights.astype("<f2").tobytes()
    if precision == "uint11":
        return _encode_uint11(weights.astype(np.float32))
    peaks = weights.max(axis=-1, keepdims=True).astype("<f2")
    divisor = np.where(peaks > 0, peaks, 1).astype(np.float32)
    steps = np.nan_to_num(np.rint(255 * (weights / divisor)))
    return peaks.tobytes() + np.minimum(steps, 255).astype(np.uint8).tobytes()


def _encode_uint11(weights: Float[np.ndarray, "H Q K"]) -> bytes:
    peaks = np.nan_to_num(weights).max(axis=-1, keepdims=True)
    halves = peaks.view(np.uint32) + 0xFFFF >> 16  # the upper half of a float32 is a bfloat16
    peaks = (halves << 16).view(np.float32)
    shares = weights / np.where(peaks > 0, peaks, 1)
    steps = np.where(np.isnan(shares), _NAN, np.rint(_STEPS * np.nan_to_num(shares)))
    steps = steps.astype(np.uint16).reshape(-1, 1)
    upper, lower = (steps >> 3).astype(np.uint8), np.packbits(steps >> [2, 1, 0] & 1)
    return halves.astype("<u2").tobytes() + upper.tobytes() + lower.tobytes()


class Blocks:
    """The binary part of a payload: bytes by name.

    Attributes:
        data: Bytes by name.
    """

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    @property
    def size(self) -> int:
        """Most characters that all blocks take in a page."""
        return sum(characters(data) for data in self.data.values())

    def add(self, name: str, *arrays: np.ndarray) -> str:
        """Store arrays one after the other, little-endian."""
        parts = (a.astype(a.dtype.newbyteorder("<")).tobytes() for a in arrays)
        return self.put(name, b"".join(parts))

    def put(self, name: str, data: bytes) -> str:
        """Store bytes."""
        assert name not in self.data, name
        self.data[name] = data
        return name


def characters(data: bytes) -> int:
    """Return the length of bytes as base85."""
    return -(-len(data) * 5 // 4)


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


LEVELS = ("atlas", "model", "head", "text", "neuron")
SETTINGS = {
    "attention": ("all", "aa", "bb", "ab", "ba"),
    "opacity": ("absolute", "row", "heads"),
    "special": ("shown", "hidden"),
    "first": ("shown", "hidden"),
    "unit": ("tokens", "words"),
    "labels": ("source", "tokens"),
    "direction": ("from", "to", "surprise"),
    "drawing": ("lines", "matrix"),
    "order": ("grid", "value", "cluster"),
    "dimensions": ("top", "all"),
    "numbers": ("off", "on"),
    "sorting": ("weight", "position"),
    "walk": (
        "off",
        "input",
        "query",
        "key",
        "product",
        "scale",
        "bias",
        "softmax",
        "value",
        "sum",
        "output",
    ),
    "compare": ("a", "b", "difference", "together"),
    "theme": ("auto", "light", "dark"),
}
_NUMBERS = ("sequence", "layer", "query", "key", "mass")
_NAMES = ("side", "measure", "weights", "gold")
PLACES = (
    "level",
    "sequence",
    "side",
    "layer",
    "heads",
    "query",
    "key",
    "mass",
    "measure",
    "weights",
    "gold",
)


def check_state(state: Mapping[str, Any] | str | None) -> dict[str, Any]:
    """Check the state of a page, given as a mapping or as JSON, and drop what is None."""
    if isinstance(state, str):
        try:
            state = json.loads(state)
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"state: this is not JSON: {error}.\nCopy it whole from a page."
            ) from error
    if state is not None and not isinstance(state, Mapping):
        raise InputError(
            f"state: expected a mapping such as {{'layer': 3}}, received {type(state).__name__}.\n"
            "Give the state of a page, or its JSON."
        )
    found = {name: value for name, value in (state or {}).items() if value is not None}
    unknown = [name for name in found if name not in (*PLACES, *SETTINGS)]
    if unknown:
        raise InputError(
            f"state: there is no setting {_short(unknown[0])}.\n"
            f"There are {', '.join((*PLACES, *SETTINGS))}."
        )
    for name, values in {"level": LEVELS, **SETTINGS}.items():
        if name in found and found[name] not in values:
            what = ", ".join(f'"{value}"' for value in values)
            raise InputError(f"state: {name} is {_short(found[name])}.\nUse one of {what}.")
    _check_types(found)
    mass = found.get("mass", 100)
    if type(mass) is not int or not 5 <= mass <= 100:
        raise InputError(f"state: mass is {mass!r}.\nUse a whole number of percent from 5 to 100.")
    return found


def _check_types(found: Mapping[str, Any]) -> None:
    """Refuse numbers that are none."""
    for name, value in found.items():
        if name in _NUMBERS and type(value) is not int:
            raise InputError(f"state: {name} is {_short(value)}.\nUse a whole number.")
        if name in _NAMES and not isinstance(value, str):
            raise InputError(f"state: {name} is {_short(value)}.\nUse its name.")
    heads = found.get("heads", [])
    if not isinstance(heads, list | tuple) or any(type(head) is not int for head in heads):
        raise InputError(f"state: heads is {_short(heads)}.\nUse a list of whole numbers.")


def check_position(state: Mapping[str, Any], name: str, length: int) -> None:
    """Check that a pinned token is there."""
    place = state.get(name)
    if place is not None and not (isinstance(place, int) and 0 <= place < length):
        raise InputError(
            f"state: {name} is {place!r}.\nThere are positions 0 to {length - 1} on that side."
        )


def _short(value: Any) -> str:
    """A value as Python writes it, its beginning only."""
    message = repr(value)
    return message if len(message) <= 60 else f"{message[:60]}…"


_MASS = ((24, 100), (64, 90), (256, 80))  # percent up to so many keys
_LONG_MASS = 60


def usual_mass(keys: int) -> int:
    """Percent of each row's attention that is drawn at first: less of long texts."""
    return next((mass for length, mass in _MASS if keys <= length), _LONG_MASS)


def most_telling(
    record: AttentionRecord,
    layers: Sequence[int],
    special: Bool[np.ndarray, " K"] | None,
    *,
    square: bool,
) -> dict[str, Any]:
    """Choose the head whose strongest weights on ordinary keys are largest, and a query of it.

    Ordinary keys are not special tokens, and of self-attention neither the first token nor the
    query itself: attention there says least about the text.
    """
    weights = np.nan_to_num(layer_weights(record, layers, allow_nan=True))
    ordinary = _ordinary(weights.shape[-2:], special, square)
    rows = ordinary.any(-1)
    if square and special is not None:
        rows &= ~special
    if not rows.any():
        return {}
    strongest = np.where(ordinary, weights, 0).max(-1)[..., rows]
    best = strongest.mean(-1)
    layer, head = map(int, np.unravel_index(best.argmax(), best.shape))
    query = np.flatnonzero(rows)[strongest[layer, head].argmax()]
    return {"layer": layers[layer], "heads": [record.heads[head]], "query": int(query)}


def _ordinary(
    shape: tuple[int, int], special: Bool[np.ndarray, " K"] | None, square: bool
) -> Bool[np.ndarray, "Q K"]:
    ordinary = np.ones(shape, bool) if special is None else np.tile(~special, (shape[0], 1))
    if square:
        ordinary &= ~np.eye(*shape, dtype=bool)
        ordinary[:, 0] = False
    return ordinary


def most_divergent(about: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the head in which two traces differ most."""
    found = [
        (measure["divergence"], layer, head)
        for layer, row in zip(about["layers"], about["measures"], strict=True)
        for head, measure in zip(about["heads"], row, strict=True)
        if "divergence" in measure
    ]
    if not found:
        return {}
    _, layer, head = max(found, key=lambda entry: entry[0])
    return {"layer": layer, "heads": [head]}
