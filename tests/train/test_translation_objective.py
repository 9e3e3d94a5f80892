# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Smoothed cross-entropy against its definition and torch; Noam's schedule; the mean of states."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flaxattn.train.checkpoints import Checkpoints
from flaxattn.train.objectives import token_loss
from flaxattn.train.optimizers import learning_rate, optimizer
from flaxattn.train.recipe import Recipe, TranslationRecipe
from flaxattn.train.run_folder import RunFolder
from flaxattn.train.state import TrainState, make_mesh

SMOOTHINGS = (0.0, 0.1, 0.4)
# `torch.nn.functional.cross_entropy(logits, labels, ignore_index=0, label_smoothing=…)` of torch
# 2.13 on `example()`, whose padding is label 0.
OF_TORCH = (5.1857905, 5.0810218, 4.7667150)


def example() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits [2, 5, 7], labels and their mask."""
    random = np.random.RandomState(5)
    logits = (3 * random.randn(2, 5, 7)).astype(np.float32)
    labels = random.randint(1, 7, (2, 5))
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], np.float32)
    return logits, (labels * mask).astype(np.int32), mask


def totals(mask: np.ndarray) -> dict[str, jax.Array]:
    return {"words": jnp.asarray(mask.sum())}


def test_the_stored_example_of_torch() -> None:
    logits, labels, mask = example()
    for smoothing, expected in zip(SMOOTHINGS, OF_TORCH, strict=True):
        loss, _ = token_loss(jnp.asarray(logits), labels, mask, totals(mask), smoothing)
        assert float(loss) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parity
def test_it_is_what_torch_computes() -> None:
    torch = pytest.importorskip("torch")
    logits, labels, _ = example()
    for smoothing, expected in zip(SMOOTHINGS, OF_TORCH, strict=True):
        loss = torch.nn.functional.cross_entropy(
            torch.from_numpy(logits).reshape(-1, 7),
            torch.from_numpy(labels).long().reshape(-1),
            ignore_index=0,
            label_smoothing=smoothing,
        )
        assert float(loss) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_smoothed_labels_by_their_definition(smoothing: float) -> None:
    logits, labels, mask = example()
    wide = logits.astype(np.float64)
    logs = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    expected = smoothing / 7 + (1 - smoothing) * np.eye(7)[labels]
    np.testing.assert_allclose(expected.sum(-1), 1)
    real = mask == 1
    loss, metrics = token_loss(jnp.asarray(logits), labels, mask, totals(mask), smoothing)
    assert float(loss) == pytest.approx(-(expected * logs).sum(-1)[real].mean(), rel=1e-6)
    picked = np.take_along_axis(logs, labels[..., None], -1)[..., 0]
    assert float(metrics["nll"]) == pytest.approx(-picked[real].mean(), rel=1e-6)
    hits = (logits.argmax(-1) == labels)[real]
    assert float(metrics["accuracy"]) == pytest.approx(hits.mean())


def test_padding_is_left_out_and_parts_add_up() -> None:
    logits, labels, mask = example()
    whole = totals(mask)

    def loss(rows: slice, logits: np.ndarray) -> float:
        return float(token_loss(jnp.asarray(logits[rows]), labels[rows], mask[rows], whole, 0.1)[0])

    everything = slice(0, 2)
    spoiled = np.where(mask[..., None] == 1, logits, 99.0).astype(np.float32)
    assert loss(everything, spoiled) == loss(everything, logits)
    parts = loss(slice(0, 1), logits) + loss(slice(1, 2), logits)
    assert parts == pytest.approx(loss(everything, logits), rel=1e-6)


def test_noam_is_the_formula_of_the_paper() -> None:
    recipe = TranslationRecipe(d_model=512, warmup_steps=4000, steps=100000)
    rate = learning_rate(recipe)
    for step in (1, 2, 1000, 3999, 4000, 4001, 20000, 100000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert float(rate(step - 1)) == pytest.approx(expected, rel=1e-6)
    doubled = learning_rate(TranslationRecipe(d_model=512, warmup_steps=4000, learning_rate=2.0))
    assert float(doubled(99)) == pytest.approx(2 * float(rate(99)), rel=1e-6)


def test_the_inverse_root_reaches_its_peak_and_falls() -> None:
    rate = learning_rate(Recipe(learning_rate=0.3, warmup_steps=100, schedule="inverse-sqrt"))
    assert float(rate(49)) == pytest.approx(0.15)
    assert float(rate(99)) == pytest.approx(0.3)
    assert float(rate(399)) == pytest.approx(0.15)
    at_once = learning_rate(Recipe(learning_rate=0.3, warmup_steps=0, schedule="inverse-sqrt"))
    assert float(at_once(0)) == pytest.approx(0.3)


def test_adam_is_that_of_optax_with_its_settings() -> None:
    recipe = TranslationRecipe(schedule="constant", learning_rate=0.01, warmup_steps=0)
    assert (recipe.adam_b1, recipe.adam_b2, recipe.adam_eps) == (0.9, 0.98, 1e-9)
    theirs = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.01, 0.9, 0.98, 1e-9))
    random = np.random.default_rng(0)
    found = expected = {"dense": {"kernel": jnp.asarray(random.normal(size=(3, 4)))}}
    ours = optimizer(recipe)
    state, other = ours.init(found), theirs.init(expected)
    for _ in range(5):
        gradient = jax.tree.map(lambda x: jnp.asarray(random.normal(size=x.shape)), found)
        change, state = ours.update(gradient, state, found)
        found = optax.apply_updates(found, change)
        change, other = theirs.update(gradient, other, expected)
        expected = optax.apply_updates(expected, change)
    np.testing.assert_allclose(found["dense"]["kernel"], expected["dense"]["kernel"], rtol=1e-5)


def states() -> dict[int, TrainState]:
    random = np.random.default_rng(2)

    def state(step: int) -> TrainState:
        params = {"kernel": jnp.asarray(random.normal(size=(4, 3)), jnp.float32)}
        return TrainState(params, params, jnp.asarray(step), jnp.asarray(7, jnp.uint32))

    return {step: state(step) for step in (10, 13, 20, 30, 33)}


def test_the_result_is_the_mean_of_the_last_evaluations(tmp_path: Path) -> None:
    """Steps 13 and 33 were saved because somebody asked the run to stop; they are not judged."""
    made, mesh = states(), make_mesh(Recipe(devices=1))
    with Checkpoints(RunFolder(tmp_path), 1, lambda step: step % 10 == 0, 2) as saved:
        for step, state in made.items():
            saved.save(step, state, {"best": {"step": 10, "value": 0.0}})
        saved.wait()
        assert saved.steps() == [10, 20, 30, 33]  # the best, those of the mean, the newest
        found = saved.averaged(jax.eval_shape(lambda: made[10]), mesh)
    expected = (np.asarray(made[20].params["kernel"]) + np.asarray(made[30].params["kernel"])) / 2
    np.testing.assert_array_equal(found["kernel"], expected)
