# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Learning a BPE vocabulary for translation, from sentences of one language or of several.

A text becomes pieces whose first one of each word begins with `▁`, and ends with `</s>`. What is
learnt here is used through `flaxattn.text.tokenizer.Tokenizer`.
"""

from collections.abc import Iterable, Iterator

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from flaxattn.errors import InputError
from flaxattn.text.tokenizer import Tokenizer

PAD, EOS, UNK = 0, 1, 2  # ids of the special tokens
SPECIAL_TOKENS = ("<pad>", "</s>", "<unk>")


def train_bpe(
    texts: Iterable[str],
    vocab_size: int,
    max_length: int = 512,
    *,
    split_digits: bool = False,
    show_progress: bool = False,
) -> Tokenizer:
    """Learn byte-pair encoding (Sennrich et al. 2016) on characters.

    Words are parted at white space, of which any amount counts as one space, and Unicode is brought
    to NFC. No piece joins punctuation with something else. The same texts give the same pieces.

    Args:
        texts: sentences; gone through once.
        vocab_size: most pieces, the three special ones counted; fewer where the texts have no more.
        max_length: limit that the tokenizer names to those who use it.
        split_digits: every digit is a piece, so that a model sees what numbers are made of.
        show_progress: draw bars on standard error.

    Returns:
        A tokenizer with ids 0 to 2 for <pad>, </s> and <unk>, which puts </s> behind a text.

    Raises:
        InputError: there is no text, or the vocabulary does not hold its characters.
    """
    backend = _backend(split_digits)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(SPECIAL_TOKENS), show_progress=show_progress
    )
    counted = Counted(texts)
    words = backend.pre_tokenizer
    # Merges learnt from parted punctuation never cross it, so that later a word need not be parted,
    # and is one word to whoever asks which pieces belong together.
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.Punctuation()])
    backend.train_from_iterator(iter(counted), trainer)
    backend.pre_tokenizer = words
    if not counted.filled:
        raise InputError(
            "no text to learn a vocabulary from\n"
            f"received {counted.items} sentences, all empty\n"
            "give sentences that hold some text"
        )
    if backend.get_vocab_size() > vocab_size:
        raise InputError(
            f"a vocabulary of {vocab_size} pieces is too small\n"
            f"the texts have {backend.get_vocab_size() - len(SPECIAL_TOKENS)} characters, and "
            f"{len(SPECIAL_TOKENS)} pieces are special\nraise vocab_size"
        )
    return Tokenizer(backend, _settings(max_length))


def _backend(split_digits: bool) -> tokenizers.Tokenizer:
    """The pipeline around an empty vocabulary."""
    backend = tokenizers.Tokenizer(models.BPE(unk_token=SPECIAL_TOKENS[UNK], fuse_unk=True))
    space = normalizers.Replace(tokenizers.Regex(r"\s+"), " ")
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), space, normalizers.Strip()])
    words = pre_tokenizers.Metaspace()
    if split_digits:  # a space stays with the digit behind it
        digit = pre_tokenizers.Split(tokenizers.Regex(r"▁?\d"), "isolated")
        words = pre_tokenizers.Sequence([words, digit])
    backend.pre_tokenizer = words
    backend.decoder = decoders.Metaspace()
    eos = SPECIAL_TOKENS[EOS]
    backend.post_processor = processors.TemplateProcessing(
        single=f"$A {eos}", pair=f"$A {eos} $B {eos}", special_tokens=[(eos, EOS)]
    )
    return backend


def _settings(max_length: int) -> dict[str, object]:
    """Content of `tokenizer_config.json`."""
    names = dict(zip(("pad_token", "eos_token", "unk_token"), SPECIAL_TOKENS, strict=True))
    return {
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
    }


class Counted:
    """Texts one at a time, and whether any of them holds something."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = texts
        self.items, self.filled = 0, False

    def __iter__(self) -> Iterator[str]:
        for text in self._texts:
            self.items += 1
            self.filled |= bool(text.strip())
            yield text
