# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Something that the benchmark can time: a compiled JAX function, or a function of a torch process.

Each also says how much memory it takes and shows a piece of its output. The computations are in
bench_peers.py and bench_torch.py.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from flaxattn.benchmarks.cases import Case
from flaxattn.kernels.contract import Capture


class PeerUnavailableError(Exception):
    """A contender that cannot take part, with the reason."""


class InJax:
    """A compiled JAX function with its arguments.

    Args:
        name: of the contender.
        function: of the arguments.
        arguments: arrays.

    Raises:
        UnavailableError: it cannot be compiled, or does not fit.
    """

    def __init__(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]):
        self.name = name
        self._arguments = arguments
        try:
            self._run = jax.jit(function).lower(*arguments).compile()
            results = jax.block_until_ready(self._run(*arguments))
        except Exception as error:  # whatever fails to compile or to fit: the others go on
            lines = str(error).splitlines() or [""]
            raise PeerUnavailableError(f"{type(error).__name__}: {lines[0][:200]}") from error
        self.output = np.asarray(results[0][0, :, 0].astype(jnp.float32))
        self.returned = _bytes(results)
        self.moved = _bytes(arguments) + self.returned
        memory = self._run.memory_analysis()
        self.peak: int | None = None
        self.temporary: int | None = None
        if memory is not None:
            self.temporary = memory.temp_size_in_bytes
            used = memory.argument_size_in_bytes + memory.output_size_in_bytes
            self.peak = used + self.temporary - memory.alias_size_in_bytes

    def seconds(self, calls: int) -> float:
        """Time of several calls in a row, all dispatched before the first ends."""
        start, results = time.perf_counter(), None
        for _ in range(calls):
            results = self._run(*self._arguments)
        jax.block_until_ready(results)
        return time.perf_counter() - start


def _bytes(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


class Torch:
    """The process with torch.

    Args:
        python: an interpreter with torch and numpy.
        device: "cuda" or "cpu".

    Raises:
        UnavailableError: it did not start.
    """

    def __init__(self, python: str, device: str):
        script = str(Path(__file__).with_name("bench_torch.py"))
        try:
            self._process = subprocess.Popen(
                [python, script, device],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError as error:
            raise PeerUnavailableError(f"{python}: {error.strerror}") from error
        self.facts = self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise PeerUnavailableError(
                f"torch did not start, or ended (exit code {self._process.wait()})"
            )
        answer = json.loads(line)
        if "error" in answer:
            raise PeerUnavailableError(answer["error"])
        return answer

    def ask(self, do: str, **options: Any) -> dict[str, Any]:
        """Has it do something."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do} | options) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise PeerUnavailableError("torch ended") from error
        return self._answer()

    def load(self, case: Case, arguments: dict[str, Any], bar: Array) -> None:
        """Hands it the arrays of a case."""
        arrays = {name: arguments[name] for name in ("q", "k", "v")} | {"bar": bar}
        arrays = {name: array.astype(jnp.float32) for name, array in arrays.items()}
        if "mask" in arguments:
            arrays["mask"] = arguments["mask"][:, None, None]
        arrays |= {name: x for name, x in arguments["labels"]._asdict().items() if x is not None}
        about = {
            "dtype": arguments["q"].dtype.name,
            "scale": case.depth**-0.5,
            "causal": case.causal,
        }
        with tempfile.TemporaryDirectory() as folder:
            for name, array in arrays.items():
                np.save(Path(folder) / f"{name}.npy", np.asarray(array))
            self.ask("load", folder=folder, case=about)

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()


class InTorch:
    """A function of the torch process.

    Args:
        name: of the contender.
        torch: the process, which has the arrays.
        peer: "eager" or "sdpa".
        capture: the request.
        backward: whether gradients are computed too.
    """

    def __init__(self, name: str, torch: Torch, peer: str, capture: Capture, backward: bool):
        self.name, self._torch = name, torch
        self._peer = peer
        request = {
            "stats": capture.names,
            "sieves": [asdict(sieve) for sieve in capture.sieves],
            "topk": capture.topk,
            "weights": capture.dtype if capture.weights else None,
        }
        found = torch.ask("prepare", peer=peer, request=request, backward=backward)
        self.output = np.asarray(found["output"], np.float32)
        self.peak: int | None = found["peak"]
        self.temporary: int | None = None
        self.returned: int | None = None

    def seconds(self, calls: int) -> float:
        """Time of several calls in a row."""
        return self._torch.ask("measure", peer=self._peer, calls=calls)["seconds"]
