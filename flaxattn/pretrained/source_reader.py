# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sources as an encoder takes them: what encoder-decoders and the encoder of a T5 alone share."""

from typing import Any

import numpy as np
from jaxtyping import Int

from flaxattn.errors import InputError
from flaxattn.models.rnn_config import EncoderDecoderConfig
from flaxattn.models.t5_config import T5Config
from flaxattn.pretrained import model_inputs
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.readings import TokenizedTexts
from flaxattn.text.text_lists import text_list
from flaxattn.text.token_batch import Reader
from flaxattn.text.words import words_read
from flaxattn.trace.trace import Trace


class SourceReader(Pretrained):
    """A model whose encoder reads texts by themselves; its parts are described at `Pretrained`."""

    config: EncoderDecoderConfig

    @property
    def limit(self) -> int:
        """Most positions of a source, and of a target."""
        return self.config.max_position_embeddings

    @property
    def biased_scores(self) -> bool:
        """True where scores have a bias by position, as in T5."""
        return isinstance(self.config, T5Config)

    def _sources(self, texts: Any, ids: Any, mask: Any, truncate: bool) -> TokenizedTexts:
        """Checked arguments of the encoder, and the metadata of the texts."""
        if (texts is None) == (ids is None):
            raise InputError("give either texts or input_ids")
        if texts is None:
            given = self._source(ids, mask)
            metadata: dict[str, Any] = {"tokens": tokens_of(self.tokenizer, given["input_ids"])}
        else:
            texts = text_list(texts)
            encoded = self._reader().encode(texts, max_length=self.limit, truncate=truncate)
            given = self._source(encoded.input_ids, encoded.attention_mask)
            rows = [(text,) for text in texts]
            parts = zip(rows, encoded.offsets, encoded.special, strict=True)
            metadata = {
                "tokens": encoded.tokens,
                "words": [words_read(row[0], places, added) for row, places, added in parts],
                "special": encoded.special,
                "texts": rows,
                "truncated": encoded.truncated,
                "spans": encoded.spans(),
            }
        return TokenizedTexts(
            given, Trace(**metadata, mask=given["attention_mask"] == 1, model=self.name)
        )

    def _alone(self, text: Any, text_b: Any, truncate: bool) -> TokenizedTexts:
        """Texts of an encoder without a decoder, which takes no second ones."""
        if text_b is not None:
            raise InputError(
                f"The model {self.name!r} is a {self.config.architectures[0]}, which reads no "
                "pairs.\nLeave out the second texts."
            )
        return self._sources(text, None, None, truncate)

    def _source(self, ids: Any, mask: Any) -> dict[str, Any]:
        """Checked arguments of the encoder; the mask is filled in, for one program to serve all."""
        c = self.config
        ranges = {"input_ids": (c.vocab_size, "vocab_size"), "attention_mask": model_inputs.MASK}
        given = {"input_ids": ids, "attention_mask": mask}
        arrays = model_inputs.checked(given, ranges, c.max_position_embeddings)
        return {"attention_mask": np.ones(arrays["input_ids"].shape, np.int32)} | arrays


def tokens_of(reader: Reader | None, ids: Int[np.ndarray, "B T"]) -> list[list[str]]:
    """Readable tokens; the ids themselves where there is no tokenizer."""
    if reader is None:
        return [[str(number) for number in row] for row in ids.tolist()]
    return [reader.readable_tokens(row) for row in ids.tolist()]
