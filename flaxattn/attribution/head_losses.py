# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Losses that heads are judged by: one for each of many texts, under masks of heads.

`head_task` makes one of a model that was loaded and of texts; anybody's own model becomes one with
two lines. `flaxattn.attribution.ablation` measures heads with it.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from flaxattn.errors import InputError, check_arguments
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.interventions import Intervention, with_interventions
from flaxattn.models.outputs import cross_entropy
from flaxattn.models.seq2seq import Seq2SeqLM
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.model_types import CLASSIFIERS, MASKED_LM
from flaxattn.pretrained.nonfinite_error import refusal
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.text_lists import paired_lists
from flaxattn.text.tokenizer import Tokenizer

Masks = Mapping[str, Float[Array, "L ... H"]]
_MASKED_SHARE = 0.15


class LossBatch(NamedTuple):
    """Some texts, padded to one shape.

    Attributes:
        given: Arrays with a leading axis B.
        texts: Number of the B rows that are texts; the others repeat the last one.
    """

    given: Mapping[str, Array | np.ndarray]
    texts: int


class HeadTask(NamedTuple):
    """Losses of texts under masks of heads.

    >>> import flaxattn as fa
    >>> task = fa.head_task(fa.from_pretrained("tiny-bert"), ["The cat is very sad.", "It sleeps."])
    >>> len(task.batches), task.name
    (1, 'tiny-bert')

    Attributes:
        sizes: Names of the masks, with L and H of each.
        batches: The texts.
        losses: From parameters, `given` of a batch, a mask for each name, `[L, H]` or
            `[L, B, H]`, and perhaps interventions, to the loss of each of the B texts; it is
            compiled.
        params: Its first argument.
        name: What the model was loaded as.
        allow_nonfinite: Whether losses may be NaN or infinite; otherwise they are an error.
    """

    sizes: Mapping[str, tuple[int, int]]
    batches: Sequence[LossBatch]
    losses: Callable[..., Float[Array, " B"]]
    params: Any
    name: str = ""
    allow_nonfinite: bool = False

    def __repr__(self) -> str:
        texts = sum(batch.texts for batch in self.batches)
        return f"HeadTask({self.name!r}: {texts:,} texts in {len(self.batches):,} batches)"

    def check(self, losses: Float[np.ndarray, " B"], first: int) -> None:
        """Refuse losses with all heads that are NaN or infinite, unless they are allowed.

        Args:
            losses: Losses of consecutive texts.
            first: Number of the first of them.

        Raises:
            InputError: Naming the text, and the parameter that is the cause.
        """
        broken = np.flatnonzero(~np.isfinite(losses))
        if len(broken) and not self.allow_nonfinite:
            problem = f"the loss of text {first + int(broken[0])} is NaN or infinite"
            raise refusal(self.name, self.params, problem)


@check_arguments()
def head_task(
    model: Pretrained,
    texts: Sequence[str],
    second: Sequence[str] | None = None,
    *,
    labels: Sequence[int] | None = None,
    batch: int = 16,
    truncate: bool = False,
    seed: int = 0,
    allow_nonfinite: bool = False,
) -> HeadTask:
    """Return the task that a model was trained for, on texts.

    A language model (GPT-2) is judged by the mean negative log-likelihood, in nats, of every token
    after the first; a masked one (BERT) by that of 15% of the tokens of each text, at least one,
    which are masked; a classifier by that of its label; an encoder-decoder by that of the target's
    tokens but the last.

    >>> import flaxattn as fa
    >>> task = fa.head_task(fa.from_pretrained("tiny-bert"), ["The cat is very sad.", "It sleeps."])
    >>> task.sizes  # layers and heads of each mask
    {'head_mask': (4, 4)}

    Args:
        model: With a head that does one of these, and a tokenizer.
        texts: At least one.
        second: The second text of each pair; of an encoder-decoder, the target.
        labels: Number of the right class of each text, for a classifier.
        batch: Texts that are computed together.
        truncate: Whether a text over the model's limit is cut; otherwise it is an error.
        seed: Seed of the choice of tokens that are masked.
        allow_nonfinite: Whether losses may be NaN or infinite; otherwise they are an error.

    Returns:
        The task, which `fa.ablate` and `fa.head_importance` take. Losses are in nats.

    Raises:
        InputError: For a model without such a head or without heads to mask, labels that are not
            classes of it, or a text that cannot be used.
    """
    module = model.module
    texts, second = paired_lists(texts, second)
    _check(model, texts, second, labels, batch)
    drawn = np.random.default_rng(seed)
    batches = []
    for start in range(0, len(texts), batch):
        some = list(texts[start : start + batch])
        pairs = None if second is None else list(second[start : start + batch])
        reading = model.read(some, pairs, truncate=truncate)
        given = dict(reading.padded(model.limit))
        if isinstance(module, CLASSIFIERS):
            given["labels"] = np.asarray(_part(labels, start, batch), np.int32)
        elif isinstance(module, MASKED_LM):
            given |= _masked(model, reading, given, drawn)
        elif not isinstance(module, Seq2SeqLM):
            _check_lengths(given["attention_mask"], start)
        rows = min(batch, len(texts))  # the last batch has the shape of the others
        given = {name: _repeated(array, rows) for name, array in given.items()}
        batches.append(LossBatch(given, len(some)))
    losses = functools.partial(_losses, module)
    return HeadTask(
        model.masks(), batches, losses, model.params, model.name, allow_nonfinite=allow_nonfinite
    )


def _losses(
    module: nn.Module,
    params: Any,
    given: Mapping[str, Array],
    masks: Masks,
    interventions: Sequence[Intervention] = (),
) -> Float[Array, " B"]:
    """The losses of a model's texts."""
    if isinstance(module, CLASSIFIERS):
        variables = with_interventions(params, interventions)
        out: Any = module.apply(variables, **module_inputs(given, masks))
        return _likelihoods(out.logits, given["labels"])
    return _mean(*losses_of_tokens(module, params, given, masks, interventions))


def losses_of_tokens(
    module: nn.Module,
    params: Any,
    given: Mapping[str, Array],
    masks: Masks,
    interventions: Sequence[Intervention] = (),
) -> tuple[Float[Array, "B S"], Bool[Array, "B S"]]:
    """Negative log-likelihood of each token at its own position, and which ones count."""
    variables = with_interventions(params, interventions)
    out: Any = module.apply(variables, **module_inputs(given, masks))
    if isinstance(module, MASKED_LM):
        return _likelihoods(out.token_scores, given["targets"]), given["chosen"]
    side = "decoder_" if isinstance(module, Seq2SeqLM) else ""
    ids, real = given[f"{side}input_ids"], given[f"{side}attention_mask"]
    losses = _likelihoods(out.logits[:, :-1], ids[:, 1:])
    first = ((0, 0), (1, 0))
    return jnp.pad(losses, first), jnp.pad(real[:, 1:] != 0, first)


def module_inputs(given: Mapping[str, Array], masks: Masks) -> dict[str, Any]:
    """Arguments of a module: those among the arrays of a batch, and masks of heads."""
    extra = ("labels", "targets", "chosen")
    return {name: array for name, array in given.items() if name not in extra} | dict(masks)


def _likelihoods(scores: Float[Array, "... V"], targets: Int[Array, "..."]) -> Float[Array, "..."]:
    """Negative log-likelihood of the targets, in float32."""
    return cross_entropy(scores.astype(jnp.float32), targets)


def _mean(values: Float[Array, "B S"], counted: Bool[Array, "B S"]) -> Float[Array, " B"]:
    """Mean of the counted values of each text."""
    return jnp.where(counted, values, 0).sum(1) / jnp.maximum(counted.sum(1), 1).astype(jnp.float32)


def _masked(
    model: Pretrained,
    reading: TokenizedTexts,
    given: Mapping[str, np.ndarray],
    drawn: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Ids with masked tokens, what these were, and where they are."""
    tokenizer = model.tokenizer
    assert isinstance(tokenizer, Tokenizer)  # a BERT has no other
    ids = given["input_ids"]
    chosen = np.zeros(ids.shape, bool)
    special = np.asarray(reading.metadata.special)
    for row, added in enumerate(special):
        plain = np.flatnonzero(~added)
        count = max(1, round(_MASKED_SHARE * len(plain)))
        chosen[row, drawn.choice(plain, min(count, len(plain)), replace=False)] = True
    hidden = np.where(chosen, tokenizer.mask_id, ids).astype(np.int32)
    return {"input_ids": hidden, "targets": ids, "chosen": chosen}


def _check(
    model: Pretrained,
    texts: Sequence[str],
    second: Sequence[str] | None,
    labels: Sequence[int] | None,
    batch: int,
) -> None:
    known = (*CLASSIFIERS, *MASKED_LM, DecoderLM, Seq2SeqLM)
    if not isinstance(model.module, known) or not model.masks():
        architecture = model.config.architectures[0]
        names = [kind.__name__ for kind in known[:-2]]
        family = architecture.partition("For")[0].removesuffix("Model")
        own = [name for name in names if name.startswith(family)]
        raise InputError(
            f"{model.name!r} is a {architecture}, which has no loss to judge heads by.\n"
            f'Load it with a task head, such as head="{(own or names)[0]}", or take a language '
            "model or an encoder-decoder with its output layer."
        )
    if not texts or batch < 1:
        raise InputError(
            "Heads are judged by texts: expected a list of one text or more, and batches of one "
            f"or more.\nReceived {texts!r:.40} in batches of {batch}."
        )
    if isinstance(model.module, Seq2SeqLM) and second is None:
        raise InputError(
            "An encoder-decoder is judged by targets, received sources alone.\n"
            "Give the target of each as `second`."
        )
    if isinstance(model.module, CLASSIFIERS):
        _check_labels(labels, len(texts), model.module.config.num_labels)
    elif labels is not None:
        raise InputError(
            f"labels are for a classifier, {model.name!r} is a {model.config.architectures[0]}.\n"
            "Leave them out."
        )


def _check_labels(labels: Sequence[int] | None, count: int, classes: int) -> None:
    if labels is None or len(labels) != count:
        raise InputError(
            f"A classifier is judged by labels: expected {count}, one for each text, received "
            f"{'none' if labels is None else len(labels)}."
        )
    wrong = [label for label in labels if not (isinstance(label, int) and 0 <= label < classes)]
    if wrong:
        raise InputError(
            f"labels: expected numbers from 0 to {classes - 1}, received {wrong[0]!r}.\n"
            "Count classes from 0, as the model's config.json does."
        )


def _check_lengths(mask: np.ndarray, start: int) -> None:
    short = np.flatnonzero((mask != 0).sum(1) < 2)
    if len(short):
        raise InputError(
            f"Text {start + int(short[0])} (from 0) is a single token: nothing is predicted.\n"
            "Leave it out."
        )


def _part(labels: Sequence[int] | None, start: int, batch: int) -> Sequence[int]:
    return () if labels is None else labels[start : start + batch]


def _repeated(array: Any, count: int) -> Any:
    """The rows, the last one repeated up to a number of them."""
    rows = np.minimum(np.arange(count), len(array) - 1)
    return np.asarray(array)[rows]
