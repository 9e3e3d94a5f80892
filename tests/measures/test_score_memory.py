# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of long texts form no array of queries times keys, and follow the scale of the model."""

import re

import jax
import laid_out
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.kernels.attention import attention
from flaxattn.measures.scores import NOTES, ScoreSums, dense_values
from flaxattn.measures.specs import ScoreOptions, ScoreSpec
from flaxattn.measures.terms import terms_of
from flaxattn.models.bert import Bert
from flaxattn.pipeline.run import AttentionProgram, run_program
from flaxattn.trace.record import AttentionRecord

LENGTH = 2048


@pytest.mark.slow
def test_no_array_of_queries_times_keys() -> None:
    terms = terms_of(laid_out.plain(LENGTH - 2), ScoreOptions(annotated=False))
    sums = ScoreSums.of([terms])
    labels, notes = sums.packed([terms], 1, (LENGTH, LENGTH), sums.room([terms]))
    config = fa.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=LENGTH,
    )
    module = Bert(config, capture=sums.capture)
    ids = np.ones((1, LENGTH), np.int32)
    params = jax.eval_shape(module.init, jax.random.key(0), ids)["params"]
    given = {"input_ids": ids, "attention_mask": ids, "labels": {"encoder": labels}}
    compiled = run_program.lower(module, AttentionProgram(sums), params, given, notes).compile()
    assert set(notes) == set(NOTES)
    assert not re.search(rf"{LENGTH},{LENGTH}[\],]", compiled.as_text())
    assert len(sums.parts) > 10


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.1, 0.9])
def test_a_model_with_another_scale_gets_the_scores_of_its_weights(scale: float) -> None:
    layout = laid_out.single()
    terms = terms_of(layout, ScoreOptions(relations=("nsubj", "obj")))
    sums = ScoreSums.of([terms])
    count = len(layout)
    labels, notes = sums.packed([terms], 1, (count, count), sums.room([terms]))
    draw = jax.random.split(jax.random.key(1), 3)
    q, k, v = (2 * jax.random.normal(key, (1, count, 3, 8)) for key in draw)
    weights = np.asarray(
        attention(q, k, v, scale=scale, capture=fa.Capture(weights=True))[1].weights
    )[0]
    labels = jax.tree.map(np.asarray, labels)
    _, found = attention(q, k, v, scale=scale, labels=labels, capture=sums.capture)
    record = AttentionRecord(stats={n: a[None] for n, a in found.stats.items()}, layers=(0,))
    made = sums({"encoder": record}, jax.tree.map(jax.numpy.asarray, notes))["encoder"]
    values = sums.unpacked({n: np.asarray(a)[:, 0] for n, a in made.stats.items()}, terms)
    expected = dense_values(weights, terms)
    assert values.keys() == expected.keys() and ScoreSpec("score", "governor(nsubj)") in values
    for column, value in expected.items():
        np.testing.assert_allclose(values[column][0], value, atol=2e-5, err_msg=str(column))
