# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Hidden states of a model's output: which one is requested, and the arguments of a batch.

What is made of them is decided in `embed`, `head_probe` and `search`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from flaxattn.errors import InputError
from flaxattn.pipeline.batches import Batch, stacked
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq


def state_number(model: Pretrained, layer: int) -> int:
    """The place of a hidden state among all of a model, or of the encoder where there is one."""
    last = getattr(model.config, "encoder_layers", model.counts()[0])
    if not -last - 1 <= layer <= last:
        raise InputError(
            f"layer is {layer}, {model.name!r} has {last} of them\n"
            f"give 0 for the embeddings, 1 to {last} for the output of a layer, -1 for the last"
        )
    return layer % (last + 1)


def states_of(out: Any) -> tuple[Float[Array, "B S E"], ...]:
    """Embeddings and outputs of layers, of the encoder where there is one."""
    found = getattr(out, "encoder_hidden_states", None)
    return out.hidden_states if found is None else found


def last_of(out: Any) -> Float[Array, "B S E"]:
    """The last of them, which any module returns."""
    found = getattr(out, "encoder_last_hidden_state", None)
    return out.last_hidden_state if found is None else found


def arguments(
    model: Pretrained, rows: Sequence[TokenizedTexts], batch: Batch
) -> dict[str, np.ndarray | Array]:
    """Arguments of the module; a decoder that is not needed reads one token."""
    given: dict[str, Any] = stacked(rows, batch)
    if isinstance(model, PretrainedSeq2Seq):
        given["decoder_input_ids"] = np.full(
            (batch.rows, 1), model.config.decoder_start_token_id, np.int32
        )
    return given
