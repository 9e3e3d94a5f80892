# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`DecoderConfig` reads, changes and writes the `config.json` of every decoder type."""

import dataclasses
import json
from typing import Any

import pytest

from flaxattn.errors import CheckpointError
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.decoder_types import OWN, TYPES
from flaxattn.models.positions import Rotary

PUBLISHED = sorted(set(TYPES) - {OWN})
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def read(kind: str, **changes: Any) -> DecoderConfig:
    return DecoderConfig.from_hf({**SMALL, "model_type": kind, "unknown_key": [1], **changes})


@pytest.mark.parametrize("kind", PUBLISHED)
def test_a_file_is_written_as_it_was_read(kind: str) -> None:
    config = read(kind)
    written = config.to_hf()
    assert DecoderConfig.from_hf(written) == config
    assert {**SMALL, "unknown_key": [1]}.items() <= written.items()


@pytest.mark.parametrize("kind", PUBLISHED)
def test_changed_rotary_positions_are_written(kind: str) -> None:
    before = read(kind)
    config = dataclasses.replace(
        before, rotary=dataclasses.replace(before.rotary, rope_theta=1234.0)
    )
    again = DecoderConfig.from_hf(config.to_hf())
    assert again == config
    assert again.rotary.rope_theta == 1234.0


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gemma2"])
def test_a_stretched_context_replaces_an_older_spelling(kind: str) -> None:
    before = read(kind, rope_theta=500.0, rope_scaling={"type": "linear", "factor": 2.0})
    assert before.rotary == Rotary(500.0, "linear", factor=2.0)
    yarn = Rotary(500.0, "yarn", factor=4.0, original_max_position_embeddings=128)
    config = dataclasses.replace(before, rotary=yarn)
    written = config.to_hf()
    assert DecoderConfig.from_hf(written) == config
    assert "rope_scaling" not in written


@pytest.mark.parametrize("kind", ["mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "smollm3"])
def test_changed_windows_are_written(kind: str) -> None:
    types = ("full_attention", *("sliding_attention",) * 5)
    config = dataclasses.replace(read(kind), sliding_window=16, layer_types=types)
    again = DecoderConfig.from_hf(config.to_hf())
    assert again == config
    assert again.windows == (None, *(16,) * 5)


@pytest.mark.parametrize("kind", ["mistral", "gemma2"])
def test_windows_are_taken_away(kind: str) -> None:
    config = dataclasses.replace(read(kind), sliding_window=None, layer_types=())
    assert DecoderConfig.from_hf(config.to_hf()).windows == (None,) * 6


def test_layers_without_rotary_positions_are_written() -> None:
    turned = (True, False, True, True, False, True)
    config = dataclasses.replace(read("smollm3"), rotary_layers=turned)
    assert DecoderConfig.from_hf(config.to_hf()).rotary_layers == turned


def test_what_a_type_cannot_say_is_refused_with_the_way_out() -> None:
    config = dataclasses.replace(read("llama"), head_norm="each")
    with pytest.raises(
        CheckpointError, match=r"head_norm='each': a config\.json of a llama cannot"
    ):
        config.to_hf()
    own = dataclasses.replace(config, model_type=OWN)
    assert DecoderConfig.from_hf(own.to_hf()) == own


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of"),
        ({"norm": "batch"}, "norm is 'batch', expected one of rms, rms_plus_one, layer"),
        (
            {"layer_types": ("full_attention",)},
            "layer_types names 1 layers, num_hidden_layers is 6",
        ),
        ({"layer_types": ("chunked",) * 6}, "layer_types holds 'chunked'; flaxattn implements"),
        ({"sliding_window": 0}, "sliding_window must be at least 1"),
        ({"model_type": "mamba"}, "model_type is 'mamba'; decoders are llama"),
    ],
)
def test_a_wrong_setting_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        dataclasses.replace(read("llama"), **changes)


def test_the_longest_text_grows_with_dynamic_rotary_positions() -> None:
    assert read("llama").longest == 128
    assert read("llama", rope_scaling={"type": "dynamic", "factor": 3.0}).longest == 384


def test_rotary_positions_show_what_differs_from_the_defaults() -> None:
    assert repr(Rotary()) == "Rotary(rope_theta=10000.0)"
    stretched = Rotary(500.0, "linear", factor=2.0)
    assert repr(stretched) == "Rotary(rope_theta=500.0, rope_type='linear', factor=2.0)"


def test_several_end_ids_stay_several() -> None:
    config = read("llama", eos_token_id=[5, 7])  # as in Llama 3
    assert config.end_ids == (5, 7)
    assert config.to_hf()["eos_token_id"] == [5, 7]
    own = dataclasses.replace(config, model_type=OWN)
    assert DecoderConfig.from_hf(json.loads(json.dumps(own.to_hf()))) == own
