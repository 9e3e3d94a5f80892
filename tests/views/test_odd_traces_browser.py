# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Traces at the edge in every level: unequal depth and heads, one token, nothing but zeros, …

What is drawn is read back; NaN in lines, matrix, model and atlas is in `test_nan_browser.py`.
"""

import dataclasses

import numpy as np
import pytest
import view_cases

from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import ERROR
from flaxattn.views.trace_views import compare_view, head_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

D = 4
PAINTED = "document.querySelectorAll('#level-model .cell:not([data-painted])').length === 0"
# Layers and heads of the encoder, and of the decoder.
UNEQUAL = {"12/6": ((12, 4), (6, 4)), "6/12": ((6, 8), (12, 4)), "8/4": ((3, 8), (3, 4))}


@pytest.fixture(scope="module", params=UNEQUAL)
def unequal(request, peaked, tmp_path_factory):
    """Weights `[L, H, Q, K]` by side, and their page."""
    (depth, heads), (other_depth, other_heads) = UNEQUAL[request.param]
    weights = {
        "encoder": peaked(depth, heads, 3),
        "decoder": peaked(other_depth, other_heads, 2, seed=1),
        "cross": peaked(other_depth, other_heads, 2, seed=2, keys=3),
    }
    trace = Trace.from_arrays(
        weights["encoder"],
        [["a", "b", "c"]],
        decoder_weights=weights["decoder"],
        cross_weights=weights["cross"],
        decoder_tokens=[["<s>", "x"]],
        written=[["x", "</s>"]],
    )
    path = tmp_path_factory.mktemp("unequal") / "page.html"
    return {name: part[:, 0] for name, part in weights.items()}, head_view(trace, 0).save(path)


def test_unequal_sides_are_drawn_to_their_last_layer_and_head(view, unequal):
    weights, path = unequal
    for side, own in weights.items():
        layer, head = own.shape[0] - 1, own.shape[1] - 1
        view.open(path, f"level=head&side={side}&layer={layer}&heads={head}")
        view.assert_draws(own[layer], heads=[head])
        assert view.texts("button.head") == [str(i) for i in range(own.shape[1])]
        assert len(view.texts("select[name=layer] option")) == own.shape[0]
        view.choose("drawing", "matrix")
        assert view.run("const d = view.matrix.drawn(); return [d.layer, d.head]") == [layer, head]
    assert view.run("return window.seen") == []


def test_unequal_sides_have_all_their_pictures_and_numbers(view, unequal):
    weights, path = unequal
    for level in ("model", "atlas"):
        view.open(path, f"level={level}")
        for side, own in weights.items():
            view.choose("side", side)
            cells = view.browser.find_elements("css selector", f"#level-{level} .cell")
            last = [cells[-1].get_attribute(f"data-{name}") for name in ("layer", "head")]
            assert len(cells) == own.shape[0] * own.shape[1]
            assert last == [str(own.shape[0] - 1), str(own.shape[1] - 1)]
        if level == "model":
            read = "return [...view.drawn(arguments[0], arguments[1]).values]"
            drawn = view.run(read, own.shape[0] - 1, own.shape[1] - 1)
            assert np.abs(drawn - own[-1, -1].ravel()).max() <= ERROR["float16"]
    assert view.run("return window.seen") == []


def test_the_joined_square_of_unequal_sides_is_as_deep_as_the_deeper(view, unequal):
    weights, path = unequal
    depth = max(own.shape[0] for own in weights.values())
    heads = max(own.shape[1] for own in weights.values())
    view.open(path, f"level=head&side=all&layer={depth - 1}")
    assert len(view.texts("select[name=layer] option")) == depth
    assert len(view.texts("button.head")) == heads
    expected = np.zeros((heads, 5, 5))
    for name, rows, columns in (
        ("encoder", slice(3), slice(3)),
        ("cross", slice(3, 5), slice(3)),
        ("decoder", slice(3, 5), slice(3, 5)),
    ):
        own = weights[name]
        if depth <= len(own):
            expected[: own.shape[1], rows, columns] = own[depth - 1]
    drawn = view.lines()
    assert drawn.keys() == {tuple(map(int, place)) for place in np.argwhere(expected > 0)}
    assert max(abs(drawn[place] - expected[place]) for place in drawn) <= ERROR["float16"]
    lacking = [name for name, own in weights.items() if len(own) < depth]
    assert bool(view.texts(".badge:not([hidden])")) == bool(lacking)


def neurons(length: int, seed: int = 0) -> AttentionRecord:
    """A side of one layer and two heads with vectors."""
    query, key, value = (
        np.random.default_rng(seed).normal(size=(3, 1, 1, length, 2, D)).astype(np.float32)
    )
    scores = D**-0.5 * np.einsum("lbqhd,lbkhd->lbhqk", query, key)
    vectors = dict(query=query, key=key, value=value, scale=D**-0.5)
    return AttentionRecord(weights=view_cases.shares(scores), layers=(0,), heads=(0, 1), **vectors)


def zeros() -> Trace:
    """Head 1 has vectors and weights of nothing but zeros."""
    record = neurons(3)
    fields = {name: np.array(getattr(record, name)) for name in ("query", "key", "value")}
    for array in fields.values():
        array[..., 1, :] = 0
    weights = np.array(record.weights)
    weights[:, :, 1] = 1 / 3
    return Trace(encoder=dataclasses.replace(record, weights=weights, **fields), tokens=[[*"abc"]])


def off() -> Trace:
    """Head 1 attends to nothing, as one that was switched off."""
    trace = zeros()
    weights = np.array(trace.encoder.weights)
    weights[:, :, 1] = 0
    return dataclasses.replace(trace, encoder=dataclasses.replace(trace.encoder, weights=weights))


def lost() -> Trace:
    """Query 1 of head 0 is NaN, and so are its weights."""
    record = neurons(3)
    query, weights = np.array(record.query), np.array(record.weights)
    query[0, 0, 1, 0], weights[0, 0, 0, 1] = np.nan, np.nan
    return Trace(
        encoder=dataclasses.replace(record, query=query, weights=weights), tokens=[[*"abc"]]
    )


def special() -> Trace:
    """Every token is one that the model adds."""
    marks = {"special": np.ones((1, 3), bool)}
    return Trace(encoder=neurons(3), tokens=[["[CLS]", "[SEP]", "[PAD]"]], **marks)


ODD = {
    "one": lambda: Trace(encoder=neurons(1), tokens=[["a"]]),
    "special": special,
    "zeros": zeros,
    "off": off,
    "lost": lost,
}


@pytest.mark.parametrize("name", ODD)
def test_neurons_of_an_odd_trace(view, tmp_path, name):
    trace = ODD[name]()
    view.open(
        head_view(trace, 0).save(tmp_path / "page.html"),
        "level=neuron&heads=1&query=0&sorting=position",
    )
    size = len(trace.tokens[0])
    assert view.texts(".failure") == []
    shown = trace.encoder.weights[0, 0, 1, 0]
    if view.find(".neuron-body").is_displayed():
        weights = [float(t.replace("<", "")) for t in view.texts(".neuron-cell.weight")]
        assert weights == pytest.approx(shown, abs=0.0011)
        assert len(view.texts(".neuron-row")) == size
    else:
        assert name in ("off", "lost")
        assert view.texts(".neuron-note")[0]
    for key in ("ARROW_DOWN", "[", "ESCAPE"):
        view.press(key)
    assert "NaN" not in view.find("#level-neuron").text or name == "lost"
    assert view.run("return window.seen") == []


@pytest.mark.parametrize("name", ODD)
def test_an_odd_trace_is_compared_with_itself(view, tmp_path, name):
    trace = ODD[name]()
    bare = {"query": None, "key": None, "value": None}
    same = dataclasses.replace(trace, encoder=dataclasses.replace(trace.encoder, **bare))
    path = compare_view(trace, same).save(tmp_path / "page.html")
    for level in ("atlas", "model", "head", "head&drawing=matrix"):
        view.open(path, f"level={level}&compare=difference")
        assert view.texts(".failure") == []
        assert view.run("return window.seen") == []
    view.open(path, "level=head&compare=difference&heads=0-1&layer=0")
    assert set(view.lines().values()) <= {0}
    view.click("[data-compare=b]")
    weights = trace.encoder.weights[0, 0]
    kept = {tuple(map(int, place)) for place in np.argwhere(weights > 0)}
    assert view.lines().keys() == kept


@pytest.mark.parametrize("name", ODD)
def test_lines_of_an_odd_trace_with_everything_hidden(view, tmp_path, name):
    trace = ODD[name]()
    settings = "special=hidden&first=hidden&mass=50&opacity=row"
    path = head_view(trace, 0).save(tmp_path / "page.html")
    view.open(path, f"level=head&{settings}")
    assert "NaN %" not in view.find("main").text
    if name in ("one", "special"):
        assert view.lines() == {}
    else:
        sums = np.zeros((2, 3))
        for (head, query, _), weight in view.lines().items():
            sums[head, query] += weight
        assert (sums <= 1.003).all() and (name != "off" or not sums[1].any())
    view.choose("drawing", "matrix")
    view.press("2")
    view.until(PAINTED)
    assert view.texts(".failure") == []
    assert view.run("return window.seen") == []
