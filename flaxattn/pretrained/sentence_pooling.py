# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pooling that a directory of sentence-transformers asks for."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from flaxattn.errors import CheckpointError
from flaxattn.models.config_base import shown
from flaxattn.trace.tensor_file import read_json

FILE = "1_Pooling/config.json"
_MODULES = "modules.json"
_PACKAGE = "sentence_transformers.models"
# Names of sentence-transformers, and of `embed`.
_NAMES = {"mean": "mean-all", "mean_tokens": "mean-all", "cls": "cls", "cls_token": "cls"}
_NAMES |= {"max": "max", "max_tokens": "max"}


class SentencePooling(NamedTuple):
    """The way one vector is made of a text.

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


def files(pooling: SentencePooling, hidden_size: int) -> dict[str, Any]:
    """Return the files from which `read` and sentence-transformers learn the pooling.

    Args:
        pooling: Pooling of the model.
        hidden_size: Length of its vectors.

    Returns:
        JSON content by name in the model directory.
    """
    modes = ("cls_token", "mean_tokens", "max_tokens")
    settings = {f"pooling_mode_{mode}": _NAMES[mode] == pooling.pooling for mode in modes}
    types = ["Transformer", "Pooling", *(["Normalize"] if pooling.normalize else [])]
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"{_PACKAGE}.{kind}"}
        for i, kind in enumerate(types)
    ]
    return {FILE: {"word_embedding_dimension": hidden_size, **settings}, _MODULES: modules}


def _normalizes(path: Path) -> bool:
    """Return whether one of a directory's modules normalises."""
    if not path.is_file():
        return False
    try:
        modules: Any = json.loads(path.read_bytes())
        return any(str(module["type"]).endswith(".Normalize") for module in modules)
    except (ValueError, RecursionError, TypeError, LookupError) as error:
        raise CheckpointError(
            f"{path} is no list of modules: {error}.\nFetch the file again."
        ) from error
