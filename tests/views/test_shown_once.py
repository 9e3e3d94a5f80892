# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A figure that is the value of a notebook's cell is shown once."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from flaxattn.views.figures.plot_head_numbers import plot_head_values

VALUES = {"entropy": np.zeros((2, 2))}


def test_figures_are_closed_in_notebooks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    plt.close("all")
    plot_head_values(VALUES, "nats")
    assert len(plt.get_fignums()) == 1, "a script shows what is open"
    name = "module://matplotlib_inline.backend_inline"
    monkeypatch.setattr(matplotlib, "get_backend", lambda **_: name)
    figure = plot_head_values(VALUES, "nats")
    assert len(plt.get_fignums()) == 1 and figure.axes, "closed, and still whole"
