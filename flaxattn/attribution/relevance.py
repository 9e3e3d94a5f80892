# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Relevance of tokens, heads and attention weights to a prediction.

`relevance` is AttnLRP (Achtibat et al. 2024, "AttnLRP: Attention-Aware Layer-Wise Relevance
Propagation for Transformers"); `chefer_relevance` the relevance maps of Chefer et al. 2021,
"Generic Attention-model Explainability". Both need one backward pass for each text.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from flaxattn.attribution import relevance_rules
from flaxattn.attribution.contribution_maps import Maps, TextMaps
from flaxattn.attribution.contributions import gradient_times_weights
from flaxattn.attribution.explained_predictions import Prediction, TokenScore, predictions
from flaxattn.attribution.generic_relevance import generic_relevance
from flaxattn.attribution.head_losses import head_task
from flaxattn.errors import check_arguments
from flaxattn.kernels.contract import Capture
from flaxattn.models.interventions import Intervention
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.pretrained.pretrained_model import Pretrained, see
from flaxattn.text.text_lists import text_list
from flaxattn.trace.selection import layer_weights
from flaxattn.trace.trace import Trace

_OUTPUTS = Capture(weights=True, value=True, head_output=True)
_NOT_OF_MODEL = ("labels", "targets", "chosen", "position", "target")
_HALF = 0.5  # of a head's relevance is that of its weights, half that of its values
Texts = str | Sequence[str]
Score = Callable[..., Float[Array, " B"]]


@dataclasses.dataclass(frozen=True)
class Relevance:
    """Relevance of a text to one prediction.

    The relevance of all inputs, `absorbed` included, adds up to `score`.

    Attributes:
        prediction: What is explained.
        score: Its logit.
        tokens: By side, of what the first layer reads at each position.
        heads: By side, of the output of each head.
        maps: By side, of the attention weights.
        absorbed: Relevance that reaches no input: of `biases`, and lost in `attention`.
    """

    prediction: Prediction
    score: float
    tokens: Mapping[str, Float[np.ndarray, " S"]]
    heads: Mapping[str, Float[np.ndarray, "L H"]]
    maps: Mapping[str, Float[np.ndarray, "L H Q K"]]
    absorbed: Mapping[str, float]


class Slopes(NamedTuple):
    """Gradients of a score of B texts.

    Attributes:
        score: The score of each.
        tokens: By side, input times gradient at each position.
        outputs: By side, the gradient with respect to what heads put out, where requested.
        params: With respect to parameters, where these were requested.
    """

    score: Float[Array, " B"]
    tokens: Mapping[str, Float[Array, "B S"]]
    outputs: Mapping[str, Float[Array, "L B Q H D"]]
    params: Any


@check_arguments()
def relevance(
    model: Pretrained,
    text: Texts,
    text_b: Texts | None = None,
    *,
    labels: Sequence[int] | None = None,
    seed: int = 0,
    watch: Watch = show_progress,
) -> list[Relevance]:
    """Relevance of tokens, heads and attention weights to predictions (Achtibat et al. 2024).

    Explained is the logit of what the model predicts, as `predictions` of
    `flaxattn.attribution.explained_predictions` chooses it. Relevance is conserved: what a layer's
    output has is what its input, its biases and its attention have; see `absorbed` of
    `flaxattn.attribution.relevance_rules`.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> (found,) = fa.relevance(model, "The captain saw the")
    >>> found.tokens["decoder"].shape, found.heads["decoder"].shape
    ((4,), (4, 6))
    >>> total = found.tokens["decoder"].sum() + sum(found.absorbed.values())
    >>> abs(float(total) - found.score) < 0.01
    True

    Args:
        model: With heads, a tokenizer, and a head that predicts a class or a token.
        text: A text, or B of them.
        text_b: The second text of each pair; of an encoder-decoder, the target.
        labels: Classes in place of those that a classifier predicts.
        seed: Of the token that is masked, for a masked language model.
        watch: Receives progress.

    Returns:
        One for each text, in units of the logit.

    Raises:
        InputError: For a model that predicts no class or token, or a text that cannot be used.
    """
    found = []
    second = None if text_b is None else text_list(text_b)
    for one in predictions(model, text_list(text), second, labels=labels, seed=seed):
        given, score = one.given(model.limit), TokenScore(model.module)
        trace = recorded(model.module, model.params, given)
        slopes = slopes_of(score, model.params, given, trace, rules=True, by_params=True)
        sizes = sizes_of(one.row.metadata)
        maps = weight_relevance(trace, slopes, sizes)
        absorbed = relevance_rules.absorbed(model.params, slopes.params)
        found.append(
            Relevance(
                prediction=one,
                score=float(slopes.score[0]),
                tokens=tokens_of(trace, slopes, sizes),
                heads={side: m.sum((-1, -2)) / _HALF for side, m in maps.items()},
                maps=maps,
                absorbed={name: float(value) for name, value in absorbed.items()},
            )
        )
        watch("relevance", 1)
    return found


@check_arguments()
def chefer_relevance(
    model: Pretrained,
    text: Texts,
    text_b: Texts | None = None,
    *,
    labels: Sequence[int] | None = None,
    seed: int = 0,
    watch: Watch = show_progress,
) -> Maps:
    """Relevance of tokens through all layers, from gradients of attention (Chefer et al. 2021).

    R <- R + mean over heads of (weights times their gradient)+ times R, from the identity; with
    cross-attention the published rules of encoder-decoders. The gradient is that of the negative
    loss of `fa.head_task`: of a masked model that of tokens which are masked.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> fa.chefer_relevance(model, "The cat is very sad.")["encoder"][0].shape  # [L, 1, Q, K]
    (4, 1, 8, 8)

    Args:
        model: As for `fa.attention_gradients`, like what follows.
        text: A text, or B of them.
        text_b: The second text of each pair; of an encoder-decoder, the target.
        labels: Number of the right class of each text, for a classifier.
        seed: Of the tokens that are masked.
        watch: Receives progress.

    Returns:
        By side, one array `[L, 1, Q, K]` for each text, R after each layer; nothing is negative.

    Raises:
        InputError: As `fa.head_task`.
    """
    found: Maps = {}
    for maps in iterate_chefer(model, text, text_b, labels=labels, seed=seed):
        for side, one in maps.items():
            found.setdefault(side, []).append(one)
        watch("chefer", 1)
    return found


def iterate_relevance(
    model: Pretrained,
    text: Texts,
    text_b: Texts | None = None,
    *,
    labels: Sequence[int] | None = None,
    truncate: bool = False,
    seed: int = 0,
) -> Iterator[TextMaps]:
    """Relevance of attention weights to the mean log-likelihood, one text after another."""
    options = {"labels": labels, "truncate": truncate, "seed": seed}
    for trace, slopes, sizes in slopes_of_losses(model, text, text_b, True, options):
        yield weight_relevance(trace, slopes, sizes, sign=-1)


def iterate_chefer(
    model: Pretrained,
    text: Texts,
    text_b: Texts | None = None,
    *,
    labels: Sequence[int] | None = None,
    truncate: bool = False,
    seed: int = 0,
) -> Iterator[TextMaps]:
    """Maps of `chefer_relevance`, one text after another; arguments as for `iterate_relevance`."""
    options = {"labels": labels, "truncate": truncate, "seed": seed}
    for trace, slopes, sizes in slopes_of_losses(model, text, text_b, False, options):
        yield generic_relevance(weight_gradients(trace, slopes, sizes, sign=-1))


def weight_relevance(
    trace: Trace, slopes: Slopes, sizes: Mapping[str, tuple[int, int]], sign: int = 1
) -> TextMaps:
    """Relevance of the attention weights of one text, by side."""
    maps = weight_gradients(trace, slopes, sizes, sign)
    return {side: _HALF * one for side, one in maps.items()}


def weight_gradients(
    trace: Trace, slopes: Slopes, sizes: Mapping[str, tuple[int, int]], sign: int = 1
) -> TextMaps:
    """Attention weights times their gradient, of one text, by side."""
    maps = {}
    for side, record in trace.sides.items():
        queries, keys = sizes[side]
        maps[side] = sign * gradient_times_weights(
            layer_weights(record, record.layers)[..., :queries, :keys],
            np.asarray(record.value)[:, 0, :keys],
            np.asarray(slopes.outputs[side])[:, 0, :queries],
        )
    return maps


def tokens_of(
    trace: Trace, slopes: Slopes, sizes: Mapping[str, tuple[int, int]]
) -> dict[str, Float[np.ndarray, " S"]]:
    """Input times gradient at each position of one text, by side."""
    sides = [side for side in trace.sides if side in slopes.tokens]
    return {side: np.asarray(slopes.tokens[side])[0, : sizes[side][0]] for side in sides}


def sizes_of(metadata: Trace) -> dict[str, tuple[int, int]]:
    """Real queries and keys of each side of one text."""
    source = len(metadata.tokens[0])
    target = len(metadata.decoder_tokens[0]) if metadata.decoder_tokens else source
    return {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}


def recorded(module: nn.Module, params: Any, given: Mapping[str, Any]) -> Trace:
    """Attention, values and outputs of heads of a batch."""
    inputs = {name: array for name, array in given.items() if name not in _NOT_OF_MODEL}
    module = module.clone(capture=_OUTPUTS, keep_hidden=False)
    return Trace.from_variables(see(module, params, inputs))


def slopes_of(
    score: Score,
    params: Any,
    given: Mapping[str, Any],
    trace: Trace | None,
    *,
    rules: bool = False,
    by_params: bool = False,
    scale: Float[np.ndarray, " B"] | None = None,
) -> Slopes:
    """Gradients of the scores of a batch, by one backward pass."""
    records = {} if trace is None else trace.sides
    zeros = {side: jnp.zeros(np.shape(one.head_output)) for side, one in records.items()}
    return _slopes(score, rules, by_params, params, dict(given), zeros, scale)


@functools.partial(jax.jit, static_argnames=("score", "rules", "by_params"))
def _slopes(
    score: Score,
    rules: bool,
    by_params: bool,
    params: Any,
    given: dict[str, Array],
    zeros: dict[str, Array],
    scale: Array | None,
) -> Slopes:
    own = given["input_ids"].shape
    shapes = {"encoder": own, "decoder": given.get("decoder_input_ids", given["input_ids"]).shape}
    probes = {side: jnp.zeros(shape, jnp.float32) for side, shape in shapes.items()}

    def total(probes: Any, zeros: Any, params: Any) -> tuple[Array, Array]:
        added = [
            Intervention("head_output", array, operation="add", side=side)
            for side, array in zeros.items()
        ]
        own_rules = relevance_rules.relevance_rules() if rules else contextlib.nullcontext()
        with relevance_rules.input_relevance(probes, scale), own_rules:
            scores = score(params, given, {}, added)
        return scores.sum(), scores

    chosen = (0, 1, 2) if by_params else (0, 1)
    gradients, scores = jax.grad(total, argnums=chosen, has_aux=True)(probes, zeros, params)
    return Slopes(scores, gradients[0], gradients[1], gradients[2] if by_params else None)


def slopes_of_losses(
    model: Pretrained, text: Texts, text_b: Texts | None, rules: bool, task_options: dict[str, Any]
) -> Iterator[tuple[Trace, Slopes, dict[str, tuple[int, int]]]]:
    """Attention of each text, the slopes of its loss, and its real sizes."""
    first, second = text_list(text), None if text_b is None else text_list(text_b)
    task = head_task(model, first, second, batch=1, **task_options)
    metadata = model.read(first, second, truncate=task_options["truncate"]).metadata
    for one, batch in zip(metadata, task.batches, strict=True):
        trace = recorded(model.module, task.params, batch.given)
        slopes = slopes_of(task.losses, task.params, batch.given, trace, rules=rules)
        yield trace, slopes, sizes_of(one)
