# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Probabilities of tokens: behind the masks of a text, and of the next tokens for traces.

`fill_mask` names the likeliest tokens behind masks. Next-token probabilities come from a pass of
their own, so that requesting them changes nothing in a trace.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import NOTHING
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.model_types import MASKED_LM
from flaxattn.pretrained.nonfinite_error import check_written, refusal
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained, run, tokens_of
from flaxattn.text.text_lists import text_list
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.trace.token_predictions import SCORES, Predictions
from flaxattn.trace.trace import Trace

_TOGETHER = 16  # texts of a batch


class Filling(NamedTuple):
    """A token that may stand in place of a mask.

    Attributes:
        token: The token, as the vocabulary has it.
        id: Its id.
        probability: Its share of the softmax over the vocabulary.
        text: The text with this mask filled; other masks stay.
    """

    token: str
    id: int
    probability: float
    text: str


@check_arguments()
def fill_mask(
    model: Pretrained, text: str | Sequence[str], k: int = 5, *, truncate: bool = False
) -> list[list[Filling]] | list[list[list[Filling]]]:
    """Predict the tokens behind the masks of a text.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> [len(tokens) for tokens in fa.fill_mask(model, "The cat is [MASK] and [MASK].", k=3)]
    [3, 3]

    Args:
        model: A masked language model with its tokenizer.
        text: A text with the mask token of the tokenizer, such as `[MASK]`; or several texts.
        k: Number of tokens for each mask.
        truncate: Whether a text over the model's limit is cut, and its masks with it; otherwise it
            is an error.

    Returns:
        For each mask of the text, in order, its `k` likeliest tokens, likeliest first; for several
        texts a list of these.

    Raises:
        InputError: For a model that is not a masked language model, a text without mask, a `k`
            below 1 or above the size of the vocabulary, or scores that are NaN.
    """
    tokenizer = _checked(model, k)
    texts = text_list(text)
    for number, one in enumerate(texts):
        if tokenizer.mask_token not in one:
            raise InputError(
                f"text {number} has no mask: {one[:60]!r}\n"
                f"expected {tokenizer.mask_token} at least once\nput it in place of a word"
            )
    found: list[list[list[Filling]]] = []
    for start in range(0, len(texts), _TOGETHER):
        found += _filled(model, tokenizer, texts[start : start + _TOGETHER], k, truncate)
    return found[0] if isinstance(text, str) else found


def _checked(model: Pretrained, k: int) -> Tokenizer:
    """The tokenizer of a masked language model."""
    if not isinstance(model, PretrainedBert) or not isinstance(model.module, MASKED_LM):
        raise InputError(
            f"{model.name!r} is a {model.config.architectures[0]}, which predicts no masked "
            "tokens\nname a model that was saved with a masked-LM head "
            '(in Python, head="ForMaskedLM" loads that head)'
        )
    if model.tokenizer is None:
        raise InputError(
            f"{model.name!r} came without a tokenizer, so it cannot read text\n"
            "put tokenizer.json into its directory"
        )
    if not 1 <= k <= model.config.vocab_size:
        raise InputError(
            f"{k} tokens are requested for each mask\n"
            f"expected 1 to {model.config.vocab_size}, the size of the vocabulary"
        )
    return model.tokenizer


def _filled(
    model: Pretrained, tokenizer: Tokenizer, texts: list[str], k: int, truncate: bool
) -> list[list[list[Filling]]]:
    """Fillings of some texts, which are run together."""
    given = model.read(texts, truncate=truncate).padded(model.limit)
    masked = [np.flatnonzero(row == tokenizer.mask_id) for row in given["input_ids"]]
    most = 1 << (max(map(len, masked)) - 1).bit_length()  # few shapes, each of which is compiled
    positions = np.zeros((len(texts), most), np.int32)
    for row, places in enumerate(masked):
        positions[row, : len(places)] = places
    given.pop("key_classes", None)
    out, _ = run(model.module, model.params, {**given, "masked_positions": positions}, False)
    probabilities, ids = _likeliest(out.token_scores, k)
    if not np.isfinite(probabilities).all():
        problem = "the scores of words behind masks are NaN or infinite"
        raise refusal(model.name, model.params, problem, go_on=False)
    return [
        [
            _fillings(tokenizer, text, place, probabilities[row, place], ids[row, place])
            for place in range(len(places))
        ]
        for row, (text, places) in enumerate(zip(texts, masked, strict=True))
    ]


def _likeliest(
    logits: Float[jax.Array, "B P V"], k: int
) -> tuple[Float[np.ndarray, "B P k"], Int[np.ndarray, "B P k"]]:
    scores, ids = jax.lax.top_k(jax.nn.log_softmax(logits.astype(jnp.float32)), k)
    return np.exp(np.asarray(scores)), np.asarray(ids)


def _fillings(
    tokenizer: Tokenizer,
    text: str,
    place: int,
    probabilities: Float[np.ndarray, " k"],
    ids: Int[np.ndarray, " k"],
) -> list[Filling]:
    """Fillings of one mask of a text."""
    mask = tokenizer.mask_token
    parts = text.split(mask)
    before, behind = mask.join(parts[: place + 1]), mask.join(parts[place + 1 :])
    found = []
    for share, number in zip(probabilities.tolist(), ids.tolist(), strict=True):
        token = tokenizer.backend.id_to_token(number) or ""
        word = tokenizer.backend.decode([number], skip_special_tokens=False).strip()
        word = word.removeprefix("##")
        found.append(Filling(token, number, share, f"{before}{word}{behind}"))
    return found


def predicted(
    model: Pretrained,
    reading: TokenizedTexts,
    trace: Trace,
    count: int,
    *,
    allow_nonfinite: bool = False,
) -> Trace:
    """The trace with the probabilities of the tokens that follow each position.

    Memory: B·T·(k + 4) numbers are kept; the scores `[B, T, V]` exist on the device only.
    """
    if count == 0:
        return trace
    _check(model, count)
    beside = "decoder_input_ids" in reading.given
    name = "decoder_input_ids" if beside else "input_ids"
    ids, given = reading.given[name], reading.padded(model.limit)
    targets, follows = next_targets(reading)
    room = ((0, 0), (0, given[name].shape[1] - ids.shape[1]))
    module = model.module.clone(capture=NOTHING, keep_hidden=False)
    padded = (np.pad(array, room) for array in (targets, follows))
    scored = _scored(module, model.params, given, *padded, count)
    named = dict(zip(_NAMES, (np.asarray(a)[:, : ids.shape[1]] for a in scored), strict=True))
    best = named.pop("best")
    if not allow_nonfinite:
        check_written(model.name, model.params, named["log_probability"].sum(1), go_on=True)
    reader = model.target_reader
    found = Predictions(
        tokens_of(reader, named["targets"]),
        [tokens_of(reader, row) for row in best],
        ids=ids,
        follows=follows,
        **named,
    )
    return dataclasses.replace(trace, predictions=found)


_NAMES = ("best", *(name for name in SCORES if name not in ("ids", "follows")))


def _check(model: Pretrained, count: int) -> None:
    """See that a model has so many tokens to name."""
    if not model.writes:
        raise InputError(
            f"predictions: {model.name!r} is a {model.config.architectures[0]}, which scores no "
            "next token.\nLeave them out, or name a model for generation."
        )
    size = model.target_size
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= size:
        raise InputError(
            f"predictions: expected a number of alternatives from 0 to {size}, the size of the "
            f"vocabulary, received {count!r}.\n0 asks for none."
        )


def next_targets(
    reading: TokenizedTexts,
) -> tuple[Int[np.ndarray, "B T"], Bool[np.ndarray, "B T"]]:
    """Ids of the tokens that follow each position, and where there are any."""
    if "decoder_input_ids" in reading.given:
        assert reading.written is not None
        return reading.written, reading.given["decoder_attention_mask"] != 0
    ids, mask = reading.given["input_ids"], reading.given["attention_mask"] != 0
    later = np.pad(mask[:, 1:], ((0, 0), (0, 1)))
    return np.pad(ids[:, 1:], ((0, 0), (0, 1))), later & mask


@functools.partial(jax.jit, static_argnames=("module", "count"))
def _scored(
    module: nn.Module,
    params: Any,
    given: dict[str, Any],
    targets: Int[Array, "B T"],
    follows: Bool[Array, "B T"],
    count: int,
) -> tuple[Int[Array, "B T k"], Int[Array, "B T"], Float[Array, "B T k"], Array, Array]:
    """Likeliest tokens, targets, log-probabilities of both, and ranks of the targets."""
    out: Any = module.apply({"params": params}, **given)
    return ranked(out.logits, targets, follows, count)


def ranked(
    logits: Float[Array, "B T V"],
    targets: Int[Array, "B T"],
    follows: Bool[Array, "B T"],
    count: int,
) -> tuple[Int[Array, "B T k"], Int[Array, "B T"], Float[Array, "B T k"], Array, Array]:
    """Likeliest tokens, targets, log-probabilities of both, and ranks of the targets."""
    scores = jax.nn.log_softmax(logits.astype(jnp.float32))
    likeliest, best = jax.lax.top_k(scores, count)
    targets = jnp.where(follows, targets, best[..., 0])
    own = jnp.take_along_axis(scores, targets[..., None], axis=-1)
    rank = 1 + (scores > own).sum(-1, dtype=jnp.int32)
    return best, targets, likeliest, own[..., 0], rank
