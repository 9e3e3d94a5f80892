# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Named calls that every device's compiler must accept: one for each path through a kernel.

Shapes only, no numbers: what is right is tested on the cases in cases.py, what is fast in
bench.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from flaxattn.benchmarks import cases
from flaxattn.benchmarks.cases import Case
from flaxattn.kernels.call import Call
from flaxattn.kernels.checks import checked
from flaxattn.kernels.contract import NOTHING, Capture, Dropout

ROWS = ("lse", "entropy", "max", "argmax")
SIEVES = cases.SIEVES[:5]  # masses; registers and shared memory are bounded for these
STATISTICS = (*ROWS, "topk(8)", "distance", "sum_sq", "received", *SIEVES)
GIVEN = ("q", "k", "v", "bias", "sinks")
"""Arguments of a call that have a gradient."""

FIXED = ("causal", "window", "soft_cap", "query_offset")
"""Arguments of a call that a program is compiled for."""


@dataclass(frozen=True)
class Variant:
    """One call to compile.

    Attributes:
        name: unique.
        case: sizes, masks and bias.
        capture: what is asked.
        dtype: of q, k, v and bias.
        gradient: whether to compile the gradients as well.
    """

    name: str
    case: Case
    capture: Capture = NOTHING
    dtype: str = "bfloat16"
    gradient: bool = True

    def arguments(self) -> dict[str, Any]:
        """Shapes and dtypes of the arrays of the call; a PRNG key stands for dropout."""
        fixed = (*FIXED, "dropout")

        def draw() -> dict[str, Any]:
            arguments = self.case.arguments(self.dtype)
            key = {"dropout": arguments["dropout"].key} if "dropout" in arguments else {}
            return {name: x for name, x in arguments.items() if name not in fixed} | key

        return jax.eval_shape(draw)

    def function(self, attend: Callable[[Call], Any]) -> Callable[..., Any]:
        """The call on an implementation, to be given to `jax.jit`."""

        def run(arrays: dict[str, Any], others: dict[str, Any]):
            options: dict[str, Any] = {"capture": self.capture} | self.case.options() | others
            if "dropout" in others:
                options["dropout"] = Dropout(self.case.dropout, others["dropout"])
            return attend(checked(Call(**arrays, **options)))

        def loss(arrays: dict[str, Any], others: dict[str, Any]):
            results = run(arrays, others)
            leaves = jax.tree.leaves(results)
            floats = [x for x in leaves if jnp.issubdtype(x.dtype, jnp.floating)]
            return sum(x.astype(jnp.float32).sum() for x in floats), results

        call = jax.grad(loss, has_aux=True) if self.gradient else run

        def apply(arguments: dict[str, Any]):
            arrays = {name: arguments[name] for name in GIVEN if name in arguments}
            return call(arrays, {name: x for name, x in arguments.items() if name not in arrays})

        return apply


BASE = Case("512", 512, batch=2, heads=4, depth=64)
LONG = Case("16384", 16_384, batch=1, heads=2, depth=64)


def _of_base() -> tuple[Variant, ...]:
    """One variant for every feature, at the sizes of BERT-base."""
    requests = {
        "plain": NOTHING,
        "rows": Capture(stats=ROWS),
        "distance": Capture(stats=("distance", "sum_sq")),
        "topk": Capture(stats=("topk(8)",)),
        "sieves": Capture(stats=SIEVES),
        "received": Capture(stats=("received",)),
        "weights float32": Capture(weights=True),
        "weights bfloat16": Capture(weights=True, dtype="bfloat16"),
        "weights float16": Capture(weights=True, dtype="float16"),
        "weights uint8": Capture(weights=True, dtype="uint8"),
        "scores": Capture(scores=True),
        "statistics": Capture(stats=STATISTICS),
    }
    by_name = {
        "padding": replace(BASE, padding=True),
        "causal": replace(BASE, causal=True),
        "segments": replace(BASE, segments=3),
        "bias of keys": replace(BASE, bias="BK"),
        "bias of positions": replace(BASE, bias="HQK"),
        "mask of pairs": replace(BASE, masked_rows=True),
        "dropout": replace(BASE, dropout=0.1),
        "tails": replace(BASE, queries=131, keys=77, padding=True),
        "shared key heads": replace(BASE, groups=1, causal=True),
        "window": replace(BASE, window=(100, 30), padding=True),
        "soft cap": replace(BASE, soft_cap=50.0, causal=True),
        "sinks": replace(BASE, sinks=True, window=(127, 0)),
        "one query": replace(BASE, queries=1, keys=512, groups=2, causal=True, offset=300),
        "deep values": replace(BASE, depth=32, value_depth=64),
    }
    today = replace(BASE, groups=2, window=(127, 0), soft_cap=50.0, sinks=True, offset=64)
    near = replace(today, soft_cap=None, padding=True)
    requests |= {"largest scores": Capture(stats=("max_score", "sink", "entropy"))}
    captures = tuple(Variant(name, BASE, capture) for name, capture in requests.items())
    odd = tuple(
        Variant(f"{name}, odd keys", by_name["tails"], requests[name])
        for name in ("weights float32", "weights bfloat16", "weights uint8", "scores")
    )
    every = Capture(stats=(*STATISTICS, "max_score", "sink"))
    some = Capture(stats=("entropy", "max_score", "sink", "argmax", *SIEVES[:4]))
    asked = (
        Variant("statistics of today", today, every),
        Variant("some statistics of today", today, some),
        Variant("statistics, near", near, every),
    )
    return (*captures, *odd, *asked, *(Variant(name, case) for name, case in by_name.items()))


def _all_at_once(case: Case) -> Case:
    return replace(case, padding=True, causal=True, segments=2, bias="HQK", dropout=0.1)


def _of_sizes() -> tuple[Variant, ...]:
    """The other depths, the long shape, and the other dtype of half precision."""
    everything = Capture(weights=True, scores=True, stats=STATISTICS, dtype="bfloat16")
    some = Capture(stats=(*ROWS, *SIEVES))
    found = []
    for depth in (32, 64, 128):
        case = replace(BASE, depth=depth)
        found.append(Variant(f"everything, depth {depth}", _all_at_once(case), everything))
        if depth != BASE.depth:
            found += [
                Variant(f"plain, depth {depth}", case),
                Variant(f"rows and sieves, depth {depth}", case, some),
            ]
        long = replace(LONG, depth=depth)
        found.append(Variant(f"plain 16384, depth {depth}", long))
        found.append(Variant(f"rows and sieves 16384, depth {depth}", long, some))
    found += [
        Variant("statistics 16384", LONG, Capture(stats=STATISTICS)),
        Variant("dropout, causal 16384", replace(LONG, causal=True, padding=True, dropout=0.1)),
        Variant("plain float16", BASE, dtype="float16"),
        Variant("everything float16", _all_at_once(BASE), everything, dtype="float16"),
    ]
    return tuple(found)


def _float32() -> tuple[Variant, ...]:
    """Variants that only the TPU kernels take."""
    chosen = ("plain", "statistics", "weights float32", "everything, depth 128")
    return tuple(
        replace(each, name=f"{each.name} float32", dtype="float32")
        for each in HALF
        if each.name in (*chosen, "plain 16384, depth 64")
    )


HALF = _of_base() + _of_sizes()
"""For every device."""

FLOAT32 = _float32()
"""For TPU as well."""


def _counted() -> tuple[Variant, ...]:
    """Forward calls that differ from the plain one in one request or option."""
    requests: dict[str, Capture] = {
        "plain": NOTHING,
        "lse": Capture(stats=("lse",)),
        "entropy": Capture(stats=("entropy",)),
        "max, argmax": Capture(stats=("max", "argmax")),
        "one sieve": Capture(stats=SIEVES[:1]),
        "five sieves": Capture(stats=SIEVES),
        "distance, sum_sq": Capture(stats=("distance", "sum_sq")),
        "topk(8)": Capture(stats=("topk(8)",)),
        "rows and four sieves": Capture(stats=(*ROWS, *SIEVES[:4])),
        "weights uint8": Capture(weights=True, dtype="uint8"),
    }
    options = {
        "window": replace(BASE, window=(100, 30)),
        "soft cap": replace(BASE, soft_cap=50.0),
        "sinks": replace(BASE, sinks=True),
    }
    calls = [(name, BASE, capture) for name, capture in requests.items()]
    calls += [(name, case, NOTHING) for name, case in options.items()]
    return tuple(
        Variant(f"forward, {name}", case, capture, gradient=False) for name, case, capture in calls
    )


COUNTED = _counted()
"""Calls whose instructions are counted in the machine code for a Hopper GPU."""


def variant(name: str) -> Variant:
    """The variant of that name."""
    return {each.name: each for each in HALF + FLOAT32 + COUNTED}[name]
