# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors of a checkpoint into parameters: read straight into their place, on one device or many.

A parameter of all layers is filled layer by layer, in the dtype that it will have. On the CPU the
memory that is filled becomes the array; to other devices it is copied, one parameter at a time.
Which tensor belongs to which parameter is known to `model_directory`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array

from flaxattn.errors import InputError
from flaxattn.models.parameter_shardings import parameter_sharding
from flaxattn.pretrained.name_tables import NameRow
from flaxattn.pretrained.tensor_layouts import ours
from flaxattn.trace.tensor_file import TensorFiles

Bounds = tuple[tuple[int, int], ...]
_ALIGNMENT = 64  # bytes; memory that begins at a multiple of it becomes an array without a copy
_STRAIGHT = ("=", "1")  # relations of a tensor to a parameter under which the bytes are the same


def read_parameters(
    files: TensorFiles,
    tensors: Mapping[str, Sequence[str]],
    rows: Mapping[str, NameRow],
    shapes: Mapping[str, Any],
    dtype: Any,
    mesh: Mesh | None = None,
) -> dict[str, Any]:
    """Read parameters; beside them only one tensor is held at any time."""
    together: dict[tuple[str, ...], list[str]] = {}  # some parameters are parts of one tensor
    for path, names in tensors.items():
        together.setdefault(tuple(names), []).append(path)
    read: dict[str, Any] = {}
    for names, paths in together.items():
        memory = {path: _memory(path, shapes[path], dtype, mesh) for path in paths}
        for number, name in enumerate(names):
            _read(files, name, [_place(rows[p], memory[p], shapes[p], number) for p in paths])
        for path in paths:
            arrays = tuple(one.finished() for one in memory.pop(path))
            read[path] = arrays if isinstance(shapes[path], tuple) else arrays[0]
    return read


def converted(name: str, array: np.ndarray, dtype: Any) -> np.ndarray:
    """Numbers in another dtype."""
    if dtype is None or array.dtype == jnp.dtype(dtype):
        return array
    with np.errstate(over="ignore"):
        cast = array.astype(jnp.dtype(dtype))
    if np.any(np.isinf(cast) & np.isfinite(array)):
        raise InputError(
            f"{name} has values too large for {jnp.dtype(dtype).name}: up to "
            f"{np.abs(array).max():.3g}.\nChoose bfloat16 or float32."
        )
    return cast


def placed(array: Array, path: str, mesh: Mesh | None) -> Array:
    """An array where the parameter of that path belongs."""
    if mesh is None:
        return array
    return jax.device_put(array, parameter_sharding(path, array.shape, mesh))


class ParameterMemory:
    """Memory of one parameter, whole or in the parts that devices hold.

    Attributes:
        shape: Of the parameter.
        parts: Memory of each part, by where the part begins and ends on every axis.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, sharding: NamedSharding | None) -> None:
        self.shape, self._sharding = shape, sharding
        self._holders: dict[Any, Bounds] = {None: tuple((0, size) for size in shape)}
        if sharding is not None:
            held = sharding.addressable_devices_indices_map(shape)
            self._holders = {device: _bounds(index or (), shape) for device, index in held.items()}
        self.parts = {
            bounds: _aligned(tuple(stop - start for start, stop in bounds), dtype)
            for bounds in set(self._holders.values())
        }

    def whole(self, layer: int | None) -> np.ndarray | None:
        """Return the memory itself, of one layer or of all; None if it is in several parts."""
        memory = next(iter(self.parts.values()))
        if memory.shape != self.shape:
            return None
        return memory if layer is None else memory[layer]

    def write(self, array: np.ndarray, layer: int | None) -> None:
        """Write numbers into every part that they belong to."""
        for bounds, memory in self.parts.items():
            index = tuple(slice(*ends) for ends in bounds)
            if layer is None:
                memory[...] = array[index]
            elif bounds[0][0] <= layer < bounds[0][1]:
                memory[layer - bounds[0][0]] = array[index[1:]]

    def finished(self) -> Array:
        """Return the array; the memory must not be written again."""
        if self._sharding is None:
            return jax.device_put(*self.parts.values()).block_until_ready()
        arrays = [jax.device_put(self.parts[i], device) for device, i in self._holders.items()]
        whole = jax.make_array_from_single_device_arrays(self.shape, self._sharding, arrays)
        return whole.block_until_ready()


Place = tuple[NameRow, ParameterMemory, int | None]  # the last is a layer on the first axis


def _memory(path: str, shape: Any, dtype: Any, mesh: Mesh | None) -> list[ParameterMemory]:
    """Memory of a parameter, or of each layer where layers are unstacked."""
    shapes = shape if isinstance(shape, tuple) else (shape,)
    shardings = [mesh and parameter_sharding(path, one.shape, mesh) for one in shapes]
    return [ParameterMemory(a.shape, dtype, s) for a, s in zip(shapes, shardings, strict=True)]


def _place(row: NameRow, memory: list[ParameterMemory], shape: Any, number: int) -> Place:
    """Place of one of the tensors of a parameter."""
    if isinstance(shape, tuple):
        return row, memory[number], None
    return row, memory[0], number if "*" in row.theirs else None


def _read(files: TensorFiles, name: str, places: Sequence[Place]) -> None:
    """Read one tensor into all places that hold a part of it."""
    row, memory, layer = places[0]
    target = memory.whole(layer)
    if row.how in _STRAIGHT and target is not None and target.dtype == files.dtype(name):
        files.read(name, into=target)
        return
    array = files.read(name)
    for row, memory, layer in places:
        dtype = next(iter(memory.parts.values())).dtype
        memory.write(converted(name, ours(row, array), dtype), layer)


def _bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> Bounds:
    ends = (part.indices(size) for part, size in zip(index, shape, strict=True))
    return tuple((start, stop) for start, stop, _ in ends)


def _aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Memory that JAX can use as it is, not yet written to."""
    kind = jnp.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(kind).reshape(shape)
