# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From YAML and `key=value` words to a recipe, with every name, type and choice checked.

It knows no recipe in particular: names, types and choices are those of the dataclass.
"""

import dataclasses
import difflib
import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import yaml

from flaxattn.errors import InputError
from flaxattn.train.recipe import Recipe

R = TypeVar("R", bound=Recipe)
_DEEPEST = 8
_BEGINS = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_ENDS = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)


def read_recipe(
    kind: type[R],
    path: Path | None,
    overrides: Sequence[str] = (),
    named: Mapping[str, Any] = MappingProxyType({}),
) -> R:
    """Recipe of a YAML file, changed by `key=value` pairs and then by named settings."""
    values: dict[str, Any] = {}
    if path is not None:
        values.update(_read_yaml(path))
        build(kind, values, str(path))
    for pair in overrides:
        name, equals, text = pair.partition("=")
        if not equals:
            raise InputError(
                f"--set {pair!r} is not a setting\nexpected key=value\nfor example --set steps=1000"
            )
        try:
            values[name.strip()] = _loaded(text)
        except (yaml.YAMLError, ValueError) as error:
            raise InputError(
                f"--set {pair!r}: the value is not YAML\n"
                f"{str(error).splitlines()[0]}\n"
                "quote it as YAML does"
            ) from error
    recipe = build(kind, values, "--set" if overrides else str(path))
    given = {name: value for name, value in named.items() if value is not None}
    checked = build(kind, given, "options")
    return dataclasses.replace(recipe, **{name: getattr(checked, name) for name in given})


def build(kind: type[R], values: Mapping[str, Any], where: str = "recipe") -> R:
    """Check names and types and build a recipe.

    Args:
        kind: Class of the recipe.
        values: Any subset of its fields.
        where: Name of the source in error messages.

    Raises:
        InputError: An unknown name, with the nearest known one, or a value of the wrong type.
    """
    types = get_type_hints(kind)
    for name in values:
        if name not in types:
            near = difflib.get_close_matches(str(name)[:100], types, 1)
            near = near or [known for known in types if _initials(known) == name]
            raise InputError(
                f"{where}: no such setting {reprlib.repr(name)}\n"
                + (f"the nearest is {near[0]!r}\n" if near else "")
                + f"settings: {', '.join(list(types)[:4])}, … ({len(types)} in all: --print-config)"
            )
    defaults = kind()
    checked = {
        name: _typed(name, value, types[name], where, getattr(defaults, name))
        for name, value in values.items()
    }
    return kind(**checked)


def _initials(name: str) -> str:
    """First letters of the words of a setting: `lr` of `learning_rate`."""
    return "".join(word[0] for word in name.split("_"))


def to_yaml(recipe: Recipe) -> str:
    """The recipe as a YAML file that `read_recipe` takes."""
    return yaml.safe_dump(recipe.to_dict(), sort_keys=False)


def _read_yaml(path: Path) -> dict[str, Any]:
    own = Path(__file__).with_name(f"{path.name}.yaml")
    if path.name == str(path) and not path.exists() and own.is_file():
        path = own
    try:
        values = _loaded(path.read_text(encoding="utf-8"))
    except OSError as error:
        own = sorted(recipe.stem for recipe in Path(__file__).parent.glob("*.yaml"))
        raise InputError(
            f"cannot read recipe {path}: {error.strerror}\n"
            f"name a YAML file, or a recipe of flaxattn: {', '.join(own)}"
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        line = str(error).splitlines()[0]
        raise InputError(f"recipe {path} is not YAML\n{line}\nwrite key: value lines") from error
    if not isinstance(values, dict):
        raise InputError(
            f"recipe {path} holds no settings\n"
            f"expected key: value lines, received {type(values).__name__}"
        )
    return values


def _loaded(text: str) -> Any:
    """Parse YAML."""
    depth = 0
    for token in yaml.scan(text, yaml.SafeLoader):
        depth += isinstance(token, _BEGINS) - isinstance(token, _ENDS)
        if depth > _DEEPEST:
            raise ValueError(f"it is nested more than {_DEEPEST} deep")
    return yaml.safe_load(text)


def _typed(name: str, value: Any, kind: Any, where: str, example: Any) -> Any:
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_typed(name, item, inner, where, example) for item in items)
    if get_origin(kind) is Literal:
        return _chosen(name, value, get_args(kind), where)
    allowed = get_args(kind) or (kind,)
    if float in allowed and isinstance(value, str):
        value = _number(value)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) in allowed:
        return value
    wanted = " or ".join("none" if t is NoneType else t.__name__ for t in allowed)
    shown = f"'{name}={list(example)}'" if isinstance(example, tuple) else f"{name}={example}"
    raise InputError(
        f"{where}: {name} must be {wanted}\n"
        f"received {reprlib.repr(value)} of type {type(value).__name__}\n"
        f"write for example {shown}"
    )


def _chosen(name: str, value: Any, choices: tuple[str, ...], where: str) -> str:
    if value in choices:
        return value
    near = difflib.get_close_matches(reprlib.repr(value).strip("'"), choices, 1)
    raise InputError(
        f"{where}: {name} {reprlib.repr(value)} is unknown\n"
        f"choose {', '.join(map(repr, choices))}"
        + (f"; the nearest is {near[0]!r}" if near else "")
    )


def _number(text: str) -> float | str:
    try:
        return float(text)  # YAML 1.1 reads 1e-4, without a dot, as a string
    except ValueError:
        return text
