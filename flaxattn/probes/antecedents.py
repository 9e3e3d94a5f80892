# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Mentions of a document and what came before them: candidates, right ones, and three baselines.

Words of the baselines are English. Which heads find the right ones is counted in `coreference`.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from flaxattn.corpus.mentions import PRONOUN, Document, Mention
from flaxattn.probes.mention_resolution import FROM_MENTION, NEAREST, TO_MENTION, MentionScores

HEAD_WORD, RULES = "head word", "rules"
_Agreement = tuple[str | None, str | None, str | None]  # number, gender, person; None for any
_THIRD: _Agreement = (None, None, "3")
_PRONOUNS: dict[str, _Agreement] = {
    **dict.fromkeys(("i", "me", "my", "mine", "myself"), ("one", None, "1")),
    **dict.fromkeys(("we", "us", "our", "ours", "ourselves"), ("many", None, "1")),
    **dict.fromkeys(("you", "your", "yours", "yourself", "yourselves"), (None, None, "2")),
    **dict.fromkeys(("he", "him", "his", "himself"), ("one", "masculine", "3")),
    **dict.fromkeys(("she", "her", "hers", "herself"), ("one", "feminine", "3")),
    **dict.fromkeys(("it", "its", "itself"), ("one", "neuter", "3")),
    **dict.fromkeys(("they", "them", "their", "theirs", "themselves"), ("many", None, "3")),
}
_NUMBERS = {"NN": "one", "NNP": "one", "NNS": "many", "NNPS": "many"}


class Antecedents(NamedTuple):
    """A mention, the words before it that stand for mentions, and which of them are right.

    Attributes:
        mention: Which one.
        candidates: Numbers of words: heads of mentions, in order.
        right: Places among these of the ones that mean the same entity.
        simple: Place of the one that each baseline takes; None if it takes none.
    """

    mention: Mention
    candidates: tuple[int, ...]
    right: tuple[int, ...]
    simple: dict[str, int | None]


def antecedents(document: Document) -> Iterator[Antecedents]:
    """The mentions of a document that have an antecedent.

    Candidates are the heads of all mentions that begin before the mention does, or with it and are
    longer, and whose head is before its own; mentions with one head are one candidate.

    Baselines: the nearest candidate; the nearest one with the same word as its head, else none;
    and the nearest one that the first of four rules takes: the same words, the same head word, the
    same number, gender and person as far as they are known, any. The paper (Clark et al. 2019)
    names these, and neither what the second does without such a word nor how agreement is known;
    both are ours.
    """
    known: set[tuple[str, int]] = set()
    for number, mention in enumerate(document.mentions):
        if (mention.entity, mention.head) in known:
            continue
        known.add((mention.entity, mention.head))
        before = [m for m in document.mentions[:number] if m.head < mention.head]
        heads = sorted({m.head for m in before})
        same = {m.head for m in before if m.entity == mention.entity}
        if same:
            right = tuple(place for place, head in enumerate(heads) if head in same)
            answers = _baselines(document, mention, before)
            simple = {n: None if a is None else heads.index(a) for n, a in answers.items()}
            yield Antecedents(mention, tuple(heads), right, simple)


def _baselines(
    document: Document, mention: Mention, before: Sequence[Mention]
) -> dict[str, int | None]:
    """The head word of the mention that each baseline takes."""
    near = sorted(before, key=lambda one: -one.head)

    def head(one: Mention) -> str:
        return document.words[one.head].form.lower()

    def words(one: Mention) -> list[str]:
        return [word.form.lower() for word in document.words[one.start : one.stop]]

    rules = [
        [one for one in near if words(one) == words(mention)],
        [one for one in near if head(one) == head(mention)],
        [one for one in near if _agree(_agreement(document, one), _agreement(document, mention))],
        near,
    ]
    first = next(taken[0] for taken in rules if taken)
    return {
        NEAREST: near[0].head,
        HEAD_WORD: rules[1][0].head if rules[1] else None,
        RULES: first.head,
    }


def _agreement(document: Document, mention: Mention) -> _Agreement:
    word = document.words[mention.head]
    if document.kind(mention) == PRONOUN:
        return _PRONOUNS.get(word.form.lower(), _THIRD)
    return _NUMBERS.get(word.tag), None, "3"


def _agree(one: _Agreement, other: _Agreement) -> bool:
    return all(a == b or a is None or b is None for a, b in zip(one, other, strict=True))


def antecedent_scores(
    document: Document,
    weights: Float[np.ndarray, "L H W W"],
    layers: tuple[int, ...],
    heads: tuple[int, ...],
    *,
    among_words: bool = False,
) -> Iterator[MentionScores]:
    """Attention between the head of each mention with an antecedent and its candidates."""
    for one in antecedents(document):
        requested, places = one.mention.head, one.candidates
        right, simple = one.right, one.simple
        if among_words:
            others = [word for word in range(len(document.words)) if word != requested]
            right = tuple(others.index(places[number]) for number in right)
            simple = {
                name: None if answer is None else others.index(places[answer])
                for name, answer in simple.items()
            }
            places = tuple(others)
        row, column = weights[:, :, requested], weights[..., requested]
        yield MentionScores(
            layers,
            heads,
            {FROM_MENTION: _candidates(row, places), TO_MENTION: _candidates(column, places)},
            right,
            simple,
            document.kind(one.mention),
        )


def _candidates(
    shares: Float[np.ndarray, "L H W"], places: Sequence[int]
) -> Float[np.ndarray, "C L H"]:
    return np.moveaxis(shares[..., list(places)], 2, 0)
