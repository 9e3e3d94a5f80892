# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention of each head to the right words of a sentence, by relation.

It separates sentences that show a head's relation well from those that do not; how often a head
is right is counted in `dependency`.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from jaxtyping import Float

from flaxattn.measures.evidence import Evidence
from flaxattn.probes.governor_probe import FROM_GOVERNOR, TO_GOVERNOR
from flaxattn.probes.word_maps import WordMaps


def arc_weights(words: WordMaps) -> dict[tuple[str, str], Float[np.ndarray, "L H"]]:
    """Mean share of attention along the arcs of each relation, in either direction."""
    arcs: dict[str, list[int]] = {}
    for place in np.flatnonzero(words.governors >= 0).tolist():
        relation = words.relations[place]
        for name in dict.fromkeys(("any", relation.split(":")[0], relation)):
            arcs.setdefault(name, []).append(place)
    found = {}
    for name, places in arcs.items():
        governors = words.governors[places]
        found[TO_GOVERNOR, name] = words.weights[..., places, governors].mean(-1)
        found[FROM_GOVERNOR, name] = words.weights[..., governors, places].mean(-1)
    return found


class Watched:
    """Sentences on their way to a probe, of which those are remembered that show relations best.

    Args:
        keep: How many of each relation, direction and head.

    Attributes:
        evidence: By direction and relation.
        names: Of the sentences that are kept, by number.
    """

    def __init__(self, keep: int) -> None:
        self.evidence = Evidence(keep)
        self.names: dict[int, str] = {}
        self._count = 0

    def __call__(self, sentences: Iterable[WordMaps]) -> Iterator[WordMaps]:
        """The same sentences."""
        for words in sentences:
            number, self._count = self._count, self._count + 1
            for question, weights in arc_weights(words).items():
                self.evidence.add(question, weights[None], [number])
            self.names[number] = words.name
            if self._count % 256 == 0:
                self._forget()
            yield words
        self._forget()

    def _forget(self) -> None:
        kept = self.evidence.texts()
        self.names = {number: name for number, name in self.names.items() if number in kept}
