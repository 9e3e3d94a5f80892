# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The neuron level holds what a model computed: softmax(scale q·k + bias) is its weights."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_decoders import write_decoder

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.models.rnn import RnnLM
from flaxattn.trace.record import AttentionRecord
from flaxattn.views.payloads.neuron_payload import explain, require_neuron, shape_neuron
from flaxattn.views.payloads.page_encoding import Blocks
from flaxattn.views.payloads.side_payload import recorded

ALL = fa.Capture(weights=True, query=True, key=True, value=True, head_output=True)
TEXTS = {
    "tiny-bert": ("The cat is very sad.", "It found no food."),
    "tiny-gpt2": ("It was a dark and stormy night.",),
    "tiny-dates": ("3 May 2021", "2021-05-03"),
}


@pytest.fixture(scope="module")
def traces():
    return {n: fa.from_pretrained(n).trace(*texts, capture=ALL) for n, texts in TEXTS.items()}


def sides_of(trace, layers=None):
    """The sides of a trace, and what the page holds of each, with its blocks put in."""
    one, shaped = trace[0], {}
    for side, record in recorded(one).items():
        blocks = Blocks()
        about = shape_neuron(record, one, side, layers or record.layers, blocks, f"0/{side}")
        for name in ("query", "key", "value", "rotation", "bias"):
            if about and about[name]:
                about[name] = [blocks.data[block] for block in about[name]]
        shaped[side] = about
    return recorded(one), shaped


def decode(data, precision, heads, depth):
    kind = {"float32": "<f4", "float16": "<f2"}[precision]
    numbers = np.frombuffer(data, kind).astype(np.float64)
    return numbers.reshape(heads, -1, depth)


def softmax_of(side, layer, heads):
    """Written down once more, from the payload alone."""
    q, k = (
        decode(side[n][layer], side["precision"], heads, side["depth"]) for n in ("query", "key")
    )
    scores = side["scale"] * np.einsum("hqd,hkd->hqk", q, k)
    if side["bias"] is not None:
        scores += decode(side["bias"][layer], side["precision"], heads, k.shape[1])
    if side["windows"] is not None:
        left, right = side["windows"][layer]
        behind = np.arange(scores.shape[1])[:, None] - np.arange(scores.shape[2])
        scores[:, (behind > left) | (-behind > right)] = -np.inf
    if side["mask"] == "causal":
        scores[:, np.triu(np.ones(scores.shape[1:], bool), 1)] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


MASKS = {
    "tiny-bert": {"encoder": "none"},
    "tiny-gpt2": {"decoder": "causal"},
    "tiny-dates": {"encoder": "none", "decoder": "causal", "cross": "none"},
}


@pytest.mark.slow
@pytest.mark.few("gpt2")
@pytest.mark.parametrize("name", MASKS)
def test_the_softmax_of_what_is_shown_is_the_weights(traces, name):
    found, sides = sides_of(traces[name])
    assert {side: about["mask"] for side, about in sides.items()} == MASKS[name]
    for side, about in sides.items():
        record, heads = found[side], len(found[side].heads)
        assert about["scale"] == record.scale == about["depth"] ** -0.5
        assert (about["precision"], about["problem"], about["bias"]) == ("float32", "", None)
        for layer in range(len(record.layers)):
            shares = softmax_of(about, layer, heads)
            weights = np.asarray(record.weights)[layer, 0]
            np.testing.assert_allclose(shares, weights, atol=2e-6)
            value = decode(about["value"][layer], "float32", heads, about["width"])
            output = np.asarray(record.head_output)[layer, 0].swapaxes(0, 1)
            np.testing.assert_allclose(shares @ value, output, atol=2e-5)
        assert about["error"] <= 2e-6


@pytest.mark.slow
@pytest.mark.parametrize("scores", [False, True])
def test_windows_and_rotations_of_a_rotary_decoder(tmp_path, scores):
    gemma = fa.from_pretrained(write_decoder(tmp_path / "gemma"))
    text = "the cat sat on a mat and on a dog"
    trace = gemma.trace(text, capture=dataclasses.replace(ALL, scores=scores))
    found, sides = sides_of(trace)
    record, about, length = found["decoder"], sides["decoder"], len(trace.tokens[0])
    assert about["windows"] == [(5, 0), (length - 1, 0), (5, 0)]
    assert (about["mask"], about["bias"], about["problem"]) == ("causal", None, "")
    assert about["scale"] == pytest.approx(6**-0.5) and about["error"] <= 5e-6
    for layer in range(3):
        weights = np.asarray(record.weights)[layer, 0]
        np.testing.assert_allclose(softmax_of(about, layer, 4), weights, atol=5e-6)
        kept = decode(about["rotation"][layer], "float32", length, about["pairs"])
        np.testing.assert_array_equal(kept, np.asarray(record.rotation)[layer, 0])
    assert about["pairs"] == 4


@pytest.mark.slow
def test_a_window_on_both_sides_is_inferred_from_weights():
    record, length = made(0.5, length=9), 9
    behind = np.arange(length)[:, None] - np.arange(length)
    pairs = 0.5 * np.einsum("lbqhd,lbkhd->lbhqk", record.query, record.key)
    shares = np.where((behind <= 3) & (behind >= -2), np.exp(pairs), 0)
    shares = (shares / shares.sum(-1, keepdims=True)).astype(np.float32)
    terms = explain(dataclasses.replace(record, weights=shares), (0,))
    assert (terms.mask, terms.windows, terms.bias) == ("none", [(3, 2)], None)


def test_windows_that_a_record_names_are_not_guessed():
    """A window that is wider than all weights that are not 0, as rounding leaves them."""
    record, length = made(0.5, length=9), 9
    behind = np.arange(length)[:, None] - np.arange(length)
    pairs = 0.5 * np.einsum("lbqhd,lbkhd->lbhqk", record.query, record.key)
    shares = np.where((behind <= 3) & (behind >= 0), np.exp(pairs), 0)
    shares = (shares / shares.sum(-1, keepdims=True)).astype(np.float32)
    windowed = dataclasses.replace(record, weights=shares)
    terms = explain(windowed.with_windows([(3, None)]), (0,))
    assert (terms.mask, terms.windows) == ("causal", [(3, 0)])
    assert explain(windowed.with_windows([(2, None)]), (0,)) is None
    everything = explain(windowed.with_windows([None]), (0,))
    assert everything.windows == [(3, 0)]  # no window is named: inferred from weights


def test_many_numbers_are_halved_and_the_page_states_the_cost(traces, monkeypatch):
    monkeypatch.setattr("flaxattn.views.payloads.neuron_payload._EXACT_BYTES", 0)
    found, sides = sides_of(traces["tiny-gpt2"])
    (about,) = sides.values()
    heads = len(found["decoder"].heads)
    off = [
        np.abs(softmax_of(about, i, heads) - np.asarray(found["decoder"].weights)[i, 0]).max()
        for i in range(len(found["decoder"].layers))
    ]
    assert about["precision"] == "float16"
    assert max(off) == pytest.approx(about["error"], rel=1e-2)
    assert 1e-6 < max(off) < 1e-2


@pytest.mark.slow
def test_a_model_in_bfloat16_agrees_to_the_step_of_its_weights():
    model = fa.from_pretrained("tiny-bert")
    module = model.module.clone(dtype=jnp.bfloat16)
    capture = dataclasses.replace(ALL, dtype="uint8")
    trace = dataclasses.replace(model, module=module).trace("The cat is sad.", capture=capture)
    _, sides = sides_of(trace)
    assert sides["encoder"]["error"] <= 0.5 / 255 + 1e-4


def made(scale=None, *, factor=0.5, bias=0.0, causal=False, seed=0, scores=False, length=5):
    """A record whose weights are softmax(factor q·k + bias), which may not say its factor."""
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(2, 1, 1, length, 3, 4)).astype(np.float32) * 2
    pairs = factor * np.einsum("lbqhd,lbkhd->lbhqk", q, k) + bias
    if causal:
        pairs = np.where(np.tri(length, dtype=bool), pairs, -np.inf)
    shares = np.exp(pairs - pairs.max(-1, keepdims=True))
    shares = (shares / shares.sum(-1, keepdims=True)).astype(np.float32)
    return AttentionRecord(
        weights=shares,
        query=q,
        key=k,
        scores=pairs.astype(np.float32) if scores else None,
        layers=(0,),
        heads=(0, 1, 2),
        scale=scale,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_what_a_record_does_not_say_is_inferred_from_its_weights(causal):
    terms = explain(made(causal=causal), (0,))
    assert (terms.scale, terms.mask, terms.bias) == (0.5, "causal" if causal else "none", None)


def test_a_factor_of_its_own_is_the_one_that_is_shown():
    assert explain(made(0.9, factor=0.9), (0,)).scale == 0.9
    assert explain(made(factor=0.9), (0,)) is None


def test_scores_tell_bias_and_mask():
    bias = np.random.default_rng(1).normal(size=(1, 1, 3, 5, 5)) * 3
    bias[..., 2:, 0] = -np.inf
    record = made(0.5, bias=bias, scores=True)
    _, sides = sides_of(fa.Trace(encoder=record, tokens=[list("abcde")]))
    about = sides["encoder"]
    shown = decode(about["bias"][0], "float32", 3, 5)
    np.testing.assert_allclose(shown, bias[0, 0], atol=1e-5)
    np.testing.assert_allclose(softmax_of(about, 0, 3), record.weights[0, 0], atol=1e-6)
    assert explain(dataclasses.replace(record, scores=None), (0,)) is None


def test_a_row_without_keys_is_zero_and_no_warning():
    bias = np.zeros((1, 1, 3, 5, 5))
    record = made(0.5, scores=True)
    bias[..., 1, :] = -np.inf
    scores, weights = np.asarray(record.scores) + bias, np.array(record.weights)
    weights[..., 1, :] = 0
    terms = explain(dataclasses.replace(record, scores=scores, weights=weights), (0,))
    assert np.isneginf(terms.bias[0][:, 1]).all() and terms.error < 1e-6


@pytest.mark.slow
def test_additive_attention_has_no_product_and_says_so():
    config = fa.RnnConfig(vocab_size=23, decoder_vocab_size=19, embedding_size=6, hidden_size=8)
    module = RnnLM(config, capture=dataclasses.replace(ALL, scores=True))
    ids = np.arange(2, 9)[None]
    variables = module.init(jax.random.key(0), ids, decoder_input_ids=ids)
    params = jax.tree.map(lambda a: 3 * jnp.sin(1e4 * (1 + a)), variables["params"])
    _, state = module.apply(
        {"params": params}, ids, decoder_input_ids=ids, mutable=["intermediates"]
    )
    words = [[str(i) for i in ids[0]]]
    trace = fa.Trace.from_variables(state, tokens=words, decoder_tokens=words)
    _, sides = sides_of(trace)
    about = sides["cross"]
    assert (about["scale"], about["bias"]) == (None, None)
    assert about["problem"].startswith("The weights of this side are not a softmax")
    assert about["width"] == 16


@pytest.mark.slow
def test_chosen_layers_travel_alone(traces):
    found, sides = sides_of(traces["tiny-bert"], layers=[1])
    (record,), (about,) = found.values(), sides.values()
    assert len(about["query"]) == 1
    shown = softmax_of(about, 0, len(record.heads))
    np.testing.assert_allclose(shown, np.asarray(record.weights)[1, 0], atol=2e-6)


def test_a_trace_without_keys_says_how_to_capture_them(traces):
    bare = dataclasses.replace(traces["tiny-bert"].encoder, key=None, value=None, head_output=None)
    trace = dataclasses.replace(traces["tiny-bert"], encoder=bare)
    assert sides_of(trace)[1] == {"encoder": None}
    with pytest.raises(InputError) as caught:
        require_neuron(trace)
    assert str(caught.value) == (
        "The neuron view multiplies queries and keys; this trace holds weights and query.\n"
        "Capture them: model.trace(text, capture=fa.Capture(weights=True, query=True, key=True, "
        "value=True))."
    )
    require_neuron(traces["tiny-dates"])


@pytest.mark.parametrize(
    ("limit", "cure"),
    [(0, "a shorter text"), (100_000, "include_layers=[…] with at most 3")],
)
def test_too_many_numbers_are_refused_with_a_way_out(traces, monkeypatch, limit, cure):
    monkeypatch.setattr("flaxattn.views.payloads.neuron_payload.VECTORS_BYTES", limit)
    with pytest.raises(InputError) as caught:
        sides_of(traces["tiny-bert"])
    first, second, third = str(caught.value).splitlines()
    assert first.startswith("query, key, value of the encoder would take 0 MB of the page; 0 MB")
    assert second == "The text has 14 tokens, and 4 layers are to travel."
    assert third == f"Use {cure}, or capture fewer heads, or no values."


@pytest.mark.slow
def test_several_texts_share_the_room(traces, monkeypatch):
    one, blocks = traces["tiny-bert"][0], Blocks()
    (record,) = recorded(one).values()
    shape_neuron(record, one, "encoder", record.layers, blocks, "0/encoder")
    taken = blocks.size
    monkeypatch.setattr("flaxattn.views.payloads.neuron_payload.VECTORS_BYTES", taken + 1)
    with pytest.raises(InputError, match="Use one text, sequence=0, or capture fewer heads"):
        shape_neuron(record, one, "encoder", record.layers, blocks, "1/encoder")
