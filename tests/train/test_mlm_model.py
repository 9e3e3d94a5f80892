# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Masked-LM training that starts from a checkpoint of any encoder, and fine-tuning from it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from small_encoders import LINES, byte_level, unigram, write_encoder

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.train.bert_mlm import load_base
from flaxattn.train.recipe import PretrainRecipe

SHORT = "steps=6 batch_size=4 lengths=24 warmup_steps=1 learning_rate=0.003 evaluate_batches=1"
SHORT += " evaluate_every=100 checkpoint_every=100 heldout_fraction=0.4 devices=1 pack=2"
SHORT += " paragraphs_per_document=1"


@pytest.fixture(params=["roberta", "albert", "modernbert"])
def encoder(request: pytest.FixtureRequest, tmp_path: Path, modern: PretrainedBert) -> Path:
    kind = request.param
    if kind == "modernbert":
        modern.save_pretrained(tmp_path / "encoder")
        return tmp_path / "encoder"
    tokenizer = byte_level() if kind == "roberta" else unigram()
    settings = {"model_type": kind, "pad_token_id": tokenizer.pad_id}
    return write_encoder(tmp_path / "encoder", "ForMaskedLM", tokenizer, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlm", "bert-mlm"])
def test_the_command_continues_from_any_encoder(
    name: str, encoder: Path, tmp_path: Path, typed: Callable[..., tuple[int, str, str]]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"{line} {line}\n{line}" for line in LINES * 12))
    words = ["train", name, "--data", str(text), "--model", str(encoder)]
    settings = [word for one in SHORT.split() for word in ("--set", one)]
    code, out, err = typed(*words, "--out", str(tmp_path / "run"), *settings)
    assert code == 0, err
    assert "held-out masked-LM loss" in out
    before, after = (fa.from_pretrained(path) for path in (encoder, tmp_path / "run" / "model"))
    assert after.config == before.config and after.tokenizer is not None
    base = "model" if "model" in before.params else "bert"
    one, other = (
        model.params[base]["encoder"]["layers"]["attention"]["query"]["kernel"]
        for model in (before, after)
    )
    assert one.shape == other.shape and np.abs(one - other).max() > 1e-4


def test_what_cannot_be_started_from_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not an encoder, but a GPT2"):
        load_base(PretrainRecipe(model="tiny-gpt2"))
    folder = write_encoder(
        tmp_path,
        "ForMaskedLM",
        byte_level(),
        model_type="roberta",
        pad_token_id=1,
        max_position_embeddings=66,
    )
    with pytest.raises(InputError, match="reads up to 64 tokens"):
        load_base(PretrainRecipe(model=str(folder)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["roberta", "albert"])
def test_glue_is_learnt_by_any_encoder(
    kind: str, tmp_path: Path, typed: Callable[..., tuple[int, str, str]]
) -> None:
    """A RoBERTa's classifier reads no pooler, an ALBERT's does."""
    tokenizer = byte_level() if kind == "roberta" else unigram()
    head = "ForMaskedLM" if kind == "roberta" else "Model"
    settings = {"model_type": kind, "pad_token_id": tokenizer.pad_id}
    encoder = write_encoder(tmp_path / "encoder", head, tokenizer, **settings)
    data = tmp_path / "SST-2"
    data.mkdir()
    rows = "".join(f"{line}\t{n % 2}\n" for n, line in enumerate(LINES * 6))
    for part in ("train", "dev"):
        (data / f"{part}.tsv").write_text(f"sentence\tlabel\n{rows}")
    words = ["train", "glue", "--task", "sst-2", "--data", str(data), "--model", str(encoder)]
    chosen = "max_length=40 batch_size=8 epochs=1 seeds=0 devices=1".split()
    options = [word for one in chosen for word in ("--set", one)]
    code, _, err = typed(*words, "--out", str(tmp_path / "run"), *options)
    assert code == 0, err
    saved = next((tmp_path / "run").rglob("model.safetensors")).parent
    model = fa.from_pretrained(saved)
    assert model.config.architectures[0].endswith("ForSequenceClassification")
    assert not model.report.missing and not model.report.unexpected
