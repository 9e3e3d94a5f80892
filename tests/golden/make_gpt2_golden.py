# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What torch transformers generates with models of `cases_gpt2.py`, and the script storing it.

`python tests/golden/make_gpt2_golden.py` (with torch and transformers) writes `gpt2.npz` beside
this file. Prompts come from NumPy's frozen `RandomState`.
"""

import sys
import tempfile
from pathlib import Path

import make_family_golden as golden
import numpy as np
from cases_gpt2 import SIZES
from family_case import random_of

GENERATED = Path(__file__).with_name("gpt2.npz")
# Models that generate, how, and how many prompts: each 64 tokens.
WRITERS = ("untied", "narrow-inner")
WAYS = {"greedy": {}, "beam": {"num_beams": 3, "length_penalty": 0.6}}
PROMPTS, NEW_TOKENS = 64, 64


def prompts() -> dict[str, np.ndarray]:
    """Random prompts of 1 to 12 tokens, padded on the left."""
    random = random_of("prompts")
    lengths = random.randint(1, 13, (PROMPTS, 1))
    real = np.arange(12)[None] >= 12 - lengths
    ids = random.randint(3, SIZES["vocab_size"], real.shape)
    return {"input_ids": np.where(real, ids, 1), "attention_mask": real.astype(int)}


def torch_written(name: str, way: str) -> np.ndarray:
    """Ids that torch's `generate` writes, prompts included, padded to one length."""
    import torch

    stored = golden.read("gpt2")[name]
    given = {n: torch.from_numpy(array) for n, array in prompts().items()}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model = golden.torch_model(stored.case, stored.write(Path(folder) / "model"))
        settings = {"max_new_tokens": NEW_TOKENS, "do_sample": False, **WAYS[way]}
        ids = model.generate(**given, **settings)
    room = 12 + NEW_TOKENS - ids.shape[1]
    return np.pad(ids.numpy(), ((0, 0), (0, room)), constant_values=1).astype(np.uint8)


def main() -> None:
    """Write the file."""
    texts = {f"{n}/{way}": torch_written(n, way) for n in WRITERS for way in WAYS}
    np.savez_compressed(GENERATED, **texts)
    sys.stdout.write(f"{GENERATED.name}: {len(texts)} arrays, {GENERATED.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
