# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Direct contributions to a logit: each head's, each feed-forward layer's, the embeddings'.

The logit of a token is linear in the last residual stream, once the final norm is taken at the
scale that it has there, and the residual stream is the sum of what the layers add to it (Elhage et
al. 2021, "A Mathematical Framework for Transformer Circuits"). A contribution is direct: what a
head does by way of later layers is theirs.
"""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from flax import traverse_util
from jaxtyping import Float, Int

from flaxattn.attribution.circuit_weights import norm_of
from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import Capture
from flaxattn.models.layer_stack import Stack
from flaxattn.pretrained.head_projections import (
    layer_parameters,
    output_projections,
    parameters_below,
)
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.token_predictions import Predictions
from flaxattn.trace.trace import Trace


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
    embedded, after, variables = _run(module, model.params, given)
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
def _run(module: nn.Module, params: Any, given: dict[str, Any]) -> tuple[Any, Any, Any]:
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
