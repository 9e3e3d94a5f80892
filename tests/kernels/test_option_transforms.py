# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Each option of a call under vmap, remat, scan and shard_map, against one query at a time.

Values are those of `brute_force` in float64, gradients its central differences in one direction.
The tolerance of float32 is ten times the largest difference measured; that of the Hopper kernels is
two units of bfloat16, in which they take their matrices.
"""

import functools
from dataclasses import dataclass
from typing import Any

import brute_force
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from interpreted_kernels import attend
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from flaxattn.kernels.call import Call
from flaxattn.kernels.contract import Capture

STACKS, BATCH, QUERIES, KEYS, HEADS, DEPTH = 2, 2, 4, 6, 4, 4
STATISTICS = ("lse", "entropy", "max", "max_score", "sink", "received")
SLOPES = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
TOLERANCE = {"mosaic_gpu": 2**-6}


def alibi(rows, columns):
    """A bias that falls with the distance, steeper for earlier heads."""
    return -jnp.asarray(SLOPES)[:, None, None] * jnp.abs(rows - columns)[None].astype(jnp.float32)


@dataclass(frozen=True)
class Option:
    """An option of a call, or several.

    Attributes:
        name: shown by the test.
        groups: G.
        value_depth: Dv.
        sinks: whether every head has one, with a gradient.
        offset: "" or how the position of the first query is given: "static", "traced", "each".
        fixed: keyword arguments that are not arrays.
    """

    name: str
    groups: int = HEADS
    value_depth: int = DEPTH
    sinks: bool = False
    offset: str = ""
    fixed: tuple[tuple[str, Any], ...] = ()

    def arrays(self) -> dict[str, np.ndarray]:
        """What has a gradient, by name; a stack of calls for all but the sinks."""
        rng, lead = np.random.default_rng(len(self.name)), (STACKS, BATCH)
        shapes = {
            "q": (*lead, QUERIES, HEADS, DEPTH),
            "k": (*lead, KEYS, self.groups, DEPTH),
            "v": (*lead, KEYS, self.groups, self.value_depth),
        }
        shapes |= {"sinks": (HEADS,)} if self.sinks else {}
        # Numbers that bfloat16 holds, so that every implementation takes the same; no scores tie.
        drawn = {name: rng.normal(size=shape).clip(-3.9, 3.9) for name, shape in shapes.items()}
        return {name: np.round(64 * x) / 64 for name, x in drawn.items()}

    def positions(self) -> np.ndarray:
        """Positions of the first query of every example of every call."""
        each = {"": [[0, 0]] * 2, "static": [[2, 2]] * 2, "traced": [[1, 1], [3, 3]]}
        return np.array(each.get(self.offset, [[0, 2], [3, 1]]), np.int32)

    def offsets(self) -> np.ndarray | None:
        """Those that reach the call as an array, None for none."""
        if self.offset == "traced":
            return self.positions()[:, 0]
        return self.positions() if self.offset == "each" else None


CAUSAL = (("causal", True),)
OPTIONS = (
    Option("grouped heads", groups=2),
    Option("window", fixed=(("window", (2, 1)),)),
    Option("soft cap", fixed=(("soft_cap", 1.5),)),
    Option("sinks", sinks=True),
    Option("offset", offset="static", fixed=CAUSAL),
    Option("traced offset", offset="traced", fixed=CAUSAL),
    Option("offset of each example", offset="each", fixed=(("window", (1, 0)),)),
    Option("bias of positions", fixed=(("bias", alibi),)),
    Option("deep values", value_depth=7),
    Option("all", 2, 7, True, "each", (*CAUSAL, ("window", (3, 2)), ("soft_cap", 2.0))),
)
FUSED = tuple(option for option in OPTIONS if option.name != "bias of positions")


def results(implementation, option, arrays, offset):
    """The output and the statistics of one call."""
    sinks = arrays.get("sinks")
    if implementation == "mosaic_gpu":
        arrays = {name: arrays[name].astype(jnp.bfloat16) for name in "qkv"}
    offset = {} if offset is None else {"query_offset": offset}
    offset |= {"query_offset": 2} if option.offset == "static" else {}
    call = Call(*(arrays[name] for name in "qkv"), sinks=sinks, **dict(option.fixed), **offset)
    output, captured = attend(implementation)(call._replace(capture=Capture(stats=STATISTICS)))
    return {"output": output.astype(jnp.float32)} | captured.stats


def in_vmap(one, stacks, sinks, offsets):
    """All calls at once, the sinks shared."""
    axis = None if offsets is None else 0
    return jax.vmap(lambda stack, offset: one(stack | sinks, offset), (0, axis))(stacks, offsets)


def in_scan(one, stacks, sinks, offsets):
    """One call after the other."""
    return jax.lax.scan(lambda _, x: (None, one(x[0] | sinks, x[1])), None, (stacks, offsets))[1]


def in_remat(one, stacks, sinks, offsets):
    """The same, made once more for the gradient."""
    return in_scan(jax.checkpoint(one), stacks, sinks, offsets)


def in_shard_map(one, stacks, sinks, offsets, heads=True, devices=(2, 2)):
    """Each example, and where heads can be cut each half of them, on a device of its own."""
    mesh = jax.make_mesh(devices, ("data", "heads"), axis_types=(AxisType.Auto,) * 2)
    heads = "heads" if heads else None
    of_stack = dict.fromkeys(stacks, P(None, "data", None, heads))
    of_offsets = P(None, "data") if offsets is not None and offsets.ndim == 2 else P()
    of_results = dict.fromkeys(STATISTICS, P(None, "data", heads)) | {"output": of_stack["q"]}
    return jax.shard_map(
        lambda *parts: in_scan(one, *parts),
        mesh=mesh,
        in_specs=(of_stack, dict.fromkeys(sinks, P(heads)), of_offsets),
        out_specs=of_results,
        check_vma=False,
    )(stacks, sinks, offsets)


TRANSFORMS = {"vmap": in_vmap, "scan": in_scan, "remat": in_remat, "shard_map": in_shard_map}


def total(space, found):
    """A sum with a weight of its own for every finite number."""
    finite = [space.where(space.isfinite(x), x, 0) for _, x in sorted(found.items())]
    patterns = [np.cos(np.arange(x.size).reshape(x.shape) * 0.7) for x in finite]
    pairs = zip(finite, patterns, strict=True)
    return sum((x * space.asarray(pattern, x.dtype)).sum() for x, pattern in pairs)


def looped(option, arrays):
    """The same numbers in loops over queries."""
    fixed = dict(option.fixed) | {"shape": (BATCH, HEADS, QUERIES, KEYS)}
    if "bias" in fixed:
        fixed["bias"] = lambda i, j: -SLOPES * abs(i - j)
    fixed["sinks"] = arrays.get("sinks")
    each = [
        brute_force.attention(*(arrays[name][n] for name in "qkv"), offset=offset, **fixed)
        for n, offset in enumerate(option.positions())
    ]
    return {name: np.stack([one[name] for one in each]) for name in ("output", *STATISTICS)}


@functools.cache
def expected(option):
    """Results, a direction, and the derivative of their sum in it."""
    arrays, rng, step = option.arrays(), np.random.default_rng(1), 1e-6
    direction = {name: rng.normal(size=x.shape) for name, x in arrays.items()}
    ends = [
        total(np, looped(option, {name: x + d * direction[name] for name, x in arrays.items()}))
        for d in (step, -step)
    ]
    return looped(option, arrays), direction, (ends[0] - ends[1]) / (2 * step)


def check(implementation, option, transform):
    """Values and gradients of an option under a transform."""
    truth, direction, slope = expected(option)
    arrays, offsets = option.arrays(), option.offsets()
    offsets = None if offsets is None else jnp.asarray(offsets)
    one = functools.partial(results, implementation, option)
    apply = TRANSFORMS[transform]
    if transform == "shard_map":
        apply = functools.partial(
            in_shard_map,
            heads="bias" not in dict(option.fixed),  # it is of all heads
            # jax's interpreter of these kernels keeps one state for all devices and reports races
            # between them. How calls are cut is tested in test_sharded.py.
            devices=(1, 1) if implementation == "mosaic_gpu" else (2, 2),
        )

    def summed(arrays):
        sinks = {name: x for name, x in arrays.items() if name == "sinks"}
        found = apply(one, {name: arrays[name] for name in "qkv"}, sinks, offsets)
        return total(jnp, found), found

    inputs = {name: jnp.asarray(x, jnp.float32) for name, x in arrays.items()}
    gradients, found = jax.jit(jax.grad(summed, has_aux=True))(inputs)
    allowed = TOLERANCE.get(implementation, 2e-5)
    for name, value in truth.items():
        np.testing.assert_allclose(found[name], value, rtol=allowed, atol=allowed, err_msg=name)
    parts = {name: np.asarray(x, np.float64) * direction[name] for name, x in gradients.items()}
    assert all(np.isfinite(part).all() for part in parts.values())
    size = sum(np.abs(part).sum() for part in parts.values())
    error = abs(sum(part.sum() for part in parts.values()) - slope)
    assert error < allowed * size


@pytest.mark.slow
@pytest.mark.few("all-shard_map", "traced offset-vmap")
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("option", [OPTIONS[-1], OPTIONS[5], OPTIONS[7]], ids=lambda one: one.name)
def test_options_together_under_transforms(option, transform):
    check("xla", option, transform)


@pytest.mark.slow
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("option", OPTIONS, ids=lambda one: one.name)
@pytest.mark.parametrize("implementation", ["reference", "xla"])
def test_every_option_under_every_transform(implementation, option, transform):
    check(implementation, option, transform)


# The interpreter of TPU kernels calls back, and jax differentiates no calls under remat.
@pytest.mark.slow
@pytest.mark.parametrize("transform", ["vmap", "scan", "shard_map"])
@pytest.mark.parametrize("option", FUSED, ids=lambda one: one.name)
@pytest.mark.parametrize("implementation", ["tpu", "mosaic_gpu"])
def test_every_option_of_a_kernel_under_every_transform(implementation, option, transform):
    check(implementation, option, transform)


def masked_with_sinks(implementation):
    """Gradients, and results of a call whose rows 1 see no key and whose heads 0 and 2 no sink."""
    dtype = jnp.bfloat16 if implementation == "mosaic_gpu" else jnp.float32
    arrays = OPTIONS[0].arrays() | {"sinks": np.array([-np.inf, 0.5, -np.inf, -1.0])}
    inputs = {name: jnp.asarray(x[0], dtype) for name, x in arrays.items() if name != "sinks"}
    inputs["sinks"] = jnp.asarray(arrays["sinks"], jnp.float32)
    mask = np.ones((BATCH, 1, QUERIES, KEYS), bool)
    mask[:, :, 1] = False

    def summed(inputs):
        capture = Capture(weights=True, stats=(*STATISTICS, "topk(2)", "argmax", "sum_sq"))
        call = Call(**inputs, mask=jnp.asarray(mask), capture=capture)
        output, captured = attend(implementation)(call)
        found = {"output": output.astype(jnp.float32), "weights": captured.weights} | captured.stats
        floats = {name: x for name, x in found.items() if x.dtype == jnp.float32}
        return total(jnp, floats), found

    gradients, found = jax.jit(jax.grad(summed, has_aux=True))(inputs)
    truth = brute_force.attention(
        *(arrays[name][0] for name in "qkv"),
        sinks=arrays["sinks"],
        mask=mask,
        shape=(BATCH, HEADS, QUERIES, KEYS),
    )
    return gradients, found, truth


@pytest.mark.slow
@pytest.mark.few("xla")
@pytest.mark.parametrize("implementation", ["reference", "xla", "tpu", "mosaic_gpu"])
def test_sinks_of_minus_infinity_and_rows_without_keys(implementation):
    gradients, found, truth = masked_with_sinks(implementation)
    allowed = TOLERANCE.get(implementation, 2e-5)
    for name in ("output", "weights", *STATISTICS, "argmax", "sum_sq"):
        np.testing.assert_allclose(
            found[name], truth[name], rtol=allowed, atol=allowed, err_msg=name
        )
    assert not np.asarray(found["output"], np.float32)[:, 1].any()
    assert not np.asarray(found["topk_weights"])[:, :, 1].any()
    assert (np.asarray(found["topk_indices"])[:, :, 1] == -1).all()
    for name, gradient in gradients.items():
        assert np.isfinite(np.asarray(gradient, np.float32)).all(), name
    assert not np.asarray(gradients["sinks"])[[0, 2]].any()
