# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Device of a computation, and a mark on an array that lets it run there only.

While a function is traced nobody knows for certain where it will run: ``jax.jit`` may be given
arrays of another device, and ``jax.export`` another platform. So a choice goes by the best guess,
and what holds on one platform only is checked again when the program is lowered for a platform.
Nothing here is about attention.
"""

import re
from typing import Any, NamedTuple

import jax
from jax.core import Tracer
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array

_LOWERED_AS = {"gpu": ("cuda", "rocm")}


class Device(NamedTuple):
    """A kind of device.

    Attributes:
        platform: "cpu", "gpu", "tpu" or what else jax calls it.
        kind: Kind of the device, in the words of its maker.
        capability: Compute capability of an NVIDIA GPU, None for all others and when unknown.
    """

    platform: str
    kind: str
    capability: tuple[int, int] | None = None

    def __str__(self) -> str:
        number = "" if self.capability is None else " (compute capability {}.{})"
        return self.kind + number.format(*self.capability or ())


def current(array: Any = None) -> Device:
    """The device that what is being traced or run now is for, as far as can be known.

    That is, whichever comes first: the device of a concrete array; the device of the mesh that
    ``jax.set_mesh``, ``jax.shard_map`` or ``jax.sharding.use_abstract_mesh`` set;
    ``jax.default_device``; the first device of ``jax.default_backend()``.

    Args:
        array: An array of the computation.

    Returns:
        The device.
    """
    if isinstance(array, jax.Array) and not isinstance(array, Tracer):
        return _known(next(iter(array.devices())))
    if (abstract := jax.sharding.get_abstract_mesh().abstract_device) is not None:
        return _of_mesh(abstract.platform, abstract.device_kind)
    chosen = jax.config.jax_default_device
    if isinstance(chosen, str):
        chosen = jax.local_devices(backend=chosen)[0]
    return _known(chosen or jax.local_devices()[0])


def _of_mesh(platform: str, kind: str) -> Device:
    """A device of which only the kind is known; it need not be present."""
    if platform == jax.default_backend():
        for device in jax.local_devices():
            if device.device_kind == kind:
                return _known(device)
    return Device(platform, kind)


def _known(device: Any) -> Device:
    numbers = re.fullmatch(r"(\d+)\.(\d+)", str(getattr(device, "compute_capability", "")))
    capability = (int(numbers[1]), int(numbers[2])) if numbers else None
    return Device(device.platform, device.device_kind, capability)


def only_on(array: Array, platform: str, refusal: str) -> Array:
    """Return an array in a program that refuses to be lowered for any other platform.

    Args:
        array: Something that the program cannot do without.
        platform: "cuda" or "tpu".
        refusal: Message of the error, with ``{platform}`` where the other platform is named.

    Returns:
        The array. Costs nothing, and nothing is left of it in the compiled program.

    Raises:
        NotImplementedError: The array lies on another platform; when traced, only later, when
            the program around it is lowered for another platform.
    """
    return _only_on.bind(array, platform=platform, refusal=refusal)


def _check(platforms: Any, platform: str, refusal: str) -> None:
    for other in platforms:
        if other != platform and platform not in _LOWERED_AS.get(other, ()):
            raise NotImplementedError(refusal.format(platform=other))


def _run(array: Array, *, platform: str, refusal: str) -> Array:
    _check({device.platform for device in array.devices()}, platform, refusal)
    return array


def _lower(context: Any, array: Any, *, platform: str, refusal: str) -> list[Any]:
    _check(context.platforms or context.module_context.platforms, platform, refusal)
    return [array]


_only_on = Primitive("flaxattn_only_on")
_only_on.def_impl(_run)
_only_on.def_abstract_eval(lambda array, **_: array)
ad.deflinear2(_only_on, lambda cotangent, _, **marks: [_only_on.bind(cotangent, **marks)])
batching.defvectorized(_only_on)
mlir.register_lowering(_only_on, _lower)
