# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Options whose value is a list: numbers such as 0,5-9, heads such as 3.1, or names."""

import re
from collections.abc import Collection

import typer


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
            f"{unknown[0]!r} is none of {', '.join(known)}.", param_hint=option
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
