# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny models of Marian and BART: sides of unequal depth and heads, shared and own vocabularies."""

from typing import Any

from family_case import FamilyCase

SIZES = {
    "vocab_size": 67,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "forced_eos_token_id": 2,
}
OWN = {"lengths", "left", "limit", "unused", "changed"}
# Of models whose sides have words of their own.
SHARED = ("model.shared.weight",)


def case(name: str, architecture: str, **fields: Any) -> FamilyCase:
    """A case; other keywords than those of `FamilyCase` are settings of the model."""
    own = {"lengths": (9, 6), **{name: fields.pop(name) for name in OWN & fields.keys()}}
    own |= {"kind": "seq2seq", "sharpness": 1.6, "first_id": 3}
    model_type, start = ("marian", 1) if architecture.startswith("Marian") else ("bart", 2)
    settings = SIZES | {"decoder_start_token_id": start} | fields
    return FamilyCase(name, architecture, model_type, settings, **own)


CASES = (
    case("marian", "MarianMTModel", activation_function="swish", scale_embedding=True),
    case(
        "two-vocabularies",
        "MarianMTModel",
        share_encoder_decoder_embeddings=False,
        decoder_vocab_size=61,
        encoder_layers=1,
        decoder_layers=3,
        activation_function="relu",
        left=True,
    ),
    case(
        "untied-unequal-heads",
        "MarianMTModel",
        tie_word_embeddings=False,
        unused=SHARED,
        changed=("share_encoder_decoder_embeddings",),  # the tensor that they share is unused
        encoder_attention_heads=8,
        decoder_attention_heads=2,
    ),
    case("marian-without-head", "MarianModel", lengths=(18, 1), d_model=20, limit=40),
    case("bart", "BartForConditionalGeneration"),
    case(
        "bart-deep-decoder",
        "BartForConditionalGeneration",
        scale_embedding=True,
        encoder_layers=1,
        decoder_layers=4,
        encoder_attention_heads=1,
        left=True,
    ),
    case(
        "bart-untied",
        "BartForConditionalGeneration",
        tie_word_embeddings=False,
        unused=SHARED,
        decoder_ffn_dim=70,
        activation_function="gelu_new",
    ),
    case("bart-without-head", "BartModel", encoder_layers=3, decoder_attention_heads=16),
)
