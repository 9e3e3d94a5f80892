# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Gold pairs of a relation in one sentence, judged as `governor_probe` judges heads.

A head names a word for every word of the sentence; a pair is hit where that is the governor.
"""

import numpy as np
from jaxtyping import Int

from flaxattn.measures.gold_pairs import HIT, MISS, UNJUDGED, GoldPair, GoldPairs, runs_of
from flaxattn.probes.governor_probe import TO_GOVERNOR, named_words
from flaxattn.probes.word_maps import WordMaps, word_maps_of
from flaxattn.text.position_labels import PositionLabels
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.selection import layer_weights

_TOLD = {
    True: (
        "each word and its governor ({})",
        "the word gives no other word more of its attention than its governor",
    ),
    False: (
        "each governor and its dependent ({})",
        "no other word gives the dependent a larger share of its attention",
    ),
}


def governor_pairs(
    relation: str, direction: str, layout: PositionLabels, record: AttentionRecord
) -> GoldPairs:
    """The gold pairs of a relation, from the word that attends to the word attended to."""
    forward = direction == TO_GOVERNOR
    kept = [positions for positions in layout.words if positions]
    weights = np.asarray(layer_weights(record, record.layers, allow_nan=True))
    words = word_maps_of(weights, layout)
    places = [
        place
        for place in np.flatnonzero(words.governors >= 0).tolist()
        if relation in ("any", words.relations[place], words.relations[place].split(":")[0])
    ]
    pairs = []
    for place in places:
        dependent, governor = kept[place], kept[words.governors[place]]
        query, keys = (dependent, governor) if forward else (governor, dependent)
        pairs.append(GoldPair((query[0], query[-1]), runs_of(keys)))
    about, rule = _TOLD[forward]
    named = "any relation" if relation == "any" else relation
    return GoldPairs(relation, about.format(named), rule, pairs, _hits(words, places, direction))


def _hits(words: WordMaps, places: list[int], direction: str) -> Int[np.ndarray, "L H P"]:
    answers = named_words(words)[direction][..., places]
    hits = np.where(answers == words.governors[places], HIT, MISS)
    broken = np.isnan(words.weights).any((-2, -1))
    return np.where(broken[..., None], UNJUDGED, hits).astype(np.int8)
