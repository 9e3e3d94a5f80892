# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tiny models of the decoders with rotary positions: every model type and every switch."""

from typing import Any

from family_case import FamilyCase

SIZES = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 48,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def case(
    name: str, stem: str, model_type: str, head: str = "ForCausalLM", **fields: Any
) -> FamilyCase:
    settings = SIZES | fields.pop("settings", {})
    return FamilyCase(name, stem + head, model_type, settings, kind="decoder", **fields)


def llama(name: str, head: str = "ForCausalLM", **fields: Any) -> FamilyCase:
    return case(name, "Llama", "llama", head, **fields)


def rope(kind: str, **values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 100.0, **values}}


FACTORS = [1.0, 1.1, 1.3, 1.7]
CASES = (
    llama("llama-base", "Model"),
    llama("llama-left", left=True, settings={"head_dim": 12, "attention_bias": True}),
    llama("llama-classifier", "ForSequenceClassification", settings={"mlp_bias": True}),
    llama("llama-tokens", "ForTokenClassification", settings={"num_key_value_heads": 4}),
    llama("llama-questions", "ForQuestionAnswering"),
    case("mistral-questions", "Mistral", "mistral", "ForQuestionAnswering", left=True),
    case("neox-questions", "GPTNeoX", "gpt_neox", "ForQuestionAnswering"),
    llama("linear", settings=rope("linear", factor=3.0)),
    llama(
        "dynamic", limit=16, settings=rope("dynamic", factor=2.0) | {"max_position_embeddings": 8}
    ),
    llama(
        "llama3",
        settings=rope(
            "llama3",
            factor=4.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=16,
        ),
    ),
    llama("yarn", settings=rope("yarn", factor=4.0, original_max_position_embeddings=12)),
    case("mistral", "Mistral", "mistral", settings={"sliding_window": 5}),
    case(
        "qwen2",
        "Qwen2",
        "qwen2",
        settings={"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    case("qwen3-left", "Qwen3", "qwen3", left=True, settings={"head_dim": 16}),
    case("gemma", "Gemma", "gemma", settings={"head_dim": 8, "num_key_value_heads": 1}),
    case(
        "gemma2",
        "Gemma2",
        "gemma2",
        settings={
            "head_dim": 8,
            "sliding_window": 4,
            "query_pre_attn_scalar": 20,
            "attn_logit_softcapping": 3.0,
            "final_logit_softcapping": 2.0,
        },
    ),
    case(
        "gemma3",
        "Gemma3",
        "gemma3_text",
        settings={
            "head_dim": 8,
            "sliding_window": 4,
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1000.0},
            },
        },
    ),
    case(
        "phi3",
        "Phi3",
        "phi3",
        settings=rope("longrope", short_factor=FACTORS[:3], long_factor=FACTORS[1:])
        | {"original_max_position_embeddings": 8, "partial_rotary_factor": 0.75},
    ),
    case(
        "smollm3",
        "SmolLM3",
        "smollm3",
        settings={"no_rope_layers": [1, 0], "use_sliding_window": True, "sliding_window": 5},
    ),
    case("olmo2", "Olmo2", "olmo2", sharpness=2.0),
    case("starcoder2", "Starcoder2", "starcoder2", settings={"sliding_window": 6}),
    case("neox", "GPTNeoX", "gpt_neox", settings=rope("default", partial_rotary_factor=0.5)),
    case(
        "neox-serial",
        "GPTNeoX",
        "gpt_neox",
        left=True,
        settings={"use_parallel_residual": False},
    ),
)
