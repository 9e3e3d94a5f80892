# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A published Llama-shaped checkpoint beside torch: its scores, and what it writes.

It runs where `FLAXATTN_REAL_DECODER` names the directory of one, such as SmolLM2-135M.
"""

import os
from pathlib import Path

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

TEXTS = [
    "The cat is very sad, because it could not find",
    "Berlin lies on the Spree, and İstanbul on two continents. Both of them",
    "def add(a, b):\n    ",
]


@pytest.fixture(scope="module")
def real_decoder() -> Path:
    """A published decoder: the directory that FLAXATTN_REAL_DECODER names."""
    folder = os.environ.get("FLAXATTN_REAL_DECODER")
    if not folder:
        pytest.skip("FLAXATTN_REAL_DECODER is not set")
    return Path(folder)


@pytest.mark.parity
def test_scores_and_greedy_text_are_torchs(real_decoder: Path) -> None:
    """Logits of every position within 1e-3 in float32, and the same 64 tokens after each text."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    ours = fa.from_pretrained(real_decoder)
    assert isinstance(ours, PretrainedDecoder) and ours.tokenizer is not None
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        real_decoder, attn_implementation="eager", dtype=torch.float32
    ).eval()
    for text in TEXTS:
        ids = ours.tokenizer.encode(text).input_ids
        given = torch.from_numpy(ids).long()
        settings = {"max_new_tokens": 64, "num_beams": 1, "do_sample": False}
        with torch.no_grad():
            logits = theirs(given).logits.numpy()
            mask = torch.ones_like(given)
            expected = theirs.generate(given, attention_mask=mask, **settings).numpy()
        assert np.abs(np.asarray(ours(ids).logits) - logits).max() <= 1e-3
        found = ours.generate(input_ids=ids, **settings)
        np.testing.assert_array_equal(found, expected)
