# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Predictions in the browser: what is read and drawn of them are the numbers of the trace."""

from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
from hostile_texts import SHAPES, texts
from page_payload import payload_of
from small_decoders import beginning_with_bos
from small_models import drawn

import flaxattn as fa
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.trace.token_predictions import Predictions
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import visible
from flaxattn.views.trace_views import compare_view, head_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]
TEXT = "The old man looked at the incomprehensible sea. The old man"


class Shown(NamedTuple):
    trace: Trace
    page: Path

    @property
    def found(self) -> Predictions:
        """Its predictions."""
        assert self.trace.predictions is not None
        return self.trace.predictions


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> Shown:
    model: Any = fa.from_pretrained("tiny-gpt2")
    trace = fa.logit_contributions(model, model.trace(TEXT, predictions=5))[0]
    return Shown(trace, head_view(trace).save(tmp_path_factory.mktemp("predicted") / "gpt2.html"))


@pytest.fixture(scope="module")
def dates(tmp_path_factory) -> Shown:
    model: Any = fa.from_pretrained("tiny-dates")
    trace = model.trace("march 5, 1999", "1998-03-05", predictions=3)[0]
    return Shown(trace, head_view(trace).save(tmp_path_factory.mktemp("predicted") / "dates.html"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory) -> Shown:
    """A random Llama of 16 heads in two layers, of which the page has the second."""
    tokenizer = beginning_with_bos()
    config = DecoderConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=64,
    )
    module = DecoderLM(config)
    params = drawn(module, np.ones((1, 2), np.int32))
    model = PretrainedDecoder(module, params, tokenizer, config, "llama")
    capture = fa.Capture(weights=True, heads=tuple(range(15, -1, -1)))
    traced = model.trace("a cat and a dog", capture=capture, predictions=4)
    trace = fa.logit_contributions(model, traced)[0]
    page = head_view(trace, include_layers=[1])
    return Shown(trace, page.save(tmp_path_factory.mktemp("predicted") / "llama.html"))


def chance(log_probability: float) -> str:
    """A probability as the page writes it."""
    percent = 100 * float(np.float32(np.exp(np.float64(log_probability))))
    if percent < 0.05:
        return "<0.1 %"
    if percent >= 99.95:
        return "100 %"
    return f"{percent:.{1 if percent < 10 or percent > 99 else 0}f} %"


def sentence(found: Predictions, place: int, *, here: bool = False) -> str:
    """What the page says of a position."""
    pairs = zip(found.alternatives[0][place], found.likeliest[0, place], strict=True)
    start = ("In this place: " if here else "After this token: ") + " · ".join(
        f"{visible(token)} {chance(score)}" for token, score in pairs
    )
    if not found.follows[0, place]:
        return f"{start}. The text ends here."
    own = f"{visible(found.tokens[0][place])} {chance(found.log_probability[0, place])}"
    goes = "; the text has " if here else "; the text continues with "
    return f"{start}{goes}{own} (rank {found.rank[0, place]})."


def logit(value: float) -> str:
    """A number of logits as the page writes it."""
    text = f"{abs(value):.2f}"
    return text if text == "0.00" else f"{'−' if value < 0 else '+'}{text}"


def predicted(view) -> list[str]:
    return [text.replace("\u00a0", " ") for text in view.texts(".panel .predicted")]


def spoken(view) -> str:
    """What a screen reader says of the token that is pinned."""
    return view.texts(".spoken[aria-live]")[0].replace("\u00a0", " ")


def test_the_panel_says_what_the_model_expected(view, gpt2):
    view.open(gpt2.page, "query=none")
    assert predicted(view) == []
    for place in range(len(gpt2.trace.tokens[0])):
        view.run("view.state.letGo(); page.hold('left', arguments[0])", place)
        assert predicted(view) == [sentence(gpt2.found, place)]
        assert sentence(gpt2.found, place) in spoken(view)
    assert predicted(view)[0].endswith("The text ends here.")
    assert gpt2.found.rank.max() > 5  # some token was not among those that are named
    view.press("ESCAPE")
    assert predicted(view) == []
    view.point(view.token("left", 2))
    assert predicted(view) == [sentence(gpt2.found, 2)]
    view.point(view.token("right", 4))
    assert predicted(view) == [sentence(gpt2.found, 4)]


def test_bars_are_what_heads_add_to_the_logit(view, gpt2):
    for layer, place in ((0, 3), (3, 9), (2, len(gpt2.trace.tokens[0]) - 1)):
        view.open(gpt2.page, f"layer={layer}&query={place}&heads=0-1")
        values = gpt2.found.heads[0, place, layer]
        assert view.texts(".logits .value") == [logit(value) for value in values]
        assert view.texts(".logits .number") == list("012345")
        target = visible(gpt2.found.tokens[0][place])
        assert view.texts(".panel h3") == [f"Heads of layer {layer} add to the logit of {target}"]
        drawn_bars = view.run(
            "return [...document.querySelectorAll('.logits .bar')].map((bar) => {"
            "  const track = bar.getBoundingClientRect();"
            "  const part = bar.firstChild.getBoundingClientRect();"
            "  const colour = getComputedStyle(bar.firstChild).backgroundColor;"
            "  const middle = track.left + track.width / 2;"
            "  const ends = [part.left, part.right].map((x) => (x - middle) / track.width);"
            "  return [...ends, colour];"
            "});"
        )
        signs = view.run("return [page.signs.more, page.signs.less]")
        scale = 2 * abs(values).max()
        for (left, right, colour), value in zip(drawn_bars, values, strict=True):
            assert left == pytest.approx(min(0, value) / scale, abs=0.01)
            assert right == pytest.approx(max(0, value) / scale, abs=0.01)
            assert colour == as_rgb(signs[int(value < 0)])
        hints = " ".join(view.texts(".panel .hint"))
        assert f"The longest bar is {abs(values).max():.2f}." in hints
        total = gpt2.found.logits()[0, place]
        assert f"The logit is {logit(total)}: all heads " in hints
        assert f"embeddings {logit(gpt2.found.embedding[0, place])}, " in hints
        every = gpt2.found.heads[0, place]
        most = np.unravel_index(abs(every).argmax(), every.shape)
        named = f"Largest over all layers: {most[0]}.{most[1]} {logit(every[most])}, "
        assert named in hints


def as_rgb(colour: str) -> str:
    """A colour of the style sheet as a browser tells it."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return f"rgb({', '.join(map(str, parts))})"


def test_a_word_is_judged_by_its_last_token(view, gpt2):
    words = gpt2.trace.words[0]
    last = max(i for i, word in enumerate(words[:-1]) if words[i - 1] == word != words[i + 1])
    assert words.count(words[last]) > 1  # the long word is of several tokens
    view.open(gpt2.page, "unit=words&query=none")
    view.run("page.hold('left', arguments[0])", len(set(words[: last + 1])) - 1)
    assert predicted(view) == [sentence(gpt2.found, last)]


@pytest.mark.parametrize(
    "settings", ["drawing=matrix&heads=2", "level=text", "level=text&direction=to"]
)
def test_matrix_and_text_say_the_same(view, gpt2, settings):
    column = "key" if "to" in settings.split("=") else "query"
    view.open(gpt2.page, f"{settings}&layer=1&query=none&key=none&{column}=4")
    assert predicted(view) == [sentence(gpt2.found, 4)]
    assert view.texts(".logits .value") == [logit(v) for v in gpt2.found.heads[0, 4, 1]]
    assert predicted(view)[0] in spoken(view)


def blended(low: str, high: str, share: float) -> str:
    """A colour between two of the style sheet."""
    ends = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (low, high)]
    # JavaScript rounds halves up.
    parts = [int(np.floor(a + (b - a) * share + 0.5)) for a, b in zip(*ends, strict=True)]
    return f"rgb({', '.join(map(str, parts))})"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_text_is_shaded_by_surprise(view, gpt2, theme):
    view.open(gpt2.page, f"level=text&direction=surprise&query=none&theme={theme}")
    nats = -gpt2.found.log_probability[0][:-1]  # of each token but the first
    shaded = view.run("return view.drawn()")
    assert shaded["side"] == "left"
    assert shaded["weights"].keys() == {str(i + 1) for i in range(len(nats))}
    for place, value in enumerate(nats, 1):
        assert shaded["weights"][str(place)] == pytest.approx(value, abs=1e-4)
    low, high = view.run("return ['--scale-low', '--scale-high'].map((name) => page.style(name))")
    colours = view.run(
        "return [...document.querySelectorAll('.run')].map((run) => run.style.backgroundColor)"
    )
    expected = [blended(low, high, round(255 * min(1, n / 10)) / 255) for n in nats]
    assert colours == ["", *expected]
    assert max(nats) > 8 > 2 > min(nats)  # strong and faint shades are there
    assert "Surprise: −ln of the probability" in view.texts("#level-text .status")[0]
    tips = view.run(
        "return [...document.querySelectorAll('.run')].map((run) => {"
        "  run.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));"
        "  return page.tip.querySelector('.value')?.textContent;"
        "});"
    )
    assert tips == [None, *(f"{n:.2f} nats" for n in nats)]
    filled = [n.get("fill") for n in ElementTree.fromstring(view.svg()).iter()]
    assert filled.count(expected[0]) >= 1


def test_surprise_of_words_adds_up_and_pins_are_kept(view, gpt2):
    view.open(gpt2.page, "level=text&unit=words&direction=surprise&query=none")
    words, nats = gpt2.trace.words[0], -gpt2.found.log_probability[0]
    sums: dict[int, float] = {}
    for place, word in enumerate(words):
        if place:
            sums[word] = sums.get(word, 0) + nats[place - 1]
    order = list(dict.fromkeys(words))
    shaded = view.run("return view.drawn().weights")
    found = {int(place): value for place, value in shaded.items()}
    assert found == pytest.approx(
        {order.index(word): value for word, value in sums.items() if order.index(word)}, abs=1e-3
    )
    view.open(gpt2.page, "level=text&query=4")
    view.choose("direction", "surprise")
    assert view.run("return [page.state.query, page.state.key]") == [4, None]
    assert "direction=surprise" in view.browser.current_url
    assert predicted(view) == [sentence(gpt2.found, 4)]
    view.choose("direction", "to")
    assert view.run("return [page.state.query, page.state.key]") == [None, 4]
    view.choose("direction", "surprise")
    assert view.run("return [page.state.query, page.state.key]") == [4, None]
    again = head_view(gpt2.trace, state=view.run("return page.state.json()"))
    assert payload_of(again)["start"]["direction"] == "surprise"


def test_surprise_of_a_target_is_shown_where_it_stands(view, dates, pair):
    view.open(dates.page, "level=text&side=cross&direction=surprise&query=none&key=none")
    nats = -dates.found.log_probability[0]
    shaded = view.run("return view.drawn().weights")
    assert [shaded[str(i)] for i in range(len(nats))] == pytest.approx(list(nats), abs=1e-4)
    shades = view.run(
        "const runs = document.querySelectorAll('[data-side=right] .run');"
        "return [...runs].map((run) => run.style.backgroundColor);"
    )
    assert shades and not any(shades)  # nothing is expected of the source
    view.open(dates.page, "level=text&side=encoder&direction=surprise&query=none")
    assert "Attention that each token receives" in view.texts("#level-text .status")[0]
    view.open(pair.page, "level=text&direction=surprise")  # a page without predictions
    assert view.texts("[name=direction] option") == ["from the token", "to the token"]
    assert view.run("return page.state.direction") == "from"


def test_beside_an_encoder_each_row_stands_at_its_place(view, dates):
    length = len(dates.trace.written[0])
    assert dates.found.rank.max() > 1
    for side, here, start in (("decoder", False, 0), ("cross", True, 0), ("all", True, 8)):
        start = len(dates.trace.tokens[0]) if side == "all" else start
        view.open(dates.page, f"side={side}&query=none&key=none")
        for place in range(length):
            view.run("view.state.letGo(); page.hold('left', arguments[0])", start + place)
            assert predicted(view) == [sentence(dates.found, place, here=here)], (side, place)
    view.run("view.state.letGo(); page.hold('left', 1)")  # of the source
    assert predicted(view) == []
    view.open(dates.page, "side=encoder&query=2")
    assert predicted(view) == []
    assert view.texts(".logits") == []


def test_of_many_heads_those_that_matter_most_are_listed(view, llama):
    view.open(llama.page, "layer=1&query=3")
    values = llama.found.heads[0, 3, 1]
    listed = np.argsort(-abs(values), kind="stable")[:12]
    places = sorted(listed, reverse=True)  # the page has the heads in the order of the capture
    assert view.texts(".logits .number") == [str(head) for head in places]
    assert view.texts(".logits .value") == [logit(values[head]) for head in places]
    assert "4 more add or take less. " in " ".join(view.texts(".panel .hint"))
    assert predicted(view) == [sentence(llama.found, 3)]


def test_pages_without_them_are_as_before(view, pair, gpt2, tmp_path):
    plain = head_view(pair.trace)
    assert "predictions" not in payload_of(plain)["inputs"][0]
    assert not any("predictions" in name for name in payload_of(plain)["blocks"])
    assert "After this token" not in plain.html
    view.open(pair.page, "query=3")
    assert predicted(view) == view.texts(".logits") == []
    both = compare_view(gpt2.trace, gpt2.trace)  # two models may expect different tokens
    assert "predictions" not in payload_of(both)["inputs"][0]
    small = head_view(Trace(**{**vars(gpt2.trace), "predictions": None}))
    sizes = [
        sum(map(len, payload_of(page)["blocks"].values()))
        for page in (small, head_view(gpt2.trace))
    ]
    tokens, heads = len(gpt2.trace.tokens[0]), 4 * 6
    assert sizes[1] - sizes[0] == 4 * tokens * (7 + 6 + 4 + heads)


def test_numbers_that_are_nan_are_not_shown(view, gpt2, tmp_path):
    found = gpt2.found
    arrays = found.arrays() | {"log_probability": np.full_like(found.log_probability, np.nan)}
    broken = Predictions.from_parts(found.words(), arrays)
    trace = Trace(**{**vars(gpt2.trace), "predictions": broken})
    view.open(head_view(trace).save(tmp_path / "nan.html"), "query=3")
    assert predicted(view) == []
    assert "NaN" not in view.texts(".panel")[0]


@pytest.fixture(scope="module")
def continued(tmp_path_factory) -> Shown:
    model: Any = fa.from_pretrained("tiny-gpt2")
    _, trace = model.generate("The old man looked", max_new_tokens=8, trace=True, predictions=2)
    page = head_view(trace).save(tmp_path_factory.mktemp("predicted") / "continued.html")
    return Shown(trace[0], page)


def test_the_matrix_marks_where_the_continuation_begins(view, continued, gpt2):
    view.open(continued.page, "drawing=matrix&heads=0&query=none&theme=light")
    boundary = int((continued.trace.segments[0] == 0).sum())
    assert boundary == 4
    shown = view.run(
        "const { ruled, window, place } = view.matrix.drawn(); return [ruled, window, place]"
    )
    ruled, window, place = shown
    assert ruled == {"row": boundary * window["size"], "column": boundary * window["size"]}
    ink = view.run(
        "const canvas = document.querySelector('canvas.cells');"
        "const ratio = canvas.width / canvas.clientWidth;"
        "const [x, y] = arguments, pen = canvas.getContext('2d');"
        "const at = (x, y) => [...pen.getImageData(x * ratio, y * ratio, 1, 1).data];"
        "return [at(x, y), at(x, y + 6)];",
        place["left"] + place["width"] // 10 * 10 - 8,  # in a dash, over cells no query sees
        place["top"] + ruled["row"],
    )
    assert max(ink[0][:3]) < 140 and min(ink[1][:3]) > 200, ink
    assert "dashed: the continuation begins" in view.texts(".matrix-legend")[0]
    root = ElementTree.fromstring(view.svg())
    y = place["top"] + ruled["row"] - 0.75
    heights = [float(n.get("y", 0)) for n in root.iter() if n.get("height") == "1.50"]
    dashes = [top for top in heights if top == pytest.approx(y, abs=0.06)]
    assert len(dashes) == int(np.ceil(place["width"] / 10))
    assert "dashed: the continuation begins" in "".join(root.itertext())
    view.open(continued.page, "query=none")  # lines have it too
    marks = "return [...document.querySelectorAll('.token[data-begins]')].map((row) => row.dataset)"
    assert [int(mark["index"]) for mark in view.run(marks)] == [boundary, boundary]
    view.open(gpt2.page, "drawing=matrix&heads=0")
    assert view.run("return view.matrix.drawn().ruled") == {"row": None, "column": None}
    assert "dashed" not in view.texts(".matrix-legend")[0]


@pytest.mark.parametrize("kind", SHAPES)
def test_hostile_tokens_are_text(view, kind, tmp_path):
    found = texts(kind)
    length = len(found)
    weights = np.tril(np.ones((1, 1, 2, length, length), np.float32))
    weights /= weights.sum(-1, keepdims=True)
    rows = np.zeros((1, length), np.int32)
    score = np.log(np.full((1, length, 2), 0.25, np.float32))
    predictions = Predictions(
        [found],
        [[[one, found[0]] for one in found]],
        ids=rows,
        targets=rows,
        follows=np.ones((1, length), bool),
        likeliest=score,
        log_probability=score[..., 0],
        rank=rows + 1,
        heads=np.ones((1, length, 1, 2), np.float32),
        feed_forward=np.ones((1, length, 1), np.float32),
        embedding=rows.astype(np.float32),
        bias=rows.astype(np.float32),
    )
    made = Trace.from_arrays(tokens=[found], decoder_weights=weights, decoder_tokens=[found])
    trace = Trace(**{**vars(made), "predictions": predictions, "decoder_tokens": ()})
    view.browser.get_log("browser")
    view.open(head_view(trace).save(tmp_path / "hostile.html"), "query=none")
    output = view.run(
        "return view.state.side.left.tokens.map((_, index) => {"
        "  view.state.letGo(); page.hold('left', index);"
        "  const found = document.querySelectorAll('.predicted .token-text, h3 .token-text');"
        "  return [...found].map((token) => token.textContent);"
        "});"
    )
    written = [visible(one) for one in found]
    assert output == [[one, written[0], one, one] for one in written]
    assert view.run("return window.seen") == []
    assert view.run("return document.scripts.length") == 2
    assert view.browser.get_log("browser") == []
