# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every public function names the argument that is of the wrong type, in three lines."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import FlaxattnError, UnknownKeywordError

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
RIGHT = {("plot_positions", "an array"), ("sample_treebank", "a number")}


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


OPEN = {"extract"}  # settings of model.generate, which are refused where nothing is generated
CONFIGS = [name for name in fa.__all__ if name.endswith("Config")]


@pytest.mark.parametrize("name", [*(n for n in FUNCTIONS if n not in OPEN), *CONFIGS])
def test_an_unknown_keyword_is_refused_with_the_nearest_name(name: str) -> None:
    function = getattr(fa, name)
    known = [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    wrong = f"{known[-1]}_"
    with pytest.raises(FlaxattnError) as caught:
        function(**{wrong: 1})
    lines = str(caught.value).splitlines()
    assert isinstance(caught.value, UnknownKeywordError)
    assert lines[0] == f"{name}() got an unexpected keyword argument {wrong!r}."
    assert lines[1].startswith("Known: ") and known[-1] in lines[1]
    assert lines[2] == f"Did you mean {known[-1]}?"


def test_views_refuse_unknown_keywords() -> None:
    array = np.ones((1, 1, 1, 1, 1), np.float32)
    trace = fa.Trace.from_arrays(array, [["a"]])
    views = (fa.head_view, fa.model_view, fa.neuron_view, fa.atlas_view)
    calls: list[tuple[Any, tuple[Any, ...]]] = [(view, (trace,)) for view in views]
    calls += [(view, (tuple(array), ["a"])) for view in views[:3]]
    calls += [(fa.compare_view, (trace, trace))]
    for view, given in calls:
        for wrong, right in (("laier", "layer"), ("include_layer", "include_layers")):
            with pytest.raises(UnknownKeywordError, match=f"Did you mean {right}\\?"):
                view(*given, **{wrong: [0]})
    with pytest.raises(UnknownKeywordError, match=r"compare_view.*'texts'"):
        fa.compare_view(trace, trace, texts=[0])
    with pytest.raises(TypeError):  # as Python says it
        fa.model_view(trace, laier=1)
    assert fa.model_view(tuple(array), ["a"], display_mode="dark", include_layers=[0]).html
