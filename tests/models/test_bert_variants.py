# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The encoders that are a BERT by configuration: what is read, refused, shared and packed."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_encoders import byte_level, unigram, write_encoder

import flaxattn as fa
from flaxattn.errors import CheckpointError, InputError
from flaxattn.kernels.contract import Capture
from flaxattn.models.encoder_config import BERT_VARIANTS, BertConfig
from flaxattn.pretrained.head_projections import output_projections
from flaxattn.pretrained.model_directory import read_config
from flaxattn.trace.tensor_file import TensorFiles, write

IDS = np.array([[5, 6, 7, 8, 9]])


@pytest.mark.parametrize("kind", BERT_VARIANTS)
def test_a_config_is_read_back(kind: str) -> None:
    config = BertConfig.from_hf({"model_type": kind, "my_note": [1]})
    written = config.to_hf()
    assert written["model_type"] == kind and written["my_note"] == [1]
    assert BertConfig.from_hf(written) == config
    assert config.architectures == (BERT_VARIANTS[kind].prefix + "Model",)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "albert", "num_hidden_groups": 2}, "num_hidden_groups is 2"),
        ({"model_type": "albert", "inner_group_num": 3}, "inner_group_num is 3"),
        ({"model_type": "mpnet", "pad_token_id": 0}, "pad_token_id is 0"),
        ({"model_type": "esm", "is_folding_model": True}, "is_folding_model is True"),
        ({"model_type": "esm", "position_embedding_type": "other"}, "'absolute' or 'rotary'"),
        ({"model_type": "roberta", "is_decoder": True}, "is_decoder is True"),
        ({"model_type": "xlm-robert"}, "The nearest is xlm-roberta."),
        ({"model_type": "distillbert"}, "The nearest is distilbert."),
    ],
)
def test_what_is_not_covered_is_refused_by_name(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match=message) as error:
        read_config(tmp_path)
    assert len(str(error.value).splitlines()) <= 3


@pytest.mark.slow
def test_a_head_is_named_by_its_end(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path, "ForMaskedLM", byte_level(), model_type="roberta")
    with pytest.warns(UserWarning, match="classifier"):
        model = fa.from_pretrained(folder, head="ForTokenClassification")
    assert model.config.architectures == ("RobertaForTokenClassification",)
    with pytest.raises(InputError, match="BertForMaskedLM"):
        fa.from_pretrained(folder, head="BertForMaskedLM")


@pytest.mark.slow
def test_layers_of_an_albert_share_parameters_and_gradients(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path, "Model", None, model_type="albert", num_hidden_layers=3)
    model = fa.from_pretrained(folder)
    kernels = model.params["encoder"]["layers"]["attention"]["query"]["kernel"]
    assert kernels.shape[0] == 1
    projections = output_projections(model)["encoder"]
    assert projections.shape[0] == 3 and (projections[0] == projections[2]).all()

    def loss(params: Any, remat: bool) -> Any:
        module = model.module.clone(remat=remat)
        return (module.apply({"params": params}, jnp.asarray(IDS)).last_hidden_state ** 3).sum()

    found = [jax.grad(loss)(model.params, remat) for remat in (False, True)]
    for one, other in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-4)
    assert jax.tree.map(jnp.shape, found[0]) == jax.tree.map(jnp.shape, dict(model.params))
    step = 1e-2
    kernel = np.zeros(kernels.shape, np.float32)
    kernel[0, 3, 5] = step

    def moved(sign: int) -> float:
        params = jax.tree_util.tree_map_with_path(
            lambda path, leaf: (
                leaf + sign * kernel if "query'" in str(path) and leaf.ndim == 3 else leaf
            ),
            dict(model.params),
        )
        return float(loss(params, False))

    slope = (moved(1) - moved(-1)) / (2 * step)
    exact = found[0]["encoder"]["layers"]["attention"]["query"]["kernel"][0, 3, 5]
    assert abs(slope - exact) <= 0.02 * max(1.0, abs(exact))


@pytest.mark.slow
@pytest.mark.few("albert")
@pytest.mark.parametrize("kind", ["roberta", "albert", "mpnet", "esm"])
def test_packed_texts_are_what_they_are_alone(kind: str, tmp_path: Path) -> None:
    """Positions begin anew, distances and shared layers are those of each text."""
    tokenizer = unigram() if kind == "albert" else byte_level()
    rotary = {"position_embedding_type": "rotary", "token_dropout": True} if kind == "esm" else {}
    settings = {"model_type": kind, "pad_token_id": tokenizer.pad_id} | rotary
    model = fa.from_pretrained(write_encoder(tmp_path, "Model", tokenizer, **settings))
    texts = ["The cat is very sad.", "cat", "She said that he was not there.", "it could not"]
    assert model.packs(Capture(weights=True)) == (kind != "esm")
    packed = list(fa.extract(model, texts, capture=Capture(weights=True)))
    assert len(packed) == 4
    for text, one in zip(texts, packed, strict=True):
        alone = model.trace(text)
        for mine, theirs in zip(one.attentions, alone.attentions, strict=True):
            size = theirs.shape[-1]
            np.testing.assert_allclose(mine[..., :size, :size], theirs, atol=1e-5)


@pytest.mark.slow
def test_rounded_frequencies_of_a_checkpoint_count(tmp_path: Path) -> None:
    """Published ESM-2 checkpoints hold frequencies rounded to float16, by layer."""
    folder = write_encoder(
        tmp_path / "m", "Model", None, model_type="esm", position_embedding_type="rotary"
    )
    exact = fa.from_pretrained(folder)
    assert exact.config.rotary_frequencies == ()
    files = TensorFiles(folder)
    tensors = {name: files.read(name) for name in files.shapes}
    rates = tensors.pop("rotary_embeddings.inv_freq")
    # To powers of two: what float16 changes in so small a model is the size of a rounding error.
    rates = np.exp2(np.round(np.log2(rates) + 0.7)).astype(np.float32)
    for layer in range(2):
        tensors[f"encoder.layer.{layer}.attention.self.rotary_embeddings.inv_freq"] = rates
    write(folder / "model.safetensors", tensors)
    rounded = fa.from_pretrained(folder)
    np.testing.assert_array_equal(np.float32(rounded.config.rotary_frequencies), rates)
    gap = np.abs(exact(IDS).last_hidden_state - rounded(IDS).last_hidden_state).max()
    assert gap > 1e-5
    rounded.save_pretrained(tmp_path / "again")
    kept = TensorFiles(tmp_path / "again").read("rotary_embeddings.inv_freq")
    np.testing.assert_array_equal(kept, rates)
    tensors[f"encoder.layer.{0}.attention.self.rotary_embeddings.inv_freq"] = rates[:2]
    write(folder / "model.safetensors", tensors)
    with pytest.raises(CheckpointError, match="inv_freq has shape"):
        fa.from_pretrained(folder)


@pytest.mark.slow
@pytest.mark.few("roberta")
@pytest.mark.parametrize("kind", ["roberta", "esm", "albert"])
def test_heads_are_pruned_where_checkpoints_can_say_so(kind: str, tmp_path: Path) -> None:
    model = fa.from_pretrained(write_encoder(tmp_path, "Model", None, model_type=kind))
    if kind != "roberta":
        with pytest.raises(InputError, match="cannot say"):
            model.prune({0: [1]})
        return
    mask = np.ones((2, 2))
    mask[0, 1] = 0
    pruned = model.prune({0: [1]})
    masked = model(IDS, head_mask=mask).last_hidden_state
    np.testing.assert_allclose(pruned(IDS).last_hidden_state, masked, atol=2e-6)
