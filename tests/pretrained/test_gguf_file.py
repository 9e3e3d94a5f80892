# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""GGUF files give the model and the tokenizer of the directory that they were made from."""

import io
import json
from pathlib import Path
from typing import Any

import gguf
import jax
import numpy as np
import pytest
import sentencepiece
from small_encoders import byte_level
from small_models import drawn

import flaxattn as fa
from flaxattn.errors import CheckpointError
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.pretrained.gguf_file import LAYOUTS
from flaxattn.pretrained.model_directory import to_hf

WIDTH, HEADS, KEY_HEADS, DEPTH, LAYERS, FORWARD = 32, 4, 2, 8, 2, 64
TEXTS = ["The cat sat.", "  it sat on\nthe mat 12 times", "café 🙂 東京"]
# What each architecture has besides, in the settings of Hugging Face.
SETTINGS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "gemma": {"hidden_activation": "gelu_pytorch_tanh"},
    "gemma2": {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": DEPTH,
        "sliding_window": 4,
        "attn_logit_softcapping": 20.0,
        "final_logit_softcapping": 10.0,
    },
    "gemma3": {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": DEPTH,
        "sliding_window": 4,
        "rope_local_base_freq": 10000.0,
    },
}


def interleaved(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Rows in the order that llama.cpp has them: (0, D/2, 1, D/2 + 1, …) of each head."""
    rows = matrix.shape[0] // heads
    halves = [(row, half) for row in range(rows // 2) for half in (0, 1)]
    order = [head * rows + half * rows // 2 + row for head in range(heads) for row, half in halves]
    return matrix[order]


def settings_of(architecture: str, **changes: Any) -> dict[str, Any]:
    """config.json of a small model."""
    layout = LAYOUTS[architecture]
    return {
        "model_type": layout.model_type,
        "architectures": [f"{layout.stem}ForCausalLM"],
        "vocab_size": 64,
        "hidden_size": WIDTH,
        "intermediate_size": FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "head_dim": DEPTH,
        "max_position_embeddings": 48,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500.0,
        "tie_word_embeddings": architecture.startswith("gemma"),
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 1,
        **SETTINGS[architecture],
        **changes,
    }


NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "input_layernorm": "attn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers": "blk",
}


def gguf_name(name: str, architecture: str) -> str:
    after = "post_attention_norm" if architecture in ("gemma2", "gemma3") else "ffn_norm"
    for theirs, own in {**NAMES, "post_attention_layernorm": after}.items():
        name = name.replace(theirs, own)
    return name


def write(
    path: Path,
    architecture: str,
    settings: dict[str, Any],
    tensors: dict[str, np.ndarray],
    kind: str = "F32",
    tokens: dict[str, Any] | None = None,
    **facts: Any,
) -> Path:
    """A file as the converter of llama.cpp writes it."""
    writer = gguf.GGUFWriter(path, architecture)
    values = {
        "block_count": settings["num_hidden_layers"],
        "context_length": settings["max_position_embeddings"],
        "embedding_length": WIDTH,
        "feed_forward_length": FORWARD,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KEY_HEADS,
        "attention.key_length": DEPTH,
        "attention.sliding_window": settings.get("sliding_window"),
        **facts,
    }
    floats = {
        "attention.layer_norm_rms_epsilon": settings["rms_norm_eps"],
        "rope.freq_base": settings["rope_theta"],
        "attn_logit_softcapping": settings.get("attn_logit_softcapping"),
        "final_logit_softcapping": settings.get("final_logit_softcapping"),
    }
    for key, value in values.items():
        if isinstance(value, str):
            writer.add_string(f"{architecture}.{key}", value)
        elif isinstance(value, int):
            writer.add_uint32(f"{architecture}.{key}", value)
    for key, value in floats.items():
        if value is not None:
            writer.add_float32(f"{architecture}.{key}", value)
    for key, value in (tokens or {}).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
        add.get(type(value), writer.add_array)(f"tokenizer.ggml.{key}", value)
    for name, array in tensors.items():
        array = np.asarray(array, np.float32)
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            array = interleaved(array, HEADS if "q_proj" in name else KEY_HEADS)
        if architecture.startswith("gemma") and name.endswith("norm.weight"):
            array = array + np.float32(1)
        if kind != "F32" and array.ndim == 2:
            quantization = gguf.GGMLQuantizationType[kind]
            stored = gguf.quants.quantize(array, quantization)
            writer.add_tensor(gguf_name(name, architecture), stored, raw_dtype=quantization)
        else:
            writer.add_tensor(gguf_name(name, architecture), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def model_of(settings: dict[str, Any]) -> tuple[Any, dict[str, np.ndarray]]:
    """A random model, and its tensors under the names of Hugging Face."""
    module = DecoderLM(DecoderConfig.from_hf(settings))
    params = drawn(module, np.ones((1, 2), np.int32))
    return params, to_hf(module, params)


@pytest.mark.parametrize("architecture", LAYOUTS)
@pytest.mark.parametrize("untied", [False, True])
def test_the_model_is_that_of_the_directory(
    tmp_path: Path, architecture: str, untied: bool
) -> None:
    settings = settings_of(architecture, tie_word_embeddings=not untied)
    params, tensors = model_of(settings)
    ids = {"bos_token_id": 0, "eos_token_id": 2, "padding_token_id": 1}
    path = write(tmp_path / "model.gguf", architecture, settings, tensors, tokens=ids)
    model = fa.from_pretrained(path)
    expected = DecoderConfig.from_hf(settings)
    for name in expected.__dataclass_fields__:
        if name not in ("further_settings", "initializer_range"):
            assert getattr(model.config, name) == getattr(expected, name), name
    ours, theirs = jax.tree.leaves(model.params), jax.tree.leaves(params)
    for one, other in zip(ours, theirs, strict=True):
        # One rounding of the scale plus 1, where the format adds it.
        np.testing.assert_allclose(one, other, rtol=0, atol=2**-22)
    assert model.tokenizer is None and model.name == str(path)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_quantized_tensors_are_near_what_they_were(tmp_path: Path, kind: str) -> None:
    settings = settings_of("llama")
    params, tensors = model_of(settings)
    model = fa.from_pretrained(write(tmp_path / "m.gguf", "llama", settings, tensors, kind))
    # Half a step of blocks of 32, whose range is at most twice the largest number.
    steps = {"F16": 2**12, "BF16": 2**9, "Q8_0": 254, "Q4_0": 14, "Q4_1": 30, "Q5_0": 30}
    for one, other in zip(jax.tree.leaves(model.params), jax.tree.leaves(params), strict=True):
        bound = 2 * np.abs(other).max() / steps.get(kind, 62) + 1e-6
        assert np.abs(np.asarray(one) - other).max() <= bound


def byte_level_facts(**changes: Any) -> tuple[Any, dict[str, Any]]:
    reader = byte_level()
    vocabulary = reader.backend.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    state = reader.backend.to_str()
    merges = [" ".join(pair) for pair in json.loads(state)["model"]["merges"]]
    special = [token.startswith("<") and token.endswith(">") and len(token) > 2 for token in tokens]
    facts = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "merges": merges,
        "token_type": [3 if one else 1 for one in special],
        "bos_token_id": 0,
        "eos_token_id": 2,
        "padding_token_id": 1,
        "add_bos_token": False,
        **changes,
    }
    return reader, facts


def opened(tmp_path: Path, facts: dict[str, Any]) -> Any:
    settings = settings_of("llama", vocab_size=len(facts["tokens"]))
    _, tensors = model_of(settings)
    return fa.from_pretrained(write(tmp_path / "m.gguf", "llama", settings, tensors, tokens=facts))


@pytest.mark.parametrize("begins", [True, False])
def test_ids_of_byte_pairs(tmp_path: Path, begins: bool) -> None:
    reader, facts = byte_level_facts(add_bos_token=begins)
    model = opened(tmp_path, facts)
    for text in TEXTS:
        ids = reader.backend.encode(text, add_special_tokens=False).ids
        assert model.tokenizer.encode(text).input_ids[0].tolist() == [0] * begins + ids
        assert model.tokenizer.decode(ids) == text
    assert model.tokenizer.encode("a<mask>b").tokens[0].count("<mask>") == 1
    trace = model.trace(TEXTS[0])
    assert trace.words[0][begins:] and trace.words[0][-1] == 2


@pytest.mark.parametrize("prefix", [True, False])
def test_ids_of_sentencepiece(tmp_path: Path, prefix: bool) -> None:
    """The scores of the tokens alone tell in which order they are merged."""
    held = io.BytesIO()
    lines = ["the cat sat on the mat", "The dog sat on the rug", "it was 12 times on the mat"] * 9
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=held,
        vocab_size=300,
        model_type="bpe",
        byte_fallback=True,
        add_dummy_prefix=prefix,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_proto=held.getvalue())
    count = theirs.vocab_size()
    kinds = [
        2 if theirs.is_unknown(n) else 3 if theirs.is_control(n) else 6 if theirs.is_byte(n) else 1
        for n in range(count)
    ]
    facts = {
        "model": "llama",
        "tokens": [theirs.id_to_piece(n) for n in range(count)],
        "scores": [theirs.get_score(n) for n in range(count)],
        "token_type": kinds,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_space_prefix": prefix,
    }
    model = opened(tmp_path, facts)
    for text in (*TEXTS, "the the mat", "mattimes  sat"):
        batch = model.tokenizer.encode(text)
        assert batch.input_ids[0].tolist() == [1, *theirs.encode(text)]
        assert model.tokenizer.decode(batch.input_ids[0]) == text
        assert "▁" not in "".join(batch.tokens[0])


@pytest.mark.parametrize(
    ("architecture", "facts", "named"),
    [
        ("llama", {"expert_count": 8}, "mixture of experts"),
        ("llama", {"rope.scaling.type": "yarn"}, "yarn"),
        ("llama", {"rope.dimension_count": 4}, "depths of heads"),
        ("mamba", {}, "'mamba'"),
    ],
)
def test_what_is_not_read_is_refused_by_name(
    tmp_path: Path, architecture: str, facts: dict[str, Any], named: str
) -> None:
    settings = settings_of("llama")
    _, tensors = model_of(settings)
    path = write(tmp_path / "model.gguf", architecture, settings, tensors, **facts)
    with pytest.raises(CheckpointError, match=named) as caught:
        fa.from_pretrained(path)
    assert str(path) in str(caught.value) and str(caught.value).count("\n") <= 2


@pytest.mark.parametrize("name", ["rope_freqs.weight", "blk.0.attn_sinks.weight"])
def test_a_tensor_that_is_not_read_is_refused(tmp_path: Path, name: str) -> None:
    settings = settings_of("llama")
    _, tensors = model_of(settings)
    tensors[name] = np.ones(4, np.float32)
    path = write(tmp_path / "model.gguf", "llama", settings, tensors)
    with pytest.raises(
        CheckpointError, match=name.partition(".w")[0].partition("blk.0.")[2] or "rope"
    ):
        fa.from_pretrained(path)


@pytest.mark.parametrize("changes", [{"model": "bert"}, {"pre": "tekken"}])
def test_a_tokenizer_that_is_not_read_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    _, facts = byte_level_facts(**changes)
    with pytest.raises(CheckpointError, match=next(iter(changes.values()))):
        opened(tmp_path, facts)


@pytest.mark.parametrize("cut", [3, 40, 2000, -1])
def test_a_damaged_file_is_refused(tmp_path: Path, cut: int) -> None:
    settings = settings_of("llama")
    _, tensors = model_of(settings)
    path = write(tmp_path / "model.gguf", "llama", settings, tensors)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CheckpointError) as caught:
        fa.from_pretrained(path)
    assert str(path) in str(caught.value)
