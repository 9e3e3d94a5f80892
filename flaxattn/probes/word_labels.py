# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Labels of words out of treebanks: parts of speech and morphological features.

Also the control task of them, in which each word type has a label drawn at random.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from flaxattn.errors import InputError
from flaxattn.probes.word_states import WordStates

Labels = Callable[[WordStates], list[str | None]]
"""Labels of the words of a sentence; None for words that have none and are not counted."""

_FEATURE = "feats."
_DRAWS = 2**32


def word_labels(what: str) -> Labels:
    """Return the function that gives the labels of a sentence."""
    feature = what.removeprefix(_FEATURE)
    if what not in ("upos", "xpos") and not re.fullmatch(r"feats\.[A-Za-z0-9\[\]]+", what):
        raise InputError(
            f"labels {what!r} are unknown\nexpected upos, xpos or feats.NAME\n"
            "name a feature of the treebank, such as feats.Number"
        )

    def labels(sentence: WordStates) -> list[str | None]:
        if what == "upos":
            return [_filled(word.tag) for word in sentence.words]
        if what == "xpos":
            return [_filled(word.xpos) for word in sentence.words]
        return [_filled(dict(word.feats).get(feature, "")) for word in sentence.words]

    return labels


def _filled(value: str) -> str | None:
    return None if value in ("", "_") else value


def control_labels(train: Sequence[WordStates], labels: Labels, seed: int = 0) -> Labels:
    """Return the control task of labels: each word type has one label, drawn for all sentences.

    Labels are drawn as often as they occur in `train` (Hewitt & Liang 2019), so that a probe can
    only learn them by heart, word by word. A type is a word with the same tokens.
    """
    counts = Counter(label for text in train for label in labels(text) if label is not None)
    names = sorted(counts)
    ends = np.cumsum([counts[name] for name in names]) / max(counts.total(), 1)

    def drawn(sentence: WordStates) -> list[str | None]:
        shares = (zlib.crc32(repr((seed, one)).encode()) / _DRAWS for one in sentence.types)
        places = [int(np.searchsorted(ends, share, side="right")) for share in shares]
        return [
            None if label is None else names[min(place, len(names) - 1)]
            for label, place in zip(labels(sentence), places, strict=True)
        ]

    return drawn
