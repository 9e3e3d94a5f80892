# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Models that run as one over the same texts must differ in nothing but their parameters.

Only this check is here; the pass over the texts is in `extract`.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from flaxattn.errors import InputError
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.token_batch import Reader


def check_alike(models: Sequence[Pretrained]) -> None:
    """Check that models differ in nothing but the values of their parameters."""
    if not models:
        raise InputError("there is no model\nname at least one")
    first = models[0]
    for model in models[1:]:
        differing = {
            "architecture or configuration": model.module != first.module,
            "shapes of parameters": _shapes(model) != _shapes(first),
            "tokenizer": not _same_readers(model, first),
        }
        if wrong := [what for what, differs in differing.items() if differs]:
            raise InputError(
                f"{model.name!r} and {first.name!r} cannot run as one: they differ in "
                f"{wrong[0]}\nextract them one after the other"
            )


def _shapes(model: Pretrained) -> Any:
    return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), model.params)


def _same_readers(model: Pretrained, other: Pretrained) -> bool:
    names = ("tokenizer", "target_tokenizer")
    pairs = [(getattr(model, name, None), getattr(other, name, None)) for name in names]
    return all(one is two or _files(one) == _files(two) for one, two in pairs)


def _files(reader: Reader | None) -> dict[str, bytes]:
    """The files of a tokenizer, by name."""
    if reader is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        reader.save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}
