# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Decoders by Hugging Face's `model_type`: which setting of their `config.json` sets which switch.

One table row per model type. A value that is a `Setting` is read from `config.json` under that
key; any other value is what all models of that type have.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

OWN = "flaxattn_decoder"
"""`model_type` of decoders with a combination of switches that no published type has."""


class Setting(NamedTuple):
    """A key of a `config.json`, and what is meant where it is absent."""

    key: str
    default: Any = None


class DecoderType(NamedTuple):
    """One model type.

    Attributes:
        stem: Beginning of its class names, as in `LlamaForCausalLM`.
        switches: Fields of `DecoderConfig`; those left out are as in `_SHARED`.
        names: Name of the table of tensor names that its checkpoints follow.
        windowed: From settings and a layer's number, whether the layer has the sliding window.
        window_switch: Setting that must be true for any layer to have it, whatever `layer_types`
            says; None for none.
        theta: Base of the rotary wavelengths where config.json names none.
        local_theta: The same for layers with a window, where these have their own.
        answers_below: Prefix of the backbone's tensors in its question answering model.
    """

    stem: str
    switches: Mapping[str, Any]
    names: str = "llama"
    windowed: Callable[[Mapping[str, Any], int], bool] = lambda settings, layer: True
    window_switch: str | None = None
    theta: float = 10000.0
    local_theta: float | None = None
    answers_below: str = "model."


_SHARED: Mapping[str, Any] = {
    "vocab_size": Setting("vocab_size", 32000),
    "hidden_size": Setting("hidden_size", 4096),
    "intermediate_size": Setting("intermediate_size", 11008),
    "num_hidden_layers": Setting("num_hidden_layers", 32),
    "num_attention_heads": Setting("num_attention_heads", 32),
    "num_key_value_heads": Setting("num_key_value_heads"),
    "head_dim": Setting("head_dim"),
    "hidden_act": Setting("hidden_act", "silu"),
    "max_position_embeddings": Setting("max_position_embeddings", 2048),
    "initializer_range": Setting("initializer_range", 0.02),
    "norm_eps": Setting("rms_norm_eps", 1e-6),
    "tie_word_embeddings": Setting("tie_word_embeddings", False),
    "attention_dropout": Setting("attention_dropout", 0.0),
    "bos_token_id": Setting("bos_token_id"),
    "eos_token_id": Setting("eos_token_id"),
    "pad_token_id": Setting("pad_token_id"),
}
_BIASES = {
    "input_bias": Setting("attention_bias", False),
    "output_bias": Setting("attention_bias", False),
}
_QWEN = {
    "num_key_value_heads": Setting("num_key_value_heads", 32),
    "vocab_size": Setting("vocab_size", 151936),
    "intermediate_size": Setting("intermediate_size", 22016),
    "max_position_embeddings": Setting("max_position_embeddings", 32768),
    "sliding_window": Setting("sliding_window", 4096),
}
_GEMMA = {
    "vocab_size": Setting("vocab_size", 256000),
    "hidden_size": Setting("hidden_size", 2304),
    "intermediate_size": Setting("intermediate_size", 9216),
    "num_hidden_layers": Setting("num_hidden_layers", 26),
    "num_attention_heads": Setting("num_attention_heads", 8),
    "num_key_value_heads": Setting("num_key_value_heads", 4),
    "head_dim": Setting("head_dim", 256),
    "hidden_act": Setting("hidden_activation", "gelu_pytorch_tanh"),
    "max_position_embeddings": Setting("max_position_embeddings", 8192),
    "tie_word_embeddings": Setting("tie_word_embeddings", True),
    "bos_token_id": Setting("bos_token_id", 2),
    "eos_token_id": Setting("eos_token_id", 1),
    "pad_token_id": Setting("pad_token_id", 0),
    "norm": "rms_plus_one",
    "scale_embedding": True,
    **_BIASES,
}
_GEMMA_2 = {
    **_GEMMA,
    "norm_places": "both",
    "query_pre_attn_scalar": Setting("query_pre_attn_scalar", 256),
    "sliding_window": Setting("sliding_window", 4096),
    "attn_logit_softcapping": Setting("attn_logit_softcapping", 50.0),
    "final_logit_softcapping": Setting("final_logit_softcapping", 30.0),
}


def _from_layer(settings: Mapping[str, Any], layer: int) -> bool:
    return layer >= settings.get("max_window_layers", 28)


def _without_rotary(settings: Mapping[str, Any], layer: int) -> bool:
    return bool(settings.get("use_sliding_window", False)) and not has_rotary(settings, layer)


def has_rotary(settings: Mapping[str, Any], layer: int) -> bool:
    """Return whether a layer of a SmolLM3 has rotary positions."""
    if (rotary := settings.get("no_rope_layers")) is not None:
        return bool(rotary[layer])
    return (layer + 1) % (settings.get("no_rope_layer_interval") or 4) != 0


TYPES: Mapping[str, DecoderType] = {
    "llama": DecoderType(
        "Llama",
        {**_BIASES, "mlp_bias": Setting("mlp_bias", False)}
        | {"bos_token_id": Setting("bos_token_id", 1), "eos_token_id": Setting("eos_token_id", 2)},
        answers_below="transformer.",
    ),
    "mistral": DecoderType(
        "Mistral",
        {
            "num_key_value_heads": Setting("num_key_value_heads", 8),
            "intermediate_size": Setting("intermediate_size", 14336),
            "max_position_embeddings": Setting("max_position_embeddings", 131072),
            "sliding_window": Setting("sliding_window", 4096),
            "bos_token_id": Setting("bos_token_id", 1),
            "eos_token_id": Setting("eos_token_id", 2),
        },
    ),
    "qwen2": DecoderType(
        "Qwen2",
        {**_QWEN, "input_bias": True},
        windowed=_from_layer,
        window_switch="use_sliding_window",
        answers_below="transformer.",
    ),
    "qwen3": DecoderType(
        "Qwen3",
        {**_QWEN, **_BIASES, "head_norm": "each", "head_dim": Setting("head_dim", 128)},
        windowed=_from_layer,
        window_switch="use_sliding_window",
        answers_below="transformer.",
    ),
    "gemma": DecoderType(
        "Gemma",
        _GEMMA
        | {
            "hidden_size": Setting("hidden_size", 3072),
            "intermediate_size": Setting("intermediate_size", 24576),
            "num_hidden_layers": Setting("num_hidden_layers", 28),
            "num_attention_heads": Setting("num_attention_heads", 16),
            "num_key_value_heads": Setting("num_key_value_heads", 16),
            "hidden_act": Setting("hidden_act", "gelu_pytorch_tanh"),
        },
    ),
    "gemma2": DecoderType("Gemma2", _GEMMA_2, windowed=lambda settings, layer: layer % 2 == 0),
    "gemma3_text": DecoderType(
        "Gemma3",
        _GEMMA_2
        | {
            "vocab_size": Setting("vocab_size", 262208),
            "max_position_embeddings": Setting("max_position_embeddings", 131072),
            "attn_logit_softcapping": Setting("attn_logit_softcapping"),
            "final_logit_softcapping": Setting("final_logit_softcapping"),
            "head_norm": "each",
        },
        windowed=lambda settings, layer: bool(
            (layer + 1) % (settings.get("sliding_window_pattern") or 6)
        ),
        theta=1_000_000.0,
        local_theta=10000.0,
    ),
    "phi3": DecoderType(
        "Phi3",
        {
            "vocab_size": Setting("vocab_size", 32064),
            "hidden_size": Setting("hidden_size", 3072),
            "intermediate_size": Setting("intermediate_size", 8192),
            "max_position_embeddings": Setting("max_position_embeddings", 4096),
            "norm_eps": Setting("rms_norm_eps", 1e-5),
            "sliding_window": Setting("sliding_window"),
            "residual_dropout": Setting("resid_pdrop", 0.0),
            "embedding_dropout": Setting("embd_pdrop", 0.0),
            "bos_token_id": Setting("bos_token_id", 1),
            "eos_token_id": Setting("eos_token_id", 32000),
            "pad_token_id": Setting("pad_token_id", 32000),
        },
        names="phi3",
    ),
    "smollm3": DecoderType(
        "SmolLM3",
        {
            **_BIASES,
            "vocab_size": Setting("vocab_size", 128256),
            "hidden_size": Setting("hidden_size", 2048),
            "num_hidden_layers": Setting("num_hidden_layers", 36),
            "num_attention_heads": Setting("num_attention_heads", 16),
            "num_key_value_heads": Setting("num_key_value_heads", 4),
            "max_position_embeddings": Setting("max_position_embeddings", 32768),
            "mlp_bias": Setting("mlp_bias", False),
            "sliding_window": Setting("sliding_window"),
            "tie_word_embeddings": Setting("tie_word_embeddings", True),
            "bos_token_id": Setting("bos_token_id", 128000),
            "eos_token_id": Setting("eos_token_id", 128001),
            "pad_token_id": Setting("pad_token_id", 128004),
        },
        windowed=_without_rotary,
        theta=2_000_000.0,
        answers_below="transformer.",
    ),
    "olmo2": DecoderType(
        "Olmo2",
        {
            **_BIASES,
            "vocab_size": Setting("vocab_size", 50304),
            "norm_eps": Setting("rms_norm_eps", 1e-5),
            "norm_places": "after",
            "head_norm": "all",
            "eos_token_id": Setting("eos_token_id", 50279),
            "pad_token_id": Setting("pad_token_id", 1),
        },
    ),
    "starcoder2": DecoderType(
        "Starcoder2",
        {
            "vocab_size": Setting("vocab_size", 49152),
            "hidden_size": Setting("hidden_size", 3072),
            "intermediate_size": Setting("intermediate_size", 12288),
            "num_hidden_layers": Setting("num_hidden_layers", 30),
            "num_attention_heads": Setting("num_attention_heads", 24),
            "num_key_value_heads": Setting("num_key_value_heads", 2),
            "hidden_act": Setting("hidden_act", "gelu_pytorch_tanh"),
            "max_position_embeddings": Setting("max_position_embeddings", 4096),
            "initializer_range": Setting("initializer_range", 0.018042),
            "norm": "layer",
            "norm_eps": Setting("norm_epsilon", 1e-5),
            "gated": False,
            "input_bias": Setting("use_bias", True),
            "output_bias": Setting("use_bias", True),
            "mlp_bias": Setting("use_bias", True),
            "sliding_window": Setting("sliding_window"),
            "residual_dropout": Setting("residual_dropout", 0.0),
            "embedding_dropout": Setting("embedding_dropout", 0.0),
            "tie_word_embeddings": Setting("tie_word_embeddings", True),
            "bos_token_id": Setting("bos_token_id", 50256),
            "eos_token_id": Setting("eos_token_id", 50256),
        },
        names="starcoder2",
    ),
    "gpt_neox": DecoderType(
        "GPTNeoX",
        {
            "vocab_size": Setting("vocab_size", 50432),
            "hidden_size": Setting("hidden_size", 6144),
            "intermediate_size": Setting("intermediate_size", 24576),
            "num_hidden_layers": Setting("num_hidden_layers", 44),
            "num_attention_heads": Setting("num_attention_heads", 64),
            "num_key_value_heads": None,
            "head_dim": None,
            "hidden_act": Setting("hidden_act", "gelu"),
            "norm": "layer",
            "norm_eps": Setting("layer_norm_eps", 1e-5),
            "gated": False,
            "input_bias": Setting("attention_bias", True),
            "output_bias": Setting("attention_bias", True),
            "mlp_bias": True,
            "parallel_residual": Setting("use_parallel_residual", True),
            "residual_dropout": Setting("hidden_dropout", 0.0),
            "embedding_dropout": Setting("hidden_dropout", 0.0),
            "bos_token_id": Setting("bos_token_id", 0),
            "eos_token_id": Setting("eos_token_id", 2),
        },
        names="gpt_neox",
    ),
    OWN: DecoderType("Flaxattn", {}),  # every field of the configuration, under its own name
}


def switches(kind: str) -> Mapping[str, Any]:
    """Row of the table for one model type, with what all types share."""
    return {**_SHARED, **TYPES[kind].switches}
