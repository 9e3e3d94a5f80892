# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pages of the command reference, made of the commands' own objects: nothing is written twice."""

import inspect
from typing import Any, NamedTuple

import typer

from flaxattn.cli import app

TITLE = "Command reference"


class Command(NamedTuple):
    """A command with its context, which knows its full name."""

    command: Any
    context: Any

    @property
    def path(self) -> str:
        """Words to type, such as `flaxattn store verify`."""
        return self.context.command_path

    def children(self) -> list["Command"]:
        """Commands of a group in the order of its help, hidden ones too; empty for others."""
        if not hasattr(self.command, "list_commands"):
            return []
        context = type(self.context)
        names = self.command.list_commands(self.context)
        found = [(name, self.command.get_command(self.context, name)) for name in names]
        return [
            Command(command, context(command, info_name=name, parent=self.context))
            for name, command in found
        ]


def root() -> Command:
    """Return the command `flaxattn` itself."""
    command = typer.main.get_command(app)
    return Command(command, command.make_context("flaxattn", [], resilient_parsing=True))


def pages() -> dict[str, str]:
    """Return the Markdown of each page by its file name: an index and a page for each command."""
    top = root()
    commands = [child for child in top.children() if not child.command.hidden]
    names = [child.context.info_name for child in commands]
    rows = [
        f"| [`{child.path}`]({name}.md) | {_cell(_summary(child))} |"
        for name, child in zip(names, commands, strict=True)
    ]
    index = [
        f"# {TITLE}",
        _paragraphs(top),
        "Every command has `--help`. This reference is made of the same definitions. An error is "
        "at most three lines long; the exit code is 0 when the command has done its work, 1 when "
        "damage was found or something failed, 2 for wrong use or input that cannot be used, 75 "
        "after SIGTERM with the state saved (give the same command again), and 130 after Ctrl-C.",
        "| command | what it does |\n|---|---|\n" + "\n".join(rows),
        "## Options before the command",
        _table(top),
        "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```",
    ]
    made = {"index.md": "\n\n".join(index) + "\n"}
    for name, child in zip(names, commands, strict=True):
        made[f"{name}.md"] = "\n\n".join(_sections(child, 1)) + "\n"
    return made


def _sections(entry: Command, level: int) -> list[str]:
    """Heading, help, usage and options of a command, and of the commands below it."""
    usage = entry.command.get_usage(entry.context).removeprefix("Usage: ")
    usage = " ".join(usage.split())
    parts = [
        f"{'#' * level} {entry.path}",
        _paragraphs(entry),
        f"```text\n{usage}\n```",
        _table(entry),
    ]
    for child in entry.children():
        if not child.command.hidden:
            parts += _sections(child, level + 1)
    return [part for part in parts if part]


def _paragraphs(entry: Command) -> str:
    """Help text as Markdown; lines that begin with a command are an example."""
    blocks = inspect.cleandoc(entry.command.help or "").split("\n\n")
    return "\n\n".join(map(_paragraph, blocks))


def _paragraph(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    if all(line.startswith("flaxattn ") for line in lines):
        return "```sh\n" + "\n".join(lines) + "\n```"
    return _escaped(" ".join(lines))


def _summary(entry: Command) -> str:
    return entry.command.get_short_help_str(limit=200)


def _table(entry: Command) -> str:
    """Table of arguments and options, as the help has them."""
    records = [
        parameter.get_help_record(entry.context)
        for parameter in entry.command.get_params(entry.context)
        if "--help" not in parameter.opts
    ]
    rows = [f"| `{_code(record[0])}` | {_cell(record[1])} |" for record in records if record]
    return "| argument or option | meaning |\n|---|---|\n" + "\n".join(rows) if rows else ""


def _code(text: str) -> str:
    return text.replace("|", "\\|")


def _cell(text: str) -> str:
    return _escaped(" ".join(text.split())).replace("|", "\\|")


def _escaped(text: str) -> str:
    """Text whose characters mean themselves in Markdown, but for code in backticks."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):
        for mark in ("\\", "*", "_", "<", ">", "[", "]", "$", "#"):
            parts[at] = parts[at].replace(mark, f"\\{mark}")
        parts[at] = parts[at].replace("--", "\\-\\-")
    return "`".join(parts)
