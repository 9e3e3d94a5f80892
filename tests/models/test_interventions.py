# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Interventions at every site of four families, against forward passes written in NumPy."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from intervention_models import IDS, LAYERS, MASK, OTHER_IDS, PLACES, SIDES, shape_of, tiny
from jax import Array

from flaxattn.models.interventions import Intervention

MAPS = ("scores", "weights")
HEADED = ("query", "key", "value", "scores", "weights", "head_output")
every_place = pytest.mark.parametrize(
    ("family", "side", "site"), PLACES, ids=["-".join(place) for place in PLACES]
)


def bent(x: Array) -> Array:
    """A function of an array; masked scores stay masked."""
    return jnp.where(x == -jnp.inf, x, 0.4 * jnp.cos(x))


def bent_in_numpy(x: np.ndarray) -> np.ndarray:
    return np.where(np.isneginf(x), x, 0.4 * np.cos(np.where(np.isneginf(x), 0, x)))


def scaled(x: np.ndarray, by: np.ndarray) -> np.ndarray:
    """A product; masked scores stay masked."""
    return np.where(np.isneginf(x), x, np.where(np.isneginf(x), 0, x) * by)


def recorded(family: str, side: str, site: str, ids: np.ndarray) -> np.ndarray:
    """Arrays `[L, ...]` at a site of a run in NumPy."""
    arrays: list[np.ndarray] = []
    tiny(family).truth({(side, site): lambda _, x: (arrays.append(x), x)[1]}, ids)
    return np.stack(arrays)


def chosen(site: str, heads: tuple[int, ...] = (), positions: tuple[int, ...] = ()) -> np.ndarray:
    """True at heads and positions, with the axes of a site."""
    shape = shape_of(site)
    places = np.indices(shape, sparse=True)
    head, position = (places[1], places[2]) if site in MAPS else (places[2], places[1])
    array = np.ones(shape, bool)
    array &= np.isin(head, heads) if heads and site in HEADED else True
    return array & (np.isin(position, positions) if positions else True)


def close(array: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.few("llama")
@pytest.mark.parametrize("family", SIDES)
def test_the_forward_passes_are_those_of_the_models(family: str) -> None:
    for ids in (IDS, OTHER_IDS):
        close(tiny(family).run(ids=ids), tiny(family).truth(ids=ids))


@pytest.mark.few("llama-decoder-weights")
@every_place
def test_every_operation(family: str, side: str, site: str) -> None:
    """Four interventions, each by itself and all in order; `where` switches them on and off."""
    model, rng = tiny(family), np.random.default_rng(len(site))
    heads = (0, 2) if site in HEADED else ()
    values = recorded(family, side, site, OTHER_IDS)
    noise = rng.normal(size=(2, *shape_of(site)))
    some = rng.uniform(size=(LAYERS, *shape_of(site, last=site in MAPS))) < 0.5
    text = np.arange(2).reshape(2, *(1,) * (some.ndim - 2)) == 1
    pads = (
        (MASK == 1)[:, None, :, None]
        if site in MAPS
        else (MASK == 1).reshape(2, -1, *(1,) * (some.ndim - 3))
    )
    factor = rng.uniform(0.5, 2, shape_of(site)[1:])

    def interventions(*on: int) -> list[Intervention]:
        def where(number: int, array: np.ndarray) -> np.ndarray:
            return array if number in on else np.zeros_like(array)

        own: dict[str, Any] = {"side": side, "heads": heads or None}
        return [
            Intervention(site, values[1].astype(np.float32), (1,), where=where(0, text), **own),
            Intervention(
                site, noise, (0, 2), positions=(1, 3), where=where(1, pads), operation="add", **own
            ),
            Intervention(site, factor, where=where(2, some), operation="multiply", **own),
            Intervention(
                site, None, (2,), positions=(2,), where=where(3, pads), operation=bent, **own
            ),
        ]

    def hook(on: tuple[int, ...]) -> Callable[[int, np.ndarray], np.ndarray]:
        def full(array: np.ndarray) -> np.ndarray:
            return array if site in MAPS else array[..., None]

        def change(layer: int, x: np.ndarray) -> np.ndarray:
            if 0 in on and layer == 1:
                x = np.where(full(text) & chosen(site, heads), values[1], x)
            if 1 in on and layer != 1:
                place = full(pads) & chosen(site, heads, (1, 3))
                x = np.where(place, x + noise[layer // 2], x)
            if 2 in on:
                x = np.where(full(some[layer]) & chosen(site, heads), scaled(x, factor), x)
            if 3 in on and layer == 2:
                x = np.where(full(pads) & chosen(site, heads, (2,)), bent_in_numpy(x), x)
            return x

        return change

    plain = model.truth()
    for on in ((0,), (1,), (2,), (3,), (0, 1, 2, 3)):
        expected = model.truth({(side, site): hook(on)})
        close(model.run(*interventions(*on)), expected)
        assert np.abs(expected - plain)[MASK == 1].max() > 1e-4, (on, "the change matters")


@pytest.mark.few(
    "llama-decoder-scores",
    "gpt2-decoder-value",
    "marian-cross-head_output",
    "bert-encoder-attention_output",
)
@every_place
def test_values_of_another_run(family: str, side: str, site: str) -> None:
    """A value for every layer, without any choice: it goes into all of them."""
    model, values = tiny(family), recorded(family, side, site, OTHER_IDS)
    expected = model.truth({(side, site): lambda layer, _: values[layer]})
    close(model.run(Intervention(site, values.astype(np.float32), side=side)), expected)


@pytest.mark.slow
@pytest.mark.few("shape0", "shape4")
@pytest.mark.parametrize("shape", [(), (4,), (4, 1), (6, 1, 4), (1, 6, 4, 4), (1, 1, 1, 1, 1)])
def test_values_of_fewer_axes_are_broadcast(shape: tuple[int, ...]) -> None:
    """The rightmost axes are those of a head's vector, as NumPy broadcasts."""
    model, value = tiny("llama"), np.random.default_rng(0).normal(size=shape).astype(np.float32)
    expected = model.truth(
        {("decoder", "head_output"): lambda _, x: 0 * x + value.reshape(shape[-4:])}
    )
    close(model.run(Intervention("head_output", value)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [(2, 0), (0, 2)])
def test_values_follow_the_order_of_layers(layers: tuple[int, int]) -> None:
    model = tiny("gpt2")
    values = recorded("gpt2", "decoder", "feed_forward_output", OTHER_IDS)[list(layers)]

    def hook(layer: int, x: np.ndarray) -> np.ndarray:
        return values[layers.index(layer)] if layer in layers else x

    edit = Intervention("feed_forward_output", values.astype(np.float32), layers)
    close(model.run(edit), model.truth({("decoder", "feed_forward_output"): hook}))


@pytest.mark.parametrize("factor", [0.0, -1.0])
def test_masked_scores_stay_masked_under_a_factor(factor: float) -> None:
    model = tiny("gpt2")
    edit = Intervention("scores", factor, operation="multiply")
    expected = model.truth({("decoder", "scores"): lambda _, x: scaled(x, np.array(factor))})
    close(model.run(edit), expected)


@pytest.mark.slow
def test_order_counts() -> None:
    """Twice and then one more is not one more and then twice."""
    model = tiny("bert")
    double = Intervention("attention_output", 2.0, operation="multiply")
    more = Intervention("attention_output", 1.0, operation="add")
    for edits, hook in (
        ((double, more), lambda _, x: 2 * x + 1),
        ((more, double), lambda _, x: 2 * (x + 1)),
    ):
        close(model.run(*edits), model.truth({("encoder", "attention_output"): hook}))


@pytest.mark.slow
def test_several_sites_and_sides_at_once() -> None:
    model = tiny("marian")
    edits = [
        Intervention("query", 0.5, (1,), operation="add", side="cross"),
        Intervention("query", 2.0, (0,), operation="multiply", side="decoder"),
        Intervention("value", 0.0, (2,), heads=(1,), side="encoder"),
    ]

    def silent(layer: int, x: np.ndarray) -> np.ndarray:
        return np.where((np.arange(4) == 1)[:, None] & (layer == 2), 0, x)

    expected = model.truth(
        {
            ("cross", "query"): lambda layer, x: x + 0.5 * (layer == 1),
            ("decoder", "query"): lambda layer, x: x * (2 if layer == 0 else 1),
            ("encoder", "value"): silent,
        }
    )
    close(model.run(*edits), expected)
    close(model.run(*edits[::-1]), expected)


@pytest.mark.slow
def test_a_value_of_one_text_serves_all() -> None:
    model = tiny("gpt2")
    values = recorded("gpt2", "decoder", "value", OTHER_IDS)[:, :1]
    expected = model.truth({("decoder", "value"): lambda layer, x: 0 * x + values[layer]})
    close(model.run(Intervention("value", values.astype(np.float32))), expected)
