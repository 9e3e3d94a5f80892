# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every way out of a page shows the numbers of the page, for states drawn at random."""

import dataclasses
import json
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import numpy as np
import pytest
from drawn_figures import ink, lines_of, svg_texts, tokens_of

from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.plot_state import plot_state
from flaxattn.views.payloads.page_encoding import ERROR, SETTINGS
from flaxattn.views.trace_views import head_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WITHIN = 4 * ERROR["float16"]
FEATURES = 20


def random_states(count: int) -> list[dict]:
    """States of all levels, as an address tells them; half are lines."""
    rng = np.random.default_rng(26)
    levels = ["head"] * 10 + ["matrix"] * 4 + ["model", "atlas"] + ["neuron"] * 4
    states = []
    for level in levels[:count]:
        state = {name: str(rng.choice(values)) for name, values in SETTINGS.items()}
        state |= {"compare": "a", "theme": "light", "drawing": "lines"}
        state["level"], state["layer"] = level, int(rng.integers(2))
        state["heads"] = sorted(rng.choice(3, rng.integers(1, 4), replace=False).tolist())
        state["mass"] = int(rng.integers(5, 101))
        state["measure"] = str(rng.choice(["entropy", "own", "delimiter"]))
        for pin in ("query", "key"):
            state[pin] = int(rng.integers(10)) if rng.random() < 0.4 else "none"
        if level == "matrix":
            state |= {"level": "head", "drawing": "matrix"}
        states.append(state)
    return states


@dataclasses.dataclass(frozen=True)
class Saved:
    """A trace with all that a state can be about, and the page made of it."""

    trace: Trace
    page: object


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Saved:
    tokens = "[CLS] the catt ##er ##ing is sad [SEP] it found no foo ##d [SEP]".split()
    words = [None, 0, 1, 1, 1, 2, 3, None, 4, 5, 6, 7, 7, None]
    rng = np.random.default_rng(1)
    shape = (2, 2, 1, len(tokens), 3, FEATURES)
    q, k = rng.normal(size=shape).astype(np.float32) * 1.5
    scores = np.einsum("lbqhd,lbkhd->lbhqk", q, k) / np.sqrt(FEATURES)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares = (shares / shares.sum(-1, keepdims=True)).astype(np.float32)
    record = AttentionRecord(weights=shares, query=q, key=k, layers=(0, 1), heads=(0, 1, 2))
    special = np.array([[word is None for word in words]])
    segments = (np.arange(len(tokens)) > 7)[None].astype(int)
    trace = Trace(
        encoder=record,
        tokens=[tokens],
        words=[words],
        special=special,
        segments=segments,
        mask=np.ones((1, len(tokens)), bool),
        model="tiny",
    )
    return Saved(trace, head_view(trace).save(tmp_path_factory.mktemp("saved") / "page.html"))


def opened(view, saved, state):
    """The page in a state, and that state as Python gets it."""
    address = {**state, "heads": "-".join(map(str, state["heads"]))}
    view.open(saved.page, "&".join(f"{name}={value}" for name, value in address.items()))
    return view.run("return page.state.json()")


@pytest.mark.parametrize("number", range(20))
def test_page_and_figure_show_the_same_numbers(view, saved, number):
    state = opened(view, saved, random_states(20)[number])
    figure = plot_state(saved.trace, state)
    try:
        kind = state["drawing"] if state["level"] == "head" else state["level"]
        CHECKS[kind](view, figure, state)
    finally:
        plt.close(figure)
    assert json.loads(view.png().text["flaxattn state"]) == state
    root = ElementTree.fromstring(view.svg())
    assert json.loads(root[-1].text or "") == state
    SAVED.get(kind, check_texts)(view, root)


def check_saved_lines(view, root):
    """Every line that can be seen, with its weight, and no other; tokens, numbers and colours."""
    expected = {
        (line["head"], line["query"], line["key"]): line["weight"]
        for line in view.run("return view.drawn().lines")
        if round(255 * ink(line["opacity"]))
    }
    paths = [node for node in root.iter() if node.tag.endswith("}path")]
    place = ("data-head", "data-query", "data-key")
    found = {tuple(int(p.get(n)) for n in place): float(p.get("data-weight")) for p in paths}
    assert found == pytest.approx(expected, rel=1e-5) and len(found) == len(paths)
    assert svg_texts(root, "token") == view.texts(".tokens .token-text")
    assert svg_texts(root, "value") == list(filter(None, view.texts(".tokens .value")))
    assert svg_texts(root, "column") == view.texts(".stage h2")
    assert svg_texts(root, "colour") == view.heads_on()


def check_saved_matrix(view, root):
    """Every cell with its weight, and the legend."""
    cells = [node for node in root.iter() if node.get("data-weight")]
    grid = view.run("const g = view.matrix.pyramid.level(0); return [...g.values]")
    found = [float(cell.get("data-weight", "")) for cell in cells]
    assert found == pytest.approx([weight for weight in grid if weight], rel=1e-5)
    texts = ["".join(node.itertext()) for node in root.iter() if node.tag.endswith("}text")]
    marks = view.texts(".matrix-mark")
    assert texts[-len(marks) :] == marks


def check_texts(view, root):
    """The numbers that the page writes into cells."""
    texts = {"".join(node.itertext()) for node in root.iter() if node.tag.endswith("}text")}
    selector = ".cell-value" if view.texts(".cell-value") else ".neuron-cell.weight"
    for text in view.texts(f".level:not([hidden]) {selector}"):
        assert any(text in other for other in texts), text
    axes = view.texts(".level:not([hidden]) .axes")
    assert set(axes) | set(view.texts(".level:not([hidden]) .legend-mark")) <= texts


def check_lines(view, figure, state):
    """Opacities of lines, tokens of both columns and numbers beside them."""
    places = view.run("const s = view.state.selection(null); return [s.queries, s.keys]")
    drawn = lines_of(figure, state["heads"], *places)
    shown = {
        (line["head"], line["query"], line["key"]): ink(line["opacity"])
        for line in view.run("return view.drawn().lines")
    }
    for line in drawn.keys() | shown.keys():
        apart = abs(drawn.get(line, 0) - shown.get(line, 0))
        limit = WITHIN if line in drawn else 1 / 255 + WITHIN
        assert apart < 8 * limit, line  # a share of the row's largest is less exact
    for side in ("left", "right"):
        tokens = view.texts(f".tokens.{side} .token-text")
        assert [text for _, text in tokens_of(figure, side)] == tokens
    values = [float(text) for text in filter(None, view.texts(".tokens .value")) if text[0] != "<"]
    texts = [text.get_text() for text in figure.axes[0].texts]
    written = [float(text) for text in texts if len(text) == 5 and text[1] == "."]
    np.testing.assert_allclose(written, values, atol=0.00101)
    assert view.texts(".stage h2") == [t for t in texts if t.startswith("atten")]


def check_borders(view, one_sided, cells, state):
    """Cells that only one of both draws end the mass of their row, up to the page's precision."""
    if not one_sided.any():
        return
    view.run("page.update({ mass: 1 })")
    whole = np.array(view.run("return view.matrix.pyramid.level(0).values")).reshape(cells.shape)
    view.run(f"page.update({{ mass: {state['mass'] / 100} }})")
    for row, column in np.argwhere(one_sided):
        weights, mass = whole[row], state["mass"] / 100 * whole[row].sum()
        error = 8 * WITHIN * whole[row].sum()
        larger = weights[weights > cells[row, column] + 8 * WITHIN].sum()
        as_large = weights[weights >= cells[row, column] - 8 * WITHIN].sum()
        assert larger - error < mass < as_large + error


def check_matrix(view, figure, state):
    """Weights of cells, and the rows and columns that are framed."""
    shares = view.run(
        "const g = view.matrix.pyramid.level(0); return [g.rows, g.columns, ...g.values]"
    )
    expected = np.array(shares[2:]).reshape(int(shares[0]), int(shares[1]))
    drawn = np.asarray(figure.axes[0].images[0].get_array())
    one_sided = (drawn == 0) != (expected == 0)
    np.testing.assert_allclose(drawn[~one_sided], expected[~one_sided], atol=8 * WITHIN)
    check_borders(view, one_sided, np.maximum(drawn, expected), state)
    drawn = view.run("return view.matrix.drawn()")
    frames = [p.get_bbox().bounds for p in figure.axes[0].patches if p.get_gid() == "pin"]
    pins = {"query": (drawn["queries"], 1), "key": (drawn["keys"], 0)}
    held = [(order.index(state[n]), at) for n, (order, at) in pins.items() if state[n] in order]
    assert [frame[at] + 0.5 for frame, (_, at) in zip(frames, held, strict=True)] == [
        place for place, _ in held
    ]


def check_model(view, figure, state):
    """Every thumbnail."""
    picture = np.asarray(figure.axes[0].images[0].get_array())
    first = view.run("const p = view.drawn(0, 0); return [p.rows, p.columns]")
    across, down = figure.axes[0].get_xticks(), figure.axes[0].get_yticks()
    for layer, y in enumerate(down):
        for head, x in enumerate(across):
            script = "return [...view.drawn(arguments[0], arguments[1]).values]"
            expected = np.array(view.run(script, layer, head)).reshape(first)
            top, left = (round(at - (n - 1) / 2) for at, n in zip((y, x), first, strict=True))
            part = picture[top : top + first[0], left : left + first[1]]
            np.testing.assert_allclose(part, expected, atol=8 * WITHIN)


def check_atlas(view, figure, state):
    """The number in every square."""
    ax = figure.axes[0]
    drawn = [text.get_text().split("\n")[-1] for text in ax.texts]
    shown = [cell["text"] for cell in view.run("return view.drawn()")]
    np.testing.assert_allclose([*map(float, drawn)], [*map(float, shown)], atol=0.0101)


def check_neuron(view, figure, state):
    """Keys in their order, dimensions in theirs, and the weights."""
    shown = view.run("return view.drawn()")
    ax = figure.axes[0]
    tokens = [label.get_text() for label in ax.get_yticklabels()]
    scene = "const s = view.scene, k = s.keys; "
    keys = view.run(scene + "return k.map((i) => view.side.right.tokens[i])")
    assert tokens == keys
    (strip,) = (column for column in shown["columns"] if column["name"] == "key")
    expected = view.run(
        scene + "return k.map((i) => arguments[0].map((d) => s.head.vector('key', i)[d]))",
        strip["dimensions"],
    )
    np.testing.assert_allclose(np.asarray(ax.images[2].get_array()), expected, atol=1e-5)
    weights = view.run(scene + "return k.map((i) => s.terms.weights[i])")
    np.testing.assert_allclose(np.asarray(ax.images[0].get_array())[:, 0], weights, atol=1e-5)
    assert ax.get_title().startswith(
        f"layer {shown['layer']}, head {shown['head']}, query {shown['query']}: "
    )
    cells = FEATURES if state["dimensions"] == "all" else len(strip["dimensions"])
    numbered = sum(text.get_text() not in ("",) for text in ax.texts) >= 3 * 14 * cells
    assert numbered == (state["numbers"] == "on")


SAVED = {"lines": check_saved_lines, "matrix": check_saved_matrix}
CHECKS = {
    "lines": check_lines,
    "matrix": check_matrix,
    "model": check_model,
    "atlas": check_atlas,
    "neuron": check_neuron,
}
