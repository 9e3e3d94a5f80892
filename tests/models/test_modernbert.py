# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""ModernBERT: windows, packed rows, configurations of two generations of transformers.

Numbers are compared with torch in `test_family_parity`.
"""

import dataclasses
import json
import re
from typing import Any

import jax
import numpy as np
import peak_memory
import pytest
from small_models import drawn

from flaxattn.errors import CheckpointError
from flaxattn.kernels.contract import Capture, Sieve
from flaxattn.models.config_base import FULL, SLIDING
from flaxattn.models.encoder_config import ModernBertConfig
from flaxattn.models.modernbert import ModernBert
from flaxattn.models.positions import Rotary
from flaxattn.models.task_heads import ModernBertForSequenceClassification
from flaxattn.pretrained.pretrained_model import record_only
from flaxattn.trace.trace import Trace

CONFIG = ModernBertConfig.tiny(vocab_size=50, num_hidden_layers=4, local_attention=6)
OLD = {"model_type": "modernbert", "num_hidden_layers": 5, "global_attn_every_n_layers": 2}


@pytest.mark.slow
def test_a_local_layer_sees_half_of_the_window_on_either_side() -> None:
    module = ModernBert(CONFIG, capture=Capture(weights=True))
    ids = np.random.default_rng(0).integers(5, 50, (1, 20))
    _, state = module.apply({"params": drawn(module, ids)}, ids, mutable=["intermediates"])
    weights = np.asarray(Trace.from_variables(state).encoder.weights)
    far = np.abs(np.arange(20)[:, None] - np.arange(20)) > 3
    for layer, kind in enumerate(CONFIG.layer_types):
        assert (weights[layer, 0][:, far] == 0).all() == (kind == SLIDING)
        assert (weights[layer, 0][:, ~far] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_packed_texts_compute_what_each_computes_alone(pooling: Any) -> None:
    config = ModernBertConfig.tiny(
        vocab_size=50, num_hidden_layers=4, local_attention=6, classifier_pooling=pooling
    )
    module = ModernBertForSequenceClassification(config)
    random, lengths = np.random.default_rng(0), (9, 1, 13)
    texts = [random.integers(5, 50, (1, n)) for n in lengths]
    params = drawn(module, texts[0])
    starts = np.cumsum((0, *lengths))[:-1]
    row = np.concatenate([*texts, np.zeros((1, 3), int)], axis=1)
    given = {
        "attention_mask": (np.arange(row.shape[1]) < sum(lengths)).astype(int)[None],
        "position_ids": np.concatenate([*map(np.arange, lengths), np.arange(3)])[None],
        "segment_ids": np.repeat([0, 1, 2, 3], (*lengths, 3))[None],
        "starts": starts[None],
    }
    packed = module.apply({"params": params}, row, **given)
    for number, (start, text) in enumerate(zip(starts, texts, strict=True)):
        alone = module.apply({"params": params}, text)
        part = packed.last_hidden_state[:, start : start + text.shape[1]]
        np.testing.assert_allclose(part, alone.last_hidden_state, atol=2e-6)
        np.testing.assert_allclose(packed.logits[:, number], alone.logits, atol=5e-6)


@pytest.mark.slow
def test_what_is_captured_changes_no_output() -> None:
    ids = np.random.default_rng(0).integers(5, 50, (2, 20))
    module = ModernBert(CONFIG)
    variables = {"params": drawn(module, ids)}
    plain = jax.jit(module.apply)(variables, ids).last_hidden_state
    for capture in (Capture(stats=("entropy",)), Capture(weights=True, layers=(1, 3))):
        requested = module.clone(capture=capture)
        out, _ = requested.apply(variables, ids, mutable=["intermediates"])
        np.testing.assert_allclose(out.last_hidden_state, plain, atol=2e-6)


@pytest.mark.slow
def test_a_token_type_changes_no_number() -> None:
    ids = np.random.default_rng(0).integers(5, 50, (1, 8))
    module = ModernBert(CONFIG)
    variables = {"params": drawn(module, ids)}
    one = module.apply(variables, ids)
    other = module.apply(variables, ids, None, np.ones_like(ids))
    assert np.array_equal(one.last_hidden_state, other.last_hidden_state)


def test_settings_of_transformers_4_48() -> None:
    settings = OLD | {
        "global_rope_theta": 80000.0,
        "local_rope_theta": 5000,
        "sparse_prediction": True,
    }
    config = ModernBertConfig.from_hf(settings)
    assert config.layer_types == (FULL, SLIDING, FULL, SLIDING, FULL)
    assert (config.rotary, config.local_rotary) == (Rotary(80000.0), Rotary(5000.0))
    written = json.loads(json.dumps(config.to_hf()))
    assert {name: written[name] for name in settings} == settings
    assert ModernBertConfig.from_hf(written) == config


def test_settings_of_transformers_5() -> None:
    rope = {
        name: {"rope_type": "default", "rope_theta": t} for name, t in ((FULL, 9.0), (SLIDING, 7.0))
    }
    kinds = [SLIDING, FULL, SLIDING, SLIDING, SLIDING]
    config = ModernBertConfig.from_hf(OLD | {"rope_parameters": rope, "layer_types": kinds})
    assert config.windows == ((64, 64), None, *[(64, 64)] * 3)
    assert (config.rotary.rope_theta, config.local_rotary.rope_theta) == (9.0, 7.0)
    written = json.loads(json.dumps(config.to_hf()))
    assert written["rope_parameters"] == rope and written["layer_types"] == kinds
    assert "global_attn_every_n_layers" not in written  # no number says this order
    assert ModernBertConfig.from_hf(written) == config


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"layer_types": [FULL]}, "layer_types names 1 layers, num_hidden_layers is 5"),
        ({"layer_types": ["chunked"] * 5}, "layer_types holds 'chunked'"),
        ({"classifier_pooling": "max"}, "classifier_pooling is 'max', expected cls or mean"),
        ({"global_rope_theta": "big"}, "global_rope_theta is 'big', expected a number above 0"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"rope_scaling": {"rope_type": "ntk"}}, "rope_type is 'ntk'"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_parameters of kind yarn lack factor"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers must be at least 1"),
        ({"num_attention_heads": 256}, "Heads of 3 dimensions cannot have rotary positions"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as error:
        ModernBertConfig.from_hf(OLD | settings)
    assert len(str(error.value).splitlines()) <= 3


@pytest.mark.slow
def test_statistics_of_a_long_text_form_no_array_of_queries_times_keys(modern: Any) -> None:
    """8,192 tokens: an array of all pairs would take 256 MiB for each head, in float32."""
    length, local = 8192, 64
    config = dataclasses.replace(
        modern.config, max_position_embeddings=length, local_attention=2 * local
    )
    capture = Capture(
        stats=("entropy", "distance", "max", "received", Sieve("near", offsets=(-2, 2)))
    )
    module = modern.module.clone(config=config, capture=capture)
    given = {"input_ids": np.ones((1, length), np.int32)}
    compiled = record_only.lower(module, modern.params, given).compile()
    assert not re.search(rf"\b{length},{length}\b", compiled.as_text())
    assert compiled.memory_analysis().temp_size_in_bytes < 2**26
    model = dataclasses.replace(modern, module=module, config=config)
    peak_memory.forget()
    before = peak_memory.highest()
    stats = model.trace("text " * ((length - 2) // 5), capture=capture).encoder.stats
    assert peak_memory.highest() - before < 2**28
    for layer, kind in enumerate(config.layer_types):
        rows = {name: np.asarray(array[layer]) for name, array in stats.items()}
        assert all(np.isfinite(array).all() for array in rows.values())
        assert (rows["distance"].max() <= local) == (kind == SLIDING)
        assert (rows["entropy"].max() <= np.log(2 * local + 1)) == (kind == SLIDING)
