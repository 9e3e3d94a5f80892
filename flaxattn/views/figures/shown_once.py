# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures in notebooks: shown once, as the value of a cell.

Matplotlib's inline backend shows every open figure at the end of a cell, and the notebook shows the
value of its last line, so a figure that is both would be there twice.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def shown_once(plot: Callable[_P, _R]) -> Callable[_P, _R]:
    """Close the figures that a function makes in a notebook; they stay whole and can be shown."""

    @functools.wraps(plot)
    def closing(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before = _open()
        figure = plot(*args, **kwargs)
        if _inline():
            for number in _open() - before:
                sys.modules["matplotlib.pyplot"].close(number)
        return figure

    return closing


def _open() -> set[int]:
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    return set() if pyplot is None else set(pyplot.get_fignums())


def _inline() -> bool:
    matplotlib: Any = sys.modules.get("matplotlib")
    return matplotlib is not None and "inline" in matplotlib.get_backend()
