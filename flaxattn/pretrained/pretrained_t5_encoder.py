# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The encoder of a T5 alone, as sentence embeddings use it: called with ids, or reading texts."""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float, Int

from flaxattn.errors import check_arguments
from flaxattn.kernels.contract import Capture
from flaxattn.pretrained import model_inputs
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
        """
        given = self._source(input_ids, attention_mask) | self._masked(head_mask=head_mask)
        capture = Capture(weights=output_attentions)
        module = self.module.clone(capture=capture, keep_hidden=output_hidden_states)
        out, variables = run(module, self.params, given, output_attentions)
        out = (
            out.replace(attentions=Trace.from_variables(variables).attentions) if variables else out
        )
        return answered(self.config, out, {"labels": labels}, return_dict)

    @check_arguments(0)
    def trace(
        self,
        text: str | Sequence[str],
        text_b: None = None,
        *,
        capture: Capture = _WEIGHTS,
        truncate: bool = False,
        allow_nonfinite: bool = False,
    ) -> Trace:
        """Read a text, or several, and return their attention."""
        model_inputs.check_capture(capture, *self.counts())
        reading = self.read(text, text_b, truncate=truncate)
        return self.trace_tokens(reading, capture, allow_nonfinite=allow_nonfinite)

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
