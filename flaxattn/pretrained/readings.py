# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenized texts: inputs of a model, with the text fields that a trace will have.

Every handle reads texts into one; `trace` runs the model on it at once, extraction takes it apart
into rows that it puts together by length. NumPy only: no model and no tokenizer is here.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from jaxtyping import Int

from flaxattn.pretrained import model_inputs
from flaxattn.trace.record import AttentionRecord, cut
from flaxattn.trace.trace import Trace

_TARGET = "decoder_"  # begins the names of the decoder's arguments, where there is an encoder


@dataclasses.dataclass(frozen=True)
class TokenizedTexts:
    """B texts, or pairs of texts, as a model takes them, padded on the right.

    Attributes:
        given: Arguments of the module, int32 `[B, S]`; those of a decoder beside an encoder,
            whose names begin with `decoder_`, are `[B, T]`.
        metadata: The trace without attention: tokens, masks, words, texts.
        written: Tokens `[B, T]` that a decoder beside an encoder generates where it reads `given`.
    """

    given: Mapping[str, Int[np.ndarray, "B S"]]
    metadata: Trace
    written: Int[np.ndarray, "B T"] | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        """Padded lengths: S, and T where an encoder has a decoder beside it."""
        names = ("input_ids", f"{_TARGET}input_ids")
        return tuple(self.given[name].shape[1] for name in names if name in self.given)

    def padded(self, limit: int) -> dict[str, Int[np.ndarray, "B S"]]:
        """The arguments, padded further to one of a few lengths."""
        found: dict[str, np.ndarray] = {}
        for target in (False, True):
            side = {n: a for n, a in self.given.items() if n.startswith(_TARGET) == target}
            found |= model_inputs.padded(side, limit) if side else {}
        return found

    def rows(self) -> list["TokenizedTexts"]:
        """Each text by itself, without padding."""
        sizes = [self._sizes(f"{side}attention_mask") for side in ("", _TARGET)]
        found = []
        for b in range(len(self.metadata)):
            given = {
                name: array[b : b + 1, : sizes[name.startswith(_TARGET)][b]]
                for name, array in self.given.items()
            }
            written = self.written
            if written is not None:
                written = written[b : b + 1, : sizes[True][b]]
            found.append(TokenizedTexts(given, self.metadata[b], written))
        return found

    def _sizes(self, mask: str) -> list[int]:
        return (self.given[mask] != 0).sum(1).tolist() if mask in self.given else []


def joined(
    metadata: Trace, sides: Mapping[str, AttentionRecord], lengths: tuple[int, ...], start: int = 0
) -> Trace:
    """A trace of metadata and attention records, cut to the lengths without padding."""
    source, target = (slice(start, start + n) for n in (lengths[0], lengths[-1]))
    extents = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    found = {
        side: cut(record, queries, keys)
        for side, (queries, keys) in extents.items()
        if (record := sides.get(side)) is not None
    }
    return dataclasses.replace(metadata, **found)
