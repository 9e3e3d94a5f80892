# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Corpora of hand-made ids, for the tests of what reads them."""

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from flaxattn.files import sha256_of
from flaxattn.train.columns import Column
from flaxattn.train.corpus import COLUMNS, INDEX, TokenCorpus

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
