# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A score for each input token, from attribution maps of any kind.

Attribution maps weigh every key for every query, in each layer and head; a prediction is made at
one position from all layers. `token_scores` names how each kind of map is reduced to input tokens.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from flaxattn.attribution.rollout import rolled_out
from flaxattn.errors import InputError, check_arguments

_LAST = ("attention", "effective")
_ROLLED = {"rollout": 0.5, "norm": 0.5, "zeroing": 0.0}  # share of the residual connection
_FINAL = ("flow", "chefer")
_SUMMED = ("gradient", "relevance")
MAP_KINDS = (*_LAST, *_ROLLED, *_FINAL, *_SUMMED)
_BESIDE_ENCODER = 0.5


@check_arguments()
def token_scores(
    kind: str, maps: Mapping[str, Float[np.ndarray, "L H Q K"]], position: int | None
) -> Float[np.ndarray, " S"]:
    """Scores of input tokens for a prediction, from the maps of one text.

    - `attention`, `effective`: the last layer's mean over heads, its row at the position.
    - `rollout`, `norm`, `zeroing`: means over heads, rows divided by their sums, multiplied through
      all layers with the residual connection as half of each (Abnar & Zuidema 2020); zeroed values
      already count it, so there it has no share (Mohebbi et al. 2023). `rollout` takes attention.
    - `flow`, `chefer`: maps through all layers already; the last layer's row at the position.
    - `gradient`, `relevance`: summed over layers, heads and queries, as each entry is a share in
      the prediction itself; it is credited to the key.

    With an encoder and a decoder the tokens are those of the source: rows are those of
    cross-attention; what is multiplied through layers goes through encoder, decoder and
    cross-attention, which shares half of a layer with its input; sums are over encoder and
    cross-attention.

    >>> import flaxattn as fa
    >>> trace = fa.from_pretrained("tiny-bert").trace("The cat is very sad.")
    >>> fa.token_scores("rollout", {"encoder": trace.encoder.weights[:, 0]}, position=0).shape
    (8,)

    Args:
        kind: A name of `MAP_KINDS`.
        maps: By side, as `fa.attention_norms` and its like return them for one text.
        position: Position that predicts it, on the decoder's side if there is one; None for the
            mean over positions.

    Returns:
        float64, a score for each of S tokens; larger is more important.

    Raises:
        InputError: For an unknown kind, or sides that it is not defined for.
    """
    if kind not in MAP_KINDS:
        raise InputError(
            f"There are no maps of kind {kind!r} to score tokens by.\n"
            f"Choose one of {', '.join(MAP_KINDS)}."
        )
    if kind == "flow" and "cross" in maps:
        raise InputError(
            "Attention flow is that of one stack; these are maps of an encoder and a decoder.\n"
            "Take rollout."
        )
    side = "cross" if "cross" in maps else next(iter(maps))
    if kind in _SUMMED:
        sides = [side for side in maps if side != "decoder" or len(maps) == 1]
        return np.sum([np.sum(maps[side], (0, 1, 2), np.float64) for side in sides], axis=0)
    if kind not in _ROLLED:
        return _row(np.asarray(maps[side], np.float64)[-1].mean(0), position)
    means = {name: _shares(np.asarray(one, np.float64).mean(1)) for name, one in maps.items()}
    if side != "cross":
        return _row(_rolled(means[side], _ROLLED[kind]), position)
    return _row(_through_both(means, _ROLLED[kind]), position)


def _rolled(shares: Float[np.ndarray, "L S S"], residual: float) -> Float[np.ndarray, "S S"]:
    own = np.eye(shares.shape[-1])[None]
    return rolled_out((1 - residual) * shares + residual * own)[-1]


def _through_both(
    shares: Mapping[str, Float[np.ndarray, "L Q K"]], residual: float
) -> Float[np.ndarray, "T S"]:
    """Shares of source positions in the last decoder layer; the target's tokens have the rest."""
    encoded = _rolled(shares["encoder"], residual)
    found = np.zeros(shares["cross"].shape[1:])
    for own, across in zip(shares["decoder"], shares["cross"], strict=True):
        found = (1 - residual) * own @ found + residual * found
        found = (1 - _BESIDE_ENCODER) * across @ encoded + _BESIDE_ENCODER * found
    return found


def _shares(maps: Float[np.ndarray, "L Q K"]) -> Float[np.ndarray, "L Q K"]:
    """Rows that sum to one, or are 0."""
    total = maps.sum(-1, keepdims=True)
    return np.divide(maps, total, out=np.zeros_like(maps), where=total > 0)


def _row(matrix: Float[np.ndarray, "Q K"], position: int | None) -> Float[np.ndarray, " K"]:
    return matrix.mean(0) if position is None else matrix[position]
