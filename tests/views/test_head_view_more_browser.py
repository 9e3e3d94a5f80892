# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What the head view does beyond BertViz: numbers, holding, keys, scales, address, themes, SVG.

In a headless Chromium, from a file, without a network.
"""

from xml.etree import ElementTree

import numpy as np
import pytest
from drawn_figures import ink, svg_texts

from flaxattn.measures.head_measures import head_measures
from flaxattn.trace.trace import Trace
from flaxattn.views.trace_views import head_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]


class TestReading:
    def test_squares_carry_numbers_and_tell_what_a_head_does(self, view, pair):
        view.open(pair.page)
        assert view.texts("button.head") == ["0", "1", "2"]
        view.point("button.head:nth-of-type(2)")
        measured = head_measures(pair.trace)[1]
        (tip,) = view.texts(".tip")
        assert tip.startswith(f"Layer 0, head 1: {measured.does}")
        assert f"entropy, nats{measured.entropy:.2f}" in tip
        assert f"own sentence{measured.same_segment:.2f}" in tip

    def test_pointing_at_a_line_shows_its_weight(self, view, pair):
        view.open(pair.page, "heads=1&query=2")
        key = int(pair.shares[0, 1, 2].argmax())
        middle = "const g = view.geometry; return (g.left.get(2) + g.right.get(arguments[0])"
        y = view.run(f"{middle} - g.height) / 2", key)
        view.actions().move_to_element_with_offset(view.find(".lines"), 0, round(y)).perform()
        (tip,) = view.texts(".tip")
        weight = pair.shares[0, 1, 2, key]
        assert tip == f"{pair.tokens[2]} → {pair.tokens[key]}head 1: {weight:.3f}"

    def test_click_holds_a_token_and_escape_lets_go(self, view, pair):
        view.open(pair.page)
        view.click(view.token("left", 2))
        view.point("h1")
        view.assert_draws(pair.shares[0], queries=[2])
        assert view.find(view.token("left", 2)).get_attribute("aria-selected") == "true"
        assert view.texts("p.spoken")[0].startswith("cat attends to: ")
        view.press("ESCAPE")
        view.assert_draws(pair.shares[0])

    def test_a_click_on_the_held_token_lets_go(self, view, pair):
        view.open(pair.page)
        view.click(view.token("right", 2))
        view.click(view.token("right", 2))
        view.point("h1")
        view.assert_draws(pair.shares[0])

    def test_a_held_token_and_another_show_the_weight_of_each_head(self, view, pair):
        view.open(pair.page)
        view.click(view.token("left", 2))
        view.point(view.token("right", 9))
        assert view.texts(".panel h2") == [f"cat → {pair.tokens[9]}"]
        listed = [float(text) for text in view.texts(".panel .value")]
        assert listed == pytest.approx(pair.shares[0, :, 2, 9], abs=0.001)
        view.assert_draws(pair.shares[0], queries=[2])

    def test_the_panel_lists_the_strongest_first(self, view, pair):
        view.open(pair.page)
        view.click(view.token("right", 4))
        means = pair.shares[0, :, :, 4].mean(0)
        order = np.argsort(-means)[:10]
        assert view.texts(".panel h2") == [f"{pair.tokens[4]} is attended to by"]
        assert view.texts(".panel .other") == [pair.tokens[i] for i in order]
        listed = [float(text) for text in view.texts(".panel .value")]
        assert listed == pytest.approx(means[order], abs=0.001)

    def test_text_that_was_cut_says_so(self, view, peaked, tmp_path):
        trace = Trace.from_arrays(peaked(1, 1, 2), [["a", "b"]], truncated=[7])
        view.open(head_view(trace, 0).save(tmp_path / "cut.html"))
        assert view.texts(".badge:not([hidden])") == ["7 tokens were cut off to fit the model"]


class TestKeyboard:
    def test_arrow_keys_step_through_layers_and_tokens(self, view, pair):
        view.open(pair.page)
        view.press("ARROW_RIGHT", "ARROW_RIGHT")
        view.assert_draws(pair.shares[1])
        view.press("ARROW_DOWN", "ARROW_DOWN", "ARROW_DOWN", "ARROW_UP")
        view.assert_draws(pair.shares[1], queries=[1])
        view.press("ARROW_LEFT")
        view.assert_draws(pair.shares[0], queries=[1])

    def test_question_mark_opens_help_and_escape_closes_it(self, view, pair):
        view.open(pair.page)
        view.press("?")
        assert view.find("dialog").is_displayed()
        view.press("ESCAPE")
        assert not view.find("dialog").is_displayed()

    def test_heads_and_tokens_are_reached_and_used(self, view, pair):
        view.open(pair.page)
        view.run("document.querySelectorAll('button.head')[1].focus()")
        view.press(" ")
        assert view.heads_on() == ["0", "2"]
        view.actions().key_down("\ue008").send_keys("\ue007").key_up("\ue008").perform()
        assert view.heads_on() == ["1"]
        view.run("document.querySelector('.right [tabindex]').focus()")
        view.press("ENTER")
        view.assert_draws(pair.shares[0], heads=[1], keys=[0])

    def test_everything_to_press_has_a_name(self, view, pair):
        view.open(pair.page)
        tree = view.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        roles = {"button", "combobox", "slider", "checkbox", "listbox", "option"}
        found = [node for node in tree if node.get("role", {}).get("value") in roles]
        names = [node.get("name", {}).get("value", "") for node in found]
        assert all(names)
        assert sum(name.startswith("Head ") for name in names) == 3
        assert names.count("cat") == 2


class TestChoices:
    @pytest.mark.parametrize("choice", ["absolute", "row", "heads"])
    def test_opacity_is_scaled_as_chosen(self, view, pair, choice):
        view.open(pair.page)
        view.choose("opacity", choice)
        rows = pair.shares[0].max(-1)
        for line in view.run("return view.drawn().lines.filter((_, i) => i % 25 === 0)"):
            head, query, key = line["head"], line["query"], line["key"]
            unit = {"absolute": 1, "row": rows[head, query], "heads": 3}[choice]
            assert line["opacity"] == pytest.approx(
                pair.shares[0, head, query, key] / unit, abs=2e-3
            )

    def test_hidden_special_tokens_leave_rows_that_sum_to_one(self, view, pair):
        view.open(pair.page)
        assert not view.find(".badge").is_displayed()
        view.click("[name=special]")
        kept = [i for i in range(pair.length) if i not in pair.special]
        rest = pair.shares[0] / pair.shares[0][:, :, kept].sum(-1, keepdims=True)
        view.assert_draws(rest, queries=kept, keys=kept, error=0.003)
        assert view.find(".badge").is_displayed()
        assert view.texts(".badge")[0] == "renormalised"
        assert view.texts(".left .token-text") == [pair.tokens[i] for i in kept]

    def test_mass_keeps_the_fewest_keys(self, view, pair):
        view.open(pair.page)
        view.slide(70)
        ordered = np.sort(pair.shares[0])[..., ::-1]
        fewest = (np.cumsum(ordered, -1) < 0.7).sum(-1, keepdims=True)
        kept = pair.shares[0] >= np.take_along_axis(ordered, fewest, -1)
        assert view.lines().keys() == set(map(tuple, np.argwhere(kept).tolist()))
        share = round(100 * pair.shares[0][kept].sum() / (3 * pair.length))
        assert f"shown {share} % of attention mass" in view.texts(".status")[0]

    def test_the_page_follows_the_system_and_the_reader(self, view, pair):
        light, dark = "rgb(255, 255, 255)", "rgb(20, 23, 28)"

        def paper() -> str:
            return view.run("return getComputedStyle(document.body).backgroundColor")

        def system(*themes: str) -> None:
            features = [{"name": "prefers-color-scheme", "value": theme} for theme in themes]
            view.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

        try:
            system("dark")
            view.open(pair.page)
            found = [paper()]
            for _ in range(3):
                view.click("button.theme")
                found.append(paper())
            assert found == [dark, light, dark, dark]
            system("light")
            view.until("getComputedStyle(document.body).backgroundColor === arguments[0]", light)
        finally:
            system()


class TestAddress:
    def test_it_holds_the_settings(self, view, pair):
        view.open(pair.page)
        view.choose("layer", "1")
        view.choose("attention", "ab")
        view.head(1)
        view.slide(90)
        view.click(view.token("left", 2))
        settings = view.browser.current_url.split("#")[1]
        assert settings == "layer=1&heads=0-2&attention=ab&mass=90&query=2"
        before = view.lines()
        assert view.open(pair.page, settings).lines() == before

    @pytest.mark.parametrize(
        "settings",
        [
            "layer=9&heads=7&attention=zz&opacity=x&mass=0&query=99&theme=pink",
            "heads=-&query=-",
            "%",
        ],
    )
    def test_nonsense_in_it_is_passed_over(self, view, pair, settings):
        view.open(pair.page, settings).assert_draws(pair.shares[0])
        assert view.run("return window.seen") == []

    def test_a_change_of_it_changes_the_page(self, view, pair):
        view.open(pair.page)
        view.run("location.hash = 'layer=1&heads=2'")
        view.until("view.state.layer === 1")
        view.assert_draws(pair.shares[1], heads=[2])


class TestPlace:
    def test_svg_holds_what_is_drawn(self, view, pair):
        view.open(pair.page, "heads=0-2&query=2")
        root = ElementTree.fromstring(view.svg())
        space = root.tag.removesuffix("svg")
        opacities = [float(path.get("stroke-opacity", "")) for path in root.iter(f"{space}path")]
        expected = sorted(pair.shares[0, [0, 2], 2].ravel())
        expected = [ink(weight) for weight in expected if round(255 * ink(weight))]
        assert sorted(opacities) == pytest.approx(expected, abs=5e-4)
        assert svg_texts(root, "token") == pair.tokens * 2

    def test_tokens_never_reach_into_the_lines(self, view, peaked, tmp_path):
        tokens = ["x" * 80, "ש" * 60, "ab", "W" * 40]
        page = head_view(Trace.from_arrays(peaked(1, 2, 4), [tokens]), 0)
        view.open(page.save(tmp_path / "wide.html"))
        edges = view.run(
            "const box = (name) => document.querySelector(name).getBoundingClientRect();"
            "return [box('.left').right, box('.lines').left, box('.lines').right, "
            "box('.right').left, ...[...document.querySelectorAll('.left .token-text')]"
            ".map((piece) => piece.getBoundingClientRect().right)]"
        )
        assert edges[:4] == sorted(edges[:4])
        assert max(edges[4:]) <= edges[0]
        assert view.texts(".left .token-text") == tokens

    def test_lines_follow_the_width_of_the_window(self, view, pair):
        view.open(pair.page)
        wide = view.run("return view.geometry.width")
        fits = "view.geometry.width === view.page.stage.clientWidth && view.geometry.width"
        try:
            view.browser.set_window_size(900, 800)
            view.until(f"{fits} < arguments[0]", wide)
        finally:
            view.browser.set_window_size(1200, 900)
        view.until(f"{fits} === arguments[0]", wide)

    def test_two_views_in_one_notebook_do_not_meet(self, view, pair, peaked, tmp_path):
        other = Trace.from_arrays(peaked(1, 2, 5, seed=1), [list("vwxyz")])
        pages = [head_view(trace, 0, precision="float16") for trace in (pair.trace, other)]
        frames = "".join(page._repr_html_() for page in pages)
        notebook = tmp_path / "notebook.html"
        notebook.write_text(
            "<!doctype html><style>iframe { height: 800px !important; width: 48% !important }"
            f"</style>{frames}",
            encoding="utf-8",
        )
        view.browser.get_log("browser")
        view.browser.get(notebook.as_uri())
        found = view.browser.find_elements("css selector", "iframe")
        for frame, shares in zip(
            found, (pair.shares[0], peaked(1, 2, 5, seed=1)[0, 0]), strict=True
        ):
            view.browser.switch_to.frame(frame)
            view.until("Boolean(page)")
            view.assert_draws(shares)
            view.click("button.head")
            view.click(view.token("right", 3))
            view.assert_draws(shares, heads=range(1, len(shares)), keys=[3])
            view.browser.switch_to.default_content()
        assert view.browser.get_log("browser") == []

    def test_a_view_that_cannot_start_says_so(self, view, pair, tmp_path):
        broken = pair.page.read_text(encoding="utf-8").replace(
            '"tokens":[', '"tokens":null,"was":['
        )
        (tmp_path / "broken.html").write_text(broken, encoding="utf-8")
        view.browser.get((tmp_path / "broken.html").as_uri())
        (message,) = view.texts("[role=alert]")
        assert message.startswith("The view could not be drawn (")
        assert "report this" in message
