# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The levels of a page move together: tabs, clicks, keys, Back, the address, states, texts, words.

In a headless Chromium, from a file, without a network.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.trace.trace import Trace

pytestmark = pytest.mark.browser


def shown(view) -> list:
    """Level, side, layer and heads, by the numbers of the model."""
    found = view.run("return page.state.json()")
    return [found[name] for name in ("level", "side", "layer", "heads")]


def sections(view) -> list[str]:
    """Levels that can be seen."""
    return [
        part.get_attribute("id")
        for part in view.browser.find_elements("css selector", "section.level")
        if part.is_displayed()
    ]


def test_tabs_open_the_levels_and_say_which_is_open(view, pair):
    view.open(pair.page)
    assert view.texts("[role=tab]") == ["Atlas", "Model", "Head", "Text"]
    for name in ("atlas", "model", "head", "text"):
        view.click(f"[data-level={name}]")
        assert sections(view) == [f"level-{name}"]
        assert view.texts("[role=tab][aria-selected=true]") == [name.capitalize()]
        assert view.find("main").get_attribute("data-level") == name
    assert view.run("return window.seen") == []


def test_each_level_has_its_controls(view, pair):
    expected = {
        "atlas": {"measure", "order"},
        "model": {"attention", "opacity", "special", "first"},
        "head": {"layer", "drawing", "attention", "opacity", "mass", "special", "first"},
        "text": {"layer", "direction", "attention", "opacity", "special", "first"},
    }
    for level, names in expected.items():
        view.open(pair.page, f"level={level}")
        controls = view.browser.find_elements("css selector", ".controls [name]")
        assert {c.get_attribute("name") for c in controls if c.is_displayed()} == names


def test_a_click_moves_all_levels_and_back_returns(view, pair):
    view.open(pair.page, "level=atlas")
    view.click("#level-atlas [data-layer='1'][data-head='2']")
    assert shown(view) == ["head", "encoder", 1, [2]]
    view.assert_draws(pair.shares[1], heads=[2])
    view.click("[data-level=model]")
    current = view.find("#level-model .cell[aria-current=true]")
    assert [current.get_attribute(f"data-{name}") for name in ("layer", "head")] == ["1", "2"]
    view.click("#level-model [data-layer='0'][data-head='1']")
    assert shown(view) == ["head", "encoder", 0, [1]]
    view.browser.back()
    view.until("page.state.level === 'model'")
    assert shown(view) == ["model", "encoder", 1, [2]]
    view.browser.back()
    view.until("page.state.level === 'head'")
    view.assert_draws(pair.shares[1], heads=[2])
    view.browser.back()
    view.until("page.state.level === 'atlas'")
    assert shown(view) == ["atlas", "encoder", 0, [0, 1, 2]]
    view.browser.forward()
    view.until("page.state.level === 'head'")
    assert shown(view) == ["head", "encoder", 1, [2]]


def test_what_is_pinned_stays_from_level_to_level(view, pair):
    view.open(pair.page, "query=2&special=hidden")
    view.press("2")
    assert shown(view)[0] == "model"
    view.press("3")
    assert view.run("return [page.state.query, page.state.special]") == [2, "hidden"]


def test_two_pinned_tokens_show_their_pair(view, pair):
    view.open(pair.page)
    view.click(view.token("left", 2))
    view.click(view.token("right", 9))
    view.point("h1")
    assert view.texts(".panel h2") == [f"cat → {pair.tokens[9]}"]
    listed = [float(text) for text in view.texts(".panel .value")]
    assert listed == pytest.approx(pair.shares[0, :, 2, 9], abs=0.001)
    assert view.browser.current_url.endswith("#query=2&key=9")
    view.press("ESCAPE")
    assert not view.browser.current_url.endswith("9")
    view.assert_draws(pair.shares[0])


def test_keys_walk_levels_heads_and_themes(view, pair):
    view.open(pair.page)
    view.press("]")
    assert view.heads_on() == ["0"]
    view.press("]", "]", "]")
    assert view.heads_on() == ["2"]
    view.press("[")
    assert view.heads_on() == ["1"]
    view.press(".")
    assert view.run("return page.state.theme") == "light"
    for key, level in (("1", "atlas"), ("2", "model"), ("3", "head"), ("4", "text"), ("5", "text")):
        view.press(key)
        assert shown(view)[0] == level


def test_arrows_walk_the_cells_and_enter_opens(view, pair):
    for level in ("atlas", "model"):
        view.open(pair.page, f"level={level}")
        view.press("ARROW_DOWN", "ARROW_DOWN", "ARROW_RIGHT")
        focused = (
            "const cell = document.activeElement; return [cell.dataset.layer, cell.dataset.head]"
        )
        assert view.run(focused) == ["1", "1"]
        assert view.texts(f"#level-{level} .panel strong")[0].startswith("Layer 1, head 1")
        view.press("ARROW_UP", "ENTER")
        assert shown(view) == ["head", "encoder", 0, [1]]


def test_a_state_is_copied_and_opens_the_same_page_from_python(view, pair, tmp_path):
    view.open(pair.page, "layer=1&heads=0-2&attention=ab&mass=90&query=2&theme=dark")
    before = view.lines()
    view.click("button.copy")
    state = json.loads(view.find("textarea").get_property("value"))
    assert state["heads"] == [0, 2] and state["mass"] == 90 and state["query"] == 2
    page = fa.head_view(pair.trace, state=state, precision="float16")
    view.open(page.save(tmp_path / "again.html"))
    assert view.lines() == before
    assert view.run("return page.state.json()") == state
    assert view.browser.current_url.endswith("#")


def test_a_state_is_pasted(view, pair):
    view.open(pair.page)
    view.click("button.copy")
    view.run("document.querySelector('textarea').value = arguments[0]", "nonsense")
    view.click("dialog .use")
    assert view.texts("dialog [role=alert]")[0].startswith("This is not a state: ")
    expected = '{"level": "atlas", "layer": 1, "heads": [2], "order": "value", "mass": 3}'
    view.run("document.querySelector('textarea').value = arguments[0]", expected)
    view.click("dialog .use")
    assert shown(view) == ["atlas", "encoder", 1, [2]]
    assert view.run("return [page.state.order, page.state.mass]") == ["value", 1]


def test_a_pinned_start_can_be_let_go(view, pair, tmp_path):
    page = fa.head_view(pair.trace, state={"query": 3}, precision="float16")
    view.open(page.save(tmp_path / "pinned.html"))
    view.assert_draws(pair.shares[0], queries=[3])
    view.press("ESCAPE")
    view.point("h1")
    settings = view.browser.current_url.split("#")[1]
    assert settings == "query=none"
    view.open(tmp_path / "pinned.html", settings).assert_draws(pair.shares[0])


@pytest.fixture(scope="module")
def library(peaked, tmp_path_factory) -> tuple[np.ndarray, Path]:
    """Three texts, the last of them shorter."""
    tokens = ["the cat sat".split(), "a dog ran".split(), "one fish [PAD]".split()]
    mask = np.array([[t != "[PAD]" for t in row] for row in tokens])
    weights = np.concatenate([peaked(2, 2, 3, seed=s) for s in range(3)], axis=1)
    weights = weights * mask[None, :, None, None]
    weights = (weights / weights.sum(-1, keepdims=True)).astype(np.float32)
    page = fa.head_view(Trace.from_arrays(weights, tokens, mask=mask), 0, precision="float16")
    return weights, page.save(tmp_path_factory.mktemp("library") / "library.html")


def test_texts_are_listed_and_turned_to(view, library):
    weights, path = library
    view.open(path)
    assert view.texts("[name=sequence] option") == ["1: the cat sat", "2: a dog ran", "3: one fish"]
    view.assert_draws(weights[0, 0])
    view.choose("layer", "1")
    view.choose("sequence", "1")
    assert view.texts(".left .token-text") == ["a", "dog", "ran"]
    view.assert_draws(weights[1, 1])
    view.choose("sequence", "2")
    view.assert_draws(weights[1, 2][:, :2, :2])
    view.click("[data-level=atlas]")
    assert len(view.texts("#level-atlas .cell")) == 4
    view.open(path, "sequence=2&layer=1").assert_draws(weights[1, 2][:, :2, :2])
    view.open(path, "sequence=3&layer=1").assert_draws(weights[1, 0])


def test_texts_are_searched(view, library):
    weights, path = library
    view.open(path)
    view.find("[name=search]").send_keys("FIS")
    assert view.texts("[name=sequence] option") == ["3: one fish", "1: the cat sat"]
    assert view.find("[name=search]").get_attribute("title") == "1 of 3 texts"
    view.press("ENTER")
    assert view.texts(".left .token-text") == ["one", "fish"]
    view.assert_draws(weights[0, 2][:, :2, :2])
    view.browser.back()
    view.until("page.state.sequence === 0")


def test_words_sum_over_their_tokens_and_average_from_them(view, peaked, tmp_path):
    tokens = ["[CLS]", "un", "##believ", "##able", "cats", ".", "[SEP]"]
    words = [None, 0, 0, 0, 1, 1, None]
    special = np.array([[w is None for w in words]])
    trace = Trace.from_arrays(peaked(2, 2, 7), [tokens], words=[words], special=special)
    view.open(fa.head_view(trace, 0).save(tmp_path / "words.html"))
    groups = [[0], [1, 2, 3], [4, 5], [6]]
    shares = np.asarray(trace.encoder.weights)[1, 0]
    columns = np.stack([shares[:, :, group].sum(-1) for group in groups], axis=-1)
    expected = np.stack([columns[:, group].mean(1) for group in groups], axis=1)
    view.click("[name=unit]")
    view.choose("layer", "1")
    assert view.texts(".left .token-text") == ["[CLS]", "unbelievable", "cats.", "[SEP]"]
    view.assert_draws(expected, error=0.001)
    assert view.browser.current_url.endswith("#layer=1&unit=words")
    view.click("[name=special]")
    kept = expected[:, 1:3, 1:3] / expected[:, 1:3, 1:3].sum(-1, keepdims=True)
    assert view.lines() == pytest.approx(
        {(h, q + 1, k + 1): kept[h, q, k] for h, q, k in np.ndindex(kept.shape)}, abs=0.003
    )
    view.click("[name=unit]")
    assert view.texts(".left .token-text") == tokens[1:-1]


def test_words_of_a_translation_are_those_of_each_side(view, translation):
    view.open(translation.page, "unit=words&side=encoder")
    assert view.texts(".left .token-text") == ["<b>ein</b>", " Haus", " am", " See", "</s>"]
    shares = translation.shares["encoder"][0]
    columns = np.delete(shares, 2, axis=-1)
    columns[..., 1] += shares[..., 2]
    expected = np.delete(columns, 2, axis=1)
    expected[:, 1] = columns[:, 1:3].mean(1)
    view.assert_draws(expected, error=0.001)
    view.choose("side", "all")
    drawn = view.lines()
    for query in range(5, 9):
        sums = [sum(w for (h, q, k), w in drawn.items() if (h, q) == (2, query) and k < 5)]
        assert sums == pytest.approx([1], abs=0.01)


def test_a_text_without_words_has_no_choice(view, pair):
    view.open(pair.page)
    assert not view.find("[name=unit]").is_displayed()


@pytest.mark.parametrize("level", ["atlas", "model", "head"])
def test_pictures_are_saved_as_svg_and_png(view, pair, level):
    view.open(pair.page, f"level={level}")
    assert view.svg().startswith("<svg")
    view.run("window.saved = null")
    view.click("button.png")
    view.until("window.saved !== null")
    name, kind = view.run("return window.saved.slice(0, 2)")
    assert (name.endswith(".png"), kind) == (True, "image/png")
    assert view.run("return window.saved[2].size") > 1000
    assert view.run("return window.seen") == []


@pytest.mark.parametrize("level", ["atlas", "model", "head"])
def test_everything_to_press_has_a_name(view, pair, level):
    view.open(pair.page, f"level={level}")
    tree = view.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {"button", "combobox", "slider", "checkbox", "listbox", "option", "tab", "textbox"}
    found = [node for node in tree if node.get("role", {}).get("value") in roles]
    names = [node.get("name", {}).get("value", "") for node in found]
    assert all(names)
    if level != "head":
        cells = [name for name in names if name.startswith("Layer ") and ", head " in name]
        assert len(cells) == 6
