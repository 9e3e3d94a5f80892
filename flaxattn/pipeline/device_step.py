# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The compiled part of extraction: a batch in, its attention records out, on one device or more.

The device is given a batch before the one before is fetched, so it is never idle. Where memory does
not suffice, batches are halved, four times at most. Which texts make a batch is decided elsewhere.
"""

import contextlib
import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from flaxattn.errors import InputError, UnavailableError
from flaxattn.kernels.contract import Capture
from flaxattn.models.unstacked_layers import unstacked
from flaxattn.trace.nonfinite import NonFinite, as_asked, count_nonfinite, with_lse
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


class Reduction(Protocol):
    """Function that replaces records on the device; hashable."""

    def __call__(
        self, sides: Mapping[str, AttentionRecord], notes: Mapping[str, jax.Array]
    ) -> Sides:
        """Reduce attention records `[L, B, …]` to others, with what else was given."""
        ...


@functools.partial(jax.jit, static_argnames=("module", "several", "reduction"))
def see(
    module: nn.Module,
    params: Any,
    given: Any,
    several: bool,
    reduction: Reduction | None = None,
    notes: Mapping[str, jax.Array] | None = None,
) -> Recorded:
    """Run a module for its attention records; outputs that nobody needs are not computed."""
    capture: Capture = vars(module)["capture"]
    # Runs while the program is traced, so once for each shape.
    _log.debug(
        "compiling a step of %s for %s", type(module).__name__, jax.tree.map(jnp.shape, given)
    )
    watched = module.clone(capture=with_lse(capture))

    def one(params: Any) -> Recorded:
        state = watched.apply({"params": params}, **given, mutable=["intermediates"])[1]
        whole = Trace.from_variables(state).sides
        sides = {side: as_asked(record, capture) for side, record in whole.items()}
        sides = sides if reduction is None else reduction(sides, notes or {})
        return sides, {side: count_nonfinite(whole[side], side, given) for side in sides}

    records = jax.vmap(one)(params) if several else one(params)
    if jax.sharding.get_abstract_mesh().empty:
        return records
    rows = P(*[None] * (1 + several), _DATA)
    return jax.lax.with_sharding_constraint(records, rows)


class DeviceOutput(NamedTuple):
    """Attention records of consecutive rows of a batch, on the host.

    Attributes:
        first: The first of these rows.
        rows: How many.
        models: Records by side, NumPy arrays `[L, rows, …]`, of each model.
        nonfinite: Where they hold NaN or infinity, by side, of each model.
    """

    first: int
    rows: int
    models: list[Sides]
    nonfinite: list[dict[str, NonFinite]]


class Begun(NamedTuple):
    """A batch that the device may be working on.

    Attributes:
        given: Its arguments.
        seen: What it will be; None where memory did not suffice.
    """

    given: Arguments
    seen: Recorded | None


class DeviceStep:
    """Runs modules of one kind on batches.

    Args:
        module: The architecture.
        params: Parameters of each model; on a CPU their layers are copied where nothing is reduced.
        capture: What to keep.
        mesh: With an axis "data", along which batches are cut; None for the default device.
        reduction: Makes other records of what was seen, before it leaves the device.
        notes: Names of arguments that are for it, not for the model.

    Raises:
        InputError: For a mesh without such an axis.
    """

    def __init__(
        self,
        module: nn.Module,
        params: Sequence[Any],
        capture: Capture,
        mesh: Mesh | None,
        reduction: Reduction | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        if mesh is not None and _DATA not in mesh.shape:
            raise InputError(
                f'the mesh has no axis "{_DATA}", along which batches are cut\n'
                f"received axes {list(mesh.axis_names)}\n"
                'make it with jax.make_mesh((devices,), ("data",))'
            )
        self._module = module.clone(capture=capture, keep_hidden=False)
        self._several = len(params) > 1
        self._mesh = mesh
        self._reduction, self._notes = reduction, frozenset(notes)
        # Up to a tenth of the time on CPU: no layer is copied out of its stack for every batch, and
        # the last one ends with its attention (BENCHMARKS.md). Accelerators copy a layer in
        # microseconds, and compile one kernel where they would have to compile L; so do programs
        # with a reduction, which are compiled for longer than a thousand texts take.
        each = [unstacked(p) if _on_cpu() and reduction is None else p for p in params]
        whole = jax.tree.map(lambda *p: jnp.stack(p), *each) if self._several else each[0]
        self._params = jax.device_put(whole, self._sharding(P()))
        self.parts = 1 if mesh is None else mesh.shape[_DATA]
        self.halvings = 0

    def begin(self, given: Arguments) -> Begun:
        """Give the device a batch."""
        if self.halvings:  # memory is scarce: one part after the other, when they are fetched
            return Begun(given, None)
        try:
            return Begun(given, self._run(given))
        except Exception as error:
            self._halve(error, given)
            return Begun(given, None)

    def end(self, begun: Begun) -> Iterator[DeviceOutput]:
        """Yield the attention records of a batch, in parts."""
        given, records = begun
        rows = _rows(given)
        first = 0
        while first < rows:
            size = rows if records is not None else self._size(rows)
            try:
                if records is None:
                    places = np.minimum(np.arange(first, first + size), rows - 1)
                    records = self._run(_taken(given, places))
                parts = self._fetched(records, first)
            except Exception as error:
                records, begun = None, Begun(given, None)  # nothing of it stays on the device
                self._halve(error, given)
                continue
            records, begun = None, Begun(given, None)
            yield from parts
            first += size

    def _run(self, given: Arguments) -> Recorded:
        placed = {n: jax.device_put(a, self._sharding(P(_DATA))) for n, a in given.items()}
        with contextlib.nullcontext() if self._mesh is None else jax.set_mesh(self._mesh):
            records = self._see(self._params, placed)
        if not _on_cpu():
            for leaf in jax.tree.leaves(records):
                leaf.copy_to_host_async()
        return records

    def _see(self, params: Any, placed: Mapping[str, Any]) -> Recorded:
        given = {n: a for n, a in placed.items() if n not in self._notes}
        notes = {n: a for n, a in placed.items() if n in self._notes}
        return see(self._module, params, given, self._several, self._reduction, notes)

    def _fetched(self, records: Recorded, first: int) -> list[DeviceOutput]:
        """Parts as the devices hold them: on a CPU nothing is copied."""
        axis = 1 + self._several
        found: dict[int, list[np.ndarray]] = {}
        leaves, tree = jax.tree.flatten(records)
        for leaf in leaves:
            starts = {s.index[axis].start or 0: s.data for s in leaf.addressable_shards}
            for start, data in starts.items():
                found.setdefault(start, []).append(np.asarray(data))
        parts = []
        for start in sorted(found):
            arrays = found[start]
            each = range(len(arrays[0])) if self._several else [...]
            recorded = [jax.tree.unflatten(tree, [a[i] for a in arrays]) for i in each]
            models, nonfinite = ([one[part] for one in recorded] for part in (0, 1))
            rows = arrays[0].shape[axis]
            parts.append(DeviceOutput(first + start, rows, models, nonfinite))
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
        raise UnavailableError(
            f"out of memory with a batch of {shape}, after halving it {self.halvings} times; what "
            f"is kept of it takes {self._bytes(given, size):,} bytes\n"
            "ask for less: fewer layers or heads, statistics instead of weights, dtype=uint8\n"
            "or give shorter texts, or a lower batch_tokens from the start"
        ) from error

    def _bytes(self, given: Arguments, rows: int) -> int:
        shapes = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((rows, *a.shape[1:]), a.dtype), dict(given)
        )
        records, _ = jax.eval_shape(self._see, self._params, shapes)
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(records))


def _rows(given: Arguments) -> int:
    return len(jax.tree.leaves(dict(given))[0])


def _taken(given: Arguments, places: np.ndarray) -> Arguments:
    """Some rows of a batch."""
    return jax.tree.map(lambda array: array[places], dict(given))


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def mesh_of(mesh: Mesh | None, devices: Sequence[Any] | None) -> Mesh | None:
    """The mesh that batches are cut over."""
    if mesh is not None and devices is not None:
        raise InputError("give either mesh or devices, not both")
    if mesh is not None:
        return mesh
    if devices is None:
        chosen = jax.config.jax_default_device
        devices = jax.local_devices() if chosen is None else [None]
        if len(devices) == 1:
            return None
    if not len(devices):
        raise InputError("devices is empty\nname at least one, or leave it out for all")
    return Mesh(np.array(devices), (_DATA,), axis_types=(AxisType.Auto,))
