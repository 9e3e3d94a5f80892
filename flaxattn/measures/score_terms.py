# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Definitions of scores of heads, as sums over the attention of one text: `Terms`.

The scores of an encoder by itself are in `encoder_terms`, those of other sides in `side_terms`,
those of related words in `tree_terms`; all are evaluated in `score_sums`. A score is one of four
kinds of sums:

* rows: coefficients times a statistic of each query, see `score_sources`;
* keys: coefficients times what each key receives from all queries;
* pairs: coefficients times single weights;
* hits: coefficients times whether a query's strongest key, delimiters apart, lies in a range.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.measures.side_labels import SideLabels
from flaxattn.text.position_labels import UNIVERSAL_RELATIONS

SIDE_ROLES = (
    *("own", "previous", "next", "first", "duplicate", "induction"),
    *("diagonal", "end", "copy"),
)
"""Roles of decoders, of their encoders and of cross-attention, which `side_terms` defines."""
PAPER_RELATIONS = ("nsubj", "obj", "amod", "advmod")
"""Those of the paper; Universal Dependencies call its dobj obj."""


class ScoreSpec(NamedTuple):
    """Name of a score of a head: `("score", "local")`.

    The kinds are `mean` (statistics, averaged over queries), `tag` (mass on a part of speech),
    `score` and `mass` of a role (lift, and share of attention), `control` (the score of pairs of
    unrelated words as far apart), `beyond` (the difference of the two), `pattern`, `strongest`
    (shares of queries) and `hit` (share of related words).
    """

    kind: str
    name: str


@dataclasses.dataclass(frozen=True)
class ScoreOptions:
    """Roles to look for, and how they are defined.

    Attributes:
        relations: Of dependency trees, each a role in either direction.
        annotated: Whether the texts have trees.
        seed: Of the unrelated words that related ones are compared with.
        pande_parity: Whether to repeat the public notebooks of "The heads hypothesis", errors
            included: the last two bands counted one key too large, block scores times the row's
            entropy, the first separator a query of the second block, no block in single texts,
            tokens found at their first occurrence.
        only: Scores to evaluate; None for all. What is left out costs nothing.
    """

    relations: tuple[str, ...] = PAPER_RELATIONS
    annotated: bool = True
    seed: int = 0
    pande_parity: bool = False
    only: tuple[ScoreSpec, ...] | None = None

    @property
    def syntactic(self) -> list[str]:
        """Roles of a tree: from a word to its governor, and to a dependent."""
        names = [*self.relations, "any"] if self.annotated else []
        return [f"{side}({name})" for name in names for side in ("governor", "dependent")]

    @property
    def roles(self) -> list[str]:
        """Every role that may have a score; which ones do depends on the side of the model."""
        block = ["block"] if self.pande_parity else ["block", "block_entropy"]
        return ["local", "cls", "sep", "delimiter", *block, *SIDE_ROLES, *self.syntactic]


@dataclasses.dataclass
class Terms:
    """The sums of one text. A column that is not there has no value for it: no such words.

    Attributes:
        labels: Labels of the text's positions, which the statistics read.
        rows: Row statistic and coefficients per query; some scores have two.
        keys: Coefficients per key.
        pairs: Query, key and coefficient of single weights.
        hits: Query, first and last key, and coefficient.
        ceilings: The highest score that a head could have, by role.
        counts: How many pairs of words a syntactic role has.
        offsets: Words between them, key minus query.
    """

    labels: SideLabels
    rows: dict[tuple[ScoreSpec, str], Float[np.ndarray, " Q"]] = dataclasses.field(
        default_factory=dict
    )
    keys: dict[ScoreSpec, Float[np.ndarray, " K"]] = dataclasses.field(default_factory=dict)
    pairs: dict[ScoreSpec, list[tuple[int, int, float]]] = dataclasses.field(default_factory=dict)
    hits: dict[ScoreSpec, list[tuple[int, int, int, float]]] = dataclasses.field(
        default_factory=dict
    )
    ceilings: dict[str, float] = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    offsets: dict[str, list[int]] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return self.labels.keys

    @functools.cached_property
    def places(self) -> dict[tuple[int, int], int]:
        """Every single weight that is needed, with its place; asked when the terms are complete."""
        pairs = dict.fromkeys((i, j) for found in self.pairs.values() for i, j, _ in found)
        return {pair: place for place, pair in enumerate(pairs)}

    @property
    def columns(self) -> set[ScoreSpec]:
        """The scores that have a value."""
        rows = {column for column, _ in self.rows}
        return rows | self.keys.keys() | self.pairs.keys() | self.hits.keys()

    def restricted(self, only: Sequence[ScoreSpec] | None) -> "Terms":
        """The terms of some scores, and of those that they are differences of."""
        if only is None:
            return self
        wanted = {*only}
        wanted |= {
            ScoreSpec(kind, name) for own, name in only if own == "beyond" for kind in _APART
        }
        wanted |= {_OWN} if _OTHER in wanted else set()
        return dataclasses.replace(
            self,
            rows={key: row for key, row in self.rows.items() if key[0] in wanted},
            keys={key: row for key, row in self.keys.items() if key in wanted},
            pairs={key: row for key, row in self.pairs.items() if key in wanted},
            hits={key: row for key, row in self.hits.items() if key in wanted},
        )


_APART = ("score", "control")  # `beyond` is their difference
_OWN, _OTHER = ScoreSpec("mean", "own segment"), ScoreSpec("mean", "other segment")


def check_relations(relations: Sequence[str]) -> tuple[str, ...]:
    """Relations that can be requested; `all` stands for every universal one."""
    if list(relations) == ["all"]:
        return UNIVERSAL_RELATIONS
    for relation in relations:
        if relation.split(":")[0] not in UNIVERSAL_RELATIONS:
            raise InputError(
                f"{relation!r} is not a relation between words in Universal Dependencies\n"
                f"choose of {', '.join(UNIVERSAL_RELATIONS)}, or all"
            )
    if not relations:
        raise InputError("no relation is named\nname nsubj, say, or all")
    return tuple(dict.fromkeys(relations))
