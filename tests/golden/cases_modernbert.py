# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny models of ModernBERT: windows shorter than the text, padding on either side, every head."""

from typing import Any

from family_case import FamilyCase

SIZES = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "max_position_embeddings": 40,
    "local_attention": 6,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "cls_token_id": 2,
    "sep_token_id": 3,
}
BIASES = {
    "norm_bias": True,
    "attention_bias": True,
    "mlp_bias": True,
    "classifier_bias": True,
}
FULL, WINDOW = "full_attention", "sliding_attention"
SCALED = {
    FULL: {"rope_type": "linear", "rope_theta": 160000.0, "factor": 2.0},
    WINDOW: {"rope_type": "default", "rope_theta": 100.0},
}


def modern(name: str, head: str, settings: dict[str, Any] | None = None, **rest: Any) -> FamilyCase:
    return FamilyCase(
        name, f"ModernBert{head}", "modernbert", SIZES | (settings or {}), sharpness=2.0, **rest
    )


CASES = (
    modern("base", "Model", {"num_hidden_layers": 4}),
    modern("base-left", "Model", BIASES, left=True),
    modern("odd-window", "Model", {"local_attention": 5, "layer_types": [WINDOW, WINDOW, FULL]}),
    modern("one-layer", "Model", {"num_hidden_layers": 1}),
    modern("scaled", "Model", {"rope_parameters": SCALED}, left=True),
    modern("masked-lm", "ForMaskedLM", special=(4,)),
    modern("masked-lm-left", "ForMaskedLM", left=True, special=(4,)),
    modern("masked-lm-biases", "ForMaskedLM", BIASES | {"tie_word_embeddings": False}),
    modern("masked-lm-plain", "ForMaskedLM", {"decoder_bias": False}),
    # Upstream pools position 0, which padding on the left moves out of the windows of longer texts.
    modern("sequence-cls", "ForSequenceClassification", {"local_attention": 8}, limit=9),
    modern("sequence-mean", "ForSequenceClassification", {"classifier_pooling": "mean"}, left=True),
    modern("tokens", "ForTokenClassification", {"classifier_activation": "relu", "num_labels": 5}),
    modern("questions", "ForQuestionAnswering", {"hidden_activation": "silu"}, left=True),
)
