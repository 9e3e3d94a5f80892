# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A pretrained model: calling it as in Hugging Face, tracing texts, saving; and what it refuses.

Numbers against torch are in test_family_parity.py; files are in test_model_directory.py.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import FlaxattnError, InputError
from flaxattn.kernels.contract import Capture, Sieve
from flaxattn.pretrained import model_inputs, pretrained_encoders, pretrained_model
from flaxattn.trace.trace import Attentions, as_attentions

CAT, FOOD = "The cat is very sad.", "Because it could not find food to eat!"


@pytest.fixture(scope="module")
def model(reader: Path) -> fa.Pretrained:
    return fa.from_pretrained(reader)


@pytest.fixture(scope="module")
def ids(model: fa.Pretrained) -> dict[str, np.ndarray]:
    assert model.tokenizer is not None
    encoded = model.tokenizer.encode([CAT, "a cat"], [FOOD, "b"])
    return {
        "input_ids": encoded.input_ids,
        "attention_mask": encoded.attention_mask,
        "token_type_ids": encoded.token_type_ids,
    }


@pytest.fixture(scope="module")
def pair(model: fa.Pretrained) -> fa.Trace:
    return model.trace(CAT, FOOD)


def test_call_with_the_names_of_hugging_face(
    model: fa.Pretrained, ids: dict[str, np.ndarray]
) -> None:
    out = model(**ids, output_attentions=True, output_hidden_states=True)
    batch, length = ids["input_ids"].shape
    assert out.prediction_logits.shape == (batch, length, model.config.vocab_size)
    assert out.seq_relationship_logits.shape == (batch, 2)
    assert [a.shape for a in out.attentions] == [(batch, 4, length, length)] * 2
    assert [h.shape for h in out.hidden_states] == [(batch, length, 32)] * 3
    assert (out.hidden_states[-1] == out.last_hidden_state).all()
    assert isinstance(out.last_hidden_state, jax.Array) and out.logits is None
    plain = model(**ids)
    assert plain.attentions is None and plain.hidden_states is None
    np.testing.assert_allclose(plain.prediction_logits, out.prediction_logits, atol=1e-5)


def test_call_takes_lists_any_integers_and_defaults(model: fa.Pretrained) -> None:
    rows = [[2, 6, 7, 3], [2, 8, 9, 3]]
    zeros = np.zeros((2, 4), np.int64)
    expected = model(rows, zeros + 1, zeros, np.arange(4)[None])
    same = model(
        jnp.asarray(rows, jnp.uint8), np.ones((2, 4), bool), zeros.tolist(), zeros + range(4)
    )
    assert (expected.last_hidden_state == same.last_hidden_state).all()
    before = pretrained_model.run._cache_size()
    default = model(input_ids=np.array(rows, np.int64))
    assert (default.last_hidden_state == same.last_hidden_state).all()
    assert pretrained_model.run._cache_size() == before, "defaults need no program of their own"
    within = jax.eval_shape(lambda given: model(given).last_hidden_state, jnp.asarray(rows))
    assert within.shape == same.last_hidden_state.shape, "it can be called under jit"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"input_ids": None}, "input_ids is missing"),
        ({"input_ids": [2, 3]}, r"expected shape \[B, S\].* received \[2\]\.\nAdd the batch axis"),
        ({"input_ids": np.zeros((1, 0), int)}, r"received \[1, 0\]"),
        ({"input_ids": [[2, 3], [2]]}, "input_ids: this is not an array"),
        ({"input_ids": [[2.0, 3.0]]}, "expected integers, received dtype float64"),
        ({"input_ids": [["a"]]}, "expected integers, received dtype <U1"),
        (
            {"input_ids": [[2, 777]]},
            r"from 0 to \d+ \(vocab_size\), received 777\.\nWas it made for",
        ),
        ({"input_ids": [[2, -1]]}, "received -1"),
        ({"input_ids": [[2, 2**40]]}, "whole numbers of 32 bits"),
        ({"input_ids": [[1] * 73]}, "73 positions, the limit of this model is 72"),
        ({"attention_mask": [[1]]}, r"attention_mask: expected shape \[1, 2\] as input_ids has, "),
        ({"attention_mask": [[1, 2]]}, r"from 0 to 1 \(1 at real positions, 0 at padding\)"),
        ({"attention_mask": [[0.5, 1]]}, "whole numbers"),
        ({"token_type_ids": [[0, 2]]}, r"token_type_ids: .*from 0 to 1 \(type_vocab_size\)"),
        ({"position_ids": [[0, 72]]}, r"position_ids: .*from 0 to 71 \(max_position_embeddings\)"),
    ],
)
def test_wrong_arrays(model: fa.Pretrained, given: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        model(**{"input_ids": [[2, 3]], **given})
    assert len(str(caught.value).splitlines()) <= 3


def test_trace_of_a_pair(model: fa.Pretrained, pair: fa.Trace) -> None:
    words = "[CLS] the cat is very sad . [SEP] because it could not find food to eat ! [SEP]"
    assert pair.tokens == [words.split()]
    assert pair.encoder is not None and pair.encoder.weights is not None
    assert pair.encoder.weights.shape == (2, 1, 4, 18, 18)
    assert pair.segments.tolist() == [[0] * 8 + [1] * 10]
    assert pair.mask.all() and pair.mask.dtype == bool
    assert np.flatnonzero(pair.special[0]).tolist() == [0, 7, 17]
    assert pair.words[0][:9] == [None, 0, 1, 2, 3, 4, 5, None, 0]
    assert pair.texts == [(CAT, FOOD)] and list(pair.truncated) == [0]
    assert pair.model == model.name and pair.layers == (0, 1) and pair.heads == (0, 1, 2, 3)
    np.testing.assert_allclose(pair.encoder.weights.sum(-1), 1, atol=1e-5)


def test_traced_weights_are_those_of_the_call(
    model: fa.Pretrained, pair: fa.Trace, ids: dict[str, np.ndarray]
) -> None:
    """Padding to a length that many texts share changes nothing but rounding."""
    called = model(**ids, output_attentions=True, output_hidden_states=True).attentions
    first = np.stack(called)[:, :1]
    np.testing.assert_allclose(np.stack(pair.attentions), first, rtol=0, atol=2e-6)


@pytest.mark.slow
def test_every_field_is_cut_to_the_longest_text(model: fa.Pretrained) -> None:
    """Each field of a padded trace equals the field of the module on the bare arrays."""
    stats = ("lse", "entropy", "max", "argmax", "topk(3)", "distance", "sum_sq", "received")
    capture = Capture(True, True, True, True, True, True, stats=stats)
    trace = model.trace([CAT, "food"], capture=capture)
    assert trace.encoder is not None and model.tokenizer is not None
    encoded = model.tokenizer.encode([CAT, "food"])
    given = (encoded.input_ids, encoded.attention_mask, encoded.token_type_ids)
    module = model.module.clone(capture=capture)
    bare = jax.jit(lambda p: module.apply({"params": p}, *given, mutable=["intermediates"])[1])
    bare = fa.Trace.from_variables(bare(model.params)).encoder
    found, expected = jax.tree.leaves(trace.encoder), jax.tree.leaves(bare)
    assert len(found) == len(expected) == 6 + len(stats) + 1
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-5)


@pytest.mark.slow
def test_trace_of_several(model: fa.Pretrained) -> None:
    trace = model.trace([CAT, "the cat", "food"])
    assert len(trace) == 3 and [len(row) for row in trace.tokens] == [8] * 3
    assert trace.mask.sum(1).tolist() == [8, 4, 3]
    assert trace.tokens[2][3:] == ["[PAD]"] * 5 and trace.special[2, 3:].all()
    one = trace[1]
    assert one.tokens == [["[CLS]", "the", "cat", "[SEP]"]]
    alone = model.trace("the cat")
    np.testing.assert_allclose(one.encoder.weights, alone.encoder.weights, atol=2e-6)
    assert one.texts == alone.texts == [("the cat",)]


@pytest.mark.slow
def test_twenty_sentences_share_compiled_programs(model: fa.Pretrained) -> None:
    words = (CAT + " " + FOOD).split()
    capture = Capture(stats=("entropy",), layers=(1,))
    before = pretrained_model.record_only._cache_size()
    lengths = set()
    for count in range(1, 21):
        trace = model.trace(" ".join((words * 2)[:count]), capture=capture)
        lengths.add(trace.encoder.stats["entropy"].shape[-1])
    assert len(lengths) == 20
    assert pretrained_model.record_only._cache_size() - before == 1


def test_compiled_lengths() -> None:
    limit = 512
    lengths = [model_inputs.bucket(n, limit) for n in range(1, limit + 1)]
    assert all(found >= n for n, found in enumerate(lengths, start=1))
    assert len(set(lengths)) == 10 and max(lengths) == limit
    assert model_inputs.bucket(3, 8) == 8 and model_inputs.bucket(1000, 4096) == 1024


@pytest.mark.slow
def test_sieves_see_key_classes(model: fa.Pretrained) -> None:
    bits = {
        "special": pretrained_encoders.SPECIAL,
        "first": pretrained_encoders.FIRST,
        "separator": pretrained_encoders.SEPARATOR,
        "punctuation": pretrained_encoders.PUNCTUATION,
    }
    sieves = tuple(Sieve(name, key_class=bit) for name, bit in bits.items())
    trace = model.trace([CAT, "a"], [FOOD, "b"], capture=Capture(weights=True, stats=sieves))
    tokens = np.array(trace.tokens)
    members = {
        "special": np.isin(tokens, ["[CLS]", "[SEP]"]),
        "first": tokens == "[CLS]",
        "separator": tokens == "[SEP]",
        "punctuation": np.isin(tokens, [".", "!"]),
    }
    for name, member in members.items():
        mass = np.einsum("lbhqk,bk->lbhq", trace.encoder.weights, member.astype(np.float32))
        np.testing.assert_allclose(trace.encoder.stats[name], mass, atol=2e-6)


def test_some_layers_and_heads(model: fa.Pretrained, pair: fa.Trace) -> None:
    some = model.trace(CAT, FOOD, capture=Capture(weights=True, layers=(1,), heads=(3, 0)))
    assert some.layers == (1,) and some.heads == (3, 0)
    expected = pair.encoder.weights[1:, :, np.array([3, 0])]
    np.testing.assert_allclose(some.encoder.weights, expected, atol=2e-6)


@pytest.mark.parametrize(
    ("capture", "words"),
    [
        (
            Capture(weights=True, layers=(0, 2, 9)),
            r"capture\.layers asks for 2, 9, but .* 0 to 1\.",
        ),
        (Capture(weights=True, heads=(4,)), r"capture\.heads asks for 4, but .* heads 0 to 3\."),
        (Capture(), "hold no attention"),
    ],
)
def test_a_capture_that_cannot_be(model: fa.Pretrained, capture: Capture, words: str) -> None:
    with pytest.raises(InputError, match=words):
        model.trace(CAT, capture=capture)


@pytest.mark.slow
def test_a_text_over_the_limit(model: fa.Pretrained) -> None:
    text = "the cat " * 40
    with pytest.raises(
        FlaxattnError, match=r"too long: 82 tokens, the limit is 72\n.*\n.*truncate"
    ):
        model.trace(text)
    trace = model.trace(text, truncate=True)
    assert list(trace.truncated) == [10]
    assert trace.encoder.weights.shape[-1] == len(trace.tokens[0]) == 72


def test_no_tokenizer_and_no_text(model: fa.Pretrained) -> None:
    with pytest.raises(FlaxattnError, match="empty"):
        model.trace("")
    bare = dataclasses.replace(model, tokenizer=None)
    with pytest.raises(InputError, match="came without a tokenizer, so it cannot read text"):
        bare.trace(CAT)


def test_heads_and_dtypes(reader: Path, model: fa.Pretrained, ids: dict[str, np.ndarray]) -> None:
    base = fa.from_pretrained(reader, head="base")
    assert base.config.architectures == ("BertModel",)
    assert "BertModel, 2 layers, 4 heads" in repr(base)
    with pytest.warns(UserWarning, match=r"lacks classifier\.bias, classifier\.weight"):
        three = fa.from_pretrained(reader, "BertForSequenceClassification", num_labels=3)
    assert three.report.missing and three.config.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    half = fa.from_pretrained(reader, head="base", dtype="bfloat16")
    with jax.numpy_dtype_promotion("standard"):  # norms multiply float32 with their scale
        out = half(**ids)
    assert out.last_hidden_state.dtype == jnp.bfloat16
    assert {leaf.dtype.name for leaf in jax.tree.leaves(half.params)} == {"bfloat16"}
    exact = model(**ids, output_attentions=True, output_hidden_states=True).last_hidden_state
    assert np.abs(np.asarray(out.last_hidden_state, np.float32) - np.asarray(exact)).mean() < 0.05


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_save_and_open_again(
    model: fa.Pretrained, pair: fa.Trace, dtype: str | None, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path / "saved", dtype=dtype)
    again = fa.from_pretrained(tmp_path / "saved")
    assert again.config == model.config
    trace = again.trace(CAT, FOOD)
    assert trace.tokens == pair.tokens
    expected = pair.encoder.weights
    np.testing.assert_allclose(trace.encoder.weights, expected, atol=2e-2 if dtype else 0)
    size = (tmp_path / "saved" / "model.safetensors").stat().st_size
    count = sum(leaf.size for leaf in jax.tree.leaves(model.params))
    assert size < count * (2 if dtype else 4) + 20_000


@pytest.mark.parity
def test_torch_reads_the_same_text_alike(
    model: fa.Pretrained, pair: fa.Trace, tmp_path: Path
) -> None:
    """What we save opens in transformers, tokenizer and all, and attends alike."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model.save_pretrained(tmp_path / "saved")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "saved", attn_implementation="eager")
    encoded = tokenizer(CAT, FOOD, return_tensors="pt")
    with torch.no_grad():
        attentions = theirs(**encoded, output_attentions=True).attentions
    assert tokenizer.convert_ids_to_tokens(encoded["input_ids"][0]) == pair.tokens[0]
    for ours, reference in zip(pair.attentions, attentions, strict=True):
        np.testing.assert_allclose(ours, reference.numpy(), rtol=0, atol=1e-5)


@pytest.mark.parity
@pytest.mark.filterwarnings(  # BertViz leaves its own files open
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("view", ["head_view", "model_view"])
def test_bertviz_takes_attentions_unchanged(
    model: fa.Pretrained, pair: fa.Trace, ids: dict[str, np.ndarray], view: str
) -> None:
    bertviz = pytest.importorskip("bertviz")
    show = getattr(bertviz, view)
    page = show(pair.attentions, pair.tokens[0], html_action="return")
    assert f"{float(pair.attentions[1][0, 2, 3, 4]):.6f}"[:7] in page.data
    called = model(**ids, output_attentions=True, output_hidden_states=True).attentions
    first = [layer[:1] for layer in called]
    show(first, pair.tokens[0], 8, html_action="return", include_layers=[1])


@pytest.mark.parity
def test_torch_functions_take_attentions() -> None:
    torch = pytest.importorskip("torch")
    one = as_attentions(np.random.RandomState(0).rand(2, 1, 3, 4, 4))
    stacked = torch.stack(one)
    assert torch.is_tensor(stacked) and stacked.shape == (2, 1, 3, 4, 4)
    assert torch.mean(one[0], dim=1).shape == (1, 4, 4)
    assert torch.is_tensor(torch.ones(4) * one[0])


def test_attentions_are_arrays_with_the_sizes_of_torch() -> None:
    weights = np.random.RandomState(0).rand(2, 1, 3, 4, 4).astype(np.float32)
    one, two = as_attentions(jnp.asarray(weights))
    assert isinstance(one, Attentions) and one.dtype == np.float32
    assert one.size == 48 and one.size(1) == 3 and one.size(-1) == 4 and one.size() == one.shape
    assert one[0].size(0) == 3 and one.squeeze(0).shape == (3, 4, 4)
    np.testing.assert_array_equal(np.stack([one, two]), weights)
    assert float(np.mean(one)) == pytest.approx(weights[0].mean())
    assert jnp.asarray(one).shape == one.shape
    (third,) = as_attentions(np.full((1, 1, 1, 1, 1), 51, np.uint8))
    assert third.item() == pytest.approx(0.2)
    (half,) = as_attentions(jnp.full((1, 1, 1, 1, 1), 0.5, jnp.bfloat16))
    assert half.dtype == np.float32 and half.item() == 0.5
