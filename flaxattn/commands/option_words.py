# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Advice of the Python API in the words of the command line: `truncate=True` is `--truncate`.

The commands themselves are not known here.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any

_ARGUMENT = re.compile(r"""\b([a-z][a-z_]*)=(True|"[^"\n]*"|'[^'\n]*'|\w[\w.]*)""")
_ADVICE = re.compile(r",? or (?:pass|give|set) ([a-z][a-z_]*)=[^\n]*")


def in_options(message: str, options: Collection[str]) -> str:
    """Return a message with arguments of Python written as options of a command."""

    def known(name: str) -> bool:
        return _option(name) in options

    message = _ADVICE.sub(lambda match: match[0] if known(match[1]) else "", message)
    return _ARGUMENT.sub(lambda match: _written(match) if known(match[1]) else match[0], message)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _written(match: re.Match[str]) -> str:
    return _option(match[1]) + ("" if match[2] == "True" else f" {match[2]}")


def options_of(command: Any, words: Sequence[str]) -> set[str]:
    """Return the options of the command that was typed."""
    context = command.make_context("flaxattn", [], resilient_parsing=True)
    for word in words:
        if (find := getattr(command, "get_command", None)) and (found := find(context, word)):
            command = found
    return {option for parameter in command.params for option in parameter.opts}
