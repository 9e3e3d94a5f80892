# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the Python API in the words of the command line: `truncate=True` is `--truncate`.

Errors are written for Python. A command prints its own options in place of arguments.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

_ARGUMENT = re.compile(r"""\b([a-z][a-z_]*)=(True|"[^"\n]*"|'[^'\n]*'|\w[\w.]*)""")
_ADVICE = re.compile(r",? or (?:pass|give|set) ([a-z][a-z_]*)=(?:(?!, or )[^\n])*")
_ALL = re.compile(r"\b([a-z][a-z_]*)=None takes all")
_RENAMED = {"head": "task_head"}  # arguments whose option has another name
_CALL = re.compile(r",? or call (?:fa|model)\.[^\n]*")
_INVALID = re.compile(r"(for '(--[a-z-]+)': )Input should be a valid (\w+)[^\n]*")
_WANTED = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}


def in_options(message: str, options: Collection[str]) -> str:
    """Return a message with arguments of Python written as options of a command."""

    def known(name: str) -> bool:
        return _option(name) in options

    message = _CALL.sub("", message)
    message = _ADVICE.sub(lambda match: match[0] if known(match[1]) else "", message)
    message = _ALL.sub(lambda match: f"without {_option(match[1])} all are taken", message)
    return _ARGUMENT.sub(lambda match: _written(match) if known(match[1]) else match[0], message)


def _option(name: str) -> str:
    return f"--{_RENAMED.get(name, name).replace('_', '-')}"


def _written(match: re.Match[str]) -> str:
    value = match[2].strip("\"'")
    if value in ("True", "False"):
        return _option(match[1] if value == "True" else f"no_{match[1]}")
    return f"{_option(match[1])} {value if value.isalnum() else match[2]}"


def plain_value(message: str, words: Sequence[str]) -> str:
    """Return a message about a value of the wrong type with that value and in plain words."""
    found = _INVALID.search(message)
    plain = [part for word in words for part in word.split("=", 1)]  # `--limit=3` too
    if found is None or found[2] not in plain[:-1]:
        return message
    value = plain[plain.index(found[2]) + 1]
    return _INVALID.sub(f"{found[1]}{value!r} is not {_WANTED.get(found[3], found[3])}.", message)


def typed_command(command: Any, words: Sequence[str]) -> str:
    """Return the name of the command that was typed, such as `flaxattn train mlm`."""
    return " ".join(["flaxattn", *_typed(command, words)[1]])


def options_of(command: Any, words: Sequence[str]) -> set[str]:
    """Return the options of the command that was typed."""
    return {option for parameter in _typed(command, words)[0].params for option in parameter.opts}


def _typed(command: Any, words: Sequence[str]) -> tuple[Any, list[str]]:
    """The command that was typed, and the words that name it."""
    context, names = command.make_context("flaxattn", [], resilient_parsing=True), []
    for word in words:
        if (find := getattr(command, "get_command", None)) and (found := find(context, word)):
            command, names = found, [*names, word]
    return command, names
