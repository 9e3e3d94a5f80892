# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers that only `transformers` can read: SentencePiece files, vocabularies of other kinds.

Importing transformers takes seconds, so it happens when such a directory is opened and not before.
"""

import dataclasses
import functools
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flaxattn.errors import CheckpointError, InputError, UnavailableError
from flaxattn.text import tokenizer_files
from flaxattn.text.tokenizer import ForeignTokenizerError, Tokenizer
from flaxattn.text.tokenizer_files import checked_texts, read_settings, shortened, tokenizer_class
from flaxattn.text.tokens import (
    CallableTokenizer,
    PlaceError,
    Reader,
    TokenBatch,
    token_spans,
    tokens_to_cut,
    words_read,
)

MARIAN = "source.spm"  # a tokenizer for each side
_SENTENCEPIECE = ("*.spm", "*.model")
_OTHERS = ("vocab.json", "merges.txt", "bpe.codes")
_SPACE = "▁"  # begins a token that begins a word


def has_vocabulary(folder: Path) -> bool:
    """Return whether a directory holds a vocabulary that transformers may read."""
    return any(next(folder.glob(name), None) for name in (*_SENTENCEPIECE, *_OTHERS))


def load(folder: Path, *, target: bool = False) -> "Tokenizer | PythonTokenizer":
    """Read a tokenizer with transformers."""
    if any(next(folder.glob(name), None) for name in _SENTENCEPIECE):
        _require_sentencepiece(folder)
    settings = read_settings(folder)
    if (folder / MARIAN).is_file():
        _check_marian(folder, settings)
    try:
        with tokenizer_files.quiet_transformers():
            from transformers import AutoTokenizer, MarianTokenizer  # takes seconds, see above

            kind = MarianTokenizer if (folder / MARIAN).is_file() else AutoTokenizer
            theirs = kind.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False
            )
        numbers = theirs.get_vocab().values()
    except Exception as error:  # transformers raises whatever the damaged file makes it raise
        name = tokenizer_class(folder, settings) or "tokenizer"
        raise CheckpointError(
            f"transformers cannot read the {name} in {folder}\n{shortened(str(error), 200)}\n"
            "fetch its files again, or convert it to a tokenizer.json"
        ) from error
    if not numbers or not all(isinstance(number, int) for number in numbers):
        raise CheckpointError(
            f"the tokenizer in {folder} has no vocabulary\n"
            "expected tokens with integer ids\nfetch its files again"
        )
    if (backend := getattr(theirs, "backend_tokenizer", None)) is None:
        return PythonTokenizer(theirs, target)
    backend.no_padding()
    backend.no_truncation()
    special = {name: str(token) for name, token in theirs.special_tokens_map.items()}
    length = {"model_max_length": theirs.model_max_length}
    return Tokenizer(
        backend, {**length, **settings, **special}, tokenizer_files.read_template(folder)
    )


class _Row(NamedTuple):
    """Tokens of one text, special ones included: ids, words, spans of characters, 1 if special."""

    ids: list[int]
    words: list[int | None]
    spans: list[tuple[int, int]]
    special: list[int]


@dataclasses.dataclass(frozen=True, eq=False)
class PythonTokenizer(CallableTokenizer):
    """Text to ids by a tokenizer of transformers that is written in Python.

    Attributes:
        tokenizer: The `transformers.PreTrainedTokenizer`.
        target: Whether texts are translations, where these have a vocabulary of their own.
    """

    tokenizer: Any
    target: bool = False

    def save(self, directory: str | Path, prefix: str = "") -> None:
        """Write files that `transformers.AutoTokenizer` opens with identical ids."""
        if not prefix:
            self.tokenizer.save_pretrained(str(directory))

    @property
    def class_name(self) -> str:
        """Name of the class of transformers."""
        return type(self.tokenizer).__name__

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self._vocabulary)

    @property
    def largest_id(self) -> int:
        """Largest id that a text may be given."""
        return max(self._vocabulary.values(), default=0)

    @property
    def max_length(self) -> int | None:
        """None: the model names the limit."""
        return None

    def token_types(self) -> bool:
        """Return False: a text has no second one."""
        return False

    def encode(
        self,
        texts: str | Sequence[str],
        pairs: None = None,
        *,
        max_length: int | None = None,
        truncate: bool = False,
        pad_to: int | None = None,
    ) -> TokenBatch:
        """Turn texts into one padded batch.

        A text for a Marian model of several target languages begins with the tag of one, such as
        `>>deu<<`.
        """
        if pairs is not None:
            raise InputError("This tokenizer reads single texts.\nLeave the second texts out.")
        rows, cut = [], []
        for number, text in enumerate(checked_texts(texts, "text")):
            row, removed = self._row(text, number, max_length, truncate)
            rows.append(row)
            cut.append(removed)
        width, pad = max(len(row.ids) for row in rows), self.tokenizer.pad_token_id or 0
        width = max(width, pad_to or 0)
        fill = [width - len(row.ids) for row in rows]
        ids = np.array([row.ids + [pad] * n for row, n in zip(rows, fill, strict=True)], np.int32)
        return TokenBatch(
            input_ids=ids,
            attention_mask=(np.arange(width) < width - np.array(fill)[:, None]).astype(np.int32),
            token_type_ids=np.zeros_like(ids),
            tokens=[self.readable_tokens(row) for row in ids.tolist()],
            word_ids=[row.words + [None] * n for row, n in zip(rows, fill, strict=True)],
            offsets=[row.spans + [(0, 0)] * n for row, n in zip(rows, fill, strict=True)],
            special=np.array(
                [row.special + [1] * n for row, n in zip(rows, fill, strict=True)], bool
            ),
            truncated=cut,
        )

    def count(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text before any is cut, special ones included."""
        extra = self.tokenizer.num_special_tokens_to_add()
        return [len(self._tokens(text, i)[0]) + extra for i, text in enumerate(texts)]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of a sequence of ids."""
        return self.tokenizer.decode(
            [int(i) for i in ids], skip_special_tokens=skip_special_tokens, **self._side
        )

    def readable_tokens(self, ids: Sequence[int]) -> list[str]:
        """A readable token per id; the number itself where the vocabulary has none."""
        names = self._names
        return [names.get(int(i), str(i)).replace(_SPACE, " ") for i in ids]

    @functools.cached_property
    def _vocabulary(self) -> Mapping[str, int]:
        separate = self.target and getattr(self.tokenizer, "separate_vocabs", False)
        return self.tokenizer.target_encoder if separate else self.tokenizer.get_vocab()

    @functools.cached_property
    def _names(self) -> dict[int, str]:
        return {number: token for token, number in self._vocabulary.items()}

    @property
    def _side(self) -> dict[str, bool]:
        """The keyword with which a Marian tokenizer decodes its source."""
        marian = hasattr(self.tokenizer, "spm_source")
        return {"use_source_tokenizer": not self.target} if marian else {}

    def _row(self, text: str, number: int, limit: int | None, truncate: bool) -> tuple[_Row, int]:
        tokens, spans, tags = self._tokens(text, number)
        extra = self.tokenizer.num_special_tokens_to_add()
        removed = tokens_to_cut(len(tokens) + extra, limit, extra, truncate, number, text)
        kept = len(tokens) - removed
        unknown = self.tokenizer.unk_token_id
        plain = [self._vocabulary.get(token, unknown) for token in tokens[:kept]]
        ids = self.tokenizer.build_inputs_with_special_tokens(plain)
        first = next(i for i in range(len(ids)) if ids[i : i + kept] == plain)
        after = len(ids) - first - kept
        special = [1] * (first + tags) + [0] * (kept - tags) + [1] * after
        spans = [(0, 0)] * first + spans[:kept] + [(0, 0)] * after
        return _Row(ids, words_read(text, spans, special), spans, special), removed

    def _tokens(self, text: str, number: int) -> tuple[list[str], list[tuple[int, int]], int]:
        """Tokens of a text, their characters, and how many of them are language tags."""
        processor = getattr(self.tokenizer, "spm_target" if self.target else "spm_source", None)
        if processor is None:
            tokens = self.tokenizer.tokenize(text)
            try:
                return tokens, token_spans(text, tokens, [0] * len(tokens)), 0
            except PlaceError as error:
                raise InputError(
                    f"text {number}: token {tokens[error.token]!r} is not found in the text\n"
                    f"expected it at character {error.start}: {shortened(text[error.start :])}\n"
                    "leave the text out, or name a model with a tokenizer.json"
                ) from error
        tags, plain = self.tokenizer.remove_language_code(text)
        for tag in tags:
            self._check_language(tag, number)
        start, raw = len(text) - len(plain), plain.encode()
        parts = processor.encode(plain, out_type="proto").pieces
        spans = [  # the processor counts bytes
            (start + len(raw[: part.begin].decode()), start + len(raw[: part.end].decode()))
            for part in parts
        ]
        return [*tags, *(part.piece for part in parts)], [(0, 0)] * len(tags) + spans, len(tags)

    def _check_language(self, tag: str, number: int) -> None:
        if tag not in self._vocabulary:
            known = sorted(t for t in self._vocabulary if t.startswith(">>") and t.endswith("<<"))
            names = f"{', '.join(known[:8])}{' …' if known[8:] else ''}" or "no language tag"
            raise InputError(
                f"text {number} begins with {tag}, a language this model does not know\n"
                f"its vocabulary has {names}\n"
                "begin the text with one of these, or with none"
            )


def _require_sentencepiece(folder: Path) -> None:
    if importlib.util.find_spec("sentencepiece") is None:
        raise UnavailableError(
            f"{folder} needs the package sentencepiece to read text\n"
            'install it with: pip install "flaxattn[translation]"'
        )


def _check_marian(folder: Path, settings: Mapping[str, Any]) -> None:
    """Name the first file that a Marian tokenizer lacks: transformers does not."""
    names = [MARIAN, "target.spm", "vocab.json"]
    names += ["target_vocab.json"] if settings.get("separate_vocabs") else []
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CheckpointError(
            f"no {missing[0]} in {folder}\n"
            f"a Marian tokenizer has {', '.join(names)}\n"
            "copy the missing file there"
        )


def open_tokenizer(path: str | Path, prefix: str = "") -> Reader | None:
    """Open the tokenizer of a model directory, whatever files it is stored in.

    `tokenizer.json` and BERT's `vocab.txt` are read by `tokenizers`. transformers reads everything
    else, and files that contradict each other, and is imported only then.
    """
    folder = Path(path)
    if (folder / MARIAN).is_file():
        return load(folder, target=bool(prefix))
    own = (f"{prefix}tokenizer.json",) if prefix else ("tokenizer.json", "vocab.txt")
    if any((folder / name).is_file() for name in own):
        try:
            return Tokenizer.from_dir(folder, prefix)
        except ForeignTokenizerError:
            if prefix:
                raise
            return load(folder)
    if prefix or not has_vocabulary(folder):
        return None
    return load(folder)
