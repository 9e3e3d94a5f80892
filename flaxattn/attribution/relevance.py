# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Relevance of tokens, heads and attention weights to a prediction.

`predictions` chooses what is explained: one class or token of each text. `TokenScore` is the number
that is explained, with the arguments of the losses of `fa.head_task`.

`chefer_relevance` are the relevance maps of Chefer et al. (2021, "Generic Attention-model
Explainability for Interpreting Bi-Modal and Encoder-Decoder Transformers"). `relevance` is AttnLRP
(Achtibat et al. 2024): gradient times number, where the gradient is taken under rules of its own
and the output of a model stays the same, bit by bit. The rules come in by way of an interceptor of
Linen's module calls:

- a product of two inputs gives half to each: through attention half of the cotangent of values
  and a quarter of those of queries and keys, so any kernel is used as it is; half to each part of a
  gated feed-forward layer;
- softmax has its derivative (its Taylor rule), norms have the derivative at a constant standard
  deviation, activations the slope of their secant (`flaxattn.models.layers`);
- linear layers have their derivative, in which biases absorb their own share.

Both need one backward pass for each text.
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
from jaxtyping import Array, Bool, Float, Int

from flaxattn.attribution.contributions import Maps, TextMaps, gradient_times_weights
from flaxattn.attribution.head_losses import head_task
from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import Capture
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.interventions import Intervention, with_interventions
from flaxattn.models.layer_stack import Stack
from flaxattn.models.layers import Dense, FeedForward, RMSNorm, at_positions, identity_rule
from flaxattn.models.multi_head_attention import MultiHeadAttention
from flaxattn.models.seq2seq import Seq2SeqLM
from flaxattn.models.task_heads import (
    BertForSequenceClassification,
    ModernBertForSequenceClassification,
)
from flaxattn.pipeline.extraction import with_targets
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.model_types import CLASSIFIERS, MASKED_LM
from flaxattn.pretrained.pretrained_model import Pretrained, record_only
from flaxattn.text.text_lists import paired_lists, text_list
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.trace.record import layer_weights
from flaxattn.trace.trace import Trace


def generic_relevance(
    products: Mapping[str, Float[np.ndarray, "L H Q K"]],
) -> dict[str, Float[np.ndarray, "L 1 Q K"]]:
    """Relevance maps of every side after each of its layers.

    Of self-attention R <- R + A R, from the identity, with A the mean over heads of the positive
    part of weights times gradients. A decoder beside an encoder passes the relevance of the source
    on likewise, and adds to it N(R)ᵀ A N(R_encoder) at its cross-attention, where N divides what a
    row has beyond the identity by its sum.
    """
    means = {
        side: np.maximum(maps, 0).mean(1).astype(np.float64) for side, maps in products.items()
    }
    found = {side: _self_relevance(means[side]) for side in ("encoder", "decoder") if side in means}
    if "cross" in means:
        source = _normalised(found["encoder"][-1])
        own = np.concatenate([np.eye(means["decoder"].shape[-1])[None], found["decoder"]])
        across, steps = np.zeros(means["cross"].shape[1:]), []
        for layer, (inner, outer) in enumerate(zip(means["decoder"], means["cross"], strict=True)):
            across = across + inner @ across
            across = across + _normalised(own[layer + 1]).T @ outer @ source
            steps.append(across)
        found["cross"] = np.stack(steps)
    return {side: maps[:, None] for side, maps in found.items()}


def _self_relevance(means: Float[np.ndarray, "L S S"]) -> Float[np.ndarray, "L S S"]:
    relevance, steps = np.eye(means.shape[-1]), []
    for layer in means:
        relevance = relevance + layer @ relevance
        steps.append(relevance)
    return np.stack(steps)


def _normalised(relevance: Float[np.ndarray, "S S"]) -> Float[np.ndarray, "S S"]:
    """Rows whose part beyond the identity sums to one, or is 0 where there is none."""
    one = np.eye(len(relevance))
    beyond = relevance - one
    total = beyond.sum(-1, keepdims=True)
    return np.divide(beyond, total, out=np.zeros_like(beyond), where=total > 0) + one


Probes = Mapping[str, Float[Array, "B S"]]
_SHARES = {"query": 0.25, "key": 0.25, "value": 0.5}
_BIASES = ("bias", "logits_bias")


@contextlib.contextmanager
def relevance_rules() -> Iterator[None]:
    """Trace models under the rules: their gradients are those of AttnLRP.

    Trace a function anew inside of it, under a jit cache of its own.
    """
    with identity_rule(), nn.intercept_methods(_under_rules):
        yield


@contextlib.contextmanager
def input_relevance(probes: Probes, scale: Float[Array, " B"] | None = None) -> Iterator[None]:
    """Trace models so that the gradient of a probe is the relevance of what a stack reads.

    Input is what the first layer of a stack reads at a position: the embeddings of the token and of
    its position together, after their normalisation where there is one. Gradients end there.
    """

    def tap(next_call: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
        if not isinstance(context.module, Stack) or context.method_name != "__call__":
            return next_call(*args, **kwargs)
        x, *rest = args
        x = _tapped(x, probes[str(context.module.name)])
        if scale is not None:
            x = x * scale[:, None, None].astype(x.dtype)
        return next_call(x, *rest, **kwargs)

    with nn.intercept_methods(tap):
        yield


def absorbed(params: Any, gradients: Any) -> dict[str, Float[np.ndarray, ""]]:
    """Relevance that reaches no input, from gradients under the rules by all parameters.

    A linear layer passes on the sum of kernel times gradient; bias times gradient stays with it.
    """
    shares = jax.tree.map(lambda p, g: np.sum(np.asarray(p, np.float64) * g), params, gradients)
    found = {"biases": 0.0, "attention": 0.0}
    _add_absorbed(shares, found)
    return {name: np.asarray(value) for name, value in found.items()}


def _add_absorbed(shares: Any, found: dict[str, float]) -> None:
    if isinstance(shares, tuple | list):
        for part in shares:
            _add_absorbed(part, found)
    if not isinstance(shares, Mapping):
        return
    for name, part in shares.items():
        if name in _BIASES:
            found["biases"] += float(part)
        _add_absorbed(part, found)
    parts = [shares.get(name) for name in (*_SHARES, "output")]
    if all(isinstance(part, Mapping) and "kernel" in part for part in parts):
        *read, put_out = [float(part["kernel"]) for part in parts if part is not None]
        biases = sum(float(part.get("bias", 0)) for part in parts[:-1] if part is not None)
        found["attention"] += put_out - sum(read) - biases


def _under_rules(next_call: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
    """A call of a module, with the gradient of its rule."""
    y, module = next_call(*args, **kwargs), context.module
    if context.method_name != "__call__" or module.is_initializing():
        return y
    if isinstance(module, Dense):
        share = _share(module)
        return y if share is None else _scaled_cotangent(share, y)
    if isinstance(module, nn.LayerNorm | RMSNorm):
        return _replaced(y, _at_constant_scale(module, args[0]).astype(y.dtype))
    return y


def _share(module: Dense) -> float | None:
    """Part of the relevance of a product that goes to what a layer puts into it."""
    above = module.parent
    if isinstance(above, MultiHeadAttention):
        return _SHARES.get(str(module.name))
    gated = isinstance(above, FeedForward) and above.gated
    return 0.5 if gated and module.name in ("up", "gate") else None


def _at_constant_scale(module: nn.LayerNorm | RMSNorm, x: Float[Array, "... E"]) -> Array:
    """Output of a norm as a linear function of `x`."""
    params = module.variables.get("params", {})
    rows = {name: jnp.asarray(p, jnp.float32) for name, p in params.items()}
    rows = {name: row.reshape(*(1,) * (x.ndim - 1), -1) for name, row in rows.items()}
    x = x.astype(jnp.float32)
    if isinstance(module, nn.LayerNorm):
        x = x - x.mean(-1, keepdims=True)
    squares = (x * x).mean(-1, keepdims=True)
    normed = x * jax.lax.stop_gradient(jax.lax.rsqrt(squares + module.epsilon))
    if "scale" in rows:
        one_more = isinstance(module, RMSNorm) and module.plus_one
        normed = normed * (1 + rows["scale"] if one_more else rows["scale"])
    return normed + rows["bias"] if "bias" in rows else normed


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scaled_cotangent(factor: float, x: Array) -> Array:
    """`x`, whose cotangent is multiplied."""
    del factor
    return x


@jax.custom_vjp
def _replaced(x: Array, linear: Array) -> Array:
    """`x`, with the gradient of another array in place of its own."""
    del linear
    return x


@jax.custom_vjp
def _tapped(x: Float[Array, "B S E"], probe: Float[Array, "B S"]) -> Array:
    """`x`; the gradient of the probe is that of `x` times `x`, and no other gradient passes."""
    del probe
    return x


def _relevance(x: Array, cotangent: Array) -> tuple[Array, Array]:
    products = x.astype(jnp.float32) * cotangent.astype(jnp.float32)
    return jnp.zeros_like(x), products.sum(-1)


_OUTPUTS = Capture(weights=True, value=True, head_output=True)
_NOT_OF_MODEL = ("labels", "targets", "chosen", "position", "target")
_HALF = 0.5  # of a head's relevance is that of its weights, half that of its values
Texts = str | Sequence[str]
Score = Callable[..., Float[Array, " B"]]


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Prediction of a model for one text.

    Attributes:
        row: The text as the model reads it, without padding.
        position: Position that predicts it, on the decoder's side where there is one beside an
            encoder; None for the mean of all positions.
        target: Number of the class or token.
        name: The class or token.
        removable: Input tokens that a text can do without: none that the model adds, no mask, and
            not the position that is predicted from.
    """

    row: TokenizedTexts
    position: int | None
    target: int
    name: str
    removable: Bool[np.ndarray, " S"]

    def given(self, limit: int) -> dict[str, Int[np.ndarray, "1 ..."]]:
        """Arguments of `TokenScore`, padded."""
        place = {} if self.position is None else {"position": np.array([self.position], np.int32)}
        return {**self.row.padded(limit), **place, "target": np.array([self.target], np.int32)}


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

    The logit of what the model predicts is explained. Relevance is conserved: what a layer's output
    has is what its input, its biases and its attention have; see `absorbed`.

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
        seed: Seed of the token that is masked, for a masked language model.
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
        biases = absorbed(model.params, slopes.params)
        found.append(
            Relevance(
                prediction=one,
                score=float(slopes.score[0]),
                tokens=tokens_of(trace, slopes, sizes),
                heads={side: m.sum((-1, -2)) / _HALF for side, m in maps.items()},
                maps=maps,
                absorbed={name: float(value) for name, value in biases.items()},
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
        seed: Seed of the tokens that are masked.
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
    return Trace.from_variables(record_only(module, params, inputs))


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
        own_rules = relevance_rules() if rules else contextlib.nullcontext()
        with input_relevance(probes, scale), own_rules:
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


_OWN = ("position", "target")  # of a prediction, not of the model
_TOKENS = 4096  # positions of a batch of targets that are written


@dataclasses.dataclass(frozen=True)
class TokenScore:
    """The score of one class or token of each text of a batch.

    Attributes:
        module: The model.
        log: Whether the score is the log-probability, in nats; otherwise it is the logit.
    """

    module: nn.Module
    log: bool = False

    def __call__(
        self,
        params: Any,
        given: Mapping[str, Array],
        masks: Mapping[str, Array] | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> Float[Array, " B"]:
        """Run the model."""
        variables = with_interventions(params, interventions)
        found = logits(self.module, variables, {**given, **(masks or {})})
        found = jax.nn.log_softmax(found) if self.log else found
        return jnp.take_along_axis(found, given["target"][:, None], axis=1)[:, 0]


def logits(
    module: nn.Module, variables: Any, given: Mapping[str, Array]
) -> Float[Array, "B classes"]:
    """Logits over classes, or over the vocabulary at one position of each text, in float32."""
    inputs: dict[str, Any] = {n: array for n, array in given.items() if n not in _OWN}
    out: Any
    if isinstance(module, CLASSIFIERS):
        out = module.apply(variables, **inputs)
        return _float32(out.logits)
    position = given["position"][:, None]
    if isinstance(module, MASKED_LM):
        out = module.apply(variables, **inputs, masked_positions=position)
        return _float32(out.token_scores[:, 0])

    def at_position(model: Any) -> Array:
        x = model.model(**inputs).last_hidden_state
        return model.scores(at_positions(x, position))[:, 0]

    return _float32(module.apply(variables, method=at_position))


def _float32(x: Any) -> Float[Array, "..."]:
    return x.astype(jnp.float32)


def predictions(
    model: Pretrained,
    texts: Sequence[str],
    second: Sequence[str] | None = None,
    *,
    labels: Sequence[int] | None = None,
    truncate: bool = False,
    seed: int = 0,
) -> list[Prediction]:
    """Return what a model predicts of texts: the likeliest class or token, one for each text.

    A classifier predicts the class of a text; a masked language model a token that is masked; a
    decoder the token after one of the second half of the text; an encoder-decoder the token after
    the first half of the target. Tokens are drawn at random.
    """
    texts, second = paired_lists(texts, second)
    _check(model, texts, second, labels)
    reading = model.read(list(texts), None if second is None else list(second), truncate=truncate)
    rows = with_targets([model], reading.rows(), {}, _TOKENS)
    found = []
    for number, row in enumerate(rows):
        label = None if labels is None else labels[number]
        found.append(_prediction(model, row, number, label, np.random.default_rng((seed, number))))
    return found


def _prediction(
    model: Pretrained,
    row: TokenizedTexts,
    number: int,
    label: int | None,
    random: np.random.Generator,
) -> Prediction:
    special = np.asarray(row.metadata.special, bool)[0]
    plain = np.flatnonzero(~special)
    if not len(plain):
        raise InputError(
            f"Text {number} (from 0) has no token of its own, from which something could be "
            "predicted.\nLeave it out."
        )
    position, removable = _position(model.module, row, plain, random), ~special
    if isinstance(model.module, MASKED_LM):
        row = _masked(model, row, int(position or 0))
    if isinstance(model.module, DecoderLM):
        removable[position:] = False
    elif position is not None and not isinstance(model.module, Seq2SeqLM):
        removable[position] = False
    draft = Prediction(row, position, 0, "", removable)
    target = label
    if target is None:
        scores = _logits(model.module, model.params, draft.given(model.limit))
        target = int(np.asarray(scores)[0].argmax())
    return dataclasses.replace(draft, target=target, name=_name(model, target))


_logits = functools.partial(jax.jit, static_argnums=(0,))(
    lambda module, params, given: logits(module, {"params": params}, given)
)


def _position(
    module: nn.Module, row: TokenizedTexts, plain: np.ndarray, random: np.random.Generator
) -> int | None:
    """Position that is predicted from."""
    if isinstance(module, MASKED_LM):
        return int(random.choice(plain))
    if isinstance(module, DecoderLM):
        return int(random.choice(plain[len(plain) // 2 :]))
    if isinstance(module, Seq2SeqLM):
        return row.lengths[1] // 2
    if isinstance(module, ModernBertForSequenceClassification):
        return 0 if module.config.classifier_pooling == "cls" else None
    if isinstance(module, BertForSequenceClassification):
        return 0
    return row.lengths[0] - 1


def _masked(model: Pretrained, row: TokenizedTexts, position: int) -> TokenizedTexts:
    """The text with a mask at one position."""
    tokenizer = model.tokenizer
    assert isinstance(tokenizer, Tokenizer)  # a masked language model has no other
    ids = np.array(row.given["input_ids"])
    ids[:, position] = tokenizer.mask_id
    tokens = list(row.metadata.tokens[0])
    tokens[position] = tokenizer.readable_tokens([tokenizer.mask_id])[0]
    metadata = dataclasses.replace(row.metadata, tokens=[tokens])
    return dataclasses.replace(row, given={**row.given, "input_ids": ids}, metadata=metadata)


def _name(model: Pretrained, target: int) -> str:
    """The class or token of a number."""
    if isinstance(model.module, CLASSIFIERS):
        return str(target)
    tokenizer: Any = model.target_reader
    return tokenizer.readable_tokens([target])[0]


def _check(
    model: Pretrained,
    texts: Sequence[str],
    second: Sequence[str] | None,
    labels: Sequence[int] | None,
) -> None:
    known = (*CLASSIFIERS, *MASKED_LM, DecoderLM, Seq2SeqLM)
    if not isinstance(model.module, known) or not model.masks():
        raise InputError(
            f"{model.name!r} is a {model.config.architectures[0]}, which predicts no class or "
            "token that attention heads lead to.\nLoad it with the head of a masked language model "
            "or of a classifier, or take a decoder or encoder-decoder with its output layer."
        )
    if not texts:
        raise InputError("texts: expected a list of one text or more, received none.")
    if labels is None:
        return
    classes = model.module.config.num_labels if isinstance(model.module, CLASSIFIERS) else 0
    if len(labels) != len(texts) or not all(0 <= label < classes for label in labels):
        raise InputError(
            f"labels: expected a class of {classes} for each of {len(texts)} texts, counted from "
            f"0, received {list(labels)!r:.40}.\nLeave them out to explain what is predicted."
        )


_scaled_cotangent.defvjp(lambda factor, x: (x, None), lambda factor, kept, g: (g * factor,))

_replaced.defvjp(lambda x, linear: (x, None), lambda kept, g: (jnp.zeros_like(g), g))

_tapped.defvjp(lambda x, probe: (x, x), _relevance)
