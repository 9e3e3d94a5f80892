# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Lines of text files, as commands read them: each knows where it stands. No model is here.

Also the sentence with which a command says what it will do with texts.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import typer

from flaxattn.errors import InputError

_STDIN = "standard input"
Seen = Callable[[int], object]


def read_lines(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Yield each line of all files, or of standard input, with its place."""
    found = []
    for path in files or [None]:
        name = _STDIN if path is None else str(path)
        try:
            data = sys.stdin.buffer.read() if path is None else path.read_bytes()
        except OSError as error:
            raise InputError(f"cannot read {name}\n{error.strerror}\nname a text file") from error
        raw = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        for number, line in enumerate(raw[:-1] if raw[-1] == b"" else raw, 1):
            where = f"{name}, line {number}"
            try:
                found.append((where, line.decode("utf-8").removesuffix("\r")))
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{where}: byte {line[error.start]:#04x} at position {error.start + 1} is not "
                    "UTF-8\nconvert the text first, for example: iconv -f latin1 -t utf-8"
                ) from error
    return found


def read_texts(path: Path) -> list[str]:
    """The lines of one file."""
    return [text for _, text in read_lines([path])]


def tell_empty(lines: Sequence[tuple[str, str]]) -> None:
    """Say on standard error which lines are empty."""
    empty = [where for where, text in lines if not text.strip()]
    if empty:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        typer.echo(f"{empty[0]}{more}: empty, so its translation is empty", err=True)


def cost(count: int, name: str, work: str, unit: str = "texts") -> str:
    """Sentence that says what a command will do, and what that costs."""
    return f"{count:,} {unit}, {name}: {work}"


@contextlib.contextmanager
def progress(what: str, total: int | None, message: str) -> Iterator[Seen]:
    """Progress of a single stage on standard error."""
    from flaxattn.pipeline.progress_reporter import ProgressReporter

    with ProgressReporter() as shown:
        shown.announce(message)
        shown.expect(what, total)
        yield lambda count: shown(what, count)
