# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Weights survive their way into a page within the promised error, and text stays text.

The decoder here is written from the docstring of `encode_weights`; the browser's own decoder is
tested in `test_head_view_browser.py`.
"""

import json

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given
from page_payload import decode_weights

from flaxattn.errors import InputError
from flaxattn.views.payloads import page_encoding

WEIGHTS = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=3, max_dims=3, max_side=7),
    elements=st.floats(0, 1, width=32),
)


@given(WEIGHTS)
@example(np.ones((1, 1, 1), np.float32))
@example(np.zeros((2, 3, 4), np.float32))
@example(np.full((1, 1, 3), 1e-8, np.float32))
def test_float16_round_trip(weights):
    decoded = decode_weights(
        page_encoding.encode_weights(weights, "float16"), "float16", weights.shape
    )
    assert np.abs(decoded - weights).max() <= page_encoding.ERROR["float16"]


@given(WEIGHTS)
@example(np.ones((1, 1, 1), np.float32))
@example(np.zeros((2, 3, 4), np.float32))
@example(np.full((1, 1, 3), 0.99976, np.float32))
@example(np.full((1, 1, 3), 2.45 * 2**-24, np.float32))
def test_uint8_round_trip(weights):
    decoded = decode_weights(page_encoding.encode_weights(weights, "uint8"), "uint8", weights.shape)
    bound = page_encoding.ERROR["uint8"] * weights.max(-1, keepdims=True)
    assert (np.abs(decoded - weights) <= bound + 2**-24).all()


@given(WEIGHTS)
@example(np.ones((1, 1, 1), np.float32))
@example(np.zeros((2, 3, 4), np.float32))
@example(np.full((1, 2, 2), 1e-42, np.float32))
@example(np.array([[[0.5, np.nan], [np.nan, np.nan]]], np.float32))
def test_uint11_round_trip(weights):
    decoded = decode_weights(
        page_encoding.encode_weights(weights, "uint11"), "uint11", weights.shape
    )
    bound = page_encoding.ERROR["uint11"] * np.nan_to_num(weights).max(-1, keepdims=True)
    np.testing.assert_array_equal(np.isnan(decoded), np.isnan(weights))
    faintest = 2.0**-133 / 4092  # half a step of the smallest bfloat16
    assert (np.nan_to_num(np.abs(decoded - weights)) <= 1.001 * bound + faintest + 2**-149).all()


def test_uint8_keeps_the_shape_of_a_faint_row():
    row = np.array([[[0.004, 0.002, 0.001, 0.0]]], np.float32)
    decoded = decode_weights(page_encoding.encode_weights(row, "uint8"), "uint8", row.shape)
    assert decoded == pytest.approx(row, rel=0.01)


@pytest.mark.parametrize("precision", ["float16", "uint11", "uint8"])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 4, 5), (1, 2, 7, 7)])
def test_forecast_of_the_size_is_exact(precision, shape):
    layers = np.zeros(shape, np.float32)
    blocks = page_encoding.Blocks()
    for number, layer in enumerate(layers):
        blocks.put(str(number), page_encoding.encode_weights(layer, precision))
    written = blocks.size
    assert page_encoding.payload_bytes(shape, precision) == written


def test_precision_is_chosen_by_size():
    assert page_encoding.choose_precision((12, 12, 128, 128), None) == "uint11"
    assert page_encoding.choose_precision((12, 12, 256, 256), None) == "uint8"
    assert page_encoding.choose_precision((12, 12, 256, 256), "float16") == "float16"
    assert page_encoding.choose_precision((12, 12, 512, 512), None) == "uint8"


@pytest.mark.parametrize(
    ("shape", "precision", "message"),
    [
        (
            (24, 16, 512, 512),
            None,
            r"^The page would be 126 MB; browsers manage 64 MB\.\n"
            r"Its weights have layers, heads, queries, keys = \(24, 16, 512, 512\)\.\n"
            r"Use at most 12 layers \(include_layers=\[…\]\)\.$",
        ),
        ((12, 12, 512, 512), "float16", r'\nUse precision="uint8"\.$'),
        ((1, 12, 4096, 4096), None, r"\nUse a shorter text\.$"),
        (
            (1, 1, 2, 2),
            "int4",
            r"^Unknown precision 'int4'\.\nUse \"uint11\", \"uint8\", \"float16\" or None\.$",
        ),
    ],
)
def test_pages_that_would_kill_a_browser_are_refused(shape, precision, message):
    with pytest.raises(InputError, match=message):
        page_encoding.choose_precision(shape, precision)


@given(st.text())
@example("</script><!--\u2028\u2029&\x00")
@example("\ud800")
def test_script_json_is_harmless_and_complete(text):
    written = page_encoding.script_json({"text": text})
    assert written.isascii()
    assert not set(written) & set("<>&")
    assert json.loads(written) == {"text": text}


def test_script_json_refuses_what_is_no_json():
    with pytest.raises(ValueError, match="Out of range"):
        page_encoding.script_json({"x": float("nan")})


@given(st.text())
@example("\x00\x1f\x7f\x80\x9f\ud800")
def test_visible_text_has_no_control_characters(text):
    shown = page_encoding.visible(text)
    assert not any(c < " " or "\x7f" <= c <= "\x9f" or "\ud800" <= c <= "\udfff" for c in shown)
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "a␊b"),
        ("\x00", "␀"),
        ("\x7f", "␡"),
        ("\x85", "⟨U+0085⟩"),
        ("Ġ naïve ש", "Ġ naïve ש"),
    ],
)
def test_visible_text(text, shown):
    assert page_encoding.visible(text) == shown
