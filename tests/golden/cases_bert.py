# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny models of BERT itself: every class, one head to sixteen, with and without a mask."""

from typing import Any

from family_case import FamilyCase

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
OWN = {"lengths", "left", "limit", "second", "masked", "positions"}


def bert(name: str, head: str = "Model", **fields: Any) -> FamilyCase:
    """A case; other keywords than those of `FamilyCase` are settings of the model."""
    own = {"lengths": (8, 5), **{name: fields.pop(name) for name in OWN & fields.keys()}}
    return FamilyCase(name, "Bert" + head, "bert", SIZES | fields, **own)


CASES = (
    bert("plain", second=True),
    bert("one-position", lengths=(1, 1), num_attention_heads=1, num_hidden_layers=1),
    bert("positions-left", left=True, positions=True),
    bert("longest", limit=512, max_position_embeddings=512, num_attention_heads=2, hidden_size=16),
    bert("pretraining-pair", "ForPreTraining", second=True, hidden_act="gelu_new"),
    bert(
        "many-heads-left",
        "ForMaskedLM",
        left=True,
        limit=40,
        num_attention_heads=16,
        num_hidden_layers=4,
    ),
    bert(
        "untied-wide-head",
        "ForMaskedLM",
        tie_word_embeddings=False,
        hidden_size=128,
        num_attention_heads=1,
        hidden_act="gelu_pytorch_tanh",
    ),
    bert("sentences", "ForNextSentencePrediction", lengths=(2,), masked=False, hidden_act="relu"),
    bert(
        "sequence-odd-sizes",
        "ForSequenceClassification",
        lengths=(9, 9),
        masked=False,
        second=True,
        num_labels=3,
        hidden_size=39,
        num_attention_heads=3,
        intermediate_size=50,
        type_vocab_size=3,
        layer_norm_eps=1e-5,
        hidden_act="silu",
    ),
    bert(
        "tokens-left",
        "ForTokenClassification",
        lengths=(12, 8, 1),
        left=True,
        num_labels=5,
        hidden_act="relu",
    ),
    bert("questions", "ForQuestionAnswering", second=True, num_hidden_layers=3),
)
