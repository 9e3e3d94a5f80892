# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A trace that holds a window of weights says which positions they are, and nothing misreads it."""

import dataclasses

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.measures.head_measures import cross_measures, head_measures
from flaxattn.measures.word_alignment import token_weights
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.plot_heads import plot_heads

RNG = np.random.default_rng(0)
WEIGHTS = RNG.dirichlet(np.ones(7), (1, 3, 2, 7)).astype(np.float32)  # [L, B, H, Q, K]
TOKENS = [[f"{b}{i}" for i in range(7)] for b in range(3)]
MASK = np.array([[1] * 7, [0, 0, 0, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0, 0]], bool)
ROWS, COLUMNS = (2, 6), (1, 5)


def held(**fields):
    """A decoder's record of a window."""
    return AttentionRecord(
        weights=WEIGHTS[..., slice(*ROWS), slice(*COLUMNS)],
        stats={"entropy": WEIGHTS[..., 0]},
        layers=(4,),
        heads=(0, 1),
        query_window=ROWS,
        key_window=COLUMNS,
        **fields,
    )


def trace(**sides):
    return Trace(**(sides or {"decoder": held()}), tokens=TOKENS, mask=MASK)


@pytest.mark.parametrize(
    ("b", "rows", "columns", "places"),
    [
        (0, (2, 6), (1, 5), (range(2, 6), range(1, 5))),
        (1, (0, 3), (0, 2), (range(3, 6), range(3, 5))),
        (2, (2, 2), (1, 2), ((), (1,))),
    ],
)
def test_a_window_counts_the_positions_that_are_left(b, rows, columns, places):
    one = trace()[b].decoder
    assert (one.query_window, one.key_window) == (rows, columns)
    expected = WEIGHTS[:, [b]][..., list(places[0]), :][..., list(places[1])]
    np.testing.assert_array_equal(one.weights, expected.reshape(one.weights.shape))
    assert one.stats["entropy"].shape == (1, 1, 2, MASK[b].sum())


def test_a_figure_writes_the_tokens_of_the_window():
    (ax, *_) = plot_heads(trace(), sequence=1).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["13", "14", "15"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["13", "14"]
    np.testing.assert_array_equal(ax.images[0].get_array(), WEIGHTS[0, 1, 0, 3:6, 3:5])
    with pytest.raises(InputError, match="no position of sequence 2, only padding"):
        plot_heads(trace(), sequence=2)


@pytest.mark.parametrize(
    ("reader", "name"),
    [
        (lambda: trace().attentions, "This"),
        (lambda: head_measures(trace()), "This"),
        (lambda: cross_measures(trace(cross=held())), "This"),
        (lambda: token_weights(trace(cross=held())), "An alignment"),
        (lambda: fa.head_view(trace()), "The head view"),
        (lambda: plot_heads(trace(), exclude_first=True), "Leaving out the first token"),
    ],
)
def test_what_reads_whole_rows_refuses_a_window(reader, name):
    with pytest.raises(InputError) as caught:
        reader()
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        f"{name} needs the weights of all positions; this trace holds a window of them: "
        "queries 2 to 5, keys 1 to 4."
    )
    assert len(lines) == 2


def test_a_window_of_one_axis_is_named_alone():
    record = dataclasses.replace(held(), key_window=None)
    with pytest.raises(InputError, match=r"window of them: queries 2 to 5\.\n"):
        record.require_whole("It")


@pytest.mark.slow
def test_a_model_is_traced_in_a_window():
    model = fa.from_pretrained("tiny-bert")
    texts = ["The cat is very sad.", "It slept."]
    whole = model.trace(texts).encoder
    capture = fa.Capture(weights=True, query_window=(1, 4), key_window=(0, 6), layers=(1,))
    part = model.trace(texts, capture=capture)
    np.testing.assert_allclose(part.encoder.weights[0], whole.weights[1, :, :, 1:4, :6], atol=1e-6)
    assert (part.encoder.query_window, part.encoder.key_window) == ((1, 4), (0, 6))
    length = len(part.tokens[0])
    beyond = fa.Capture(weights=True, query_window=(0, length + 1))
    with pytest.raises(InputError, match=rf"query_window .* the input has {length} positions"):
        model.trace(texts, capture=beyond)


@pytest.mark.slow
def test_an_encoder_and_decoder_are_traced_in_a_window():
    model = fa.from_pretrained("tiny-dates")
    given = ["3 May 2021"], ["2021-05-03"]
    part = model.trace(*given, capture=fa.Capture(weights=True, key_window=(1, 3), layers=(0,)))
    for side in (part.encoder, part.decoder, part.cross):
        assert (side.weights.shape[-1], side.key_window, side.query_window) == (2, (1, 3), None)
    with pytest.raises(InputError, match=r"capture\.query_window is \(0, 60\)"):
        model.trace(*given, capture=fa.Capture(weights=True, query_window=(0, 60)))
