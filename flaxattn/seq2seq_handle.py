# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""An encoder-decoder in the hand: called with ids.

This file puts the parts together; it computes nothing itself.
"""

from typing import Any

import numpy as np
from jaxtyping import Int

from flaxattn import inputs
from flaxattn.errors import InputError
from flaxattn.handle import Pretrained, run
from flaxattn.kernels.contract import Capture
from flaxattn.outputs import Seq2SeqOutput
from flaxattn.seq2seq import shifted_right
from flaxattn.seq2seq_config import Seq2SeqConfig
from flaxattn.trace import Trace


class PretrainedSeq2Seq(Pretrained):
    """An encoder-decoder ready to use; its parts are described at `Pretrained`."""

    config: Seq2SeqConfig

    def __call__(
        self,
        input_ids: Int[Any, "B S"],
        attention_mask: Int[Any, "B S"] | None = None,
        decoder_input_ids: Int[Any, "B T"] | None = None,
        decoder_attention_mask: Int[Any, "B T"] | None = None,
        *,
        labels: Int[Any, "B T"] | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> Seq2SeqOutput:
        """Run the model, with the argument and field names of Hugging Face, without dropout.

        The program is compiled once for each pair of shapes.

        Args:
            input_ids: Source tokens; NumPy, JAX or nested lists, like the other arrays.
            attention_mask: 1 at real source positions, 0 at padding; default 1.
            decoder_input_ids: What the decoder reads, the start token first; default the source
                shifted by one position.
            decoder_attention_mask: 1 at real target positions; default 1.
            labels: What the decoder shall write, instead of what it reads; -100 is padding.
            output_attentions: Whether to return `encoder_attentions`, `decoder_attentions` and
                `cross_attentions`: per layer float32 `[B, H, Q, K]`, NumPy arrays that torch's
                functions take too.
            output_hidden_states: Whether to return both sides' hidden states.

        Returns:
            The fields that the architecture has.

        Raises:
            InputError: For a wrong shape or dtype, an id out of range, a length over the limit.
        """
        given = self._source(input_ids, attention_mask)
        given |= self._target(decoder_input_ids, decoder_attention_mask, labels, given)
        capture = Capture(weights=output_attentions)
        module = self.module.clone(capture=capture, keep_hidden=output_hidden_states)
        out, seen = run(module, self.params, given, output_attentions)
        if not output_attentions:
            return out
        trace = Trace.from_variables(seen)
        return out.replace(
            encoder_attentions=trace.encoder_attentions,
            decoder_attentions=trace.decoder_attentions,
            cross_attentions=trace.cross_attentions,
        )

    def _source(self, ids: Any, mask: Any) -> dict[str, Any]:
        """Checked arguments of the encoder; the mask is filled in, for one program to serve all."""
        c = self.config
        ranges = {"input_ids": (c.vocab_size, "vocab_size"), "attention_mask": inputs.MASK}
        given = {"input_ids": ids, "attention_mask": mask}
        arrays = inputs.checked(given, ranges, c.max_position_embeddings)
        return {"attention_mask": np.ones(arrays["input_ids"].shape, np.int32)} | arrays

    def _target(self, ids: Any, mask: Any, labels: Any, source: dict[str, Any]) -> dict[str, Any]:
        """Checked arguments of the decoder."""
        c = self.config
        meaning = (c.target_size, "size of the target vocabulary")
        if ids is None and labels is not None:
            ids = inputs.whole("labels", labels)
            ids = np.where(ids == -100, c.pad_token_id, ids)
            inputs.checked({"labels": ids}, {"labels": meaning}, c.max_position_embeddings)
        if ids is None or labels is not None:
            ids = shifted_right(source["input_ids"] if ids is None else ids, c)
        ranges = {"decoder_input_ids": meaning, "decoder_attention_mask": inputs.MASK}
        given = {"decoder_input_ids": ids, "decoder_attention_mask": mask}
        arrays = inputs.checked(given, ranges, c.max_position_embeddings)
        count, expected = len(arrays["decoder_input_ids"]), len(source["input_ids"])
        if count != expected:
            raise InputError(
                f"decoder_input_ids: expected {expected} sequences as input_ids has, received "
                f"{count}.\nEvery source needs its target."
            )
        ones = np.ones(arrays["decoder_input_ids"].shape, np.int32)
        return {"decoder_attention_mask": ones} | arrays
