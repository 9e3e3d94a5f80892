# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What torch transformers generates with small random GPT-2s: the models, and the script.

`python tests/golden/make_gpt2_golden.py` (with torch and transformers) writes `gpt2.npz` beside
this file. Weights and prompts come from NumPy's frozen `RandomState`, and are drawn so that
attention is peaked and every term matters. Its numbers are in `cases_gpt2.py`.
"""

import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).with_name("gpt2.npz")
HEAD = "GPT2LMHeadModel"
SIZES = {
    "vocab_size": 67,
    "n_positions": 80,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "pad_token_id": 1,
}
# Settings of each model under Hugging Face's names.
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": SIZES,
    "untied": SIZES | {"tie_word_embeddings": False, "activation_function": "gelu"},
    "narrow-inner": SIZES | {"n_inner": 20, "activation_function": "relu", "n_layer": 3},
}
# Models that write, how, and how many prompts: each 64 tokens.
WRITERS = ("untied", "narrow-inner")
WAYS = {"greedy": {}, "beam": {"num_beams": 3, "length_penalty": 0.6}}
PROMPTS, NEW_TOKENS = 64, 64


def shapes(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a checkpoint, written down from the published layout."""
    e, f = c["n_embd"], c.get("n_inner", 4 * c["n_embd"])
    named = {"wte.weight": (c["vocab_size"], e), "wpe.weight": (c["n_positions"], e)}
    for n in range(c["n_layer"]):
        parts = {"attn.c_attn": (e, 3 * e), "attn.c_proj": (e, e)}
        parts |= {"mlp.c_fc": (e, f), "mlp.c_proj": (f, e)}
        for part, shape in parts.items():
            named |= {f"h.{n}.{part}.weight": shape, f"h.{n}.{part}.bias": shape[1:]}
        for norm in ("ln_1", "ln_2"):
            named |= {f"h.{n}.{norm}.weight": (e,), f"h.{n}.{norm}.bias": (e,)}
    named |= {"ln_f.weight": (e,), "ln_f.bias": (e,)}
    named = {f"transformer.{name}": shape for name, shape in named.items()}
    untied = not c.get("tie_word_embeddings", True)
    return named | ({"lm_head.weight": (c["vocab_size"], e)} if untied else {})


def _random(name: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(name.encode()))


def tensors(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """A checkpoint in float32, each tensor drawn from its name and shape alone."""
    return {name: _drawn(name, shape) for name, shape in shapes(config).items()}


def _drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    noise = _random(f"{name} {shape}").standard_normal(shape)
    if "ln_" in name and name.endswith("weight"):
        noise = 1 + 0.2 * noise
    elif name.endswith("bias"):
        noise *= 0.2
    elif "wte" in name or "wpe" in name:
        noise *= 0.5
    elif "c_attn" in name:
        noise *= 1.6 / shape[0] ** 0.5
    else:
        noise *= 0.8 / shape[0] ** 0.5
    return noise.astype(np.float32)


def prompts() -> dict[str, np.ndarray]:
    """Random prompts of 1 to 12 tokens, padded on the left."""
    random = _random("prompts")
    lengths = random.randint(1, 13, (PROMPTS, 1))
    real = np.arange(12)[None] >= 12 - lengths
    ids = random.randint(3, SIZES["vocab_size"], real.shape)
    return {"input_ids": np.where(real, ids, 1), "attention_mask": real.astype(int)}


def torch_model(name: str) -> Any:
    """The reference implementation with the weights of a model, eager attention, float32."""
    import torch
    import transformers

    config = transformers.GPT2Config(**CONFIGS[name], attn_implementation="eager")
    model = getattr(transformers, HEAD)(config).eval()
    state = {n: torch.from_numpy(array) for n, array in tensors(CONFIGS[name]).items()}
    left = model.load_state_dict(state, strict=False)
    assert not left.unexpected_keys, left
    assert all("attn.bias" in n or n == "lm_head.weight" for n in left.missing_keys), left
    return model


def torch_written(name: str, way: str) -> np.ndarray:
    """Ids that torch's `generate` writes, prompts included, padded to one length."""
    import torch

    given = {n: torch.from_numpy(array) for n, array in prompts().items()}
    with torch.no_grad():
        settings = {"max_new_tokens": NEW_TOKENS, "do_sample": False, **WAYS[way]}
        ids = torch_model(name).generate(**given, **settings)
    room = 12 + NEW_TOKENS - ids.shape[1]
    return np.pad(ids.numpy(), ((0, 0), (0, room)), constant_values=1).astype(np.uint8)


def main() -> None:
    """Write the file."""
    arrays = {f"{n}/{way}": torch_written(n, way) for n in WRITERS for way in WAYS}
    np.savez_compressed(GOLDEN, **arrays)
    sys.stdout.write(f"{GOLDEN.name}: {len(arrays)} arrays, {GOLDEN.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
