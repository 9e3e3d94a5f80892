# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Hard Concrete gates: their laws, what their price closes, and the model that is left.

Fine-tuning with gates from files to a checkpoint is in test_glue.py.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flaxattn.errors import InputError
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.task_heads import BertForSequenceClassification
from flaxattn.train import glue_model
from flaxattn.train.optimizers import decays, faster

IDS = np.array([[3, 5, 7, 9], [8, 2, 6, 1]], np.int32)
CONFIG = BertConfig(
    vocab_size=13,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=8,
)


@pytest.mark.parametrize("odds", [-3.0, -1.0, 0.0, 2.0])
def test_how_often_a_gate_is_drawn_open(odds: float) -> None:
    many = np.asarray(glue_model.drawn(jnp.full((200, 100), odds), jax.random.key(0)))
    assert many.min() >= 0 and many.max() <= 1
    expected = float(glue_model.open_probability(jnp.float32(odds)))
    assert (many > 0).mean() == pytest.approx(expected, abs=0.01)
    assert 0 < expected < 1 and (many == 1).any()


def test_settled_gates_shut_and_open() -> None:
    gates = glue_model.settled(jnp.array([[-9.0, -2.5, 0.0, 2.5, 9.0]]))
    np.testing.assert_allclose(gates, [[0, 0, 0.5, 1, 1]], atol=1e-6)
    begin = glue_model.with_gates({}, CONFIG)[glue_model.NAME]["log_odds"]
    assert begin.shape == (2, 4) and (glue_model.settled(begin) == 1).all()


@pytest.mark.slow
def test_the_gradient_is_that_of_the_drawn_gate() -> None:
    """Against difference quotients, with the same noise."""
    odds, key, step = jnp.array([[0.3, -0.4, 1.0]]), jax.random.key(2), 1e-2
    slopes = jax.grad(lambda o: glue_model.drawn(o, key).sum())(odds)
    up, down = (glue_model.drawn(odds + sign * step, key) for sign in (1, -1))
    np.testing.assert_allclose(slopes, (up - down) / (2 * step), atol=1e-3)


@pytest.mark.parametrize(("price", "closed"), [(0.05, [1, 2, 3]), (0.0, [])])
def test_the_price_closes_heads_that_are_not_needed(price: float, closed: list[int]) -> None:
    """Four heads add up to a number; what the first gives is all that is wanted."""
    worth, expected = jnp.array([[2.0, 0.0, 0.0, 0.0]]), 2.0
    optimizer = optax.adam(0.1)
    odds = jnp.full((1, 4), 3.0)

    def loss(odds: Any, key: Any) -> Any:
        error = (glue_model.drawn(odds, key) * worth).sum() - expected
        return error**2 + price * glue_model.open_probability(odds).sum()

    @jax.jit
    def update(state: Any, key: Any) -> Any:
        odds, moments = state
        changes, moments = optimizer.update(jax.grad(loss)(odds, key), moments)
        return (optax.apply_updates(odds, changes), moments), None

    keys = jax.random.split(jax.random.key(0), 400)
    (odds, _), _ = jax.lax.scan(update, (odds, optimizer.init(odds)), keys)
    heads = glue_model.closed_heads({glue_model.NAME: {"log_odds": odds}})
    assert [head for _, head in heads] == closed
    assert glue_model.settled(odds)[0, 0] == 1


@functools.cache
def params() -> Any:
    module = BertForSequenceClassification(CONFIG)
    drawn = jax.jit(module.init)(jax.random.key(0), IDS)["params"]
    return jax.tree.map(lambda a: a + 0.2 * jax.random.normal(jax.random.key(1), a.shape), drawn)


@pytest.mark.slow
def test_what_is_left_is_the_gated_model() -> None:
    module = BertForSequenceClassification(CONFIG)
    odds = jnp.array([[9.0, -9, 0.2, 9], [-9, -9, -9, -9]])
    gated = {**params(), glue_model.NAME: {"log_odds": odds}}
    mask = glue_model.settled(odds)
    expected = module.apply({"params": params()}, IDS, head_mask=mask).logits
    whole = glue_model.folded(gated)
    np.testing.assert_allclose(module.apply({"params": whole}, IDS).logits, expected, atol=1e-5)
    closed = glue_model.closed_heads(gated)
    assert closed == [(0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
    less, config = glue_model.without_closed(whole, CONFIG, closed)
    assert config.pruned_heads == ((1,), (1, 2, 3)), "a layer keeps one head"
    left = BertForSequenceClassification(config).apply({"params": less}, IDS).logits
    np.testing.assert_allclose(left, expected, atol=1e-5)
    assert glue_model.folded(params()) is params() and glue_model.closed_heads(params()) == []


def test_gates_are_not_decayed_and_move_at_their_own_speed() -> None:
    tree = {"bert": {"kernel": jnp.ones((2, 2))}, glue_model.NAME: {"log_odds": jnp.ones((2, 2))}}
    assert decays(tree) == {"bert": {"kernel": True}, glue_model.NAME: {"log_odds": False}}
    quick = faster(optax.sgd(0.1), glue_model.NAME, 50.0)
    changes: Any = quick.update(tree, quick.init(tree), tree)[0]
    np.testing.assert_allclose(changes["bert"]["kernel"], -0.1)
    np.testing.assert_allclose(changes[glue_model.NAME]["log_odds"], -5)


def test_gates_need_a_whole_model() -> None:
    config = BertConfig(num_hidden_layers=1, pruned_heads=((0,),))
    with pytest.raises(InputError, match="lacks some") as caught:
        glue_model.with_gates({}, config)
    assert len(str(caught.value).splitlines()) <= 3
