# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The encoder that masked-LM training starts from, of any family that has such a head.

New BERTs are built in `bert_mlm`.
"""

import jax.numpy as jnp

from flaxattn.errors import InputError
from flaxattn.kernels.contract import NOTHING
from flaxattn.models.bert import BertForMaskedLM, BertForPreTraining
from flaxattn.models.encoder_config import EncoderConfig
from flaxattn.models.modernbert import ModernBertForMaskedLM
from flaxattn.pretrained import hub
from flaxattn.pretrained import model_directory as weights
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.pretrained.pretrained_bert import PretrainedBert
from flaxattn.train.recipe import PretrainRecipe

MaskedLM = BertForPreTraining | BertForMaskedLM | ModernBertForMaskedLM


def load_base(recipe: PretrainRecipe) -> PretrainedBert | None:
    """The encoder that a run starts from; None for a new BERT.

    A BERT keeps its next-sentence head where it has one; all others predict words alone.
    """
    if not recipe.model:
        return None
    found = weights.read_config(hub.find(recipe.model))
    if not isinstance(found, EncoderConfig):
        raise InputError(
            f"recipe: model {recipe.model!r} is no encoder, but a {found.architectures[0]}\n"
            "masked words are predicted by an encoder\nname one with --model"
        )
    pairs = found.architectures[0] == "BertForPreTraining"
    base = from_pretrained(recipe.model, head=None if pairs else "ForMaskedLM")
    assert isinstance(base, PretrainedBert)
    if max(recipe.lengths) > base.limit:
        raise InputError(
            f"recipe: length {max(recipe.lengths)} does not fit the model\n"
            f"{recipe.model} reads up to {base.limit} tokens\nshorten lengths: --set lengths=…"
        )
    return base


def module_of(base: PretrainedBert, recipe: PretrainRecipe) -> MaskedLM:
    """The module of a model, as it is trained: attention records nothing."""
    settings = {"remat": recipe.remat, "unroll": recipe.unroll or 1, "capture": NOTHING}
    module = base.module.clone(dtype=jnp.dtype(recipe.dtype), **settings)
    assert isinstance(module, MaskedLM)
    return module
