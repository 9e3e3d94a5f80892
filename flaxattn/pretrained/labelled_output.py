# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a call of a model: labels checked and their loss added, as a mapping or a tuple.

Inside a compiled program a wrong label gives a wrong loss without a word; here it gives an error.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from flaxattn.errors import InputError
from flaxattn.models.outputs import (
    IGNORED,
    LABEL_NAMES,
    PAIR_LABELS,
    ModelOutput,
    Seq2SeqOutput,
    check_names,
    head_loss,
    problem_of,
)

_compiled = functools.partial(jax.jit, static_argnames=("architecture", "config"))(head_loss)


def check_label_names(labels: Mapping[str, Any]) -> None:
    """Check that further keywords of a call are labels of some head."""
    if unknown := set(labels) - set(LABEL_NAMES):
        raise TypeError(f"a call got an unexpected keyword argument {min(unknown)!r}")


def answered(
    config: Any,
    out: ModelOutput | Seq2SeqOutput,
    labels: Mapping[str, Any],
    return_dict: bool | None = None,
) -> Any:
    """Add the loss of labels to an output, and return it in the form that was requested."""
    architecture = config.architectures[0]
    given = {name: value for name, value in labels.items() if value is not None}
    if given:
        check_names(architecture, given)
        shapes = {name: value.shape for name, value in out.fields().items() if "logits" in name}
        checked = {n: _checked(architecture, n, v, shapes, config) for n, v in given.items()}
        loss = _compiled(architecture=architecture, out=out, labels=checked, config=config)
        out = out.replace(loss=loss)
    return out.to_tuple() if return_dict is False else out


def _checked(
    architecture: str, name: str, value: Any, shapes: Mapping[str, tuple[int, ...]], config: Any
) -> Any:
    """Labels as an array of the shape and range that the loss takes."""
    array = value if isinstance(value, Tracer) else _array(name, value)
    scores = shapes.get("logits", shapes.get("prediction_logits", ()))
    if name in ("start_positions", "end_positions"):
        return _whole(name, array, (shapes["start_logits"][0],), None)
    if name != "labels":
        return _whole(name, array, shapes[PAIR_LABELS[architecture][1]][:-1], 2)
    if architecture.endswith("ForSequenceClassification"):
        problem = problem_of(config, array)
        if problem != "single_label_classification":
            wide = scores if problem.startswith("multi") or scores[-1] > 1 else scores[:1]
            return _shaped(name, array, wide).astype(np.float32)
    return _whole(name, array, scores[:-1], scores[-1])


def _array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: this is not an array: {error}.") from error
    if array.dtype.kind not in "iubf":
        raise InputError(f"{name}: expected numbers, received dtype {array.dtype}.")
    return array


def _shaped(name: str, array: Any, shape: tuple[int, ...]) -> Any:
    if array.shape not in (shape, (*shape, 1)):
        raise InputError(
            f"{name}: expected shape {list(shape)}, received {list(array.shape)}.\n"
            "Give labels for every row of input_ids, in the same order."
        )
    return array


def _whole(name: str, array: Any, shape: tuple[int, ...], classes: int | None) -> Any:
    """Class numbers, each in its range or `IGNORED`."""
    array = _shaped(name, array, shape)
    if isinstance(array, Tracer):
        return array
    if array.dtype.kind not in "iu":
        raise InputError(f"{name}: expected integers, received dtype {array.dtype}.")
    wrong = array[(array != IGNORED) & ((array < 0) | (array >= (classes or np.inf)))]
    if wrong.size and classes is not None:
        raise InputError(
            f"{name}: expected numbers from 0 to {classes - 1}, or {IGNORED} where there is no "
            f"label, received {wrong.flat[0]}.\nCount classes from 0, as config.json does."
        )
    return array.astype(np.int32)
