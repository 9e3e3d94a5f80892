# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""How a directory of sentence-transformers makes one vector of a text."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from flaxattn.errors import CheckpointError
from flaxattn.models.config_base import shown
from flaxattn.trace.tensor_file import read_json

FILE = "1_Pooling/config.json"
_MODULES = "modules.json"
# Names of sentence-transformers, and of `embed`.
_NAMES = {"mean": "mean-all", "mean_tokens": "mean-all", "cls": "cls", "cls_token": "cls"}
_NAMES |= {"max": "max", "max_tokens": "max"}


class SentencePooling(NamedTuple):
    """How one vector is made of a text.

    Attributes:
        pooling: `mean-all`, `cls` or `max`; see `flaxattn.embed`.
        normalize: Whether the vector has norm one.
    """

    pooling: str
    normalize: bool


def read(directory: str | Path) -> SentencePooling | None:
    """Read the pooling of a model directory; None where it has none.

    Args:
        directory: A model directory.

    Raises:
        CheckpointError: The file is damaged, or asks for a pooling that flaxattn has not.
    """
    path = Path(directory) / FILE
    if not path.is_file():
        return None
    settings = read_json(path)
    modes = [name.removeprefix("pooling_mode_") for name, on in settings.items() if on is True]
    modes = [name for name in modes if f"pooling_mode_{name}" in settings]
    if "pooling_mode" in settings:
        modes = [settings["pooling_mode"]]
    if len(modes) != 1 or not isinstance(modes[0], str) or modes[0] not in _NAMES:
        raise CheckpointError(
            f"{path}: the pooling is {shown(modes)}; flaxattn has mean, cls and max, one of them.\n"
            "Remove the file, and name a pooling when embedding."
        )
    return SentencePooling(_NAMES[modes[0]], _normalizes(Path(directory) / _MODULES))


def _normalizes(path: Path) -> bool:
    """Whether the modules of a directory end with one that normalises."""
    if not path.is_file():
        return False
    try:
        modules: Any = json.loads(path.read_bytes())
        return any(str(module["type"]).endswith(".Normalize") for module in modules)
    except (ValueError, RecursionError, TypeError, LookupError) as error:
        raise CheckpointError(
            f"{path} is no list of modules: {error}.\nFetch the file again."
        ) from error
