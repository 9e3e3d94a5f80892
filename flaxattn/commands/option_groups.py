# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share: a dataclass whose fields are options, declared once."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


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
