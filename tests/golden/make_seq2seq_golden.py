# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What torch transformers generates with models of `cases_marian.py`, and the script storing it.

`python tests/golden/make_seq2seq_golden.py` (with torch and transformers) writes `generated.npz`
beside this file. Sources come from NumPy's frozen `RandomState`.
"""

import json
import sys
import tempfile
from pathlib import Path

import make_family_golden as golden
import numpy as np
from cases_marian import SIZES
from family_case import random_of

from flaxattn.trace import tensor_file

GENERATED = Path(__file__).with_name("generated.npz")
# Models that generate, and how, from 64 sources.
WRITERS = ("marian", "two-vocabularies", "bart", "bart-deep-decoder")
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


def write(name: str, folder: Path) -> Path:
    """A checkpoint whose text depends on its source, and ends at different places.

    With tied embeddings a random decoder repeats what it read last. Here cross-attention is
    sharper and louder, and the end of the text more probable.
    """
    stored = golden.read("marian")[name]
    louder = {"encoder_attn.q_proj": 3.0, "encoder_attn.out_proj.weight": 6.0}
    tensors = stored.tensors()
    for tensor in tensors:
        factors = [factor for part, factor in louder.items() if part in tensor]
        if ".decoder." in tensor and tensor.endswith("fc2.weight"):
            factors = [4.0]
        tensors[tensor] = tensors[tensor] * np.float32(factors[0] if factors else 1)
    tensors["final_logits_bias"][0, 2] += 4
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(stored.config), encoding="utf-8")
    tensor_file.write(folder / tensor_file.SINGLE, tensors)
    return folder


def sources() -> dict[str, np.ndarray]:
    """Random sources of 3 to 12 tokens, padded on the right."""
    random = random_of("sources")
    lengths = random.randint(3, 13, (SOURCES, 1))
    real = np.arange(12)[None] < lengths
    ids = random.randint(3, SIZES["vocab_size"], real.shape)
    return {"input_ids": np.where(real, ids, 1), "attention_mask": real.astype(int)}


def torch_written(name: str, way: str) -> np.ndarray:
    """Ids that torch's `generate` writes, padded to one length."""
    import torch

    given = {n: torch.from_numpy(array) for n, array in sources().items()}
    settings = {**WAYS, **RARE}[way]
    settings = {n.replace("renormalize", "renormalize_logits"): v for n, v in settings.items()}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model = golden.torch_model(golden.cases_of("marian")[name], write(name, Path(folder)))
        ids = model.generate(**given, max_new_tokens=NEW_TOKENS, do_sample=False, **settings)
    room = NEW_TOKENS + 1 - ids.shape[1]
    return np.pad(ids.numpy(), ((0, 0), (0, room)), constant_values=1).astype(np.uint8)


def main() -> None:
    """Write the file."""
    texts = {f"{n}/{way}": torch_written(n, way) for n in WRITERS for way in WAYS}
    texts |= {f"{WRITERS[0]}/{way}": torch_written(WRITERS[0], way) for way in RARE}
    np.savez_compressed(GENERATED, **texts)
    sys.stdout.write(f"{GENERATED.name}: {len(texts)} arrays, {GENERATED.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
