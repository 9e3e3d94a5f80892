# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Options that commands share: groups of options, lists as values, and Python's names in errors."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, get_type_hints

import typer


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give Typer an option for each field of every parameter whose type is a dataclass."""
    own = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {
        n: p.annotation for n, p in own.items() if dataclasses.is_dataclass(p.annotation)
    }
    by_name = inspect.Parameter.KEYWORD_ONLY
    every: list[inspect.Parameter] = []
    for name, parameter in own.items():
        if name not in groups:
            every.append(parameter.replace(kind=by_name))
            continue
        hints = get_type_hints(groups[name], include_extras=True)
        every += [
            inspect.Parameter(f.name, by_name, default=_default(f), annotation=hints[f.name])
            for f in dataclasses.fields(groups[name])
        ]

    @functools.wraps(command)
    def typed(**values: Any) -> None:
        for name, group in groups.items():
            fields = [field.name for field in dataclasses.fields(group)]
            values[name] = group(**{field: values.pop(field) for field in fields})
        command(**values)

    named: Any = typed
    named.__signature__ = inspect.Signature(every)
    named.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    del named.__wrapped__  # its signature is another
    return typed


def _default(field: dataclasses.Field[Any]) -> Any:
    missing = field.default is dataclasses.MISSING
    return inspect.Parameter.empty if missing else field.default


def numbers(text: str | None, option: str, *, negative: bool = False) -> tuple[int, ...] | None:
    """The numbers in a list such as 0,5-9."""
    if text is None:
        return None
    one = r"-?\d{1,6}" if negative else r"\d{1,6}"
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(rf"\s*({one})(?:-(\d{{1,6}}))?\s*", part, re.ASCII)
        if not ends or (ends[2] and int(ends[2]) < int(ends[1])):
            raise typer.BadParameter(
                f"{text!r} is not a list of numbers such as 0,5-9.", param_hint=option
            )
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return tuple(found)


def named(text: str | None, known: Collection[str] = (), option: str = "") -> list[str]:
    """The names in a list such as entropy,max."""
    found = [name.strip() for name in (text or "").split(",") if name.strip()]
    if unknown := [name for name in found if known and name not in known]:
        raise typer.BadParameter(
            f"{unknown[0]!r} is not one of {', '.join(known)}.", param_hint=option
        )
    return found


def head_numbers(text: str | None, option: str) -> tuple[tuple[int, int], ...]:
    """Layers and heads in a list such as 3.1,3.4."""
    found = []
    for part in () if text is None else text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,6})\.(\d{1,6})\s*", part, re.ASCII)
        if not ends:
            raise typer.BadParameter(
                f"{text!r} is not a list of heads, layer.head, such as 3.1,3.4.", param_hint=option
            )
        found.append((int(ends[1]), int(ends[2])))
    return tuple(found)


_ARGUMENT = re.compile(r"""\b([a-z][a-z_]*)=(True|"[^"\n]*"|'[^'\n]*'|\w[\w.]*)""")
_ADVICE = re.compile(r",? or (?:pass|give|set) ([a-z][a-z_]*)=(?:(?!, or )[^\n])*")
_ALL = re.compile(r"\b([a-z][a-z_]*)=None takes all")
_RENAMED = {"head": "task_head"}  # arguments whose option has another name
_SETTINGS = ("text_column",)  # arguments that are settings of a recipe where one is trained
_CALL = re.compile(r",? or call (?:fa|model)\.[^\n]*")
_CAPTURE = re.compile(
    r"(?:model\.trace\(\w+, )?(?:capture=)?(?:fa\.)?Capture\(((?:\w+=True(?:, )?)+)\)\)?"
)
_INVALID = re.compile(r"(for '(--[a-z-]+)': )Input should be a valid (\w+)[^\n]*")
_WANTED = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}


def in_options(message: str, options: Collection[str]) -> str:
    """Return a message with arguments of Python written as options of a command."""

    def known(name: str) -> bool:
        return _option(name) in options

    message = _CALL.sub("", message)
    message = _CAPTURE.sub(lambda match: f"flaxattn extract --capture {_fields(match[1])}", message)
    message = _ADVICE.sub(lambda match: match[0] if known(match[1]) else "", message)
    message = _ALL.sub(lambda match: f"without {_option(match[1])} all are taken", message)

    def written(match: re.Match[str]) -> str:
        if known(match[1]):
            return _written(match)
        return f"--set {match[0]}" if "--set" in options and match[1] in _SETTINGS else match[0]

    return _ARGUMENT.sub(written, message)


def _fields(arguments: str) -> str:
    """Names among the arguments of `Capture`, as the option `--capture` takes them."""
    return ",".join(re.findall(r"(\w+)=True", arguments))


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
