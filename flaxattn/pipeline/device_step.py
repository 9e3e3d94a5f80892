# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The compiled step: a program runs a model on a batch, on one device or several.

Where memory does not suffice, batches are halved, four times at most. Which texts make a batch and
when the next one starts is decided in `run`.
"""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, PyTree

from flaxattn.errors import InputError, UnavailableError
from flaxattn.kernels.contract import Capture
from flaxattn.models.unstacked_layers import unstacked
from flaxattn.trace.nonfinite import NonFinite, count_nonfinite, with_lse, without_added_lse
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace

Sides = dict[str, AttentionRecord]
Recorded = tuple[Sides, dict[str, NonFinite]]
"""Records by side, and where they hold NaN or infinity."""
Arguments = Mapping[str, Any]
"""Arrays `[B, …]` by name, or trees of them, such as labels of positions by side."""
_log = logging.getLogger(__name__)
_DATA = "data"
_HALVINGS = 4


class Program(Protocol):
    """What is computed of a batch; hashable, static under jit."""

    def __call__(
        self, module: nn.Module, params: Any, given: Arguments, notes: Arguments
    ) -> PyTree[Array]:
        """Run a module on its arguments and return a tree of arrays `[N, B, …]`.

        Args:
            module: The architecture, with its capture request.
            params: Parameters of one model.
            given: Arguments of the module.
            notes: Further arguments, for the program alone.
        """
        ...

    def label(self, number: int) -> str:
        """Name the numbers at an index of axis N, for errors."""
        ...


class Reduction(Protocol):
    """Function that replaces records on the device; hashable."""

    def __call__(self, sides: Mapping[str, AttentionRecord], notes: Arguments) -> Sides:
        """Reduce attention records `[L, B, …]` to others, with what else was given."""
        ...


@dataclasses.dataclass(frozen=True)
class AttentionProgram:
    """Attention records of a batch; outputs that nobody needs are not computed.

    Attributes:
        reduction: Makes other records of them before they leave the device; None keeps them.
    """

    reduction: Reduction | None = None

    def __call__(
        self, module: nn.Module, params: Any, given: Arguments, notes: Arguments
    ) -> Recorded:
        """Return the records that the module's capture names, and count what is not finite."""
        capture: Capture = vars(module)["capture"]
        watched = module.clone(capture=with_lse(capture))
        state = watched.apply({"params": params}, **given, mutable=["intermediates"])[1]
        whole = Trace.from_variables(state).sides
        sides = {side: without_added_lse(record, capture) for side, record in whole.items()}
        sides = sides if self.reduction is None else self.reduction(sides, notes)
        return sides, {side: count_nonfinite(whole[side], side, given) for side in sides}

    def label(self, number: int) -> str:
        """Name the records."""
        del number
        return "attention records"


@functools.partial(jax.jit, static_argnames=("module", "program", "several"))
def run_program(
    module: nn.Module,
    program: Program,
    params: Any,
    given: Arguments,
    notes: Arguments,
    several: bool = False,
) -> PyTree[Array]:
    """Run a program; with `several`, for parameters that are stacked along a first axis."""
    # Runs while the program is traced, so once for each shape.
    _log.debug(
        "compiling a step of %s for %s", type(module).__name__, jax.tree.map(jnp.shape, given)
    )
    one = functools.partial(program, module, given=given, notes=notes)
    outputs = jax.vmap(one)(params) if several else one(params)
    if jax.sharding.get_abstract_mesh().empty:
        return outputs
    rows = P(*[None] * (1 + several), _DATA)
    return jax.lax.with_sharding_constraint(outputs, rows)


class DeviceOutput(NamedTuple):
    """Outputs of consecutive rows of a batch, on the host.

    Attributes:
        first: The first of these rows.
        rows: How many.
        models: What the program returned for each model, NumPy arrays `[N, rows, …]`.
    """

    first: int
    rows: int
    models: list[Any]


class StartedBatch(NamedTuple):
    """A batch that the device may be working on.

    Attributes:
        given: Its arguments.
        outputs: What will be computed; None where memory did not suffice.
    """

    given: Arguments
    outputs: Any | None


class DeviceStep:
    """Runs a program for models of one architecture.

    Args:
        module: The architecture, with its capture request.
        params: Parameters of each model.
        program: What is computed.
        mesh: With an axis "data", along which batches are cut; None for the default device.
        notes: Names of arguments that are for the program, not for the module.

    Raises:
        InputError: For a mesh without such an axis.
    """

    def __init__(
        self,
        module: nn.Module,
        params: Sequence[Any],
        program: Program,
        mesh: Mesh | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        if mesh is not None and _DATA not in mesh.shape:
            raise InputError(
                f'the mesh has no axis "{_DATA}", along which batches are cut\n'
                f"received axes {list(mesh.axis_names)}\n"
                'make it with jax.make_mesh((devices,), ("data",))'
            )
        self._module, self._program = module, program
        self._several = len(params) > 1
        self._mesh = mesh
        self._notes = frozenset(notes)
        # Up to a tenth of the time on CPU: no layer is copied out of its stack for every batch, and
        # the last one ends with its attention (BENCHMARKS.md). Accelerators copy a layer in
        # microseconds, and compile one kernel where they would have to compile L; so do programs
        # that reduce, which are compiled for longer than a thousand texts take.
        unstacks = _on_cpu() and program == AttentionProgram()
        each = [unstacked(p) if unstacks else p for p in params]
        whole = jax.tree.map(lambda *p: jnp.stack(p), *each) if self._several else each[0]
        self._params = jax.device_put(whole, self._sharding(P()))
        self.parts = 1 if mesh is None else mesh.shape[_DATA]
        self.halvings = 0

    def begin(self, given: Arguments) -> StartedBatch:
        """Give the device a batch."""
        if self.halvings:  # memory is scarce: one part after the other, when they are fetched
            return StartedBatch(given, None)
        try:
            return StartedBatch(given, self._run(given))
        except Exception as error:
            self._halve(error, given)
            return StartedBatch(given, None)

    def end(self, started: StartedBatch) -> Iterator[DeviceOutput]:
        """Yield the outputs of a batch, in parts."""
        given, outputs = started
        rows = _rows(given)
        first = 0
        while first < rows:
            size = rows if outputs is not None else self._size(rows)
            try:
                if outputs is None:
                    places = np.minimum(np.arange(first, first + size), rows - 1)
                    outputs = self._run(_taken(given, places))
                parts = self._fetched(outputs, first)
            except Exception as error:
                outputs, started = None, StartedBatch(given, None)  # free it on the device
                self._halve(error, given)
                continue
            outputs, started = None, StartedBatch(given, None)
            yield from parts
            first += size

    def _run(self, given: Arguments) -> Any:
        placed = {n: jax.device_put(a, self._sharding(P(_DATA))) for n, a in given.items()}
        with contextlib.nullcontext() if self._mesh is None else jax.set_mesh(self._mesh):
            outputs = self._outputs(self._params, placed)
        if not _on_cpu():
            for leaf in jax.tree.leaves(outputs):
                leaf.copy_to_host_async()
        return outputs

    def _outputs(self, params: Any, placed: Arguments) -> Any:
        given = {n: a for n, a in placed.items() if n not in self._notes}
        notes = {n: a for n, a in placed.items() if n in self._notes}
        return run_program(self._module, self._program, params, given, notes, self._several)

    def _fetched(self, outputs: Any, first: int) -> list[DeviceOutput]:
        """Parts as the devices hold them: on a CPU nothing is copied."""
        axis = 1 + self._several
        found: dict[int, list[np.ndarray]] = {}
        leaves, tree = jax.tree.flatten(outputs)
        for leaf in leaves:
            starts = {s.index[axis].start or 0: s.data for s in leaf.addressable_shards}
            for start, data in starts.items():
                found.setdefault(start, []).append(np.asarray(data))
        parts = []
        for start in sorted(found):
            arrays = found[start]
            each = range(len(arrays[0])) if self._several else [...]
            models = [jax.tree.unflatten(tree, [a[i] for a in arrays]) for i in each]
            parts.append(DeviceOutput(first + start, arrays[0].shape[axis], models))
        return parts

    def _sharding(self, spec: P) -> Any:
        return None if self._mesh is None else NamedSharding(self._mesh, spec)

    def _size(self, rows: int) -> int:
        """Rows that are computed at once, a multiple of `parts`."""
        shares = -(-rows // self.parts)
        return max(-(-shares >> self.halvings), 1) * self.parts

    def _halve(self, error: Exception, given: Arguments) -> None:
        """Halve from here on, or raise where that is of no use."""
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise error
        rows = _rows(given)
        size = self._size(rows)
        if self.halvings < _HALVINGS and size > self.parts:
            self.halvings += 1
            return
        sides = (given[name] for name in given if name.endswith("input_ids"))
        widths = sorted({array.shape[1] for array in sides}, reverse=True)
        shape = " x ".join(str(n) for n in (size, *widths))
        less = "fewer layers or heads, statistics instead of weights, dtype=uint8"
        advice = f"ask for less: {less}\nor " if self._program == AttentionProgram() else ""
        raise UnavailableError(
            f"out of memory with a batch of {shape}, after halving it {self.halvings} times; what "
            f"is kept of it takes {self._bytes(given, size):,} bytes\n"
            f"{advice}give shorter texts, or a lower batch_tokens from the start"
        ) from error

    def _bytes(self, given: Arguments, rows: int) -> int:
        shapes = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((rows, *a.shape[1:]), a.dtype), dict(given)
        )
        outputs = jax.eval_shape(self._outputs, self._params, shapes)
        kept = outputs[0] if isinstance(self._program, AttentionProgram) else outputs
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(kept))


def _rows(given: Arguments) -> int:
    return len(jax.tree.leaves(dict(given))[0])


def _taken(given: Arguments, places: np.ndarray) -> Arguments:
    """Some rows of a batch."""
    return jax.tree.map(lambda array: array[places], dict(given))


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"
