# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What every test runs under: eight fake CPU devices, strict promotion, and no silent skip.

This file is not a place for helpers of a single test file. Warnings are errors and the shape
checks of `flaxattn.kernels` are on; both are switched in `pyproject.toml`.
"""

import os
from collections.abc import Iterator
from pathlib import Path

# Read by XLA and matplotlib when they are first imported, so set before any test module is.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Threads of XLA on the CPU: those of an interpreted GPU kernel wait for each other.
os.environ.setdefault("NPROC", "32")
os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import jax
import pytest

# The same examples in every run; the first example of a test pays for compilation.
hypothesis.settings.register_profile("flaxattn", deadline=None, derandomize=True)
hypothesis.settings.load_profile("flaxattn")

REPOSITORY = Path(__file__).resolve().parent.parent
# Optimisers count steps in int32 and optax multiplies that count with floats.
MIXED_DTYPES = REPOSITORY / "tests" / "train"
# Markers named here (space-separated) may not skip: continuous integration sets it.
MUST_RUN = os.environ.get("FLAXATTN_MUST_RUN", "").split()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Make implicit dtype and rank promotion an error in a test and in its fixtures."""
    mixed = item.path.is_relative_to(MIXED_DTYPES)
    jax.config.update("jax_numpy_rank_promotion", "raise")
    jax.config.update("jax_numpy_dtype_promotion", "standard" if mixed else "strict")
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Turn a skip into a failure where the marker of the test is in FLAXATTN_MUST_RUN.

    Real data stays optional: its skips say which FLAXATTN_ variable would name it.
    """
    report = yield
    names = [name for name in MUST_RUN if item.get_closest_marker(name)]
    optional = "Skipped: FLAXATTN_" in str(report.longrepr)
    if report.skipped and names and not optional and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but {names[0]} tests must run here: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def sources() -> dict[str, Path]:
    """Import name -> file of every module in the package, wherever its folder lies."""
    roots = {"flaxattn": "flaxattn", "kernels": "flaxattn.kernels", "train": "flaxattn.train"}
    found = {}
    for folder, package in roots.items():
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            parts = path.relative_to(REPOSITORY / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


@pytest.fixture(scope="session")
def flaxattn_data() -> Path:
    """The folder of real data that FLAXATTN_DATA names; tests that need it skip without."""
    folder = os.environ.get("FLAXATTN_DATA")
    if not folder:
        pytest.skip("FLAXATTN_DATA is not set")
    return Path(folder)
