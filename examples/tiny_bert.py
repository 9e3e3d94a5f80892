# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pretrain a BERT that reads little: the script that made the built-in tiny-bert.

    python examples/tiny_bert.py --data text/*.txt --out RUN --config recipe.yaml

It is `flaxattn train bert-mlm` with four more settings, which help where there are few tokens to
learn from. A killed run continues when the same command is given again. The recipe of tiny-bert is
`flaxattn/pretrained/tiny-bert/recipe.yaml`; the README.md beside it names data, commands, hardware,
time and results.
"""

import argparse
import dataclasses
import functools
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Integer

from flaxattn.kernels.contract import Capture
from flaxattn.models.task_heads import BertForPreTraining
from flaxattn.pipeline.allocator import keep_freed_memory
from flaxattn.trace.trace import Trace
from flaxattn.train import bert_mlm
from flaxattn.train.bert_mlm import AttentionLoss
from flaxattn.train.corpus import TokenCorpus, log_frequencies
from flaxattn.train.pretraining_data import PretrainingBatch
from flaxattn.train.recipe import PretrainRecipe
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.settings import read_recipe
from flaxattn.train.state import Params


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallBertRecipe(PretrainRecipe):
    """BERT pretraining with little text.

    Attributes:
        position_init: "normal" like every other weight, or "fourier": the position table starts as
            sines and cosines of evenly spaced frequencies and is trained like any parameter.
        word_init: "normal", or "cooccurrence": word vectors start as the SVD of the training text's
            co-occurrence counts, and are trained like any parameter.
        unigram_bias: start the output bias at the logarithms of the training frequencies, so that
            nothing has to learn them.
        entropy_price: added to the loss per nat of mean attention entropy while training; 0 leaves
            the loss as published. A small price makes the heads of a small model decide.
    """

    position_init: Literal["normal", "fourier"] = "normal"
    word_init: Literal["normal", "cooccurrence"] = "normal"
    unigram_bias: bool = False
    entropy_price: float = 0.0


def pretrain(files: list[Path], folder: RunFolder, recipe: SmallBertRecipe) -> dict[str, Any]:
    """Pretrain with the settings of the recipe; return the summary of the run."""
    return bert_mlm.pretrain(
        files,
        folder,
        recipe,
        command=shlex.join(["python", *sys.argv]),
        initial=functools.partial(initial_parameters, recipe),
        attention_loss=entropy_loss(recipe.entropy_price),
    )


def initial_parameters(
    recipe: SmallBertRecipe, module: BertForPreTraining, training: TokenCorpus
) -> Params:
    """Parameters drawn from the recipe's seed, with the starts that the recipe asks for."""
    params = bert_mlm.initial_parameters(module, recipe)
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


def entropy_loss(price: float) -> AttentionLoss | None:
    """Term of the loss that grows with the entropy of attention, so that heads decide."""
    if not price:
        return None
    return AttentionLoss(Capture(stats=("entropy",)), "attention_entropy", price, mean_entropy)


def mean_entropy(trace: Trace, batch: PretrainingBatch) -> Float[Array, ""]:
    """Mean entropy in nats over layers, heads and real queries."""
    assert trace.encoder is not None
    entropy = trace.encoder.stats["entropy"]
    real = jnp.asarray(batch.attention_mask, entropy.dtype)[None, :, None, :]
    return (entropy * real).sum() / (real.sum() * entropy.shape[0] * entropy.shape[2])


def main() -> None:
    """Read the command line and pretrain."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="text files")
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument("--config", type=Path, help="recipe, a YAML file")
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="settings"
    )
    parser.add_argument(
        "--allow-changes", action="store_true", help="continue a run although settings differ"
    )
    given = parser.parse_args()
    keep_freed_memory()  # as the command does
    recipe = read_recipe(SmallBertRecipe, given.config, given.set)
    pretrain(given.data, RunFolder(given.out, allow_changes=given.allow_changes), recipe)


if __name__ == "__main__":
    main()
