# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Continuations of decoders: with a cache as without, in chunks as in one piece, as torch's."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_family_golden as golden
import numpy as np
import pytest
from small_models import drawn

import flaxattn as fa
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.positions import Rotary
from flaxattn.pretrained import decoding_settings, generation
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

EVERY = [
    name
    for name, case in golden.cases_of("decoders").items()
    if case.architecture.endswith("CausalLM")
]
CASES = [name for name in EVERY if name != "dynamic"]  # its texts are too short for `MORE`
FEW = ("llama-left", "gemma3", "smollm3", "neox")
MORE = 23


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, Path]]:
    stored, held = golden.read("decoders"), {}

    def find(name: str) -> tuple[Any, Path]:
        if name not in held:
            folder = stored[name].write(tmp_path_factory.mktemp("model") / "theirs")
            held[name] = fa.from_pretrained(folder), folder
        return held[name]

    return find


def prompts(count: int, length: int = 9, seed: int = 0) -> dict[str, np.ndarray]:
    """Prompts of 1 to `length` tokens, padded on the left."""
    random = np.random.RandomState(seed)
    ids = random.randint(5, 67, (count, length))
    sizes = random.randint(1, length + 1, count)
    sizes[0] = length
    mask = (np.arange(length) >= length - sizes[:, None]).astype(int)
    return {"input_ids": ids * mask, "attention_mask": mask}


def logits_of(model: Any, ids: np.ndarray, mask: np.ndarray, size: int | None = None) -> np.ndarray:
    """Scores from one pass without cache over all tokens, or over the first `size` of them."""
    real = np.concatenate([mask, np.ones((len(ids), ids.shape[1] - mask.shape[1]), int)], axis=1)
    real *= np.arange(ids.shape[1]) < (size or ids.shape[1])
    return np.asarray(model(ids, real, np.maximum(real.cumsum(1) - 1, 0)).logits)


@pytest.mark.few("llama")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FEW else pytest.mark.slow) for n in CASES]
)
def test_cached_as_uncached(name: str, load: Callable[[str], tuple[Any, Path]]) -> None:
    """Every token is the best of a pass over all before it, also behind the windows."""
    model, _ = load(name)
    given = prompts(3)
    ids = model.generate(**given, max_new_tokens=MORE, eos=())
    scores = logits_of(model, ids, given["attention_mask"])[:, 8:-1]
    chosen = np.take_along_axis(scores, ids[:, 9:, None], axis=2)[..., 0]
    assert np.abs(scores.max(-1) - chosen).max() <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma3", "llama-left"])
def test_a_long_prompt_in_chunks(
    name: str, load: Callable[[str], tuple[Any, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = load(name)
    given = prompts(2, 20, seed=1)
    whole = model.generate(**given, max_new_tokens=6, eos=(), scores=True)
    monkeypatch.setattr(generation, "_CHUNK", 8)  # a prompt of 32 with its padding: four chunks
    generation._prefill.clear_cache()
    parts = model.generate(**given, max_new_tokens=6, eos=(), scores=True)
    generation._prefill.clear_cache()
    np.testing.assert_array_equal(parts[0], whole[0])
    np.testing.assert_allclose(parts[1], whole[1], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma3", "neox"])
def test_beams_share_caches_of_windows(name: str, load: Callable[[str], tuple[Any, Path]]) -> None:
    """The score of the best beam is the log-probability of its text in one pass."""
    model, _ = load(name)
    given = prompts(2)
    ids, found = model.generate(
        **given, max_new_tokens=MORE, num_beams=3, eos=(), length_penalty=0.0, scores=True
    )
    scores = logits_of(model, ids, given["attention_mask"])[:, 8:-1]
    logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    expected = np.take_along_axis(logs, ids[:, 9:, None], axis=2)[..., 0].sum(1)
    np.testing.assert_allclose(found, expected, atol=1e-4)


LONGROPE = Rotary(
    rope_type="longrope",
    original_max_position_embeddings=12,
    short_factor=(1.0, 1.1, 1.3, 1.7),
    long_factor=(2.0, 3.0, 5.0, 9.0),
)
DYNAMIC = Rotary(rope_theta=100.0, rope_type="dynamic", factor=3.0)
SAMPLED: dict[str, Any] = {"do_sample": True, "top_k": 0}
BEAMS: dict[str, Any] = {"num_beams": 3, "length_penalty": 0.0}
WINDOWED = {"sliding_window": 5, "layer_types": ("sliding_attention", "full_attention")}
# Prompt, frequencies and further settings, and the settings of generation.
LENGTHS = {
    "greedy": (9, LONGROPE, {}, {}),
    "sampled": (9, LONGROPE, {}, {**SAMPLED, "num_return_sequences": 2}),
    "beams": (9, LONGROPE, {}, BEAMS),
    "windows": (9, LONGROPE, WINDOWED, {}),
    "beams in windows": (9, LONGROPE, WINDOWED, BEAMS),
    "windows of their own": (9, Rotary(), {"local_rotary": LONGROPE, **WINDOWED}, {}),
    "up to the end": (12, LONGROPE, {}, {}),
    "beyond": (14, LONGROPE, {}, {}),
    "in chunks": (24, dataclasses.replace(LONGROPE, original_max_position_embeddings=20), {}, {}),
    "dynamic": (9, DYNAMIC, {}, {}),
    "dynamic in windows": (9, DYNAMIC, WINDOWED, SAMPLED),
    "dynamic, beams": (9, DYNAMIC, {}, BEAMS),
    "dynamic, beyond": (18, DYNAMIC, {}, {}),
    "dynamic, chunks of beams": (24, DYNAMIC, {}, BEAMS),
}


def changing(rotary: Rotary, settings: dict[str, Any]) -> fa.Pretrained:
    """A random decoder of two layers whose frequencies depend on the length of the text."""
    config = DecoderConfig(
        vocab_size=67,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=16 if rotary is DYNAMIC else 64,
        rotary=rotary,
        eos_token_id=None,
        pad_token_id=0,
        architectures=("LlamaForCausalLM",),
        **settings,
    )
    module = DecoderLM(config)
    params = drawn(module, np.ones((1, 2), np.int32))
    return PretrainedDecoder(module, params, None, config, "changing")


@pytest.mark.few("greedy")
@pytest.mark.parametrize("name", LENGTHS)
def test_frequencies_change_with_the_length(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each token has the probability of a pass over all before it, also past the change."""
    length, rotary, further, settings = LENGTHS[name]
    model = changing(rotary, further)
    if "chunks" in name:
        monkeypatch.setattr(generation, "_CHUNK", 8)
    monkeypatch.setattr(generation, "_READ_AGAIN", 4)
    given = prompts(2, length) | {"max_new_tokens": 8, "eos": ()}
    ids, found = model.generate(**given, **settings, scores=True)
    mask = np.repeat(given["attention_mask"], len(ids) // 2, axis=0)
    expected = 0
    for size in range(length, ids.shape[1]):
        scores = logits_of(model, ids, mask, size)[:, size - 1].astype(np.float64)
        logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        expected += np.take_along_axis(logs, ids[:, size, None], axis=1)[:, 0]
        if not settings:
            np.testing.assert_array_equal(ids[:, size], scores.argmax(1))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.few("dynamic")
@pytest.mark.parametrize("rotary", [LONGROPE, DYNAMIC], ids=["longrope", "dynamic"])
def test_a_text_is_read_as_if_it_were_alone(rotary: Rotary) -> None:
    """Frequencies of a traced text do not depend on longer texts in its batch, or on padding."""
    model = changing(rotary, {})
    given = prompts(2, 18)
    ids, mask = (given[key][:, ::-1] for key in ("input_ids", "attention_mask"))
    together = model.module.apply({"params": model.params}, ids, mask).logits
    for row, size in enumerate(mask.sum(1)):
        alone = model(ids[row : row + 1, :size]).logits
        np.testing.assert_allclose(together[row, :size], alone[0], atol=1e-5)


@pytest.mark.few("llama-left-1", "gemma3-3", "yarn-1")
@pytest.mark.parity
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", EVERY)
def test_torch_writes_the_same(
    name: str, beams: int, load: Callable[[str], tuple[Any, Path]]
) -> None:
    torch = pytest.importorskip("torch")
    model, folder = load(name)
    case = golden.cases_of("decoders")[name]
    theirs = golden.torch_model(case, folder)
    given = prompts(64)
    tensors = {key: torch.from_numpy(array) for key, array in given.items()}
    room = model.limit - given["input_ids"].shape[1]
    settings = {"max_new_tokens": min(12, room), "num_beams": beams}
    settings_of_theirs = {"do_sample": False, "pad_token_id": 1, "use_cache": name != "dynamic"}
    with torch.no_grad():  # upstream's cache keeps keys with the frequencies of a shorter text
        expected = theirs.generate(**tensors, **settings, **settings_of_theirs).numpy()
    found = model.generate(**given, **settings, pad=1)  # for 0 upstream writes the end
    np.testing.assert_array_equal(found, expected)


@pytest.mark.few("llama-left-3")
@pytest.mark.parity
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", FEW)
def test_torch_penalises_and_bans_the_same(
    name: str, beams: int, load: Callable[[str], tuple[Any, Path]], tmp_path: Path
) -> None:
    """The settings of a `generation_config.json`: 64 prompts, padding not counted as repeated."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model, folder = load(name)
    theirs = golden.torch_model(golden.cases_of("decoders")[name], folder)
    free = model.generate(**prompts(64), max_new_tokens=12, eos=())[:, 9:]
    often = np.bincount(free.ravel()).argsort()[::-1].tolist()
    settings = {
        "repetition_penalty": 1.3,
        "suppress_tokens": often[:2],
        "begin_suppress_tokens": often[2:5],
        "eos_token_id": often[5:8],
        "max_new_tokens": 12,
        "num_beams": beams,
        "pad_token_id": 1,  # where beams end, torch takes 0 for none
    }
    transformers.GenerationConfig(**settings).save_pretrained(tmp_path)
    given = prompts(64)
    tensors = {key: torch.from_numpy(array) for key, array in given.items()}
    with torch.no_grad():
        expected = theirs.generate(
            **tensors,
            generation_config=transformers.GenerationConfig.from_pretrained(tmp_path),
            do_sample=False,
        ).numpy()
    asking = dataclasses.replace(model, generation=decoding_settings.read(tmp_path))
    found = asking.generate(**given)
    np.testing.assert_array_equal(found, expected)
    changed = model.generate(**given, max_new_tokens=12, num_beams=beams)
    assert found.shape != changed.shape or (found != changed).any()
