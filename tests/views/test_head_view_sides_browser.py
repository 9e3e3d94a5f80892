# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The sides of a page in the browser: switching, the joined square, unequal depth and heads.

In a headless Chromium, from a file, without a network.
"""

import dataclasses
from xml.etree import ElementTree

import numpy as np
import pytest
from drawn_figures import svg_texts

from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import ERROR
from flaxattn.views.trace_views import head_view

pytestmark = pytest.mark.browser


def assert_lines(view, shares: np.ndarray, error: float = ERROR["float16"]) -> None:
    """The lines on the canvas are the weights `[H, Q, K]` above 0, and no others."""
    drawn = view.lines()
    kept = np.argwhere(shares > 1e-4)
    assert {tuple(line) for line in kept.tolist()} <= drawn.keys()
    assert max(abs(drawn.get(line, 0) - shares[line]) for line in np.ndindex(shares.shape)) <= (
        error + 1e-6
    )
    assert all(shares[line] > 0 for line in drawn)


def columns(view) -> tuple[list[str], list[str]]:
    """The tokens on the left and on the right."""
    return view.texts(".left .token-text"), view.texts(".right .token-text")


class TestSides:
    def test_cross_attention_stands_beside_what_was_written(self, view, translation):
        view.open(translation.page)
        assert_lines(view, translation.shares["cross"][0])
        assert columns(view) == (translation.written, translation.source)
        assert view.texts(".stage h2") == ["target, as written", "source"]
        assert view.find("main").get_attribute("data-side") == "cross"

    def test_the_list_of_sides_turns_the_page(self, view, translation):
        view.open(translation.page)
        assert view.texts("select[name=side] option") == ["Encoder", "Decoder", "Cross", "All"]
        texts = {
            "encoder": (translation.source, translation.source),
            "decoder": (translation.read, translation.read),
            "cross": (translation.written, translation.source),
        }
        for side in ("encoder", "decoder", "cross"):
            view.choose("side", side)
            assert_lines(view, translation.shares[side][0])
            assert columns(view) == texts[side]
            count = translation.shares[side].shape
            assert view.texts("button.head") == [str(i) for i in range(count[1])]
            layers = view.texts("select[name=layer] option")
            assert layers == [str(i) for i in range(count[0])]
        assert view.run("return window.seen") == []

    def test_the_joined_square_is_made_of_its_three_blocks(self, view, translation):
        view.open(translation.page, "side=all")
        assert_lines(view, translation.square(0))
        both = (translation.source + translation.written, translation.source + translation.read)
        assert columns(view) == both
        corner = [f".{side} .boundary" for side in ("left", "right")]
        assert [view.texts(name)[0].strip() for name in corner] == ["a", "<s>"]
        target = len(translation.source)
        assert not [line for line in view.lines() if line[1] < target <= line[2]]

    def test_a_layer_that_a_side_lacks_leaves_its_blocks_empty(self, view, translation):
        view.open(translation.page, "side=all&layer=2")
        assert_lines(view, translation.square(2))
        assert view.texts(".badge:not([hidden])") == ["no layer 2 in cross, decoder"]
        view.press("ARROW_LEFT")
        assert_lines(view, translation.square(1))
        assert view.texts(".badge:not([hidden])") == []

    def test_layer_and_heads_are_kept_where_the_other_side_has_them(self, view, translation):
        view.open(translation.page, "side=encoder&layer=2")
        assert view.heads_on() == ["0", "1"]
        view.choose("side", "cross")
        assert view.run("return view.state.layerNumber()") == 1
        assert view.heads_on() == ["0", "1", "2", "3"]
        view.head(0)
        view.head(2)
        view.choose("side", "encoder")
        assert (view.heads_on(), view.run("return view.state.layerNumber()")) == (["1"], 1)
        view.choose("side", "decoder")
        view.head(3, twice=True)
        view.choose("side", "encoder")
        assert view.heads_on() == ["0", "1"]

    def test_a_head_has_the_same_colour_on_every_side(self, view, translation):
        view.open(translation.page)
        colours = []
        for side in ("encoder", "decoder", "all"):
            view.choose("side", side)
            colours.append(view.run("return [0, 1].map((head) => page.colourOf(head))"))
        assert colours[0] == colours[1] == colours[2]

    def test_cross_attention_alone_has_no_list(self, view, translation, tmp_path):
        trace = dataclasses.replace(translation.trace, encoder=None, decoder=None)
        view.open(head_view(trace, 0).save(tmp_path / "cross.html"))
        assert not view.find("[name=side]").is_displayed()
        assert_lines(view, translation.shares["cross"][0])


class TestReading:
    @pytest.mark.parametrize(("column", "index"), [("left", 1), ("right", 4)])
    def test_pointing_at_a_token_leaves_its_lines(self, view, translation, column, index):
        shares = translation.shares["cross"][0]
        view.open(translation.page)
        view.point(view.token(column, index))
        kept = np.zeros_like(shares)
        place = (slice(None), index) if column == "left" else (slice(None), slice(None), index)
        kept[place] = shares[place]
        assert_lines(view, kept)
        other = "right" if column == "left" else "left"
        values = [float(text.replace("<", "")) for text in view.texts(f".{other} .value")]
        assert values == pytest.approx(shares[place].mean(0), abs=0.00105)

    def test_the_panel_names_the_tokens_of_either_column(self, view, translation):
        view.open(translation.page)
        view.click(view.token("left", 1))
        view.point(view.token("right", 4))
        assert view.texts(".panel h2") == [" lake →  See"]
        view.press("ESCAPE")
        view.click(view.token("right", 0))
        assert view.texts(".panel h2") == ["<b>ein</b> is attended to by"]
        assert set(view.texts(".panel .other")) == set(translation.written)
        assert view.texts("p.spoken")[0].startswith("<b>ein</b> is attended to by: ")

    def test_pointing_at_a_line_shows_its_weight(self, view, translation):
        view.open(translation.page, "heads=1&query=2")
        key = int(translation.shares["cross"][0, 1, 2].argmax())
        middle = "const g = view.geometry; return (g.left.get(2) + g.right.get(arguments[0])"
        y = view.run(f"{middle} - g.height) / 2", key)
        view.actions().move_to_element_with_offset(view.find(".lines"), 0, round(y)).perform()
        (tip,) = view.texts(".tip")
        weight = translation.shares["cross"][0, 1, 2, key]
        pair = f"{translation.written[2]} → {translation.source[key]}"
        assert tip == f"{pair}head 1: {weight:.3f}"

    def test_heads_say_what_they_read(self, view, translation):
        view.open(translation.page)
        view.point("button.head:nth-of-type(2)")
        (tip,) = view.texts(".tip")
        assert tip.startswith("Layer 0, head 1: ")
        strongest = translation.shares["cross"][0, 1].max(-1).mean()
        assert f"one token{strongest:.2f}" in tip
        view.choose("side", "all")
        roles = view.texts(".panel .role")
        named = [[part.split(":")[0] for part in role.split(", ")] for role in roles]
        assert named == [["encoder", "cross", "decoder"]] * 2 + [["cross", "decoder"]] * 2

    def test_a_token_is_let_go_when_the_page_turns(self, view, translation):
        view.open(translation.page, "query=4")
        view.choose("side", "encoder")
        assert_lines(view, translation.shares["encoder"][0])

    def test_hidden_special_tokens_are_those_of_either_column(self, view, translation):
        view.open(translation.page)
        view.click("[name=special]")
        assert columns(view) == (translation.written[:4], translation.source[:5])
        rest = translation.shares["cross"][0].copy()
        rest[:, :, 5] = 0
        rest /= rest.sum(-1, keepdims=True)
        rest[:, 4] = 0
        assert_lines(view, rest, error=0.003)

    def test_parts_of_a_joined_row_sum_to_one_each(self, view, translation):
        view.open(translation.page, "side=all&special=hidden")
        drawn = view.lines()
        target = len(translation.source)
        row = target + 2
        for part in (range(target), range(target, 2 * target)):
            sums = [sum(drawn.get((head, row, key), 0) for key in part) for head in range(4)]
            assert sums == pytest.approx([1] * 4, abs=0.003)

    def test_mass_is_kept_in_each_part_of_a_row(self, view, translation):
        view.open(translation.page, "side=all")
        view.slide(60)
        drawn, square = view.lines(), translation.square(0)
        target = len(translation.source)
        for line in np.ndindex(square.shape):
            head, query, key = line
            part = square[head, query, :target] if key < target else square[head, query, target:]
            ordered = np.sort(part)[::-1]
            fewest = ordered[(np.cumsum(ordered) < 0.6 * ordered.sum() - 1e-4).sum()]
            assert (line in drawn) == (square[line] > 0 and square[line] >= fewest), line


class TestPlace:
    def test_the_address_holds_the_side(self, view, translation):
        view.open(translation.page)
        view.choose("side", "encoder")
        view.choose("layer", "2")
        view.head(1)
        view.click(view.token("right", 5))
        settings = view.browser.current_url.split("#")[1]
        assert settings == "side=encoder&layer=2&heads=0&key=5"
        before = view.lines()
        assert view.open(translation.page, settings).lines() == before
        view.choose("side", "cross")
        assert view.browser.current_url.split("#")[1] == "layer=1&heads=0"

    @pytest.mark.parametrize("settings", ["side=both", "side=constructor", "query=5&layer=2"])
    def test_nonsense_in_it_is_passed_over(self, view, translation, settings):
        view.open(translation.page, settings)
        assert_lines(view, translation.shares["cross"][0])
        assert view.run("return window.seen") == []

    def test_a_page_starts_as_python_requested(self, view, translation, tmp_path):
        page = head_view(translation.trace, layer=1, heads=[3, 1], side="decoder")
        view.open(page.save(tmp_path / "start.html"))
        assert view.heads_on() == ["1", "3"]
        shares = translation.shares["decoder"][1].copy()
        shares[[0, 2]] = 0
        assert_lines(view, shares)

    @pytest.mark.parametrize("side", ["cross", "all"])
    def test_svg_names_the_side_and_both_texts(self, view, translation, side):
        view.open(translation.page, f"side={side}&heads=1")
        root = ElementTree.fromstring(view.svg())
        name = {"cross": "Cross", "all": "All"}[side]
        assert svg_texts(root, "caption") == [f"tiny-de-en, {name}, layer 0, heads 1"]
        assert svg_texts(root, "column") == view.texts(".stage h2")
        joined = {
            "cross": translation.written + translation.source,
            "all": translation.source + translation.written + translation.source + translation.read,
        }
        assert svg_texts(root, "token") == joined[side]
        assert view.run("return window.saved[0]") == f"attention-{side}-layer-0.svg"

    def test_everything_to_press_has_a_name(self, view, translation):
        view.open(translation.page)
        tree = view.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        roles = {"button", "combobox", "slider", "checkbox", "listbox", "option"}
        found = [node for node in tree if node.get("role", {}).get("value") in roles]
        names = [node.get("name", {}).get("value", "") for node in found]
        assert all(names)
        assert {"Side", "Layer", "target, as written", "source"} <= set(names)

    def test_arrow_keys_step_through_a_column(self, view, translation):
        view.open(translation.page, "side=all&query=10")
        view.press("ARROW_DOWN")
        assert view.run("return view.state.query") == 10
        view.press("ARROW_UP", "ARROW_RIGHT")
        assert view.run("return [view.state.query, view.state.layer]") == [9, 1]

    def test_a_long_target_beside_a_short_source(self, view, peaked, tmp_path):
        long = [f" {'wort' * (i % 9)}{i}" for i in range(150)]
        cross = peaked(1, 2, 150, keys=3)
        trace = Trace.from_arrays(
            cross_weights=cross,
            tokens=[["kurz", "er", "</s>"]],
            decoder_tokens=[["<s>", *long[:-1]]],
            written=[long],
        )
        view.open(head_view(trace, 0, precision="float16").save(tmp_path / "long.html"))
        assert_lines(view, cross[0, 0])
        edges = view.run(
            "const box = (name) => document.querySelector(name).getBoundingClientRect();"
            "return [box('.left').right, box('.lines').left, box('.lines').right,"
            " box('.right').left]"
        )
        assert edges == sorted(edges)
        view.point(view.token("right", 1))
        assert len(view.lines()) == 300
