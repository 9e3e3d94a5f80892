# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The API reference has every public name, and each entry says what a reader needs."""

import dataclasses
import inspect
import re
from typing import Any

import pytest
from _site.api_groups import GROUPS, Group
from _site.api_pages import pages, public_object, summary

import flaxattn as fa

OPTIONAL = {"self", "cls", "args", "kwargs", "watch", "progress"}
ENTRIES = [
    pytest.param(group, name, id=f"{group.module}.{name}")
    for key, group in GROUPS.items()
    for name in group.names
    if key not in ("types", "kernels") and name != "__version__"
]


def sections(text: str) -> set[str]:
    return set(re.findall(r"^(Args|Attributes|Returns|Raises|Yields):$", text, flags=re.M))


def described(text: str) -> set[str]:
    """Names that the sections Args and Attributes explain."""
    names = re.findall(r"^    \**(\w+(?:, \w+)*)(?: \(.*?\))?: ", text, flags=re.M)
    return {name for some in names for name in some.split(", ")}


def parameters(entry: Any) -> set[str]:
    if dataclasses.is_dataclass(entry):
        return {field.name for field in dataclasses.fields(entry) if field.init}
    if hasattr(entry, "_fields"):  # a named tuple
        return set(entry._fields)
    return set(inspect.signature(entry).parameters)


def test_every_public_name_has_an_entry_and_no_entry_is_of_another() -> None:
    listed = [
        name for group in GROUPS.values() if group.module == "flaxattn" for name in group.names
    ]
    public = [name for name in listed if "." not in name]
    assert sorted(public) == sorted(fa.__all__)
    assert len(listed) == len(set(listed))


def test_every_entry_is_on_a_page() -> None:
    text = "\n".join(pages().values())
    for group in GROUPS.values():
        for name in group.names:
            assert f":: {group.module}.{name}\n" in text
            assert summary(group, name)


@pytest.mark.parametrize(("group", "name"), ENTRIES)
def test_an_entry_says_what_a_reader_needs(group: Group, name: str) -> None:
    entry = public_object(group, name)
    text = inspect.getdoc(entry) or ""
    assert text.split("\n\n")[0].strip().endswith((".", ":")), "a summary that is a sentence"
    taken = parameters(entry) - OPTIONAL
    unexplained = taken - described(text)
    assert not unexplained, f"{name}: {sorted(unexplained)} are not explained"
    found = sections(text)
    assert inspect.isclass(entry) or "Returns" in found, f"{name}: Returns"
    assert inspect.isclass(entry) or not taken or "Raises" in found, f"{name}: Raises"
    assert ">>> " in text, f"{name}: an example"
    shown = "".join(re.findall(r"(?:>>>|\.\.\.) .*", text))
    assert inspect.isclass(entry) or f"{name}(" in shown, f"{name}: an example that calls it"


@pytest.mark.parametrize(("group", "name"), ENTRIES)
def test_arrays_have_shapes(group: Group, name: str) -> None:
    """Arrays in a signature say their dimensions in jaxtyping's letters."""
    entry = public_object(group, name)
    if not inspect.isclass(entry):
        for parameter in inspect.signature(entry).parameters.values():
            if parameter.name == "axes":  # matplotlib's, in a container of theirs
                continue
            bare = re.search(r"(?<!\w)(ndarray|Array)(?!,|\w)", str(parameter.annotation))
            assert bare is None, f"{name}({parameter.name}): {parameter.annotation}"
