# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Text to ids and back, with what a person needs to read an attention map: pieces, words, offsets.

A thin layer over the Hugging Face `tokenizers` package. It is not a tokenisation algorithm of its
own, it never loads a model, and it does not need `transformers`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import models, trainers

from flaxattn.errors import CheckpointError, InputError
from flaxattn.text.readable_tokens import readable
from flaxattn.text.token_batch import TokenBatch, tokens_to_cut
from flaxattn.text.tokenizer_files import (
    SPECIAL_TOKENS,
    bert_backend,
    checked_texts,
    read_settings,
    read_text,
    read_tokenizer_json,
    read_vocabulary,
)

_UNLIMITED = 1_000_000  # Hugging Face writes int(1e30) as model_max_length for "no limit known"


@dataclass(frozen=True)
class Tokenizer:
    """Turns texts into model input; immutable, so one instance can serve many threads.

    Attributes:
        backend: the `tokenizers.Tokenizer` that does the work; neither pads nor truncates.
        settings: content of `tokenizer_config.json`, written back unchanged by `save`.
    """

    backend: tokenizers.Tokenizer
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dir(cls, path: str | Path, prefix: str = "") -> "Tokenizer":
        """Open the tokenizer of a Hugging Face directory.

        Args:
            path: directory with `tokenizer.json`, or with `vocab.txt` and, where the defaults of
                an uncased BERT do not fit, `tokenizer_config.json`.
            prefix: what the names of these files begin with, as in `target_tokenizer.json`.

        Returns:
            The tokenizer, without any padding or truncation stored in the file.

        Raises:
            CheckpointError: neither file is there, or one of them is damaged.
        """
        folder = Path(path)
        settings = read_settings(folder, prefix)
        if (folder / f"{prefix}tokenizer.json").is_file():
            backend = read_tokenizer_json(folder / f"{prefix}tokenizer.json")
        elif (folder / "vocab.txt").is_file():
            backend = read_vocabulary(folder / "vocab.txt", settings)
        else:
            raise CheckpointError(
                f"no tokenizer in {folder}\n"
                "expected tokenizer.json or vocab.txt, found neither\n"
                "copy the tokenizer files of the model there, or name another directory"
            )
        backend.no_padding()
        backend.no_truncation()
        return cls(backend, settings)

    def save(self, directory: str | Path, prefix: str = "") -> None:
        """Write files that `transformers.AutoTokenizer` opens with identical ids.

        Args:
            directory: made when absent; gets `tokenizer.json`, `tokenizer_config.json` and, for
                WordPiece, `vocab.txt`.
            prefix: what their names begin with, where a directory holds a second tokenizer.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        self.backend.save(str(folder / f"{prefix}tokenizer.json"))
        text = json.dumps(self.settings, ensure_ascii=False, indent=2, sort_keys=True)
        (folder / f"{prefix}tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
        if isinstance(self.backend.model, models.WordPiece):
            pieces = sorted(self.backend.get_vocab().items(), key=lambda item: item[1])
            text = "".join(piece + "\n" for piece, _ in pieces)
            (folder / "vocab.txt").write_text(text, encoding="utf-8")

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        return self.backend.get_vocab_size()

    @property
    def max_length(self) -> int | None:
        """Limit named by the directory's settings; None where it names none."""
        limit = self.settings.get("model_max_length")
        return int(limit) if limit is not None and limit < _UNLIMITED else None

    @property
    def pad_id(self) -> int:
        """Id of the padding token; 0 where there is none, as padding is masked."""
        token = self.settings.get("pad_token")
        known = self.backend.token_to_id(SPECIAL_TOKENS["pad_token"]) is not None
        return self._special("pad_token") if token or known else 0

    @property
    def unk_id(self) -> int:
        """Id that stands for anything outside the vocabulary."""
        return self._special("unk_token")

    @property
    def cls_id(self) -> int:
        """Id of the token that opens a sequence."""
        return self._special("cls_token")

    @property
    def sep_id(self) -> int:
        """Id of the token that closes each text."""
        return self._special("sep_token")

    @property
    def mask_id(self) -> int:
        """Id that hides a token in masked language modelling."""
        return self._special("mask_token")

    def encode(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        truncate: bool = False,
        pad_to: int | None = None,
    ) -> TokenBatch:
        """Turn texts, or pairs of texts, into one padded batch.

        Args:
            texts: one text or several.
            pairs: the second text of each pair, as many as `texts`.
            max_length: most tokens a sequence may have, special tokens counted; by default
                the limit of the directory's settings.
            truncate: cut longer sequences at the end, always from the longer text of a pair.
            pad_to: length to pad to, if above the longest sequence of the batch.

        Returns:
            The batch, with the number of tokens cut per sequence.

        Raises:
            InputError: a text is empty, too long, not a string, or holds a lone surrogate.
        """
        firsts = checked_texts(texts, "text")
        seconds = None if pairs is None else checked_texts(pairs, "second text")
        if seconds is not None and len(seconds) != len(firsts):
            raise InputError(
                "every text needs its pair\n"
                f"expected {len(firsts)} second texts, received {len(seconds)}\n"
                "give both lists the same length"
            )
        limit = self.max_length if max_length is None else max_length
        rows, cut = [], []
        for number, text in enumerate(firsts):
            second = None if seconds is None else seconds[number]
            row, removed = self._one(text, second, limit, truncate, number)
            rows.append(row)
            cut.append(removed)
        return self._batch(rows, cut, pad_to)

    def count(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[int]:
        """Count the tokens of each text or pair before any is cut, special ones included.

        Args:
            texts: checked ones, see `encode`.
            pairs: the second text of each pair.
        """
        extra = self.backend.num_special_tokens_to_add(pairs is not None)
        counts = [extra + len(row) for row in self._fast(texts)]
        if pairs is None:
            return counts
        return [n + len(row) for n, row in zip(counts, self._fast(pairs), strict=True)]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text without special tokens, in one parallel pass: for building data."""
        return [row.ids for row in self._fast(texts)]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of a sequence of ids, spaces as the tokenizer's decoder puts them."""
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=skip_special_tokens)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A readable piece per id; the number itself where the vocabulary has none."""
        found = [self.backend.id_to_token(int(i)) or str(i) for i in ids]
        return readable(found, self.backend.decoder)

    def _special(self, name: str) -> int:
        token = self.settings.get(name, SPECIAL_TOKENS[name])
        token = token["content"] if isinstance(token, dict) else token
        number = self.backend.token_to_id(token)
        if number is None:
            raise CheckpointError(
                f"the vocabulary has no {token}\n"
                f"expected the {name} of tokenizer_config.json among {self.vocab_size} pieces\n"
                "name the right token there, or add it to the vocabulary"
            )
        return number

    def _fast(self, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        return self.backend.encode_batch_fast(list(texts), add_special_tokens=False)

    def _one(
        self, text: str, second: str | None, limit: int | None, truncate: bool, number: int
    ) -> tuple[tokenizers.Encoding, int]:
        one = self.backend.encode(text, add_special_tokens=False)
        two = None if second is None else self.backend.encode(second, add_special_tokens=False)
        extra = self.backend.num_special_tokens_to_add(two is not None)
        lengths = (len(one), 0 if two is None else len(two))
        total = sum(lengths) + extra
        removed = tokens_to_cut(total, limit, extra, truncate, number, text)
        if removed:
            keep = longest_first(lengths, removed)
            one.truncate(keep[0])
            if two is not None:
                two.truncate(keep[1])
        return self.backend.post_process(one, two, True), removed

    def _batch(
        self, rows: list[tokenizers.Encoding], cut: list[int], pad_to: int | None
    ) -> TokenBatch:
        width = max(max(len(row) for row in rows), pad_to or 0)
        pad = self.backend.id_to_token(self.pad_id)
        for row in rows:
            row.pad(width, pad_id=self.pad_id, pad_token=pad)

        def stack(name: str) -> np.ndarray:
            return np.array([getattr(row, name) for row in rows], np.int32)

        mask, special = stack("attention_mask"), stack("special_tokens_mask")
        return TokenBatch(
            input_ids=stack("ids"),
            attention_mask=mask,
            token_type_ids=stack("type_ids"),
            tokens=[readable(row.tokens, self.backend.decoder) for row in rows],
            word_ids=[list(row.word_ids) for row in rows],
            offsets=[list(row.offsets) for row in rows],
            special=(special == 1) | (mask == 0),
            truncated=cut,
        )


def longest_first(lengths: tuple[int, int], removed: int) -> tuple[int, int]:
    """Lengths of two texts after cutting one token at a time from the longer (ties: the second).

    Args:
        lengths: tokens of the first and the second text.
        removed: tokens to cut in all.

    Returns:
        Tokens that stay of each.
    """
    first, second = lengths
    level = min(removed, abs(first - second))
    if first > second:
        first -= level
    else:
        second -= level
    rest = removed - level
    return first - rest // 2, second - (rest - rest // 2)


def train_wordpiece(
    source: Iterable[str | Path],
    vocab_size: int,
    lowercase: bool,
    max_length: int = 512,
    *,
    show_progress: bool = False,
) -> Tokenizer:
    """Learn a BERT WordPiece vocabulary.

    Args:
        source: texts, or `Path`s of UTF-8 text files. It is gone through twice and never held
            together, unless it is an iterator, which can only be gone through once.
        vocab_size: number of pieces, the five special tokens counted.
        lowercase: fold case and strip accents before splitting.
        max_length: limit that the saved tokenizer names.
        show_progress: draw bars on standard error.

    Returns:
        A tokenizer with ids 0 to 4 for [PAD], [UNK], [CLS], [SEP] and [MASK].

    Raises:
        InputError: the source holds no text.
    """
    settings = {
        "do_lower_case": lowercase,
        "model_max_length": max_length,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
        **SPECIAL_TOKENS,
    }
    lines = _Lines(list(source) if isinstance(source, Iterator) else source)
    pieces = list(SPECIAL_TOKENS.values())
    # The trainer numbers continuing letters as it meets them, in the random order of a hash map,
    # and settles ties by number. A first look for these letters makes the result reproducible.
    letters = _learnt(lines, pieces, len(pieces) + 1, settings, False)
    pieces += sorted(p for p in letters if p.startswith("##") and len(p) > 2)
    vocabulary = _learnt(lines, pieces, vocab_size, settings, show_progress)
    if not lines.filled:
        raise InputError(
            "no text to learn a vocabulary from\n"
            f"received {lines.items} files or texts, all empty\n"
            "name text files that hold some text"
        )
    return Tokenizer(bert_backend(vocabulary, settings), settings)


def _learnt(
    lines: "_Lines", pieces: list[str], vocab_size: int, settings: dict[str, Any], progress: bool
) -> dict[str, int]:
    """A vocabulary that begins with some pieces and holds at least every letter."""
    backend = bert_backend({piece: i for i, piece in enumerate(pieces)}, settings)
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=pieces, show_progress=progress
    )
    backend.train_from_iterator(iter(lines), trainer)
    return backend.get_vocab(with_added_tokens=True)


class _Lines:
    """The lines of texts or files, one at a time, and whether any of them holds something."""

    def __init__(self, source: Iterable[str | Path]) -> None:
        self._source = source
        self.items, self.filled = 0, False

    def __iter__(self) -> Iterator[str]:
        self.items = 0
        for item in self._source:
            self.items += 1
            text = read_text(item) if isinstance(item, Path) else item
            self.filled |= bool(text.strip())
            yield from text.split("\n")
