# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Task heads on a T5, as Hugging Face has them: labels of texts and tokens, and answers."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from flaxattn.models.causal_lm import at_last
from flaxattn.models.gradient_rules import elementwise
from flaxattn.models.layer_stack import Model
from flaxattn.models.layers import Dense, DropoutLayer
from flaxattn.models.outputs import ModelOutput, Seq2SeqOutput
from flaxattn.models.seq2seq import Seq2Seq, Seq2SeqLM, T5Encoder
from flaxattn.models.t5_config import T5Config


class T5ForSequenceClassification(Model):
    """A T5 with a label per text: `logits [B, labels]`.

    The label is predicted from the decoder's output at the last `eos_token_id` of the source; the
    decoder reads the source shifted by one position.
    """

    config: T5Config

    def setup(self) -> None:
        """Make the parts."""
        c = self.config
        self.model = Seq2Seq(**self.settings())
        self.drop = DropoutLayer(c.classifier_dropout)
        self.score_dense = Dense(c.d_model, self.dtype, c.init_std)
        self.score = Dense(c.num_labels, self.dtype, c.init_std)

    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        *inputs: Int[Array, "B S"],
        deterministic: bool = True,
        **options: Any,
    ) -> Seq2SeqOutput:
        """Run the model; arguments as for `Seq2Seq`. Returns `logits` over the labels too."""
        out = self.model(input_ids, *inputs, deterministic=deterministic, **options)
        x = at_last(out.last_hidden_state, input_ids == self.config.eos_token_id)
        x = self.drop(x, deterministic)
        x = self.drop(elementwise(jnp.tanh, self.score_dense(x)), deterministic)
        return out.replace(logits=self.score(x))


class T5ForTokenClassification(Model):
    """The encoder of a T5 with a label per position: `logits [B, S, labels]`."""

    config: T5Config

    def setup(self) -> None:
        """Make the parts."""
        self.model = Seq2Seq(**self.settings())
        self.drop = DropoutLayer(self.config.classifier_dropout)
        self.token_score = Dense(self.config.num_labels, self.dtype, self.config.init_std)

    def __call__(
        self, *inputs: Int[Array, "B S"], deterministic: bool = True, **options: Any
    ) -> ModelOutput:
        """Run the model; arguments as for `Seq2Seq.encode`. Returns `logits` over the labels."""
        x, hidden = self.model.encode(*inputs, deterministic=deterministic, **options)
        logits: Float[Array, "B S labels"] = self.token_score(self.drop(x, deterministic))
        return ModelOutput(last_hidden_state=x, hidden_states=hidden, logits=logits)


class T5ForQuestionAnswering(Model):
    """A T5 that finds where in a text an answer begins and where it ends.

    The decoder reads the source shifted by one position, so that it has a score for each.
    """

    config: T5Config

    def setup(self) -> None:
        """Make the parts."""
        self.model = Seq2Seq(**self.settings())
        self.qa_head = Dense(2, self.dtype, self.config.init_std)

    def __call__(self, *inputs: Int[Array, "B S"], **options: Any) -> Seq2SeqOutput:
        """Run the model; arguments as for `Seq2Seq`. Returns `start_logits`, `end_logits` too."""
        out = self.model(*inputs, **options)
        scores = self.qa_head(out.last_hidden_state)
        return out.replace(start_logits=scores[..., 0], end_logits=scores[..., 1])


_HEADS: Mapping[str, type[nn.Module]] = {
    "Model": Seq2Seq,
    "ForConditionalGeneration": Seq2SeqLM,
    "EncoderModel": T5Encoder,
    "ForSequenceClassification": T5ForSequenceClassification,
    "ForTokenClassification": T5ForTokenClassification,
    "ForQuestionAnswering": T5ForQuestionAnswering,
}


def architectures(config: T5Config) -> Mapping[str, type[nn.Module]]:
    """Modules by Hugging Face's class names, those of the model's own kind first."""
    stems = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}
    own = [stems.pop(config.kind)]
    return {
        stem + head: module
        for stem in own + list(stems.values())
        for head, module in _HEADS.items()
    }
