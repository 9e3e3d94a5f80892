# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Starting points of training: random parameters, and three ways to start a small model further on.

A small BERT with random embeddings predicts word frequencies for thousands of updates before its
heads find anything (the plateau). What the training text says by counting need not be learnt by
gradient: word frequencies, which words keep company, and that positions have neighbours.
"""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Integer

from flaxattn.models.bert import BertForPreTraining
from flaxattn.train.corpus import TokenCorpus, log_frequencies
from flaxattn.train.recipe import PretrainRecipe
from flaxattn.train.state import Params


def initial_parameters(
    module: BertForPreTraining, recipe: PretrainRecipe, training: TokenCorpus
) -> Params:
    """Parameters drawn from the recipe's seed, with the starts that the recipe asks for."""
    ids = jnp.zeros((1, max(recipe.lengths)), jnp.int32)
    params = jax.jit(module.init)(jax.random.key(recipe.seed), ids)["params"]
    scale, tables = recipe.initializer_range, params["bert"]["embeddings"]
    if recipe.position_init == "fourier":
        table = tables["position"]
        table["embedding"] = fourier_table(*table["embedding"].shape) * scale
    if recipe.word_init == "cooccurrence":
        word = tables["word"]["embedding"]
        vectors = word_vectors(training, *word.shape, seed=recipe.seed)
        known = jnp.asarray(np.abs(vectors).sum(1, keepdims=True) > 0)
        tables["word"]["embedding"] = jnp.where(known, vectors * scale, word)
    if recipe.unigram_bias:
        params["mlm_head"]["bias"] = jnp.asarray(
            log_frequencies(training, module.config.vocab_size)
        )
    return params


def fourier_table(length: int, width: int) -> Float[Array, "P E"]:
    """Sines and cosines of width / 2 frequencies, evenly spaced from 0 to pi; mean square 1.

    Any two positions closer than `width` are nearly orthogonal, and moving by a fixed number of
    positions is one rotation of the whole table, which a head can learn from every position at
    once.
    """
    half = (width + 1) // 2
    angles = np.outer(np.arange(length), np.pi * (np.arange(half) + 0.5) / half)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :width]
    return jnp.asarray(table * np.sqrt(2), jnp.float32)


def word_vectors(
    documents: Iterable[Integer[np.ndarray, " T"]],
    vocabulary: int,
    width: int,
    window: int = 2,
    seed: int = 0,
) -> Float32[np.ndarray, "V E"]:
    """Word vectors by counting: truncated SVD of positive pointwise mutual information.

    Levy and Goldberg (2014), with U S^(1/2) and smoothed context frequencies (power 0.75).
    """
    counts = np.zeros(vocabulary * vocabulary, np.float32)
    present = np.zeros(vocabulary, bool)
    for document in documents:
        flat = document.astype(np.int64)
        present[flat] = True
        for offset in range(1, window + 1):
            pairs, number = np.unique(
                flat[:-offset] * vocabulary + flat[offset:], return_counts=True
            )
            counts[pairs] += number.astype(np.float32)
    counts = counts.reshape(vocabulary, vocabulary)
    counts += counts.T.copy()
    total = np.maximum(counts.sum(0), 1e-9)
    context = total**0.75 / (total**0.75).sum()
    with np.errstate(divide="ignore"):
        gain = np.log(counts / total[:, None] / context[None])
    left, strength = _range_svd(np.maximum(gain, 0.0), width, np.random.default_rng(seed))
    vectors = left * np.sqrt(strength)
    vectors -= vectors[present].mean(0)
    vectors /= np.sqrt((vectors**2).mean(1, keepdims=True)) + 1e-9
    return (vectors * present[:, None]).astype(np.float32)


def _range_svd(
    matrix: Float32[np.ndarray, "V V"], rank: int, rng: np.random.Generator
) -> tuple[Float32[np.ndarray, "V E"], Float32[np.ndarray, " E"]]:
    """Leading left singular vectors and values by subspace iteration (Halko et al. 2011)."""
    probe = rng.standard_normal((matrix.shape[1], min(rank + 16, len(matrix))), np.float32)
    for _ in range(3):
        probe, _ = np.linalg.qr(matrix.T @ (matrix @ probe))
    left, strength, _ = np.linalg.svd(matrix @ probe, full_matrices=False)
    return left[:, :rank], strength[:rank]
