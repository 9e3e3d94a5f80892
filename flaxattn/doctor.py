# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What is installed here, and which attention kernel would run: the block to paste in an issue."""

import importlib.metadata
import json
import platform
from typing import Any

import jax

from flaxattn import __version__
from flaxattn.hub import built_in
from flaxattn.kernels.attention import implementations

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "tokenizers", "safetensors")


def report() -> dict[str, Any]:
    """Collect the facts.

    Returns:
        `versions`, `devices`, `kernels` (None for those that can run, else the reason why not),
        `chosen` (the kernel that runs when none is named) and `models` (built in).
    """
    versions = {"flaxattn": __version__, "python": platform.python_version()}
    versions |= {name: _version(name) for name in _PACKAGES}
    kernels = implementations()
    return {
        "versions": versions,
        "platform": f"{platform.system()} {platform.machine()}",
        "devices": [f"{device.platform}: {device.device_kind}" for device in jax.devices()],
        "kernels": kernels,
        "chosen": next(name for name, reason in kernels.items() if reason is None),
        "models": built_in(),
    }


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
    lines += [f"{'device':<12} {device}" for device in facts["devices"]]
    lines += [f"{'model':<12} {name}" for name in facts["models"]]
    for name, reason in facts["kernels"].items():
        mark = "runs when none is named" if name == facts["chosen"] else reason or "runs if named"
        lines.append(f"{'kernel':<12} {name}: {mark}")
    return "\n".join(lines)
