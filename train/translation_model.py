# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The model of a translation run, its first parameters, and its loss.

A Transformer or an RNN: both read a source and a target and score the next token, which is all that
training knows of them.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from flaxattn.kernels.contract import NOTHING
from flaxattn.models.outputs import Seq2SeqOutput
from flaxattn.models.rnn import RnnLM
from flaxattn.models.rnn_config import RnnConfig
from flaxattn.models.seq2seq import Seq2SeqLM, shifted_right
from flaxattn.models.seq2seq_config import Seq2SeqConfig
from flaxattn.text.vocabulary_training import EOS, PAD
from flaxattn.train.objectives import Metrics, Totals, token_loss
from flaxattn.train.state import LossFunction, Params
from flaxattn.train.translation_data import TranslationBatch, Vocabularies
from flaxattn.train.translation_recipe import TranslationRecipe

_RNN_SHAPE = (
    "embedding_size",
    "hidden_size",
    "attention",
    "attention_size",
    "readout_size",
    "dropout",
)
_TRANSFORMER_SHAPE = (
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "activation_function",
    "positions",
    "norm_first",
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "tie_word_embeddings",
)


def build_module(recipe: TranslationRecipe, vocabularies: Vocabularies) -> Any:
    """The model of a recipe; attention records nothing while it trains."""
    source, target = vocabularies.source.vocab_size, vocabularies.writer.vocab_size
    common = {
        "vocab_size": source,
        "decoder_vocab_size": None if target == source else target,
        "max_position_embeddings": recipe.max_position_embeddings,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "decoder_start_token_id": PAD,
    }
    options: dict[str, Any] = {
        "dtype": jnp.dtype(recipe.dtype),
        "capture": NOTHING,
        "remat": recipe.remat,
    }
    if recipe.model_type == "rnn":
        shape = {name: getattr(recipe, name) for name in _RNN_SHAPE}
        return RnnLM(RnnConfig(**common, **shape), **options)
    shape = {name: getattr(recipe, name) for name in _TRANSFORMER_SHAPE}
    config = Seq2SeqConfig(
        **common,
        **shape,
        share_encoder_decoder_embeddings=recipe.shared_vocabulary,
        init_std=recipe.init_std or recipe.d_model**-0.5,
    )
    return Seq2SeqLM(config, **options, unroll=recipe.unroll or 1)


def initial_parameters(module: Any, seed: int) -> Params:
    """The parameters that training starts from."""
    ids = jnp.zeros((1, 1), jnp.int32)
    return jax.jit(module.init)(jax.random.key(seed), ids)["params"]


def loss_function(module: Any, smoothing: float) -> LossFunction:
    """Loss of the module on a batch, in the form the loop takes."""

    def loss(
        params: Params, batch: TranslationBatch, dropout: Array | None, totals: Totals
    ) -> tuple[Array, Metrics]:
        labels = jnp.asarray(batch.labels)
        out = module.apply(
            {"params": params},
            batch.input_ids,
            batch.attention_mask,
            shifted_right(labels, module.config),
            deterministic=dropout is None,
            rngs=None if dropout is None else {"dropout": dropout},
        )
        assert isinstance(out, Seq2SeqOutput)
        assert out.logits is not None
        return token_loss(out.logits, labels, batch.label_mask, totals, smoothing)

    return loss


def batch_totals(batch: TranslationBatch) -> Totals:
    """Denominators of a batch's losses."""
    return {"words": jnp.asarray(batch.label_mask, jnp.float32).sum()}
