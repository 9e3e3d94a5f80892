# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A BERT of two layers with random weights, that reads what the built-in one reads."""

import jax
import numpy as np

import flaxattn as fa
from flaxattn.models.task_heads import BertForMaskedLM
from flaxattn.pretrained.pretrained_encoders import PretrainedBert


def save(folder, heads, deviation, seed=0):
    """Write it as a Hugging Face directory; `deviation` is that of its weights."""
    reader = fa.from_pretrained("tiny-bert").tokenizer
    config = fa.BertConfig(
        vocab_size=reader.vocab_size,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=heads,
        intermediate_size=24,
        max_position_embeddings=64,
        initializer_range=deviation,
        architectures=("BertForMaskedLM",),
    )
    module = BertForMaskedLM(config)
    params = jax.jit(module.init)(jax.random.key(seed), np.zeros((1, 4), np.int32))["params"]
    PretrainedBert(module, params, reader, config).save_pretrained(folder)
