# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What torch transformers computes on small random BERTs: the cases, and the script that stores it.

`python tests/golden/make_golden.py` (with torch and transformers) writes `bert.npz` beside this
file. Weights and inputs are not stored: they come from NumPy's `RandomState`, whose stream is
frozen. Every tensor is drawn so that attention is peaked and every term matters; at the usual
initialisation attention is nearly uniform and half of a model can be missing unnoticed.
"""

import dataclasses
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).with_name("bert.npz")


@dataclasses.dataclass(frozen=True)
class Case:
    """One model and one batch.

    `lengths` are the real positions of each sequence, `left` puts the padding before them, `second`
    is where segment 1 begins in each sequence, None for a single text.
    """

    head: str = "BertModel"
    lengths: tuple[int, ...] = (17, 9)
    left: bool = False
    second: tuple[int, ...] | None = None
    masked: bool = True
    positions: bool = False
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


def _case(head: str = "BertModel", **fields: Any) -> Case:
    known = {f.name for f in dataclasses.fields(Case)}
    settings = tuple((k, v) for k, v in fields.items() if k not in known)
    return Case(head, settings=settings, **{k: v for k, v in fields.items() if k in known})


CASES = {
    "plain": _case(),
    "one-position": _case(lengths=(1, 1), num_attention_heads=1, num_hidden_layers=1),
    "left-padding-positions": _case(lengths=(11, 5), left=True, positions=True),
    "longest": _case(
        lengths=(512, 301),
        second=(200, 17),
        max_position_embeddings=512,
        num_attention_heads=2,
        hidden_size=16,
    ),
    "pretraining-pair": _case(
        "BertForPreTraining",
        lengths=(31, 20),
        second=(12, 9),
        hidden_act="gelu_new",
        num_hidden_layers=3,
    ),
    "masked-lm-many-heads": _case(
        "BertForMaskedLM", lengths=(40, 3, 21), num_attention_heads=16, num_hidden_layers=4
    ),
    "masked-lm-untied-wide-head": _case(
        "BertForMaskedLM",
        lengths=(24,),
        tie_word_embeddings=False,
        hidden_size=128,
        num_attention_heads=1,
        hidden_act="gelu_pytorch_tanh",
    ),
    "next-sentence-no-mask": _case(
        "BertForNextSentencePrediction", lengths=(2,), masked=False, hidden_act="relu"
    ),
    "sequence-labels-odd-sizes": _case(
        "BertForSequenceClassification",
        lengths=(13, 13),
        masked=False,
        second=(5, 7),
        num_labels=3,
        hidden_size=39,
        num_attention_heads=3,
        intermediate_size=50,
        type_vocab_size=3,
        layer_norm_eps=1e-5,
        hidden_act="silu",
    ),
    "token-labels-left-padding": _case(
        "BertForTokenClassification", lengths=(33, 8, 1), left=True, num_labels=5, hidden_act="relu"
    ),
}


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


def _random(name: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(name.encode()))


def tensors(case: Case) -> dict[str, np.ndarray]:
    """A checkpoint in float32, each tensor drawn from its name and shape alone."""
    return {name: _drawn(name, shape) for name, shape in shapes(case).items()}


def _drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    noise = _random(f"{name} {shape}").standard_normal(shape)
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
    random, c = _random("inputs"), case.config()
    size = len(case.lengths), max(case.lengths)
    given = {"input_ids": random.randint(0, c["vocab_size"], size)}
    places = np.arange(size[1])[None] * np.ones((size[0], 1), int)
    if case.left:
        places = places - (size[1] - np.array(case.lengths)[:, None])
    real = (places >= 0) & (places < np.array(case.lengths)[:, None])
    if case.masked:
        given["attention_mask"] = real.astype(int)
    if case.second is not None:
        given["token_type_ids"] = ((places >= np.array(case.second)[:, None]) & real).astype(int)
    if case.positions:
        given["position_ids"] = np.maximum(places, 0)
    return given


def torch_outputs(case: Case, weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Everything the reference implementation returns, eager attention, float32."""
    import torch
    import transformers

    config = transformers.BertConfig(**case.config(), attn_implementation="eager")
    model = getattr(transformers, case.head)(config).eval()
    state = {name: torch.from_numpy(array) for name, array in weights.items()}
    left = model.load_state_dict(state, strict=False)
    assert not left.unexpected_keys, left
    assert all("decoder" in name for name in left.missing_keys), left  # tied to other tensors
    given = {name: torch.from_numpy(array) for name, array in inputs(case).items()}
    with torch.no_grad():
        out = model(**given, output_attentions=True, output_hidden_states=True)
    arrays = {name: value.numpy() for name, value in out.items() if torch.is_tensor(value)}
    several = ("attentions", "hidden_states")
    return arrays | {name: np.stack([one.numpy() for one in out[name]]) for name in several}


def thinned(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What is stored: all of short sequences, about every eighth query of longer ones."""
    step = max(1, outputs["attentions"].shape[-1] // 8)
    return {
        name: array[..., ::step, :] if array.ndim > 2 else array for name, array in outputs.items()
    }


def main() -> None:
    """Write the file."""
    arrays = {
        f"{name}/{field}": array
        for name, case in CASES.items()
        for field, array in thinned(torch_outputs(case, tensors(case))).items()
    }
    np.savez_compressed(GOLDEN, **arrays)
    sys.stdout.write(f"{GOLDEN.name}: {len(arrays)} arrays, {GOLDEN.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
