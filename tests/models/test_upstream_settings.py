# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every key of a `config.json` that upstream's modules read is applied or refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from flaxattn.errors import CheckpointError
from flaxattn.pretrained.model_types import CONFIGS

STORED = json.loads((Path(__file__).parents[1] / "golden" / "upstream_settings.json").read_text())
TYPES = STORED["types"]


def changed(key: str, value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value * 2 if value > 1 else value + 1
    if isinstance(value, float):
        return value / 2 + 0.01
    if isinstance(value, list):  # of layers
        return [0 if value[0] == 1 else changed(key, value[0]), *value[1:]]
    if isinstance(value, dict):  # of rotary positions, of all layers or by type of layer
        key, first = next((n, v) for n, v in value.items() if not isinstance(v, str))
        return value | {key: changed(key, first)}
    if value in LAYERS:
        return LAYERS[1 - LAYERS.index(value)]
    return OTHERS[key]


LAYERS = ["full_attention", "sliding_attention"]


OTHERS = {
    "is_causal": False,
    "head_dim": 24,
    "vocab_size": 999,
    "pad_token_id": 0,
    "sliding_window": 9,
    "attn_logit_softcapping": 7.0,
    "final_logit_softcapping": 7.0,
    "n_inner": 12,
    "use_bidirectional_attention": True,
    "emb_layer_norm_before": True,
    "position_embedding_type": "rotary",
    "mask_token_id": 32,
    "classifier_pooling": "mean",
    "problem_type": "regression",
    "hidden_act": "relu",
    "hidden_activation": "relu",
    "activation_function": "relu",
    "activation": "relu",
    "classifier_activation": "relu",
}
# What upstream reads without a consequence for the numbers of a forward pass that exists here.
WITHOUT_EFFECT = {
    "chunk_size_feed_forward": "memory alone",
    "reorder_and_upcast_attn": "precision alone",
    "deterministic_flash_attn": "another implementation",
    "use_cache": "speed alone",
    "output_attentions": "an argument of calls",
    "output_hidden_states": "an argument of calls",
    "return_dict": "an argument of calls",
    "is_encoder_decoder": "set by upstream's classes",
    "decoder_layerdrop": "training",
    "encoder_layerdrop": "training",
    "initializer_range": "before training",
    "initializer_factor": "before training",
    "initializer_cutoff_factor": "before training",
    "qa_dropout": "training",
    "summary_last_dropout": "training",
    "summary_first_dropout": "training",
    "sparse_prediction": "training",
    "sparse_pred_ignore_index": "training",
    "sinusoidal_pos_embds": "the table is in the checkpoint",
    "classifier_dropout": "training",
    "summary_type": "of a head that is refused: multiple choice, double heads",
    "summary_use_proj": "of such a head",
    "summary_activation": "of such a head",
    "summary_proj_to_labels": "of such a head",
    "dense_act_fn": "follows from feed_forward_proj",
    "is_gated_act": "follows from feed_forward_proj",
    "pad_token_id": "the row is in the checkpoint",
}
PASSING = {kind: {"is_decoder"} for kind in ("marian", "t5", "mt5", "umt5")}  # set by upstream
PASSING["bart"] = {"is_decoder", "problem_type"}  # there is no classifier of this type here
PASSING["gpt_neox"] = {"is_decoder", "head_dim"}  # unread, and an error upstream
PASSING["modernbert"] = PASSING["esm"] = {"head_dim"}  # an error upstream
PASSING["smollm3"] = {"use_sliding_window"}  # layer_types decides
WITH_WINDOWS = {"use_sliding_window": True, "sliding_window": 8, "num_hidden_layers": 4}
WITH_WINDOWS["layer_types"] = ["sliding_attention", "full_attention"] * 2
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}
BASES = {
    "qwen2": WITH_WINDOWS,
    "qwen3": WITH_WINDOWS,
    "smollm3": WITH_WINDOWS | {"no_rope_layers": [1, 1, 1, 0]},
    "phi3": {"rope_parameters": {"rope_theta": 10000.0, **LONGROPE}},
}
# Upstream's encoders read `is_causal` where `is_decoder` is true, which is refused.
ENCODERS = {"bert", "roberta", "xlm-roberta", "camembert", "electra", "esm"}


def test_keys_without_effect_are_read_by_some_type() -> None:
    assert WITHOUT_EFFECT.keys() <= {key for kind in TYPES.values() for key in kind["read"]}


@pytest.mark.parametrize("kind", TYPES)
def test_each_key_is_applied_or_refused(kind: str) -> None:
    base = TYPES[kind]["defaults"] | BASES.get(kind, {})
    base = {"vocab_size": 99, "pad_token_id": 1} | {n: v for n, v in base.items() if v is not None}
    plain, unread = CONFIGS[kind].from_hf(base), []
    passing = PASSING.get(kind, set()) | ({"is_causal"} if kind in ENCODERS else set())
    for key in set(TYPES[kind]["read"]) - passing - WITHOUT_EFFECT.keys():
        other = changed(key, base.get(key))
        try:
            same = CONFIGS[kind].from_hf(base | {key: other}) == plain
        except CheckpointError as error:
            same = False
            assert key in str(error) or key == "num_attention_heads", (key, error)
        if same:
            unread.append(key)
    assert not unread
