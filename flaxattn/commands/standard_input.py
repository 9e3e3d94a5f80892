# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A text that a command is given, as its argument or through standard input.

An argument that looks like a path is not taken for a text. No command is known here.
"""

import difflib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from flaxattn.corpus.lines import KINDS
from flaxattn.corpus.safe_text import printable
from flaxattn.errors import InputError

# Extensions of files that the commands read or write, and of packed ones.
_EXTENSIONS = {
    *KINDS,
    *(".gz", ".zst", ".conllu", ".conll", ".json", ".npz", ".npy", ".safetensors", ".html"),
    *(".md", ".yaml", ".png", ".svg", ".pdf", ".zarr"),
}
_NEAR = 3  # names that are suggested

IsText = Annotated[
    bool, typer.Option("--text", help="Read the argument as text even if it looks like a path.")
]


def given_text(argument: str, is_text: bool = False) -> str:
    """The argument itself, or standard input for `-`."""
    if not is_text:
        check_no_path(argument)
    if argument != "-" or is_text:
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


def check_no_path(argument: str) -> None:
    """Refuse an argument in place of a text that looks like a path."""
    if not _looks_like_path(argument):
        return
    shown = printable(argument)
    if os.path.exists(argument):
        raise InputError(
            f"{shown} is a file or folder, where a text is expected\n"
            "to read the text in a file, give - as the text and the file as standard input: "
            "- < FILE\nto read these letters themselves, add --text"
        )
    kind = "trace file" if argument.endswith(".safetensors") else "file or folder"
    raise InputError(
        f"There is no {kind} '{shown}'.\n{_suggestion(Path(argument))}\n"
        "correct the path, or add --text to read these letters as text"
    )


def _looks_like_path(argument: str) -> bool:
    """A separator or a known extension, no space, and at least one letter: no date has one."""
    if argument.split() != [argument] or not any(c.isalpha() for c in argument):
        return False
    return os.sep in argument or Path(argument.lower()).suffix in _EXTENSIONS


def _suggestion(path: Path) -> str:
    try:
        names = os.listdir(path.parent)
    except OSError:
        return f"the folder {printable(str(path.parent))} is not there either"
    near = difflib.get_close_matches(path.name, names, _NEAR)
    if not near:
        return f"nothing in {printable(str(path.parent.absolute()))} has a name like it"
    return f"names like it: {', '.join(printable(str(path.parent / name)) for name in near)}"
