# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The head view draws the numbers of the trace, and every interaction of BertViz's works on it.

In a headless Chromium, from a file, without a network. Not a test of looks: nothing is compared
with a stored picture.
"""

import numpy as np
import pytest
from page_payload import decode_weights, payload_of

from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import ERROR
from flaxattn.views.trace_views import head_view

pytestmark = pytest.mark.browser


class TestNumbers:
    def test_lines_are_the_weights_of_the_trace(self, view, pair):
        view.open(pair.page).assert_draws(pair.shares[0])
        drawn = view.run("return view.drawn().lines.map((l) => [l.layer, l.weight - l.opacity])")
        assert drawn == [[0, 0]] * 3 * pair.length**2
        assert view.find("#level-head").get_attribute("data-lines") == str(3 * pair.length**2)

    @pytest.mark.parametrize("compressed", [True, False])
    def test_the_default_page_draws_what_it_holds(self, view, pair, tmp_path, compressed):
        page = head_view(pair.trace, 0)
        held = payload_of(page)["blocks"]["0/encoder/weights/0"]
        page = page if compressed else page.decompressed()
        drawn = view.open(page.save(tmp_path / "page.html")).lines()
        stored = decode_weights(held, "uint11", pair.shares[0].shape)
        assert drawn.keys() == {tuple(map(int, line)) for line in np.argwhere(stored)}
        assert all(drawn[line] == pytest.approx(stored[line], abs=1e-7) for line in drawn)
        bounds = ERROR["uint11"] * pair.shares[0].max(-1, keepdims=True) + 1e-7
        assert (abs(stored - pair.shares[0]) <= bounds).all()
        assert "0.025 % of the largest in its row" in view.texts("footer")[0]

    def test_an_old_browser_shows_what_to_do(self, view, pair):
        script = "delete window.DecompressionStream"
        command = "Page.addScriptToEvaluateOnNewDocument"
        held = view.browser.execute_cdp_cmd(command, {"source": script})
        try:
            view.browser.get(f"{pair.page.as_uri()}?old")
            view.until("document.querySelectorAll('main > .failure').length === 1")
            (message,) = view.texts("main > .failure")
        finally:
            view.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", held)
        assert "cannot decompress" in message and "page.decompressed().save" in message

    def test_eight_bit_weights_stay_within_their_bound(self, view, pair, tmp_path):
        drawn = view.open(
            head_view(pair.trace, 0, precision="uint8").save(tmp_path / "8.html")
        ).lines()
        bounds = ERROR["uint8"] * pair.shares[0].max(-1) + 1e-6
        for line in np.ndindex(pair.shares[0].shape):
            assert abs(drawn.get(line, 0) - pair.shares[0][line]) <= bounds[line[:2]]
        assert "0.20 % of the largest in its row" in view.texts("footer")[0]

    def test_what_is_painted_is_what_is_reported(self, view, tmp_path):
        shares = np.zeros((1, 1, 1, 4, 4), np.float32)
        shares[..., [0, 1, 2], [3, 1, 1]] = 1
        shares[..., 3, 0] = 0.5
        page = head_view(Trace.from_arrays(shares, [list("abcd")]), 0, theme="light")
        view.open(page.save(tmp_path / "painted.html"))
        assert view.lines() == {(0, 0, 3): 1, (0, 1, 1): 1, (0, 2, 1): 1, (0, 3, 0): 0.5}
        row, width = view.run("return [view.rowHeight, view.geometry.width]")

        def pixel(x: float, index: int) -> list[int]:
            pen = "view.page.canvas.getContext('2d')"
            script = f"return [...{pen}.getImageData(...arguments, 1, 1).data]"
            return view.run(script, int(x), int((index + 0.5) * row))

        assert [pixel(1, i)[3] for i in range(4)] == pytest.approx([255, 255, 255, 230], abs=2)
        ends = [pixel(width - 2, i)[3] for i in range(4)]
        assert ends == pytest.approx([230, 255, 0, 255], abs=2)  # 0.9 · 255 for a half
        assert pixel(width / 2, 1)[:3] == pytest.approx([0x27, 0x63, 0xD7], abs=2)

    def test_long_text_draws_the_strongest_lines_and_says_so(self, view, peaked, tmp_path):
        trace = Trace.from_arrays(peaked(1, 3, 128), [[f"t{i}" for i in range(128)]])
        page = head_view(trace, 0, precision="float16", state={"mass": 100})
        view.open(page.save(tmp_path / "long.html"))
        shares = np.asarray(trace.encoder.weights)[0, 0]
        weakest, count = view.run("const d = view.drawn().lines; return [d[0].weight, d.length]")
        assert count == 40_000
        assert weakest >= np.sort(shares.ravel())[-40_000] - ERROR["float16"]
        assert "strongest 40,000 of 49,152 lines" in view.texts(".status")[0]
        assert view.run("return document.querySelectorAll('*').length") < 1500
        view.point(view.token("left", 3))
        view.assert_draws(shares, queries=[3])


class TestBertVizInteractions:
    def test_layer_list_redraws_and_keeps_the_heads(self, view, pair):
        view.open(pair.page)
        view.head(1)
        view.choose("layer", "1")
        assert view.heads_on() == ["0", "2"]
        view.assert_draws(pair.shares[1], heads=[0, 2])

    @pytest.mark.parametrize("choice", ["all", "aa", "bb", "ab", "ba"])
    def test_attention_list_draws_one_side_of_a_pair(self, view, pair, choice):
        whole = range(pair.length)
        sides = {"a": whole[: pair.boundary], "b": whole[pair.boundary :], "all": whole}
        queries, keys = (sides[name] for name in (("all", "all") if choice == "all" else choice))
        view.open(pair.page)
        view.choose("attention", choice)
        view.assert_draws(pair.shares[0], queries=queries, keys=keys)
        assert view.texts(".left .token-text") == [pair.tokens[i] for i in queries]
        assert view.texts(".right .token-text") == [pair.tokens[i] for i in keys]

    def test_text_without_a_pair_has_no_attention_list(self, view, peaked, tmp_path):
        page = head_view(Trace.from_arrays(peaked(1, 2, 3), [list("abc")]), 0)
        view.open(page.save(tmp_path / "single.html"))
        assert not view.find("[name=attention]").is_displayed()

    def test_click_switches_a_head_and_the_last_stays_on(self, view, pair):
        view.open(pair.page)
        view.head(0)
        view.assert_draws(pair.shares[0], heads=[1, 2])
        view.head(2)
        view.head(1)
        assert view.heads_on() == ["1"]
        view.head(0)
        view.assert_draws(pair.shares[0], heads=[0, 1])

    def test_double_click_leaves_one_head_and_then_all(self, view, pair):
        view.open(pair.page)
        view.head(2, twice=True)
        view.assert_draws(pair.shares[0], heads=[2])
        view.head(1, twice=True)
        assert view.heads_on() == ["1"]
        view.head(1, twice=True)
        assert view.heads_on() == ["0", "1", "2"]

    @pytest.mark.parametrize("side", ["left", "right"])
    def test_pointing_at_a_token_leaves_its_lines(self, view, pair, side):
        shares = pair.shares[0]
        view.open(pair.page)
        view.point(view.token(side, 4))
        view.assert_draws(shares, **{"queries" if side == "left" else "keys": [4]})
        its = shares[:, 4] if side == "left" else shares[:, :, 4]
        other = "right" if side == "left" else "left"
        values = [float(text.replace("<", "")) for text in view.texts(f".{other} .value")]
        assert values == pytest.approx(its.mean(0), abs=0.00105)
        stripes = view.find(view.token(other, 2)).value_of_css_property("background-image")
        opacities = [float(part.split(",")[3].split(")")[0]) for part in stripes.split("rgba(")[1:]]
        assert opacities == pytest.approx(0.4 * np.repeat(its[:, 2], 2), abs=0.005)
        view.point("h1")
        view.assert_draws(shares)
        assert set(view.texts(".token .value")) == {""}

    def test_a_page_starts_as_python_requested(self, view, pair, tmp_path):
        page = head_view(pair.trace, 1, [2, 0], [1], precision="float16")
        view.open(page.save(tmp_path / "start.html"))
        assert view.heads_on() == ["0", "2"]
        view.assert_draws(pair.shares[1], heads=[0, 2])
        assert view.texts("select[name=layer] option") == ["1"]
        assert view.run("return page.payload.inputs[0].sides[0].weights.length") == 1
