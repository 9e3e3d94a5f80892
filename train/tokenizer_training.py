# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Training of WordPiece vocabularies from files: `flaxattn tokenizer train`.

And how the hosts of a run come to one vocabulary. The learning itself is in
`flaxattn.text.tokenizer` and `flaxattn.text.vocabulary_training`.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax

from flaxattn.corpus.rows import BadRows
from flaxattn.errors import InputError
from flaxattn.files import written_whole
from flaxattn.pipeline.progress_reporter import ProgressReporter, Watch, show_progress
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokenizer_files import SPECIAL_TOKENS
from flaxattn.text.vocabulary_training import train_wordpiece
from flaxattn.train.documents import Paragraphs
from flaxattn.train.recipe import PretrainRecipe
from flaxattn.train.run_folder import RunFolder


def learn_tokenizer(
    files: Sequence[Path],
    out: Path,
    vocab_size: int,
    lowercase: bool,
    *,
    max_length: int = 512,
    text_column: str = "text",
    on_error: str = "fail",
    watch: Watch = show_progress,
) -> tuple[Tokenizer, BadRows]:
    """Learn a vocabulary from files that need not fit in memory.

    Returns:
        The tokenizer, and what was left out.
    """
    if not files:
        raise InputError("no text to learn a vocabulary from\nname at least one file")
    if vocab_size <= len(SPECIAL_TOKENS):
        raise InputError(
            f"a vocabulary of {vocab_size} tokens is too small\n"
            f"{len(SPECIAL_TOKENS)} of them are special\n"
            "raise --vocab-size; BERT has 30522"
        )
    if (out / "tokenizer.json").exists():
        raise InputError(
            f"{out} holds a tokenizer already\nit may belong to a model\nname another --out"
        )
    watch("learning a vocabulary", 0)
    bad = BadRows(on_error, out)
    texts = Paragraphs(files, PretrainRecipe(text_column=text_column), bad)
    tokenizer = train_wordpiece(texts, vocab_size, lowercase, max_length)
    with written_whole(out) as staging:
        tokenizer.save(staging)
    return tokenizer, bad


def learn_once(folder: RunFolder, learn: Callable[[], Tokenizer]) -> Tokenizer:
    """The tokenizer of a run: that of an earlier start, or one that the first host learns."""
    own = folder.path / "tokenizer"
    if (own / "tokenizer.json").is_file() and not folder.fresh:
        return Tokenizer.from_dir(own)
    if jax.process_index() == 0:
        with ProgressReporter() as progress:
            progress("learning a vocabulary", 0)
            learn().save(own)
    deadline = time.monotonic() + 3600
    while not (own / "tokenizer.json").is_file():
        if time.monotonic() > deadline:
            raise InputError(f"no tokenizer appeared in {own}\nall hosts need the same --out")
        time.sleep(1)
    return Tokenizer.from_dir(own)
