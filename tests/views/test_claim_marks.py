# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Claims differ by code, shape, hue and shade, never by a head's colour."""

import itertools
import re

import numpy as np
import pytest

from flaxattn.views.payloads.page_encoding import read_asset
from flaxattn.views.payloads.report_payload import FAMILIES, SHADES, claim_marks

# Linear RGB under the three kinds of dichromacy (Machado et al. 2009, severity 1), row by row.
SIGHT = {
    "normal": [1, 0, 0, 0, 1, 0, 0, 0, 1],
    "no red": [0.152, 1.053, -0.205, 0.115, 0.786, 0.099, -0.004, -0.048, 1.052],
    "no green": [0.367, 0.861, -0.228, 0.280, 0.673, 0.047, -0.012, 0.043, 0.969],
    "no blue": [1.256, -0.077, -0.179, -0.078, 0.931, 0.148, 0.005, 0.691, 0.304],
}
PAPER = {"light": "ffffff", "dark": "14171c"}
RELATIONS = "acl advcl advmod amod appos aux case cc ccomp compound conj cop det mark nsubj obj obl"


def linear(colours: list[str]) -> np.ndarray:
    """Linear RGB of `rrggbb`, `[N, 3]`."""
    encoded = np.array([[int(c[i : i + 2], 16) for i in (0, 2, 4)] for c in colours]) / 255
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def seen(colours: list[str], sight: str) -> np.ndarray:
    """Colours as somebody sees them, in Oklab (Ottosson 2020), `[N, 3]`."""
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    lab = np.array(
        [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    )
    there = np.clip(linear(colours) @ np.reshape(SIGHT[sight], (3, 3)).T, 0, 1)
    return np.cbrt(there @ cones.T) @ lab.T


def of_theme(sheet: str, kind: str, theme: str) -> list[str]:
    found = re.findall(rf"--{kind}-[\d-]+: #(\w{{6}});", read_asset(sheet))
    half = len(found) // 2
    return found[:half] if theme == "light" else found[half:]


@pytest.mark.parametrize("theme", ["light", "dark"])
class TestColours:
    @pytest.mark.parametrize("sight", SIGHT)
    def test_families_and_shades_can_be_distinguished(self, theme, sight):
        colours = of_theme("claims.css", "claim", theme)
        assert len(colours) == len(FAMILIES) * SHADES
        places = seen(colours, sight)
        apart = np.linalg.norm(places[:, None] - places, axis=-1)
        family = np.repeat(np.arange(len(FAMILIES)), SHADES)
        same = family[:, None] == family
        assert apart[~same].min() > (0.08 if sight == "normal" else 0.03)
        assert apart[same & ~np.eye(len(colours), dtype=bool)].min() > 0.06

    def test_no_claim_has_the_colour_of_a_head(self, theme):
        claims = seen(of_theme("claims.css", "claim", theme), "normal")
        heads = seen(of_theme("view.css", "head", theme), "normal")
        assert len(heads) == 16
        assert np.linalg.norm(claims[:, None] - heads, axis=-1).min() > 0.03

    def test_shapes_stand_out_from_the_page(self, theme):
        weights = np.array([0.2126, 0.7152, 0.0722])
        claims = linear(of_theme("claims.css", "claim", theme)) @ weights
        paper = linear([PAPER[theme]]) @ weights
        high, low = np.maximum(claims, paper), np.minimum(claims, paper)
        assert ((high + 0.05) / (low + 0.05)).min() >= 3  # WCAG 2.2, 1.4.11


def test_forty_claims_have_forty_codes():
    names = [f"{way}({name})" for name in RELATIONS.split() for way in ("governor", "dependent")]
    names += ["local", "next", "previous", "cls", "sep", "block", "entropy", "rare"]
    marks = claim_marks(names)
    assert len(marks) == 42 and len({mark.code for mark in marks.values()}) == 42
    assert marks["governor(acl)"].code == "S1" and marks["dependent(obl)"].code == "S34"
    neighbours = [marks[name].variable for name in names[:34]]
    assert all(one != other for one, other in itertools.pairwise(neighbours))


def test_families_have_letters_and_shapes_of_their_own():
    assert len({family.letter for family in FAMILIES}) == len(FAMILIES)
    assert len({family.marker for family in FAMILIES}) == len(FAMILIES)
    shapes = re.search(r"SHAPES = \{(.*?)\};", read_asset("claim_marks.js"), re.DOTALL)[1]
    drawn = re.findall(r'^\s*"?([^\s":]+)"?: "(M[^"]*)"', shapes, re.MULTILINE)
    assert {name for name, _ in drawn} == {family.marker for family in FAMILIES}
    assert len({path for _, path in drawn}) == len(FAMILIES)


@pytest.mark.parametrize(
    ("name", "letter"),
    [
        ("local", "P"),
        ("pattern: next token", "P"),
        ("positional: previous", "P"),
        ("cls", "D"),
        ("pattern: delimiter", "D"),
        ("first", "D"),
        ("governor(nsubj)", "S"),
        ("syntactic: dependent(any)", "S"),
        ("nsubj", "S"),
        ("coreferent mention", "C"),
        ("all mentions", "C"),
        ("proper", "C"),
        ("same token in the other text", "A"),
        ("induction", "W"),
        ("rare word", "W"),
        ("block_entropy", "B"),
        ("other segment", "B"),
        ("divergence", "O"),
        ("activation effect, segment first", "O"),
        ('</script><img src=x onerror="1">', "O"),
        ("", "O"),
    ],
)
def test_names_of_claims_belong_to_families(name, letter):
    assert claim_marks([name])[name].code == f"{letter}1"
