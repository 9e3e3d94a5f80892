# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A text that a command is given, as its argument or through standard input.

No command is known here.
"""

import sys

import typer


def given_text(argument: str) -> str:
    """The argument itself, or standard input for `-`.

    Args:
        argument: What was typed.

    Raises:
        typer.BadParameter: If standard input is not UTF-8.
    """
    if argument != "-":
        return argument
    data = sys.stdin.buffer.read()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise typer.BadParameter(
            f"standard input, line {line}: byte 0x{data[error.start]:02x} is not valid UTF-8.\n"
            "Convert the text first, for example: iconv -f latin1 -t utf-8"
        ) from error
