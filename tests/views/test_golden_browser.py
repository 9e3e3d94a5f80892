# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Each level looks as it did: photographs compared with stored ones, to how edges are smoothed.

`python tests/golden/make_view_golden.py` makes the stored ones anew, after a change that was meant.
"""

import numpy as np
import pytest
import view_cases as cases
from PIL import Image

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("goldens")


@pytest.mark.parametrize("theme", cases.THEMES)
@pytest.mark.parametrize("name", cases.CASES)
def test_a_level_looks_as_it_did(view, folder, name, theme):
    make, settings = cases.CASES[name]
    taken = cases.photograph(view.browser, make(folder), settings, theme)
    with Image.open(cases.path_of(name, theme)) as golden:
        apart = cases.apart(taken, golden)
    rows, columns = cases.SMALLER * np.argwhere(apart).T
    assert apart.mean() <= cases.SHARE, (
        f"{apart.mean():.2%} of the pixels differ, from ({columns.min()}, {rows.min()}) to "
        f"({columns.max()}, {rows.max()}). If that was meant: make_view_golden.py"
    )


def test_goldens_are_small_and_none_is_left_over():
    sizes = {path.name: path.stat().st_size for path in cases.FOLDER.iterdir()}
    assert set(sizes) == {f"{name}-{theme}.png" for name in cases.CASES for theme in cases.THEMES}
    assert max(sizes.values()) < 24_000 and sum(sizes.values()) < 280_000
