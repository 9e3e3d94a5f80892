# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Grouped heads, windows, soft caps, sinks and offsets against one query at a time in float64.

Values are compared in float64 with `brute_force`, gradients with central differences of it. The
tolerances are those of float64; interpreted kernels, which know float32 only, are compared with the
reference in test_conformance.py.
"""

import functools
from dataclasses import dataclass, replace
from typing import Any

import brute_force
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.kernels import attention as door
from flaxattn.kernels.contract import Capture, Labels

ROWS = ("lse", "entropy", "max", "argmax", "max_score", "sink", "distance", "sum_sq", "received")
SLOPES = np.array([0.5, 0.25, 0.125, 0.0625])


def alibi(rows, columns):
    """A bias that falls with the distance, steeper for earlier heads."""
    return -jnp.asarray(SLOPES)[:, None, None] * jnp.abs(rows - columns)[None].astype(float)


@dataclass(frozen=True)
class Situation:
    """Sizes and options of a call.

    Attributes:
        name: shown by the test.
        queries: Q.
        keys: K.
        groups: G; H is 4.
        value_depth: Dv; D is 8.
        options: of the call.
        padding: masks the last keys of the second example.
        masked: a mask of all four dimensions that leaves some rows without keys.
        segments: packs two sequences.
    """

    name: str
    queries: int = 9
    keys: int = 9
    groups: int = 4
    value_depth: int = 8
    options: Any = ()
    padding: bool = False
    masked: bool = False
    segments: bool = False

    def arrays(self):
        """q, k and v in float64."""
        rng = np.random.default_rng(len(self.name))
        shapes = ((self.queries, 4, 8), (self.keys, self.groups, 8))
        shapes += ((self.keys, self.groups, self.value_depth),)
        return [rng.normal(size=(2, *shape)) for shape in shapes]

    def calls(self):
        """Options for the package and for the oracle."""
        rng, given = np.random.default_rng(3), dict(self.options)
        options = {"shape": (2, 4, self.queries, self.keys)} | given
        options["offset"] = options.pop("query_offset", 0)
        if self.padding:
            given["mask"] = options["mask"] = np.arange(self.keys)[None] < [[self.keys], [5]]
        if self.masked:
            mask = rng.random(options["shape"]) < 0.6
            mask[:, :, 3] = False
            given["mask"] = options["mask"] = mask
        if self.segments:
            ids = tuple(np.stack([np.arange(n) // 4] * 2) for n in (self.queries, self.keys))
            given["segment_ids"], options["segments"] = ids, ids
        if options.get("window") == 9:
            options["window"] = (9, 9)
        if options.get("bias") is alibi:
            options["bias"] = lambda i, j: -SLOPES * abs(i - j)
        if "query_offset" in given and not isinstance(given["query_offset"], int):
            given["query_offset"] = jnp.asarray(given["query_offset"], jnp.int32)
        return given, options


SINKS = np.array([0.5, -1.0, 2.0, 0.0])
SITUATIONS = (
    Situation("two groups", groups=2),
    Situation("one key head, causal", groups=1, options=(("causal", True),)),
    Situation("window", options=(("window", (2, 1)),)),
    Situation("window to the left", options=(("window", (3, None)),), padding=True),
    Situation("causal window, groups", 70, 70, 2, options=(("causal", True), ("window", (5, 7)))),
    Situation("window, long", 130, 140, 2, options=(("window", (4, 3)),), segments=True),
    Situation("soft cap", options=(("soft_cap", 1.5),), masked=True),
    Situation("sinks", options=(("sinks", SINKS),), masked=True),
    Situation("sinks, cap, groups", groups=2, options=(("sinks", SINKS), ("soft_cap", 2.0))),
    Situation("decode", 1, 9, 2, options=(("query_offset", 6), ("causal", True))),
    Situation("chunk", 4, 12, 2, options=(("query_offset", (5, 2)), ("causal", True))),
    Situation("late chunk", 70, 150, 2, options=(("query_offset", 75), ("window", (9, 0)))),
    Situation("one offset, late", 70, 150, options=(("query_offset", np.int32(75)), ("window", 9))),
    Situation("ALiBi", options=(("bias", alibi),), padding=True),
    Situation("ALiBi, each offset", 3, 9, options=(("bias", alibi), ("query_offset", (1, 4)))),
    Situation("deep values", value_depth=13, groups=2),
    Situation("shallow values", value_depth=3, options=(("causal", True),)),
    Situation("before all keys", 6, 9, options=(("query_offset", -3), ("causal", True))),
)
SHORT = [one for one in SITUATIONS if one.queries * one.keys < 400]


def run(situation, implementation, capture):
    """The package's answer in float64."""
    given, _ = situation.calls()
    options = {"capture": capture, "implementation": implementation}
    return jax.jit(functools.partial(door.attention, **given, **options))(*situation.arrays())


@pytest.mark.few("one key head, causal-xla", "cap, groups-xla")
@pytest.mark.parametrize("implementation", ["reference", "xla"])
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name)
def test_every_number_is_that_of_the_loops(situation, implementation):
    with jax.enable_x64(True):
        output, captured = run(situation, implementation, Capture(True, True, stats=ROWS))
        _, bare = run(situation, implementation, Capture(stats=ROWS))
        _, some = run(situation, implementation, Capture(stats=ROWS, heads=(3, 1)))
    _, options = situation.calls()
    truth = brute_force.attention(*situation.arrays(), **options)
    np.testing.assert_allclose(output, truth["output"], atol=1e-12)
    # Weights and scores are float32 by contract.
    np.testing.assert_allclose(captured.weights, truth["weights"], atol=1e-7)
    np.testing.assert_allclose(captured.scores, truth["scores"], atol=1e-6)
    for name in ROWS:
        np.testing.assert_allclose(captured.stats[name], truth[name], atol=1e-11, err_msg=name)
        np.testing.assert_allclose(bare.stats[name], truth[name], atol=1e-11, err_msg=name)
        np.testing.assert_allclose(
            some.stats[name], truth[name][:, [3, 1]], atol=1e-11, err_msg=name
        )


@pytest.mark.few("each offset", "cap")
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name)
def test_pairs_are_entries_of_the_weights(situation):
    rng = np.random.default_rng(0)
    pairs = np.stack([rng.integers(-1, n, (2, 20)) for n in (situation.queries, situation.keys)], 2)
    given, fixed = situation.calls()
    with jax.enable_x64(True):
        labels = Labels(pairs=jnp.asarray(pairs, jnp.int32))
        options = {"capture": Capture(stats=("pairs",), heads=(2, 0)), "labels": labels}
        attend = jax.jit(functools.partial(door.attention, **given, **options))
        _, captured = attend(*situation.arrays())
    weights = brute_force.attention(*situation.arrays(), **fixed)["weights"]
    for b, p in np.ndindex(2, 20):
        i, j = pairs[b, p]
        truth = weights[b, :, i, j] if min(i, j) >= 0 else np.zeros(4)
        np.testing.assert_allclose(captured.stats["pairs"][b, :, p], truth[[2, 0]], atol=1e-11)


@pytest.mark.few("causal window", "each offset")
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.name)
def test_captured_windows_are_parts_of_the_weights(situation):
    window = (situation.queries // 3, situation.queries), (1, situation.keys // 2 + 1)
    capture = Capture(weights=True, query_window=window[0], key_window=window[1])
    with jax.enable_x64(True):
        _, captured = run(situation, "xla", capture)
        _, whole = run(situation, "reference", Capture(weights=True))
    np.testing.assert_allclose(
        captured.weights, whole.weights[:, :, slice(*window[0]), slice(*window[1])], atol=1e-7
    )


def total(found):
    """A sum with a weight of its own for every finite number."""
    names = ("output", *(name for name in ROWS if name != "argmax"))
    result = 0.0
    for name in names:
        x = found[name]
        pattern = np.cos(np.arange(x.size).reshape(x.shape) * 0.7)
        result += (np.where(np.isfinite(x), x, 0) * pattern).sum()
    return result


@pytest.mark.few("causal-xla", "cap-xla", "ALiBi-xla")
@pytest.mark.parametrize("implementation", ["reference", "xla"])
@pytest.mark.parametrize("situation", SHORT, ids=lambda one: one.name)
def test_gradients_are_the_differences_of_the_loops(situation, implementation):
    given, options = situation.calls()
    arrays = situation.arrays()
    if "sinks" in given:
        arrays.append(given.pop("sinks"))

    def traced(*arrays):
        more = {"sinks": arrays[3]} if len(arrays) > 3 else {}
        output, captured = door.attention(
            *arrays[:3], **given, **more, capture=Capture(stats=ROWS), implementation=implementation
        )
        result = 0.0
        for name, x in (("output", output), *captured.stats.items()):
            if name != "argmax":
                pattern = jnp.cos(jnp.arange(x.size, dtype=x.dtype).reshape(x.shape) * 0.7)
                result += (jnp.where(jnp.isfinite(x), x, 0) * pattern).sum()
        return result

    with jax.enable_x64(True):
        of_arrays = tuple(range(len(arrays)))
        grads = jax.jit(jax.grad(traced, of_arrays))(*arrays)
        grads = [np.asarray(grad) for grad in grads]
    rng = np.random.default_rng(1)
    for number, (array, grad) in enumerate(zip(arrays, grads, strict=True)):
        direction, step = rng.normal(size=array.shape), 1e-6
        ends = []
        for sign in (1, -1):
            moved = list(arrays)
            moved[number] = array + sign * step * direction
            more = {"sinks": moved[3]} if len(moved) > 3 else {}
            ends.append(total(brute_force.attention(*moved[:3], **options | more)))
        truth = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose((grad * direction).sum(), truth, rtol=1e-6, atol=1e-7)


def test_rows_of_a_block_see_only_the_keys_of_their_window():
    """A window takes a small part of the operations that all keys before the query take."""
    length = 4096
    arrays = [jax.ShapeDtypeStruct((1, length, 2, 16), jnp.float32)] * 3

    def attend(q, k, v):
        return door.attention(q, k, v, window=(63, 0), implementation="xla")[0]

    whole = jax.jit(lambda *a: door.attention(*a, causal=True, implementation="xla")[0])
    flops = [jax.jit(f).lower(*arrays).compile().cost_analysis()["flops"] for f in (attend, whole)]
    assert flops[0] < 0.2 * flops[1], flops


def test_what_no_kernel_of_a_device_can_do_is_refused_by_name():
    situation = replace(SITUATIONS[2], options=(("bias", alibi),))
    with (
        jax.enable_x64(True),
        pytest.raises(NotImplementedError, match="cannot run this call"),
    ):
        run(situation, "tpu", Capture())
