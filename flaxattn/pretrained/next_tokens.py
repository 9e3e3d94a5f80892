# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Next-token probabilities of tokenized texts, for the traces that carry them.

They come from a pass of their own, so that asking for them changes nothing in a trace.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from flaxattn.errors import InputError
from flaxattn.kernels.contract import NOTHING
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.nonfinite_error import check_written
from flaxattn.pretrained.pretrained_model import Pretrained, tokens_of
from flaxattn.trace.token_predictions import SCORES, Predictions
from flaxattn.trace.trace import Trace


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
