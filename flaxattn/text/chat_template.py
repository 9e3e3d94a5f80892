# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Messages of a chat as the text that a model continues, by the template that came with it.

Templates are programs in Jinja; transformers runs them in a sandbox and is imported only then.
"""

import contextlib
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models

from flaxattn.errors import InputError
from flaxattn.text.tokenizer_files import SPECIAL_TOKENS, read_text, shortened

FILE = "chat_template.jinja"
_NAMES = ("bos_token", "eos_token", *SPECIAL_TOKENS)
Chat = Sequence[Mapping[str, Any]]


def read_template(folder: Path, prefix: str = "") -> str | None:
    """The template that a directory has in a file of its own; None where it has none."""
    path = folder / FILE
    return read_text(path) if path.is_file() and not prefix else None


def default_template(setting: Any) -> str | None:
    """The template for chats without tools among those of `tokenizer_config.json`."""
    if isinstance(setting, list):
        named = {one.get("name"): one.get("template") for one in setting if isinstance(one, dict)}
        setting = named.get("default")
    return setting if isinstance(setting, str) else None


def chats_of(texts: Any) -> list[Chat] | None:
    """The chats that prompts are; None where they are texts."""
    if isinstance(texts, Mapping):
        raise InputError(
            f"a chat is a list of messages, received one message: {shortened(str(dict(texts)))}\n"
            "put it into a list"
        )
    if not isinstance(texts, Sequence) or isinstance(texts, str) or not texts:
        return None
    if isinstance(texts[0], Mapping):
        chats = [texts]
    elif isinstance(texts[0], Sequence) and texts[0] and isinstance(texts[0][0], Mapping):
        chats = list(texts)
    else:
        return None
    for number, chat in enumerate(chats):
        _check(chat, number)
    return chats


def rendered(chat: Chat, template: str, special: Mapping[str, str]) -> str:
    """The text that a model continues with its reply.

    A last message of the assistant is continued; behind another one a new message begins.
    """
    going_on = chat[-1]["role"] == "assistant"
    try:
        with quiet_transformers():
            from transformers import PreTrainedTokenizerFast  # takes seconds

            empty = Tokenizer(models.BPE())  # no token is read here
            names: dict[str, Any] = dict(special)
            text = PreTrainedTokenizerFast(tokenizer_object=empty, **names).apply_chat_template(
                [dict(message) for message in chat],
                chat_template=template,
                tokenize=False,
                add_generation_prompt=not going_on,
                continue_final_message=going_on,
            )
    except Exception as error:  # a template raises whatever its author makes it raise
        roles = ", ".join(message["role"] for message in chat)
        raise InputError(
            f"the model's chat template does not take these messages\n"
            f"received the roles {roles}: {shortened(str(error) or type(error).__name__, 200)}\n"
            "change the messages, or compare the template with the original"
        ) from error
    return str(text)


def special_tokens(settings: Mapping[str, Any], usual: Mapping[str, str | None]) -> dict[str, str]:
    """Special tokens by name, as they are written."""
    tokens = {**usual, **{name: settings[name] for name in _NAMES if name in settings}}
    tokens = {n: t.get("content") if isinstance(t, Mapping) else t for n, t in tokens.items()}
    return {name: token for name, token in tokens.items() if isinstance(token, str)}


def _check(chat: Any, number: int) -> None:
    if not isinstance(chat, Sequence) or isinstance(chat, str) or not chat:
        raise InputError(
            f"chat {number} has no messages\nreceived {shortened(repr(chat))}\n"
            'give a list such as [{"role": "user", "content": "Hello"}]'
        )
    for place, message in enumerate(chat):
        role = message.get("role") if isinstance(message, Mapping) else None
        if not isinstance(role, str) or not ("content" in message or "tool_calls" in message):
            raise InputError(
                f"message {place} of chat {number} has no role or no content\n"
                f"received {shortened(repr(message))}\n"
                'give each message both: {"role": "user", "content": "Hello"}'
            )


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Use transformers without its advice to install torch or sacremoses; nothing needs them."""
    before = os.environ.get("TRANSFORMERS_VERBOSITY")
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if before is None:
            del os.environ["TRANSFORMERS_VERBOSITY"]
        else:
            os.environ["TRANSFORMERS_VERBOSITY"] = before
