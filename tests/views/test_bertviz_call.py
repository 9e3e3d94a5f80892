# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The calls of BertViz draw the page of the trace that holds the same arrays."""

import dataclasses
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
    """The part of a torch tensor that is requested."""

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


def test_the_second_sentence_begins_where_it_should() -> None:
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


def both() -> fa.Trace:
    """The trace of a source and a target."""
    causal = np.tril(shares(2, 3, 2, 2))
    causal /= causal.sum(-1, keepdims=True)
    sides = {"decoder_weights": causal, "cross_weights": shares(2, 3, 2, 4)}
    return fa.Trace.from_arrays(shares(), [SHOWN], decoder_tokens=[["x", "y"]], **sides)


def arrays_of(trace: fa.Trace) -> Any:
    sides = (trace.encoder, trace.decoder, trace.cross)
    return tuple(tuple(np.asarray(side.weights)) for side in sides if side is not None)


WRITTEN = ["x", "y"]
CHOSEN = {"layer": 1, "heads": [0, 2]}
# Calls of BertViz's README and notebooks, and the same page of a trace.
HEAD_CALLS = [
    (lambda a: ((a, TOKENS), {}), {}),
    (lambda a: ((a, TOKENS), {"layer": 1, "heads": [0, 2]}), CHOSEN),
    (lambda a: ((a, TOKENS), {"heads": [1]}), {"heads": [1]}),
    (lambda a: ((a, TOKENS), {"include_layers": [1]}), {"include_layers": [1]}),
    (lambda a: ((a, TOKENS, None, True, 1, [0, 2]), {}), CHOSEN),
    (lambda a: ((), {"attention": a, "tokens": TOKENS, **CHOSEN}), CHOSEN),
    (lambda a: ((a, TOKENS), {"html_action": "return", **CHOSEN}), CHOSEN),
    (lambda a: ((a,), {"tokens": TOKENS, "layer": 1}), {"layer": 1}),
]


@pytest.mark.parametrize(("call", "same"), HEAD_CALLS)
def test_calls_of_head_view(call: Any, same: dict[str, Any]) -> None:
    given, named = call(tuple(shares()))
    trace = fa.Trace.from_arrays(shares(), [SHOWN])
    assert fa.head_view(*given, **named).html == fa.head_view(trace, **same).html
    if "heads" not in named and len(given) < 5:
        assert fa.model_view(*given, **named).html == fa.model_view(trace, **same).html


def test_calls_of_encoder_decoders_in_order() -> None:
    trace = both()
    first, second, third = arrays_of(trace)
    order = (None, None, None, True)
    for view, own in ((fa.head_view, (None, None)), (fa.model_view, ("light",))):
        page = view(*order, *own, first, second, third, TOKENS, WRITTEN, [0])
        theme = {"theme": "light"} if view is fa.model_view else {}
        assert page.html == view(trace, include_layers=[0], **theme).html


def test_calls_of_model_view_with_some_heads() -> None:
    arrays = tuple(shares())
    found = fa.model_view(arrays, TOKENS, include_layers=[1], include_heads=[0, 2])
    trace = fa.Trace.from_arrays(shares(), [SHOWN])
    record = trace.encoder
    assert record is not None
    fewer = dataclasses.replace(trace, encoder=record.with_heads([0, 2]))
    assert found.html == fa.model_view(fewer, include_layers=[1]).html
    with pytest.raises(InputError, match="There is no head 7"):
        fa.model_view(arrays, TOKENS, include_heads=[7])


def test_arguments_of_a_trace_by_their_place() -> None:
    trace = fa.Trace.from_arrays(shares(), [SHOWN])
    assert fa.head_view(trace, 1, [0, 2]).html == fa.head_view(trace, **CHOSEN).html
    with pytest.raises(InputError, match="layer twice"):
        fa.head_view(trace, 1, layer=1)
    with pytest.raises(InputError, match="takes 4 arguments"):
        fa.head_view(trace, 1, [0], [0], 0, "encoder")


def test_the_call_of_the_neuron_view() -> None:
    model = fa.from_pretrained("tiny-bert")
    everything = fa.Capture(weights=True, query=True, key=True, value=True)
    for texts in (["the cat sat"], ["the cat sat", "it slept"]):
        trace = model.trace(*texts, capture=everything)
        page = fa.neuron_view(model, "bert", None, *texts, display_mode="dark", layer=1, head=2)
        assert page.html == fa.neuron_view(trace, layer=1, heads=[2], theme="dark").html
    with pytest.raises(InputError, match="without a sentence"):
        fa.neuron_view(model, "bert", None)


@pytest.mark.parametrize("attention", [(), (None, None), [None]])
@pytest.mark.parametrize("name", ["attention", "cross_attention"])
def test_attention_that_a_model_did_not_return(name: str, attention: Any) -> None:
    given = {name: attention, "encoder_tokens": TOKENS, "decoder_tokens": WRITTEN}
    given = {"attention": attention, "tokens": TOKENS} if name == "attention" else given
    for view in (fa.head_view, fa.model_view):
        with pytest.raises(InputError, match='attn_implementation="eager"'):
            view(**given)


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
def test_what_cannot_be_drawn_is_refused_in_three_lines(call: Any, words: str) -> None:
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
