# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The GPT-2 of a run: a new one, or one to go on from; its first parameters, and its loss.

What it learns from is not known here.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from flaxattn.errors import InputError
from flaxattn.kernels.contract import NOTHING
from flaxattn.models.gpt2 import GPT2LM
from flaxattn.models.gpt2_config import GPT2Config
from flaxattn.models.outputs import ModelOutput
from flaxattn.pretrained import hub
from flaxattn.pretrained import model_directory as weights
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.vocabulary_training import END
from flaxattn.train.gpt2_data import TextBatch
from flaxattn.train.gpt2_recipe import Gpt2Recipe
from flaxattn.train.objectives import Metrics, Totals, token_loss
from flaxattn.train.state import LossFunction, Params

_ARCHITECTURE = "GPT2LMHeadModel"
_RESIDUAL = ("attention/output/kernel", "feed_forward/down/kernel")  # what adds to the stream


def load_base(recipe: Gpt2Recipe) -> PretrainedDecoder | None:
    """The model that a run goes on from; None for a new one.

    Args:
        recipe: names the model.

    Raises:
        CheckpointError: there is no such model.
        InputError: it is no GPT-2, or settings contradict it.
    """
    if not recipe.model:
        return None
    found = weights.read_config(hub.find(recipe.model))
    if not isinstance(found, GPT2Config):
        raise InputError(
            f"recipe: model {recipe.model!r} is no GPT-2, but a {found.architectures[0]}\n"
            "next-word prediction goes on from a model that has learnt it\n"
            "name a GPT-2 with --model"
        )
    recipe.check_model(found)
    base = from_pretrained(recipe.model, head=_ARCHITECTURE)
    assert isinstance(base, PretrainedDecoder)
    return base


def choose_config(
    recipe: Gpt2Recipe, tokenizer: Tokenizer, base: PretrainedDecoder | None
) -> GPT2Config:
    """The config of the model that is trained.

    Args:
        recipe: shape of a new one.
        tokenizer: what the text is read with.
        base: the model to go on from.

    Raises:
        InputError: the tokenizer has more pieces than the model, or no end of a text.
    """
    if base is None:
        end = end_of_text(tokenizer)
        return GPT2Config(
            vocab_size=tokenizer.vocab_size,
            n_positions=recipe.block,
            n_embd=recipe.n_embd,
            n_layer=recipe.n_layer,
            n_head=recipe.n_head,
            embd_pdrop=recipe.dropout,
            attn_pdrop=recipe.dropout,
            resid_pdrop=recipe.dropout,
            initializer_range=recipe.initializer_range,
            bos_token_id=end,
            eos_token_id=end,
        )
    config = base.config
    assert isinstance(config, GPT2Config)
    if tokenizer.vocab_size > config.vocab_size:
        raise InputError(
            f"the tokenizer does not fit the model {recipe.model!r}\n"
            f"it has {tokenizer.vocab_size} pieces, the model's embedding {config.vocab_size}\n"
            "leave --tokenizer out to use the model's own"
        )
    if config.eos_token_id is None or config.eos_token_id >= tokenizer.vocab_size:
        config = dataclasses.replace(config, eos_token_id=end_of_text(tokenizer))
    return config


def end_of_text(tokenizer: Tokenizer) -> int:
    """Id of the token that ends a text.

    Raises:
        InputError: the tokenizer has none.
    """
    named = tokenizer.settings.get("eos_token") or END
    token = named["content"] if isinstance(named, dict) else named
    number = tokenizer.backend.token_to_id(token)
    if number is None:
        raise InputError(
            "the tokenizer has no end of a text\n"
            f"expected {token} among its {tokenizer.vocab_size} pieces\n"
            "name its eos_token in tokenizer_config.json, or leave --tokenizer out to learn one"
        )
    return number


def build_module(config: GPT2Config, recipe: Gpt2Recipe) -> GPT2LM:
    """The model; attention records nothing while it trains."""
    return GPT2LM(
        dataclasses.replace(config, architectures=(_ARCHITECTURE,)),
        dtype=jnp.dtype(recipe.dtype),
        capture=NOTHING,
        remat=recipe.remat,
        unroll=recipe.unroll or 1,
    )


def initial_parameters(module: GPT2LM, seed: int) -> Params:
    """The parameters that a new model starts from, on the host.

    As published (Radford et al. 2019 §2.3, and their code): normal, of `initializer_range` and half
    of it for positions, where what a layer adds to the residual stream is scaled by 1 / sqrt(2 L);
    biases 0, norms 1.

    Args:
        module: from `build_module`.
        seed: of the draws.
    """
    config, random = module.config, np.random.default_rng(seed)
    shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 1), jnp.int32))["params"]

    def draw(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> np.ndarray:
        name = "/".join(str(part.key) for part in path)
        if name.endswith(("scale", "bias")):
            return np.full(leaf.shape, float(name.endswith("scale")), np.float32)
        spread = np.float32(config.initializer_range)
        if "positions" in name:
            spread /= 2
        if name.endswith(_RESIDUAL):
            spread /= np.float32(2 * config.n_layer) ** 0.5
        return np.float32(spread) * random.standard_normal(leaf.shape, np.float32)

    return jax.tree_util.tree_map_with_path(draw, shapes)


def loss_function(module: GPT2LM) -> LossFunction:
    """Loss of the module on a batch, in the form the loop takes."""

    def loss(
        params: Params, batch: TextBatch, dropout: Array | None, totals: Totals
    ) -> tuple[Array, Metrics]:
        out = module.apply(
            {"params": params},
            batch.input_ids,
            batch.attention_mask,
            batch.position_ids,
            segment_ids=batch.segment_ids,
            deterministic=dropout is None,
            rngs=None if dropout is None else {"dropout": dropout},
        )
        assert isinstance(out, ModelOutput)
        assert out.logits is not None
        return token_loss(out.logits, batch.labels, batch.label_mask, totals)

    return loss


def batch_totals(batch: TextBatch) -> Totals:
    """Denominators of a batch's losses."""
    return {"words": jnp.asarray(batch.label_mask, jnp.float32).sum()}
