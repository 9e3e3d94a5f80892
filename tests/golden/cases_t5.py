# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny models of T5 and its kin, with texts so long that far relative positions share biases."""

from typing import Any

from family_case import FamilyCase

SIZES = {
    "vocab_size": 59,
    "d_model": 24,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
}
NAMES = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}


def t5(
    name: str, model_type: str = "t5", head: str = "ForConditionalGeneration", **changes: Any
) -> FamilyCase:
    fields = {key: changes.pop(key) for key in ("lengths", "left") if key in changes}
    settings = SIZES | {"feed_forward_proj": "relu"} | changes
    if head.endswith(("ForSequenceClassification", "ForQuestionAnswering")):
        settings |= {"decoder_start_token_id": 0}  # the decoder's input is made by the model
    kind = "seq2seq" if head in ("Model", "ForConditionalGeneration") else "encoder"
    last_id = 1 if head == "ForSequenceClassification" else None
    fields |= {"kind": kind, "limit": 60, "sharpness": 1.2, "first_id": 3, "last_id": last_id}
    return FamilyCase(name, NAMES[model_type] + head, model_type, settings, **fields)


CASES = (
    t5("t5", lengths=(17, 5)),
    t5("t5-base", head="Model", left=True, lengths=(4, 7), num_decoder_layers=1),
    t5("flan", feed_forward_proj="gated-gelu", tie_word_embeddings=False, lengths=(6, 3)),
    t5("mt5", "mt5", feed_forward_proj="gated-gelu", lengths=(8, 4)),
    t5("umt5", "umt5", feed_forward_proj="gated-gelu", lengths=(4, 14), left=True),
    t5("t5-encoder", head="EncoderModel", feed_forward_proj="gated-gelu", lengths=(9, 4)),
    t5("mt5-sequence", "mt5", "ForSequenceClassification", num_labels=3, lengths=(6, 4)),
    t5("umt5-tokens", "umt5", "ForTokenClassification", left=True, lengths=(6, 4)),
    t5("t5-questions", head="ForQuestionAnswering", lengths=(6, 3)),
    t5("umt5-base", "umt5", "Model", feed_forward_proj="gated-silu", lengths=(5, 3)),
)
