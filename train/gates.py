# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gates on heads that training closes: Hard Concrete, with a price for every open one.

Voita et al. 2019, section 4.1, with the gates of Louizos et al. 2018 (formulas and constants from
memory of both). A gate is a factor on what a head puts out: drawn while training, settled
afterwards, when it is multiplied into the output projection, so that what is saved is a model as
any other. Gates can be added to any loss.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from flaxattn.errors import InputError
from flaxattn.models.encoder_config import BertConfig, EncoderConfig
from flaxattn.pretrained.pretrained_model import pruned_config, pruned_parameters
from flaxattn.train.state import Params

NAME = "head_gates"
"""Name of the parameters of the gates, beside those of the model."""
_TEMPERATURE, _LOW, _HIGH = 2 / 3, -0.1, 1.1
_START = 3.0  # the settled gate is 1, and it is drawn open 995 times in 1,000


def with_gates(params: Params, config: EncoderConfig) -> Params:
    """The parameters of a model, with gates on its heads that begin open."""
    if not isinstance(config, BertConfig):
        raise InputError(
            f"gates remove heads, and a checkpoint of a {config.architectures[0]} cannot lack any\n"
            "leave gate_price out, or start from a BERT"
        )
    if config.pruned_heads:
        raise InputError(
            "gates close heads of a whole model\nthe model that training starts from lacks some: "
            "config.json has pruned_heads\nstart from the model before it was pruned"
        )
    shape = (config.num_hidden_layers, config.num_attention_heads)
    return {**params, NAME: {"log_odds": jnp.full(shape, _START)}}


def drawn(log_odds: Float[Array, "L H"], key: Array) -> Float[Array, "L H"]:
    """Gates for one update: 0 and 1 have a probability of their own, and there is a gradient."""
    tiny = jnp.finfo(log_odds.dtype).eps
    uniform = jax.random.uniform(key, log_odds.shape, log_odds.dtype, tiny, 1 - tiny)
    noise = jnp.log(uniform) - jnp.log1p(-uniform)
    return _stretched(jax.nn.sigmoid((log_odds + noise) / _TEMPERATURE))


def settled(log_odds: Float[Array, "L H"]) -> Float[Array, "L H"]:
    """Gates without chance, as they are used after training: between 0 and 1, often just these."""
    return _stretched(jax.nn.sigmoid(log_odds))


def open_probability(log_odds: Float[Array, "L H"]) -> Float[Array, "L H"]:
    """Probability that a drawn gate is not 0; their sum is the expected L0 norm."""
    return jax.nn.sigmoid(log_odds - _TEMPERATURE * float(np.log(-_LOW / _HIGH)))


def folded(params: Params) -> Params:
    """The parameters without gates: the settled ones are multiplied into the output projections."""
    return _folded(params) if NAME in params else params


@jax.jit
def _folded(params: Params) -> Params:
    gates = settled(params[NAME]["log_odds"])

    def scale(path: tuple[Any, ...], leaf: Array) -> Array:
        names = [str(part.key) for part in path]
        if names[-4:] != ["layers", "attention", "output", "kernel"]:
            return leaf
        factors = jnp.repeat(gates, leaf.shape[1] // gates.shape[1], axis=1)
        return leaf * factors[..., None].astype(leaf.dtype)

    whole = {name: part for name, part in params.items() if name != NAME}
    return jax.tree_util.tree_map_with_path(scale, whole)


def closed_heads(params: Params) -> list[tuple[int, int]]:
    """Layer and head of every gate that is settled at 0."""
    if NAME not in params:
        return []
    places = np.argwhere(np.asarray(settled(jnp.asarray(params[NAME]["log_odds"]))) == 0)
    return [(int(layer), int(head)) for layer, head in places]


def without_closed(
    params: Params, config: EncoderConfig, closed: list[tuple[int, int]]
) -> tuple[Params, EncoderConfig]:
    """Parameters and configuration without the heads whose gates closed.

    A layer whose gates are all closed keeps its first head, whose output counts nothing.
    """
    if not isinstance(config, BertConfig):
        return params, config  # such a model has no gates
    count = config.num_attention_heads
    gone = [[h for n, h in closed if n == layer] for layer in range(config.num_hidden_layers)]
    kept = tuple(tuple(heads[1:] if len(heads) == count else heads) for heads in gone)
    after = dataclasses.replace(config, pruned_heads=pruned_config((), kept, count))
    return pruned_parameters(params, config, after), after


def _stretched(share: Float[Array, "L H"]) -> Float[Array, "L H"]:
    """Gates stretched beyond 0 and 1, and clipped there."""
    return jnp.clip(share * (_HIGH - _LOW) + _LOW, 0, 1)
