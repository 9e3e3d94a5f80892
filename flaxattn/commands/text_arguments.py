# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts that a command is given as arguments, in files, or through standard input."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from flaxattn.commands.standard_input import check_no_path
from flaxattn.commands.text_lines import read_lines
from flaxattn.errors import InputError

Texts = Annotated[
    list[str] | None,
    typer.Argument(help="Texts, one per argument; - reads standard input, one per line."),
]
TextFiles = Annotated[
    list[Path] | None,
    typer.Option("--file", "-f", help="File with a text per line; repeat for several."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def named_texts(
    arguments: Sequence[str] | None, files: Sequence[Path] | None, is_text: bool = False
) -> list[tuple[str, str]]:
    """Texts of a command with their places, in the order in which they were given."""
    texts: list[tuple[str, str]] = []
    for number, argument in enumerate(arguments or ([] if files else ["-"]), 1):
        if argument == "-" and not is_text:
            texts += read_lines([])
            continue
        if not is_text:
            check_no_path(argument)
        texts.append((f"text {number}", argument))
    texts += read_lines(files) if files else []
    for place, text in texts:
        if not text.strip():
            raise InputError(f"{place} is empty\nexpected a text\nleave the line out")
    if not texts:
        raise InputError(
            "there is no text\ngive one as an argument, in --file or on standard input"
        )
    return texts
