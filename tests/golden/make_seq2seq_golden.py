# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What torch transformers generates with small random Marians and BARTs: the models, the script.

`python tests/golden/make_seq2seq_golden.py` (with torch and transformers) writes `generated.npz`
beside this file. Weights and sources come from NumPy's frozen `RandomState`, and are drawn so that
attention is peaked and every term matters. Their numbers are in `cases_marian.py`.
"""

import dataclasses
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

GENERATED = Path(__file__).with_name("generated.npz")
ATTENTIONS = ("encoder_attentions", "decoder_attentions", "cross_attentions")


@dataclasses.dataclass(frozen=True)
class Case:
    """One model."""

    head: str = "MarianMTModel"
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def kind(self) -> str:
        """Hugging Face's `model_type`."""
        return "marian" if self.head.startswith("Marian") else "bart"

    def config(self) -> dict[str, Any]:
        """Settings of the model under Hugging Face's names."""
        sizes = dict(
            vocab_size=67,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=40,
            max_position_embeddings=40,
            pad_token_id=1,
            bos_token_id=0,
            eos_token_id=2,
            forced_eos_token_id=2,
            decoder_start_token_id=1 if self.kind == "marian" else 2,
        )
        return {**sizes, **dict(self.settings)}


def _case(head: str = "MarianMTModel", **fields: Any) -> Case:
    return Case(head, tuple(fields.items()))


CASES = {
    "marian": _case(activation_function="swish", scale_embedding=True),
    "marian-two-vocabularies": _case(
        share_encoder_decoder_embeddings=False,
        decoder_vocab_size=61,
        encoder_layers=1,
        decoder_layers=3,
        activation_function="relu",
    ),
    "bart": _case("BartForConditionalGeneration"),
    "bart-deep-decoder": _case(
        "BartForConditionalGeneration",
        scale_embedding=True,
        encoder_layers=1,
        decoder_layers=4,
        encoder_attention_heads=1,
    ),
}


def shapes(case: Case) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a checkpoint, written down from the published layout."""
    c = case.config()
    e, v = c["d_model"], c["vocab_size"]
    target = c.get("decoder_vocab_size", v)
    words = {"shared.weight": (v, e)}
    if not c.get("share_encoder_decoder_embeddings", True):
        words = {"encoder.embed_tokens.weight": (v, e), "decoder.embed_tokens.weight": (target, e)}
    named = {**words, **_side(c, "encoder", case.kind), **_side(c, "decoder", case.kind)}
    named = {f"model.{name}": shape for name, shape in named.items()}
    return {**named, "final_logits_bias": (1, target)}


def _side(c: dict[str, Any], side: str, kind: str) -> dict[str, tuple[int, ...]]:
    e, f = c["d_model"], c[f"{side}_ffn_dim"]
    named: dict[str, tuple[int, ...]] = {}
    if kind == "bart":
        named[f"{side}.embed_positions.weight"] = (c["max_position_embeddings"] + 2, e)
        named |= _norm(f"{side}.layernorm_embedding", e)
    blocks = ("self_attn", "encoder_attn")[: 1 if side == "encoder" else 2]
    for layer in (f"{side}.layers.{n}" for n in range(c[f"{side}_layers"])):
        for block in blocks:
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                named |= _dense(f"{layer}.{block}.{part}", e, e)
            named |= _norm(f"{layer}.{block}_layer_norm", e)
        named |= _dense(f"{layer}.fc1", f, e) | _dense(f"{layer}.fc2", e, f)
        named |= _norm(f"{layer}.final_layer_norm", e)
    return named


def _dense(name: str, out: int, into: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _random(name: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(name.encode()))


def tensors(case: Case) -> dict[str, np.ndarray]:
    """A checkpoint in float32, each tensor drawn from its name and shape alone."""
    return {name: _drawn(name, shape) for name, shape in shapes(case).items()}


def _drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    noise = _random(f"{name} {shape}").standard_normal(shape)
    if "norm" in name and name.endswith("weight"):
        noise = 1 + 0.2 * noise
    elif name.endswith("bias"):
        noise *= 0.2
    elif "embed" in name or "shared" in name:
        noise *= 0.5
    elif "q_proj" in name or "k_proj" in name:
        noise *= 1.6 / shape[1] ** 0.5
    else:
        noise *= 0.8 / shape[1] ** 0.5
    return noise.astype(np.float32)


def writing_tensors(case: Case) -> dict[str, np.ndarray]:
    """A checkpoint whose text depends on its source, and ends at different places.

    With tied embeddings a random decoder repeats what it read last. Here cross-attention is
    sharper and louder, and the end of the text more probable.
    """
    louder = {"encoder_attn.q_proj": 3.0, "encoder_attn.out_proj.weight": 6.0}
    found = tensors(case)
    for name in found:
        factors = [factor for part, factor in louder.items() if part in name]
        if ".decoder." in name and name.endswith("fc2.weight"):
            factors = [4.0]
        found[name] = found[name] * np.float32(factors[0] if factors else 1)
    found["final_logits_bias"][0, 2] += 4
    return found


# How each model generates, from 64 sources.
WRITERS = tuple(CASES)
SOURCES, NEW_TOKENS = 64, 14
WAYS = {
    "greedy": {},
    "beam": {"num_beams": 4, "length_penalty": 1.0},
    "beam-short": {"num_beams": 4, "length_penalty": 0.6},
}
# Rarer settings, of the first model only: our names, and torch's where they differ.
RARE = {
    "renormalized": {"num_beams": 4, "renormalize": True, "no_repeat_ngram_size": 2},
    "never": {"num_beams": 3, "length_penalty": 2.0, "early_stopping": "never"},
    "early": {"num_beams": 3, "early_stopping": True, "min_new_tokens": 3},
}


def sources(case: Case) -> dict[str, np.ndarray]:
    """Random sources of 3 to 12 tokens, padded on the right."""
    random = _random("sources")
    lengths = random.randint(3, 13, (SOURCES, 1))
    real = np.arange(12)[None] < lengths
    ids = random.randint(3, case.config()["vocab_size"], real.shape)
    return {"input_ids": np.where(real, ids, 1), "attention_mask": real.astype(int)}


def torch_model(case: Case, weights: dict[str, np.ndarray]) -> Any:
    """The reference implementation with these weights, eager attention, float32."""
    import torch
    import transformers

    kind = {"marian": transformers.MarianConfig, "bart": transformers.BartConfig}[case.kind]
    config = kind(**case.config(), attn_implementation="eager")
    model = getattr(transformers, case.head)(config).eval()
    state = {name: torch.from_numpy(array) for name, array in weights.items()}
    left = model.load_state_dict(state, strict=False)
    assert not left.unexpected_keys, left
    idle = ("embed_tokens", "embed_positions", "lm_head", "shared")  # tied, constant or unused
    assert all(any(part in name for part in idle) for name in left.missing_keys), left
    return model


def torch_written(case: Case, way: str) -> np.ndarray:
    """Ids that torch's `generate` writes, padded to one length."""
    import torch

    given = {name: torch.from_numpy(array) for name, array in sources(case).items()}
    model = torch_model(case, writing_tensors(case))
    settings = {**WAYS, **RARE}[way]
    settings = {n.replace("renormalize", "renormalize_logits"): v for n, v in settings.items()}
    with torch.no_grad():
        ids = model.generate(**given, max_new_tokens=NEW_TOKENS, do_sample=False, **settings)
    room = NEW_TOKENS + 1 - ids.shape[1]
    return np.pad(ids.numpy(), ((0, 0), (0, room)), constant_values=1).astype(np.uint8)


def main() -> None:
    """Write the file."""
    texts = {f"{n}/{way}": torch_written(CASES[n], way) for n in WRITERS for way in WAYS}
    texts |= {f"{WRITERS[0]}/{way}": torch_written(CASES[WRITERS[0]], way) for way in RARE}
    np.savez_compressed(GENERATED, **texts)
    sys.stdout.write(f"{GENERATED.name}: {len(texts)} arrays, {GENERATED.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
