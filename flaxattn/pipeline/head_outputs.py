# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of a model's head for many texts, in batches of few shapes.

What is made of them is decided by `answer_question` and `classify`.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from flaxattn.kernels.contract import NOTHING
from flaxattn.pipeline.batch_loop import each_batch
from flaxattn.pipeline.batches import Batch, planned, stacked
from flaxattn.pipeline.extraction import room_for
from flaxattn.pipeline.hidden_states import fetched
from flaxattn.pretrained.nonfinite_error import refusal
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.readings import TokenizedTexts


def head_outputs(
    model: Pretrained,
    rows: Sequence[TokenizedTexts],
    fields: tuple[str, ...],
    names: Sequence[str],
    batch_tokens: int | None = None,
) -> list[list[Float[np.ndarray, "..."]]]:
    """Run a model on tokenized texts and return fields of its output.

    Memory: the fields, and two batches.
    """
    module = model.module.clone(capture=NOTHING, keep_hidden=False)
    room = room_for([model], NOTHING, 1, batch_tokens)._replace(packs=False)
    batches = planned([row.lengths for row in rows], model.limit, room)
    outputs: list[list[np.ndarray]] = [[] for _ in rows]

    def begin(batch: Batch) -> tuple[Array, ...]:
        return _fields(module, model.params, stacked(rows, batch), fields)

    for batch, arrays in each_batch(batches, begin, fetched):
        for place in batch.places:
            outputs[place.text] = [array[place.row] for array in arrays]
    for name, row, arrays in zip(names, rows, outputs, strict=True):
        if not all(np.isfinite(_real(array, row)).all() for array in arrays):
            problem = f"the {fields[0]} are NaN or infinite for {name}"
            raise refusal(model.name, model.params, problem, go_on=False)
    return outputs


def _real(array: np.ndarray, row: TokenizedTexts) -> np.ndarray:
    """Scores of a text, or of its positions without padding."""
    return array[: row.lengths[0]] if len(array) >= row.lengths[0] else array


@functools.partial(jax.jit, static_argnames=("module", "fields"))
def _fields(
    module: nn.Module, params: Any, given: Any, fields: tuple[str, ...]
) -> tuple[Float[Array, "B ..."], ...]:
    out = module.apply({"params": params}, **given)
    return tuple(getattr(out, field).astype(jnp.float32) for field in fields)
