# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The error for a model whose numbers are NaN or infinite: layer, head, text and parameter.

Counting them on the device is `flaxattn.trace.record`'s.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture
from flaxattn.trace.record import NonFinite

_GO_ON = "correct the model, or pass allow_nonfinite=True to leave their cells blank"


class Place(NamedTuple):
    """Place of the first NaN or infinity: the lowest layer, then the first row and head.

    Attributes:
        layer: Number of the layer.
        head: Number of the head.
        row: Row of the batch.
        position: In that row.
    """

    layer: int
    head: int
    row: int
    position: int


def first_nonfinite(nonfinite: NonFinite, rows: int | None = None) -> Place | None:
    """Place of the first NaN or infinity in a batch; None where everything is finite."""
    counts = np.asarray(nonfinite.counts)[:, :rows]
    if not counts.any():
        return None
    layer, row, head = (int(index) for index in np.argwhere(counts)[0])
    position = int(np.asarray(nonfinite.first)[layer, row])
    return Place(nonfinite.layers[layer], nonfinite.heads[head], row, position)


def nonfinite_error(
    name: str, params: Any, place: Place, side: str, text: str, *, go_on: bool = True
) -> InputError:
    """Return the error for attention that is NaN or infinite."""
    where = f"layer {place.layer}, head {place.head}"
    problem = f"the {side} attention of {where} is NaN or infinite for {text}"
    return refusal(name, params, problem, go_on=go_on)


def refusal(name: str, params: Any, problem: str, *, go_on: bool = True) -> InputError:
    """Return the error for any number of a model that is NaN or infinite."""
    parameter = _broken_parameter(params)
    cause = (
        "all parameters are finite: a setting in config.json is wrong, or the numbers overflow"
        if parameter is None
        else f"the parameter {parameter} holds NaN or infinity"
    )
    hint = f"\n{_GO_ON}" if go_on else ""
    return InputError(
        f"{name!r}: {problem}\n{cause}; compare the checkpoint with the original{hint}"
    )


def check_written(name: str, params: Any, scores: Any, *, go_on: bool = False) -> None:
    """Refuse text that was chosen by NaN."""
    broken = np.isnan(np.asarray(scores))
    if broken.any():
        text = f"text {np.argwhere(broken)[0][0]}"
        raise refusal(name, params, f"the scores of what follows {text} are NaN", go_on=go_on)


def check_dtype(capture: Capture, allow_nonfinite: bool) -> None:
    """Refuse to keep NaN in a dtype that has none."""
    if allow_nonfinite and capture.weights and capture.dtype == "uint8":
        raise InputError(
            "weights as uint8 cannot hold NaN, which would be stored as 0\n"
            'choose dtype="float16", or leave allow_nonfinite out'
        )


def _broken_parameter(params: Any) -> str | None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        array = np.asarray(leaf, np.float32)
        if not np.isfinite(array).all():
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            stacked = name.split("/").count("layers") and array.ndim > 1
            layer = int(np.argwhere(~np.isfinite(array))[0][0])
            return f"{name} of layer {layer}" if stacked else name
    return None
