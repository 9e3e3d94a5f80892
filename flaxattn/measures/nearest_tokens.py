# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Corpus search by head: the contexts in which a head does most nearly what it does here.

After exBERT (Hoover et al. 2020), exactly: every token of an index is compared, none is skipped.
It reads an index (`flaxattn.store.token_index`); who makes the vector that is searched for is not
known here.
"""

import collections
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from flaxattn.errors import InputError
from flaxattn.store.token_index import HeadIndex

_BLOCK = 16_384  # vectors that are compared together
SPECIAL = "special"
ROOT = "root"


class Token(NamedTuple):
    """A token in its text.

    Attributes:
        token: As a person reads it.
        position: In its text, from 0, special tokens counted.
        start: First character.
        stop: The one after the last.
        special: Whether the model added it.
        tag: Universal part of speech of its word; None without a tree.
        relation: Of its word to its governor.
        governor: Words from its word to the governor; None for a root, and without a tree.
    """

    token: str
    position: int
    start: int
    stop: int
    special: bool
    tag: str | None
    relation: str | None
    governor: int | None


class Hit(NamedTuple):
    """A token that was found.

    Attributes:
        similarity: Cosine.
        id: Of its text.
        text: The text.
        file: Where that stands.
        line: In that file, from 1.
        token: The token.
        strongest: The token that it attends to most; None where no head was named.
    """

    similarity: float
    id: str
    text: str
    file: str
    line: int
    token: Token
    strongest: Token | None


def nearest(
    index: HeadIndex,
    vector: Float[np.ndarray, " D"],
    layer: int,
    head: int | None = None,
    *,
    top: int = 20,
    one_per_text: bool = False,
) -> list[Hit]:
    """The tokens of an index whose vectors are most similar to one.

    Cost: one product of every vector of the head, P D multiplications, from the disk. Memory: a
    block of 16,384 vectors, the cosines and the tables of one shard.
    """
    if head is None and index.kind != "hidden":
        raise InputError(f"{index.path} has a vector per head\nname a head, such as {layer}.0")
    if top < 1:
        raise InputError(f"top is {top}, expected at least 1")
    chosen = index.heads[0] if head is None else head
    wanted = np.asarray(vector, np.float32)
    norm = float(np.linalg.norm(wanted))
    if not math.isfinite(norm) or norm == 0:
        raise InputError(
            f"the vector that is searched for has norm {norm}\nthis head says nothing of this token"
        )
    wanted = wanted / norm
    best = np.zeros((0, 3))  # similarity, shard, place among its vectors
    for shard in range(index.shards):
        stored = index.vectors(shard, layer, chosen)
        if stored.shape[1:] != wanted.shape:
            raise InputError(
                f"the vector has {wanted.shape}, those of the index have {stored.shape[1:]}"
            )
        blocks = (stored[i : i + _BLOCK] for i in range(0, len(stored) or 1, _BLOCK))
        values = np.concatenate([block.astype(np.float32) @ wanted for block in blocks])
        order = np.argsort(-values, kind="stable")
        if one_per_text:
            tokens = index.table(shard, "tokens")
            texts = tokens["text"].to_numpy()[~tokens["special"].to_numpy()]
            order = order[np.sort(np.unique(texts[order], return_index=True)[1])]
        order = order[:top]
        found = np.column_stack([values[order], np.full(len(order), shard), order])
        best = np.concatenate([best, found])
        best = best[np.argsort(-best[:, 0], kind="stable")[:top]]
    return _hits(index, best, layer, head)


def _hits(
    index: HeadIndex, best: Float[np.ndarray, "N 3"], layer: int, head: int | None
) -> list[Hit]:
    """Look up the tokens at places of vectors, shard by shard, in the given order."""
    found: dict[int, Hit] = {}
    for shard in np.unique(best[:, 1]).astype(int).tolist():
        tokens, texts = index.table(shard, "tokens"), index.table(shard, "texts")
        plain = np.flatnonzero(~tokens["special"].to_numpy())
        strongest = None if head is None else index.strongest(shard, layer, head)
        for number in np.flatnonzero(best[:, 1] == shard).tolist():
            place = int(best[number, 2])
            row = int(plain[place])
            text = texts.slice(tokens["text"][row].as_py(), 1).to_pylist()[0]
            other = None
            if strongest is not None:
                other = _token(tokens, text["first"] + int(strongest[place]))
            found[number] = Hit(
                min(float(best[number, 0]), 1.0),
                text["id"],
                text["text"],
                text["file"],
                text["line"],
                _token(tokens, row),
                other,
            )
    return [found[number] for number in range(len(best))]


def _token(tokens: pa.Table, row: int) -> Token:
    facts = tokens.slice(row, 1).to_pylist()[0]
    return Token(*(facts[name] for name in Token._fields))


def histograms(hits: Sequence[Hit]) -> dict[str, dict[str, dict[str, int]]]:
    """Count properties of the tokens found, and of those that they attend to most."""
    pairs = [(hit.token, hit.strongest) for hit in hits]
    others = [(one, other) for one, other in pairs if other is not None]
    found = {"found": _kinds([one for one, _ in pairs])}
    if others:
        offsets = [f"{other.position - one.position:+d}" for one, other in others]
        found["strongest"] = _kinds([other for _, other in others]) | {"offset": _counts(offsets)}
    return found


def _kinds(tokens: Sequence[Token]) -> dict[str, dict[str, int]]:
    kinds = [("tag", lambda token: token.tag), ("relation", lambda token: token.relation)]
    kinds.append(("governor", _way))
    return {
        name: _counts([SPECIAL if token.special else kind(token) for token in tokens])
        for name, kind in kinds
    }


def _way(token: Token) -> str | None:
    if token.governor is None:
        return None if token.relation is None else ROOT
    return f"{token.governor:+d}"


def _counts(values: Sequence[str | None]) -> dict[str, int]:
    """Count each value; among equally frequent ones the first in the alphabet comes first."""
    counts = collections.Counter(value for value in values if value is not None)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
