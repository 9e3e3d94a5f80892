# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts as users hold them: a list, an array, a Series, a column of Arrow or `datasets`."""

from collections.abc import Iterable, Mapping
from typing import Any

from flaxattn.errors import InputError

_TABLES = ("columns", "column_names")  # of pandas and polars; of Arrow and `datasets`
_MISSING = ("NAType", "NaTType")


def text_list(texts: Any, what: str = "text") -> list[Any]:
    """Return texts as a list; one string is a list of one.

    Args:
        texts: A string, or any iterable of texts: a list, tuple, generator, NumPy array, pandas or
            polars Series, Arrow array, or a column of `datasets`.
        what: Name of one item in errors.

    Returns:
        The items as Python objects, in their order. Types other than missing values are not
        checked.

    Raises:
        InputError: For a table, which has several columns, an array that is not one-dimensional,
            what is not iterable, and a missing value (None, NaN or NA).
    """
    if isinstance(texts, str):
        return [texts]
    kind = type(texts).__name__
    if isinstance(texts, Mapping) or any(hasattr(texts, name) for name in _TABLES):
        names = [str(name) for name in _column_names(texts)]
        example = repr(names[0]) if names else "'text'"
        raise InputError(
            f"expected texts, received a {kind} with columns {', '.join(names)[:80] or 'none'}\n"
            f"pass one of its columns, such as table[{example}]"
        )
    several = isinstance(texts, Iterable) and getattr(texts, "ndim", 1) == 1
    if isinstance(texts, bytes) or not several:
        raise InputError(
            f"expected a {what} or a list of them\nreceived {kind}: {texts!r:.60}\n"
            "pass str, or list[str]"
        )
    convert: Any = getattr(texts, "to_pylist", None) or getattr(texts, "tolist", None)
    items: list[Any] = list(texts) if convert is None else list(convert())
    for number, item in enumerate(items):
        if item is None or type(item).__name__ in _MISSING or _is_nan(item):
            raise InputError(
                f"{what} {number} is missing\nexpected str, received {item!r}\n"
                "leave it out, or write a text in its place"
            )
    return items


def _column_names(table: Any) -> list[Any]:
    if isinstance(table, Mapping):
        return list(table)
    names = getattr(table, _TABLES[1], None)  # `columns` of an Arrow table are its arrays
    return list(getattr(table, _TABLES[0]) if names is None else names)


def _is_nan(item: Any) -> bool:
    return isinstance(item, float) and item != item


def some_texts(
    texts: Any, second: Any = None, limit: int | None = None
) -> tuple[list[str], list[str] | None]:
    """Return the first texts as `paired_lists` does, at least one."""
    first, other = paired_lists(texts, second)
    if not first:
        raise InputError("texts: expected at least one text, received none")
    return first[:limit], None if other is None else other[:limit]


def paired_lists(texts: Any, second: Any = None) -> tuple[list[str], list[str] | None]:
    """Return several texts, and the second text of each if there are any, as equally long lists."""
    lists: list[list[str]] = []
    for name, given in (("texts", texts), ("second texts", second)):
        if isinstance(given, str):
            raise InputError(
                f"{name}: received one text, expected a list of them\n"
                f"put it into a list: {[given]!r:.60}"
            )
        lists.append([] if given is None else text_list(given))
    if second is not None and len(lists[0]) != len(lists[1]):
        raise InputError(
            f"received {len(lists[0])} texts and {len(lists[1])} second texts\n"
            "give every text its second one"
        )
    return lists[0], None if second is None else lists[1]
