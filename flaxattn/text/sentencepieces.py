# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The tokenizers of Marian checkpoints: a SentencePiece model for each side, ids from vocab.json.

The `sentencepiece` package (the extra `translation`) cuts the text; everything else that a model
reads with is `flaxattn.text.tokenizer.Tokenizer`.
"""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flaxattn.errors import CheckpointError, InputError, UnavailableError
from flaxattn.text.token_batch import TokenBatch, tokens_to_cut
from flaxattn.text.tokenizer_files import checked_texts, read_settings
from flaxattn.trace.tensor_file import read_json

SOURCE, TARGET = "source.spm", "target.spm"
_LANGUAGE = re.compile(r">>[^<>]*<<")
_SPACE = "▁"  # begins a piece that begins a word
_SPECIAL = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class _Piece(NamedTuple):
    """A piece of a text: its id, the word it belongs to (None: special), and its characters."""

    id: int
    word: int | None
    place: tuple[int, int]


@dataclass(frozen=True, eq=False)
class SentencePieces:
    """Turns texts of one side into model input.

    Attributes:
        processor: a `sentencepiece.SentencePieceProcessor`.
        vocabulary: piece to id.
        settings: content of `tokenizer_config.json`, written back unchanged by `save`.
    """

    processor: Any
    vocabulary: Mapping[str, int]
    settings: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dir(cls, path: str | Path) -> tuple["SentencePieces", "SentencePieces"]:
        """Open the tokenizers of a Marian directory: of the source, and of the target.

        Args:
            path: directory with `source.spm`, `target.spm`, `vocab.json` and, where the two sides
                have vocabularies of their own, `target_vocab.json`.

        Raises:
            CheckpointError: a file is missing or damaged.
            UnavailableError: the package `sentencepiece` is not installed.
        """
        folder = Path(path)
        settings = read_settings(folder)
        names = ["vocab.json", "vocab.json"]
        if settings.get("separate_vocabs"):
            names[1] = "target_vocab.json"
        missing = [name for name in (SOURCE, TARGET, *names) if not (folder / name).is_file()]
        if missing:
            raise CheckpointError(
                f"no {missing[0]} in {folder}\n"
                f"a Marian tokenizer has {', '.join(dict.fromkeys((SOURCE, TARGET, *names)))}\n"
                "copy the missing file there"
            )
        source, target = (
            cls(_processor(folder / model), _vocabulary(folder / vocabulary), settings)
            for model, vocabulary in zip((SOURCE, TARGET), names, strict=True)
        )
        return source, target

    def save(self, directory: str | Path, prefix: str = "") -> None:
        """Write files that `transformers.MarianTokenizer` opens with identical ids.

        Args:
            directory: made when absent.
            prefix: empty for the tokenizer of the source, anything else for that of the target.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        model = TARGET if prefix else SOURCE
        (folder / model).write_bytes(self.processor.serialized_model_proto())
        apart = prefix and self.settings.get("separate_vocabs")
        _write(folder / ("target_vocab.json" if apart else "vocab.json"), dict(self.vocabulary))
        _write(folder / "tokenizer_config.json", self.settings)

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self.vocabulary)

    def encode(
        self,
        texts: str | Sequence[str],
        *,
        max_length: int | None = None,
        truncate: bool = False,
    ) -> TokenBatch:
        """Turn texts into one padded batch.

        A text for a model of several target languages begins with the tag of one, such as
        `>>deu<<`. As published, pieces that vocab.json lacks are the unknown token.

        Args:
            texts: one text or several.
            max_length: most tokens of a text, the closing one counted.
            truncate: cut longer ones at the end.

        Raises:
            InputError: a text is empty, too long, not a string, or has the tag of a language that
                the model does not know.
        """
        rows, cut = [], []
        for number, text in enumerate(checked_texts(texts, "text")):
            row = self._cut_up(text, number)
            removed = tokens_to_cut(len(row) + 1, max_length, 1, truncate, number, text)
            rows.append([*row[: len(row) - removed], self._mark("eos_token")])
            cut.append(removed)
        width = max(len(row) for row in rows)
        filled = [row + [self._mark("pad_token")] * (width - len(row)) for row in rows]
        ids = np.array([[piece.id for piece in row] for row in filled], np.int32)
        lengths = np.array([len(row) for row in rows])
        return TokenBatch(
            input_ids=ids,
            attention_mask=(np.arange(width) < lengths[:, None]).astype(np.int32),
            token_type_ids=np.zeros_like(ids),
            tokens=[self.pieces(row) for row in ids.tolist()],
            word_ids=[[piece.word for piece in row] for row in filled],
            offsets=[[piece.place for piece in row] for row in filled],
            special=np.array([[piece.word is None for piece in row] for row in filled]),
            truncated=cut,
        )

    def count(self, texts: Sequence[str]) -> list[int]:
        """Count the tokens of each text before any is cut, the closing one included.

        Args:
            texts: checked ones, see `encode`.

        Raises:
            InputError: a text has the tag of a language that the model does not know.
        """
        return [len(self._cut_up(text, number)) + 1 for number, text in enumerate(texts)]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of a sequence of ids."""
        special = {self._id(name) for name in _SPECIAL}
        kept = [int(i) for i in ids if not (skip_special_tokens and int(i) in special)]
        names = [self._names.get(i, str(i)) for i in kept]
        return str(self.processor.decode_pieces(names)).replace(_SPACE, " ").strip()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A readable piece per id; the number itself where the vocabulary has none."""
        return [self._names.get(int(i), str(i)).replace(_SPACE, " ") for i in ids]

    @functools.cached_property
    def _names(self) -> dict[int, str]:
        return {number: piece for piece, number in self.vocabulary.items()}

    def _cut_up(self, text: str, number: int) -> list[_Piece]:
        tag = _LANGUAGE.match(text)
        start = tag.end() if tag else 0
        row = [_Piece(self._language(tag.group(), number), None, (0, 0))] if tag else []
        raw, unknown, word = text[start:].encode(), self._id("unk_token"), -1
        for piece in self.processor.encode(text[start:], out_type="proto").pieces:
            word += piece.piece.startswith(_SPACE) or word < 0
            begin, end = (len(raw[:at].decode()) for at in (piece.begin, piece.end))  # from bytes
            found = self.vocabulary.get(piece.piece, unknown)
            row.append(_Piece(found, word, (start + begin, start + end)))
        return row

    def _language(self, tag: str, number: int) -> int:
        if tag not in self.vocabulary:
            known = sorted(piece for piece in self.vocabulary if _LANGUAGE.fullmatch(piece))
            names = f"{', '.join(known[:8])}{' …' if known[8:] else ''}" or "no language tag"
            raise InputError(
                f"text {number} begins with {tag}, a language this model does not know\n"
                f"its vocabulary has {names}\n"
                "begin the text with one of these, or with none"
            )
        return self.vocabulary[tag]

    def _mark(self, name: str) -> _Piece:
        return _Piece(self._id(name), None, (0, 0))

    def _id(self, name: str) -> int:
        token = self.settings.get(name, _SPECIAL[name])
        token = token["content"] if isinstance(token, dict) else token
        if token not in self.vocabulary:
            raise CheckpointError(
                f"vocab.json has no {token}\n"
                f"expected the {name} among its {len(self.vocabulary)} pieces\n"
                "fetch the file again, or name the right token in tokenizer_config.json"
            )
        return self.vocabulary[token]


def _processor(path: Path) -> Any:
    try:
        from sentencepiece import SentencePieceProcessor  # an extra: only Marian needs it
    except ImportError as error:
        raise UnavailableError(
            f"{path.parent} needs the package sentencepiece to read text\n"
            'install it with: pip install "flaxattn[translation]"'
        ) from error
    try:
        return SentencePieceProcessor(model_file=str(path))
    except (OSError, RuntimeError) as error:
        raise CheckpointError(
            f"{path} is not a SentencePiece model\n{str(error)[:80]}\nfetch the file again"
        ) from error


def _vocabulary(path: Path) -> dict[str, int]:
    vocabulary = read_json(path)
    if not vocabulary or not all(isinstance(number, int) for number in vocabulary.values()):
        raise CheckpointError(f"{path} is no vocabulary: expected pieces with their ids")
    return vocabulary


def _write(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, ensure_ascii=False, indent=2)
    path.write_text(text + "\n", encoding="utf-8")
