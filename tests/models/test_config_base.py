# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes that no model has: refused at once, by name, in Python and in a config.json alike."""

import json
import resource
import time
from pathlib import Path
from typing import Any

import pytest

import flaxattn as fa
from flaxattn.errors import CheckpointError, InputError
from flaxattn.pretrained.model_directory import read_config

CASES = [
    (fa.BertConfig, {"num_attention_heads": 0}, "num_attention_heads must be at least 1, got 0."),
    (fa.BertConfig, {"hidden_size": 768.0}, "hidden_size is of the wrong type: expected an int"),
    (fa.BertConfig, {"vocab_size": 1e12}, "vocab_size is of the wrong type: expected an integer"),
    (fa.BertConfig, {"vocab_size": 10**12}, "vocab_size must be at most 2147483647, got 1000000"),
    (fa.BertConfig, {"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 1048576, got"),
    (fa.BertConfig, {"num_attention_heads": True}, "num_attention_heads is of the wrong type"),
    (fa.BertConfig, {"num_attention_heads": "12"}, "expected an integer, got '12'."),
    (fa.BertConfig, {"pad_token_id": 0.5}, "pad_token_id is of the wrong type"),
    (fa.GPT2Config, {"n_head": 0}, "n_head must be at least 1, got 0."),
    (fa.GPT2Config, {"n_embd": 768.0}, "n_embd is of the wrong type: expected an integer, got 768"),
    (fa.GPT2Config, {"n_layer": 10**9}, "n_layer must be at most 1048576, got 1000000000."),
    (fa.Seq2SeqConfig, {"decoder_attention_heads": 0}, "decoder_attention_heads must be at least"),
    (fa.Seq2SeqConfig, {"encoder_layers": 10**9}, "encoder_layers must be at most 1048576, got"),
    (fa.Seq2SeqConfig, {"d_model": 512.0}, "d_model is of the wrong type"),
    (fa.RnnConfig, {"hidden_size": 16.0}, "hidden_size is of the wrong type"),
    (fa.RnnConfig, {"eos_token_id": "x" * 500}, "eos_token_id is of the wrong type"),
]


@pytest.mark.parametrize(("kind", "changes", "words"), CASES)
def test_a_size_that_no_model_has(
    kind: Any, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as python:
        kind(**changes)
    settings = {**kind().to_hf(), **changes}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError) as file:
        read_config(tmp_path)
    for error, start in ((python, words[:12]), (file, f"{tmp_path / 'config.json'}: ")):
        message = str(error.value)
        assert words in message and len(message.splitlines()) <= 3 and len(message) < 400
        assert message.startswith(start) or words.startswith("expected")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_labels": -1}, "num_labels must be at least 1, got -1."),
        ({"num_labels": 0}, "num_labels must be at least 1, got 0."),
        ({"num_labels": 10**9}, "num_labels must be at most 1048576, got 1000000000."),
        ({"num_labels": 2.0}, "num_labels is of the wrong type"),
        ({"num_hidden_layers": 10**9, "pruned_heads": {"0": [1]}}, "must be at most 1048576"),
        ({"num_hidden_layers": 10**9, "pruned_heads": {}}, "must be at most 1048576"),
    ],
)
def test_it_costs_nothing_to_refuse_it(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **changes}))
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(CheckpointError) as error:
        read_config(tmp_path)
    assert words in str(error.value)
    assert time.process_time() - started < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


@pytest.mark.parametrize("count", [-1, 0, 10**9, 2.0])
def test_a_number_of_labels_that_no_classifier_has(count: Any) -> None:
    with pytest.raises(InputError, match=r"^num_labels "):
        fa.from_pretrained("tiny-bert", num_labels=count)
    with pytest.raises(CheckpointError, match=r"^labels is empty"):
        fa.BertConfig(labels=())


def test_settings_that_are_no_fields_are_written_back() -> None:
    settings = {"model_type": "bert", "use_cache": False, "task": {"deep": [1, None]}}
    dropped = {"transformers_version": "1", "auto_map": {"a": "b"}}
    config = fa.BertConfig.from_hf(settings | dropped)
    written = config.to_hf()
    assert {name: written[name] for name in settings} == settings
    assert not {*dropped, "further_settings"} & set(written)
    assert fa.BertConfig.from_hf(written) == config == fa.BertConfig()
