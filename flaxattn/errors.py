# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The errors a user of flaxattn can cause, and how they speak.

The rule of three lines. A message has at most three: what is wrong, where (what was expected
against what was received), and how to put it right. The command line prints them as they are,
without a traceback, so nothing may be needed from the stack to understand one. Their wording is
tested.

A new class is added only when a caller would want to catch it apart from the others; its name ends
in `Error`, it inherits from `FlaxattnError`, and its docstring says when it is raised. Mistakes of
ours (a broken invariant) are not of this family. `flaxattn.kernels` knows nothing of this file: it
raises plain `ValueError`, `TypeError` or `NotImplementedError`.
"""

import difflib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable

F = typing.TypeVar("F", bound=Callable[..., typing.Any])

_MAKE_ONE = {
    "Trace": 'Make one with fa.from_pretrained("tiny-bert").trace("a text").',
    "Pretrained": 'Load one with fa.from_pretrained("tiny-bert").',
    "HeadTask": 'Make one with fa.head_task(fa.from_pretrained("tiny-bert"), texts).',
    "Store": 'Open one with fa.open_store("folder").',
    "ScoreAccumulator": 'Make one with fa.head_stats(fa.from_pretrained("tiny-bert"), texts).',
    "Roles": 'Make them with fa.head_roles(fa.from_pretrained("tiny-bert"), texts).',
    "HeadScores": 'Make them with fa.detect_heads(fa.from_pretrained("tiny-gpt2")).',
    "HeadCircuits": 'Make them with fa.head_circuits(fa.from_pretrained("tiny-gpt2")).',
    "PatchReport": 'Make one with fa.patch(fa.from_pretrained("tiny-gpt2"), pairs).',
    "HeadConcordance": 'Make one with fa.head_concordance(["report-roles", "report-ablate"]).',
    "LogitLens": 'Make one with fa.logit_lens(fa.from_pretrained("tiny-gpt2"), "a text").',
    "Figure": "Make one with fa.plot_heads(trace).",
    "PathLike": "Give the path of a file or folder.",
    "Path": "Give the path of a file or folder.",
}


class FlaxattnError(ValueError):
    """Something a user gave cannot be used; the message says what, where and how to fix it."""


class InputError(FlaxattnError):
    """Text, ids, masks, a capture request or an option that the model or the view cannot take."""


class UnknownKeywordError(InputError, TypeError):
    """A keyword argument that a function or class does not have; a TypeError as Python's own."""


class CheckpointError(FlaxattnError):
    """A model directory that is missing, incomplete, damaged, or does not match its config."""


class StoreError(FlaxattnError):
    """A store of attention that is damaged or unfinished, or a shard that cannot be written."""


class WriteError(FlaxattnError, OSError):
    """A file that cannot be written, as on a full disk; an OSError as the system's own."""


class UnavailableError(FlaxattnError):
    """Error for a device, package, network or implementation that is not available here."""


class StopRequestedError(BaseException):
    """A long job was stopped (SIGTERM); it has saved its state and can continue.

    No mistake, so not of the family, and `except Exception` lets it through. The command exits
    with code 75.
    """


def check_arguments(count: int = 1, others: Collection[str] = ()) -> Callable[[F], F]:
    """Make a decorator that refuses unknown keywords, and arguments of another type than annotated.

    Args:
        count: Number of parameters, from the first, whose type is checked. Their annotations are
            classes, unions or generic collections; of a collection, the members are not looked at.
        others: Keywords that go into `**`. Without any, those of a function that has `**` are not
            looked at.

    Returns:
        The decorator, of functions and classes. What it decorates raises `InputError` for such an
        argument, and `UnknownKeywordError` for such a keyword.
    """

    def decorate(function: F) -> F:
        target: typing.Any = function
        if isinstance(function, type):
            target.__init__ = _checked(target.__init__, function.__name__, count, others)
            return target
        return _checked(target, target.__name__, count, others)

    return decorate


def _checked(function: typing.Any, name: str, count: int, others: Collection[str]) -> typing.Any:
    """A function that checks its arguments first, see `check_arguments`."""
    every = list(inspect.signature(function).parameters.values())
    parameters = every[:count]
    known = list(dict.fromkeys((*keywords_of(function), *others)))
    open_ended = not others and any(p.kind is p.VAR_KEYWORD for p in every)

    @functools.wraps(function)
    def checked(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        if not open_ended:
            check_keywords(name, kwargs, known)
        for place, parameter in enumerate(parameters):
            if place < len(args) or parameter.name in kwargs:
                value = args[place] if place < len(args) else kwargs[parameter.name]
                check_type(value, parameter.annotation, name, parameter.name)
        return function(*args, **kwargs)

    return checked


def keywords_of(function: Callable[..., typing.Any]) -> list[str]:
    """Names of the arguments of a function or class that can be given by name.

    Args:
        function: Any with a signature.
    """
    parameters = inspect.signature(function).parameters.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return [name for name in named if name != "self"]


def check_keywords(function: str, keywords: Iterable[str], known: Collection[str]) -> None:
    """Refuse a keyword that a function does not have, and name the nearest that it has.

    Args:
        function: Name of the function or class.
        keywords: Those that it received.
        known: Those that it has.

    Raises:
        UnknownKeywordError: If one of them is unknown.
    """
    for word in keywords:
        if word not in known:
            near = difflib.get_close_matches(word, known, 1)
            raise UnknownKeywordError(
                f"{function}() got an unexpected keyword argument {word!r}.\n"
                f"Known: {', '.join(known)}." + (f"\nDid you mean {near[0]}?" if near else "")
            )


def check_type(value: object, expected: typing.Any, function: str, argument: str) -> None:
    """Refuse a value of another type.

    Args:
        value: Any value.
        expected: A class, a union or a generic collection.
        function: Name of the function that takes it.
        argument: Name of the argument.

    Raises:
        InputError: If it is of another type.
    """
    kinds = _classes(expected)
    if not isinstance(value, kinds):
        names = " or ".join(dict.fromkeys(kind.__name__ for kind in kinds))
        hints = [_MAKE_ONE[kind.__name__] for kind in kinds if kind.__name__ in _MAKE_ONE]
        if type(value).__name__ == "Store" and "Trace" in names:
            hints = ["Give the trace of one of its texts: store[0]."]
        raise InputError(
            f"{function} cannot use this {argument}.\n"
            f"Expected {names}, received {type(value).__name__}.\n"
            f"{hints[0] if hints else 'See the documentation of the function.'}"
        )


def _classes(annotation: typing.Any) -> tuple[type, ...]:
    """The classes of an annotation, generic ones without their members."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return tuple(kind for one in typing.get_args(annotation) for kind in _classes(one))
    return (typing.get_origin(annotation) or annotation,)
