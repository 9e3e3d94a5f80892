# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Running text in the browser: what is read, how it is shaded, and that no character is cut."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.text.tokens import byte_spans, token_spans
from flaxattn.trace.trace import Trace
from flaxattn.views.trace_views import compare_view, text_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

FAMILY = "👩‍👩‍👧"
FIRST, SECOND = f"Straße İstanbul {FAMILY} 你好.", "قرأ الولد café."
TOKENS = (
    ["[CLS]", "[UNK]", "is", "##tan", "##bul", "[UNK]", "[UNK]", "[UNK]", ".", "[SEP]"],
    ["[UNK]", "[UNK]", "cafe", ".", "[SEP]"],
)


def marked(tokens: list[str]) -> list[bool]:
    """Which tokens the model adds."""
    return [token in ("[CLS]", "[SEP]") for token in tokens]


def spans_of(text: str, tokens: list[str]) -> list[tuple[int, int] | None]:
    """Where tokens stand; None for added ones."""
    special = marked(tokens)
    found = token_spans(text, tokens, special)
    return [None if added else span for span, added in zip(found, special, strict=True)]


def make_pair(weights: np.ndarray) -> Trace:
    """Two texts of several scripts, as a BERT reads them."""
    tokens = [*TOKENS[0], *TOKENS[1]]
    return Trace.from_arrays(
        weights,
        [tokens],
        special=np.array([marked(tokens)]),
        segments=np.array([[0] * len(TOKENS[0]) + [1] * len(TOKENS[1])]),
        words=[[None, 0, 1, 1, 1, 2, 3, 4, 5, None, 0, 1, 2, 3, None]],
        texts=[(FIRST, SECOND)],
        spans=[spans_of(FIRST, TOKENS[0]) + spans_of(SECOND, TOKENS[1])],
        model="tiny-bert",
    )


@pytest.fixture(scope="module")
def scripts(peaked, tmp_path_factory) -> tuple[np.ndarray, Path]:
    """Weights [L, H, Q, K] and the page of two texts of several scripts."""
    weights = peaked(2, 3, 15)
    page = text_view(make_pair(weights), layer=0).save(
        tmp_path_factory.mktemp("text") / "scripts.html"
    )
    return weights[:, 0], page


@pytest.fixture(scope="module")
def bytewise(peaked, tmp_path_factory) -> tuple[np.ndarray, Path]:
    """The page of a decoder whose tokens are bytes: a prompt, and what continues it."""
    text = f"a{FAMILY}é now"
    tokens = ["a", *(f"<0x{byte:02X}>" for byte in f"{FAMILY}é".encode()), " now"]
    weights = np.tril(peaked(1, 2, len(tokens)))
    weights /= weights.sum(-1, keepdims=True)
    trace = Trace.from_arrays(
        None,
        [tokens],
        decoder_weights=weights,
        decoder_tokens=[tokens],
        texts=[(text,)],
        spans=[byte_spans(text, tokens)],
        segments=(np.arange(len(tokens)) >= len(tokens) - 1)[None].astype(int),
    )
    trace = Trace(**{**vars(trace), "decoder_tokens": ()})
    return weights[:, 0], text_view(trace, layer=0).save(
        tmp_path_factory.mktemp("text") / "bytes.html"
    )


def numbers_in(text: str) -> list[int]:
    """Whole numbers in a text, such as the parts of a colour."""
    return [int(number) for number in re.findall(r"\d+", text)]


def computed(view: Any, selector: str, name: str) -> list[str]:
    """A property of the style of every element that matches."""
    script = """return [...document.querySelectorAll(arguments[0])].map(
        (node) => getComputedStyle(node)[arguments[1]])"""
    return view.run(script, selector, name)


def shades(view: Any, root: str = "") -> dict[int, list[int]]:
    """Painted background of each piece, by its first token."""
    found = view.run(
        "return [...document.querySelectorAll(arguments[0])].map((run) => run.dataset.index)",
        f"{root} .run",
    )
    values = computed(view, f"{root} .run", "backgroundColor")
    return {int(i): numbers_in(value) for i, value in zip(found, values, strict=True)}


def luminance(text: str) -> float:
    """Of a colour, as WCAG has it."""
    parts = np.array(numbers_in(text)[:3]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def colour(view: Any, name: str) -> np.ndarray:
    """A colour of the style sheet."""
    value = view.run("return page.style(arguments[0])", name)
    return np.array([int(value[i : i + 2], 16) for i in (1, 3, 5)])


def shade(ends: tuple[np.ndarray, np.ndarray], weight: float) -> np.ndarray:
    """The colour of a weight: by its square root, in 255 steps."""
    share = round(255 * min(1, abs(weight)) ** 0.5) / 255
    return ends[0] + (ends[1] - ends[0]) * share


def assert_shaded(
    found: dict[int, list[int]],
    ends: Callable[[float], tuple[np.ndarray, np.ndarray]],
    expected: Any,
) -> None:
    """Every piece has the colour of its weight; neighbouring steps may differ by rounding."""
    assert set(expected) <= set(found)
    for index, weight in expected.items():
        assert np.abs(np.array(found[index][:3]) - shade(ends(weight), weight)).max() <= 3, index


def test_the_text_reads_as_it_was_written(view, scripts) -> None:
    view.open(scripts[1])
    assert view.texts(".passage") == [f"[CLS]{FIRST}[SEP]", f"{SECOND}[SEP]"]
    tokens = ["[CLS]", "Straße", "İs", "tan", "bul", FAMILY, "你", "好", ".", "[SEP]"]
    assert view.texts(".run") == [*tokens, "قرأ", "الولد", "café", ".", "[SEP]"]
    assert view.texts(".run.unknown") == ["Straße", FAMILY, "你", "好", "قرأ", "الولد"]
    assert set(computed(view, ".run.unknown", "textDecorationStyle")) == {"dotted"}


def test_right_to_left_text_runs_right_to_left(view, scripts) -> None:
    view.open(scripts[1])
    assert computed(view, ".passage", "direction") == ["ltr", "rtl"]
    left = """return arguments[0].map((i) =>
        document.querySelector(`.run[data-index="${i}"]`).getBoundingClientRect().left)"""
    assert np.all(np.diff(view.run(left, [10, 11, 12])) < 0)
    assert np.all(np.diff(view.run(left, [1, 2, 3, 4, 5])) > 0)
    # No edge, margin or isolation inside a line keeps Arabic letters from joining.
    edges = """return [...document.querySelectorAll('.run:not(.added)')].every((run) => {
        const s = getComputedStyle(run);
        return [s.marginLeft, s.marginRight, s.paddingLeft, s.paddingRight, s.borderLeftWidth]
            .every((n) => n === '0px') && s.unicodeBidi === 'normal'; })"""
    assert view.run(edges)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_backgrounds_are_the_weights(view, scripts, theme) -> None:
    weights, page = scripts
    mean = weights[1].mean(0)
    view.open(page, f"layer=1&query=5&theme={theme}")
    ends = (colour(view, "--scale-low"), colour(view, "--scale-high"))
    assert_shaded(shades(view), lambda _: ends, dict(enumerate(mean[5])))
    view.open(page, f"layer=1&key=5&direction=to&theme={theme}")
    assert_shaded(shades(view), lambda _: ends, dict(enumerate(mean[:, 5])))
    view.open(page, f"layer=1&theme={theme}")
    assert_shaded(shades(view), lambda _: ends, dict(enumerate(mean.mean(0))))
    view.open(page, f"layer=1&query=5&heads=2&theme={theme}")
    head = (colour(view, "--paper"), colour(view, "--head-2"))
    assert_shaded(shades(view), lambda _: head, dict(enumerate(weights[1, 2, 5])))


def test_letters_can_be_read_on_every_shade(view, scripts) -> None:
    for theme in ("light", "dark"):
        for heads in ("0", "1", "2", "0-1-2"):
            view.open(scripts[1], f"query=2&heads={heads}&opacity=row&theme={theme}")
            grounds = computed(view, ".run", "backgroundColor")
            for ink, ground in zip(computed(view, ".run", "color"), grounds, strict=True):
                pair = sorted(luminance(one) + 0.05 for one in (ink, ground))
                assert pair[1] / pair[0] >= 4.5, (theme, heads, ink, ground)


def test_print_keeps_what_is_behind_the_letters(view, scripts) -> None:
    view.open(scripts[1], "query=2")
    assert set(computed(view, ".run", "printColorAdjust")) == {"exact"}


def test_hidden_special_tokens_leave_the_text_and_the_sum(view, scripts) -> None:
    weights, page = scripts
    view.open(page, "query=2&special=hidden")
    assert view.texts(".passage") == [FIRST, SECOND]
    real = [i for i, token in enumerate([*TOKENS[0], *TOKENS[1]]) if not marked([token])[0]]
    rows = weights[0][:, 2, real]
    mean = (rows / rows.sum(-1, keepdims=True)).mean(0)
    drawn = view.run("return view.drawn().weights")
    assert sorted(map(int, drawn)) == real
    assert np.abs(np.array([drawn[str(i)] for i in real]) - mean).max() < 1e-3
    ends = (colour(view, "--scale-low"), colour(view, "--scale-high"))
    assert_shaded(shades(view), lambda _: ends, dict(zip(real, mean, strict=True)))


def test_words_add_up(view, scripts) -> None:
    weights, page = scripts
    view.open(page, "query=1&unit=words")
    assert "İstanbul" in view.texts(".run")
    mean = weights[0].mean(0)[1]
    assert view.run("return view.drawn().weights[2]") == pytest.approx(mean[2:5].sum(), abs=1e-3)


def test_rows_of_the_head_level_read_as_the_text(view, scripts) -> None:
    view.open(scripts[1], "level=head")
    rows = view.texts(".left .token .token-text")
    assert rows[:8] == ["[CLS]", "Straße", "İs", "tan", "bul", FAMILY, "你", "好"]
    titles = view.run(
        "return [...document.querySelectorAll('.left .token')].map((row) => row.title)"
    )
    assert titles[1] == "Straße: read by the model as [UNK]"
    assert titles[3] == "tan: read by the model as ##tan" and titles[8] == "."
    style = computed(view, ".left .token.unknown .token-text", "textDecorationStyle")
    assert set(style) == {"dotted"}
    assert view.texts(".left .token.joined .token-text") == ["tan", "bul"]
    view.click("input[name=labels]")
    assert view.texts(".left .token .token-text")[:4] == ["[CLS]", "[UNK]", "is", "##tan"]
    assert view.run("return location.hash").find("labels=tokens") > 0
    view.open(scripts[1], "level=head&unit=words")
    assert view.texts(".left .token .token-text")[:4] == ["[CLS]", "Straße", "İstanbul", FAMILY]


def test_every_level_has_the_labels(view, scripts) -> None:
    view.open(scripts[1], "level=head&drawing=matrix&heads=0")
    assert "İs" in view.svg()
    view.click("input[name=labels]")
    text = view.svg()
    assert "##tan" in text and "İs" not in text


def test_tokens_of_one_character_are_shown_as_one(view, bytewise) -> None:
    weights, page = bytewise
    view.open(page, f"query={weights.shape[-1] - 1}")
    assert view.texts(".run") == ["a", FAMILY, "é", " now"]
    mean = weights[0].mean(0)[-1]
    count = len(FAMILY.encode())
    sums = {0: mean[0], 1: mean[1 : 1 + count].sum(), 1 + count: mean[1 + count : 3 + count].sum()}
    ends = (colour(view, "--scale-low"), colour(view, "--scale-high"))
    assert_shaded(shades(view), lambda _: ends, sums)
    assert view.texts(".begins") == ["continuation"]
    after = "return document.querySelector('.begins').nextSibling.textContent"
    assert view.run(after) == " now"
    view.point(".run[data-index='1']")
    tip = view.texts(".tip")[0]
    assert f"read by the model as {count} tokens: <0xF0> <0x9F>" in tip
    numbers = [float(number) for number in re.findall(r"0\.\d{3}", tip)]
    assert min(abs(number - sums[1]) for number in numbers) < 0.0015
    view.open(page, "level=head")
    assert view.texts(".left .token .token-text")[1:4] == [FAMILY] * 3
    parts = view.run(
        "return [...document.querySelectorAll('.left [data-part]')].map((p) => p.dataset.part)"
    )
    assert parts == [*(f"{i + 1}/{count}" for i in range(count)), "1/2", "2/2"]


def test_a_browser_without_segmenter_cuts_no_character_either(view, bytewise) -> None:
    view.open(bytewise[1])
    script = """const own = Intl.Segmenter; Intl.Segmenter = undefined;
        const found = graphemes(arguments[0]); Intl.Segmenter = own; return found;"""
    assert view.run(script, f"a{FAMILY}e\u0301👍🏽") == ["a", FAMILY, "e\u0301", "👍🏽"]


def test_the_keyboard_moves_the_pin(view, scripts) -> None:
    view.open(scripts[1])
    view.press("ARROW_DOWN")
    assert view.run("return page.state.query") == 0
    view.press("ARROW_DOWN", "ARROW_DOWN")
    assert view.texts(".run.held") == ["İs"]
    assert view.texts("p.spoken")[0].startswith("İs attends to: ")
    view.run("document.querySelector('.run.held').focus()")
    view.press("ARROW_RIGHT")
    assert view.run("return document.activeElement.textContent") == "tan"
    assert view.run("return [page.state.query, page.state.layer]") == [3, 0]
    view.run("document.querySelector('.run[data-index=\"10\"]').click()")
    view.run("document.querySelector('.run.held').focus()")
    view.press("ARROW_LEFT")  # the next word of a text that runs to the left
    assert view.run("return page.state.query") == 11
    view.press("ENTER")
    assert view.run("return page.state.query") is None
    view.press("ARROW_LEFT")
    assert view.run("return page.state.query") == 12
    view.press("ESCAPE")
    assert view.texts(".run.held") == []


def test_clicks_and_the_switch_of_direction(view, scripts) -> None:
    view.open(scripts[1])
    view.click(".run[data-index='5']")
    assert view.run("return [page.state.query, page.state.key]") == [5, None]
    assert view.texts(".panel h2") == [f"{FAMILY} attends to"]
    view.choose("direction", "to")
    assert view.run("return [page.state.query, page.state.key]") == [None, 5]
    assert view.texts(".panel h2") == [f"{FAMILY} is attended to by"]
    output = view.run("return location.hash")
    assert "direction=to" in output and "key=5" in output
    assert json.loads(view.run("return JSON.stringify(page.state.json())"))["direction"] == "to"
    view.point(".run[data-index='1']")
    assert view.texts(".panel h2") == [f"Straße → {FAMILY}"]


def test_sides_of_a_translation_stand_below_each_other(view, translation) -> None:
    view.open(translation.page, "level=text&side=cross&layer=1&query=1")
    assert view.texts(".text-block h2") == ["target, as written", "source"]
    assert [t.strip() for t in view.texts(".passage")] == [
        "a lakehouse &amp;</s>",
        "<b>ein</b> Haus am See</s>",
    ]
    mean = translation.shares["cross"][1].mean(0)
    ends = (colour(view, "--scale-low"), colour(view, "--scale-high"))
    assert_shaded(shades(view, "[data-side=right]"), lambda _: ends, dict(enumerate(mean[1])))
    clear = [0, 0, 0, 0]
    assert [*shades(view, "[data-side=left]").values()] == [clear] * 5
    view.open(translation.page, "level=text&side=cross&layer=1&key=2&direction=to")
    assert_shaded(shades(view, "[data-side=left]"), lambda _: ends, dict(enumerate(mean[:, 2])))
    view.click("[data-side=left] .run[data-index='3']")
    assert view.texts(".panel h2") == [" &amp; → us"]


def test_differences_have_the_two_colours(view, peaked, tmp_path) -> None:
    pair = [make_pair(peaked(1, 2, 15, seed=seed)) for seed in (0, 1)]
    page = compare_view(*pair, names=("old", "new")).save(tmp_path / "two.html")
    view.open(page, "level=text&layer=0&heads=0-1&query=4&compare=difference")
    first, second = (np.asarray(t.encoder.weights)[0, 0].mean(0)[4] for t in pair)
    paper, less, more = (colour(view, name) for name in ("--paper", "--negative", "--positive"))
    expected = dict(enumerate(second - first))
    assert min(expected.values()) < -0.05 and max(expected.values()) > 0.05
    assert_shaded(shades(view), lambda weight: (paper, less if weight < 0 else more), expected)


def test_weights_that_are_no_numbers_are_hatched(view, peaked, tmp_path) -> None:
    weights = peaked(1, 1, 15)
    weights[0, 0, 0, 2, 7] = np.nan
    page = text_view(make_pair(weights), layer=0).save(tmp_path / "nan.html")
    view.open(page, "query=2")
    assert view.texts(".run.broken") == ["好"]
    assert view.texts(".panel .value")[0] == "NaN"


def test_the_picture_has_what_is_visible(view, scripts) -> None:
    view.open(scripts[1], "query=5&heads=0-1-2")
    root = ET.fromstring(view.svg())
    name = "{http://www.w3.org/2000/svg}"
    texts = [node.text or "" for node in root.iter(f"{name}text")]
    assert texts[0] == f"tiny-bert, layer 0, heads 0 1 2, attention from {FAMILY}"
    assert {"Straße", "İs", FAMILY, "你", "قرأ", "الولد", "café"} <= set(texts)
    fills = {node.get("fill") for node in root.iter(f"{name}rect")}
    seen = view.run(
        "return [...document.querySelectorAll('.run')].map((run) => run.style.backgroundColor)"
    )
    assert set(seen) <= fills
    assert {"weight", "0", "0.1", "0.25", "0.5", "1"} <= set(texts)
    places = {node.text: float(node.get("x", "0")) for node in root.iter(f"{name}text")}
    assert places["قرأ"] > places["الولد"] > places["café"]


def test_a_text_that_was_cut_says_so(view, tmp_path) -> None:
    model = fa.from_pretrained("tiny-bert")
    trace = model.trace("the cat " * 80 + "Ende", truncate=True)
    page = text_view(trace, layer=0).save(tmp_path / "cut.html")
    view.open(page)
    assert view.texts(".unread")[0].endswith("Ende")
    assert view.texts(".unread")[0].split()[0] in ("the", "cat")
