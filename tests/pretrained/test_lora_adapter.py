# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters are merged into their base as `merge_and_unload` of peft merges them."""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy as st

import flaxattn as fa
from flaxattn.errors import CheckpointError

MODULES = {
    "tiny-bert": ("bert.encoder.layer.", "attention.self.query", "attention.output.dense"),
    "tiny-gpt2": ("transformer.h.", "attn.c_attn", "mlp.c_proj"),
}
EMBEDDING = {
    "tiny-bert": "bert.embeddings.word_embeddings",
    "tiny-gpt2": "transformer.wte",
}
# Settings of adapter_config.json by the name of the case.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "rank-stabilised": {"use_rslora": True},
    "patterns": {"rank_pattern": {"1.attention.self.query": 2}, "alpha_pattern": {"query": 3}},
    "dora": {"use_dora": True},
    "bias": {"bias": "all"},
    "embedding": {"embedding": True},
    "wrapped-names": {"wrapped": True},
}


def base_tensors(model: str) -> dict[str, np.ndarray]:
    folder = Path(fa.__file__).parent / "pretrained" / model
    return dict(st.load_file(folder / "model.safetensors"))


def write_base(folder: Path, model: str) -> Path:
    """A built-in model as another program would have written it."""
    source = Path(fa.__file__).parent / "pretrained" / model
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder)
    st.save_file(base_tensors(model), folder / "model.safetensors", {"format": "pt"})
    return folder


def stored_name(name: str, tensors: dict[str, np.ndarray]) -> str:
    """The name in the file, which may lack the prefix of a task model."""
    short = name.partition(".")[2]
    return name if name in tensors else short


def write_adapter(
    folder: Path, base: Path, model: str, case: str
) -> tuple[Path, dict[str, np.ndarray]]:
    """An adapter of random numbers, and the tensors of the base with its changes in float64."""
    settings = dict(VARIANTS[case])
    embedding, wrapped = settings.pop("embedding", False), settings.pop("wrapped", False)
    rng, tensors, held = np.random.default_rng(0), base_tensors(model), {}
    transposed = model == "tiny-gpt2"
    merged = {name: array.astype(np.float64) for name, array in tensors.items()}

    def drawn(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.3, shape).astype(np.float32)

    before, *layers = MODULES[model]
    for number in (0, 1):
        for layer in layers:
            module = f"{before}{number}.{layer}"
            name = stored_name(f"{module}.weight", tensors)
            wide, high = tensors[name].shape if transposed else tensors[name].shape[::-1]
            rank, alpha = 4, 8
            if case == "patterns" and layer.endswith("query"):
                rank, alpha = (2, 3) if number == 1 else (4, 3)
            scale = alpha / (rank**0.5 if settings.get("use_rslora") else rank)
            down, up = drawn(rank, wide), drawn(high, rank)
            key = f"base_model.model.{module}"
            held[f"{key}.lora_A.weight"], held[f"{key}.lora_B.weight"] = down, up
            matrix = merged[name].T if transposed else merged[name]
            matrix = matrix + scale * up.astype(np.float64) @ down.astype(np.float64)
            if settings.get("use_dora"):
                norms = np.abs(drawn(high)) + 0.5
                held[f"{key}.lora_magnitude_vector"] = norms
                matrix *= norms[:, None] / np.sqrt((matrix**2).sum(1))[:, None]
            merged[name] = matrix.T if transposed else matrix
            if settings.get("bias") == "all":
                bias = stored_name(f"{module}.bias", tensors)
                held[f"base_model.model.{module}.base_layer.bias"] = drawn(*tensors[bias].shape)
                merged[bias] = held[f"base_model.model.{module}.base_layer.bias"]
    if embedding:
        name = stored_name(f"{EMBEDDING[model]}.weight", tensors)
        rows, width = tensors[name].shape
        key = f"base_model.model.{EMBEDDING[model]}"
        held[f"{key}.lora_embedding_A"], held[f"{key}.lora_embedding_B"] = (
            drawn(4, rows),
            drawn(width, 4),
        )
        change = held[f"{key}.lora_embedding_B"] @ held[f"{key}.lora_embedding_A"]
        merged[name] = merged[name] + 2 * change.T.astype(np.float64)
    if wrapped:  # as a trainer leaves them behind torch.compile
        held = {
            k.replace("base_model.model.", "base_model.model._orig_mod."): v
            for k, v in held.items()
        }
    folder.mkdir()
    st.save_file(held, folder / "adapter_model.safetensors", {"format": "pt"})
    modules = [*layers, *([EMBEDDING[model].rpartition(".")[2]] if embedding else [])]
    content = {
        "peft_type": "LORA",
        "base_model_name_or_path": str(base),
        "r": 4,
        "lora_alpha": 8,
        "target_modules": modules,
        "fan_in_fan_out": transposed,
        **settings,
    }
    (folder / "adapter_config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder, merged


@pytest.mark.parametrize("model", MODULES)
@pytest.mark.parametrize("case", VARIANTS)
def test_the_model_is_the_base_with_the_changes(tmp_path: Path, model: str, case: str) -> None:
    base = write_base(tmp_path / "base", model)
    adapter, merged = write_adapter(tmp_path / "adapter", base, model, case)
    ours = fa.from_pretrained(adapter)
    whole = write_base(tmp_path / "whole", model)
    tensors = {name: np.ascontiguousarray(array, np.float32) for name, array in merged.items()}
    st.save_file(tensors, whole / "model.safetensors", {"format": "pt"})
    expected = fa.from_pretrained(whole)
    for one, other in zip(
        jax.tree.leaves(ours.params), jax.tree.leaves(expected.params), strict=True
    ):
        # Products of 4 terms and a norm of at most 1,024 in float32.
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert ours.name == str(adapter)
    trace = ours.trace("the cat sat")
    np.testing.assert_allclose(
        trace.sides[next(iter(trace.sides))].weights,
        expected.trace("the cat sat").sides[next(iter(trace.sides))].weights,
        atol=1e-4,
    )


def test_a_classifier_of_the_adapter_decides_the_classes(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "tiny-bert")
    adapter, _ = write_adapter(tmp_path / "adapter", base, "tiny-bert", "plain")
    held = dict(st.load_file(adapter / "adapter_model.safetensors"))
    width = base_tensors("tiny-bert")[
        stored_name("bert.embeddings.word_embeddings.weight", base_tensors("tiny-bert"))
    ].shape[1]
    held["base_model.model.classifier.weight"] = np.ones((3, width), np.float32)
    held["base_model.model.classifier.bias"] = np.arange(3, dtype=np.float32)
    st.save_file(held, adapter / "adapter_model.safetensors", {"format": "pt"})
    edit(adapter, task_type="SEQ_CLS", modules_to_save=["classifier"])
    model = fa.from_pretrained(adapter)
    assert model.config.architectures == ("BertForSequenceClassification",)
    assert model.config.num_labels == 3
    np.testing.assert_array_equal(model.params["classifier"]["bias"], [0, 1, 2])


def test_added_tokens_have_their_rows_and_their_tokenizer(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "tiny-gpt2")
    adapter, _ = write_adapter(tmp_path / "adapter", base, "tiny-gpt2", "plain")
    held = dict(st.load_file(adapter / "adapter_model.safetensors"))
    rows = base_tensors("tiny-gpt2")[
        stored_name("transformer.wte.weight", base_tensors("tiny-gpt2"))
    ]
    held["base_model.model.transformer.wte.weight"] = np.concatenate([rows, rows[:1]])
    st.save_file(held, adapter / "adapter_model.safetensors", {"format": "pt"})
    reader = fa.from_pretrained("tiny-gpt2").tokenizer
    reader.save(adapter)
    settings = json.loads((adapter / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["additional_special_tokens"] = ["<|new|>"]
    (adapter / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    model = fa.from_pretrained(adapter)
    assert model.config.vocab_size == len(rows) + 1
    assert model.trace("a <|new|> b").tokens[0].count("<|new|>") == 1


def edit(adapter: Path, **settings: Any) -> None:
    path = adapter / "adapter_config.json"
    content = json.loads(path.read_text(encoding="utf-8")) | settings
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"peft_type": "IA3"}, "IA3"),
        ({"init_lora_weights": "pissa_niter_4"}, "pissa_niter_4"),
        ({"base_model_name_or_path": "example/no-such-model"}, "example/no-such-model"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path"),
        ({"use_qalora": True}, "use_qalora"),
    ],
)
def test_what_cannot_be_merged_is_refused(
    tmp_path: Path, settings: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    base = write_base(tmp_path / "base", "tiny-bert")
    adapter, _ = write_adapter(tmp_path / "adapter", base, "tiny-bert", "plain")
    edit(adapter, **settings)
    with pytest.raises(CheckpointError) as caught:
        fa.from_pretrained(adapter)
    assert named in str(caught.value) and str(caught.value).count("\n") <= 2


def test_a_tensor_that_the_base_lacks_is_refused(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "tiny-bert")
    adapter, _ = write_adapter(tmp_path / "adapter", base, "tiny-bert", "plain")
    held = dict(st.load_file(adapter / "adapter_model.safetensors"))
    held["base_model.model.bert.encoder.layer.0.attention.self.norm.lora_A.weight"] = np.ones(
        (4, 8), np.float32
    )
    st.save_file(held, adapter / "adapter_model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"self\.norm"):
        fa.from_pretrained(adapter)


def test_a_directory_beside_the_adapter_is_its_base(tmp_path: Path) -> None:
    write_base(tmp_path / "base", "tiny-bert")
    adapter, _ = write_adapter(tmp_path / "adapter", tmp_path / "base", "tiny-bert", "plain")
    edit(adapter, base_model_name_or_path="../base")
    assert fa.from_pretrained(adapter).counts() == (4, 4)
    edit(adapter, base_model_name_or_path="tiny-bert")
    assert fa.from_pretrained(adapter).counts() == (4, 4)


def test_a_model_beside_an_adapter_is_opened_as_it_is(tmp_path: Path) -> None:
    base = write_base(tmp_path / "base", "tiny-bert")
    adapter, _ = write_adapter(tmp_path / "adapter", base, "tiny-bert", "plain")
    for path in adapter.iterdir():
        shutil.copy(path, base)
    with pytest.warns(UserWarning, match="holds a model and an adapter"):
        model = fa.from_pretrained(base)
    for one, other in zip(
        jax.tree.leaves(model.params),
        jax.tree.leaves(fa.from_pretrained("tiny-bert").params),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
