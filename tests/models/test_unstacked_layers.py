# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Unstacked layers equal those of the stack, and are never taken for those of another model."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.models.layer_stack import UnstackedLayers, unstacked


def params(seed: int = 0) -> dict[str, Any]:
    kernel = np.random.default_rng(seed).normal(size=(3, 4, 5)).astype(np.float32)
    return {"model": {"layers": {"kernel": jnp.asarray(kernel)}, "norm": jnp.ones(4)}}


def test_every_layer_in_order() -> None:
    stacked = params()
    layers = unstacked(stacked)["model"]["layers"]
    assert isinstance(layers, tuple)
    for number, layer in enumerate(layers):
        np.testing.assert_array_equal(layer["kernel"], stacked["model"]["layers"]["kernel"][number])
    np.testing.assert_array_equal(unstacked(stacked)["model"]["norm"], 1)
    again = unstacked(unstacked(stacked))["model"]["layers"]
    np.testing.assert_array_equal(again[2]["kernel"], layers[2]["kernel"])


def test_kept_for_the_same_arrays() -> None:
    kept, stacked = UnstackedLayers(), params()
    first = kept.of(stacked)
    assert kept.of(stacked) is first
    assert kept.of({"model": dict(stacked["model"])}) is first  # another tree of the same arrays


@pytest.mark.parametrize("change", ["array", "tree", "numpy"])
def test_made_anew_for_others(change: str) -> None:
    kept, stacked = UnstackedLayers(), params()
    if change == "numpy":
        stacked["model"]["layers"]["kernel"] = np.array(stacked["model"]["layers"]["kernel"])
    first = kept.of(stacked)
    if change == "array":
        stacked["model"]["layers"]["kernel"] = stacked["model"]["layers"]["kernel"] + 1
    elif change == "tree":
        stacked["model"]["more"] = jnp.zeros(2)
    else:
        stacked["model"]["layers"]["kernel"][...] += 1
    second = kept.of(stacked)
    assert second is not first
    for number, layer in enumerate(second["model"]["layers"]):
        np.testing.assert_array_equal(layer["kernel"], stacked["model"]["layers"]["kernel"][number])
    assert ("more" in second["model"]) == (change == "tree")


@pytest.mark.slow
def test_parameters_changed_between_two_texts_are_used() -> None:
    model = fa.from_pretrained("tiny-gpt2")
    settings: dict[str, Any] = {"max_new_tokens": 3, "eos": (), "scores": True}
    ids = np.array([[5, 6, 7, 8]])
    _, before = model.generate(input_ids=ids, **settings)
    down = model.params["model"]["decoder"]["layers"]["feed_forward"]["down"]
    down["kernel"] = down["kernel"] * 0
    _, after = model.generate(input_ids=ids, **settings)
    assert abs(after - before).max() > 1e-2
