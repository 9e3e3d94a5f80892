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
DISTIL = {
    "vocab_size": 67,
    "dim": 32,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 48,
    "max_position_embeddings": 32,
}
PREFIXES = {
    "roberta": "Roberta",
    "xlm-roberta": "XLMRoberta",
    "camembert": "Camembert",
    "distilbert": "DistilBert",
    "electra": "Electra",
    "albert": "Albert",
    "mpnet": "MPNet",
    "esm": "Esm",
}
OWN = {"lengths", "left", "limit", "second", "special"}
NARROW = {"embedding_size": 20}
ESM = {"mask_token_id": 32, "pad_token_id": 1}
ESM2 = ESM | {"position_embedding_type": "rotary", "token_dropout": True}
THREE = {"num_labels": 3}


def case(name: str, model_type: str, head: str = "Model", **fields: Any) -> FamilyCase:
    """A case; other keywords than those of `FamilyCase` are settings of the model."""
    own = {"lengths": (8, 5), **{name: fields.pop(name) for name in OWN & fields.keys()}}
    sizes = DISTIL if model_type == "distilbert" else SIZES
    return FamilyCase(name, PREFIXES[model_type] + head, model_type, sizes | fields, **own)


CASES = (
    case("roberta", "roberta", type_vocab_size=2, second=True),
    case("roberta-mlm-left", "roberta", "ForMaskedLM", left=True, special=(1,)),
    case("roberta-mlm-untied", "roberta", "ForMaskedLM", tie_word_embeddings=False),
    case("roberta-sequence", "roberta", "ForSequenceClassification", **THREE),
    case("roberta-tokens", "roberta", "ForTokenClassification", left=True, **THREE),
    case("roberta-questions", "roberta", "ForQuestionAnswering"),
    case("xlm-roberta", "xlm-roberta", "ForMaskedLM", type_vocab_size=1),
    case("xlm-roberta-sequence", "xlm-roberta", "ForSequenceClassification"),
    case("camembert", "camembert", "ForTokenClassification", type_vocab_size=1),
    case("camembert-mlm", "camembert", "ForMaskedLM", pad_token_id=3, limit=30),
    case("distilbert", "distilbert", left=True, activation="relu"),
    case("distilbert-mlm", "distilbert", "ForMaskedLM"),
    case("distilbert-sequence", "distilbert", "ForSequenceClassification"),
    case("distilbert-tokens", "distilbert", "ForTokenClassification", **THREE),
    case("distilbert-questions", "distilbert", "ForQuestionAnswering"),
    case("electra", "electra", second=True, **NARROW),
    case("electra-wide", "electra", "ForMaskedLM", embedding_size=32),
    case("electra-generator", "electra", "ForMaskedLM", left=True, hidden_act="relu", **NARROW),
    case("electra-discriminator", "electra", "ForPreTraining", **NARROW),
    case("electra-sequence", "electra", "ForSequenceClassification", **NARROW),
    case("electra-tokens", "electra", "ForTokenClassification", **NARROW),
    case("electra-questions", "electra", "ForQuestionAnswering", **NARROW),
    case("albert", "albert", second=True, num_hidden_layers=3, **NARROW),
    case("albert-mlm", "albert", "ForMaskedLM", left=True, **NARROW),
    case("albert-mlm-untied", "albert", "ForMaskedLM", tie_word_embeddings=False, **NARROW),
    case("albert-pretraining", "albert", "ForPreTraining", embedding_size=32),
    case("albert-sequence", "albert", "ForSequenceClassification", **NARROW),
    case("albert-tokens", "albert", "ForTokenClassification", **NARROW, **THREE),
    case("albert-questions", "albert", "ForQuestionAnswering", **NARROW),
    case("mpnet", "mpnet"),
    case("mpnet-mlm", "mpnet", "ForMaskedLM", left=True),
    case("mpnet-far", "mpnet", "ForTokenClassification", max_position_embeddings=202, limit=200),
    case("mpnet-sequence", "mpnet", "ForSequenceClassification"),
    case("mpnet-questions", "mpnet", "ForQuestionAnswering"),
    case("esm2", "esm", special=(32,), **ESM2),
    case("esm2-mlm", "esm", "ForMaskedLM", special=(32,), **ESM2),
    case("esm2-left", "esm", "ForTokenClassification", left=True, special=(32,), **ESM2),
    case("esm2-sequence", "esm", "ForSequenceClassification", **ESM2),
    case("esm-absolute", "esm", "ForMaskedLM", emb_layer_norm_before=True, left=True, **ESM),
)
