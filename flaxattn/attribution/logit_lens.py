# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Logits read off the residual stream: the logit lens, and direct contributions to a logit.

The logit lens (nostalgebraist 2020, "interpreting GPT: the logit lens") reads the hidden state
after each layer as if it were the last. The state takes the place of the last layer's output, and
the model itself does the rest: final norm, head, unembedding and soft cap.

The logit of a token is linear in the last residual stream, once the final norm is taken at the
scale that it has there, and the residual stream is the sum of what the layers add to it (Elhage et
al. 2021, "A Mathematical Framework for Transformer Circuits"). `logit_contributions` names the
share of each head, each feed-forward layer and the embeddings. A contribution is direct: what a
head does by way of later layers is theirs.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import traverse_util
from jaxtyping import Array, Bool, Float, Int

from flaxattn.attribution.head_circuits import norm_of
from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import NOTHING, Capture
from flaxattn.models.layer_stack import Stack
from flaxattn.models.seq2seq_config import RnnConfig
from flaxattn.pretrained.head_projections import (
    layer_parameters,
    output_projections,
    parameters_below,
)
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.model_types import MASKED_LM
from flaxattn.pretrained.nonfinite_error import refusal
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.pretrained.pretrained_model import Pretrained, tokens_of
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.pretrained.token_probabilities import next_targets, ranked
from flaxattn.text.text_lists import text_list
from flaxattn.trace.token_predictions import LogitLens, Predictions
from flaxattn.trace.trace import Trace


class _Ranked(NamedTuple):
    """Predictions of the N states of a text."""

    best: Int[np.ndarray, "N T k"]
    targets: Int[np.ndarray, "N T"]
    likeliest: Float[np.ndarray, "N T k"]
    own: Float[np.ndarray, "N T"]
    rank: Int[np.ndarray, "N T"]


@check_arguments()
def logit_lens(
    model: Pretrained,
    text: str | Sequence[str],
    target: str | Sequence[str] | None = None,
    *,
    k: int = 5,
    truncate: bool = False,
    allow_nonfinite: bool = False,
) -> LogitLens | list[LogitLens]:
    """Predict tokens from the hidden state after each layer (nostalgebraist 2020).

    The true tokens of a decoder are those that follow; an encoder-decoder is read at its decoder. A
    masked language model predicts the token of each position, which it sees unless it is a mask. In
    models that normalise sums (BERT, Marian), states are normalised already, by the norm of their
    own layer; in the others they go through the final norm.

    Costs a pass of the model for each text and L times its unembedding. The scores `[T, V]` of one
    state at a time exist on the device; (L + 1) T (2 k + 2) numbers of each text are kept.

    >>> import flaxattn as fa
    >>> lens = fa.logit_lens(fa.from_pretrained("tiny-gpt2"), "The old man and the sea", k=3)
    >>> len(lens.alternatives)  # states: the embeddings and the output of each of 4 layers
    5

    Args:
        model: A language model: decoder, encoder-decoder, or encoder with a masked-LM head.
        text: A text, or several.
        target: Translation of each source, for an encoder-decoder; default what the model
            writes. Of an encoder, the second text of each pair.
        k: Number of likeliest tokens.
        truncate: Whether a text over the model's limit is cut; otherwise it is an error.
        allow_nonfinite: Whether probabilities may be NaN; otherwise it is an error.

    Returns:
        The predictions of one text, or a list of them. Those of the last state are the model's own.

    Raises:
        InputError: If the model predicts no tokens or has no layers of attention, there are no k
            tokens, a text cannot be read, or scores are NaN.
    """
    texts, targets = (None if t is None else text_list(t) for t in (text, target))
    assert texts is not None
    options = {"k": k, "truncate": truncate, "allow_nonfinite": allow_nonfinite}
    found = list(iterate_lenses(model, texts, targets, **options))
    return found[0] if isinstance(text, str) else found


def iterate_lenses(
    model: Pretrained,
    texts: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    k: int = 5,
    truncate: bool = False,
    allow_nonfinite: bool = False,
) -> Iterator[LogitLens]:
    """The predictions of one text after another; arguments and errors as for `logit_lens`."""
    _check(model, k)
    second = None if targets is None else list(targets)
    reading = model.read(list(texts), second, truncate=truncate)
    rows = reading.rows()
    if isinstance(model, PretrainedSeq2Seq) and second is None:
        decoding = model.decoding(reading.lengths[0], 1, {})
        rows = (model.with_targets([row], row.padded(model.limit), decoding)[0] for row in rows)
    for number, row in enumerate(rows):
        yield _of_text(model, row, k, number, allow_nonfinite)


def _check(model: Pretrained, k: int) -> None:
    kind = model.config.architectures[0]
    if not model.writes and not isinstance(model.module, MASKED_LM):
        raise InputError(
            f"{model.name!r} is a {kind}, which predicts no tokens.\n"
            "A logit lens reads hidden states as a language model does.\n"
            'Name a language model, or load an encoder with head="ForMaskedLM".'
        )
    if isinstance(model.config, RnnConfig):
        raise InputError(
            f"{model.name!r} is a {kind}, whose decoder is recurrent and has no layers to look "
            "into.\nName a Transformer."
        )
    size = model.target_size
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= size:
        raise InputError(
            f"k: expected a whole number from 1 to {size}, the size of the vocabulary, received "
            f"{k!r}.\nLeave it out for 5."
        )


def _of_text(
    model: Pretrained, reading: TokenizedTexts, k: int, number: int, allow_nonfinite: bool
) -> LogitLens:
    """Predictions of a text, which is called by its number in messages."""
    name = "decoder_input_ids" if "decoder_input_ids" in reading.given else "input_ids"
    targets, follows = next_targets(reading) if model.writes else _own_tokens(model, reading)
    found = _run_lens(model, reading, targets, follows, k)
    finite = np.isfinite(found.own).all(-1)
    if not finite.all() and not allow_nonfinite:
        state = int(np.argmin(finite))
        where = f"behind layer {state - 1}" if state else "of the embeddings"
        problem = f"the scores {where} of text {number} are NaN or infinite"
        raise refusal(model.name, model.params, problem)
    reader = model.target_reader
    own = found.targets[-1]
    return LogitLens(
        tokens=tokens_of(reader, reading.given[name])[0],
        targets=tokens_of(reader, own[None])[0],
        alternatives=[tokens_of(reader, state) for state in found.best],
        follows=follows[0],
        target_ids=own,
        best_ids=found.best,
        likeliest=found.likeliest,
        log_probability=found.own,
        rank=found.rank,
        model=model.name,
    )


def _own_tokens(
    model: Pretrained, reading: TokenizedTexts
) -> tuple[Int[np.ndarray, "B T"], Bool[np.ndarray, "B T"]]:
    """Tokens that stand at each position, and where they are words of the text."""
    ids, special = reading.given["input_ids"], reading.metadata.special
    hidden = ids == getattr(model.tokenizer, "mask_id", None)
    return ids, ~(hidden | np.asarray(special, bool)) & (reading.given["attention_mask"] != 0)


@functools.partial(jax.jit, static_argnames=("module", "stack", "count"))
def _scored(
    module: nn.Module,
    params: Any,
    given: dict[str, Any],
    targets: Int[Array, "B T"],
    follows: Bool[Array, "B T"],
    stack: str,
    count: int,
) -> tuple[Array, ...]:
    """Predictions of each state, `[N, B, T, …]`; those of the last are of the pass itself."""
    collected: list[Array] = []

    def keep(call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext) -> Any:
        out = call(*args, **kwargs)
        if _is_stack(context, stack):
            collected.append(jnp.concatenate([args[0][None], out[1][:-1]]))
        return out

    with nn.intercept_methods(keep):
        last = ranked(_logits(module.apply({"params": params}, **given)), targets, follows, count)
    (states,) = collected
    everywhere = jnp.ones_like(follows)

    def of_state(x: Float[Array, "B T E"]) -> tuple[Array, ...]:
        def replace(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
            return (x, None) if _is_stack(context, stack) else call(*args, **kwargs)

        with nn.intercept_methods(replace):
            out = module.clone(keep_hidden=False).apply({"params": params}, **given)
        return ranked(_logits(out), last[1], everywhere, count)

    earlier = jax.lax.map(of_state, states)
    return tuple(jnp.concatenate([a, b[None]]) for a, b in zip(earlier, last, strict=True))


def _is_stack(context: nn.module.InterceptorContext, name: str) -> bool:
    """Return whether a call is that of the stack whose states are read."""
    module, method = context.module, context.method_name
    return isinstance(module, Stack) and module.name == name and method == "__call__"


def _logits(out: Any) -> Float[Array, "B T V"]:
    """Scores over the vocabulary, of either name."""
    return out.prediction_logits if out.logits is None else out.logits


@check_arguments()
def logit_contributions(model: Pretrained, trace: Trace) -> Trace:
    """The trace with what each head adds to the logit of each position's target, directly.

    The parts add up to the logit, before a cap where the model has one: a head's output through its
    rows of the output projection, through the norms at the scale they have there, times the
    target's row of the output embedding. The contribution of a feed-forward layer is the rest of
    what its layer adds to the residual stream.

    Costs one pass of the model, which keeps the output of every head and layer,
    L·B·T·(H·D + E) numbers, while it runs. B·T·(L·H + L + 2) numbers are kept.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> trace = fa.logit_contributions(model, model.trace("The old man", predictions=5))
    >>> trace.predictions.heads.shape  # [B, T, L, H], in units of the logit
    (1, 3, 4, 6)

    Args:
        model: The GPT-2 or the decoder of another family that made the trace.
        trace: With predictions: `model.trace(text, predictions=5)`.

    Returns:
        A copy whose `predictions` have `heads`, `feed_forward`, `embedding` and `bias`.

    Raises:
        InputError: If the model is not a decoder that scores next tokens, or the trace has no
            predictions, or those of another model.
    """
    decoder, found = _checked(model, trace)
    mask = np.ones(found.ids.shape, bool) if trace.mask is None else np.asarray(trace.mask)
    given = {"input_ids": np.where(mask, found.ids, 0), "attention_mask": mask.astype(np.int32)}
    module = model.module.clone(capture=Capture(head_output=True), keep_hidden=True)
    embedded, after, variables = _run_with_stream(module, model.params, given)
    outputs = Trace.from_variables(variables).sides["decoder"].head_output
    stream = [np.asarray(x, np.float64) for x in (embedded, *after)]
    parts = _parts(decoder, found.targets, stream, np.asarray(outputs, np.float64))
    return dataclasses.replace(trace, predictions=dataclasses.replace(found, **parts))


def _checked(model: Pretrained, trace: Trace) -> tuple[PretrainedDecoder, Predictions]:
    """The model as a decoder, and the predictions that it made."""
    if not isinstance(model, PretrainedDecoder) or not model.writes:
        raise InputError(
            f"Contributions to logits are those of a decoder that scores next tokens; "
            f"{model.name!r} is a {model.config.architectures[0]}.\nName a GPT-2 or a Llama."
        )
    found = trace.predictions
    if found is None:
        raise InputError(
            "This trace holds no predictions, so there is no logit to take apart.\n"
            "Ask for them: model.trace(text, predictions=5)."
        )
    largest = max(found.ids.max(), found.targets.max())
    if trace.model != model.name or largest >= model.config.vocab_size:
        raise InputError(
            f"The trace is of the model {trace.model!r}; this one is {model.name!r}.\n"
            "Take the model that made the trace."
        )
    return model, found


@functools.partial(jax.jit, static_argnames=("module",))
def _run_with_stream(module: nn.Module, params: Any, given: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Embeddings, the residual stream after each layer, and what was recorded."""
    out, state = module.apply(
        {"params": params},
        **given,
        mutable=["intermediates"],
        capture_intermediates=lambda part, name: isinstance(part, Stack) and name == "__call__",
    )
    flat: Any = traverse_util.flatten_dict(state["intermediates"], sep="/")
    ((_, after),) = flat.pop("model/decoder/__call__")
    return out.hidden_states[0], after, traverse_util.unflatten_dict(flat, sep="/")


def _parts(
    model: PretrainedDecoder,
    targets: Int[np.ndarray, "B T"],
    stream: list[Float[np.ndarray, "B T E"]],
    outputs: Float[np.ndarray, "L B T H D"],
) -> dict[str, np.ndarray]:
    """Contributions by name."""
    final = norm_of(model.config, model.params["model"]["norm"])
    unembedded = _unembedding(model, targets)
    direction = final.pulled_back(unembedded, stream[-1])
    bias = unembedded @ final.bias
    projections = output_projections(model)["decoder"].astype(np.float64)
    layers = layer_parameters(model)["decoder"]
    heads, fed = [], []
    for layer, output in enumerate(outputs):
        own, added, constant = direction, layers[layer].get("attention/output/bias"), 0.0
        if after := parameters_below(layers[layer], "attention_post_norm"):
            attended = np.einsum("bthd,hde->bte", output, projections[layer])
            attended = attended if added is None else attended + added
            norm = norm_of(model.config, after)
            own, constant = norm.pulled_back(direction, attended), direction @ norm.bias
        rows = np.einsum("bte,hde->bthd", own, projections[layer])
        heads.append((rows * output).sum(-1))
        own_bias = constant + (0.0 if added is None else own @ added)
        change = ((stream[layer + 1] - stream[layer]) * direction).sum(-1)
        fed.append(change - heads[-1].sum(-1) - own_bias)
        bias = bias + own_bias
    return {
        "heads": np.stack(heads, axis=2).astype(np.float32),
        "feed_forward": np.stack(fed, axis=2).astype(np.float32),
        "embedding": (stream[0] * direction).sum(-1).astype(np.float32),
        "bias": np.asarray(bias, np.float32),
    }


def _unembedding(
    model: PretrainedDecoder, targets: Int[np.ndarray, "B T"]
) -> Float[np.ndarray, "B T E"]:
    """Rows of the output embedding."""
    if model.config.tie_word_embeddings:
        rows = np.asarray(model.params["model"]["words"]["embedding"][targets])
    else:
        rows = np.moveaxis(np.asarray(model.params["output"][:, targets]), 0, -1)
    return rows.astype(np.float64)


def _run_lens(
    model: Pretrained,
    reading: TokenizedTexts,
    targets: Int[np.ndarray, "B T"],
    follows: Bool[np.ndarray, "B T"],
    k: int,
) -> _Ranked:
    given = reading.padded(model.limit)
    stack = "decoder" if model.writes else "encoder"
    length = targets.shape[1]
    padded = given["decoder_input_ids" if "decoder_input_ids" in given else "input_ids"].shape[1]
    room = ((0, 0), (0, padded - length))
    module = model.module.clone(capture=NOTHING, keep_hidden=True)
    wanted = (np.pad(array, room) for array in (targets, follows))
    states = _scored(module, model.params, given, *wanted, stack, k)
    return _Ranked(*(np.asarray(array)[:, 0, :length] for array in states))
