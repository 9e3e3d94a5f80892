# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts that a command is given: as arguments, in files, or through standard input."""

import contextlib
import difflib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from flaxattn.corpus.input_files import KINDS
from flaxattn.errors import InputError
from flaxattn.files import printable

_STDIN = "standard input"
OnDone = Callable[[int], object]


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


def report_empty(lines: Sequence[tuple[str, str]]) -> None:
    """Say on standard error which lines are empty."""
    empty = [where for where, text in lines if not text.strip()]
    if empty:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        typer.echo(f"{empty[0]}{more}: empty, so its translation is empty", err=True)


def cost(count: int, name: str, work: str, unit: str = "texts") -> str:
    """Sentence that says what a command will do, and what that costs."""
    return f"{count:,} {unit}, {name}: {work}"


@contextlib.contextmanager
def progress(what: str, total: int | None, message: str) -> Iterator[OnDone]:
    """Progress of a single stage on standard error."""
    from flaxattn.pipeline.progress_reporter import ProgressReporter

    with ProgressReporter() as shown:
        shown.announce(message)
        shown.expect(what, total)
        yield lambda count: shown(what, count)


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


def check_no_model(argument: str) -> None:
    """Refuse the name or the folder of a model in the place of a text."""
    from flaxattn.pretrained.hub import built_in

    of_model = os.path.isdir(argument) and os.path.isfile(os.path.join(argument, "config.json"))
    if argument in built_in() or of_model:
        shown = printable(argument)
        raise InputError(
            f"{shown} is a model, where a text is expected\n"
            f'give a text, and the model as an option: "The cat is sad." --model {shown}\n'
            "to read these letters themselves, add --text"
        )


def check_no_path(argument: str) -> None:
    """Refuse an argument in place of a text that looks like a path, or is a model."""
    check_no_model(argument)
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
