# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an encoder over texts with pronouns and hands out what its heads say of each.

Which candidate wins, and what that is worth, is decided in `flaxattn.probes.mention_resolution`.
"""

from collections.abc import Iterable, Iterator

from flaxattn.corpus.bad_rows import Problem
from flaxattn.corpus.pronouns import Pronoun
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.pipeline.labelled_texts import LabelledText
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_bert import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.probes.extract_word_maps import whole_maps
from flaxattn.probes.mention_resolution import pronoun_scores
from flaxattn.probes.watched_mentions import JudgedMention
from flaxattn.text.words import pieces_of_words
from flaxattn.trace.selection import layer_weights


def pronoun_maps(
    model: Pretrained,
    pronouns: Iterable[Pronoun],
    *,
    pooling: str = "sum",
    reading: ReadingOptions = DEFAULTS,
) -> Iterator[JudgedMention]:
    """Attention between pronouns and those whom they may mean, in order."""
    if not isinstance(model, PretrainedBert):
        raise InputError(
            f"probes read the attention of encoders; {model.name!r} is none\nname a BERT"
        )
    waiting: dict[str, tuple[int, Pronoun]] = {}

    def texts() -> Iterator[Text]:
        for number, one in enumerate(pronouns):
            name = f"{number} {one.id}"  # ids may repeat
            waiting[name] = number, one
            yield Text(0, name, one.text, None, one.file, one.line)

    for read, seen in whole_maps(model, texts(), reading):
        number, one = waiting.pop(read.text.id)
        pronoun, *candidates = _places(model, one, read)
        if not pronoun or not all(candidates):
            told = f"the tokenizer leaves nothing of the pronoun {one.id!r}, or of a candidate"
            reading.problems.report(Problem(one.file, one.line, "", "no-pieces", told))
            continue
        scores = pronoun_scores(
            layer_weights(seen, seen.layers, allow_nan=True),
            pronoun,
            candidates,
            one.right,
            group=one.group,
            layers=seen.layers,
            heads=seen.heads,
            pooling=pooling,
        )
        right = [] if one.right is None else [candidates[one.right]]
        yield JudgedMention(number, one.id, one.text, pronoun, right, scores)


def _places(model: PretrainedBert, one: Pronoun, read: LabelledText) -> list[list[int]]:
    """Pieces of the pronoun and of each candidate."""
    assert model.tokenizer is not None
    encoded = model.tokenizer.encode(one.text, max_length=1 << 30)
    offsets = encoded.offsets[0][: len(read.layout)]
    special = read.layout.special.tolist()
    return pieces_of_words([one.span, *one.candidates], offsets, special)
