# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The public functions that make the page of a trace, each opened at another level.

One takes a second trace, and each also takes BertViz's arguments: weights and tokens in place of a
trace, weights as arrays of torch, NumPy or JAX, one of shape [1, H, Q, K] for each layer.
`trace_page.py` makes the page. Nothing here ever imports a model.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from flaxattn.errors import InputError, check_arguments, check_keywords, check_type, keywords_of
from flaxattn.kernels.contract import Capture
from flaxattn.measures.divergence import compare_traces
from flaxattn.store.open_store import Store
from flaxattn.trace.other_libraries import from_huggingface
from flaxattn.trace.record import SIDES
from flaxattn.trace.trace import Trace
from flaxattn.views.page import Page
from flaxattn.views.payloads.neuron_payload import require_neuron
from flaxattn.views.payloads.page_encoding import Precision, check_state
from flaxattn.views.payloads.report_payload import GivenPairs
from flaxattn.views.payloads.side_payload import ALL
from flaxattn.views.payloads.weight_payload import Effects, Given
from flaxattn.views.store_pages import open_corpora, open_corpus
from flaxattn.views.trace_page import Second, Theme, check_names, open_page, without_vectors


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


_BERTVIZ = tuple(BertVizArguments.__annotations__)


@check_arguments(0, _BERTVIZ)
def head_view(
    trace: Any = None,
    *positional: Any,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    include_layers: Sequence[int] | None = None,
    sequence: int | Sequence[int] | None = None,
    side: str | None = None,
    precision: Precision | None = None,
    theme: Theme | None = None,
    state: Mapping[str, Any] | str | None = None,
    weights: Given | None = None,
    effects: Effects | Sequence[Effects] | None = None,
    pairs: GivenPairs | None = None,
    **arrays: Unpack[BertVizArguments],
) -> Page:
    """Draw the attention heads of a layer as a page to explore: tokens, and lines between them.

    Every layer that is included travels with the page, and every level that the trace has numbers
    for; layer, heads, sentence pair, opacity and much else are chosen in the browser (`?` lists it
    all). Padding is cut away.

    Where a trace has cross-attention, the page holds all its sides, each with layers and heads of
    its own. `cross` stands beside what the decoder wrote; `all` is the joined square of
    Tensor2Tensor, source and target together on the left and on the right.

    Where a trace has predictions, as of `model.trace(text, predictions=5)`, the page says which
    tokens were likeliest after each one, and after `fa.logit_contributions` what heads add to their
    logits.

    The call of BertViz draws the same page: `head_view(attention, tokens, sentence_b_start)`, with
    an array `[1, H, Q, K]` for each layer, and its other arguments by name or in its order.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.", "It found no food.")
    >>> page = fa.head_view(trace, layer=1, heads=[2])
    >>> page.save("attention.html").name
    'attention.html'

    Args:
        trace: With weights `[L, B, H, Q, K]`, of a model or from `Trace.from_arrays`; or the
            weights of BertViz's call.
        *positional: After a trace `layer`, `heads`, `include_layers` and `sequence`; after weights
            the arguments of BertViz's `head_view` in their order.
        layer: Layer that shows at first, by its number in the model. Where neither layer nor heads
            nor a pinned token is requested, the page opens with the head whose strongest weights on
            ordinary tokens are largest, and with one token of it; with `heads` alone, at the first
            layer, of `cross` at the last but one, as in `flaxattn.measures.word_alignment`.
        heads: Heads that are on at first, by their numbers; default all, see `layer`.
        include_layers: Layers that travel with the page; default all of the trace.
        sequence: Number of the sequence in the batch, or several; default all, the first being
            shown. The page searches them.
        side: What shows at first: `encoder`, `decoder`, `cross` or `all`; default `cross` where
            there is any.
        precision: Encoding of weights: `uint11` (error at most 0.00025 of the row's largest
            weight), `uint8` (half the size, error at most 0.002 of it) or `float16` (error at most
            0.00025). None takes uint11 up to 8 MB, else uint8.
        theme: `auto` follows the reader's system; it can be changed in the page.
        state: The state of a page, as its button with braces gives it in JSON, or part of one. The
            page opens as that one looked; the arguments above come before it. `sequence` in it
            counts the sequences that travel.
        weights: What can be shown in place of attention, by name: what `fa.contributions` returns,
            or arrays of your own, `[L, B, H, Q, K]` as the trace's weights, `[L, B, Q, K]` where
            heads share a map, in a list one array for each text without its padding, or any of
            these by side. Known names are `norm`, `rollout`, `effective` and `gradient`. Rows that
            sum to one are shown as they are; other values as shares of the largest of their layer,
            which the page says, and negative ones in a colour of their own.
        effects: What `fa.ablate` or `fa.head_importance` returned, or several of them: numbers of
            the atlas.
        pairs: Gold pairs by name, drawn beside the attention of the head level, those that a head
            hits apart from those that it misses: `{"subject": [(3, 1), (5, 4)]}`, each of a query
            and a key by their positions without padding. Several keys of one query are
            alternatives; the head hits them if its strongest key is one of them. Of several texts,
            a list of pairs for each; by side, a mapping such as `{"subject": {"cross": [(3, 1)]}}`,
            otherwise those of the side that shows at first. The first name is drawn at first;
            `gold` in a state is another one, or `none`.
        **arrays: BertViz's `attention`, `tokens`, `sentence_b_start` and its like in place of a
            trace, see `BertVizArguments`.

    Returns:
        The page: `.save("page.html")`, or leave it as the last line of a notebook cell.

    Raises:
        InputError: If the trace holds no weights or a window of them, there is no such side, layer,
            head, sequence, token, pair or kind of weights, given arrays do not fit, or the page
            would be too large for a browser.
    """
    request = {
        "layer": layer,
        "heads": heads,
        "include_layers": include_layers,
        "sequence": sequence,
        "side": side,
        "precision": precision,
        "theme": theme,
        "state": state,
        "weights": weights,
        "effects": effects,
        "pairs": pairs,
    }
    given = {name: value for name, value in request.items() if value is not None}
    trace, request = requested("head_view", trace, positional, given | {**arrays})
    return open_page(trace, None, **request)


_REQUEST = tuple(name for name in keywords_of(head_view) if name != "trace")


@check_arguments(0, (*_REQUEST, *_BERTVIZ))
def model_view(trace: Any = None, *positional: Any, **request: Any) -> Page:
    """Draw all heads of all layers as small pictures: the page of `head_view`, opened there.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> fa.model_view(trace).save("model.html").name
    'model.html'

    Args:
        trace: With weights `[L, B, H, Q, K]`, or the weights of BertViz's call.
        *positional: As of `head_view`; after weights those of BertViz's `model_view`.
        **request: The other arguments of `head_view`, and BertViz's `display_mode` and
            `include_heads`.

    Returns:
        The page.

    Raises:
        InputError: As `head_view` does.
    """
    trace, request = requested("model_view", trace, positional, request)
    return open_page(trace, "model", **request)


@check_arguments(0, (*_REQUEST, *_BERTVIZ))
def text_view(trace: Any = None, *positional: Any, **request: Any) -> Page:
    """Draw text shaded by the attention of one token: the page of `head_view`, opened there.

    The text is the one that was read, in its own script and spelling, where the trace has spans;
    else it is put together from the tokens.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> fa.text_view(trace).save("text.html").name
    'text.html'

    Args:
        trace: With weights `[L, B, H, Q, K]`, or the weights of BertViz's call.
        *positional: As of `head_view`.
        **request: The other arguments of `head_view`.

    Returns:
        The page.

    Raises:
        InputError: As `head_view` does.
    """
    trace, request = requested("text_view", trace, positional, request)
    return open_page(trace, "text", **request)


SHOW = ("model_type", "tokenizer", "sentence_a", "sentence_b", "display_mode", "layer", "head")
"""Arguments after the model in BertViz's `neuron_view.show`."""


@check_arguments(0, (*_REQUEST, *_BERTVIZ, *SHOW))
def neuron_view(trace: Any = None, *positional: Any, **request: Any) -> Page:
    """Draw how a query of a head comes to its weights: the page of `head_view`, opened there.

    Query and key by dimension, their products, q·k, what makes a score of it, softmax, and values.

    >>> import flaxattn as fa
    >>> request = fa.Capture(weights=True, query=True, key=True, value=True)
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.", capture=request)
    >>> fa.neuron_view(trace, layer=1, heads=[2]).save("neuron.html").name
    'neuron.html'

    Args:
        trace: With weights, queries and keys, and values where these are to be shown; or a model
            of `fa.from_pretrained` in the call of BertViz's `show`.
        *positional: As of `head_view`; after a model those of BertViz's `show`: the type of the
            model and its tokenizer, which the model has itself, and one sentence or two.
        **request: The other arguments of `head_view`, and those of BertViz's `show`.

    Returns:
        The page.

    Raises:
        InputError: As `head_view` does, or if the trace holds no queries or no keys.
    """
    trace, request = requested("neuron_view", trace, positional, request)
    require_neuron(trace)
    return open_page(trace, "neuron", **request)


@check_arguments(1, _REQUEST)
def atlas_view(trace: Trace | Store, **request: Any) -> Page:
    """Draw a map of all heads, layer by layer, coloured by a number: the page opened there.

    The numbers are those of `flaxattn.measures.head_measures`, and the means over queries of
    statistics that the trace holds. Heads can be sorted by them, and put side by side with those
    like them, by Jensen-Shannon distance (`flaxattn.measures.head_similarity`).

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> fa.atlas_view(trace).save("atlas.html").name
    'atlas.html'

    Args:
        trace: With weights `[L, B, H, Q, K]`, or with statistics `[L, B, H, Q]` only; then the page
            has no other level. Of a store, the page shows means over its texts, and nothing else.
        **request: The other arguments of `head_view`; of a store `layer`, `heads`, `side`, `theme`,
            `state` and `watch`, which receives the finished share of the work, from 0 to 1.

    Returns:
        The page.

    Raises:
        InputError: As `head_view` does, or if a store holds no statistics.
        StoreError: If a store is damaged.
    """
    if isinstance(trace, Store):
        check_keywords("atlas_view", request, keywords_of(open_corpus)[1:])
        return open_corpus(trace, **request)
    return open_page(trace, "atlas", **request)


@check_arguments(2, (*_REQUEST, "texts"))
def compare_view(
    first: Trace | Store,
    second: Trace | Store,
    names: Sequence[str] = ("A", "B"),
    *,
    state: Mapping[str, Any] | str | None = None,
    **request: Any,
) -> Page:
    """Draw two traces, or two stores, of the same texts and their difference.

    The page opens at the atlas, the heads that differ most first, by Jensen-Shannon divergence (a
    mean over the queries of a text, `flaxattn.measures.divergence`). A switch shows the first
    trace, the second, or the second less the first: more is blue, less is orange; the head level
    shows all three side by side, with one panel of numbers. A change of a head is claimed only
    where its interval over the texts supports it, by a rule that the page states
    (`flaxattn.measures.compare_heads`). It has no neurons. Heads with weights that are NaN cannot
    be compared, which the page says. The page of two stores, such as before and after training, is
    an atlas: divergence, cosine, and the means of statistics that both hold.

    >>> import numpy as np
    >>> import flaxattn as fa
    >>> first = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> uniform = np.full(first.encoder.weights.shape, 1 / 8, np.float32)
    >>> second = fa.Trace.from_arrays(weights=uniform, tokens=first.tokens)
    >>> fa.compare_view(first, second, names=("tiny-bert", "uniform")).save("compare.html").name
    'compare.html'

    Args:
        first: With weights `[L, B, H, Q, K]`.
        second: With weights of the same texts, cut into the same tokens, and the same heads; layers
            that only one of the two has are left out. A store if the first is one.
        names: What the two are called on the switch.
        state: As of `head_view`; `compare` in it is `a`, `b`, `difference` or `together`.
        **request: The other arguments of `head_view`, but for `weights` and `effects`; `pairs` are
            judged in each trace by its own weights. Of stores `layer`, `heads`, `side`, `theme`,
            and `texts`, the numbers of those to compare.

    Returns:
        The page, about twice as large as that of one trace.

    Raises:
        InputError: As `head_view` does, or if tokens or heads differ, or the two names are one.
        StoreError: If a store is damaged.
    """
    if given := [name for name in ("weights", "effects") if request.get(name) is not None]:
        raise InputError(
            f"A page of two traces shows attention; {given[0]} are of one.\n"
            "Make a page of each: fa.head_view(first, weights=…)."
        )
    called = check_names(names)
    if isinstance(first, Store) and isinstance(second, Store):
        check_keywords("compare_view", request, keywords_of(open_corpora)[2:])
        return open_corpora(first, second, called, state=state, **request)
    check_keywords("compare_view", request, _REQUEST)
    side = request.get("side")
    ranked = compare_traces(first, second, side=None if side == ALL else side)
    included = request.get("include_layers")
    ranked = [row for row in ranked if included is None or row.layer in included]
    usual: dict[str, Any] = {"level": "atlas", "measure": "divergence", "order": "value"}
    if ranked and request.get("layer") is None:
        top = ranked[0]
        usual |= {"side": top.side, "layer": top.layer, "heads": [top.head]}
    assert isinstance(first, Trace)  # of one of each, nothing is compared
    assert isinstance(second, Trace)
    given = {"compare": "together"} | (usual if state is None else check_state(state))
    other = Second(without_vectors(second), called)
    return open_page(without_vectors(first), None, state=given, second=other, **request)


_NAMES = {
    "attention": "attentions",
    "encoder_attention": "encoder_attentions",
    "decoder_attention": "decoder_attentions",
    "cross_attention": "cross_attentions",
}

# What follows the first argument: of a trace, and of each function of BertViz.
_OF_TRACE = ("layer", "heads", "include_layers", "sequence")
_FIRST = ("tokens", "sentence_b_start", "prettify_tokens")
_ATTENTION = ("encoder_attention", "decoder_attention", "cross_attention")
_SIDES = (*_ATTENTION, "encoder_tokens", "decoder_tokens", "include_layers")
_HEAD_VIEW = (*_FIRST, "layer", "heads", *_SIDES, "html_action")
_MODEL_VIEW = (*_FIRST, "display_mode", *_SIDES, "include_heads", "html_action")


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
