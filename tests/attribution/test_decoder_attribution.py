# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attribution of a decoder with shared key heads, windows and post-norms, against changing it."""

import numpy as np
import pytest
from dense_gemma import DenseGemma, normed
from small_decoders import write_decoder

import flaxattn as fa
from flaxattn.kernels.contract import Capture
from flaxattn.pretrained.head_projections import output_projections

TEXT = "the cat sat on a mat"
STEP = 1e-5  # of differences in float64


@pytest.fixture(scope="module")
def gemma(tmp_path_factory):
    return fa.from_pretrained(write_decoder(tmp_path_factory.mktemp("models") / "gemma"))


@pytest.fixture(scope="module")
def dense(gemma):
    return DenseGemma(gemma)


@pytest.fixture(scope="module")
def ids(gemma):
    given = gemma.read([TEXT]).rows()[0].padded(gemma.limit)
    return np.asarray(given["input_ids"])[np.asarray(given["attention_mask"]) != 0]


@pytest.fixture(scope="module")
def layers(dense, ids):
    return dense.run(ids)[0]


@pytest.mark.slow
def test_what_the_model_records(gemma, layers):
    record = gemma.trace(TEXT, capture=Capture(weights=True, value=True))[0].decoder
    for number, layer in enumerate(layers):
        np.testing.assert_allclose(record.weights[number, 0], layer.weights, atol=2e-5)
        np.testing.assert_allclose(record.value[number, 0], layer.value, atol=2e-5)


@pytest.mark.slow
def test_norms_are_lengths_of_what_shared_values_add(gemma, layers):
    (maps,) = fa.attention_norms(gemma, TEXT)["decoder"]
    for number, layer in enumerate(layers):
        added = layer.weights[..., None] * layer.vectors[:, None]
        np.testing.assert_allclose(maps[number], np.linalg.norm(added, axis=-1), atol=1e-4)
    assert output_projections(gemma)["decoder"].shape == (3, 4, 8, 16)


def test_norms_measure_what_the_norm_after_attention_reads(dense, layers, ids):
    """Vectors of all heads and keys add up to what the layer normalises and adds."""
    x = dense.words[ids] * dense.config.hidden_size**0.5
    without = np.zeros((4, len(ids), len(ids)))
    attended = np.einsum("hqk,hke->qe", layers[0].weights, layers[0].vectors)
    normal = normed(attended, dense.parameter(0, "attention_post_norm/scale"))
    silent = dense.layer(0, x, without)
    same = dense.layer(0, x + normal, without)
    np.testing.assert_allclose(same.output, layers[0].output, atol=1e-9)
    assert np.abs(silent.output - layers[0].output).max() > 0.1


def test_effective_attention_gives_the_same_output_with_the_least_weights(gemma, layers):
    (maps,) = fa.effective_attention(gemma, TEXT)["decoder"]
    for number, layer in enumerate(layers):
        for head in range(4):
            value = layer.value[:, head]
            least = layer.weights[head] @ value @ np.linalg.pinv(value)
            np.testing.assert_allclose(maps[number, head], least, atol=1e-4)


@pytest.mark.slow
def test_gradients_are_slopes_of_the_loss_in_a_factor_on_each_weight(gemma, dense, ids):
    (maps,) = fa.attention_gradients(gemma, TEXT)["decoder"]
    assert maps.shape == (3, 4, len(ids), len(ids))
    rng = np.random.default_rng(0)
    for layer in range(3):
        for head in range(4):
            query = int(rng.integers(3, len(ids)))
            key = int(rng.integers(max(0, query - 5), query + 1))
            slopes = []
            for sign in (1, -1):
                factors = np.ones(maps.shape)
                factors[layer, head, query, key] += sign * STEP
                slopes.append(sign * dense.loss(ids, factors=factors))
            slope = sum(slopes) / (2 * STEP)
            np.testing.assert_allclose(maps[layer, head, query, key], slope, atol=2e-5, rtol=1e-3)


@pytest.mark.slow
def test_value_zeroing_is_the_change_of_each_layer_without_a_value(gemma, dense, layers, ids):
    (maps,) = fa.value_zeroing(gemma, TEXT)["decoder"]
    x = dense.words[ids] * dense.config.hidden_size**0.5
    for number, layer in enumerate(layers):
        apart = np.zeros((len(ids), len(ids)))
        for key in range(len(ids)):
            kept = np.ones(len(ids))
            kept[key] = 0
            pair = [layer.output, dense.layer(number, x, kept=kept).output]
            if number == 2:  # judged where the model ends, after its last norm
                pair = [normed(one, dense.last_norm) for one in pair]
            one, other = (a / np.linalg.norm(a, axis=-1, keepdims=True) for a in pair)
            apart[:, key] = np.maximum(1 - (one * other).sum(-1), 0)
        shares = apart / apart.sum(-1, keepdims=True)
        np.testing.assert_allclose(maps[number, 0], shares, atol=2e-3)
        x = layer.output


def test_rollout_is_the_product_of_layers(gemma, layers):
    trace = gemma.trace(TEXT, capture=Capture(weights=True))
    below = np.eye(len(layers[0].output))
    for number, layer in enumerate(layers):
        below = (0.5 * layer.weights.mean(0) + 0.5 * np.eye(len(below))) @ below
        np.testing.assert_allclose(fa.rollout(trace)[number], below, atol=2e-5)


@pytest.mark.slow
def test_ablation_and_importance_are_those_of_the_heads(gemma, dense, ids):
    task = fa.head_task(gemma, [TEXT], batch=1)
    effects = fa.ablate(task).means["head_mask"]
    importance = fa.head_importance(task).means["head_mask"]
    whole = dense.loss(ids)
    for layer, head in np.ndindex(3, 4):

        def loss(factor, place=(layer, head)):
            factors = np.ones((3, 4, 1, 1))
            factors[place] = factor
            return dense.loss(ids, factors=factors)

        np.testing.assert_allclose(effects[layer, head], loss(0) - whole, atol=5e-5)
        slope = (loss(1 + STEP) - loss(1 - STEP)) / (2 * STEP)
        np.testing.assert_allclose(importance[layer, head], abs(slope), atol=5e-5)
