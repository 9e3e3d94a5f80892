# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What a page of several sides holds: texts, layers, heads, weights; and what it refuses."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from page_payload import decode_weights, payload_of

from flaxattn.errors import InputError
from flaxattn.measures.head_measures import cross_measures
from flaxattn.trace.trace import Trace
from flaxattn.views.page import Page
from flaxattn.views.payloads.page_encoding import choose_precision
from flaxattn.views.trace_views import head_view


def sides_of(page: Page) -> dict[str, Any]:
    """The sides of the one text of a page, by name."""
    (shaped,) = payload_of(page)["inputs"]
    return {side["name"]: side for side in shaped["sides"]}


def decoded(payload: dict[str, Any], side: dict[str, Any], rows: int, columns: int) -> np.ndarray:
    """Weights `[L, H, Q, K]` of a side."""
    stored = [payload["blocks"][name] for name in side["weights"]]
    shape = (len(side["heads"]), rows, columns)
    return np.stack([decode_weights(data, payload["precision"], shape) for data in stored])


def test_every_side_travels_with_its_texts(translation):
    payload = payload_of(head_view(translation.trace))
    texts = payload["inputs"][0]["texts"]
    assert texts["source"]["tokens"] == translation.source
    assert texts["read"]["tokens"] == translation.read
    assert texts["written"]["tokens"] == translation.written
    assert [texts[name]["special"] for name in ("source", "read", "written")] == [[5], [0], [4]]
    sides = {side["name"]: side for side in payload["inputs"][0]["sides"]}
    assert list(sides) == ["encoder", "decoder", "cross", "all"]
    for name, shares in translation.shares.items():
        found = decoded(payload, sides[name], *shares.shape[2:])
        np.testing.assert_allclose(found, shares, atol=2**-11)
        assert (sides[name]["layers"], sides[name]["heads"]) == (
            list(range(shares.shape[0])),
            list(range(shares.shape[1])),
        )
    columns = {name: (side["left"], side["right"]) for name, side in sides.items()}
    assert columns == {
        "encoder": (["source"], ["source"]),
        "decoder": (["read"], ["read"]),
        "cross": (["written"], ["source"]),
        "all": (["source", "written"], ["source", "read"]),
    }
    assert (sides["all"]["layers"], sides["all"]["heads"]) == ([0, 1, 2], [0, 1, 2, 3])
    assert "weights" not in sides["all"]


def test_it_starts_with_the_cross_attention_that_aligns(translation):
    start = payload_of(head_view(translation.trace, heads=[0, 1, 2, 3]))["start"]
    here = {"level": "head", "sequence": 0, "theme": "auto", "mass": 100}
    assert start == here | {"layer": 0, "heads": [0, 1, 2, 3], "side": "cross"}
    requested = payload_of(head_view(translation.trace, layer=2, heads=[1], side="encoder"))[
        "start"
    ]
    assert requested == here | {"layer": 2, "heads": [1], "side": "encoder"}
    assert payload_of(head_view(translation.trace, side="all"))["start"]["layer"] == 0


def test_the_page_says_what_it_holds(translation):
    assert repr(head_view(translation.trace)).startswith(
        "Page(head view: 6 + 5 tokens, encoder 3 layers x 2 heads, decoder 2 layers x 4 heads, "
        "cross 2 layers x 4 heads, uint11, "
    )


def test_layers_are_included_by_number_where_a_side_has_them(translation):
    payload = payload_of(head_view(translation.trace, include_layers=[1, 2]))
    layers = {side["name"]: side["layers"] for side in payload["inputs"][0]["sides"]}
    assert layers == {"encoder": [1, 2], "decoder": [1], "cross": [1], "all": [1, 2]}
    deep = payload_of(head_view(translation.trace, include_layers=[2]))
    (only,) = deep["inputs"][0]["sides"]
    assert (only["name"], only["layers"]) == ("encoder", [2])


def test_a_page_of_one_side_holds_one_text(pair, translation):
    (shaped,) = payload_of(head_view(pair.trace))["inputs"]
    assert list(shaped["texts"]) == ["source"]
    decoder = dataclasses.replace(translation.trace, encoder=None, cross=None)
    (shaped,) = payload_of(head_view(decoder))["inputs"]
    assert {n: text["tokens"] for n, text in shaped["texts"].items()} == {"read": translation.read}


def test_cross_attention_alone_has_a_page(translation):
    trace = dataclasses.replace(translation.trace, encoder=None, decoder=None)
    payload = payload_of(head_view(trace))
    assert [side["name"] for side in payload["inputs"][0]["sides"]] == ["cross"]
    two = dataclasses.replace(translation.trace, encoder=None)
    assert list(sides_of(head_view(two))) == [
        "decoder",
        "cross",
    ]


def test_what_is_read_stands_in_for_what_is_not_told(translation):
    trace = dataclasses.replace(translation.trace, written=(), decoder_words=())
    assert (
        payload_of(head_view(trace))["inputs"][0]["texts"]["written"]["tokens"] == translation.read
    )


@pytest.mark.parametrize("continues", [True, False])
def test_a_read_token_has_the_word_that_was_written_before(translation, continues):
    written = [*translation.read[1:], "</s>", "<pad>", "<pad>"]
    written = written if continues else ["another", *written[1:]]
    trace = dataclasses.replace(translation.trace, written=[written])
    words = payload_of(head_view(trace))["inputs"][0]["texts"]["read"]["words"]
    assert words == ([None, 0, 1, 1, 2] if continues else None)


def test_blank_tokens_are_not_special(translation):
    trace = dataclasses.replace(
        translation.trace,
        written=[[" a", " ", "house", "x", "</s>", "<pad>", "<pad>"]],
        decoder_words=[[0, None, 1, 1, None, None, None]],
    )
    assert payload_of(head_view(trace))["inputs"][0]["texts"]["written"]["special"] == [4]


def test_heads_of_cross_attention_are_measured(translation):
    cross = {
        side["name"]: side
        for side in payload_of(head_view(translation.trace))["inputs"][0]["sides"]
    }
    shares = translation.shares["cross"]
    for layer, row in enumerate(cross["cross"]["measures"]):
        for head, found in enumerate(row):
            weights = shares[layer, head]
            entropy = -(weights * np.log(weights)).sum(-1).mean()
            assert found["strongest"] == pytest.approx(weights.max(-1).mean(), abs=1e-4)
            assert found["delimiter"] == pytest.approx(weights[:, 5].mean(), abs=1e-4)
            assert found["first"] == pytest.approx(weights[:, 0].mean(), abs=1e-4)
            assert found["entropy"] == pytest.approx(entropy, abs=1e-4)
            assert "next" not in found
    assert "next" in cross["decoder"]["measures"][0][0]


@pytest.mark.parametrize(
    ("row", "does"),
    [
        ([0.8, 0.1, 0.1], "one token"),
        ([0.1, 0.1, 0.8], "delimiters"),
        ([0.35, 0.35, 0.3], "broad"),
        ([0.5, 0.5, 0.0], "mixed"),
    ],
)
def test_a_head_of_cross_attention_is_named(row, does):
    trace = Trace.from_arrays(
        cross_weights=np.tile(np.float32(row), (1, 1, 1, 2, 1)),
        tokens=[["a", "b", "</s>"]],
        decoder_tokens=[["x", "y"]],
        special=np.array([[False, False, True]]),
    )
    (measured,) = cross_measures(trace)
    assert measured.does == does


def test_size_is_that_of_all_sides():
    half = (12, 12, 128, 128)
    assert choose_precision(half, None) == "uint11"
    assert choose_precision(half, None, half) == "uint8"
    with pytest.raises(InputError, match=r"= \(7, 16, 512, 512\), \(7, 16, 512, 512\)\.\nUse at"):
        choose_precision((7, 16, 512, 512), None, (7, 16, 512, 512))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            {"side": "both"},
            "There is no side 'both'.\nThis trace has encoder, decoder, cross, all.",
        ),
        ({"layer": 2}, "There is no layer 2.\nThere are layers 0, 1."),
        ({"heads": [4]}, "There is no head 4.\nThere are heads 0, 1, 2, 3."),
        ({"heads": [2], "side": "encoder"}, "There is no head 2.\nThere are heads 0, 1."),
        ({"include_layers": [3]}, "There is no layer 3.\nThere are layers 0, 1, 2."),
    ],
)
def test_what_is_not_there_is_named(translation, request_, message):
    with pytest.raises(InputError) as caught:
        head_view(translation.trace, **request_)
    assert str(caught.value) == message


def test_one_side_has_no_other(pair):
    with pytest.raises(InputError, match=r"There is no side 'cross'\.\nThis trace has encoder\."):
        head_view(pair.trace, side="cross")
