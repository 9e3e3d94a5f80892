# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A trace made of arrays: fields, one sequence of several, what is refused."""

import dataclasses

import jax
import numpy as np
import pytest

from flaxattn.errors import InputError
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace

RNG = np.random.default_rng(0)
WEIGHTS = RNG.dirichlet(np.ones(5), (2, 3, 4, 5)).astype(np.float32)  # [L, B, H, Q, K]
TOKENS = [[f"{b}{i}" for i in range(5)] for b in range(3)]
MASK = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]], bool)


def full_trace():
    record = AttentionRecord(
        weights=WEIGHTS,
        scores=WEIGHTS,
        query=RNG.normal(size=(2, 3, 5, 4, 8)),
        key=RNG.normal(size=(2, 3, 5, 4, 8)),
        value=RNG.normal(size=(2, 3, 5, 4, 8)),
        head_output=RNG.normal(size=(2, 3, 5, 4, 8)),
        hidden=RNG.normal(size=(2, 3, 5, 7)),
        stats={
            "entropy": RNG.normal(size=(2, 3, 4, 5)),
            "received": RNG.normal(size=(2, 3, 4, 5)),
            "topk_weights": RNG.normal(size=(2, 3, 4, 5, 2)),
        },
        layers=(4, 6),
        heads=(0, 1, 2, 3),
        implementation="xla",
    )
    return Trace(
        encoder=record,
        tokens=TOKENS,
        mask=MASK,
        segments=np.array([[0, 0, 1, 1, 1]] * 3),
        words=[[None, 0, 0, 1, None]] * 3,
        special=~MASK,
        texts=[("a", "b")] * 3,
        truncated=[0, 0, 2],
        model="m",
    )


@pytest.mark.parametrize("b", range(3))
def test_one_sequence_has_its_real_positions_and_no_others(b):
    trace = full_trace()
    one = trace[b]
    real = np.flatnonzero(MASK[b])
    assert one.tokens == [[TOKENS[b][i] for i in real]]
    np.testing.assert_array_equal(one.encoder.weights, WEIGHTS[:, [b]][..., real, :][..., real])
    np.testing.assert_array_equal(one.encoder.scores, one.encoder.weights)
    for name in ("query", "key", "value", "head_output", "hidden"):
        whole = getattr(trace.encoder, name)
        np.testing.assert_array_equal(getattr(one.encoder, name), whole[:, [b]][:, :, real])
    for name in ("entropy", "received", "topk_weights"):
        whole = trace.encoder.stats[name]
        np.testing.assert_array_equal(one.encoder.stats[name], whole[:, [b]][:, :, :, real])
    assert one.mask.all()
    assert one.segments.shape == one.special.shape == (1, len(real))
    assert one.words == [[trace.words[b][i] for i in real]]
    assert one.truncated == [trace.truncated[b]]
    assert (one.layers, one.heads, len(one)) == ((4, 6), (0, 1, 2, 3), 1)


def test_keys_are_numbered_as_the_sequence_counts_them():
    """Padding on the left moves the numbers of keys; a row that sees none keeps its -1."""
    weights = np.where(MASK[None, :, None, None], WEIGHTS, 0)
    best = weights.argmax(-1).astype(np.int32)
    best[0, 2, 0, 3] = -1
    both = np.stack([best, weights.argsort(-1)[..., -2]], -1)
    stats = {"argmax": best, "topk_indices": both}
    trace = dataclasses.replace(
        full_trace(), encoder=dataclasses.replace(full_trace().encoder, stats=stats)
    )
    one = trace[2].encoder
    expected = weights[:, [2]][..., 2:, 2:].argmax(-1)
    expected[0, 0, 0, 1] = -1
    np.testing.assert_array_equal(one.stats["argmax"], expected)
    np.testing.assert_array_equal(one.stats["topk_indices"][..., 0], expected)
    assert one.stats["argmax"].dtype == np.int32


def test_iteration_and_negative_indices():
    trace = full_trace()
    assert [len(one.tokens[0]) for one in trace] == [5, 3, 3]
    assert trace[-1].tokens == trace[2].tokens


@pytest.mark.parametrize("sequence", [3, -4])
def test_no_such_sequence(sequence):
    with pytest.raises(InputError, match=rf"sequences 0 to 2; there is no {sequence}"):
        full_trace()[sequence]


def test_a_hugging_face_tuple_is_taken():
    trace = Trace.from_arrays(tuple(WEIGHTS), TOKENS)
    np.testing.assert_array_equal(trace.encoder.weights, WEIGHTS)
    assert (trace.layers, trace.heads) == ((0, 1), (0, 1, 2, 3))
    for ours, theirs in zip(trace.attentions, WEIGHTS, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(trace.encoder_attentions) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(weights=WEIGHTS[0], tokens=TOKENS), r"expected weights of shape \[L, B, H, Q, K\]"),
        (dict(tokens=TOKENS), "received nothing"),
        (dict(weights=WEIGHTS, tokens=TOKENS[:2]), "Expected 3 lists of 5 tokens"),
        (dict(weights=WEIGHTS, tokens=[t[:4] for t in TOKENS]), r"received lengths \[4, 4, 4\]"),
    ],
)
def test_arrays_that_do_not_fit(arguments, message):
    with pytest.raises(InputError, match=message) as caught:
        Trace.from_arrays(**arguments)
    assert len(str(caught.value).splitlines()) <= 3


def shares(*shape):
    return RNG.dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)


def test_three_sides_of_unequal_depth_are_taken():
    encoder, decoder, cross = shares(3, 2, 2, 5, 5), shares(1, 2, 4, 3, 3), shares(2, 2, 4, 3, 5)
    read = [["<s>", "a", "b"], ["<s>", "c", "<pad>"]]
    trace = Trace.from_arrays(
        encoder,
        TOKENS[:2],
        decoder_weights=list(decoder),
        cross_weights=tuple(cross),
        decoder_tokens=read,
        written=[["a", "b", "</s>"], ["c", "</s>", "<pad>"]],
        decoder_words=[[0, 1, None], [0, None, None]],
        mask=MASK[:2],
        decoder_mask=np.array([[1, 1, 1], [1, 1, 0]], bool),
    )
    for side, given in (("encoder", encoder), ("decoder", decoder), ("cross", cross)):
        attention = getattr(trace, side)
        np.testing.assert_array_equal(attention.weights, given)
        assert (len(attention.layers), len(attention.heads)) == (given.shape[0], given.shape[2])
    one = trace[1]
    np.testing.assert_array_equal(one.cross.weights, cross[:, [1]][..., :2, :3])
    assert (one.written, one.decoder_words) == ([["c", "</s>"]], [[0, None]])


def test_cross_attention_stands_alone():
    cross = shares(1, 3, 2, 4, 5)
    trace = Trace.from_arrays(
        cross_weights=cross, tokens=TOKENS, decoder_tokens=[list("abcd")] * 3, mask=MASK
    )
    assert (len(trace), trace.layers, trace.heads) == (3, (0,), (0, 1))
    assert repr(trace).startswith("Trace(arrays: 3 sequences, layers [0], heads [0, 1], weights")
    np.testing.assert_array_equal(trace[1].cross.weights, cross[:, [1]][..., :3])
    written = Trace(cross=trace.cross, tokens=TOKENS, written=[list("abcd")] * 3)
    np.testing.assert_array_equal(written[0].cross.weights, cross[:, [0]])


@pytest.mark.parametrize(
    "arguments",
    [
        dict(cross_weights=np.ones((1, 3, 1, 4, 4)), decoder_tokens=[list("abcd")] * 3),
        dict(cross_weights=np.ones((1, 3, 1, 4, 5)), decoder_tokens=[list("abcd")] * 2),
        dict(cross_weights=np.ones((1, 3, 4, 5)), decoder_tokens=[list("abcd")] * 3),
        dict(cross_weights=np.ones((1, 3, 1, 4, 5))),
        dict(cross_weights=np.ones((1, 3, 1, 4, 5)), decoder_tokens=["abcd", "abcd", "abc"]),
        dict(decoder_weights=np.ones((1, 3, 1, 4, 5)), decoder_tokens=[list("abcd")] * 3),
    ],
)
def test_sides_that_do_not_fit_their_tokens(arguments):
    with pytest.raises(InputError, match=r"_weights: expected shape \[L, B, H, Q, K\]") as caught:
        Trace.from_arrays(tokens=TOKENS, **arguments)
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(("given", "name"), [((), "tokens"), (TOKENS, "decoder_tokens")])
def test_a_trace_without_tokens_cannot_be_cut(given, name):
    record = AttentionRecord(weights=shares(1, 3, 2, 4, 5), layers=(0,), heads=(0, 1))
    with pytest.raises(InputError, match=rf"This trace holds no {name}, so padding"):
        Trace(cross=record, tokens=given)[0]


def test_what_was_not_captured_is_reported():
    trace = dataclasses.replace(
        full_trace(), encoder=AttentionRecord(stats={"lse": WEIGHTS[..., 0]})
    )
    with pytest.raises(InputError, match="holds no weights") as caught:
        trace.attentions  # noqa: B018  # a property that raises
    assert "capture=Capture(weights=True)" in str(caught.value)
    with pytest.raises(InputError, match="holds no cross-attention weights"):
        trace.cross_attentions  # noqa: B018


def test_a_record_is_a_pytree_that_keeps_its_numbers():
    record = full_trace().encoder
    doubled = jax.tree.map(lambda a: a * 2, record)
    np.testing.assert_array_equal(doubled.weights, record.weights * 2)
    assert (doubled.layers, doubled.heads, doubled.implementation) == ((4, 6), (0, 1, 2, 3), "xla")


def test_some_heads_of_a_record_have_every_field_of_theirs():
    record = full_trace().encoder
    some = record.with_heads([3, 1])
    assert some.heads == (3, 1)
    for name in ("weights", "scores"):
        np.testing.assert_array_equal(getattr(some, name), getattr(record, name)[:, :, [3, 1]])
    for name in ("query", "key", "value", "head_output"):
        expected = getattr(record, name)[:, :, :, [3, 1]]
        np.testing.assert_array_equal(getattr(some, name), expected)
    np.testing.assert_array_equal(some.hidden, record.hidden)
    for name, array in record.stats.items():
        np.testing.assert_array_equal(some.stats[name], array[:, :, [3, 1]])
    with pytest.raises(InputError, match="head 4"):
        record.with_heads([4])


def test_repr_is_short_and_says_what_is_there():
    text = repr(full_trace())
    assert len(text) < 250
    for part in ("m:", "3 sequences", "[4, 6]", "weights", "entropy", "xla"):
        assert part in text


def test_a_record_prints_shapes_and_no_numbers() -> None:
    weights = np.full((2, 1, 3, 64, 64), 1 / 64, np.float32)
    record = Trace.from_arrays(weights, [[f"t{n}" for n in range(64)]]).encoder
    assert len(repr(record)) < 300 and "weights [2, 1, 3, 64, 64]" in repr(record)
