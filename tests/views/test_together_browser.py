# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Two traces and their difference beside each other: pictures, links, numbers, files."""

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
from drawn_figures import ink, lines_of
from hostile_texts import SHAPES, texts

from flaxattn.trace.trace import Trace
from flaxattn.views.figures.plot_state import plot_state
from flaxattn.views.trace_views import compare_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOKENS = "[CLS] the cat is sad . [SEP]".split()
NAMES = ("before", "<after>")
TRACES = ("a", "b", "difference")
ERROR = 2 * 2.0**-12
TABLE = (
    "[...document.querySelectorAll('.three-numbers tbody tr')]"
    ".map((row) => [...row.children].map((cell) => cell.textContent.trim()))"
)
BOXES = (
    "[...document.querySelectorAll('.one-of-three')].map((part) => {"
    " const shown = '.stage:not([hidden]) .tokens, .matrix-stage:not([hidden]) canvas';"
    " const box = part.querySelector(shown).getBoundingClientRect(); return [box.left, box.top]; })"
)
# Opaque pixels of each crosshair, by the colour of what is pointed at.
CROSSES = (
    "view.together.parts.map(({ level }) => { const { cross } = level.matrix;"
    " const { data } = cross.getContext('2d').getImageData(0, 0, cross.width, cross.height);"
    " return data.reduce((sum, part, i) => sum + Number(i % 4 === 3 && part > 0), 0); })"
)


@pytest.fixture(scope="module")
def two(peaked, tmp_path_factory):
    """Weights `[L, H, Q, K]` of both, both traces, and their page."""
    arrays = [peaked(2, 3, len(TOKENS), seed=seed) for seed in (0, 1)]
    special = np.array([[token.startswith("[") for token in TOKENS]])
    traces = [Trace.from_arrays(array, [TOKENS], special=special) for array in arrays]
    pairs = {"near": [(q, k) for q in range(7) for k in (q - 1, q + 1) if 0 <= k < 7]}
    page = compare_view(*traces, names=NAMES, pairs=pairs, state={"gold": "none"})
    path = page.save(tmp_path_factory.mktemp("two") / "two.html")
    return [array[:, 0] for array in arrays], traces, path


def opened(view, two, settings="heads=0-1-2"):
    view.open(two[2], f"level=head&layer=1&compare=together&{settings}")


def weights_of(two, layer=1):
    """Weights of both and their difference, by trace."""
    one, other = (array[layer] for array in two[0])
    return dict(zip(TRACES, (one, other, other - one), strict=True))


def written(weight: float, *, change: bool = False) -> str:
    """A number as the panel writes it."""
    size = "<0.001" if 0 < abs(weight) < 0.0005 else f"{abs(weight):.3f}"
    return f"{'−' if weight < 0 else '+' if change and weight > 0 else ''}{size}"


def row_of(name: str, one: float, other: float) -> list[str]:
    return [name, written(one), written(other), written(other - one, change=True)]


def assert_close(table: list[list[str]], expected: list[list[str]]) -> None:
    """Names are the same, and numbers but for the rounding of the last digit."""
    assert [row[0] for row in table] == [row[0] for row in expected]

    def number(text: str) -> float:
        return 0.0 if "<" in text else float(text.replace("−", "-"))

    shown, known = ([[number(t) for t in row[1:]] for row in rows] for rows in (table, expected))
    np.testing.assert_allclose(shown, known, atol=0.00151)


def test_three_pictures_draw_both_and_the_difference(view, two):
    opened(view, two, "heads=0-1-2&query=2")
    drawn = view.run("return view.drawn()")
    for trace, weights in weights_of(two).items():
        lines = {(n["head"], n["query"], n["key"]): n["weight"] for n in drawn[trace]["lines"]}
        assert len(lines) == 3 * len(TOKENS) and {key[1] for key in lines} == {2}
        assert max(abs(w - weights[key]) for key, w in lines.items()) <= ERROR
    more, less = (view.run(f"return page.style('--{name}')") for name in ("positive", "negative"))
    colours = view.run(
        "const { level } = view.together.parts[2];"
        "return level.drawing.lines.map((l) => [l.weight > 0, level.actions.colourOfLine(l)])"
    )
    assert {tuple(pair) for pair in colours} == {(True, more), (False, less)}
    painted = view.run(
        "return view.together.parts.map(({ level }) => { const c = level.page.overlay;"
        " return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(Boolean); })"
    )
    assert painted == [True] * 3
    assert view.texts(".which") == ["before", "<after>", "<after> − before"]
    first, second, third = view.texts(".scale-note")
    assert first == second == "opacity: weight from 0 to 1; one scale for before and <after>"
    assert "less in <after>" in third and "a scale of its own" in third
    assert view.run("return window.seen") == []


def test_pictures_stand_beside_each_other_where_there_is_room(view, two):
    emulate = "Emulation.setDeviceMetricsOverride"
    metrics = {"height": 900, "deviceScaleFactor": 1, "mobile": False}
    try:
        for width in (1440, 1100, 1099, 390):
            view.browser.execute_cdp_cmd(emulate, {"width": width, **metrics})
            for drawing in ("lines", "matrix"):
                opened(view, two, f"heads=1&drawing={drawing}")
                left, top = np.transpose(view.run(f"return {BOXES}"))
                beside = width >= 1100
                assert (np.diff(left) > 100).all() == beside, (width, drawing)
                assert (np.ptp(top) < 1) == beside and (np.diff(top) > 100).all() != beside
                assert view.run("return document.documentElement.scrollWidth") <= width
    finally:
        view.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_pointing_at_a_token_marks_it_in_all_and_gives_three_numbers(view, two):
    opened(view, two)
    view.point("[data-trace=difference] .left [data-index='3']")
    chosen = "[...document.querySelectorAll('.one-of-three .token.chosen')]"
    assert view.run(f"return {chosen}.map((row) => row.dataset.index)") == ["3"] * 3
    means = [weights_of(two)[trace][:, 3].mean(0) for trace in ("a", "b")]
    order = np.argsort(-np.maximum(*means), kind="stable")
    expected = [row_of(TOKENS[k], means[0][k], means[1][k]) for k in order]
    assert_close(view.run(f"return {TABLE}"), expected)
    assert view.texts(".three-numbers h2") == ["is attends to"]
    assert view.texts(".three-table thead th") == ["token", "before", "<after>", "difference"]
    view.point("[data-trace=a] .right [data-index='2']")
    means = [weights_of(two)[trace][:, :, 2].mean(0) for trace in ("a", "b")]
    order = np.argsort(-np.maximum(*means), kind="stable")
    expected = [row_of(TOKENS[q], means[0][q], means[1][q]) for q in order]
    assert_close(view.run(f"return {TABLE}"), expected)
    view.point("h1")
    assert view.run(f"return {chosen}.length") == 0


def test_a_pin_is_one_of_all_three_and_a_pair_has_three_numbers(view, two):
    opened(view, two)
    view.click("[data-trace=b] .left [data-index='3']")
    held = "[...document.querySelectorAll('.one-of-three .token.held')]"
    assert view.run(f"return {held}.map((row) => row.dataset.index)") == ["3"] * 3
    address = view.run("return location.hash")
    assert "query=3" in address and "compare=together" not in address, "the page begins with it"
    view.point("[data-trace=a] .right [data-index='4']")
    both = weights_of(two)
    expected = [row_of(str(h), both["a"][h, 3, 4], both["b"][h, 3, 4]) for h in range(3)]
    assert_close(view.run(f"return {TABLE}"), expected)
    assert view.texts(".three-numbers h2") == ["is → sad"]
    view.point("h1")
    view.press("ARROW_DOWN")
    assert view.run(f"return {held}.map((row) => row.dataset.index)") == ["4"] * 3
    spoken = view.texts("p.spoken")[0]
    assert spoken.startswith("sad attends to") and len(spoken.split(". ")) == 4
    table = ".together table caption, .together .spoken table tbody th"
    assert view.texts(table)[0] == "sad attends to, layer 1: before, <after>, difference"
    assert sorted(view.texts(table)[1:]) == sorted(TOKENS), "all tokens, for screen readers"
    view.press("ESCAPE")
    assert view.run(f"return {held}.length") == 0 and view.texts("p.spoken") == [""]
    assert view.texts(table) == []


def test_numbers_do_not_depend_on_the_mass_that_is_drawn(view, two):
    opened(view, two, "heads=0-2&query=1&mass=40")
    means = [weights_of(two)[trace][[0, 2], 1].mean(0) for trace in ("a", "b")]
    order = np.argsort(-np.maximum(*means), kind="stable")
    expected = [row_of(TOKENS[k], means[0][k], means[1][k]) for k in order]
    assert_close(view.run(f"return {TABLE}"), expected)
    counts = [len(view.run("return view.drawn()")[trace]["lines"]) for trace in TRACES]
    assert max(counts) < 2 * len(TOKENS)


def test_hidden_tokens_leave_numbers_of_what_is_left(view, two):
    opened(view, two, "heads=1&query=2&special=hidden")
    kept = slice(1, len(TOKENS) - 1)
    parts = [array[1, 1, 2, kept] for array in two[0]]
    one, other = (part / part.sum() for part in parts)
    order = np.argsort(-np.maximum(one, other), kind="stable")
    expected = [row_of(TOKENS[1 + k], one[k], other[k]) for k in order]
    assert_close(view.run(f"return {TABLE}"), expected)


def test_a_cell_is_marked_in_all_three_matrices(view, two):
    opened(view, two, "heads=2&drawing=matrix")
    before = view.run(f"return {CROSSES}")
    place = view.run(
        "const { matrix } = view.together.parts[1].level, { place, window } = matrix;"
        "const box = matrix.cells.getBoundingClientRect();"
        "const { size } = window;"
        "return [box.left + place.left + 4.5 * size, box.top + place.top + 1.5 * size]"
    )
    event = {"type": "mouseMoved", "x": place[0], "y": place[1]}
    view.browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)
    cells = view.run("const d = view.drawn(); return [d.a.cell, d.b.cell, d.difference.cell]")
    weights = weights_of(two)
    for trace, cell in zip(TRACES, cells, strict=True):
        assert (cell["query"], cell["key"]) == (1, 4)
        assert abs(cell["weight"] - weights[trace][2, 1, 4]) <= ERROR
    assert all(now > then for now, then in zip(view.run(f"return {CROSSES}"), before, strict=True))
    one, other = weights["a"][2, 1, 4], weights["b"][2, 1, 4]
    assert_close(view.run(f"return {TABLE}"), [row_of("2", one, other)])
    sentence = f"before {written(one)}, <after> {written(other)}, difference "
    assert sentence + written(other - one, change=True) in view.texts(".tip")[0]
    view.point("h1")
    assert view.run(f"return {CROSSES}") == before
    view.run("view.together.parts[2].level.matrix.stage.focus()")
    view.press("ARROW_DOWN", "ARROW_RIGHT")
    cells = view.run("const d = view.drawn(); return [d.a.cell, d.b.cell, d.difference.cell]")
    assert [(cell["query"], cell["key"]) for cell in cells] == [(0, 1)] * 3
    assert "difference" in view.texts("p.spoken")[0]
    view.press("+")
    windows = view.run(
        "const d = view.drawn(); return [d.a, d.b, d.difference].map((m) => m.window)"
    )
    assert windows[0] == windows[1] == windows[2]
    view.press("ENTER")
    assert "query=0" in view.run("return location.hash")


def test_both_traces_have_one_scale_in_shares_of_a_row(view, two):
    opened(view, two, "heads=0-1-2&opacity=row")
    both = weights_of(two)
    most = np.maximum(both["a"].max(-1), both["b"].max(-1))
    units = {"a": most, "b": most, "difference": np.abs(both["difference"]).max(-1)}
    drawn = view.run("return view.drawn()")
    for trace in TRACES:
        for line in drawn[trace]["lines"]:
            at = line["head"], line["query"]
            expected = abs(both[trace][(*at, line["key"])]) / units[trace][at]
            assert abs(line["opacity"] - expected) < 16 * ERROR
    assert "in both; one scale" in view.texts(".scale-note")[0]
    view.choose("drawing", "matrix")
    grids = view.run(
        "return view.together.parts.map(({ level }) => [...level.matrix.pyramid.level(0).values])"
    )
    for trace, grid in zip(TRACES, grids, strict=True):
        expected = both[trace][0] / units[trace][0][:, None]
        np.testing.assert_allclose(np.reshape(grid, expected.shape), expected, atol=16 * ERROR)
    assert "largest weight in both" in view.texts(".matrix-legend")[0]


@pytest.mark.parametrize("drawing", ["lines", "matrix"])
def test_files_hold_all_three(view, two, drawing):
    opened(view, two, f"heads=1&drawing={drawing}&query=3&theme=light")
    state = view.run("return page.state.json()")
    root = ElementTree.fromstring(view.svg())
    assert state["compare"] == "together" and json.loads(root[-1].text or "") == state
    parts = [node for node in root if node.get("data-trace")]
    assert [part.get("data-trace") for part in parts] == list(TRACES)
    left = [float(part.get("x", "")) for part in parts]
    widths = [float(part.get("width", "")) for part in parts]
    assert all(x + w < n for x, w, n in zip(left, widths, left[1:], strict=False))
    for part, trace in zip(parts, TRACES, strict=True):
        nodes = [node for node in part.iter() if node.get("data-weight")]
        assert len(nodes) >= 2
        for node in nodes:
            query, key = (int(node.get(f"data-{n}", "")) for n in ("query", "key"))
            weight = float(node.get("data-weight", ""))
            assert abs(weight - weights_of(two)[trace][1, query, key]) <= ERROR
        words = " ".join("".join(node.itertext()) for node in part.iter())
        assert ("a scale of its own" in words) == (trace == "difference")
        assert ("one scale for before and <after>" in words) == (trace != "difference")
    image = view.png()
    assert json.loads(image.text["flaxattn state"]) == state
    pixels = np.asarray(image.convert("RGB")).astype(int)
    assert image.width / image.height == pytest.approx(
        float(root.get("width", "")) / float(root.get("height", "")), rel=0.01
    )
    scale = image.width / float(root.get("width", ""))
    for x, width in zip(left, widths, strict=True):
        part = pixels[:, int(x * scale) : int((x + width) * scale)]
        assert np.ptp(part, -1).max() > 60, "lines or cells in colour"


@pytest.mark.parametrize("opacity", ["absolute", "row"])
@pytest.mark.parametrize(
    "more", ["heads=0-2", "heads=1&special=hidden", "heads=0-1-2&query=3&mass=60"]
)
def test_figures_draw_the_same_three(view, two, opacity, more):
    opened(view, two, f"{more}&opacity={opacity}")
    state = view.run("return page.state.json()")
    places = view.run("const s = view.state.selection(null); return [s.queries, s.keys]")
    shown = view.run("return view.drawn()")
    figure = plot_state(two[1][0], state, second=two[1][1], names=NAMES)
    try:
        for trace, ax in zip(TRACES, figure.axes, strict=True):
            drawn = lines_of(SimpleNamespace(axes=[ax]), state["heads"], *places)
            page = {
                (n["head"], n["query"], n["key"]): ink(n["opacity"]) for n in shown[trace]["lines"]
            }
            for line in drawn.keys() | page.keys():
                apart = abs(drawn.get(line, 0) - page.get(line, 0))
                assert apart < (1.8 * 16 * ERROR if line in drawn else 1 / 255 + ERROR), (
                    trace,
                    line,
                )
    finally:
        plt.close(figure)


def test_a_figure_of_matrices_draws_the_same_three(view, two):
    opened(view, two, "heads=1&drawing=matrix&opacity=row&query=2")
    grids = view.run(
        "return view.together.parts.map(({ level }) => [...level.matrix.pyramid.level(0).values])"
    )
    figure = plot_state(two[1][0], view.run("return page.state.json()"), second=two[1][1])
    try:
        for ax, grid in zip(figure.axes, grids, strict=False):
            drawn = np.asarray(ax.images[0].get_array())
            np.testing.assert_allclose(drawn, np.reshape(grid, drawn.shape), atol=16 * ERROR)
            assert [p.get_gid() for p in ax.patches] == ["pin"]
    finally:
        plt.close(figure)


def test_the_same_trace_twice_has_no_difference_and_no_claim(view, two, tmp_path):
    batch = Trace.from_arrays(np.repeat(np.asarray(two[1][0].encoder.weights), 3, 1), [TOKENS] * 3)
    page = compare_view(batch, batch, names=NAMES).save(tmp_path / "same.html")
    view.open(page, "level=head&layer=0&heads=0-1-2&query=1")
    drawn = view.run("return view.drawn()")
    assert drawn["difference"]["lines"] == [] and drawn["a"]["lines"] == drawn["b"]["lines"] != []
    assert view.texts(".no-difference") == [". No difference: the weights are the same."]
    assert {row[3] for row in view.run(f"return {TABLE}")} == {"0.000"}
    view.press("ESCAPE")
    claims = view.texts(".head-claim .hint")
    assert len(claims) == 3
    assert all("no change is claimed: 0.000 to 0.000 nats, 3 texts" in text for text in claims)
    assert "→" not in "".join(view.texts(".head-claim .role"))
    opened(view, two)
    assert view.texts(".no-difference") == []


def test_a_weight_that_is_not_finite_is_reported_wherever_it_is_missing(view, peaked, tmp_path):
    arrays = [peaked(1, 2, len(TOKENS), seed=seed) for seed in (0, 1)]
    arrays[1][0, 0, 1, 2, 3] = np.nan
    page = compare_view(*(Trace.from_arrays(array, [TOKENS]) for array in arrays))
    view.open(page.save(tmp_path / "nan.html"), "level=head&layer=0&heads=1&query=2")
    rows = {row[0]: row[1:] for row in view.run(f"return {TABLE}")}
    assert rows["is"][1:] == ["NaN", "NaN"] and "NaN" not in rows["is"][0]
    assert sum("NaN" in row for row in rows.values()) == 1
    view.choose("drawing", "matrix")
    badges = "[...document.querySelectorAll('.one-of-three .broken')].map((b) => !b.hidden)"
    assert view.run(f"return {badges}") == [False, True, True]
    view.press("ESCAPE")
    claims = view.texts(".head-claim .hint")
    assert claims == ["no change is claimed: no interval of these texts"]


def test_other_levels_show_the_difference_and_the_switch_leads_back(view, two):
    opened(view, two)
    view.run("page.go({ level: 'model' })")
    shown = view.run(
        "return [...document.querySelectorAll('[role=radio]')].map((b) =>"
        " [b.dataset.compare, b.getAttribute('aria-checked'), b.offsetWidth > 0])"
    )
    assert shown[2] == ["difference", "true", True] and shown[3] == ["together", "false", False]
    values = view.run("return [...view.drawn(1, 2).values]")
    expected = weights_of(two)["difference"][2].ravel()
    assert np.abs(np.array(values) - expected).max() <= ERROR
    view.run("page.go({ level: 'head' })")
    assert view.find(".together").is_displayed()
    view.click("[data-compare=b]")
    assert not view.find(".together").is_displayed() and view.find(".pictures").is_displayed()
    assert {key[0] for key in view.lines()} == {0, 1, 2} and "compare=b" in view.run(
        "return location.hash"
    )
    view.click("[data-compare=together]")
    assert view.find(".together").is_displayed()
    assert not view.find("#level-head > .body").is_displayed()


def test_gold_arcs_are_won_lost_or_kept(view, two):
    opened(view, two, "heads=1&gold=near")
    strongest = [array[1, 1].argmax(-1) for array in two[0]]
    hits = [np.abs(best - np.arange(7)) == 1 for best in strongest]
    counts = {
        "won": int((hits[1] & ~hits[0]).sum()),
        "lost": int((hits[0] & ~hits[1]).sum()),
        "kept": int((hits[0] & hits[1]).sum()),
        "missed by both": int((~hits[0] & ~hits[1]).sum()),
    }
    assert counts["won"] and counts["lost"] and counts["missed by both"]
    keys = "[...document.querySelectorAll('[data-trace=%s] .gold-key')].map((k) => k.textContent)"
    assert view.run(f"return {keys % 'difference'}") == [f"{n} {k}" for k, n in counts.items()]
    for trace, hit in zip("ab", hits, strict=True):
        expected = [f"{hit.sum()} hit", f"{7 - hit.sum()} missed"]
        assert view.run(f"return {keys % trace}") == expected, "each by its own weights"
    shapes = view.run(
        "return [...document.querySelectorAll('[data-trace=difference] .gold-pair')].map((g) => {"
        " const line = g.querySelector('.gold-line');"
        " return [Number(g.dataset.query.split('-')[0]),"
        " line.getAttribute('stroke'), line.getAttribute('stroke-dasharray')]; })"
    )
    hit, miss = (view.run(f"return page.style('--gold-{n}')") for n in ("hit", "miss"))
    style = {
        (False, True): (hit, ""),
        (True, False): (miss, ""),
        (True, True): (hit, "9 4"),
        (False, False): (miss, "2 4"),
    }
    for query, colour, dashes in shapes:
        assert (colour, dashes or "") == style[bool(hits[0][query]), bool(hits[1][query])], query
    assert {query for query, *_ in shapes} == set(range(7))
    rule = view.run(
        "return document.querySelector('[data-trace=difference] .gold-legend').textContent"
    )
    assert "won: hit by <after> alone; lost: by before alone" in rule
    root = ElementTree.fromstring(view.svg())
    third = next(node for node in root if node.get("data-trace") == "difference")
    texts = ["".join(node.itertext()) for node in third.iter() if node.tag.endswith("}text")]
    assert [f"{n} {k}" for k, n in counts.items()] == [
        t for t in texts if t in [f"{n} {k}" for k, n in counts.items()]
    ]
    view.click("[data-compare=b]")
    assert view.run(
        "return [...document.querySelectorAll('#level-head > .gold-legend .gold-key')]"
        ".map((k) => k.textContent)"
    ) == [f"{hits[1].sum()} hit", f"{7 - hits[1].sum()} missed"]


def test_hostile_names_and_tokens_are_text(view, peaked, tmp_path):
    hostile = [text for kind in SHAPES for text in texts(kind)]
    tokens = hostile[::3]
    traces = [Trace.from_arrays(peaked(1, 2, len(tokens), seed=n), [tokens]) for n in (0, 1)]
    for number, names in enumerate(zip(hostile[::15], hostile[1::15], strict=True)):
        if names[0] == names[1]:
            continue
        page = compare_view(*traces, names=names).save(tmp_path / f"{number}.html")
        view.open(page, "level=head&layer=0&heads=0-1&query=3")
        assert len(view.texts(".which")) == 3
        view.point("[data-trace=b] .right [data-index='4']")
        assert len(view.run(f"return {TABLE}")) == 2
        ElementTree.fromstring(view.svg())
        assert (
            view.run("return window.seen") == [] and view.run("return document.images.length") == 0
        )


def test_pointing_takes_no_longer_than_a_frame(view, peaked, tmp_path):
    """128 tokens, 12 heads; the median, since the machine does other things, too."""
    tokens = [f"t{n}" for n in range(128)]
    traces = [Trace.from_arrays(peaked(1, 12, 128, seed=n), [tokens]) for n in (0, 1)]
    view.open(compare_view(*traces).save(tmp_path / "long.html"), "level=head&layer=0")
    times = view.browser.execute_async_script(
        "const done = arguments[0], page = document.querySelector('main').flaxattn, times = [];"
        "const step = (i) => { if (i === 40) return done(times);"
        " requestAnimationFrame(() => { const start = performance.now();"
        " page.point(i % 2 ? 'left' : 'right', (7 * i) % 128);"
        " times.push(performance.now() - start); step(i + 1); }); };"
        "step(0);"
    )
    assert float(np.median(times)) <= 50
