# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Environment report: installed versions and the attention kernel that would run."""

import importlib.metadata
import json
import os
import platform
from typing import Any

import jax
import jax.numpy as jnp

from flaxattn import __version__
from flaxattn.kernels import choice, devices
from flaxattn.kernels.attention import implementations
from flaxattn.kernels.call import Call
from flaxattn.kernels.contract import NOTHING, Capture
from flaxattn.pretrained.hub import built_in

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "tokenizers", "safetensors")

_REQUESTS = {
    "plain": ("bfloat16", NOTHING),
    "statistics": ("bfloat16", Capture(stats=("lse", "entropy", "max", "argmax"))),
    "weights": ("bfloat16", Capture(weights=True, dtype="bfloat16")),
    "float32": ("float32", NOTHING),
}


def report() -> dict[str, Any]:
    """Collect the facts."""
    problem = missing_device()
    versions = {"flaxattn": __version__, "python": platform.python_version()}
    versions |= {name: _version(name) for name in _PACKAGES}
    facts: dict[str, Any] = {
        "versions": versions,
        "platform": f"{platform.system()} {platform.machine()}",
        "models": built_in(),
        "problem": problem or None,
        "devices": [],
        "kernels": {},
        "choices": {},
        "chosen": None,
    }
    if problem:
        return facts
    choices = {name: _choice(*request) for name, request in _REQUESTS.items()}
    return facts | {
        "devices": [f"{device.platform}: {device.device_kind}" for device in jax.devices()],
        "kernels": implementations(),
        "choices": choices,
        "chosen": choices["plain"]["kernel"],
    }


def missing_device() -> str:
    """Say why jax cannot use the device that was chosen; empty where it can."""
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # jax raises either, some without a text
        reason = (str(error).splitlines() or ["it finds no such device"])[0][:200]
        chosen = os.environ.get("JAX_PLATFORMS") or "its default device"
        return (
            f"jax cannot use {chosen}\n{reason}\n"
            "install jax for that device, or set JAX_PLATFORMS=cpu"
        )
    return ""


def _choice(dtype: str, capture: Capture) -> dict[str, Any]:
    """The kernel for a call with heads like those of BERT-base."""
    array = jnp.zeros((1, 8, 1, 64), dtype)
    chosen = choice.choose(Call(array, array, array, capture=capture), devices.current())
    return {"kernel": chosen.name, "passed_over": chosen.passed_over}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def as_json() -> str:
    """The report as JSON."""
    return json.dumps(report(), indent=2)


def as_text() -> str:
    """The report for a person."""
    facts = report()
    lines = [f"{name:<12} {version}" for name, version in facts["versions"].items()]
    lines += [f"{'platform':<12} {facts['platform']}"]
    if facts["problem"]:
        lines += [f"{'device':<12} {line}" for line in facts["problem"].splitlines()]
    lines += [f"{'device':<12} {device}" for device in facts["devices"]]
    lines += [f"{'model':<12} {name}" for name in facts["models"]]
    for name, reason in facts["kernels"].items():
        lines.append(f"{'kernel':<12} {name}: {reason or 'runs here'}")
    for request, found in facts["choices"].items():
        why = "".join(f"; {name}: {reason}" for name, reason in found["passed_over"].items())
        lines.append(f"{'chosen':<12} {request}: {found['kernel']}{why}")
    return "\n".join(lines)
