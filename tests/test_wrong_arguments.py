# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every public function names the argument that is of the wrong type, in three lines."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import FlaxattnError

FUNCTIONS = [name for name in fa.__all__ if inspect.isfunction(getattr(fa, name))]
WRONG = {
    "a number": 5,
    "None": None,
    "an empty string": "",
    "an empty list": [],
    "an empty dict": {},
    "an array": np.ones((2, 3), np.float32),
    "an object": object(),
}
RIGHT = {("plot_positions", "an array")}


def arguments(function: Any, wrong: Any) -> tuple[list[Any], dict[str, Any]]:
    """The wrong first argument, and some value for every other that is required."""
    parameters = list(inspect.signature(function).parameters.values())
    required = [p for p in parameters[1:] if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    named = {p.name: ["a b"] for p in required if p.kind is p.KEYWORD_ONLY}
    return [wrong, *(["a b"] for p in required if p.kind is not p.KEYWORD_ONLY)], named


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_first_argument_is_refused(
    name: str, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (name, wrong) in RIGHT:
        return
    monkeypatch.chdir(tmp_path)
    function = getattr(fa, name)
    positional, named = arguments(function, WRONG[wrong])
    with pytest.raises((FlaxattnError, TypeError)) as caught:
        function(*positional, **named)
    message = str(caught.value)
    assert 1 <= len(message.splitlines()) <= 3
    assert isinstance(caught.value, FlaxattnError), message


def test_the_message_names_function_argument_and_types() -> None:
    assert len(FUNCTIONS) > 35
    with pytest.raises(FlaxattnError) as caught:
        fa.rollout(5)
    assert str(caught.value) == (
        "rollout cannot use this trace.\nExpected Trace, received int.\n"
        'Make one with fa.from_pretrained("tiny-bert").trace("a text").'
    )
    with pytest.raises(FlaxattnError, match=r"compare_traces cannot use this second\."):
        fa.compare_traces(fa.Trace.from_arrays(np.ones((1, 1, 1, 1, 1)), [["a"]]), 5)
