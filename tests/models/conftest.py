# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Small random checkpoints for the tests of this folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_golden as golden
import numpy as np
import pytest

from flaxattn import tensorfile

PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the cat is very sad because it could not find food to eat"
LETTERS = "abcdefghijklmnopqrstuvwxyz.,!?"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """Write a Hugging Face directory: `checkpoint(head, tensors=None, folder=…, **settings)`."""

    def write(
        head: str = "BertModel",
        tensors: dict[str, np.ndarray] | None = None,
        folder: str = "model",
        **settings: Any,
    ) -> Path:
        case = golden.Case(head, settings=tuple(settings.items()))
        return write_model(tmp_path / folder, case, tensors)

    return write


def write_model(folder: Path, case: Any, tensors: dict[str, np.ndarray] | None = None) -> Path:
    folder.mkdir()
    settings = {"model_type": "bert", "architectures": [case.head], **case.config()}
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    held = golden.tensors(case) if tensors is None else tensors
    tensorfile.write(folder / tensorfile.SINGLE, held)
    return folder


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with a tokenizer: 2 layers, 4 heads, 64 positions at most."""
    pieces = PIECES.split() + list(LETTERS) + [f"##{letter}" for letter in LETTERS]
    settings = {"vocab_size": len(pieces), "max_position_embeddings": 72}
    case = golden.Case("BertForPreTraining", settings=tuple(settings.items()))
    folder = write_model(tmp_path_factory.mktemp("reader") / "model", case)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    names = ("pad", "unk", "cls", "sep", "mask")
    told = {f"{n}_token": f"[{n.upper()}]" for n in names}
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, **told}))
    return folder
