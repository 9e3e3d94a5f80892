# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Path patching against a loop in NumPy, and patching where algebra says what it gives.

The forward pass of the loop is `numpy_models.gpt2`, which shares nothing with the package. A
linear model is a GPT-2 whose norms are left out and whose feed-forward layers and queries are 0.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import numpy_models
import pytest
from flax import linen as nn
from intervention_models import around_one
from small_models import drawn

import flaxattn as fa
from flaxattn.models.decoder import DecoderLM
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

LAYERS, HEADS = 3, 4
# The indirect-object task: names A and B, then B again, so A comes next; corrupted, all differ.
PAIRS = [
    fa.TextPair("the a , b is very sad , b is", "the c , d is very sad , e is", "a", "b"),
    fa.TextPair("the d , c is very sad , c is", "the a , g is very sad , h is", "d", "c"),
    fa.TextPair("the h , e is very sad , h is", "the b , f is very sad , g is", "e", "h"),
]
CHANGED = [1, 3, 8]
SENDERS = {"all": [range(10)], "segment": [[], [0], CHANGED, [2, 4, 5, 6, 7], [9]]}


@pytest.fixture(scope="module")
def lm(gpt2: PretrainedDecoder) -> PretrainedDecoder:
    """3 layers of 4 heads, random."""
    size = gpt2.tokenizer.vocab_size
    ends = {"bos_token_id": 1, "eos_token_id": 1}
    config = fa.GPT2Config(size, n_embd=16, n_layer=LAYERS, n_head=HEADS, n_positions=48, **ends)
    module = DecoderLM(config)
    params = drawn(module, np.ones((1, 2), np.int32))
    params = jax.tree_util.tree_map_with_path(around_one, params)
    return PretrainedDecoder(module, params, gpt2.tokenizer, config, "random")


def in_numpy(
    model: Any, text: str, changes: Any = None, sites: tuple[str, ...] = ()
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Logits behind the last token, and values of sites `[L, S, …]`; changes by site."""
    values: dict[str, list[np.ndarray]] = {site: [] for site in sites}

    def hook(site: str, layer: int, x: np.ndarray) -> np.ndarray:
        x = np.array(x)
        if changes and site in changes:
            x = changes[site](layer, x)
        if site in values:
            values[site].append(x[0])
        return x

    every = {*values, *(changes or {})}
    hooks = {("decoder", site): lambda n, x, site=site: hook(site, n, x) for site in every}
    ids = model.read(text).given["input_ids"]
    config, params = model.config, model.params["model"]
    state = numpy_models.gpt2(config, params, ids, np.ones_like(ids), hooks)
    logits = state[0, -1] @ np.asarray(params["words"]["embedding"], np.float64).T
    return logits, {site: np.stack(rows) for site, rows in values.items()}


def set_heads(values: np.ndarray, heads: Any) -> Any:
    """A change that gives some heads, by layer, their values."""

    def change(layer: int, x: np.ndarray) -> np.ndarray:
        for head in heads[layer]:
            x[0, :, head] = values[layer, :, head]
        return x

    return change


def by_a_loop(
    model: Any, pair: fa.TextPair, receivers: Any, into: Any, feed: bool, places: Any
) -> np.ndarray:
    """The logit difference with each sender's path in the corrupted run's state, less the clean."""
    right, wrong = (model.tokenizer.ids([word])[0][-1] for word in (pair.answer, pair.wrong))
    base, own = in_numpy(model, pair.clean, sites=("head_output", "feed_forward_output"))
    _, other = in_numpy(model, pair.corrupted, sites=("head_output",))
    effects = np.zeros((LAYERS, HEADS, len(places)))
    every = [range(HEADS)] * LAYERS
    for layer, head, group in np.ndindex(*effects.shape):
        mixed = np.array(own["head_output"])
        for place in places[group]:
            mixed[layer, place, head] = other["head_output"][layer, place, head]
        frozen = {"head_output": set_heads(mixed, every)}
        if feed:
            frozen["feed_forward_output"] = lambda n, x: own["feed_forward_output"][n][None]
        logits, read = in_numpy(model, pair.clean, frozen, sites=into if receivers else ())
        if receivers:
            ends = [[h for n, h in receivers if n == layer] for layer in range(LAYERS)]
            given = {site: set_heads(read[site], ends) for site in into}
            logits, _ = in_numpy(model, pair.clean, given)
        effects[layer, head, group] = logits[right] - logits[wrong] - (base[right] - base[wrong])
    return effects


@pytest.mark.few("receivers1")
@pytest.mark.parametrize(
    ("receivers", "into", "feed", "positions"),
    [
        ((), ("query",), False, "all"),  # which heads move names to the end
        ((), ("query",), True, "segment"),
        (((2, 1), (2, 3)), ("query",), False, "segment"),  # and what tells them where to look
        (((1, 0), (2, 2)), ("key", "value"), True, "all"),
    ],
)
def test_paths_of_the_indirect_object_task_equal_a_loop(
    lm: Any, receivers: Any, into: Any, feed: bool, positions: Any
) -> None:
    request = fa.PatchRequest(
        method="path",
        direction="noise",
        receivers=receivers,
        into=into,
        freeze_feed_forward=feed,
        positions=positions,
    )
    report = fa.patch(lm, PAIRS, request, batch=2, controls=0)
    (effects,) = report.effects
    for number, pair in enumerate(PAIRS):
        places = SENDERS[positions]
        if positions == "segment" and number:
            same = pair.clean.split()
            changed = [n for n, w in enumerate(pair.corrupted.split()) if w != same[n]]
            assert changed == CHANGED
        expected = by_a_loop(lm, pair, receivers, into, feed, places)
        np.testing.assert_allclose(effects.each[..., number], expected, atol=1e-4)
        assert np.abs(expected).max() > 1e-3


@pytest.fixture
def without_norms() -> Iterator[None]:
    """Every norm returns its input."""

    def skip(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        module = context.module
        is_norm = context.method_name == "__call__" and (module.name or "").endswith("norm")
        return args[0] if is_norm and not module.is_initializing() else call(*args, **kwargs)

    with nn.intercept_methods(skip):
        yield


def without(model: Any, *names: str) -> PretrainedDecoder:
    """The model under a name of its own, with some kernels and biases 0."""
    layers = dict(model.params["model"]["decoder"]["layers"])
    for name in names:
        part, kernel = name.split("/")
        zeros = {n: np.zeros_like(a) for n, a in layers[part][kernel].items()}
        layers[part] = layers[part] | {kernel: zeros}
    decoder = {"decoder": {"layers": layers}}
    params = {"model": model.params["model"] | decoder}
    module = DecoderLM(model.config, remat=True)  # compiled anew, with what the fixture leaves out
    return PretrainedDecoder(module, params, model.tokenizer, model.config, "linear")


@pytest.mark.slow
@pytest.mark.usefixtures("without_norms")
def test_attribution_is_patching_where_the_model_is_linear(lm: Any) -> None:
    model = without(lm, "feed_forward/down", "attention/query")
    for positions in ("all", "segment"):
        exact, estimate = (
            fa.patch(
                model, PAIRS, fa.PatchRequest(method=method, positions=positions), controls=0
            ).effects[0]
            for method in ("activation", "attribution")
        )
        assert np.abs(exact.each).max() > 0.1
        np.testing.assert_allclose(estimate.each, exact.each, atol=1e-4)
        assert estimate.approximation.error < 1e-4
        assert estimate.approximation.correlation == pytest.approx(1, abs=1e-4)
    segments = exact.each.sum(2)
    whole = fa.patch(model, PAIRS, controls=0).effects[0].each[:, :, 0]
    np.testing.assert_allclose(segments, whole, atol=1e-4)
    layers = fa.patch(model, PAIRS, fa.PatchRequest(by="layer"), controls=0).effects[0].each
    np.testing.assert_allclose(whole.sum(1), layers[:, 0, 0], atol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("without_norms")
def test_direct_effects_of_all_heads_sum_to_the_whole(lm: Any) -> None:
    model = without(lm, "feed_forward/down")
    for direction, sign in (("noise", -1), ("denoise", 1)):
        request = fa.PatchRequest(method="path", direction=direction)
        report = fa.patch(model, PAIRS, request, controls=0)
        gap = sign * (report.clean - report.corrupted)
        np.testing.assert_allclose(report.effects[0].each.sum((0, 1, 2)), gap, atol=1e-4)
        assert np.abs(gap).max() > 0.1


@pytest.mark.slow
def test_attribution_is_not_patching_where_it_is_not(lm: Any) -> None:
    (effects,) = fa.patch(lm, PAIRS, fa.PatchRequest(method="attribution")).effects
    exact = fa.patch(lm, PAIRS, controls=0).effects[0].each
    error = np.abs(effects.each - exact).mean()
    assert effects.approximation is not None
    assert effects.approximation.error == pytest.approx(error, abs=1e-4) and error > 1e-3
    assert effects.approximation.scale == pytest.approx(np.abs(exact).mean(), abs=1e-4)
