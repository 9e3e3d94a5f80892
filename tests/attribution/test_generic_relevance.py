# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Relevance maps of Chefer et al. 2021, against their rules written out in NumPy."""

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.attribution.relevance import generic_relevance

TEXT, TARGET = "the cat is sad .", "a b c"


def positive_mean(products):
    """Mean over heads of the positive part, head by head."""
    total = np.zeros(products.shape[1:])
    for head in products:
        total += np.where(head > 0, head, 0)
    return total / len(products)


def without_residual(relevance):
    """The published `handle_residual`: rows beyond the identity, divided by their sum."""
    beyond = relevance - np.eye(len(relevance))
    rows = [row / row.sum() if row.sum() > 0 else row * 0 for row in beyond]
    return np.stack(rows) + np.eye(len(relevance))


def by_rules(products):
    """R of encoder, decoder and cross-attention after the last layer."""
    encoder = np.eye(products["encoder"].shape[-1])
    for layer in products["encoder"]:
        encoder = encoder + positive_mean(layer) @ encoder
    decoder = np.eye(products["decoder"].shape[-1])
    cross = np.zeros((len(decoder), len(encoder)))
    for own, across in zip(products["decoder"], products["cross"], strict=True):
        added = positive_mean(own)
        decoder, cross = decoder + added @ decoder, cross + added @ cross
        middle = positive_mean(across) @ without_residual(encoder)
        cross = cross + without_residual(decoder).T @ middle
    return {"encoder": encoder, "decoder": decoder, "cross": cross}


def drawn_products():
    rng = np.random.default_rng(2)
    shapes = {"encoder": (3, 2, 5, 5), "decoder": (2, 4, 3, 3), "cross": (2, 4, 3, 5)}
    products = {side: rng.normal(size=shape) for side, shape in shapes.items()}
    products["decoder"] = np.tril(products["decoder"])
    products["decoder"][0, :, 0] = -1  # a row that has nothing positive
    return products


def test_encoder_and_decoder_follow_the_published_rules():
    products = drawn_products()
    found, expected = generic_relevance(products), by_rules(products)
    for side, maps in expected.items():
        np.testing.assert_allclose(found[side][-1, 0], maps, atol=1e-12)
        assert (found[side] >= 0).all()
    assert found["encoder"].shape == (3, 1, 5, 5) and found["cross"].shape == (2, 1, 3, 5)


def test_one_stack_needs_no_other():
    products = drawn_products()
    found = generic_relevance({"decoder": products["decoder"]})
    assert list(found) == ["decoder"]
    np.testing.assert_allclose(found["decoder"][-1, 0], by_rules(products)["decoder"], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["modern", pytest.param("seq2seq", marks=pytest.mark.slow)])
def test_maps_of_a_model_are_made_of_its_gradients(request, family):
    model = request.getfixturevalue(family)
    given = (TEXT, TARGET) if family == "seq2seq" else (TEXT,)
    gradients = {side: -maps[0] for side, maps in fa.attention_gradients(model, *given).items()}
    found = fa.chefer_relevance(model, *given)
    for side, maps in generic_relevance(gradients).items():
        np.testing.assert_allclose(found[side][0], maps, rtol=1e-4, atol=1e-6)
