# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Text that T5, mT5 and UMT5 write: with a cache what is written without, and what torch writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_family_golden as golden
import numpy as np
import pytest

import flaxattn as fa

NEW, SOURCES = 16, 64

WAYS: dict[str, dict[str, Any]] = {"greedy": {}, "beam": {"num_beams": 3}}
WRITERS = ("t5", "mt5", "umt5")
Loaded = Callable[[str], Any]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    stored, models = golden.read("t5"), {}

    def find(name: str) -> Any:
        if name not in models:
            folder = stored[name].write(tmp_path_factory.mktemp("model") / "theirs")
            models[name] = fa.from_pretrained(folder)
        return models[name]

    return find


def sources(name: str, count: int) -> dict[str, np.ndarray]:
    """Sources of 3 to 40 tokens, padded on either side."""
    random = np.random.RandomState(count)
    lengths = random.randint(3, 41, count)
    given = golden.read("t5")[name].inputs(lengths=tuple(map(int, lengths)))
    return {field: given[field] for field in ("input_ids", "attention_mask")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5", "umt5"])
def test_a_cache_changes_no_token(name: str, loaded: Loaded) -> None:
    """Greedy texts, longer than the first cache, are what the model scores highest without one."""
    model, given = loaded(name), sources(name, 3)
    ids = model.generate(**given, max_new_tokens=40, min_new_tokens=40)
    assert ids.shape == (3, 41)
    read = {"decoder_input_ids": ids[:, :-1]}
    logits = np.array(model(**given, **read).logits)
    logits[..., 1] = -np.inf  # the end, which `min_new_tokens` puts off
    np.testing.assert_array_equal(logits.argmax(-1), ids[:, 1:])


@pytest.mark.slow
def test_beams_share_a_cache(loaded: Loaded) -> None:
    """The log-probability of each beam is that of reading its text without a cache."""
    model, given = loaded("t5"), sources("t5", 3)
    settings = {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.0}
    ids, scores = model.generate(**given, **settings, max_new_tokens=12, scores=True)
    each = {name: np.repeat(array, 3, axis=0) for name, array in given.items()}
    logits = np.asarray(model(**each, decoder_input_ids=ids[:, :-1]).logits, np.float64)
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    of_each = np.take_along_axis(logs, ids[:, 1:, None], -1)[..., 0]
    ended = np.cumsum(ids[:, 1:] == 1, axis=1) - (ids[:, 1:] == 1) > 0
    np.testing.assert_allclose(np.where(ended, 0, of_each).sum(1), scores, atol=1e-4)


@pytest.mark.few("umt5-beam", "t5-greedy")
@pytest.mark.parity
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", WRITERS)
def test_every_token_is_torchs(name: str, way: str, loaded: Loaded, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model, given = loaded(name), sources(name, SOURCES)
    model.save_pretrained(tmp_path / "ours")
    theirs = golden.torch_model(golden.cases_of("t5")[name], tmp_path / "ours")
    tensors = {field: torch.from_numpy(array) for field, array in given.items()}
    # Random models love to repeat the token that they read.
    settings = {"max_new_tokens": NEW, "no_repeat_ngram_size": 2, **WAYS[way]}
    expected = theirs.generate(
        **tensors, **settings, do_sample=False, decoder_start_token_id=0, pad_token_id=0
    ).numpy()
    ids = model.generate(**given, **settings)
    assert len({row.tobytes() for row in expected}) > SOURCES / 4
    ended = np.cumsum(expected == 1, axis=1) - (expected == 1) > 0
    np.testing.assert_array_equal(ids, np.where(ended, 0, expected))  # torch's beams repeat the end
