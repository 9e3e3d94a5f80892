# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Rotations are recorded with queries and keys; pairs of dimensions add up to the scores."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from dense_gemma import DenseGemma
from small_decoders import write_decoder

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.neuron_payload import before_rotation, rotary_pairs

TEXTS = ["the cat sat on a mat", "a dog"]
ALL = fa.Capture(weights=True, scores=True, query=True, key=True)


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory):
    return fa.from_pretrained(write_decoder(tmp_path_factory.mktemp("models") / "gemma"))


@pytest.fixture(scope="module")
def trace(gemma) -> Trace:
    return gemma.trace(TEXTS, capture=ALL)


@pytest.mark.parametrize("text", [0, 1])
def test_queries_and_keys_before_rotation_are_those_of_a_dense_model(gemma, trace, text):
    one = trace[text]
    given = gemma.read([TEXTS[text]]).rows()[0].padded(gemma.limit)
    ids = np.asarray(given["input_ids"])[np.asarray(given["attention_mask"]) != 0]
    decoder, (layers, _) = one.decoder, DenseGemma(gemma).run(ids)
    for layer, head, query in ((0, 1, 2), (1, 3, len(ids) - 1), (2, 0, 0)):
        found = rotary_pairs(decoder, layer, head, query)
        (q, k), rotated = layers[layer].before, layers[layer].rotated
        np.testing.assert_allclose(found.query, q[query, head], atol=2e-5)
        np.testing.assert_allclose(found.keys, k[:, head], atol=2e-5)
        np.testing.assert_allclose(found.rotated_query, rotated[0][query, head], atol=2e-5)
        np.testing.assert_allclose(found.rotated_keys, rotated[1][:, head], atol=2e-5)
        scores = np.asarray(decoder.scores)[layer, 0, head, query]
        visible = np.isfinite(scores)
        total = found.shares.sum(1) + found.rest
        np.testing.assert_allclose(total[visible], scores[visible], atol=2e-5)
        assert found.shares.shape == (len(ids), 4) and not found.rest.any()


def test_the_summary_names_the_pair_that_adds_the_most(trace):
    found = rotary_pairs(trace[0].decoder, 1, 3, 9)
    lines = found.summary(2).splitlines()
    best = int(found.weights.argmax())
    pair = int(np.abs(found.shares[best]).argmax())
    score, share = found.shares[best].sum(), found.shares[best, pair]
    assert len(lines) == 2 and found.deciding()[best] == pair
    assert lines[0] == (
        f"key {best}: score {score:.2f}; pair {pair} (dimensions {pair} and {pair + 4}) adds the "
        f"most, {share:.2f}"
    )


def test_a_factor_on_what_is_rotated_and_dimensions_that_are_not():
    rng = np.random.default_rng(0)
    vectors, angles = rng.normal(size=(3, 5, 8)), rng.normal(size=(5, 3))
    turned = (vectors[..., :3] + 1j * vectors[..., 3:6]) * 1.2 * np.exp(1j * angles)
    after = np.concatenate([turned.real, turned.imag, vectors[..., 6:]], -1)
    rotation = 1.2 * np.stack([np.cos(angles), np.sin(angles)], 1)
    np.testing.assert_allclose(before_rotation(after, rotation), vectors, atol=1e-12)


def test_a_trace_file_keeps_the_rotation(trace, tmp_path: Path):
    again = Trace.load(trace.save(tmp_path / "t.safetensors"))
    np.testing.assert_array_equal(again.decoder.rotation, trace.decoder.rotation)
    assert again.decoder.rotation.shape == (3, 2, len(trace.tokens[0]), 2, 4)
    without = dataclasses.replace(trace.decoder, rotation=None)
    old = dataclasses.replace(trace, decoder=without).save(tmp_path / "old.safetensors")
    assert Trace.load(old).decoder.rotation is None


@pytest.mark.slow
def test_it_is_recorded_with_queries_and_keys_alone(gemma, gpt2):
    plain = gemma.trace("a dog", capture=fa.Capture(weights=True, query=True))
    assert plain.decoder.rotation is None
    learned = gpt2.trace("the cat", capture=ALL)
    with pytest.raises(InputError, match=re.escape("holds no rotation of queries and keys")):
        rotary_pairs(learned[0].decoder, 0, 0, 0)
    some = gemma.trace("a dog", capture=dataclasses.replace(ALL, layers=(0, 2), heads=(1,)))
    assert some[0].decoder.rotation.shape[0] == 2
    assert rotary_pairs(some[0].decoder, 2, 1, 1).shares.shape[1] == 4
    with pytest.raises(InputError, match="no query 99"):
        rotary_pairs(some[0].decoder, 2, 1, 99)


@pytest.mark.slow
def test_layers_without_rotation_are_turned_by_nothing(gemma):
    config = dataclasses.replace(gemma.config, rotary_layers=(True, False, True))
    model = dataclasses.replace(gemma, config=config, module=gemma.module.clone(config=config))
    record = model.trace("the cat sat", capture=ALL)[0].decoder
    still = rotary_pairs(record, 1, 0, 3)
    np.testing.assert_array_equal(still.keys, still.rotated_keys)
    assert np.abs(rotary_pairs(record, 0, 0, 3).keys - still.rotated_keys).max() > 0.1


@pytest.mark.slow
def test_continuations_have_the_rotation_of_their_positions(gemma):
    _, traced = gemma.generate(["the cat sat", "a"], max_new_tokens=3, trace=True, capture=ALL)
    for one in traced:
        decoder, last = one.decoder, len(one.tokens[0]) - 1
        again = rotary_pairs(decoder, 1, 2, last)
        scores = np.asarray(decoder.scores)[1, 0, 2, last]
        np.testing.assert_allclose(again.shares.sum(1), scores, atol=2e-5)
        key, turned = np.asarray(decoder.key)[1, 0, :1, 2], np.asarray(decoder.rotation)[1, 0, :1]
        np.testing.assert_allclose(before_rotation(key, turned), key, atol=1e-6)
