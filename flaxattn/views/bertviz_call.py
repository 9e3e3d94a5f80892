# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The calls of BertViz: weights and tokens in place of a trace, under BertViz's argument names.

Weights are arrays of torch, NumPy or JAX, one of shape [1, H, Q, K] for each layer.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from flaxattn.errors import InputError, check_type
from flaxattn.trace.other_libraries import from_huggingface
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
    html_action: Literal["view", "return"]


def given_trace(view: str, trace: Any, **given: Unpack[BertVizArguments]) -> Trace:
    """Return the trace of a view, or make one of the weights and tokens that were given instead.

    Args:
        view: Name of the view.
        trace: A trace, or the attention of BertViz's call; None where it was named.
        **given: The arguments of BertViz.

    Raises:
        InputError: If there is neither a trace nor weights with tokens, or they do not fit.
    """
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
        if not isinstance(layers, list | tuple) or not layers:
            check_type(trace, Trace, view, "trace")
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
