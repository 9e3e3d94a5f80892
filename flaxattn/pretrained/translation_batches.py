# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Many sentences through an encoder-decoder: sorted by length, in batches of few shapes.

Results are in the order of the inputs. `generate` writes the sentences; commands read and write the
files.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from flaxattn.errors import InputError
from flaxattn.pretrained import model_inputs
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.text.token_batch import Reader
from flaxattn.trace.trace import Trace

Row = Int[np.ndarray, " S"]
_TOGETHER = 1024  # texts per call of the tokenizer


class Hypothesis(NamedTuple):
    """Generated ids of a source, special ones included, and their log-probability.

    With beams the latter is under the length penalty.
    """

    ids: Int[np.ndarray, " T"]
    score: float


class Translation(NamedTuple):
    """Translation of a text by a model.

    Attributes:
        texts: translations, the best first.
        scores: log-probability of each, with beams under the length penalty.
    """

    texts: tuple[str, ...]
    scores: tuple[float, ...]


def translate(
    model: PretrainedSeq2Seq,
    texts: Sequence[str],
    *,
    batch: int = 32,
    truncate: bool = False,
    on_done: Callable[[int], object] = lambda count: None,
    **settings: Any,
) -> list[Translation]:
    """Translate texts."""
    count = settings.get("num_return_sequences", 1)
    found = [Translation(("",) * count, (0.0,) * count) for _ in texts]
    filled = [number for number, text in enumerate(texts) if text.strip()]
    on_done(len(texts) - len(filled))
    rows = encode(model, [texts[number] for number in filled], truncate, filled)
    generated = generate_targets(model, rows, batch=batch, on_done=on_done, **settings)
    for number, hypotheses in zip(filled, generated, strict=True):
        words = tuple(target_tokenizer(model).decode(h.ids.tolist()) for h in hypotheses)
        found[number] = Translation(words, tuple(h.score for h in hypotheses))
    return found


def encode(
    model: PretrainedSeq2Seq,
    texts: Sequence[str],
    truncate: bool = False,
    numbers: Sequence[int] | None = None,
) -> list[Row]:
    """The ids that the encoder reads of each text."""
    limit, rows = model.config.max_position_embeddings, []
    for start in range(0, len(texts), _TOGETHER):
        some = texts[start : start + _TOGETHER]
        named = range(start, start + len(some)) if numbers is None else numbers[start:]
        try:
            encoded = _reader(model).encode(some, max_length=limit, truncate=True)
        except InputError as error:
            raise _which(model, some, named) or error from error
        for number, cut in zip(named, encoded.truncated, strict=False):
            if cut and not truncate:
                raise SourceError(
                    number,
                    f"has {limit + cut} tokens, this model reads at most {limit}\n"
                    "shorten it, or pass truncate=True to cut it at the limit",
                )
        real = encoded.attention_mask == 1
        rows += [ids[mask] for ids, mask in zip(encoded.input_ids, real, strict=True)]
    return rows


def _which(
    model: PretrainedSeq2Seq, texts: Sequence[str], numbers: Sequence[int]
) -> "SourceError | None":
    """The first text that the tokenizer refuses by itself."""
    for number, text in zip(numbers, texts, strict=False):
        try:
            _reader(model).encode([text], truncate=True)
        except InputError as error:
            return SourceError(number, str(error).removeprefix("text 0 "))
    return None


class SourceError(InputError):
    """A source that the model cannot read.

    Attributes:
        number: which one, from 0.
        problem: what is wrong with it, a sentence without its subject.
    """

    def __init__(self, number: int, problem: str) -> None:
        self.number, self.problem = number, problem
        super().__init__(f"text {number} {problem}")


def generate_targets(
    model: PretrainedSeq2Seq,
    rows: Sequence[Row],
    *,
    batch: int = 32,
    on_done: Callable[[int], object] = lambda count: None,
    **settings: Any,
) -> list[list[Hypothesis]]:
    """Write a target for each source of ids.

    Sources are sorted by length; batches have one number of rows and lengths of `inputs.bucket`, so
    that few programs are compiled. A source's result does not depend on its batch.
    """
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    found: list[list[Hypothesis]] = [[] for _ in rows]
    for start in range(0, len(order), batch):
        members = order[start : start + batch]
        filled = [rows[number] for number in members] + [rows[members[-1]]] * (batch - len(members))
        width = model_inputs.bucket(len(filled[-1]), model.config.max_position_embeddings)
        ids, scores = model.generate(**_padded(filled, width, model), scores=True, **settings)
        each = len(ids) // batch
        for place, number in enumerate(members):
            mine = range(place * each, (place + 1) * each)
            found[number] = [Hypothesis(ids[i], float(scores[i])) for i in mine]
        on_done(len(members))
    return found


def traced(
    model: PretrainedSeq2Seq,
    texts: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    batch: int = 32,
    truncate: bool = False,
    on_done: Callable[[int], object] = lambda count: None,
    **settings: Any,
) -> list[tuple[str, Trace]]:
    """Translations with their attention, one trace per text."""
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    found: list[tuple[str, Trace] | None] = [None] * len(texts)
    for start in range(0, len(order), batch):
        members = order[start : start + batch]
        some = [texts[number] for number in members]
        if targets is None:
            generated, trace = model.generate(some, trace=True, truncate=truncate, **settings)
        else:
            generated = [targets[number] for number in members]
            trace = model.trace(some, generated, truncate=truncate, **settings)
        for place, number in enumerate(members):
            found[number] = generated[place], trace[place]
        on_done(len(members))
    return [one for one in found if one is not None]


def target_tokenizer(model: PretrainedSeq2Seq) -> Reader:
    """The tokenizer of the target language, which may be that of the source."""
    return _reader(model) if model.target_tokenizer is None else model.target_tokenizer


def _reader(model: PretrainedSeq2Seq) -> Reader:
    if model.tokenizer is None:
        raise InputError(
            f"the model {model.name!r} came without a tokenizer, so it cannot read text\n"
            "put the tokenizer's files into its directory"
        )
    return model.tokenizer


def _padded(rows: Sequence[Row], width: int, model: PretrainedSeq2Seq) -> dict[str, np.ndarray]:
    ids = np.full((len(rows), width), model.config.pad_token_id, np.int32)
    mask = np.zeros((len(rows), width), np.int32)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        mask[number, : len(row)] = 1
    return {"input_ids": ids, "attention_mask": mask}
