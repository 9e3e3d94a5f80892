# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A recurrent text classifier ready to use: called with ids. It has no attention to trace."""

from collections.abc import Mapping
from typing import Any, NoReturn

from jaxtyping import Int

from flaxattn.kernels.contract import NOTHING
from flaxattn.pretrained import model_inputs
from flaxattn.pretrained.labelled_output import answered
from flaxattn.pretrained.pretrained_model import run
from flaxattn.pretrained.readings import TokenizedTexts
from flaxattn.pretrained.source_reader import SourceReader


class PretrainedRnnClassifier(SourceReader):
    """A recurrent text classifier ready to use; its parts are described at `Pretrained`."""

    def __call__(
        self,
        input_ids: Int[Any, "B S"],
        attention_mask: Int[Any, "B S"] | None = None,
        *,
        labels: Any = None,
        output_hidden_states: bool = False,
        return_dict: bool | None = None,
    ) -> Any:
        """Run the model, with the argument and field names of Hugging Face, without dropout.

        The program is compiled once for each shape.
        """
        module = self.module.clone(capture=NOTHING, keep_hidden=output_hidden_states)
        out, _ = run(module, self.params, self._source(input_ids, attention_mask), False)
        return answered(self.config, out, {"labels": labels}, return_dict)

    def trace(self, *texts: Any, **options: Any) -> NoReturn:
        """Refuse: there is no attention."""
        model_inputs.check_capture(NOTHING, *self.counts())
        raise AssertionError("a model without heads is refused")

    def read(self, text: Any, text_b: Any = None, *, truncate: bool = False) -> TokenizedTexts:
        """Tokenize texts; see `Pretrained.read`."""
        return self._alone(text, text_b, truncate)

    def counts(self) -> tuple[int, int]:
        """Layers, and heads of a layer: none."""
        return self.config.encoder_layers, self.config.encoder_attention_heads

    def masks(self) -> Mapping[str, tuple[int, int]]:
        """Return nothing: there are no heads to mask."""
        return {}

    def _size(self) -> str:
        return "1 layer, no heads"
