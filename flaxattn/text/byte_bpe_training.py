# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Learning a byte-level BPE vocabulary, as GPT-2 has it: any text can be written in it.

A text becomes pieces that give back exactly its bytes. What is learnt here is used through
`flaxattn.text.tokenizer.Tokenizer`.
"""

from collections.abc import Iterable

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from flaxattn.errors import InputError
from flaxattn.text.bpe_training import Counted
from flaxattn.text.tokenizer import Tokenizer

END = "<|endoftext|>"
SMALLEST = 257  # every byte, and the end of a text


def train_byte_bpe(
    texts: Iterable[str], vocab_size: int, max_length: int = 1024, *, show_progress: bool = False
) -> Tokenizer:
    """Learn byte-level byte-pair encoding (Radford et al. 2019 §2.2).

    Words are parted as in GPT-2: a piece begins with at most one space and never joins letters,
    digits and other characters. The same texts give the same pieces.

    Args:
        texts: gone through once.
        vocab_size: most pieces, the 256 bytes and the end of a text counted; fewer where the texts
            have no more.
        max_length: limit that the tokenizer names to those who use it.
        show_progress: draw bars on standard error.

    Returns:
        A tokenizer with id 0 for `<|endoftext|>`, which it adds to no text.

    Raises:
        InputError: there is no text, or the vocabulary is too small.
    """
    if vocab_size < SMALLEST:
        raise InputError(
            f"a vocabulary of {vocab_size} pieces is too small\n"
            f"256 bytes and {END} take {SMALLEST}\nraise vocab_size"
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
    counted = Counted(texts)
    backend.train_from_iterator(iter(counted), trainer)
    if not counted.filled:
        raise InputError(
            "no text to learn a vocabulary from\n"
            f"received {counted.items} texts, all empty\n"
            "give texts that hold something"
        )
    settings = {
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
        "tokenizer_class": "GPT2Tokenizer",
        **dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), END),
    }
    return Tokenizer(backend, settings)
