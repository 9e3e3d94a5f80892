# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Twenty updates of pretraining beside torch's: stored losses everywhere, live ones with torch."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bert_checkpoint import tensors
from make_training_golden import CASE, DECAY, GOLDEN, RATE, UPDATES, WARMUP, batch, torch_losses

import flaxattn as fa
from flaxattn.kernels.contract import NOTHING
from flaxattn.trace import tensor_file
from flaxattn.train.bert_mlm import batch_totals, loss_function
from flaxattn.train.optimizers import bert_adamw
from flaxattn.train.pretraining_data import PretrainingBatch
from flaxattn.train.recipe import Recipe
from flaxattn.train.state import initial_state, update_function


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(GOLDEN, allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The same losses from this library."""
    folder = tmp_path_factory.mktemp("model")
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    settings = {"model_type": "bert", "architectures": [CASE.head], **CASE.config(), **none}
    (folder / "config.json").write_text(json.dumps(settings))
    tensor_file.write(folder / "model.safetensors", tensors(CASE))
    model = fa.from_pretrained(folder)
    loss = loss_function(model.module.clone(capture=NOTHING))
    optimizer = bert_adamw(
        Recipe(steps=UPDATES, learning_rate=RATE, warmup_steps=WARMUP, weight_decay=DECAY)
    )
    update = jax.jit(update_function(loss, batch_totals, optimizer))
    state, rows = initial_state(model.params, optimizer), []
    for step in range(UPDATES):
        given = {name: array.astype(np.int32) for name, array in batch(step).items()}
        given["masked_weights"] = given["masked_weights"].astype(np.float32)
        state, metrics = update(state, PretrainingBatch(**jax.tree.map(jnp.asarray, given)))
        rows.append([float(metrics[name]) for name in ("mlm_loss", "nsp_loss", "loss")])
    return dict(zip(("mlm_loss", "nsp_loss", "loss"), np.array(rows).T, strict=True))


@pytest.mark.slow
def test_the_losses_before_training_are_torchs(ours, stored) -> None:
    for name, losses in stored.items():
        assert ours[name][0] == pytest.approx(losses[0], rel=1e-5), name


@pytest.mark.slow
def test_twenty_updates_track_torchs(ours, stored) -> None:
    for name, losses in stored.items():
        np.testing.assert_allclose(ours[name], losses, rtol=1e-3, err_msg=name)
    assert np.ptp(stored["loss"]) > 0.2  # something happened


@pytest.mark.parity
def test_torch_still_computes_what_is_stored(stored) -> None:
    pytest.importorskip("torch")
    for name, losses in torch_losses().items():
        np.testing.assert_allclose(losses, stored[name], rtol=1e-4, err_msg=name)
