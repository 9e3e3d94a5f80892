# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Learn vocabularies: WordPiece for BERT, BPE for translation, byte-level BPE for GPT-2.

The algorithms are those of the `tokenizers` package. The same texts give the same tokens.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from flaxattn.errors import InputError
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokenizer_files import SPECIAL_TOKENS, bert_backend, read_text

PAD, EOS, UNK = 0, 1, 2  # ids of the special tokens of `train_bpe`
BPE_TOKENS = ("<pad>", "</s>", "<unk>")
END = "<|endoftext|>"
BYTES_AND_END = 257  # smallest vocabulary of `train_byte_bpe`


def train_wordpiece(
    source: Iterable[str | Path],
    vocab_size: int,
    lowercase: bool,
    max_length: int = 512,
    *,
    show_progress: bool = False,
) -> Tokenizer:
    """Learn a BERT WordPiece vocabulary."""
    settings = {
        "do_lower_case": lowercase,
        "model_max_length": max_length,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
        **SPECIAL_TOKENS,
    }
    lines = _Lines(list(source) if isinstance(source, Iterator) else source)
    tokens = list(SPECIAL_TOKENS.values())
    # The trainer numbers continuing letters as it meets them, in the random order of a hash map,
    # and settles ties by number. A first look for these letters makes the result reproducible.
    letters = _wordpieces(lines, tokens, len(tokens) + 1, settings, False)
    tokens += sorted(p for p in letters if p.startswith("##") and len(p) > 2)
    vocabulary = _wordpieces(lines, tokens, vocab_size, settings, show_progress)
    return Tokenizer(bert_backend(vocabulary, settings), settings)


def train_bpe(
    texts: Iterable[str],
    vocab_size: int,
    max_length: int = 512,
    *,
    split_digits: bool = False,
    show_progress: bool = False,
) -> Tokenizer:
    """Learn byte-pair encoding on characters (Sennrich et al. 2016).

    Words are split at white space, of which any amount counts as one space, and Unicode is brought
    to NFC. No token joins punctuation with something else.
    """
    backend = tokenizers.Tokenizer(models.BPE(unk_token=BPE_TOKENS[UNK], fuse_unk=True))
    space = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), space, normalizers.Strip()])
    words = pre_tokenizers.Metaspace()
    if split_digits:  # a space stays with the digit behind it
        digit = pre_tokenizers.Split(tokenizers.Regex(r"▁?\d"), "isolated")
        words = pre_tokenizers.Sequence([words, digit])
    backend.decoder = decoders.Metaspace()
    eos = BPE_TOKENS[EOS]
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A {eos} $B {eos}", special_tokens=[(eos, EOS)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(BPE_TOKENS), show_progress=show_progress
    )
    # Merges learnt from split punctuation never cross it, so that later a word need not be split,
    # and counts as one word.
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.Punctuation()])
    _learn(backend, _Lines(texts), trainer)
    backend.pre_tokenizer = words
    if backend.get_vocab_size() > vocab_size:
        raise InputError(
            f"a vocabulary of {vocab_size} tokens is too small\n"
            f"the texts have {backend.get_vocab_size() - len(BPE_TOKENS)} characters, and "
            f"{len(BPE_TOKENS)} tokens are special\nraise vocab_size"
        )
    names = dict(zip(("pad_token", "eos_token", "unk_token"), BPE_TOKENS, strict=True))
    return Tokenizer(backend, {**_settings("PreTrainedTokenizerFast", max_length), **names})


def train_byte_bpe(
    texts: Iterable[str], vocab_size: int, max_length: int = 1024, *, show_progress: bool = False
) -> Tokenizer:
    """Learn byte-level byte-pair encoding (Radford et al. 2019 §2.2), which can encode any text.

    Words are split as in GPT-2: a token begins with at most one space and never joins letters,
    digits and other characters.
    """
    if vocab_size < BYTES_AND_END:
        raise InputError(
            f"a vocabulary of {vocab_size} tokens is too small\n"
            f"256 bytes and {END} take {BYTES_AND_END}\nraise vocab_size"
        )
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=show_progress,
    )
    _learn(backend, _Lines(texts), trainer)
    names = dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), END)
    settings = _settings("GPT2Tokenizer", max_length)
    return Tokenizer(backend, {**settings, "add_prefix_space": False, **names})


def _settings(kind: str, max_length: int) -> dict[str, Any]:
    """Content of `tokenizer_config.json`, but for the special tokens."""
    return {
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
        "tokenizer_class": kind,
    }


def _wordpieces(
    lines: "_Lines", tokens: list[str], vocab_size: int, settings: dict[str, Any], progress: bool
) -> dict[str, int]:
    """A vocabulary that begins with some tokens and holds at least every letter."""
    backend = bert_backend({token: i for i, token in enumerate(tokens)}, settings)
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=tokens, show_progress=progress
    )
    _learn(backend, lines, trainer)
    return backend.get_vocab(with_added_tokens=True)


def _learn(backend: tokenizers.Tokenizer, lines: "_Lines", trainer: trainers.Trainer) -> None:
    backend.train_from_iterator(iter(lines), trainer)
    if not lines.filled:
        raise InputError(
            "no text to learn a vocabulary from\n"
            f"received {lines.items} files or texts, all empty\n"
            "give texts, or name files, that hold some"
        )


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
            yield from text.split("\n") if isinstance(item, Path) else (text,)
