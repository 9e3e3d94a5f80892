# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny models of GPT-2: every class, and texts as long as its table of positions."""

from typing import Any

from family_case import FamilyCase

SIZES = {
    "vocab_size": 67,
    "n_positions": 80,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 1,
}
OWN = {"lengths", "left", "limit"}


def gpt2(name: str, head: str = "LMHeadModel", **fields: Any) -> FamilyCase:
    """A case; other keywords than those of `FamilyCase` are settings of the model."""
    own = {"lengths": (9, 6), **{name: fields.pop(name) for name in OWN & fields.keys()}}
    # Weights are drawn by their second axis, which is three times as long in GPT-2.
    own |= {"kind": "decoder", "sharpness": 2.8, "first_id": 3}
    return FamilyCase(name, "GPT2" + head, "gpt2", SIZES | fields, **own)


CASES = (
    gpt2("gpt2"),
    gpt2("padded-left", left=True, n_head=2),
    gpt2("narrow-inner", n_inner=20, activation_function="relu", n_layer=3),
    gpt2("untied", tie_word_embeddings=False, activation_function="gelu"),
    gpt2("one-head-to-the-limit", n_head=1, n_positions=21, lengths=(21, 1), limit=21),
    gpt2("deep", n_layer=5, n_embd=24, n_head=8, layer_norm_epsilon=1e-3),
    gpt2("without-head", "Model", n_embd=20),
    gpt2("classifier", "ForSequenceClassification", num_labels=3),
)
