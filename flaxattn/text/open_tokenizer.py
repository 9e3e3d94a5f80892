# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a model directory, whatever files it is stored in."""

from pathlib import Path

from flaxattn.text import transformers_tokenizer
from flaxattn.text.token_batch import Reader
from flaxattn.text.tokenizer import ForeignTokenizerError, Tokenizer


def open_tokenizer(path: str | Path, prefix: str = "") -> Reader | None:
    """Open a tokenizer.

    `tokenizer.json` and BERT's `vocab.txt` are read by `tokenizers`. transformers reads everything
    else, and files that contradict each other, and is imported only then.
    """
    folder = Path(path)
    if (folder / transformers_tokenizer.MARIAN).is_file():
        return transformers_tokenizer.load(folder, target=bool(prefix))
    own = (f"{prefix}tokenizer.json",) if prefix else ("tokenizer.json", "vocab.txt")
    if any((folder / name).is_file() for name in own):
        try:
            return Tokenizer.from_dir(folder, prefix)
        except ForeignTokenizerError:
            if prefix:
                raise
            return transformers_tokenizer.load(folder)
    if prefix or not transformers_tokenizer.has_vocabulary(folder):
        return None
    return transformers_tokenizer.load(folder)
