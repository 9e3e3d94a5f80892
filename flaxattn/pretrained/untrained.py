# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Baseline models: the same architecture with random parameters, as before any training."""

import dataclasses

import jax
import numpy as np

from flaxattn.errors import check_arguments
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq


@check_arguments()
def untrained(model: Pretrained, seed: int = 0) -> Pretrained:
    """Replace the parameters of a model by random ones, as before any training.

    What is found in such a model was not learnt: it is the baseline of roles and probes.

    >>> import flaxattn as fa
    >>> fa.untrained(fa.from_pretrained("tiny-bert")).name
    'tiny-bert, untrained'

    Args:
        model: A BERT, a GPT-2 or an encoder-decoder.
        seed: Random seed for the parameters.

    Returns:
        A model of its own, with the same tokenizer and configuration.

    Raises:
        InputError: If `model` is not a `Pretrained`.
    """
    given = {"input_ids": np.ones((1, 2), np.int32)}
    if isinstance(model, PretrainedSeq2Seq):
        given["decoder_input_ids"] = given["input_ids"]
    params = jax.jit(model.module.init)(jax.random.key(seed), **given)["params"]
    return dataclasses.replace(model, params=params, name=f"{model.name}, untrained")
