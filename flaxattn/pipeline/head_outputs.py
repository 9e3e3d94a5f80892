# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of a model's head for many texts, in batches of few shapes.

What is made of them is decided by `answer_question` and `classify`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from flaxattn.pipeline.device_step import Arguments
from flaxattn.pipeline.run import ModelRunner, mesh_of
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.readings import TokenizedTexts


@dataclasses.dataclass(frozen=True)
class _Fields:
    """Program that returns fields of a model's output."""

    names: tuple[str, ...]

    def __call__(
        self, module: nn.Module, params: Any, given: Arguments, notes: Arguments
    ) -> Float[Array, "N B ..."]:
        out = module.apply({"params": params}, **given)
        return jnp.stack([getattr(out, name).astype(jnp.float32) for name in self.names])

    def label(self, number: int) -> str:
        return self.names[number]


def head_outputs(
    model: Pretrained,
    rows: Sequence[TokenizedTexts],
    fields: tuple[str, ...],
    names: Sequence[str],
    batch_tokens: int | None = None,
    *,
    by_token: bool = False,
) -> list[Float[np.ndarray, "N ..."]]:
    """Run a model on tokenized texts and return fields of its output, stacked, for each text.

    Memory: the fields, and two batches.

    Args:
        model: The model.
        rows: The texts.
        fields: Names of fields of one shape.
        names: Of the texts, for errors.
        batch_tokens: Positions of a batch, padding counted.
        by_token: Whether fields have an axis of positions, which is cut to those of the text.
    """
    runner = ModelRunner([model], _Fields(fields), mesh=mesh_of(), batch_tokens=batch_tokens)

    def trim(text: int, output: Float[np.ndarray, "N 1 ..."]) -> Float[np.ndarray, "N 1 ..."]:
        return output[:, :, : rows[text].lengths[0]] if by_token else output

    found: list[np.ndarray] = [np.zeros(0)] * len(rows)
    for text, _, (output,) in runner.run(rows, names, trim=trim):
        found[text] = output[:, 0]
    return found
