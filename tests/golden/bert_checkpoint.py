# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A small random BERT checkpoint as it is published, and a batch, drawn with NumPy alone.

Nothing is stored: numbers come from NumPy's `RandomState`, whose stream is frozen, by name and
shape, drawn so that attention is peaked and every term matters.
"""

import dataclasses
from typing import Any

import numpy as np
from family_case import random_of


@dataclasses.dataclass(frozen=True)
class Case:
    """One model and one batch.

    `lengths` are the real positions of each sequence, which padding follows; `second` is where
    segment 1 begins in each sequence, None for a single text.
    """

    head: str = "BertModel"
    lengths: tuple[int, ...] = (17, 9)
    second: tuple[int, ...] | None = None
    settings: tuple[tuple[str, Any], ...] = ()

    def config(self) -> dict[str, Any]:
        """Settings of the model under Hugging Face's names."""
        sizes = dict(
            vocab_size=97,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=48,
            max_position_embeddings=40,
            type_vocab_size=2,
        )
        return {**sizes, **dict(self.settings)}


def shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a checkpoint, written down from the published layout."""
    c = case.config()
    e, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    core = {
        "embeddings.word_embeddings.weight": (v, e),
        "embeddings.position_embeddings.weight": (c["max_position_embeddings"], e),
        "embeddings.token_type_embeddings.weight": (c["type_vocab_size"], e),
        **_norm("embeddings", e),
    }
    for n in range(c["num_hidden_layers"]):
        layer = f"encoder.layer.{n}"
        for part in ("query", "key", "value"):
            core |= _dense(f"{layer}.attention.self.{part}", e, e)
        core |= _dense(f"{layer}.attention.output.dense", e, e)
        core |= _norm(f"{layer}.attention.output", e)
        core |= _dense(f"{layer}.intermediate.dense", f, e)
        core |= _dense(f"{layer}.output.dense", e, f) | _norm(f"{layer}.output", e)
    unpooled = ("BertForMaskedLM", "BertForTokenClassification", "BertForQuestionAnswering")
    if case.head not in unpooled:
        core |= _dense("pooler.dense", e, e)
    if case.head == "BertModel":
        return core
    return {f"bert.{name}": shape for name, shape in core.items()} | _head(case)


def _head(case: Case) -> dict[str, tuple[int, ...]]:
    c = case.config()
    e, v = c["hidden_size"], c["vocab_size"]
    named: dict[str, tuple[int, ...]] = {}
    if case.head in ("BertForPreTraining", "BertForMaskedLM"):
        named = _dense("cls.predictions.transform.dense", e, e)
        named |= _norm("cls.predictions.transform", e) | {"cls.predictions.bias": (v,)}
    if not c.get("tie_word_embeddings", True):
        named |= _dense("cls.predictions.decoder", v, e)
    if case.head in ("BertForPreTraining", "BertForNextSentencePrediction"):
        named |= _dense("cls.seq_relationship", 2, e)
    if case.head == "BertForQuestionAnswering":
        named |= _dense("qa_outputs", 2, e)
    if "num_labels" in c:
        named |= _dense("classifier", c["num_labels"], e)
    return named


def _dense(name: str, out: int, into: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.LayerNorm.weight": (width,), f"{name}.LayerNorm.bias": (width,)}


def tensors(case: Case) -> dict[str, np.ndarray]:
    """A checkpoint in float32, each tensor drawn from its name and shape alone."""
    return {name: _drawn(name, shape) for name, shape in shapes(case).items()}


def _drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    noise = random_of(f"{name} {shape}").standard_normal(shape)
    if name.endswith("LayerNorm.weight"):
        noise = 1 + 0.2 * noise
    elif len(shape) == 1:
        noise *= 0.2
    elif "embeddings" in name:
        noise *= 0.5
    elif ".query." in name or ".key." in name:
        noise *= 1.4 / shape[1] ** 0.5
    else:
        noise *= 0.8 / shape[1] ** 0.5
    return noise.astype(np.float32)


def inputs(case: Case) -> dict[str, np.ndarray]:
    """Arguments of the model, `[B, S]` each; padding has random ids too, which must not matter."""
    random, c = random_of("inputs"), case.config()
    size = len(case.lengths), max(case.lengths)
    given = {"input_ids": random.randint(0, c["vocab_size"], size)}
    places = np.arange(size[1])[None]
    real = places < np.array(case.lengths)[:, None]
    given["attention_mask"] = real.astype(int)
    if case.second is not None:
        given["token_type_ids"] = ((places >= np.array(case.second)[:, None]) & real).astype(int)
    return given
