# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The calls of BertViz draw the page of the trace that holds the same arrays."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError

TOKENS = ["[CLS]", "a", "Ġb", "c"]
SHOWN = ["[CLS]", "a", " b", "c"]


def shares(layers: int = 2, heads: int = 3, queries: int = 4, keys: int = 4) -> np.ndarray:
    weights = np.random.default_rng(0).random((layers, 1, heads, queries, keys), np.float32)
    return weights / weights.sum(-1, keepdims=True)


class Tensor:
    """The part of a torch tensor that is asked for."""

    def __init__(self, array: np.ndarray) -> None:
        self._array, self.dtype, self.ndim = array, f"torch.{array.dtype}", array.ndim

    def detach(self) -> "Tensor":
        return self

    cpu = detach

    def numpy(self) -> np.ndarray:
        return self._array


LAYERS = {
    "numpy": tuple(shares()),
    "list": list(shares()),
    "float16": tuple(shares().astype(np.float16)),
    "jax": tuple(jnp.asarray(shares())),
    "bfloat16": tuple(jnp.asarray(shares(), jnp.bfloat16)),
    "torch": tuple(Tensor(layer) for layer in shares()),
    "whole": shares(),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_a_tuple_of_arrays_and_tokens_draw_the_page_of_a_trace(kind: str) -> None:
    arrays: Any = LAYERS[kind]
    held = np.stack([np.asarray(getattr(layer, "_array", layer), np.float32) for layer in arrays])
    trace = fa.Trace.from_arrays(held, [SHOWN])
    for view in (fa.head_view, fa.model_view):
        assert view(arrays, TOKENS).html == view(trace).html
        named = view(attention=arrays, tokens=TOKENS, html_action="return", layer=1)
        assert named.html == view(trace, layer=1).html


def test_the_second_sentence_begins_where_it_is_said_to() -> None:
    trace = fa.Trace.from_arrays(shares(), [SHOWN], segments=np.array([[0, 0, 1, 1]], np.int32))
    arrays = tuple(shares())
    assert fa.head_view(arrays, TOKENS, 2).html == fa.head_view(trace).html
    assert fa.head_view(arrays, TOKENS, sentence_b_start=2).html == fa.head_view(trace).html
    dark = fa.model_view(arrays, TOKENS, sentence_b_start=2, display_mode="dark")
    assert dark.html == fa.model_view(trace, theme="dark").html
    raw = fa.head_view(arrays, TOKENS, prettify_tokens=False)
    assert raw.html == fa.head_view(fa.Trace.from_arrays(shares(), [TOKENS])).html


def test_encoder_decoder_and_cross_attention() -> None:
    causal = np.tril(shares(2, 3, 2, 2))
    causal /= causal.sum(-1, keepdims=True)
    given = {"decoder_weights": causal, "cross_weights": shares(2, 3, 2, 4)}
    trace = fa.Trace.from_arrays(shares(), [SHOWN], decoder_tokens=[["x", "y"]], **given)
    page = fa.head_view(
        encoder_attention=tuple(shares()),
        decoder_attention=tuple(causal),
        cross_attention=tuple(shares(2, 3, 2, 4)),
        encoder_tokens=TOKENS,
        decoder_tokens=["x", "y"],
    )
    assert page.html == fa.head_view(trace).html
    alone = fa.head_view(decoder_attention=tuple(causal), decoder_tokens=["x", "y"])
    assert alone.html == fa.head_view(fa.Trace(decoder=trace.decoder, tokens=[["x", "y"]])).html


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: fa.head_view(a), "received attention weights without tokens"),
        (
            lambda a: fa.head_view(5),
            "use this trace.\nExpected Trace, received int",
        ),
        (lambda a: fa.head_view(None, TOKENS), "cannot use this trace"),
        (lambda a: fa.head_view([1, 2], TOKENS), "an array [1, H, Q, K] for each layer"),
        (lambda a: fa.head_view(a[0], TOKENS), "received one array of shape (1, 3, 4, 4)"),
        (lambda a: fa.head_view("x", TOKENS), "an array [1, H, Q, K] for each layer"),
        (lambda a: fa.head_view(a, TOKENS[:2]), "received tokens of 1 sequences of length 2"),
        (lambda a: fa.head_view(a, tokens=[1, 2]), "Expected a list of strings"),
        (lambda a: fa.head_view(a, tokens="abcd"), "Expected a list of strings, received str"),
        (lambda a: fa.head_view(a, TOKENS, 99), "sentence_b_start=99"),
        (lambda a: fa.head_view(a, TOKENS, html_action="x"), "html_action='x'"),
        (lambda a: fa.neuron_view(a, TOKENS), "queries and keys"),
        (lambda a: fa.head_view(fa.Trace.from_arrays(a, [TOKENS]), tokens=TOKENS), "holds both"),
    ],
)
def test_what_cannot_be_drawn_is_told_in_three_lines(call: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        call(tuple(shares()))
    assert words in str(caught.value) and len(str(caught.value).splitlines()) <= 3


def test_an_argument_of_another_name_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'laier'"):
        fa.head_view(tuple(shares()), TOKENS, laier=1)
    for view in (fa.head_view, fa.model_view, fa.neuron_view):
        with pytest.raises(InputError, match=r"Did you mean prettify_tokens\?") as caught:
            view(tuple(shares()), TOKENS, prettify_token=True)
        assert len(str(caught.value).splitlines()) == 3
