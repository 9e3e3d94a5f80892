# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The encoder of a T5 alone, as sentence embeddings use it: called with ids, or reading texts."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float, Int

from flaxattn.kernels.contract import Capture
from flaxattn.pretrained import model_inputs as inputs
from flaxattn.pretrained.labelled_output import answered
from flaxattn.pretrained.pretrained_model import run
from flaxattn.pretrained.readings import TokenizedTexts
from flaxattn.pretrained.source_reader import SourceReader
from flaxattn.trace.trace import Trace

_WEIGHTS = Capture(weights=True)


class PretrainedT5Encoder(SourceReader):
    """The encoder of a T5 ready to use; its parts are described at `Pretrained`."""

    def __call__(
        self,
        input_ids: Int[Any, "B S"],
        attention_mask: Int[Any, "B S"] | None = None,
        head_mask: Float[Any, "..."] | None = None,
        *,
        labels: Int[Any, "B S"] | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        return_dict: bool | None = None,
    ) -> Any:
        """Run the model, with the argument and field names of Hugging Face, without dropout.

        The program is compiled once for each shape.

        Args:
            input_ids: Tokens; NumPy, JAX or nested lists, like the other arrays.
            attention_mask: 1 at real positions, 0 at padding; default 1.
            head_mask: Factors on the outputs of heads, `[H]` for all layers or `[L, H]`: 0
                silences a head, 1 leaves it. `attentions` are those before it.
            labels: Classes of the tokens, -100 where one has none, of a model that classifies
                them; their mean loss is returned as `loss`.
            output_attentions: Whether to return `attentions`: per layer float32 `[B, H, Q, K]`.
            output_hidden_states: Whether to return `hidden_states`: the embeddings and each
                layer's output.
            return_dict: False for a tuple instead of a `ModelOutput`.

        Returns:
            The last hidden state or the `logits` of the labels, and what is asked.

        Raises:
            InputError: For a wrong shape or dtype, an id out of range, a length over the limit.
        """
        given = self._source(input_ids, attention_mask) | self._masked(head_mask=head_mask)
        capture = Capture(weights=output_attentions)
        module = self.module.clone(capture=capture, keep_hidden=output_hidden_states)
        out, seen = run(module, self.params, given, output_attentions)
        out = out.replace(attentions=Trace.from_variables(seen).attentions) if seen else out
        return answered(self.config, out, {"labels": labels}, return_dict)

    def trace(
        self,
        text: str | Sequence[str],
        text_b: None = None,
        *,
        capture: Capture = _WEIGHTS,
        truncate: bool = False,
        allow_nonfinite: bool = False,
    ) -> Trace:
        """Read a text, or several, and keep what attention saw.

        Args:
            text: A text, or B texts.
            text_b: Nothing; this model reads no pairs.
            capture: What to keep, of which layers and heads.
            truncate: Whether a text over the model's limit is cut; otherwise it is an error.
            allow_nonfinite: Whether attention that is NaN or infinite is kept; otherwise it is an
                error.

        Returns:
            The trace of B texts, with one side, `encoder`.

        Raises:
            InputError: For an unknown layer or head, a model without tokenizer, an empty text, or
                one over the limit.
        """
        inputs.check_capture(capture, *self.counts())
        reading = self.read(text, text_b, truncate=truncate)
        return self.seen(reading, capture, allow_nonfinite=allow_nonfinite)

    def read(self, text: Any, text_b: Any = None, *, truncate: bool = False) -> TokenizedTexts:
        """Tokenize texts; see `Pretrained.read`."""
        return self._alone(text, text_b, truncate)

    def counts(self) -> tuple[int, int]:
        """Layers, and heads of a layer."""
        return self.config.encoder_layers, self.config.encoder_attention_heads

    def masks(self) -> Mapping[str, tuple[int, int]]:
        """Arguments of a call that mask heads, and of how many layers and heads each does."""
        return {"head_mask": self.counts()}

    def _size(self) -> str:
        return f"{self.config.encoder_layers} layers, {self.config.encoder_attention_heads} heads"
