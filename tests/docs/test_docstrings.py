# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Examples in docstrings run: every `>>>` of the package, module by module."""

import doctest
import importlib
from pathlib import Path

import pytest
from markdown_blocks import ROOT

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
ROOMS = {"flaxattn": "flaxattn", "kernels": "flaxattn.kernels", "train": "flaxattn.train"}


def with_examples() -> list[str]:
    """Import names of the modules that show an example."""
    names = []
    for folder, package in ROOMS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            if ">>> " in path.read_text(encoding="utf-8"):
                parts = path.relative_to(ROOT / folder).with_suffix("").parts
                names.append(".".join((package, *parts)))
    return names


MODULES = with_examples()


def test_the_function_of_the_kernels_shows_one() -> None:
    assert "flaxattn.kernels.attention" in MODULES


@pytest.mark.few("pretrained", "kernels.attention", "store")
@pytest.mark.parametrize(
    "module",
    [
        pytest.param(name, marks=[pytest.mark.float16] * name.startswith("flaxattn.store"))
        for name in MODULES
    ],
)
def test_examples_run(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(module), optionflags=FLAGS)
    assert result.attempted and not result.failed
