# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Predictions that attributions explain: one class or token of each text, and its score.

`predictions` chooses them; `TokenScore` is the number that is explained, with the arguments of the
losses of `fa.head_task`.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.models.decoder import DecoderLM
from flaxattn.models.interventions import Intervention, with_interventions
from flaxattn.models.layers import at_positions
from flaxattn.models.seq2seq import Seq2SeqLM
from flaxattn.models.task_heads import (
    BertForSequenceClassification,
    ModernBertForSequenceClassification,
)
from flaxattn.pipeline.generated_targets import with_targets
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.model_types import CLASSIFIERS, MASKED_LM
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.text_lists import paired_lists
from flaxattn.text.tokenizer import Tokenizer

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
