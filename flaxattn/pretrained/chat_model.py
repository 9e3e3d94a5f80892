# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A model with a tokenizer that may have a chat template: messages as prompts.

What follows the prompts is not known here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from flaxattn.errors import InputError
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.gpt2_config import GPT2Config
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.chat_template import FILE, Chat, chats_of, rendered, special_tokens
from flaxattn.text.tokenizer import Tokenizer


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
