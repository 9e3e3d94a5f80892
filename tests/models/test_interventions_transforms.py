# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Interventions under jit, vmap, grad and remat, in caches, dtypes and layouts, and in records."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from intervention_models import (
    DEPTH,
    HEADS,
    IDS,
    LAYERS,
    LENGTH,
    MASK,
    OTHER_IDS,
    WIDTH,
    applied,
    shape_of,
    tiny,
)
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from flaxattn.kernels.contract import Capture
from flaxattn.models.interventions import Intervention, site_values, with_interventions
from flaxattn.models.layer_stack import unstacked
from flaxattn.trace.trace import Trace

PRUNED = ((1,), (), (0, 3))


def close(array: Any, expected: Any, share: float = 1e-5) -> None:
    np.testing.assert_allclose(array, expected, rtol=0, atol=share * np.abs(expected).max())


@pytest.mark.slow
def test_other_values_compile_nothing() -> None:
    """The arrays are arguments of the compiled program."""
    model, counts = tiny("gpt2"), []

    @jax.jit
    def run(edits: Sequence[Intervention]) -> Any:
        counts.append(1)
        variables = with_interventions(model.params, edits)
        return model.module.apply(variables, *model.given()).last_hidden_state

    outputs = []
    for value in (0.0, 1.0):
        for head in range(2):
            where = jnp.arange(HEADS) == head
            edits = [
                Intervention("head_output", value, (1,), where=where),
                Intervention("scores", value + 1, operation="multiply"),
            ]
            outputs.append(run(edits))
            close(outputs[-1], model.run(*edits))
    assert len(counts) == 1
    assert np.abs(outputs[0] - outputs[3]).max() > 1e-3


@pytest.mark.slow
def test_all_heads_at_once_are_a_loop_over_heads() -> None:
    model = tiny("bert")
    one = np.eye(LAYERS * HEADS, dtype=bool).reshape(-1, LAYERS, 1, 1, HEADS)

    def run(where: Any) -> Any:
        return applied(
            model.module,
            model.params,
            [Intervention("head_output", 0.0, where=where)],
            model.given(),
        )

    together = jax.vmap(run)(jnp.asarray(one))
    for number, where in enumerate(one):
        layer, head = divmod(number, HEADS)
        close(together[number], run(where))
        silent = np.ones((LAYERS, HEADS), np.float32)
        silent[layer, head] = 0
        masked = model.module.apply({"params": model.params}, IDS, MASK, head_mask=silent)
        close(together[number], masked.last_hidden_state)


@pytest.mark.slow
def test_an_intervention_is_mapped_over_values_alone() -> None:
    """Axes of `jax.vmap` are written as an intervention whose fields are axes."""
    model, rng = tiny("gpt2"), np.random.default_rng(0)
    edit = Intervention("value", rng.normal(size=(5, HEADS, DEPTH)), (0, 2), where=np.array(True))
    axes = Intervention("value", 0, (0, 2), where=None)

    def run(edit: Intervention) -> Any:
        return applied(model.module, model.params, [edit], model.given())

    together = jax.vmap(run, in_axes=(axes,))(edit)
    for number in range(5):
        single = Intervention("value", edit.value[number], (0, 2), where=np.array(True))
        close(together[number], run(single))


@pytest.mark.slow
@pytest.mark.few("True-head_output")
@pytest.mark.parametrize(
    ("site", "operation"),
    [
        ("layer_input", "add"),
        ("query", "replace"),
        ("scores", "add"),
        ("scores", "multiply"),
        ("weights", "multiply"),
        ("weights", "replace"),
        ("head_output", "multiply"),
        ("feed_forward_output", "add"),
    ],
)
@pytest.mark.parametrize("remat", [False, True])
def test_the_gradient_of_a_value_is_its_slope(site: str, operation: Any, remat: bool) -> None:
    """Differences of the forward pass in NumPy, along a random direction."""
    model, rng = tiny("gpt2"), np.random.default_rng(3)
    value, direction = rng.uniform(0.5, 1.5, (2, LAYERS, *shape_of(site)))
    module = model.module.clone(remat=remat)

    def loss(value: Any) -> Any:
        edit = Intervention(site, value, operation=operation)
        return (applied(module, model.params, [edit], model.given()) ** 2).sum()

    def truth(step: float) -> float:
        def hook(layer: int, x: np.ndarray) -> np.ndarray:
            new = value[layer] + step * direction[layer]
            masked = np.isneginf(x)
            product = np.where(masked, x, np.where(masked, 0, x) * new)
            return {"add": x + new, "replace": new, "multiply": product}[operation]

        return float((model.truth({("decoder", site): hook}) ** 2).sum())

    slope = jax.grad(loss)(jnp.asarray(value, jnp.float32))
    assert np.isfinite(slope).all()
    expected = (truth(1e-4) - truth(-1e-4)) / 2e-4
    scale = np.linalg.norm(slope) * np.linalg.norm(direction)
    assert float((slope * direction).sum()) == pytest.approx(expected, abs=1e-4 * scale)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["remat", "unroll", "unstacked", "compiled"])
@pytest.mark.parametrize("family", ["llama", "marian"])
def test_however_layers_are_run(family: str, layout: str) -> None:
    model, rng = tiny(family), np.random.default_rng(1)
    side = {"marian": "cross"}.get(family, "decoder")
    edits = [
        Intervention("key", rng.normal(size=(2, 1, 1, HEADS, DEPTH)), (0, 2), (1, 2), side=side),
        Intervention("weights", 0.5, (1,), positions=(2,), operation="multiply", side=side),
        Intervention("layer_input", rng.normal(size=WIDTH), (2,), operation="add", side="decoder"),
    ]
    module, params = model.module, model.params
    if layout in ("remat", "unroll"):
        module = module.clone(**{layout: True})
    if layout == "unstacked":
        params = unstacked(params)
    run = jax.jit(module.apply) if layout == "compiled" else module.apply
    output = run(with_interventions(params, edits), *model.given()).last_hidden_state
    close(output, model.run(*edits))
    assert np.abs(output - model.run()).max() > 1e-2


def pruned_model() -> tuple[Any, Any]:
    """The GPT-2 without some heads: their columns and rows are taken out of the parameters."""
    model = tiny("gpt2")
    module = model.module.clone(
        config=dataclasses.replace(model.module.config, pruned_heads=PRUNED)
    )
    layers = []
    for number, lacking in enumerate(PRUNED):
        layer = jax.tree.map(lambda a, n=number: a[n], model.params["decoder"]["layers"])
        gone = np.ravel([np.arange(DEPTH * head, DEPTH * head + DEPTH) for head in lacking])
        gone, attention = gone.astype(int), layer["attention"]
        for name in ("query", "key", "value"):
            attention[name] = {n: np.delete(a, gone, -1) for n, a in attention[name].items()}
        kernel = np.delete(attention["output"]["kernel"], gone, 0)
        layer["attention"] = attention | {"output": attention["output"] | {"kernel": kernel}}
        layers.append(layer)
    return module, model.params | {"decoder": {"layers": tuple(layers)}}


@pytest.mark.slow
@pytest.mark.parametrize("site", ["query", "value", "scores", "weights", "head_output"])
def test_pruned_heads_keep_the_numbers_of_the_others(site: str) -> None:
    """The truth has all heads, and zeros for the outputs of those that were pruned."""
    module, params = pruned_model()
    rng, maps = np.random.default_rng(2), site in ("scores", "weights")
    value = rng.uniform(0.5, 2, (LAYERS, *shape_of(site))).astype(np.float32)
    some = rng.uniform(size=(HEADS, 1, 1) if maps else (HEADS,)) < 0.7
    place = (np.arange(HEADS) > 0).reshape((HEADS, 1, 1) if maps else (HEADS,)) & some
    place = place if maps else place[..., None]
    edit = Intervention(site, value, heads=(1, 2, 3), where=some, operation="multiply")

    def change(layer: int, x: np.ndarray) -> np.ndarray:
        masked = np.isneginf(x)
        return np.where(place & ~masked, np.where(masked, 0, x) * value[layer], x)

    def silent(layer: int, x: np.ndarray) -> np.ndarray:
        x = change(layer, x) if site == "head_output" else x
        return np.where(np.isin(np.arange(HEADS), PRUNED[layer])[:, None], 0, x)

    hooks = {("decoder", site): change} | {("decoder", "head_output"): silent}
    close(applied(module, params, [edit], (IDS, MASK)), tiny("gpt2").truth(hooks))


@pytest.mark.slow
def test_values_of_pruned_heads_are_recorded_as_zero() -> None:
    module, params = pruned_model()
    edits = [Intervention(s, operation="record") for s in ("head_output", "attention_output")]
    _, state = module.apply(with_interventions(params, edits), IDS, MASK, mutable=["sites"])
    values = site_values(state)["decoder"]
    assert values["head_output"].shape == (LAYERS, 2, LENGTH, HEADS, DEPTH)
    for layer, heads in enumerate(PRUNED):
        for head in range(HEADS):
            assert bool(jnp.any(values["head_output"][layer, :, :, head])) == (head not in heads)


@pytest.mark.slow
def test_bfloat16_stays() -> None:
    """Values and results of functions take the dtype of the array."""
    model = tiny("bert")
    module = model.module.clone(dtype=jnp.bfloat16)
    edits = [
        Intervention("value", np.full((HEADS, 1), 0.25), (0,)),
        Intervention("head_output", operation=lambda x: x.astype(jnp.float32) * 2),
        Intervention("scores", np.ones(LENGTH), operation="add"),
    ]
    output = applied(module, model.params, edits, model.given())
    assert output.dtype == jnp.bfloat16
    expected = applied(model.module, model.params, edits, model.given())
    close(output.astype(jnp.float32), expected, 0.05)


@pytest.mark.slow
def test_records_are_of_what_acted() -> None:
    """Weights after the edit; the implementation changes in the layers that are changed alone."""
    model, even = tiny("gpt2"), np.tri(LENGTH) / np.arange(1, LENGTH + 1)[:, None]
    edits = [
        Intervention("weights", even, (1,), heads=(2,)),
        Intervention("head_output", 0.0, (0,), heads=(3,)),
    ]
    implementations = []
    for layer in range(LAYERS):
        requested = Capture(weights=True, head_output=True, layers=(layer,))
        module = model.module.clone(capture=requested, implementation=None)
        variables = with_interventions(model.params, edits)
        _, state = module.apply(variables, IDS, mutable=["intermediates"])
        record = Trace.from_variables(state).decoder
        implementations.append(record.implementation)
        assert np.allclose(record.weights[0, :, 2], even) == (layer == 1)
        assert (not np.any(record.head_output[0, :, :, 3])) == (layer == 0)
        _, state = module.apply({"params": model.params}, IDS, mutable=["intermediates"])
        plain = Trace.from_variables(state).decoder.implementation
        assert plain != "reference"
        assert record.implementation == ("reference" if layer == 1 else plain)


@pytest.mark.slow
def test_recorded_values_are_those_after_earlier_interventions() -> None:
    model = tiny("marian")
    edits = [
        Intervention("attention_output", operation="record", side="cross"),
        Intervention("query", 2.0, (1,), operation="multiply", side="cross"),
        Intervention("query", operation="record", side="cross"),
        Intervention("layer_output", operation="record", side="encoder"),
        Intervention("layer_output", 1.0, operation="add", side="encoder"),
    ]
    variables = with_interventions(model.params, edits)
    _, state = model.module.apply(variables, *model.given(), mutable=["sites"])
    values, hooks, final = site_values(state), {}, {}
    for side, site in (("cross", "attention_output"), ("cross", "query")):
        factor = np.array([1.0, 2.0, 1.0]) if site == "query" else np.ones(3)

        def hook(layer: int, x: Any, place: Any = (side, site), factor: Any = factor) -> Any:
            final.setdefault(place, []).append(x * factor[layer])
            return x * factor[layer]

        hooks[side, site] = hook
    hooks["encoder", "layer_output"] = lambda _, x: x + 1
    model.truth(hooks)
    for (side, site), arrays in final.items():
        close(values[side][site], np.stack(arrays))
    assert set(values) == {"encoder", "cross"}


@pytest.mark.slow
def test_hidden_states_have_the_changed_outputs_of_layers() -> None:
    model = tiny("gpt2")
    module = model.module.clone(keep_hidden=True)
    edit = Intervention("layer_output", 7.0, (0,), positions=(1,))
    hidden = module.apply(with_interventions(model.params, edit), IDS, MASK).hidden_states
    np.testing.assert_array_equal(hidden[1][:, 1], 7)
    assert not np.any(np.asarray(hidden[1][:, 0]) == 7)


@pytest.mark.slow
def test_generation_with_a_cache_is_changed_at_every_position() -> None:
    """What does not depend on positions acts on the prompt and on each token that follows."""
    model, ids = tiny("gpt2"), OTHER_IDS[:1]
    module = model.module.clone(cache_length=LENGTH)
    edits = [
        Intervention("head_output", 0.0, (0,), heads=(1,)),
        Intervention("layer_output", np.linspace(-1, 1, WIDTH), (1,), operation="add"),
    ]
    variables = with_interventions(model.params, edits)
    expected = model.module.apply(variables, ids).last_hidden_state
    out, cache = module.apply(variables, ids[:, :4], mutable=["cache"])
    close(out.last_hidden_state, expected[:, :4])
    for position in (4, 5):
        out, cache = module.apply(
            variables | cache,
            ids[:, position : position + 1],
            np.ones((1, LENGTH), np.int32),
            np.array([[position]]),
            mutable=["cache"],
        )
        close(out.last_hidden_state[:, 0], expected[:, position])


@pytest.mark.slow
def test_texts_on_eight_devices() -> None:
    """The batch is split over a mesh, the values with it."""
    model, rng = tiny("llama"), np.random.default_rng(4)
    ids, mask = np.tile(IDS, (4, 1)), np.tile(MASK, (4, 1))
    value = rng.normal(size=(LAYERS, 8, LENGTH, HEADS, DEPTH)).astype(np.float32)
    where = np.arange(8)[:, None, None] % 3 == 0
    edits = [Intervention("head_output", value, where=where), Intervention("scores", 0.5, (1,))]
    expected = applied(model.module, model.params, edits, (ids, mask))
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))

    def put(array: Any, *axes: Any) -> Any:
        return jax.device_put(array, NamedSharding(mesh, P(*axes)))

    edits = [
        Intervention("head_output", put(value, None, "data"), where=put(where, "data")),
        Intervention("scores", 0.5, (1,)),
    ]
    params = jax.tree.map(put, model.params)
    given = (put(ids, "data"), put(mask, "data"))
    output = applied(model.module, params, edits, given)
    assert len(output.sharding.device_set) == 8
    close(output, expected)
