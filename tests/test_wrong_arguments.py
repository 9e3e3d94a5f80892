# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every public function refuses a wrong argument in at most three lines that name it."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import FlaxattnError, UnknownKeywordError

FUNCTIONS = [name for name in fa.__all__ if inspect.isfunction(getattr(fa, name))]
CONFIGS = [name for name in fa.__all__ if name.endswith("Config")]
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
OPEN = {"extract"}  # settings of model.generate, which are refused where nothing is generated


def arguments(function: Any, wrong: Any) -> tuple[list[Any], dict[str, Any]]:
    """The wrong first argument, and some value for every other that is required."""
    parameters = list(inspect.signature(function).parameters.values())
    required = [p for p in parameters[1:] if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    named = {p.name: ["a b"] for p in required if p.kind is p.KEYWORD_ONLY}
    return [wrong, *(["a b"] for p in required if p.kind is not p.KEYWORD_ONLY)], named


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_first_argument_is_refused(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(FUNCTIONS) > 35
    for name in FUNCTIONS:
        if (name, wrong) not in RIGHT:
            with subtests.test(function=name):
                positional, named = arguments(getattr(fa, name), WRONG[wrong])
                with pytest.raises(FlaxattnError) as caught:
                    getattr(fa, name)(*positional, **named)
                assert 1 <= len(str(caught.value).splitlines()) <= 3


def test_an_unknown_keyword_is_refused_with_the_nearest_name(subtests: pytest.Subtests) -> None:
    for name in (*FUNCTIONS, *CONFIGS):
        if name in OPEN:
            continue
        with subtests.test(function=name):
            parameters = inspect.signature(getattr(fa, name)).parameters.values()
            kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            known = [p.name for p in parameters if p.kind in kinds]
            with pytest.raises(UnknownKeywordError) as caught:
                getattr(fa, name)(**{f"{known[-1]}_": 1})
            lines = str(caught.value).splitlines()
            assert name in lines[0] and f"{known[-1]}_" in lines[0]
            assert len(lines) == 3 and lines[2] == f"Did you mean {known[-1]}?"


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
    assert fa.model_view(tuple(array), ["a"], display_mode="dark", include_layers=[0]).html
