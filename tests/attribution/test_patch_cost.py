# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Patching multiplies no more numbers than as many plain forward passes."""

import math
from typing import Any

import jax
import numpy as np
import pytest
from small_models import drawn

import flaxattn as fa
from flaxattn.attribution.patch_task import patch_task, scores_at
from flaxattn.attribution.patching import Changes, PatchProgram, Sweep, patch_batch
from flaxattn.models.task_heads import BertForMaskedLM
from flaxattn.pretrained.pretrained_encoders import PretrainedBert

LAYERS, HEADS = 3, 4
PAIRS = [
    fa.TextPair("the cat is [MASK]", "the b is [MASK]", "sad", "very"),
    fa.TextPair("a cat is [MASK]", "a c is [MASK]", "sad", "a"),
]


@pytest.fixture(scope="module")
def masked(bert: PretrainedBert) -> PretrainedBert:
    """A masked language model of 3 layers with 4 heads."""
    config = fa.BertConfig(
        vocab_size=bert.tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=64,
        max_position_embeddings=48,
    )
    module = BertForMaskedLM(config)
    params = drawn(module, np.ones((1, 2), np.int32))
    return PretrainedBert(module, params, bert.tokenizer, config, "masked")


def products(jaxpr: Any) -> int:
    """Multiplications in the matrix products of a program; bodies of loops as often as they run."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            inner = math.prod(left[axis] for axis in contracted)
            total += inner * math.prod(equation.outvars[0].aval.shape)
        times = equation.params.get("length", 1)
        if equation.primitive.name == "while":  # of the changes: a row for each step
            times = equation.outvars[-1].aval.shape[0]
        for value in jax.tree.leaves(
            equation.params, is_leaf=lambda x: isinstance(x, jax.extend.core.ClosedJaxpr)
        ):
            inner_program = getattr(value, "jaxpr", value)
            if hasattr(inner_program, "eqns"):
                total += times * products(inner_program)
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("together", "settings", "runs"),
    [
        (2048, {}, 1),
        (32, {}, 1),
        (2048, {"frozen": ("head_output",)}, 1),
        (2048, {"frozen": ("head_output",), "into": ("query", "key", "value")}, 2),
    ],
)
def test_patching_is_a_forward_pass_for_each_head(
    masked: Any, together: int, settings: Any, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flaxattn.attribution.patching.TOGETHER", together)
    task = patch_task(masked, PAIRS)
    (batch, _), *_ = task.batches()
    program = PatchProgram.of(
        masked.module,
        "logit-diff",
        "head_output",
        sweeps=(Sweep("encoder", "denoise"),),
        sides=("encoder",),
        **settings,
    )
    units = LAYERS * HEADS
    masks = np.eye(units, dtype=bool).reshape(units, LAYERS, HEADS, 1)
    ends = (np.eye(LAYERS, HEADS, dtype=bool),) if settings.get("into") else None

    def patched(params: Any, batch: Any, masks: Any) -> Any:
        changes = (Changes(masks, np.int32(units)),)
        return patch_batch.__wrapped__(program, params, batch, changes, None, ends)

    def plain(params: Any, batch: Any) -> Any:
        variables = {"params": params}
        return scores_at(program.module, variables, batch.clean, batch.places)[0]

    whole = products(jax.make_jaxpr(patched)(masked.params, batch, masks).jaxpr)
    one = products(jax.make_jaxpr(plain)(masked.params, batch).jaxpr)
    assert one > 100_000
    assert (runs * units + 2) * one * 0.9 < whole <= 1.3 * runs * units * one
