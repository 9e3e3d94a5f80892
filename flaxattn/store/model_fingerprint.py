# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The fingerprint of a model: equal for two models that read every text alike."""

import hashlib
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from flaxattn.files import sha256_of
from flaxattn.pretrained.pretrained_model import Pretrained


@dataclass(frozen=True)
class ModelFingerprint:
    """Fingerprint of a model's configuration, weights and tokenizer.

    Attributes:
        name: what it was loaded as; says nothing of what it is.
        architecture: class of its module.
        dtype: of the computation.
        parameters: SHA-256 of all parameters, with their names and shapes.
        config: SHA-256 of the configuration.
        tokenizer: SHA-256 of the files of its tokenizers; empty where it has none.
    """

    name: str
    architecture: str
    dtype: str
    parameters: str
    config: str
    tokenizer: str


def mark(model: Pretrained) -> ModelFingerprint:
    """The fingerprint of a model. Reads every parameter once, on the host."""
    config = json.dumps(model.config.to_hf(), sort_keys=True)
    return ModelFingerprint(
        name=model.name,
        architecture=type(model.module).__name__,
        dtype=np.dtype(getattr(model.module, "dtype", None) or np.float32).name,
        parameters=_parameters(model.params),
        config=hashlib.sha256(config.encode()).hexdigest(),
        tokenizer=_tokenizers(model),
    )


def _parameters(params: Any) -> str:
    digest = hashlib.sha256()
    leaves = {jax.tree_util.keystr(p): x for p, x in jax.tree_util.tree_leaves_with_path(params)}
    for name, leaf in sorted(leaves.items()):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _tokenizers(model: Pretrained) -> str:
    """Digest of the files that the tokenizers write: they decide which ids a text gets."""
    readers = {"": model.tokenizer, "target_": getattr(model, "target_tokenizer", None)}
    digests = {}
    for prefix, reader in readers.items():
        if reader is not None:
            with tempfile.TemporaryDirectory() as folder:
                reader.save(folder, prefix)
                paths = sorted(Path(folder).iterdir())
                digests[prefix] = {path.name: sha256_of(path) for path in paths}
    written = json.dumps(digests, sort_keys=True)
    return hashlib.sha256(written.encode()).hexdigest() if digests else ""
