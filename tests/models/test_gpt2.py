# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 by itself: its cache, its text, its sizes, and what it refuses.

Its numbers are compared with torch's in test_family_parity.py.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import make_family_golden
import make_gpt2_golden as golden
import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

import flaxattn as fa
from flaxattn.errors import CheckpointError, InputError
from flaxattn.models.decoder import DecoderLM
from flaxattn.pretrained import generation
from flaxattn.trace import tensor_file

STORED = make_family_golden.read("gpt2")
TEXTS = ["a cat", "été à midi", "no"]


def written(folder: Path, name: str = "gpt2", **settings: Any) -> Path:
    """The checkpoint of a model, with other settings."""
    STORED[name].write(folder)
    (folder / "config.json").write_text(json.dumps(STORED[name].config | settings))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return fa.from_pretrained(written(tmp_path_factory.mktemp("gpt2")))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model with a byte-level vocabulary of the letters that the texts are made of."""
    folder = written(tmp_path_factory.mktemp("reader"))
    letters = pre_tokenizers.ByteLevel.alphabet()
    used = sorted({c for text in TEXTS for c in _byte_letters(text)} | set(sorted(letters)[:20]))
    vocabulary = {"<|endoftext|>": 0} | {letter: i + 1 for i, letter in enumerate(used)}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.save(str(folder / "tokenizer.json"))
    return fa.from_pretrained(folder)


def _byte_letters(text: str) -> str:
    (split,) = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(
        text
    )
    return split[0]


@pytest.mark.slow
def test_a_cache_changes_nothing(model: Any) -> None:
    """One piece after the other, after prompts of any length, padded on the left."""
    given = golden.prompts()
    ids, mask = given["input_ids"][:5], given["attention_mask"][:5]
    ids = np.concatenate([ids, np.arange(40).reshape(5, 8) + 5], axis=1)
    real = np.pad(mask, ((0, 0), (0, 8)), constant_values=1)
    places = np.maximum(real.cumsum(1) - 1, 0)
    whole = model(ids, real, places).logits
    module = model.module.clone(cache_length=24)
    cache: dict[str, Any] = {}

    @jax.jit
    def decode_step(cache: Any, ids: Any, places: Any) -> Any:
        return module.apply(
            {"params": model.params, **cache}, ids, mask, places, None,
            method="decode_step", mutable=["cache"],
        )  # fmt: skip

    for place in range(12, 18):
        now = ids[:, :place] if not cache else ids[:, place - 1 : place]
        at = None if not cache else np.full((5, 1), place - 1)
        scores, state = decode_step(cache, now, at)
        cache = {"cache": state["cache"]}
        np.testing.assert_allclose(scores, whole[:, place - 1], rtol=0, atol=1e-5)


def test_a_future_token_changes_nothing_before_it(model: Any) -> None:
    """Exactly: not one bit."""
    ids = golden.prompts()["input_ids"]
    other = ids.copy()
    other[:, 8] = 3 + (ids[:, 8] - 2) % 60
    one, two = model(ids).logits, model(other).logits
    assert (one[:, :8] == two[:, :8]).all() and (one[:, 8] != two[:, 8]).any()


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"num_beams": 3}, {"do_sample": True}])
def test_neighbours_change_nothing(model: Any, settings: dict[str, Any]) -> None:
    """A prompt among others, and alone without its padding; drawn texts too."""
    given = golden.prompts()
    together = model.generate(**given, max_new_tokens=12, **settings)
    for i in (0, 41):
        prompt = given["input_ids"][i : i + 1, -given["attention_mask"][i].sum() :]
        alone = model.generate(input_ids=prompt, max_new_tokens=12, **settings)[0]
        after = together[i, 12:]
        np.testing.assert_array_equal(
            alone[prompt.shape[1] :], after[: len(alone[prompt.shape[1] :])]
        )
        assert (after[len(alone) - prompt.shape[1] :] == 1).all()


@pytest.mark.slow
def test_samples_of_one_prompt_differ_and_seeds_repeat_them(model: Any) -> None:
    given = {"input_ids": [[5, 6, 7]], "max_new_tokens": 12, "do_sample": True}
    one = model.generate(**given, num_return_sequences=4)
    assert one.shape[0] == 4 and len({row.tobytes() for row in one}) == 4
    np.testing.assert_array_equal(one, model.generate(**given, num_return_sequences=4))
    single = model.generate(**given)
    np.testing.assert_array_equal(single[0], one[0, : single.shape[1]])
    assert (model.generate(**given, seed=1)[0, :6] != one[0, :6]).any()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["greedy", pytest.param("beam", marks=pytest.mark.slow)])
def test_a_trace_is_that_of_reading_the_text(model: Any, way: str) -> None:
    """Of the winning text of each prompt, as if it had been given."""
    given = {name: array[:4] for name, array in golden.prompts().items()}
    settings = {"max_new_tokens": 10, **golden.WAYS[way]}
    ids, trace = model.generate(**given, trace=True, **settings)
    np.testing.assert_array_equal(ids, model.generate(**given, **settings))
    for i, row in enumerate(ids):
        start = 12 - given["attention_mask"][i].sum()
        text = row[start : start + trace.mask[i].sum()]
        alone = model(text[None], output_attentions=True).attentions
        one = trace[i]
        assert [int(piece) for piece in one.tokens[0]] == text.tolist()
        for ours, theirs in zip(one.attentions, alone, strict=True):
            assert np.abs(ours - theirs).max() < 1e-5


@pytest.mark.slow
def test_a_cache_that_grows_changes_no_token(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: array[:6] for name, array in golden.prompts().items()}
    for settings in ({}, {"num_beams": 3}):
        expected = model.generate(**given, max_new_tokens=30, **settings)
        monkeypatch.setattr(generation, "_FIRST_CAPACITY", 4)
        found = model.generate(**given, max_new_tokens=30, **settings)
        monkeypatch.undo()
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_tokens_are_what_a_person_wrote(reader: Any) -> None:
    """Letters are letters, an incomplete character shows its bytes, and words hold together."""
    trace = reader.trace(TEXTS)
    assert trace.tokens[0][:5] == ["a", " ", "c", "a", "t"]
    assert trace.tokens[1][:3] == ["<0xC3>", "<0xA9>", "t"]
    assert trace.words[0][:5] == [0, 1, 1, 1, 1]
    assert trace.texts == [(text,) for text in TEXTS]
    assert trace.mask.sum(1).tolist() == [len(text.encode()) for text in TEXTS]
    assert trace.decoder.weights.shape == (2, 3, 4, 13, 13)


@pytest.mark.slow
def test_texts_come_back_with_what_follows(reader: Any) -> None:
    both = reader.generate(TEXTS, max_new_tokens=8)
    assert all(text.startswith(prompt) for text, prompt in zip(both, TEXTS, strict=True))
    (alone,) = reader.generate(TEXTS[0], max_new_tokens=8)
    assert alone == both[0]
    generated, trace = reader.generate(TEXTS[:2], max_new_tokens=8, trace=True)
    assert [text for (text,) in trace.texts] == generated


def test_checkpoints_without_the_prefix(model: Any, tmp_path: Path) -> None:
    """As the published `gpt2` is: no prefix, buffers, and a copy of the words as output layer."""
    folder = written(tmp_path / "old")
    tensors = {n.removeprefix("transformer."): a for n, a in STORED["gpt2"].tensors().items()}
    tensors["lm_head.weight"] = tensors["wte.weight"]
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = np.tril(np.ones((1, 1, 80, 80), np.float32))
    tensor_file.write(folder / "model.safetensors", tensors)
    loaded = fa.from_pretrained(folder)
    assert not loaded.report.missing and not loaded.report.unexpected
    jax.tree.map(np.testing.assert_array_equal, loaded.params, model.params)


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(golden.GENERATED, allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.mark.slow
@pytest.mark.parametrize("way", golden.WAYS)
@pytest.mark.parametrize("name", golden.WRITERS)
def test_every_token_is_torchs(
    name: str, way: str, stored: dict[str, np.ndarray], tmp_path: Path
) -> None:
    """64 prompts of 1 to 12 tokens in one batch, 64 tokens after each."""
    model = fa.from_pretrained(written(tmp_path / "model", name))
    given = golden.prompts() | golden.WAYS[way]
    ids = model.generate(**given, max_new_tokens=golden.NEW_TOKENS)
    expected = stored[f"{name}/{way}"]
    padded = np.pad(ids, ((0, 0), (0, expected.shape[1] - ids.shape[1])), constant_values=1)
    np.testing.assert_array_equal(padded, expected)


@pytest.mark.few("untied-greedy")
@pytest.mark.parity
@pytest.mark.parametrize("way", golden.WAYS)
@pytest.mark.parametrize("name", golden.WRITERS)
def test_torch_still_writes_what_is_stored(
    name: str, way: str, stored: dict[str, np.ndarray]
) -> None:
    pytest.importorskip("torch")
    np.testing.assert_array_equal(golden.torch_written(name, way), stored[f"{name}/{way}"])


def test_the_stored_texts_are_worth_comparing(stored: dict[str, np.ndarray]) -> None:
    """They differ from prompt to prompt and from greedy to beam, and do not repeat one token."""
    for name in golden.WRITERS:
        texts = stored[f"{name}/greedy"][:, 12:]
        beams = stored[f"{name}/beam"][:, 12:]
        assert (beams != texts).any(1).sum() > golden.PROMPTS / 8
        assert len({text.tobytes() for text in texts}) > 0.8 * golden.PROMPTS
        assert np.mean([len(set(text)) for text in texts.tolist()]) > 5


@pytest.mark.slow
def test_the_published_sizes() -> None:
    def count(config: fa.GPT2Config) -> int:
        tree = jax.eval_shape(DecoderLM(config).init, jax.random.key(0), jnp.zeros((1, 1), int))
        return sum(leaf.size for leaf in jax.tree.leaves(tree))

    assert count(fa.GPT2Config()) == 124_439_808
    assert count(fa.GPT2Config.medium()) == 354_823_168
    assert count(fa.GPT2Config.large()) == 774_030_080
    assert count(fa.GPT2Config.xl()) == 1_557_611_200


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"input_ids": [[3] * 80]}, "a prompt has 80 tokens, the model has room for 80 in all"),
        ({"input_ids": [[3] * 81]}, "81 positions, the limit of this model is 80"),
        ({"input_ids": [[3, 4]], "attention_mask": [[1, 0]]}, "pad prompts on the left"),
        ({"input_ids": [[3, 4]], "max_new_tokens": 79}, "has room for 78"),
        ({"input_ids": [[3, 99]]}, "expected values from 0 to 66"),
        ({"input_ids": np.zeros((1, 0), int)}, "both at least 1"),
        ({"texts": "x", "input_ids": [[3]]}, "give either texts or input_ids"),
        ({"texts": "x"}, "came without a tokenizer"),
    ],
)
def test_what_is_refused(model: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        model.generate(**given)
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 3


def test_empty_prompts_are_refused(reader: Any) -> None:
    with pytest.raises(InputError, match="prompt 1 is empty"):
        reader.generate(["a", ""])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_head": 5}, "n_embd 32 is not a multiple of n_head 5"),
        ({"n_layer": 3}, "n_layer is 3, the tensors have 2 layers"),
        ({"n_inner": 21}, "inner_size is 21 in config.json, 128 in the tensors"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        ({"activation_function": "mish"}, "activation_function is 'mish'"),
        ({"n_embd": 0}, "n_embd must be at least 1"),
    ],
)
def test_checkpoints_that_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckpointError) as error:
        fa.from_pretrained(written(tmp_path / "model", **settings))
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 3


def test_a_tokenizer_that_does_not_fit(reader: Any, tmp_path: Path) -> None:
    reader.tokenizer.save(tmp_path)
    folder = written(tmp_path, vocab_size=7)
    with pytest.raises(CheckpointError, match=r"vocab_size is 7 in config\.json, 67 in the"):
        fa.from_pretrained(folder)
