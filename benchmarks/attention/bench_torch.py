# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The torch side of the benchmark: a process of its own that runs what it is told to, and times it.

Run by file name in any Python that has torch and numpy; it knows neither jax nor this package.
One line of JSON comes in, one goes out. Arrays lie as .npy files in a folder.

Eager attention is what transformers does for BERT: matmul and scale, mask, softmax, matmul. The
statistics are computed from its weights and scores, in their dtype.
"""

import importlib
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


class Peer:
    """One process's torch: the arrays of the case at hand, and the functions to time.

    Args:
        device: "cuda" or "cpu".
    """

    def __init__(self, device: str):
        # By name: checkers and this package do without torch.
        self.torch: Any = importlib.import_module("torch")
        self.device = device
        self.arrays: dict[str, Any] = {}
        self.case: dict[str, Any] = {}
        self.runs: dict[str, Any] = {}
        self.allowed: Any = None
        self.additive: Any = None

    def describe(self) -> dict[str, Any]:
        """Versions and device."""
        on_gpu = self.device == "cuda"
        return {
            "torch": self.torch.__version__,
            "python": platform.python_version(),
            "cuda": self.torch.version.cuda,
            "device": self.torch.cuda.get_device_name() if on_gpu else "cpu",
        }

    def load(self, folder: str, case: dict[str, Any]) -> dict[str, Any]:
        """Takes the arrays of a case, with heads before positions."""
        self.runs, self.case, self.arrays = {}, case, {}
        for path in Path(folder).glob("*.npy"):
            array = self.torch.from_numpy(np.load(path))
            if path.stem in ("q", "k", "v", "bar"):
                array = array.to(getattr(self.torch, case["dtype"])).transpose(1, 2).contiguous()
            # The gradient of the output takes no memory where it is not used.
            self.arrays[path.stem] = array if path.stem == "bar" else array.to(self.device)
        self.allowed, self.additive = self._masks()
        return {}

    def prepare(self, peer: str, request: dict[str, Any], backward: bool) -> dict[str, Any]:
        """Makes a function to time, runs it twice, and measures the memory it takes."""
        forward = self._eager if peer == "eager" else self._fused
        bar = self.arrays["bar"].to(self.device) if backward else None

        def run():
            if not backward:
                with self.torch.no_grad():
                    return forward(request)
            inputs = [self.arrays[name].detach().requires_grad_() for name in ("q", "k", "v")]
            results = forward(request, *inputs)
            floats = [x for x in results if x.is_floating_point()]
            bars = [bar, *(self.torch.ones_like(x) for x in floats[1:])]
            return results, self.torch.autograd.grad(floats, inputs, bars)

        self.runs[peer] = run
        run()
        self._wait()
        peak, before = None, 0
        if self.device == "cuda":
            self.torch.cuda.empty_cache()
            self.torch.cuda.reset_peak_memory_stats()
            before = self.torch.cuda.memory_allocated()
        results = run()
        self._wait()
        if self.device == "cuda":
            inputs = [x for name, x in self.arrays.items() if name != "bar"]
            inputs += [] if bar is None else [bar]
            # What libraries keep for themselves is not counted.
            peak = sum(x.nbytes for x in inputs) + self.torch.cuda.max_memory_allocated() - before
        output: Any = (results[0] if backward else results)[0]
        return {"peak": peak, "output": output[0, 0].detach().float().cpu().tolist()}

    def measure(self, peer: str, calls: int) -> dict[str, Any]:
        """Times what was prepared."""
        self._wait()
        start = time.perf_counter()
        for _ in range(calls):
            self.runs[peer]()
        self._wait()
        return {"seconds": time.perf_counter() - start}

    def _wait(self) -> None:
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def _masks(self) -> tuple[Any, Any]:
        """True where attention is allowed, and what that adds to the scores; None for no mask."""
        allowed = self.arrays.get("mask")
        if self.case["causal"]:
            rows, keys = (self.arrays[name].shape[2] for name in ("q", "k"))
            pairs = self.torch.ones(1, 1, rows, keys, dtype=self.torch.bool, device=self.device)
            causal = pairs.tril()
            allowed = causal if allowed is None else allowed & causal
        if allowed is None:
            return None, None
        dtype = getattr(self.torch, self.case["dtype"])
        additive = self.torch.zeros(allowed.shape, dtype=dtype, device=self.device)
        return allowed, additive.masked_fill(~allowed, self.torch.finfo(dtype).min)

    def _fused(self, request: Any, q: Any = None, k: Any = None, v: Any = None) -> list[Any]:
        """Torch's fused attention, in the fastest form for the masks of the case."""
        del request
        q, k, v = self._inputs(q, k, v)
        only_causal = self.case["causal"] and "mask" not in self.arrays
        mask = None if only_causal else self.allowed
        attend = self.torch.nn.functional.scaled_dot_product_attention
        return [attend(q, k, v, attn_mask=mask, is_causal=only_causal, scale=self.case["scale"])]

    def _inputs(self, *given: Any) -> list[Any]:
        names = ("q", "k", "v")
        return [
            self.arrays[name] if array is None else array
            for name, array in zip(names, given, strict=True)
        ]

    def _eager(self, request: Any, q: Any = None, k: Any = None, v: Any = None) -> list[Any]:
        """Output first, then what was asked."""
        q, k, v = self._inputs(q, k, v)
        scores = self.torch.matmul(q, k.transpose(2, 3)) * self.case["scale"]
        if self.additive is not None:
            scores = scores + self.additive
        weights = self.torch.softmax(scores, dim=-1)
        results = [self.torch.matmul(weights, v)]
        statistics = {
            "lse": lambda: self.torch.logsumexp(scores, dim=-1),
            "entropy": lambda: self.torch.special.entr(weights).sum(-1),
            "received": lambda: self.torch.einsum("bhqk,bq->bhk", weights, self._counted(weights)),
        }
        results += [make() for name, make in statistics.items() if name in request["stats"]]
        if "max" in request["stats"] or "argmax" in request["stats"]:
            results += list(weights.max(dim=-1))
        for sieve in request["sieves"]:
            results.append((weights * self._inside(sieve)).sum(-1))
        if request["topk"]:
            results += list(weights.topk(request["topk"], dim=-1))
        if request["weights"] == "uint8":
            results.append((weights.detach() * 255).round().to(self.torch.uint8))
        elif request["weights"]:
            results.append(weights.to(getattr(self.torch, request["weights"])))
        return results

    def _counted(self, weights: Any) -> Any:
        return self.arrays["query_mask"].to(weights.dtype)

    def _inside(self, sieve: dict[str, Any]) -> Any:
        """The pairs that a sieve holds."""
        arrays, inside = self.arrays, None
        parts = []
        if sieve["key_class"] is not None:
            parts.append(((arrays["key_class"] >> sieve["key_class"]) & 1 == 1)[:, None, None])
        if sieve["offsets"] is not None:
            low, high = sieve["offsets"]
            rows = self.torch.arange(arrays["q"].shape[2], device=self.device)
            offset = (
                self.torch.arange(arrays["k"].shape[2], device=self.device)[None] - rows[:, None]
            )
            parts.append(((offset >= low) & (offset <= high))[None, None])
        for kind in ("segment", "token"):
            if sieve[f"same_{kind}"] is not None:
                same = arrays[f"query_{kind}"][:, :, None] == arrays[f"key_{kind}"][:, None]
                parts.append((same == sieve[f"same_{kind}"])[:, None])
        for part in parts:
            inside = part if inside is None else inside & part
        return inside


def serve(device: str) -> None:
    """Answers commands on standard input until it ends."""
    peer = Peer(device)
    print(json.dumps(peer.describe()), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(peer, command.pop("do"))(**command)
        except (RuntimeError, ValueError, KeyError) as error:  # out of memory is a RuntimeError
            if device == "cuda":
                peer.torch.cuda.empty_cache()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
