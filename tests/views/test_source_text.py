# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pages hold the text that was read, with places as browsers count them."""

import json
import re
from typing import Any

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.side_payload import source_text


def page_text(page: Any) -> dict[str, Any]:
    """The first text of a page's payload."""
    (held,) = re.findall(r'class="flaxattn-payload">(.*?)</script>', page.html, re.DOTALL)
    return next(iter(json.loads(held)["inputs"][0]["texts"].values()))


def units(text: str, start: int, stop: int) -> str:
    """A part of a text by UTF-16 units, as `String.slice` of a browser."""
    return text.encode("utf-16-le")[2 * start : 2 * stop].decode("utf-16-le")


@pytest.mark.slow
def test_a_page_slices_the_text_as_the_trace_does() -> None:
    text = "a👩‍👩‍👧 İs\u0085t\nمرحبا"
    trace = fa.from_pretrained("tiny-gpt2").trace(text)
    held = page_text(fa.text_view(trace))
    assert held["passages"] == ["a👩‍👩‍👧 İs⟨U+0085⟩t␊مرحبا"]
    for token, span, place in zip(trace.tokens[0], trace.spans[0], held["spans"], strict=True):
        assert span is not None, token
        shown = units(held["passages"][0], *place[1:])
        plain = text[slice(*span)].replace("\u0085", "⟨U+0085⟩").replace("\n", "␊")
        assert (place[0], shown) == (0, plain)


def test_a_pair_has_two_passages() -> None:
    trace = fa.from_pretrained("tiny-bert").trace(["Straße ."], ["Cat"])
    held = page_text(fa.head_view(trace))
    assert held["passages"] == ["Straße .", "Cat"]
    assert held["spans"] == [None, [0, 0, 6], [0, 7, 8], None, [1, 0, 3], None]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"texts": [("a b",)]},
        {"spans": [[(0, 1), (2, 3)]]},
        {"texts": [("a b",)], "spans": [[(0, 1), (2, 9)]]},
    ],
)
def test_without_fitting_spans_a_page_holds_tokens_only(fields: dict[str, Any]) -> None:
    weights = np.full((1, 1, 1, 2, 2), 0.5, np.float32)
    trace = Trace.from_arrays(weights, [["a", "b"]], **fields)
    assert source_text(trace) == {}
    assert page_text(fa.head_view(trace)).keys() == {"tokens", "special", "boundary", "words"}


def test_the_text_level_is_opened_by_name_and_by_state() -> None:
    trace = fa.from_pretrained("tiny-bert").trace("the cat")
    for page in (
        fa.text_view(trace),
        fa.head_view(trace, state={"level": "text", "direction": "to", "labels": "tokens"}),
    ):
        assert '"level":"text"' in page.html
        assert page.title == "Attention in the text · tiny-bert"
    with pytest.raises(InputError, match=r'direction is .up.\.\nUse one of "from", "to"'):
        fa.text_view(trace, state={"direction": "up"})
    with pytest.raises(InputError, match=r"draws no running text.*\nSave the page's SVG"):
        fa.plot_state(trace, {"level": "text"})
