# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny models of the encoders that are a BERT by configuration."""

from typing import Any

from family_case import FamilyCase

SIZES = {
    "vocab_size": 67,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 34,
}


def roberta(name: str, head: str, model_type: str = "roberta", **fields: Any) -> FamilyCase:
    prefix = {"roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
    settings = SIZES | fields.pop("settings", {})
    return FamilyCase(name, prefix[model_type] + head, model_type, settings, **fields)


CASES = (
    FamilyCase("bert", "BertModel", "bert", SIZES, second=True),
    FamilyCase("bert-left", "BertForMaskedLM", "bert", SIZES, left=True),
)
LATER = (
    FamilyCase("bert-questions", "BertForQuestionAnswering", "bert", SIZES, second=True),
    roberta("roberta", "Model"),
    roberta("roberta-left", "ForMaskedLM", left=True, special=(1,)),
    roberta("roberta-untied", "ForMaskedLM", settings={"tie_word_embeddings": False}),
)
