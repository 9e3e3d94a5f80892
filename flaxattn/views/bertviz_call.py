# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The calls of BertViz: weights and tokens in place of a trace, under BertViz's argument names.

Weights are arrays of torch, NumPy or JAX, one of shape [1, H, Q, K] for each layer.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from flaxattn.errors import InputError, check_type
from flaxattn.kernels.contract import Capture
from flaxattn.trace.other_libraries import from_huggingface
from flaxattn.trace.record import SIDES
from flaxattn.trace.trace import Trace

_NAMES = {
    "attention": "attentions",
    "encoder_attention": "encoder_attentions",
    "decoder_attention": "decoder_attentions",
    "cross_attention": "cross_attentions",
}


class BertVizArguments(TypedDict, total=False):
    """Arguments of BertViz's `head_view` and `model_view` that a trace stands for here.

    Attributes:
        attention: Self-attention, an array for each layer.
        tokens: The tokens of the text.
        sentence_b_start: Index of the first token of the second sentence.
        prettify_tokens: Whether the marks of spaces in tokens are shown as spaces; default True.
        encoder_attention: Self-attention of an encoder.
        decoder_attention: Self-attention of a decoder.
        cross_attention: Attention of a decoder to its source.
        encoder_tokens: The tokens of the source.
        decoder_tokens: The tokens of the target.
        display_mode: "dark" or "light": the theme.
        include_heads: Heads that travel with the page; default all.
        html_action: "view" or "return"; a page is returned, which shows itself in a notebook.
    """

    attention: Any
    tokens: Sequence[str]
    sentence_b_start: int | None
    prettify_tokens: bool
    encoder_attention: Any
    decoder_attention: Any
    cross_attention: Any
    encoder_tokens: Sequence[str]
    decoder_tokens: Sequence[str]
    display_mode: Literal["dark", "light"]
    include_heads: Sequence[int]
    html_action: Literal["view", "return"]


# What follows the first argument: of a trace, and of each function of BertViz.
_OF_TRACE = ("layer", "heads", "include_layers", "sequence")
_FIRST = ("tokens", "sentence_b_start", "prettify_tokens")
_ATTENTION = ("encoder_attention", "decoder_attention", "cross_attention")
_SIDES = (*_ATTENTION, "encoder_tokens", "decoder_tokens", "include_layers")
_HEAD_VIEW = (*_FIRST, "layer", "heads", *_SIDES, "html_action")
_MODEL_VIEW = (*_FIRST, "display_mode", *_SIDES, "include_heads", "html_action")
SHOW = ("model_type", "tokenizer", "sentence_a", "sentence_b", "display_mode", "layer", "head")
"""Arguments after the model in BertViz's `neuron_view.show`."""


def requested(
    view: str, trace: Any, positional: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Trace, dict[str, Any]]:
    """The trace of a view, from weights or from a model, and the arguments of its page."""
    shows = view == "neuron_view" and hasattr(trace, "trace")
    if isinstance(trace, Trace):
        order = _OF_TRACE
    else:
        order = SHOW if shows else _MODEL_VIEW if view == "model_view" else _HEAD_VIEW
    if len(positional) > len(order):
        raise InputError(
            f"{view} takes {len(order)} arguments after the first, received {len(positional)}.\n"
            f"Their order is {', '.join(order)}; name the others."
        )
    given = dict(zip(order, positional, strict=False))
    if twice := sorted(given.keys() & named.keys()):
        raise InputError(f"{view} received {twice[0]} twice: by its place, and by its name.")
    request = given | dict(named)
    if shows:
        trace, request = _traced(trace, request)
    known = {n: request.pop(n) for n in BertVizArguments.__annotations__ if n in request}
    mode, heads = known.pop("display_mode", None), known.pop("include_heads", None)
    if mode is not None:
        request.setdefault("theme", mode)
    arrays: Any = {name: value for name, value in known.items() if value is not None}
    found = given_trace(view, trace, **arrays)
    return found if heads is None else _with_heads(found, heads), request


def _with_heads(trace: Trace, heads: Sequence[int]) -> Trace:
    """The trace with some heads of every side."""
    records = {side: getattr(trace, side) for side in SIDES}
    kept = {side: each.with_heads(heads) for side, each in records.items() if each is not None}
    return dataclasses.replace(trace, **kept)


def _traced(model: Any, request: dict[str, Any]) -> tuple[Trace, dict[str, Any]]:
    """Trace of the sentences of BertViz's `neuron_view.show`."""
    rest = {n: v for n, v in request.items() if n not in SHOW or n in ("layer", "display_mode")}
    if (head := request.get("head")) is not None:
        rest["heads"] = [head]
    texts = [request.get(name) for name in ("sentence_a", "sentence_b")]
    if texts[0] is None:
        raise InputError(
            "neuron_view received a model without a sentence.\n"
            "Pass it: neuron_view(model, model_type, tokenizer, sentence_a)."
        )
    everything = Capture(weights=True, query=True, key=True, value=True)
    return model.trace(*(each for each in texts if each), capture=everything), rest


def given_trace(view: str, trace: Any, **given: Unpack[BertVizArguments]) -> Trace:
    """Return the trace of a view, or make one of the weights and tokens that were given instead."""
    _check_action(view, given.get("html_action", "view"))
    named = {name: given.get(name) for name in _NAMES if given.get(name) is not None}
    tokens = given.get("tokens", given.get("encoder_tokens"))
    if isinstance(trace, Trace):
        if named or tokens is not None or given.get("sentence_b_start") is not None:
            raise InputError(
                f"{view} received a trace, and weights or tokens beside it.\n"
                "A trace holds both: leave the others out."
            )
        return trace
    if trace is not None:
        named["attention"] = trace
    if tokens is None and given.get("decoder_tokens") is None:
        layers = named.get("attention")
        if not isinstance(layers, list | tuple):
            check_type(trace, Trace, view, "trace")
        _layers(view, "attention", layers)
        raise InputError(
            f"{view} received attention weights without tokens.\n"
            f"Pass the tokens too: {view}(attention, tokens)."
        )
    if not named:
        check_type(trace, Trace, view, "trace")
    return _trace(view, named, tokens, given)


def _trace(view: str, named: dict[str, Any], tokens: Any, given: BertVizArguments) -> Trace:
    outputs = named.get("attention")
    returned = isinstance(outputs, Mapping) or hasattr(outputs, "attentions")  # by a model
    if set(named) != {"attention"} or not (returned or hasattr(outputs, "encoder_attentions")):
        outputs = {_NAMES[name]: _layers(view, name, value) for name, value in named.items()}
    pretty = given.get("prettify_tokens", True)
    source = _tokens(view, "tokens", tokens, pretty)
    target = _tokens(view, "decoder_tokens", given.get("decoder_tokens"), pretty)
    fields: dict[str, Any] = {}
    if (start := given.get("sentence_b_start")) is not None:
        if not isinstance(start, int) or not 0 < start < len(source):
            raise InputError(
                f"{view} cannot use sentence_b_start={start!r}.\n"
                f"Expected the index of one of {len(source)} tokens, above 0."
            )
        fields["segments"] = (np.arange(len(source)) >= start).astype(np.int32)[None]
    if "decoder_attention" in named and "cross_attention" not in named and not source:
        layers = _layers(view, "decoder_attention", named["decoder_attention"])
        outputs, source, target = {"attentions": layers}, target, []
        fields["side"] = "decoder"
    return from_huggingface(outputs, source, target, **fields)


def _layers(view: str, name: str, value: Any) -> list[Any]:
    """The arrays of the layers."""
    layers = list(value) if isinstance(value, list | tuple) or np.ndim(value) == 5 else []
    if isinstance(value, list | tuple) and all(layer is None for layer in layers):
        raise InputError(
            f"{view}: this {name} is {_what(value)} without an array: the model returned none.\n"
            'Load the model with attn_implementation="eager" and call it with '
            "output_attentions=True."
        )
    if not layers or not all(hasattr(layer, "ndim") for layer in layers):
        raise InputError(
            f"{view} cannot use this {name}.\n"
            f"Expected an array [1, H, Q, K] for each layer, received {_what(value)}.\n"
            "Call the model with output_attentions=True and pass its attentions."
        )
    return layers


def _what(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"one array of shape {tuple(shape)}"


def _tokens(view: str, name: str, tokens: Any, pretty: bool) -> list[str]:
    """The tokens of one text; the marks of spaces as spaces."""
    if tokens is None:
        return []
    row = [] if isinstance(tokens, str) else list(tokens) if np.iterable(tokens) else []
    row = list(row[0]) if len(row) == 1 and not isinstance(row[0], str) else row
    if not row or not all(isinstance(token, str) for token in row):
        raise InputError(
            f"{view} cannot use these {name}.\n"
            f"Expected a list of strings, received {type(tokens).__name__}.\n"
            "Pass tokenizer.convert_ids_to_tokens(ids)."
        )
    marks = (("Ġ", " "), ("▁", " "), ("</w>", ""))
    for mark, shown in marks if pretty else ():
        row = [token.replace(mark, shown) for token in row]
    return [str(token) for token in row]


def _check_action(view: str, action: Any) -> None:
    if action not in ("view", "return"):
        raise InputError(
            f"{view} cannot use html_action={action!r}.\n"
            "Expected 'view' or 'return'; a page is returned either way."
        )
