# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The page of two traces shows the first, the second, and the second less the first."""

from pathlib import Path

import numpy as np
import pytest

from flaxattn.measures.compare_heads import Comparison
from flaxattn.measures.divergence import compare_traces
from flaxattn.trace.trace import Trace
from flaxattn.views.trace_views import compare_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOKENS = "[CLS] the cat is sad . [SEP]".split()
ERROR = 2 * 2.0**-12
# A pixel in the middle of each cell of the matrix.
PIXELS = """
const { cells, place, window } = view.matrix;
const ratio = devicePixelRatio;
return arguments[0].map(([q, k]) => {
  const x = place.left + (k - window.column + 0.5) * window.size;
  const y = place.top + (q - window.row + 0.5) * window.size;
  const part = cells.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data;
  return "#" + [...part].slice(0, 3).map((n) => n.toString(16).padStart(2, "0")).join("");
});
"""


@pytest.fixture(scope="module")
def two(peaked, tmp_path_factory) -> tuple[list[np.ndarray], list[Trace], Path]:
    """Weights `[L, H, Q, K]` of both, both traces, and their page."""
    arrays = [peaked(2, 3, len(TOKENS), seed=seed) for seed in (0, 1)]
    special = np.array([[token.startswith("[") for token in TOKENS]])
    traces = [Trace.from_arrays(array, [TOKENS], special=special) for array in arrays]
    page = compare_view(*traces, names=("before", "<after>"))
    path = page.save(tmp_path_factory.mktemp("two") / "two.html")
    return [array[:, 0] for array in arrays], traces, path


def test_the_atlas_ranks_heads_by_divergence(view, two):
    _, traces, path = two
    view.open(path)
    ranked = compare_traces(*traces)
    cells = view.run("return view.drawn()")
    assert [(c["layer"], c["head"]) for c in cells] == [(r.layer, r.head) for r in ranked]
    assert [c["text"] for c in cells] == [f"{r.divergence:.3f}" for r in ranked]
    shown = [e.text for e in view.browser.find_elements("css selector", "[role=radio]") if e.text]
    assert shown == ["before", "<after>", "<after> − before"], "side by side is of the head level"
    assert view.texts("[role=radio][aria-checked=true]") == ["<after> − before"]
    view.choose("measure", "entropy")
    change = [float(c["text"].replace("−", "-")) for c in view.run("return view.drawn()")]
    assert min(change) < 0 < max(change)
    for name, texts in (("a", change), ("b", change)):
        view.click(f"[data-compare={name}]")
        assert all(float(c["text"]) > 0 for c in view.run("return view.drawn()")) and texts
    assert view.run("return window.seen") == []


def test_lines_show_each_trace_and_the_size_of_the_difference_in_two_colours(view, two):
    shares, _, path = two
    view.open(path, "level=head&layer=1&heads=0-1-2&compare=a&query=2")
    expected = {"a": shares[0][1], "b": shares[1][1], "difference": shares[1][1] - shares[0][1]}
    for name, weights in expected.items():
        view.click(f"[data-compare={name}]")
        lines = view.lines()
        assert {key[1] for key in lines} == {2}, "the pinned token stays"
        assert len(lines) == 3 * len(TOKENS)
        assert max(abs(weight - weights[key]) for key, weight in lines.items()) <= ERROR
    colours = view.run(
        "return view.drawing.lines.map((line) => [line.weight > 0, page.colourOfLine(line)])"
    )
    more, less = (view.run(f"return page.style('--{name}')") for name in ("positive", "negative"))
    assert {tuple(pair) for pair in colours} == {(True, more), (False, less)}
    svg = view.svg()
    assert f'stroke="{more}"' in svg and f'stroke="{less}"' in svg and "− before" in svg
    assert "of the difference" in view.find("#level-head .status").text


def test_hidden_tokens_are_left_out_of_both_before_the_difference(view, two):
    shares, _, path = two
    view.open(path, "level=head&layer=0&heads=1&compare=difference&special=hidden")
    kept = slice(1, len(TOKENS) - 1)
    parts = [array[0, 1][kept, kept] for array in shares]
    one, other = (part / part.sum(-1, keepdims=True) for part in parts)
    for (_, query, key), weight in view.lines().items():
        assert abs(weight - (other - one)[query - 1, key - 1]) <= 8 * ERROR


def test_the_matrix_and_the_small_pictures_diverge_around_nothing(view, two):
    shares, _, path = two
    view.open(path, "level=head&layer=1&heads=2&compare=difference&drawing=matrix")
    difference = shares[1][1, 2] - shares[0][1, 2]
    places = [(q, k) for q in range(len(TOKENS)) for k in range(len(TOKENS))]
    shades = view.run("return view.matrix.drawn().shades")
    steps = np.sign(difference) * np.rint(np.sqrt(np.abs(difference)) * 1023)
    painted = view.run(PIXELS, places)
    channels = [[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in painted]
    exact = [[int(shades[1023 + int(steps[p])][i : i + 2], 16) for i in (1, 3, 5)] for p in places]
    assert np.abs(np.subtract(channels, exact)).max() <= 3
    assert shades[0] == view.run("return page.style('--negative')")
    assert shades[-1] == view.run("return page.style('--positive')")
    view.run("page.go({ level: 'model' })")
    picture = view.run("const p = view.drawn(1, 2); return [...p.values]")
    assert np.abs(np.array(picture) - difference.ravel()).max() <= ERROR
    view.until("view.root.dataset.waiting === '0'")
    corner = view.run(
        "const c = view.grid.cells.find((c) => c.layer === 1 && c.head === 2).button.firstChild;"
        "return [...c.getContext('2d').getImageData(0, 0, 1, 1).data]"
    )
    more_red = corner[0] > corner[2]
    assert more_red == (difference[0, 0] < 0)


def test_the_address_holds_what_is_compared_and_other_pages_pass_it_over(view, two, pair):
    _, _, path = two
    view.open(path, "compare=b&order=cluster")
    assert view.run("return page.state.json().compare") == "b"
    view.click("[data-compare=a]")
    assert "compare=a" in view.run("return location.hash")
    view.open(pair.page, "compare=b")
    assert view.run("return page.state.json().compare") == "a"
    assert not view.find(".switch").is_displayed()


def previous_heads(shares: list[float], length: int = 12) -> Trace:
    """A head in texts of as many shares on the previous token."""
    texts = []
    for previous in shares:
        weights = np.full((length, length), (1 - previous) / (length - 1))
        weights[np.arange(1, length), np.arange(length - 1)] = previous
        weights[0] = 1 / length
        weights[1:] /= weights[1:].sum(-1, keepdims=True)
        texts.append(weights)
    tokens = [[f"t{i}" for i in range(length)]] * len(shares)
    return Trace.from_arrays(np.stack(texts)[None, :, None].astype(np.float32), tokens)


@pytest.mark.parametrize(
    ("shares", "texts", "expected", "claim"),
    [
        (0.54, 1, "previous token", "no change is claimed: no interval of one text"),
        (0.3, 1, "previous token / broad", "no change is claimed: no interval of one text"),
        (0.54, 8, "previous token", "no change is claimed: 0.0"),
        (0.3, 8, "previous token → mixed", "changed: 0.0"),
    ],
)
def test_a_change_of_role_is_claimed_only_where_its_interval_supports_it(
    view, tmp_path, shares, texts, expected, claim
):
    """Two heads on either side of one half, the first pairs all but alike."""
    wobble = np.random.default_rng(0).normal(0, 0.002, (2, texts))
    traces = [
        previous_heads(list(share + noise))
        for share, noise in zip((0.55, shares), wobble, strict=True)
    ]
    page = compare_view(*traces).save(tmp_path / "page.html")
    view.open(page, "level=head&layer=0&heads=0")
    assert view.texts(".three-numbers .fact .role") == [expected]
    hint = view.texts(".three-numbers .fact .hint")[0]
    assert claim in hint and ("8 texts" in hint) == (texts == 8)
    (rule,) = [text for text in view.texts(".three-numbers .hint") if "is said to have" in text]
    assert "above 0.01 nats" in rule and "With a single text nothing is claimed" in rule
    view.run("page.go({ level: 'atlas' })")
    assert view.texts(".hint.rule") == [rule]
    view.point(".cell")
    assert claim in view.texts("#level-atlas .claimed")[0]


def test_intervals_on_the_page_are_those_of_python(view, tmp_path):
    wobble = np.random.default_rng(0).normal(0, 0.02, (2, 8))
    traces = [previous_heads(list(s + n)) for s, n in zip((0.6, 0.3), wobble, strict=True)]
    comparison = Comparison()
    comparison.add(*traces)
    (change,) = comparison.changes()
    page = compare_view(*traces).save(tmp_path / "page.html")
    view.open(page, "level=head&layer=0&heads=0")
    low, high = change.interval
    assert low < change.divergence < high and change.changed
    assert f"changed: {low:.3f} to {high:.3f} nats, 8 texts" in view.texts(".head-claim .hint")[0]
