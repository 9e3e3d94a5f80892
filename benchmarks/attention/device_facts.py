# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Facts about the GPU of this machine and the software that drives it, written as JSON.

Exits with status 1 where jax finds no Hopper GPU. Nothing is measured here.

    python -m flaxattn.benchmarks.device_facts facts.json
"""

import importlib.metadata
import importlib.util
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from flaxattn.files import write_text

_PACKAGES = (
    *("flaxattn", "jax", "jaxlib", "numpy", "torch"),
    *("jax-cuda12-plugin", "jax-cuda13-plugin", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
)


def of_host() -> dict[str, Any]:
    """Facts that need no jax: driver, ptxas and packages."""
    asked = "--query-gpu=name,driver_version,memory.total"
    line = _first_line(["nvidia-smi", asked, "--format=csv,noheader"])
    name, driver, memory = (*(part.strip() for part in line.split(",")), "", "")[:3]
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "gpu": name,
        "driver": driver,
        "memory": memory,
        "ptxas": {path: _last_line([path, "--version"]) for path in _ptxas()},
        "versions": versions,
    }


def _ptxas() -> list[str]:
    """Every ptxas that jax may call: in the wheels of NVIDIA, and on the search path."""
    found = []
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        found += [str(path) for path in sorted(Path(folder).glob("*/bin/ptxas"))]
    on_path = shutil.which("ptxas")
    return [*found, *([on_path] if on_path else [])]


def _lines(command: list[str]) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{command[0]}: {error}")
        return [""]
    return [line for line in done.stdout.splitlines() if line.strip()] or [""]


def _first_line(command: list[str]) -> str:
    return _lines(command)[0]


def _last_line(command: list[str]) -> str:
    return _lines(command)[-1]


def main() -> None:
    """`python -m flaxattn.benchmarks.device_facts FILE`."""
    path = Path(sys.argv[1])
    facts = of_host()
    write_text(path, json.dumps(facts))
    # Starting jax on a broken driver may hang, so what is known is written first.
    import jax

    from flaxattn.kernels import choice, compat, devices

    device = devices.current(jax.device_put(0, jax.devices()[0]))
    facts |= {"device": device._asdict(), "cuda": compat.cuda_version()}
    write_text(path, json.dumps(facts))
    print(json.dumps(facts, indent=1))
    reason = choice.device_refusal("mosaic_gpu", device)
    if reason:
        raise SystemExit(f"The Hopper kernels cannot run here: {reason}.")


if __name__ == "__main__":
    main()
