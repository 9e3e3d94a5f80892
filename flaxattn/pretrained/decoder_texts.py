# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts of a decoder: prompts in batches, chat templates, and text that grows by tokens.

Batches of prompts are padded on the left. A token of a byte-level vocabulary may end within a
character, and one may hold the end of a stop string and more: which part of a growing text stays,
and where it is to stop, follows from the text alone. A text ends before the stop string that is
complete first, of two that end together before the longer one. Hugging Face leaves the string in;
here it is taken as a mark, no part of the text.
"""

import bisect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from flaxattn.errors import InputError
from flaxattn.models.decoder_config import DecoderConfig, GPT2Config
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.chat_template import FILE, Chat, chats_of, rendered, special_tokens
from flaxattn.text.text_lists import text_list
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokenizer_files import shortened

Batch = tuple[Int[np.ndarray, "B P"], Int[np.ndarray, "B P"]]


def encoded(
    texts: str | Sequence[str],
    reader: Tokenizer,
    limit: int,
    first: int | None,
    special: bool = True,
) -> Batch:
    """Tokens of prompts."""
    items = text_list(texts, "prompt")
    for number, text in enumerate(items):
        if isinstance(text, str) and not text.strip():
            mark = (
                ""
                if first is None
                else f", or {reader.readable_tokens([first])[0]!r} to begin a text"
            )
            raise InputError(
                f"prompt {number} is empty\nreceived {text!r}, after which nothing can follow\n"
                f"give it at least one word{mark}"
            )
    batch = reader.encode(items, max_length=sys.maxsize, special=special)
    sizes = batch.attention_mask.sum(1)
    if (sizes >= limit).any():
        number = int((sizes >= limit).argmax())
        raise InputError(
            f"prompt {number} is too long: {sizes[number]} tokens, this model has room for {limit} "
            f"with those that follow\nreceived: {shortened(items[number])}\nshorten it"
        )
    width = batch.input_ids.shape[1]
    order = (np.arange(width)[None] + sizes[:, None]) % width
    ids, mask = (
        np.take_along_axis(array, order, axis=1)
        for array in (batch.input_ids, batch.attention_mask)
    )
    return ids, mask


def moved_left(
    ids: Int[np.ndarray, "B T"], sizes: Int[np.ndarray, " B"], mask: Int[np.ndarray, "B P"]
) -> tuple[Int[np.ndarray, "B S"], Bool[np.ndarray, "B S"]]:
    """Texts without the padding before their prompts, and which of their positions are real."""
    starts = (mask == 0).sum(1)
    places = starts[:, None] + np.arange((sizes - starts).max())[None]
    real = places < sizes[:, None]
    moved = np.take_along_axis(ids, np.minimum(places, ids.shape[1] - 1), axis=1)
    return np.where(real, moved, 0), real


def check_left(mask: Int[np.ndarray, "B P"]) -> None:
    """Check that prompts are padded on the left."""
    if (np.diff(mask, axis=1) < 0).any() or not mask[:, -1].all():
        raise InputError(
            "attention_mask: a prompt ends in padding, after which nothing can be written\n"
            "pad prompts on the left"
        )


class ChatModel(Pretrained):
    """Base of decoders; the parts are described at `Pretrained`."""

    config: GPT2Config | DecoderConfig
    tokenizer: Tokenizer | None

    def chat_prompt(self, messages: Chat | Sequence[Chat]) -> Any:
        """The text that the model continues with its reply, by its chat template.

        Args:
            messages: Each with `role` ("system", "user", "assistant") and `content`; a last one of
                the assistant is continued. Or a list of such lists.

        Returns:
            A text with its special tokens written out; for several chats, a list.

        Raises:
            InputError: For messages that the template does not take, or a model without one.
        """
        chats = chats_of(messages)
        if chats is None:
            raise InputError(
                f"expected a list of messages, received {type(messages).__name__}\n"
                'give a list such as [{"role": "user", "content": "Hello"}]'
            )
        texts = self._rendered(chats)
        return texts[0] if isinstance(messages[0], Mapping) else texts

    def _tokenizer(self) -> Tokenizer:
        """The tokenizer."""
        self._reader()
        assert self.tokenizer is not None
        return self.tokenizer

    def _rendered(self, chats: Sequence[Chat]) -> list[str]:
        """Chats as the model's template writes them."""
        tokenizer, c = self._tokenizer(), self.config
        if (template := tokenizer.chat_template) is None:
            raise InputError(
                f"the model {self.name!r} has no chat template, so it cannot read messages\n"
                f"expected {FILE}, or chat_template in tokenizer_config.json\n"
                "name a model that was trained on chats, or give the prompt as one text"
            )
        ids = {"bos_token": c.bos_token_id, "eos_token": next(iter(c.end_ids), None)}
        usual = {
            name: None if i is None else tokenizer.convert_ids_to_tokens([i])[0]
            for name, i in ids.items()
        }
        special = special_tokens(tokenizer.settings, usual)
        return [rendered(chat, template, special) for chat in chats]


_UNREADABLE = "\ufffd"  # what decoders make of bytes that are not a character
_MOST_BYTES = 3  # of a character of UTF-8 that is not complete


def stop_strings(stop: str | Sequence[str]) -> tuple[str, ...]:
    """One stop string or several, checked."""
    found = (stop,) if isinstance(stop, str) else tuple(stop)
    for number, one in enumerate(found):
        if not isinstance(one, str) or not one:
            raise InputError(
                f"stop string {number} is {'empty' if one == '' else 'not a string'}\n"
                f"received {one!r}, at which no text can stop\n"
                "leave it out, or give at least one character"
            )
    return found


def end(text: str, stops: Sequence[str]) -> int | None:
    """Length of a text without its stop string and what follows that; None where it has none."""
    starts = ((text.find(stop), len(stop)) for stop in stops)
    found = [(start + size, start) for start, size in starts if start >= 0]
    return min(found)[1] if found else None


def cut(text: str, stops: Sequence[str]) -> str:
    """A finished text up to its stop string; arguments as for `end`."""
    return text[: end(text, stops)]


def certain(text: str, stops: Sequence[str]) -> tuple[str, bool]:
    """The part of an unfinished text that stays whatever follows, and whether it is all of it.

    It holds back characters whose bytes are not complete, and text that may begin a stop string.
    """
    unread = len(text) - len(text.rstrip(_UNREADABLE))
    text = text[: len(text) - min(unread, _MOST_BYTES)]
    if (place := end(text, stops)) is not None:
        return text[:place], True
    longest = max(map(len, stops), default=1)
    for size in range(min(longest - 1, len(text)), 0, -1):
        if any(stop.startswith(text[-size:]) for stop in stops):
            return text[:-size], False
    return text, False


def grown(texts: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """Yield what each state of a growing text adds to the one before."""
    shown, text, ended = 0, "", False
    for text in texts:
        sure, ended = certain(text, stops)
        if len(sure) > shown:
            yield sure[shown:]
            shown = len(sure)
        if ended:
            return
    if rest := cut(text, stops)[shown:]:
        yield rest


def tokens_needed(
    ids: Sequence[int], decode: Callable[[Sequence[int]], str], stops: Sequence[str]
) -> int:
    """Number of generated tokens up to the one that completes a stop string."""

    def ended(count: int) -> bool:
        return certain(decode(ids[:count]), stops)[1]

    return bisect.bisect_left(range(len(ids)), True, key=ended)
