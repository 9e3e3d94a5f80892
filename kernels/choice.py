# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Choice of the implementation that runs a call: the named one, or the best for device and request.

Two things decide, and each can refuse with a reason: the device (see devices.py) and the call
(each implementation's ``refusal``). No array is computed here.

Weights of a window or of pairs are computed beside the implementation, by xla.py: it runs the rest
of the call, so they do not change which one is chosen.
"""

import difflib
import functools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from flaxattn.kernels import devices, fused, reference, xla
from flaxattn.kernels.call import Call, without_pairs, without_window
from flaxattn.kernels.devices import Device
from flaxattn.kernels.xla import weights_of_pairs

NAMES = ("cudnn", "mosaic_gpu", "tpu", "xla", "reference")
"""Every implementation, the preferred ones first.

cuDNN is before the Hopper kernels until `make gpu` has passed as a whole (BENCHMARKS.md).
"""

_log = logging.getLogger(__name__)
_ANYWHERE = ("xla", "reference")
_NEEDS = {
    "mosaic_gpu": ("cuda", "a Hopper GPU (compute capability 9)"),
    "tpu": ("tpu", "a TPU"),
    "cudnn": ("cuda", "an NVIDIA GPU (compute capability 8 or newer)"),
}


class Choice(NamedTuple):
    """Result of an automatic choice.

    Attributes:
        name: Name of the implementation.
        passed_over: Better ones that the device could run, and why they cannot take the call.
    """

    name: str
    passed_over: dict[str, str]


def device_refusal(name: str, device: Device) -> str | None:
    """Why an implementation cannot run on a device.

    Args:
        name: One of `NAMES`.
        device: Device to run on.

    Returns:
        The reason, None when it can.
    """
    if name in _ANYWHERE:
        return None
    if name == "tpu":
        fits = device.platform == "tpu"
    else:
        major = (device.capability or (0, 0))[0]
        # The instructions that the Hopper kernels are made of exist on no later GPU either.
        fits = major == 9 if name == "mosaic_gpu" else major >= 8
    return None if fits else _needs(name, str(device))


def _needs(name: str, device: str) -> str:
    return f"it needs {_NEEDS[name][1]}, this is {device}"


def call_refusal(name: str, call: Call) -> str | None:
    """Why an implementation cannot run a call, on whatever device.

    Args:
        name: One of `NAMES`.
        call: A checked call; shapes and dtypes of its arrays are enough.

    Returns:
        The reason, None when it can.
    """
    if call.edits is not None and name != "reference":
        return "edits change scores or weights, of which it never holds all at once"
    return None if name in _ANYWHERE else _module(name).refusal(without_pairs(without_window(call)))


def _module(name: str) -> Any:
    """The implementation's module; loaded when needed, since Pallas takes its time."""
    if name == "mosaic_gpu":
        from flaxattn.kernels import mosaic_gpu as module
    elif name == "tpu":
        from flaxattn.kernels import tpu as module
    else:
        from flaxattn.kernels import cudnn as module
    return module


def choose(call: Call, device: Device) -> Choice:
    """The best implementation for a call.

    Args:
        call: A checked call; shapes and dtypes of its arrays are enough.
        device: Device that the call is for.

    Returns:
        The first of `NAMES` that both the device and the call allow.
    """
    passed_over: dict[str, str] = {}
    for name in NAMES:
        if device_refusal(name, device) is None:
            reason = call_refusal(name, call)
            if reason is None:
                _log.debug("%s runs queries %s; passed over: %s", name, call.q.shape, passed_over)
                return Choice(name, passed_over)
            passed_over[name] = reason
    raise AssertionError("reference takes every call")


def run(name: str | None, call: Call) -> Any:
    """Runs a call.

    Args:
        name: Name of the implementation; None to choose.
        call: A checked call.

    Returns:
        The output and the intermediates.

    Raises:
        ValueError: If there is no implementation of that name.
        NotImplementedError: The named implementation cannot run this call, or not here.
    """
    if name == "reference" or (name is None and call.edits is not None):
        return reference.attention(**call._asdict())
    return complete(functools.partial(_run, name), call)


def complete(attend: Callable[[Call], Any], call: Call) -> Any:
    """Runs an implementation, and computes what none of them returns.

    Args:
        attend: Takes a checked call that asks for neither a window nor pairs.
        call: A checked call.

    Returns:
        The output and the intermediates.
    """
    if call.capture.windowed:
        output, record = complete(attend, without_window(call))
        return output, replace(record, **xla.captured_window(call))
    if "pairs" in call.capture.names:
        output, record = attend(without_pairs(call))
        stats = record.stats | {"pairs": weights_of_pairs(call, record.stats["lse"])}
        return output, replace(record, stats={key: stats[key] for key in call.capture.keys})
    return attend(call)


def _run(name: str | None, call: Call) -> Any:
    device = devices.current(call.q)
    if name is None:
        name = choose(call, device).name
    elif name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"Did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"attention: unknown implementation {name!r}.\n{hint}Known: {', '.join(NAMES)}."
        )
    if (reason := call_refusal(name, call)) is not None:
        raise NotImplementedError(_message(name, "cannot run this call", reason))
    if name == "xla":
        return xla.attend(call)
    platform = _NEEDS[name][0]
    # Another platform than this one may be meant (`jax.export`), an older GPU than needed is not.
    reason = device_refusal(name, device)
    if reason is not None and platform == "cuda" and device.capability is not None:
        raise NotImplementedError(_message(name, "cannot run here", reason))
    refusal = _message(name, "cannot run here", _needs(name, "{platform}"))
    q = devices.only_on(call.q, platform, refusal)
    return fused.over_mesh(_module(name).attend, call._replace(q=q))


def _message(name: str, what: str, reason: str) -> str:
    others = " or ".join(other for other in _ANYWHERE if other != name)
    return (
        f"attention: implementation {name!r} {what}: {reason}.\n"
        f"Fix: implementation=None chooses, or name {others}."
    )
