# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A small random T5 with a Unigram tokenizer, and its encoder alone, in all that models are for."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import flaxattn as fa
from flaxattn.cli import app
from flaxattn.errors import CheckpointError, InputError
from flaxattn.kernels.contract import Capture
from flaxattn.models.seq2seq_config import LONGEST, T5Config
from flaxattn.trace.tensor_file import TensorFiles, write
from flaxattn.train.translation import batch_totals, loss_function
from flaxattn.train.translation_data import TranslationBatch
from flaxattn.views.payloads.neuron_payload import explain

EVERYTHING = Capture(weights=True, scores=True, query=True, key=True, value=True)


@pytest.fixture(scope="module")
def folder(t5: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("t5") / "model"
    t5.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return fa.from_pretrained(folder)


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Any:
    return fa.from_pretrained(folder, head="T5EncoderModel")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def settings_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def test_a_text_ends_with_its_mark_and_comes_back(model: Any) -> None:
    read = model.tokenizer.encode(["the cat", "a cht"])
    assert read.tokens[0][:3] == [" the", " cat", "</s>"]
    assert read.special[0].tolist()[:3] == [False, False, True] and read.tokens[1][-1] == "</s>"
    assert [model.tokenizer.decode(row) for row in read.input_ids] == ["the cat", "a cht"]


@pytest.mark.slow
def test_a_trace_has_three_sides_and_its_scores_add_up(model: Any) -> None:
    """q·k and the bias are the scores: shared by layers, by distance, and none across."""
    trace = model.trace("the cat is very sad , b c d e f g h .", "a b c d", capture=EVERYTHING)
    for side, record in trace.sides.items():
        products = np.einsum("lbqhd,lbkhd->lbhqk", record.query, record.key)
        bias = np.asarray(record.scores) - products
        if side == "cross":
            np.testing.assert_allclose(bias, 0, atol=1e-4)
            continue
        held = np.where(np.isfinite(bias), bias, 0)
        np.testing.assert_allclose(held[-1], held[0], atol=1e-4)
        for step in range(-2 if side == "encoder" else 0, 3):
            diagonal = np.diagonal(bias[0, 0], -step, 1, 2)
            np.testing.assert_allclose(diagonal, diagonal[:, :1] + 0 * diagonal, atol=1e-4)
        assert np.abs(held[0]).max() > 0.1


@pytest.mark.slow
def test_the_neuron_level_shows_the_bias(model: Any, folder: Path, tmp_path: Path) -> None:
    trace = model.trace("the cat is very sad", "a b c", capture=EVERYTHING)
    terms = explain(trace.encoder, trace.encoder.layers)
    assert terms is not None and terms.scale == 1 and terms.bias is not None
    assert terms.error < 1e-5
    texts = ("the cat", "a b", "--model", folder, "--view", "neuron", "--out", tmp_path / "n.html")
    assert "wrote" in run("view", *texts)
    page = (tmp_path / "n.html").read_text(encoding="utf-8")
    assert "0/encoder/bias/0" in page
    figure = fa.plot_neuron(trace, 0, 0, 2)
    assert "weights differ" not in figure.axes[0].get_title()
    bare = model.trace(
        "the cat is very sad", "a b c", capture=dataclasses.replace(EVERYTHING, scores=False)
    )
    assert "weights differ" not in fa.plot_neuron(bare, 0, 0, 1, side="cross").axes[0].get_title()
    assert "adds a bias" in fa.plot_neuron(bare, 0, 0, 2).axes[0].get_title()


@pytest.mark.slow
def test_extraction_statistics_and_ablation(model: Any, texts: list[str]) -> None:
    sources, targets = texts[2:5], ["a b", "c", "d e f"]
    alone = [model.trace(*pair) for pair in zip(sources, targets, strict=True)]
    for one, trace in zip(alone, fa.extract(model, sources, targets), strict=True):
        for side in one.sides:
            found = np.asarray(trace.sides[side].weights)
            np.testing.assert_allclose(found, one.sides[side].weights, atol=1e-5)
    assert fa.head_stats(model, sources) is not None
    effects = fa.ablate(fa.head_task(model, sources, targets))
    shapes = {name: np.shape(table) for name, table in effects.means.items()}
    assert shapes == {
        "head_mask": (2, 2),
        "decoder_head_mask": (1, 2),
        "cross_attn_head_mask": (1, 2),
    }
    assert all(np.abs(table).max() > 0 for table in effects.means.values())
    norms = fa.attention_norms(model, sources[:1], targets[:1])
    assert set(norms) == {"encoder", "decoder", "cross"}


@pytest.mark.slow
def test_commands(folder: Path, texts: list[str], tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(texts[2:5]) + "\n", encoding="utf-8")
    options = (
        "--model",
        folder,
        "--max-length",
        5,
        "--num-beams",
        2,
        "--out",
        tmp_path / "out.txt",
    )
    run("translate", lines, *options)
    assert len((tmp_path / "out.txt").read_text(encoding="utf-8").splitlines()) == 3
    run("extract", lines, "--model", folder, "--out", tmp_path / "store")
    assert len(fa.open_store(tmp_path / "store")) == 3


@pytest.mark.slow
def test_the_encoder_alone(encoder: Any, model: Any, texts: list[str], tmp_path: Path) -> None:
    """The same states and weights as in the whole model, a directory of its own, and embeddings."""
    assert "decoder.final_layer_norm.weight" in encoder.report.unexpected
    ids, mask = np.array([[5, 6, 7, 1], [8, 1, 0, 0]]), np.array([[1, 1, 1, 1], [1, 1, 0, 0]])
    out = encoder(ids, mask, output_attentions=True, output_hidden_states=True)
    whole = model(ids, mask, output_attentions=True, output_hidden_states=True)
    np.testing.assert_allclose(out.last_hidden_state, whole.encoder_last_hidden_state, atol=1e-5)
    for ours, theirs in zip(out.attentions, whole.encoder_attentions, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    encoder.save_pretrained(tmp_path / "encoder")
    assert settings_of(tmp_path / "encoder")["architectures"] == ["T5EncoderModel"]
    again = fa.from_pretrained(tmp_path / "encoder")
    assert not again.report.unexpected and again.counts() == (2, 2)
    np.testing.assert_array_equal(fa.embed(again, texts[:3]), fa.embed(encoder, texts[:3]))
    assert list(again.trace(texts[2]).sides) == ["encoder"]
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(texts[2:5]) + "\n", encoding="utf-8")
    run("extract", lines, "--model", tmp_path / "encoder", "--out", tmp_path / "store")
    with pytest.raises(InputError, match="reads no pairs"):
        encoder.trace("a", "b")


@pytest.mark.slow
def test_training_moves_the_biases(model: Any) -> None:
    """The loss of `train translation` has a gradient to every parameter, and a step lowers it."""
    batch = TranslationBatch(
        input_ids=np.array([[5, 6, 7, 1], [8, 9, 1, 0]], np.int32),
        attention_mask=np.array([[1, 1, 1, 1], [1, 1, 1, 0]], np.int32),
        labels=np.array([[9, 5, 6, 1], [7, 1, 0, 0]], np.int32),
        label_mask=np.array([[1, 1, 1, 1], [1, 1, 0, 0]], np.float32),
    )
    module = model.module.clone(capture=Capture(), remat=True)
    objective = loss_function(module, 0.1)
    totals = batch_totals(batch)

    @jax.jit
    def slope(params: Any) -> Any:
        return jax.value_and_grad(lambda p: objective(p, batch, None, totals)[0])(params)

    loss, gradients = slope(model.params)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradients))
    stepped = jax.tree.map(lambda p, g: p - 0.01 * g, model.params, gradients)
    assert slope(stepped)[0] < loss


@pytest.mark.slow
def test_an_output_layer_of_its_own_is_inferred_from_the_tensors(
    folder: Path, tmp_path: Path
) -> None:
    """Transformers 5 writes that every T5 ties its output, those that do not too."""
    files = TensorFiles(folder)
    tensors = {name: np.array(files.read(name)) for name in files.shapes}
    path = tmp_path / "untied"
    path.mkdir()
    (path / "config.json").write_text((folder / "config.json").read_text(encoding="utf-8"))
    write(path / "model.safetensors", tensors | {"lm_head.weight": 2 * tensors["shared.weight"]})
    untied, ids = fa.from_pretrained(path), np.array([[5, 6, 1]])
    tied = fa.from_pretrained(folder)
    twice = np.asarray(tied(ids).logits) * 2
    np.testing.assert_allclose(untied(ids).logits, twice, rtol=1e-5, atol=1e-5)
    untied.save_pretrained(tmp_path / "again")
    assert not settings_of(tmp_path / "again")["tie_word_embeddings"]
    again = fa.from_pretrained(tmp_path / "again")
    np.testing.assert_array_equal(again(ids).logits, untied(ids).logits)


def test_limits_and_settings() -> None:
    assert T5Config.from_hf({"model_type": "t5"}).max_position_embeddings == LONGEST
    assert T5Config.from_hf({"model_type": "t5", "n_positions": 512}).max_position_embeddings == 512
    flan = {"model_type": "t5", "tie_word_embeddings": False, "feed_forward_proj": "gated-gelu"}
    config = T5Config.from_hf(flan)
    assert (config.output_scale, config.hidden_act, config.gated) == (1, "gelu_new", True)
    assert T5Config.from_hf({"model_type": "t5"}).output_scale == 512**-0.5
    assert T5Config.from_hf({"model_type": "mt5"}).output_scale == 1
    old = T5Config.from_hf({"model_type": "t5", "architectures": ["T5WithLMHeadModel"]})
    assert old.architectures == ("T5ForConditionalGeneration",)
    kinds = {kind: T5Config.from_hf({"model_type": kind}).to_hf() for kind in ("t5", "umt5")}
    assert all(settings["model_type"] == kind for kind, settings in kinds.items())
    assert all(T5Config.from_hf(settings).to_hf() == settings for settings in kinds.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"relative_attention_num_buckets": 2},
            "relative_attention_num_buckets must be at least 4",
        ),
        ({"relative_attention_max_distance": 16}, "max_distance must be at least 17"),
        ({"feed_forward_proj": "mixed-gelu"}, 'expected the name of an activation, or "gated-"'),
        ({"decoder_start_token_id": 40000}, "decoder_start_token_id is 40000"),
        ({"num_decoder_layers": 0}, "num_decoder_layers must be at least 1"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        T5Config.from_hf({"model_type": "t5", **settings})


def test_what_a_t5_does_not_have_is_refused(model: Any) -> None:
    with pytest.raises(InputError, match="60 positions, the limit of this model is 48"):
        model(np.full((1, 60), 5))
    with pytest.raises(InputError, match="no table of positions"):
        model.positions()
