# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The walk of the neuron level in a headless Chromium: its numbers are those of NumPy.

Every number in a step has a name; what it should be is computed here from the arrays of the trace.
"""

import re

import numpy as np
import pytest
from hostile_texts import SHAPES, texts

from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.neuron_payload import rotary_pairs
from flaxattn.views.payloads.page_encoding import SETTINGS, visible
from flaxattn.views.trace_views import neuron_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]

L, H, S, D = 2, 2, 9, 20
SCALE = 0.31  # not 1 / sqrt(D), so that the page must read it
RNG = np.random.default_rng(26)
TOKENS = "the cat sat on a mat and it slept".split()
QUERY, KEY, VALUE = RNG.normal(size=(3, L, 1, S, H, D)).astype(np.float32)
BIAS = RNG.normal(size=(L, 1, H, S, S)).astype(np.float32)
STEPS = ["input", "query", "key", "product", "scale", "bias", "softmax", "value", "sum", "output"]


def softmax(scores):
    parts = np.exp(scores - scores.max(-1, keepdims=True))
    return parts / parts.sum(-1, keepdims=True)


def trace(bias=None, causal=False, tokens=TOKENS, **fields):
    """A text of which everything was captured."""
    scores = SCALE * np.einsum("lbqhd,lbkhd->lbhqk", QUERY, KEY)
    if bias is not None:
        scores = scores + bias
        fields["scores"] = scores.astype(np.float32)
    if causal:
        scores = np.where(np.tri(S, dtype=bool), scores, -np.inf)
    vectors = {"query": QUERY, "key": KEY, "value": VALUE} | fields
    weights = softmax(scores).astype(np.float32)
    named = {"layers": tuple(range(L)), "heads": tuple(range(H)), "scale": SCALE}
    return Trace(encoder=AttentionRecord(weights=weights, **named, **vectors), tokens=[tokens])


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return neuron_view(trace()).save(tmp_path_factory.mktemp("walk") / "page.html")


def number(text):
    return float(text.replace("−", "-"))


NUMBERS = """
return [...document.querySelectorAll(".neuron-walk-text .value")]
  .map((one) => [one.dataset.number, one.textContent]);
"""


def shown_numbers(view):
    """Numbers of the open step: name to value."""
    return {name: number(text) for name, text in view.run(NUMBERS)}


def expected(layer, head, query, key, bias=None, causal=False):
    """All numbers of a walk, from the arrays."""
    q, k = QUERY[layer, 0, query, head], KEY[layer, 0, :, head]
    v = VALUE[layer, 0, :, head]
    dots = k @ q
    scores = SCALE * dots + (0 if bias is None else bias[layer, 0, head, query])
    if causal:
        scores = np.where(np.arange(S) <= query, scores, -np.inf)
    weights = softmax(scores)
    output = weights @ v
    best = np.argsort(-np.abs(q * k[key]), kind="stable")[:3]
    loud = int(np.abs(v[key]).argmax())
    values = np.argsort(-np.abs(v[key]), kind="stable")[:3]
    passed = weights[key] * v[key, loud]
    part = np.exp(scores[key] - scores.max())
    products = {f"product{d}": q[d] * k[key, d] for d in best}
    rest = dots[key] - sum(products.values())
    numbers = {
        "input": {},
        "query": {f"q{d}": q[d] for d in best},
        "key": {f"k{d}": k[key, d] for d in best},
        "scale": {"dot": dots[key], "factor": SCALE, "scaled": SCALE * dots[key]},
        "softmax": {
            "seen": np.isfinite(scores).sum(),
            "peak": scores.max(),
            "score": scores[key],
            "part": part,
            "total": np.exp(scores - scores.max()).sum(),
            "weight": weights[key],
        },
        "value": {
            "norm": np.linalg.norm(v[key]),
            "weight": weights[key],
            "passed": passed,
            **{f"v{d}": v[key, d] for d in values},
        },
        "sum": {
            "passed": passed,
            "others": output[loud] - passed,
            f"output{loud}": output[loud],
        },
        "output": {
            "length": np.linalg.norm(output),
            **{f"output{d}": output[d] for d in np.argsort(-np.abs(output))[:3]},
        },
    }
    numbers["product"] = numbers["query"] | numbers["key"] | products
    numbers["product"] |= {"others": rest, "dot": dots[key]}
    if bias is not None:
        added = bias[layer, 0, head, query, key]
        numbers["bias"] = {"scaled": SCALE * dots[key], "bias": added, "score": scores[key]}
    return numbers


def sums(text):
    """Both sides of an equation such as `q·k = 1.2 + (−0.5) (the other 3) = 0.7`."""
    plain = re.sub(r"\([^()]*[a-z][^()]*\)", "", text.replace("−", "-"))
    terms, _, total = plain.removeprefix("q·k = ").rpartition(" = ")
    return sum(float(term.strip(" ()")) for term in terms.split(" + ")), float(total)


@pytest.mark.parametrize("bias", [None, BIAS], ids=["plain", "bias"])
def test_every_number_of_every_step_is_that_of_numpy(view, tmp_path, bias):
    page = neuron_view(trace(bias)).save(tmp_path / "page.html")
    view.open(page, "walk=input")
    known = [step for step in STEPS if step != "bias" or bias is not None]
    counted = 0
    for _ in range(12):
        layer, head, query, key = (int(RNG.integers(n)) for n in (L, H, S, S))
        wanted = expected(layer, head, query, key, bias)
        place = {"layer": layer, "heads": [head], "query": query, "key": key}
        view.run("page.update({ walk: 'input', ...arguments[0] })", place)
        for at, step in enumerate(known):
            assert view.run("return page.state.walk") == step
            assert view.texts(".neuron-walk-title")[0].startswith(
                f"Step {at + 1} of {len(known)}: "
            )
            shown = shown_numbers(view)
            assert shown.keys() == wanted[step].keys(), step
            for name, value in wanted[step].items():
                assert shown[name] == pytest.approx(value, rel=6e-4, abs=2e-5), (step, name)
            counted += len(shown)
            if step in ("product", "sum", "bias"):
                left, right = sums(view.texts(".neuron-walk-text p")[-1])
                assert left == pytest.approx(right, abs=3e-3)
            if step != known[-1]:
                view.click(".neuron-walk-next")
    assert counted > 12 * 30
    assert view.run("return window.seen") == []


def test_the_walk_begins_with_the_strongest_key_and_ends(view, page):
    view.open(page, "layer=1&heads=1&query=3")
    assert not view.find(".neuron-walk").is_displayed()
    view.click(".neuron-start")
    best = int(trace().encoder.weights[1, 0, 1, 3].argmax())
    assert view.run("return [page.state.walk, page.state.query, page.state.key]") == [
        "input",
        3,
        best,
    ]
    assert f"“{TOKENS[best]}” at position {best}" in view.texts(".neuron-walk-text")[0]
    assert view.find(".neuron-walk-back").get_attribute("disabled")
    assert "walk=input" in view.browser.current_url
    view.press("ARROW_RIGHT", "ARROW_RIGHT", "ARROW_LEFT")
    assert view.run("return page.state.walk") == "query"
    assert view.run("return page.state.layerNumber()") == 1, "arrows do not change the layer here"
    view.press("ENTER")  # the focus is on Next
    assert view.run("return page.state.walk") == "key"
    view.press(*["ARROW_RIGHT"] * 12)
    assert view.run("return page.state.walk") == "output"
    assert view.texts(".neuron-walk-next") == ["Done"]
    view.press("ENTER")
    assert view.run("return page.state.walk") == "off"
    assert not view.find(".neuron-walk").is_displayed()
    assert view.run("return document.activeElement.className") == "neuron-start"
    view.press("ENTER", "ESCAPE")
    assert view.run("return [page.state.walk, page.state.query]") == ["off", 3]


FRAMED = """
return [...document.querySelectorAll(".neuron-mark")].map((mark) => {
  const [box, own] = [view.scroller.getBoundingClientRect(), mark.getBoundingClientRect()];
  return [mark.className.split(" ")[1], mark.dataset.rows, own.top - box.top, own.height];
});
"""


def test_a_step_frames_the_numbers_that_it_speaks_about(view, page):
    view.open(page, "layer=0&heads=0&query=2&key=4&walk=product")
    order = view.run("return view.scene.keys")
    framed = {(name, rows): place for name, rows, *place in view.run(FRAMED)}
    assert set(framed) == {
        ("key", "query"),
        ("key", "key"),
        ("product", "key"),
        ("rest", "key"),
        ("dot", "key"),
    }
    top = 82 + 24 * order.index(4)
    assert all(
        place[0] == pytest.approx(top, abs=2) and place[1] == pytest.approx(26, abs=2)
        for (_, rows), place in framed.items()
        if rows == "key"
    )
    view.run("page.update({ walk: 'softmax' })")
    framed = {(name, rows): place for name, rows, *place in view.run(FRAMED)}
    assert set(framed) == {("score", "all"), ("weight", "all")}
    assert framed["weight", "all"][1] == pytest.approx(24 * S, abs=5)
    view.run("page.update({ walk: 'off' })")
    assert view.run(FRAMED) == []


def test_a_masked_key_is_announced_and_keys_after_the_query_do_not_count(view, tmp_path):
    page = neuron_view(trace(causal=True)).save(tmp_path / "page.html")
    view.open(page, "query=3&key=6&walk=softmax")
    sentence = view.texts(".neuron-walk-text")[0]
    assert "over the 4 keys that “on” sees. The other 5 are masked" in sentence
    assert sentence.endswith("“and” is masked: its weight is 0.")
    view.run("page.update({ key: 1 })")
    wanted = expected(0, view.run("return page.state.oneHead()"), 3, 1, causal=True)["softmax"]
    assert shown_numbers(view) == pytest.approx(wanted, rel=6e-4)


def test_without_values_the_walk_has_none_and_says_how_to_capture_them(view, tmp_path):
    page = neuron_view(trace(value=None)).save(tmp_path / "page.html")
    view.open(page, "query=3&walk=sum")
    assert view.texts(".neuron-walk-title") == ["Step 6 of 7: Softmax"]
    view.click(".neuron-walk-next")
    assert "The trace does not hold values: Capture(value=True)" in view.texts(".neuron-walk")[0]
    assert shown_numbers(view) == {}


def test_a_rotary_model_is_walked_before_and_after_rotation(view, tmp_path):
    angles = RNG.normal(size=(L, 1, S, D // 2))
    rotation = np.stack([np.cos(angles), np.sin(angles)], 3).astype(np.float32)
    rotary = trace(rotation=rotation)
    page = neuron_view(rotary).save(tmp_path / "page.html")
    view.open(page, "layer=1&heads=1&query=5&key=2&walk=query")
    found = rotary_pairs(rotary[0].encoder, 1, 1, 5)
    best = np.argsort(-np.abs(found.rotated_query * found.rotated_keys[2]), kind="stable")[:3]
    expected = {f"q′{d}": found.query[d] for d in best}
    expected |= {f"q{d}": found.rotated_query[d] for d in best}
    assert shown_numbers(view) == pytest.approx(expected, rel=1e-3, abs=1e-4)
    view.click(".neuron-walk-next")
    expected = {f"k′{d}": found.keys[2, d] for d in best}
    expected |= {f"k{d}": found.rotated_keys[2, d] for d in best}
    assert shown_numbers(view) == pytest.approx(expected, rel=1e-3, abs=1e-4)
    lines = view.texts(".neuron-walk-text p")
    assert lines[1].startswith("before rotation k′[")
    assert lines[2].startswith("rotated by position 2: k[")


def test_weights_that_are_kept_separate_from_the_scores_are_named(view, tmp_path):
    text = neuron_view(trace(), precision="float16").html
    (message,) = re.findall(r'"error":([^,]+),"problem"', text)
    page = tmp_path / "page.html"
    # As if the vectors were rounded so much that the stored weights are closer to the model's.
    page.write_text(text.replace(f'"error":{message},"problem"', '"error":0.9,"problem"'))
    view.open(page, "layer=1&heads=0&query=4&key=2&walk=softmax")
    stored = float(np.float16(trace().encoder.weights[1, 0, 0, 4, 2]))
    assert shown_numbers(view)["weight"] == pytest.approx(stored, abs=1e-3)
    view.run("view.head.stored = () => new Float32Array(9).fill(0.25); view.focus()")
    assert shown_numbers(view)["stored"] == 0.25
    view.click(".neuron-walk-next")
    assert shown_numbers(view)["weight"] == 0.25


def test_the_steps_of_the_page_are_those_of_a_state():
    assert [*SETTINGS["walk"]] == ["off", *STEPS]


@pytest.mark.parametrize("kind", SHAPES)
def test_hostile_tokens_are_written_in_every_step_and_on_paper(view, tmp_path, kind):
    chosen = [*texts(kind)]
    for start in range(0, len(chosen), S):
        tokens = (chosen[start : start + S] * S)[:S]
        view.open(neuron_view(trace(tokens=tokens)).save(tmp_path / "page.html"), "walk=input")
        for key in range(S):
            view.run("page.update({ query: 0, key: arguments[0], walk: 'input' })", key)
            assert view.texts(".neuron-walk-text .token-text") == [
                visible(tokens[0]),
                visible(tokens[key]),
            ]
            assert view.texts(".deciding .token-text") == [visible(tokens[key])]
        view.run("window.dispatchEvent(new Event('beforeprint'))")
        assert visible(tokens[0]) in view.texts(".neuron-walk-printed .token-text")
        assert {visible(token) for token in tokens} <= set(view.texts(".neuron-printed svg text"))
        assert view.run("return window.seen") == []
