# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Corpora of hand-made ids for the tests of what reads them, and an encoder to fine-tune."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.files import sha256_of
from flaxattn.models.bert import Bert
from flaxattn.models.encoder_config import BertConfig
from flaxattn.pretrained import model_directory
from flaxattn.text.vocabulary_training import train_wordpiece
from flaxattn.train.corpus import COLUMNS, INDEX, Column, TokenCorpus

Documents = Sequence[Sequence[Sequence[int]]]
Store = Callable[[Documents], TokenCorpus]


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Puts documents of sentences of ids on disk, as text would have been."""

    def write(documents: Documents) -> TokenCorpus:
        folder: Path = tmp_path_factory.mktemp("corpus")
        sentences = [sentence for document in documents for sentence in document]
        shares = np.random.default_rng(0).integers(2**64, size=len(documents), dtype=np.uint64)
        contents = (
            (np.uint32, list(itertools.chain.from_iterable(sentences))),
            (np.int64, [0, *itertools.accumulate(map(len, sentences))]),
            (np.int64, [0, *itertools.accumulate(map(len, documents))]),
            (np.uint64, shares),
        )
        for name, (dtype, values) in zip(COLUMNS, contents, strict=True):
            with Column(folder / name, dtype) as column:
                column.extend(values)
        digests = {name: sha256_of(folder / name) for name in COLUMNS}
        (folder / INDEX).write_text(json.dumps({"files": digests}), encoding="utf-8")
        return TokenCorpus(folder)

    return write


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An encoder of one layer that has learnt nothing."""
    folder = tmp_path_factory.mktemp("start")
    text = " ".join(["red cat runs home now while big dogs sleep under old trees good bad"] * 3)
    tokenizer = train_wordpiece([text], 120, lowercase=True, max_length=32)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
    )
    module = Bert(config)
    shapes = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 4), jnp.int32))["params"]
    noise = np.random.default_rng(3)
    params = jax.tree.map(lambda x: 0.3 * noise.standard_normal(x.shape, np.float32), shapes)
    model_directory.save(folder, module, params, tokenizer=tokenizer)
    return str(folder)
