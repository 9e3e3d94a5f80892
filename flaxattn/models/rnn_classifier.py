# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A recurrent text classifier: the encoder of `rnn`, and a dense layer on its last states.

It is a baseline without attention: what it says of a text went through one vector.
"""

from collections.abc import Mapping

from flax import linen as nn
from jaxtyping import Array, Int

from flaxattn.models.layer_stack import Model
from flaxattn.models.layers import Dense, DropoutLayer, Embedding, real_positions
from flaxattn.models.outputs import ModelOutput
from flaxattn.models.rnn import Encoder, RnnLM, last_states
from flaxattn.models.rnn_config import RnnConfig


class RnnForSequenceClassification(Model):
    """Bidirectional GRU that reads a text, with one label (or one number) for it."""

    config: RnnConfig

    def setup(self) -> None:
        """Make the parts."""
        c = self.config
        self.words = Embedding(c.vocab_size, c.embedding_size, self.dtype)
        self.encoder = Encoder(c, self.dtype)
        self.classifier = Dense(c.num_labels, self.dtype, c.encoded_size**-0.5)
        self.dropout = DropoutLayer(c.dropout)

    def __call__(
        self,
        input_ids: Int[Array, "B S"],
        attention_mask: Int[Array, "B S"] | None = None,
        *,
        deterministic: bool = True,
    ) -> ModelOutput:
        """Run the model."""
        mask = real_positions(attention_mask)
        words = self.dropout(self.words(input_ids), deterministic)
        states = self.encoder(words, mask)
        last = self.dropout(last_states(states, mask), deterministic)
        return ModelOutput(
            logits=self.classifier(last),
            last_hidden_state=states,
            hidden_states=(words, states) if self.keep_hidden else None,
        )


ARCHITECTURES: Mapping[str, type[nn.Module]] = {
    "RnnLM": RnnLM,
    "RnnForSequenceClassification": RnnForSequenceClassification,
}
