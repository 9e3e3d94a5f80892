# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Text to ids and back, with what a reader of attention needs: tokens, words, offsets.

A thin layer over the Hugging Face `tokenizers` package, without `transformers`.
"""

import copy
import functools
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
from tokenizers import models, processors

from flaxattn.errors import CheckpointError, InputError
from flaxattn.text import tokenizer_files
from flaxattn.text.tokenizer_files import (
    BERT_CLASSES,
    ESM,
    OTHER_SPECIAL_TOKENS,
    PYTHON_CLASSES,
    SPECIAL_TOKENS,
    apply_settings,
    checked_texts,
    encoded,
    read_settings,
    read_tokenizer_json,
    read_vocabulary,
    tokenizer_class,
    unmet_setting,
)
from flaxattn.text.tokens import CallableTokenizer, TokenBatch, tokens_to_cut, words_at

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class Spelling(NamedTuple):
    """Spelling of text by the entries of a vocabulary.

    Attributes:
        bytes: Whether each letter stands for a byte, as in GPT-2.
        byte_tokens: Whether entries such as `<0x0A>` stand for a byte, as in Llama 2.
        replaced: Strings in entries, and what they stand for, such as `▁` for a space.
        suffix: End of an entry that ends a word, such as `</w>`; empty for none.
        added: Entries that are text as they are.
    """

    bytes: bool = False
    byte_tokens: bool = False
    replaced: tuple[tuple[str, str], ...] = ()
    suffix: str = ""
    added: frozenset[str] = frozenset()


def spelling_of(backend: tokenizers.Tokenizer) -> Spelling:
    """Spelling of text by a tokenizer, from the steps of its decoder.

    Without a decoder, the steps before the model tell it.
    """
    spelled = Spelling(added=frozenset(t.content for t in _added(backend)))
    steps = list(_pipeline_steps(backend.decoder, "decoders"))
    if not steps:
        steps = list(_pipeline_steps(backend.pre_tokenizer, "pretokenizers"))
        before = _pipeline_steps(backend.normalizer, "normalizers")
        steps += [_space(step) for step in before if step.get("pattern") == {"String": " "}]
        suffix = getattr(backend.model, "end_of_word_suffix", None)
        steps += [{"type": "BPEDecoder", "suffix": suffix}] if suffix else []
    for step in steps:
        match step["type"]:
            case "ByteLevel":
                spelled = spelled._replace(bytes=True)
            case "ByteFallback":
                spelled = spelled._replace(byte_tokens=True)
            case "Metaspace":
                mark = step.get("replacement", "▁")
                spelled = spelled._replace(replaced=(*spelled.replaced, (mark, " ")))
            case "Replace" if isinstance(mark := step["pattern"].get("String"), str) and mark:
                pair = (mark, step["content"])
                spelled = spelled._replace(replaced=(*spelled.replaced, pair))
            case "BPEDecoder":
                spelled = spelled._replace(suffix=step["suffix"])
    return spelled


def readable(tokens: Sequence[str], spelling: Spelling) -> list[str]:
    """Tokens as a person should see them.

    WordPiece tokens stay as BERT shows them (`##ing`). Letters and entries that stand for bytes
    become text again, with an incomplete character as `<0xF0>`. SentencePiece's `▁` becomes the
    space that it stands for, and so does a mark at the end of a word, as `</w>`.
    """
    return [_readable(token, spelling) for token in tokens]


def splits_words(backend: tokenizers.Tokenizer) -> bool:
    """Return whether a tokenizer separates words at spaces before it looks for tokens."""
    if backend.pre_tokenizer is None:
        return False
    text = "a b"
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    return len(backend.pre_tokenizer.pre_tokenize_str(text)) > 1


def _readable(token: str, spelling: Spelling) -> str:
    if token in spelling.added:
        return token
    if spelling.bytes:
        return _from_letters(token)
    if spelling.byte_tokens and (match := _BYTE.fullmatch(token)):
        byte = int(match[1], 16)
        return chr(byte) if byte < 128 else token
    for mark, text in spelling.replaced:
        token = token.replace(mark, text)
    if spelling.suffix and token.endswith(spelling.suffix):
        token = token.removesuffix(spelling.suffix) + " "
    return token


def _added(backend: tokenizers.Tokenizer) -> list[tokenizers.AddedToken]:
    return list(backend.get_added_tokens_decoder().values())


def _pipeline_steps(part: Any, children: str) -> Iterator[dict[str, Any]]:
    """Yield the steps of a part of a tokenizer, those of a sequence one by one."""
    if part is None:
        return
    waiting = [json.loads(part.__getstate__())]
    while waiting:
        step = waiting.pop(0)
        if step["type"] == "Sequence":
            waiting = step[children] + waiting
        else:
            yield step


def _space(step: dict[str, Any]) -> dict[str, Any]:
    """The step of a decoder that undoes a replacement of spaces."""
    return {"type": "Replace", "pattern": {"String": step["content"]}, "content": " "}


def _letters() -> dict[str, int]:
    """Byte of each letter of a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in plain}
    others = (byte for byte in range(256) if byte not in plain)
    table.update({chr(256 + number): byte for number, byte in enumerate(others)})
    return table


_LETTERS = _letters()


def _from_letters(token: str) -> str:
    if any(letter not in _LETTERS for letter in token):
        return token  # no entry of such a vocabulary, kept as it is written
    raw = bytes(_LETTERS[letter] for letter in token)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(chr(b) if b < 128 else f"<0x{b:02X}>" for b in raw)


class ForeignTokenizerError(CheckpointError):
    """The files of a tokenizer that only transformers reads as they are meant."""


_UNLIMITED = 1_000_000  # Hugging Face writes int(1e30) as model_max_length for "no limit known"


@dataclass(frozen=True)
class Tokenizer(CallableTokenizer):
    """Turns texts into model input; immutable, so one instance can serve many threads.

    Attributes:
        backend: The `tokenizers.Tokenizer` that does the work; neither pads nor truncates.
        settings: Content of `tokenizer_config.json`, written back unchanged by `save`.
        template: Content of `chat_template.jinja`, written back too.
        rows: Rows of the model's embedding table; tokens beyond it cannot be read. None for all.
        longest: Most tokens of a text, whatever limit a caller gives.
    """

    backend: tokenizers.Tokenizer
    settings: dict[str, Any] = field(default_factory=dict)
    template: str | None = None
    rows: int | None = None
    longest: int | None = None

    @classmethod
    def from_dir(cls, path: str | Path, prefix: str = "") -> "Tokenizer":
        """Open the tokenizer of a Hugging Face directory."""
        folder = Path(path)
        settings = read_settings(folder, prefix)
        kind = tokenizer_class(folder, settings)
        file = folder / f"{prefix}tokenizer.json"
        if kind in PYTHON_CLASSES:
            raise _foreign(folder, f"its tokenizer_class {kind} has no pipeline in `tokenizers`")
        if file.is_file():
            backend = read_tokenizer_json(file)
            if (unmet := unmet_setting(backend, settings, kind)) is not None:
                fact = (
                    f"{unmet.name}={unmet.value} of tokenizer_config.json contradicts {file.name}"
                )
                raise _foreign(folder, fact)
        elif (folder / "vocab.txt").is_file():
            if kind not in (None, ESM, *BERT_CLASSES):
                raise _foreign(folder, f"its vocab.txt is that of a {kind}, and not of a BERT")
            backend = read_vocabulary(folder / "vocab.txt", settings)
        else:
            raise CheckpointError(
                f"no tokenizer in {folder}\n"
                "expected tokenizer.json or vocab.txt, found neither\n"
                "copy the tokenizer files of the model there, or name another directory"
            )
        apply_settings(backend, folder, settings, kind, prefix)
        backend.no_padding()
        backend.no_truncation()
        return cls(backend, settings, tokenizer_files.read_template(folder, prefix))

    def save(self, directory: str | Path, prefix: str = "") -> None:
        """Write files that `transformers.AutoTokenizer` opens with identical ids."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        self.backend.save(str(folder / f"{prefix}tokenizer.json"))
        text = json.dumps(self.settings, ensure_ascii=False, indent=2, sort_keys=True)
        (folder / f"{prefix}tokenizer_config.json").write_text(text + "\n", encoding="utf-8")
        if self.template is not None:
            (folder / tokenizer_files.FILE).write_text(self.template, encoding="utf-8", newline="")
        if isinstance(self.backend.model, models.WordPiece):
            tokens = sorted(self.backend.get_vocab().items(), key=lambda item: item[1])
            text = "".join(token + "\n" for token, _ in tokens)
            (folder / "vocab.txt").write_text(text, encoding="utf-8")

    @property
    def chat_template(self) -> str | None:
        """Template of chats, in Jinja; None where the directory has none."""
        stored = self.settings.get("chat_template")
        return tokenizer_files.default_template(stored) if self.template is None else self.template

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        return self.backend.get_vocab_size()

    @property
    def largest_id(self) -> int:
        """Largest id that every text is given: of the tokens around it."""
        return max(*self.backend.encode("").ids, *self.backend.encode("", "").ids, 0, 0)

    @property
    def max_length(self) -> int | None:
        """Limit named by the directory's settings; None where it names none."""
        limit = self.settings.get("model_max_length")
        return int(limit) if limit is not None and limit < _UNLIMITED else None

    @property
    def pad_id(self) -> int:
        """Id of the padding token; 0 where the model has none, as padding is masked."""
        number = self.backend.token_to_id(self._name("pad_token"))
        if number is None and self.settings.get("pad_token"):
            return self._special("pad_token")
        return 0 if number is None or (self.rows is not None and number >= self.rows) else number

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
    def mask_token(self) -> str:
        """Text of the token that hides another, such as `[MASK]`."""
        return self._name("mask_token")

    @property
    def mask_id(self) -> int:
        """Id that hides a token in masked language modelling."""
        return self._special("mask_token")

    def token_types(self) -> bool:
        """Return whether models of this tokenizer take token types."""
        return isinstance(self.backend.model, models.WordPiece)

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """Entry of the vocabulary per id; None where it has none. See `tokens` for reading."""
        return [self.backend.id_to_token(int(i)) for i in ids]

    def convert_tokens_to_ids(self, tokens: Sequence[str]) -> list[int | None]:
        """Id per entry of the vocabulary; None where it has none."""
        return [self.backend.token_to_id(token) for token in tokens]

    def encode(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        truncate: bool = False,
        pad_to: int | None = None,
        special: bool = True,
    ) -> TokenBatch:
        """Turn texts, or pairs of texts, into one padded batch."""
        firsts = checked_texts(texts, "text")
        seconds = None if pairs is None else checked_texts(pairs, "second text")
        if seconds is not None and len(seconds) != len(firsts):
            raise InputError(
                "every text needs its pair\n"
                f"expected {len(firsts)} second texts, received {len(seconds)}\n"
                "give both lists the same length"
            )
        limit = self.max_length if max_length is None else max_length
        if self.longest is not None:
            limit = self.longest if limit is None else min(limit, self.longest)
        rows, cut = [], []
        for number, text in enumerate(firsts):
            second = None if seconds is None else seconds[number]
            row, removed = self._one(text, second, limit, truncate, number, special)
            rows.append(row)
            cut.append(removed)
        return self._batch(rows, cut, pad_to, (firsts, seconds))

    def windows(self, text: str, second: str, *, max_length: int, stride: int) -> TokenBatch:
        """Pair a text with overlapping windows of a second one, for models with a short limit."""
        first, other = checked_texts(text, "text"), checked_texts(second, "second text")
        one, size = self._start(first[0], None)
        two, _ = self._start(other[0], None)
        extra = self.backend.num_special_tokens_to_add(True)
        room = max_length - extra - size
        if room <= stride:
            raise InputError(
                f"the first text has {size} tokens, which leave room for {max(room, 0)} of the "
                f"second\nexpected more than the {stride} that windows share, of {max_length} in "
                "all\nshorten the text, or lower stride"
            )
        two.truncate(room, stride=stride)
        parts = [two, *two.overflowing]
        # One by one: some post-processors give the windows behind the first one wrong types.
        rows = [self.backend.post_process(one, part, True) for part in parts]
        return self._batch(rows, [0] * len(rows), None, (first * len(rows), other * len(rows)))

    def count(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[int]:
        """Count the tokens of each text or pair before any is cut, special ones included."""
        extra = self.backend.num_special_tokens_to_add(pairs is not None)
        counts = [extra + n for n in self._counts(texts)]
        if pairs is None:
            return counts
        return [n + more for n, more in zip(counts, self._counts(pairs), strict=True)]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text without special tokens, in one parallel pass: for building data."""
        found = self._fast(texts)
        for number, row in enumerate(found):
            self._check_rows(row, number)
        return [row.ids for row in found]

    def _counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text; long texts are read in segments, the others in one pass."""
        short = iter(self._fast([text for text in texts if len(text) <= SEGMENT]))
        return [
            len(next(short)) if len(text) <= SEGMENT else self._sum(segments_of(text, self.backend))
            for text in texts
        ]

    def _sum(self, segments: Iterable[str]) -> int:
        return sum(len(row) for segment in segments for row in self._fast([segment]))

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of a sequence of ids, spaces as the tokenizer's decoder puts them."""
        numbers = [int(i) for i in ids]
        return encoded(self.backend.decode, numbers, skip_special_tokens=skip_special_tokens)

    def readable_tokens(self, ids: Sequence[int]) -> list[str]:
        """A readable token per id; the number itself where the vocabulary has none."""
        found = [self.backend.id_to_token(int(i)) or str(i) for i in ids]
        return readable(found, self._spelling)

    def _name(self, name: str) -> str:
        """Spelling of a special token: as the settings say, or as a family writes it."""
        usual = (SPECIAL_TOKENS[name], *OTHER_SPECIAL_TOKENS[name])
        present = [token for token in usual if self.backend.token_to_id(token) is not None]
        token = self.settings.get(name) or (present or usual)[0]
        return token["content"] if isinstance(token, dict) else token

    def _special(self, name: str) -> int:
        token = self._name(name)
        number = self.backend.token_to_id(token)
        if number is None:
            raise CheckpointError(
                f"the vocabulary has no {token}\n"
                f"expected the {name} of tokenizer_config.json among {self.vocab_size} tokens\n"
                "name the right token there, or add it to the vocabulary"
            )
        if self.rows is not None and number >= self.rows:
            raise CheckpointError(
                f"the {name} {token} has the id {number}\n"
                f"the embedding table of the model has {self.rows:,} rows, for smaller ids\n"
                "name the right token in tokenizer_config.json, or take the tokenizer of the model"
            )
        return number

    def _fast(self, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        return encoded(self.backend.encode_batch_fast, list(texts), add_special_tokens=False)

    def _one(
        self,
        text: str,
        second: str | None,
        limit: int | None,
        truncate: bool,
        number: int,
        special: bool,
    ) -> tuple[tokenizers.Encoding, int]:
        one, first_length = self._start(text, limit)
        two, second_length = (None, 0) if second is None else self._start(second, limit)
        extra = self.backend.num_special_tokens_to_add(two is not None) if special else 0
        lengths = (first_length, second_length)
        total = sum(lengths) + extra
        removed = tokens_to_cut(total, limit, extra, truncate, number, text)
        if removed:
            keep = longest_first(lengths, removed)
            one.truncate(keep[0])
            if two is not None:
                two.truncate(keep[1])
        return self.backend.post_process(one, two, special), removed

    @functools.cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        """The backend without what it does after splitting, where doing it twice goes wrong.

        Byte-level kinds cut blanks off the ranges of characters, and would cut again.
        """
        trimming = (processors.RobertaProcessing, processors.ByteLevel, processors.Sequence)
        if not isinstance(self.backend.post_processor, trimming):
            return self.backend
        plain = copy.deepcopy(self.backend)
        plain.post_processor = None
        return plain

    def _start(self, text: str, limit: int | None) -> tuple[tokenizers.Encoding, int]:
        """The tokens of a text, of a long one `limit` or more, and the number of all of them."""
        encode = functools.partial(encoded, self._plain.encode, add_special_tokens=False)
        if limit is None:
            encoding = encode(text)
            return encoding, len(encoding)
        segments, more = segments_of(text, self.backend), 1
        start = next(segments)
        encoding = encode(start)
        while len(encoding) < limit and len(start) < len(text):
            start, more = start + "".join(itertools.islice(segments, more)), 2 * more
            encoding = encode(start)
        return encoding, len(encoding) + self._sum(segments)

    @functools.cached_property
    def _spelling(self) -> Spelling:
        return spelling_of(self.backend)

    @functools.cached_property
    def _splits_words(self) -> bool:
        return splits_words(self.backend)

    def _words(self, row: tokenizers.Encoding, *texts: str | None) -> list[int | None]:
        """Word of each token, by the spaces of the texts where the tokenizer splits none."""
        if self._splits_words:
            return list(row.word_ids)
        second = [text == 1 for text in row.sequence_ids]  # the first may have lost its number
        numbers: list[int | None] = [None] * len(row)
        for side, text in enumerate(texts):
            own = [place for place, other in enumerate(second) if other == bool(side)]
            spans, special = row.offsets, row.special_tokens_mask
            found = words_at(
                text or "", [spans[place] for place in own], [special[place] for place in own]
            )
            for place, number in zip(own, found, strict=True):
                numbers[place] = number
        return numbers

    def _batch(
        self,
        rows: list[tokenizers.Encoding],
        cut: list[int],
        pad_to: int | None,
        texts: tuple[list[str], list[str] | None],
    ) -> TokenBatch:
        for number, row in enumerate(rows):
            self._check_rows(row, number)
        width = max(max(len(row) for row in rows), pad_to or 0)
        pad = self.backend.id_to_token(self.pad_id)
        for row in rows:
            row.pad(width, pad_id=self.pad_id, pad_token=pad)

        def stack(name: str) -> np.ndarray:
            return np.array([getattr(row, name) for row in rows], np.int32)

        mask, special = stack("attention_mask"), stack("special_tokens_mask")
        firsts, seconds = texts
        pairs = zip(firsts, seconds or [None] * len(firsts), strict=True)
        return TokenBatch(
            input_ids=stack("ids"),
            attention_mask=mask,
            token_type_ids=np.array([_types(row) for row in rows], np.int32),
            tokens=[readable(row.tokens, self._spelling) for row in rows],
            word_ids=[self._words(row, *pair) for row, pair in zip(rows, pairs, strict=True)],
            offsets=[list(row.offsets) for row in rows],
            special=(special == 1) | (mask == 0),
            truncated=cut,
        )

    def _check_rows(self, encoding: tokenizers.Encoding, number: int) -> None:
        """Refuse a text with a token that the model has no embedding of."""
        if self.rows is None or max(encoding.ids, default=0) < self.rows:
            return
        place = next(place for place, each in enumerate(encoding.ids) if each >= self.rows)
        raise InputError(
            f"text {number} has the token {encoding.tokens[place]!r}\n"
            f"its id {encoding.ids[place]} has no row in the embedding table of {self.rows:,}\n"
            "take that token out of the text, or the tokenizer files of the model"
        )


def _types(row: tokenizers.Encoding) -> list[int]:
    """Number of the text each token is of, also where the tokenizer gives all one type."""
    second = [place for place, text in enumerate(row.sequence_ids) if text == 1]
    if any(row.type_ids) or not second:
        return row.type_ids
    end = len(row) - row.attention_mask[::-1].index(1)  # padding has type 0
    return [int(second[0] <= place < end) for place in range(len(row))]


def _foreign(folder: Path, fact: str) -> ForeignTokenizerError:
    return ForeignTokenizerError(
        f"{folder}: {fact}\n"
        "flaxattn leaves such files to transformers, which reads them where a model is opened\n"
        "open the model with from_pretrained, or convert its tokenizer to a tokenizer.json"
    )


def longest_first(lengths: tuple[int, int], removed: int) -> tuple[int, int]:
    """Lengths of two texts after cutting one token at a time from the longer (ties: the second).

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


SEGMENT = 2**16  # characters at least
_SPACE = re.compile(r"(?<=[^\W_])(?= [^\W_])")
# Behind Chinese and Japanese letters, which need no space, also before punctuation.
_STOP = "[。，、！？；：]"
_SPACE_OR_STOP = re.compile(
    rf"(?<=[^\W_])(?=[ \n][^\W_])|(?<=[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5])(?={_STOP})"
)
# Normalizers that change a character by itself, or together with its combining marks.
_LOCAL = {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Strip", "StripAccents"}
_ONE_SPACE = {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}
_SPLITS_AT_SPACE = {"BertPreTokenizer", "ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit"}


def segments_of(text: str, backend: tokenizers.Tokenizer) -> Iterator[str]:
    """Yield the segments of a text in order; joined, they are the text.

    A tokenizer takes some 200 bytes of memory per character of what it reads at once. A text is cut
    only where its normalizer and pre-tokenizer never join the characters on both sides; where that
    is unknown, it stays whole.
    """
    boundary = _boundary(backend) if len(text) > SEGMENT else None
    start = 0
    while boundary and (match := boundary.search(text, start + SEGMENT)):
        yield text[start : match.start()]
        start = match.start()
    yield text[start:]


def _boundary(backend: tokenizers.Tokenizer) -> re.Pattern[str] | None:
    """Pattern of the places where a text may be cut; None for nowhere."""
    normalizers = _steps(backend.normalizer, "normalizers")
    steps = _steps(backend.pre_tokenizer, "pretokenizers")
    kinds = {step["type"] for step in normalizers if step != _ONE_SPACE}
    added = backend.get_added_tokens_decoder().values()
    joined = any(one.rstrip or re.search(rf"\s|{_STOP}", one.content) for one in added)
    if joined or not steps or not kinds <= _LOCAL or steps[0]["type"] not in _SPLITS_AT_SPACE:
        return None
    first = steps[0]
    spaces_count = first["type"] == "ByteLevel" or first.get("prepend_scheme") == "never"
    whole = not first.get("use_regex", True) or not first.get("split", True)
    if whole or ("Strip" in kinds and spaces_count):  # a segment begins with a space
        return None
    wide = first["type"] in ("BertPreTokenizer", "ByteLevel") and not first.get("add_prefix_space")
    return _SPACE_OR_STOP if wide else _SPACE


def _steps(part: Any, members: str) -> list[dict[str, Any]]:
    """The settings of a normalizer or pre-tokenizer, or of each where it is a sequence."""
    settings = {} if part is None else json.loads(part.__getstate__())
    return settings.get(members, [settings] if settings else [])
