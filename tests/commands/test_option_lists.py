# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Lists of numbers and of names, and options of Ray: what is typed is what arrives."""

import pytest
import typer

from flaxattn.commands.extract import RayFlags
from flaxattn.commands.options import named, numbers


def test_numbers_and_ranges() -> None:
    assert numbers("0, 5-7,2", "--layers") == (0, 5, 6, 7, 2)
    assert numbers("-1,0", "--layers", negative=True) == (-1, 0)
    assert numbers(None, "--layers") is None
    for wrong in ("", "a", "5-2", "-1", "1,,2", "9999999"):
        with pytest.raises(typer.BadParameter, match="is not a list of numbers"):
            numbers(wrong, "--layers")


def test_names() -> None:
    assert named(" max, entropy,") == ["max", "entropy"] and named(None) == []
    with pytest.raises(typer.BadParameter, match="'b' is not one of a, c"):
        named("a,b", ("a", "c"), "--kinds")


def test_a_zero_that_was_typed_reaches_ray() -> None:
    flags = RayFlags(engine="ray", ray_gpus=0, ray_cpus=0.0, ray_workers=2)
    assert flags.options == {"gpus": 0, "cpus": 0.0, "workers": 2}
    assert RayFlags().options == {} and RayFlags(ray_logs=True).options == {"logs": True}
