# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Weights other than attention in a browser: every level draws them and says what they are."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import store_cases

from flaxattn.attribution.ablation import HeadEffects
from flaxattn.measures.divergence import compare_stores
from flaxattn.store.open_store import open_store
from flaxattn.trace.trace import Trace
from flaxattn.views.trace_views import compare_view, head_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TOKENS = ["[CLS]", "the", "cat", "sat", "[SEP]"]
STEP = 2**-12 + 1e-6


@pytest.fixture(scope="module")
def shown(peaked, tmp_path_factory) -> tuple[dict[str, np.ndarray], Path]:
    """Weights `[L, H, Q, K]` by name, and their page."""
    rng = np.random.default_rng(3)
    arrays = {
        "attention": peaked(2, 3, 5)[:, 0],
        "norm": peaked(2, 3, 5, seed=1)[:, 0] * 9,
        "gradient": rng.normal(size=(2, 3, 5, 5)) * 1e-4,
        "<b>mine</b>": peaked(2, 1, 5, seed=2)[:, 0],
    }
    trace = Trace.from_arrays(
        arrays["attention"][:, None],
        [TOKENS],
        special=np.array([[token.startswith("[") for token in TOKENS]]),
    )
    given = {name: array for name, array in arrays.items() if name != "attention"}
    means = np.arange(6, dtype=float).reshape(2, 3) / 1000 - 0.002
    effects = HeadEffects("ablation", {"head_mask": means}, {"head_mask": means}, 2.5, 12)
    page = head_view(trace, 0, weights=given, effects=effects, precision="float16")
    return arrays | {"ablation": means}, page.save(tmp_path_factory.mktemp("kinds") / "kinds.html")


def test_lines_are_of_the_weights_that_are_chosen_and_the_page_says_which(view, shown):
    arrays, path = shown
    view.open(path, "layer=1")
    options = view.texts("select[name=weights] option")
    assert options == ["raw attention", "‖αf(x)‖", "gradient × attention", "<b>mine</b>"]
    assert not view.find(".badge.kind").is_displayed()
    for name, scale in (("norm", arrays["norm"][1].max()), ("<b>mine</b>", 1.0)):
        view.choose("weights", name)
        whole = np.broadcast_to(arrays[name][1], (3, 5, 5)) / scale
        view.assert_draws(whole.astype(np.float32))
        label = f"‖αf(x)‖, 1 = {scale:.5g}, the layer’s largest" if name == "norm" else name
        assert view.texts(".badge.kind") == [label]
    view.choose("weights", "gradient")
    drawn, largest = view.lines(), np.abs(arrays["gradient"][1]).max()
    assert all(
        abs(w * largest - arrays["gradient"][1][at]) <= STEP * largest for at, w in drawn.items()
    )
    colours = view.run(
        "return view.drawing.lines.map((line) => [line.weight > 0, page.colourOfLine(line)])"
    )
    more, less = (view.run(f"return page.style('--{name}')") for name in ("positive", "negative"))
    assert {tuple(pair) for pair in colours} == {(True, more), (False, less)}
    assert view.run("return window.seen") == []


def test_mass_and_hidden_tokens_are_of_the_sum_of_each_row(view, shown):
    arrays, path = shown
    view.open(path, "layer=0&heads=1&weights=norm&mass=60")
    norms = arrays["norm"][0, 1]
    kept = np.zeros_like(norms)
    for row, out in zip(norms, kept, strict=True):
        order = np.argsort(-row)
        count = np.searchsorted(np.cumsum(row[order]), 0.6 * row.sum()) + 1
        out[order[:count]] = row[order[:count]]
    assert {(q, k) for _, q, k in view.lines()} == set(zip(*np.nonzero(kept), strict=True))
    status = view.find("#level-head .status").text
    share = view.run("return view.drawn().share")
    assert share == pytest.approx(kept.sum() / norms.sum(), abs=1e-3)
    assert "of the sum of ‖αf(x)‖" in status
    view.open(path, "layer=0&heads=1&weights=norm&special=hidden")
    inner, scale = slice(1, 4), arrays["norm"][0].max()
    for (_, query, key), weight in view.lines().items():
        assert abs(weight - norms[query, key] / scale) <= STEP, "nothing is scaled up"
        assert key in range(*inner.indices(5))
    assert view.texts("#level-head .badge:not(.kind, [hidden])") == ["left out"]


def test_every_level_and_the_address_follow(view, shown):
    arrays, path = shown
    view.open(path, "layer=1&heads=2&weights=norm")
    view.choose("drawing", "matrix")
    view.run("page.go({ level: 'model' })")
    scale = arrays["norm"].max((1, 2, 3))
    for layer in (0, 1):
        picture = view.run("return [...view.drawn(arguments[0], 0).values]", layer)
        expected = (arrays["norm"][layer, 0] / scale[layer]).ravel()
        assert np.abs(np.array(picture) - expected).max() <= STEP
    assert "‖αf(x)‖, 1 is the largest of each layer" in view.find("#level-model .status").text
    view.run("page.go({ level: 'atlas', measure: 'entropy' })")
    rows = arrays["norm"] / arrays["norm"].sum(-1, keepdims=True)
    entropy = -(rows * np.log(rows)).sum(-1).mean(-1)
    cells = view.run("return view.drawn()")
    assert [c["text"] for c in cells] == [f"{entropy[c['layer'], c['head']]:.2f}" for c in cells]
    assert "of ‖αf(x)‖ as shares of each row" in view.find("#level-atlas .status").text
    assert "weights=norm" in view.run("return location.hash")
    assert view.run("return page.state.json().weights") == "norm"
    assert ", ‖αf(x)‖" in view.svg()


def test_two_stores_are_an_atlas_that_names_heads_left_out(view, tmp_path):
    first = store_cases.traces("encoder", 3)
    pairs = [(text, np.asarray(text.encoder.weights)[..., ::-1].copy()) for text in first]
    pairs[1][1][0, 0, 1, 0, 0] = np.nan
    second = [
        dataclasses.replace(text, encoder=dataclasses.replace(text.encoder, weights=weights))
        for text, weights in pairs
    ]
    both = zip(("a", "b"), (first, second), strict=True)
    stores = [open_store(store_cases.write(tmp_path / name, texts)) for name, texts in both]
    view.open(compare_view(*stores, names=("a", "<b>")).save(tmp_path / "stores.html"))
    expected = compare_stores(*stores).heads
    cells = view.run("return view.drawn()")
    assert [(c["layer"], c["head"]) for c in cells] == [(r.layer, r.head) for r in expected]
    assert [c["text"] for c in cells] == [f"{r.divergence:.3f}" for r in expected]
    assert view.texts("[role=radio]:not([hidden])") == ["a", "<b>", "<b> − a"]
    note = "a and <b>, 3 texts; NaN in some texts, left out there: encoder 0.2"
    assert view.texts("#level-atlas .measured-by") == [note]
    view.choose("measure", "entropy")
    assert {c["text"] for c in view.run("return view.drawn()")} == {"+0.00"}
    assert view.run("return window.seen") == []


def test_a_page_marks_where_a_prompt_ends(view, peaked, tmp_path):
    weights = np.tril(peaked(1, 2, 5))
    trace = Trace.from_arrays(
        None,
        [list("abcde")],
        decoder_weights=weights / weights.sum(-1, keepdims=True),
        decoder_tokens=[list("abcde")],
    )
    trace = dataclasses.replace(trace, decoder_tokens=(), segments=np.array([[0, 0, 1, 1, 1]]))
    view.open(head_view(trace, 0).save(tmp_path / "prompt.html"), "attention=ba")
    assert view.texts("select[name=attention] option")[1:3] == [
        "Prompt → Prompt",
        "Continuation → Continuation",
    ]
    assert {key[1:] for key in view.lines()} == {(q, k) for q in (2, 3, 4) for k in (0, 1)}
    view.choose("attention", "all")
    marked = "[...document.querySelectorAll('[data-begins]')]"
    assert view.run(f"return {marked}.map((e) => [e.dataset.index, e.dataset.begins])") == [
        ["2", "continuation"],
        ["2", "continuation"],
    ]
    shown = f"return getComputedStyle({marked}[0], '::after').content"
    assert view.run(shown) == '"continuation"'


def test_the_effect_of_ablation_is_a_number_with_what_it_was_measured_by(view, shown):
    _, path = shown
    view.open(path, "level=atlas&measure=ablation&order=value")
    cells = view.run("return view.drawn()")
    assert [(c["layer"], c["head"]) for c in cells] == [
        (1, 2),
        (1, 1),
        (1, 0),
        (0, 2),
        (0, 1),
        (0, 0),
    ]
    assert [c["text"] for c in cells] == ["0.0030", "0.0020", "0.0010", "0", "−0.0010", "−0.0020"]
    colours = [[int(n) for n in c["colour"][4:-1].split(",")] for c in cells]
    assert colours[0][2] > colours[0][0] and colours[-1][0] > colours[-1][2]
    assert "mean over 12 texts, whose loss is 2.5" in view.find("#level-atlas .measured-by").text
