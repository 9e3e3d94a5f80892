# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What a BERT is fed: checked ids and masks, lengths rounded up so that few shapes are compiled.

Inside a compiled program a wrong id or shape gives wrong numbers without a word; here it gives an
error. This file knows arrays and limits, no text and no parameters.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Int

from flaxattn.config import BertConfig
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture


def checked(inputs: Mapping[str, Any], config: BertConfig) -> dict[str, Int[Array, "B S"]]:
    """Check the arguments of a model call and fill in the defaults.

    Args:
        inputs: `input_ids`, and `attention_mask`, `token_type_ids` and `position_ids` or None:
            NumPy, JAX or nested lists. Values of traced arrays are not looked at.
        config: Says the limits.

    Returns:
        The same names with int32 arrays; a program compiled for some serves all.

    Raises:
        InputError: For a wrong dtype or shape, an id out of range, or a length over the limit.
    """
    if inputs["input_ids"] is None:
        raise InputError("input_ids is missing.\nPass the ids of the word pieces, shape [B, S].")
    arrays = {name: _whole(name, value) for name, value in inputs.items() if value is not None}
    shape = arrays["input_ids"].shape
    if len(shape) != 2 or not all(shape):
        hint = "Add the batch axis: input_ids[None]." if len(shape) == 1 else ""
        raise InputError(
            f"input_ids: expected shape [B, S], both at least 1, received {list(shape)}.\n{hint}"
        )
    limit = config.max_position_embeddings
    if shape[1] > limit:
        raise InputError(
            f"input_ids: {shape[1]} positions, the limit of this model is {limit}.\n"
            "Shorten the input, or split it."
        )
    ranges = {
        "input_ids": (config.vocab_size, "vocab_size"),
        "attention_mask": (2, "1 at real positions, 0 at padding"),
        "token_type_ids": (config.type_vocab_size, "type_vocab_size"),
        "position_ids": (limit, "max_position_embeddings"),
    }
    for name, array in arrays.items():
        if name == "position_ids" and array.shape == (1, shape[1]):
            arrays[name] = array = np.broadcast_to(array, shape)
        _check(name, array, shape, *ranges[name])
    defaults = {
        "attention_mask": np.ones(shape, np.int32),
        "token_type_ids": np.zeros(shape, np.int32),
        "position_ids": np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape),
    }
    return defaults | arrays


def _whole(name: str, value: Any) -> Any:
    """The value as int32; only a mask may be boolean, or float as some pipelines make it."""
    if isinstance(value, Tracer):
        return value
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{name}: this is no array: {error}.\nPass rows of equal length, padded."
        ) from error
    kinds = "iubf" if name == "attention_mask" else "iu"
    if array.dtype.kind not in kinds:
        raise InputError(f"{name}: expected integers, received dtype {array.dtype}.")
    if array.size and (array.min() < -(2**31) or array.max() >= 2**31 or (array % 1).any()):
        raise InputError(f"{name}: expected whole numbers of 32 bits, received others.")
    return array.astype(np.int32)


def _check(name: str, array: Any, shape: tuple[int, ...], end: int, meaning: str) -> None:
    if array.shape != shape:
        raise InputError(
            f"{name}: expected shape {list(shape)} as input_ids has, received "
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


def check_capture(capture: Capture, config: BertConfig) -> None:
    """Check that a request names layers and heads that the model has.

    Args:
        capture: The request.
        config: Says how many there are.

    Raises:
        InputError: Naming the valid range.
    """
    counts = {"layers": config.num_hidden_layers, "heads": config.num_attention_heads}
    for what, count in counts.items():
        unknown = [n for n in getattr(capture, what) or () if n >= count]
        if unknown:
            raise InputError(
                f"capture.{what} asks for {', '.join(map(str, unknown))}, but this model has "
                f"{what} 0 to {count - 1}.\nThey are counted from 0; {what}=None takes all."
            )


def padded(inputs: Mapping[str, Any], limit: int) -> dict[str, Int[np.ndarray, "B S"]]:
    """Pad on the right to one of a few lengths, so that most texts share a compiled program.

    Args:
        inputs: Arrays `[B, S]`; zeros are added to each, so the mask hides what is added.
        limit: Longest length the model takes.
    """
    length = next(iter(inputs.values())).shape[1]
    extra = bucket(length, limit) - length
    return {name: np.pad(array, ((0, 0), (0, extra))) for name, array in inputs.items()}


def bucket(length: int, limit: int) -> int:
    """The length that is compiled: the next multiple of 32, above 128 of 64, above 512 of 256.

    Args:
        length: Positions that are needed.
        limit: Longest length the model takes.
    """
    step = 32 if length <= 128 else 64 if length <= 512 else 256
    return min(-(-length // step) * step, limit)
