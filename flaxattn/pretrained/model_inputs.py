# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs of models: tokenized texts, checked ids and masks, and lengths rounded up.

Every pretrained model reads texts into `TokenizedTexts`, with the text fields that a trace will
have; `trace` runs the model on it at once, extraction takes it apart into rows. Inside a compiled
program a wrong id or shape gives wrong numbers without a word; here it gives an error. Lengths are
rounded up so that few shapes are compiled.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Int

from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.trace.record import AttentionRecord, cut
from flaxattn.trace.trace import Trace

MASK = (2, "1 at real positions, 0 at padding")


def checked(
    inputs: Mapping[str, Any], ranges: Mapping[str, tuple[int, str]], limit: int
) -> dict[str, Int[Array, "B S"]]:
    """Check arguments of a model call that hold one number per position."""
    ids = next(iter(ranges))
    if inputs[ids] is None:
        raise InputError(f"{ids} is missing.\nPass the ids of the tokens, shape [B, S].")
    arrays = {name: whole(name, value) for name, value in inputs.items() if value is not None}
    shape = arrays[ids].shape
    if len(shape) != 2 or not all(shape):
        hint = f"Add the batch axis: {ids}[None]." if len(shape) == 1 else ""
        raise InputError(
            f"{ids}: expected shape [B, S], both at least 1, received {list(shape)}.\n{hint}"
        )
    if shape[1] > limit:
        raise InputError(
            f"{ids}: {shape[1]} positions, the limit of this model is {limit}.\n"
            "Shorten the input, or split it."
        )
    for name, array in arrays.items():
        if name == "position_ids" and array.shape == (1, shape[1]):
            arrays[name] = array = np.broadcast_to(array, shape)
        _check(name, array, shape, ids, *ranges[name])
    return arrays


def whole(name: str, value: Any) -> Any:
    """The value as int32; only a mask may be boolean, or float as some pipelines make it."""
    if isinstance(value, Tracer):
        return value
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{name}: this is not an array: {error}.\nPass rows of equal length, padded."
        ) from error
    kinds = "iubf" if name.endswith("attention_mask") else "iu"
    if array.dtype.kind not in kinds:
        advice = "\nFor texts, call model.trace(text), or model(**model.tokenizer([text]))."
        advice = advice if array.dtype.kind == "U" else ""
        raise InputError(f"{name}: expected integers, received dtype {array.dtype}.{advice}")
    if array.size and (array.min() < -(2**31) or array.max() >= 2**31 or (array % 1).any()):
        raise InputError(f"{name}: expected whole numbers of 32 bits, received others.")
    return array.astype(np.int32)


def numbers(name: str, value: Any) -> Any:
    """The value as float32, without infinity and NaN."""
    if isinstance(value, Tracer):
        return value
    try:
        array = np.asarray(value, np.float32)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: expected numbers: {error}.\nPass an array of floats.") from error
    if not np.isfinite(array).all():
        raise InputError(f"{name}: expected finite numbers, received others.")
    return array


def _check(name: str, array: Any, shape: tuple[int, ...], ids: str, end: int, meaning: str) -> None:
    if array.shape != shape:
        raise InputError(
            f"{name}: expected shape {list(shape)} as {ids} has, received "
            f"{list(array.shape)}.\n{name} holds one number per position: {meaning}."
        )
    if isinstance(array, Tracer):
        return
    low, high = array.min(), array.max()
    if low < 0 or high >= end:
        wrong = low if low < 0 else high
        raise InputError(
            f"{name}: expected values from 0 to {end - 1} ({meaning}), received {wrong}.\n"
            "Was it made for another model?"
        )


def check_capture(capture: Capture, layers: int, heads: int) -> None:
    """Check that a request is one, and names layers and heads that the model has."""
    if not isinstance(capture, Capture):
        raise InputError(
            f"capture is {capture!r:.60}, expected a Capture.\n"
            "Give one such as fa.Capture(weights=True)."
        )
    if not heads:
        raise InputError(
            "this model has no attention: there is nothing to trace.\n"
            "It is the recurrent baseline, with attention false in its config.json.\n"
            "Train one with attention, or use its outputs only."
        )
    for what, count in {"layers": layers, "heads": heads}.items():
        unknown = [n for n in getattr(capture, what) or () if n >= count]
        if unknown:
            raise InputError(
                f"capture.{what} asks for {', '.join(map(str, unknown))}, but this model has "
                f"{what} 0 to {count - 1}.\nThey are counted from 0; {what}=None takes all."
            )


def check_window(capture: Capture, length: int) -> None:
    """Check that a request's windows end within the input, not in the padding behind it."""
    for name in ("query_window", "key_window"):
        window = getattr(capture, name)
        if window is not None and window[1] > length:
            raise InputError(
                f"capture.{name} is {window}, but the input has {length} positions.\n"
                f"Positions are counted from 0; {name}=None takes all."
            )


def padded(inputs: Mapping[str, Any], limit: int) -> dict[str, Int[np.ndarray, "B S"]]:
    """Pad on the right to one of a few lengths, so that most texts share a compiled program."""
    length = next(iter(inputs.values())).shape[1]
    extra = bucket(length, limit) - length
    return {name: np.pad(array, ((0, 0), (0, extra))) for name, array in inputs.items()}


def padded_left(inputs: Mapping[str, Any]) -> dict[str, Int[np.ndarray, "B S"]]:
    """Pad on the left to one of a few lengths, as prompts are."""
    length = next(iter(inputs.values())).shape[1]
    extra = bucket(length, 1 << 30) - length  # no limit: positions are counted without padding
    return {name: np.pad(array, ((0, 0), (extra, 0))) for name, array in inputs.items()}


def bucket(length: int, limit: int) -> int:
    """The length that is compiled: the next multiple of 32, above 128 of 64, above 512 of 256."""
    step = 32 if length <= 128 else 64 if length <= 512 else 256
    return min(-(-length // step) * step, limit)


def check_ends(source: Int[np.ndarray, "B S"], target: Int[np.ndarray, "B T"], end: int) -> None:
    """Check that a classifier finds the end of each text, and its position in the target."""
    if target.shape[1] != source.shape[1]:
        raise InputError(
            f"decoder_input_ids: expected {source.shape[1]} tokens as input_ids has, received "
            f"{target.shape[1]}.\nLeave them out: a classifier's decoder reads the source."
        )
    if missing := np.flatnonzero(~(source == end).any(1)).tolist():
        raise InputError(
            f"input_ids: row {missing[0]} has no token {end} (eos_token_id), where "
            "the label of a text is predicted.\nEnd every text with it, as its tokenizer does."
        )


_TARGET = "decoder_"  # begins the names of the decoder's arguments, where there is an encoder


@dataclasses.dataclass(frozen=True)
class TokenizedTexts:
    """B texts, or pairs of texts, as a model takes them, padded on the right.

    Attributes:
        given: Arguments of the module, int32 `[B, S]`; those of a decoder beside an encoder,
            whose names begin with `decoder_`, are `[B, T]`.
        metadata: The trace without attention: tokens, masks, words, texts.
        written: Tokens `[B, T]` that a decoder beside an encoder generates where it reads `given`.
    """

    given: Mapping[str, Int[np.ndarray, "B S"]]
    metadata: Trace
    written: Int[np.ndarray, "B T"] | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """Padded lengths: S, and T where an encoder has a decoder beside it."""
        names = ("input_ids", f"{_TARGET}input_ids")
        return tuple(self.given[name].shape[1] for name in names if name in self.given)

    def padded(self, limit: int) -> dict[str, Int[np.ndarray, "B S"]]:
        """The arguments, padded further to one of a few lengths."""
        found: dict[str, np.ndarray] = {}
        for target in (False, True):
            side = {n: a for n, a in self.given.items() if n.startswith(_TARGET) == target}
            found |= padded(side, limit) if side else {}
        return found

    def rows(self) -> list["TokenizedTexts"]:
        """Each text by itself, without padding."""
        sizes = [self._sizes(f"{side}attention_mask") for side in ("", _TARGET)]
        found = []
        for b in range(len(self.metadata)):
            given = {
                name: array[b : b + 1, : sizes[name.startswith(_TARGET)][b]]
                for name, array in self.given.items()
            }
            written = self.written
            if written is not None:
                written = written[b : b + 1, : sizes[True][b]]
            found.append(TokenizedTexts(given, self.metadata[b], written))
        return found

    def _sizes(self, mask: str) -> list[int]:
        return (self.given[mask] != 0).sum(1).tolist() if mask in self.given else []


def joined(
    metadata: Trace, sides: Mapping[str, AttentionRecord], lengths: tuple[int, ...], start: int = 0
) -> Trace:
    """A trace of metadata and attention records, cut to the lengths without padding."""
    source, target = (slice(start, start + n) for n in (lengths[0], lengths[-1]))
    extents = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    found = {
        side: cut(record, queries, keys)
        for side, (queries, keys) in extents.items()
        if (record := sides.get(side)) is not None
    }
    return dataclasses.replace(metadata, **found)
