# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Faithfulness of attributions: all kinds rank the tokens of the same texts, and these are removed.

An attribution is faithful as far as a prediction falls without the tokens that it ranks first, and
rises with them alone. All kinds are judged by the same model, predictions and steps.

Attribution maps weigh every key for every query, in each layer and head; a prediction is made at
one position from all layers. `token_scores` reduces each kind of map to one score for each input
token.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from flaxattn.attribution.attribution_maps import zeroing_of
from flaxattn.attribution.contributions import TextMaps, contributions
from flaxattn.attribution.relevance import (
    Prediction,
    Slopes,
    TokenScore,
    generic_relevance,
    predictions,
    recorded,
    sizes_of,
    slopes_of,
    tokens_of,
    weight_gradients,
)
from flaxattn.attribution.rollout import attention_flow, rolled_out
from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import Capture
from flaxattn.measures.significance import adjusted, bootstrap_interval, paired_test
from flaxattn.pipeline.online_moments import Moments
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.pretrained.head_projections import output_projections
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.record import layer_weights
from flaxattn.trace.result_table import ResultTable, columns_of
from flaxattn.trace.trace import Trace

RANDOM = "random"
KINDS = (
    "attention",
    "rollout",
    "flow",
    "norm",
    "effective",
    "gradient",
    "zeroing",
    "relevance",
    "chefer",
    "input_gradient",
    "integrated",
    RANDOM,
)
SLOW = ("flow", "zeroing")
DEFAULT_KINDS = tuple(kind for kind in KINDS if kind not in SLOW)
SCALES = ("probability", "log")
_POSITIONS = 2**14  # of the rows that run at once


@dataclasses.dataclass(frozen=True, repr=False)
class Faithfulness(ResultTable):
    """Curves of every kind of attribution on the same texts.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> kinds, texts = ("attention", "random"), ["The captain saw the"]
    >>> curves = fa.faithfulness(model, texts, kinds=kinds, steps=2, random_orders=1)
    >>> sorted(curves.areas())
    ['comprehensiveness', 'deletion', 'gap', 'insertion', 'sufficiency']

    Attributes:
        kinds: N kinds; what the model does not have is left out.
        shares: K shares of tokens that are removed, or added, from 0 to 1.
        deletion: What is predicted as tokens are removed, for each kind and text.
        insertion: The same as they are added.
        scale: `probability`, or `log` for log-probabilities in nats.
        predicted: The class or token of each text that is explained.
        removable: Number of tokens of each text that are ranked.
        refused: The reason for each kind that is left out.
    """

    kinds: tuple[str, ...]
    shares: Float[np.ndarray, " K"]
    deletion: Float[np.ndarray, "N T K"]
    insertion: Float[np.ndarray, "N T K"]
    scale: str
    predicted: tuple[str, ...]
    removable: tuple[int, ...]
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def to_columns(self) -> dict[str, list[Any]]:
        """A row for each text and kind, with the areas of its curves."""
        areas = self.areas()
        rows = [
            {
                "text": text,
                "kind": kind,
                "predicted": self.predicted[text],
                "removable": self.removable[text],
                **{name: float(values[n, text]) for name, values in areas.items()},
            }
            for text in range(len(self.predicted))
            for n, kind in enumerate(self.kinds)
        ]
        return columns_of(rows)

    def areas(self) -> dict[str, Float[np.ndarray, "N T"]]:
        """Numbers of every kind and text, by the names of `curve_areas`."""
        return curve_areas(self.deletion, self.insertion)

    def table(
        self, *, level: float = 0.95, draws: int = 2000, seed: int = 0
    ) -> list[dict[str, Any]]:
        """A row for each kind, the most faithful first.

        Args:
            level: Level of confidence of intervals.
            draws: Means that a bootstrap interval is taken from.
            seed: Seed of the bootstrap.

        Returns:
            `rank` and `kind`; means over texts of the areas; `low` and `high`, the ends of the
            bootstrap interval of `gap`; `difference`, its mean difference from that of random
            order, and `p` of the paired two-sided t-test of it, corrected by Holm's method for the
            number of kinds. Without random order, or with one text, these are nan.
        """
        areas = self.areas()
        low, high = bootstrap_interval(areas["gap"].T, level, draws, seed)
        difference, p = self._against_random(areas["gap"])
        order = np.argsort(-areas["gap"].mean(1), kind="stable")
        return [
            {
                "rank": rank,
                "kind": self.kinds[n],
                **{name: float(values[n].mean()) for name, values in areas.items()},
                "low": float(low[n]),
                "high": float(high[n]),
                "difference": float(difference[n]),
                "p": float(p[n]),
            }
            for rank, n in enumerate(order, 1)
        ]

    def _against_random(
        self, gaps: Float[np.ndarray, "N T"]
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
        """Differences of the gap from that of random order, and their p-values."""
        if RANDOM not in self.kinds:
            return np.full(len(gaps), np.nan), np.full(len(gaps), np.nan)
        place = self.kinds.index(RANDOM)
        differences = gaps - gaps[place]
        means = differences.mean(1)
        counts = np.full(len(gaps), gaps.shape[1])
        p = paired_test(Moments(counts, means, ((differences - means[:, None]) ** 2).sum(1)))[1]
        p[place], means[place] = np.nan, np.nan
        return means, adjusted(p, "holm")


@check_arguments()
def faithfulness(
    model: Pretrained,
    texts: Sequence[str],
    second: Sequence[str] | None = None,
    *,
    kinds: Sequence[str] = DEFAULT_KINDS,
    labels: Sequence[int] | None = None,
    steps: int = 10,
    scale: str = "probability",
    random_orders: int = 5,
    truncate: bool = False,
    seed: int = 0,
    watch: Watch = show_progress,
) -> Faithfulness:
    """Deletion and insertion curves of attributions, all on the same predictions of the same texts.

    A token that is removed is masked from attention: no position reads it, in any layer, while
    positions keep their numbers. That is defined for every model with heads and needs no token that
    stands for nothing. Tokens that the model adds, a mask that is predicted, and the position that
    is predicted from always stay; of an encoder-decoder, the tokens of the source are removed.

    For each text one program runs all steps of all kinds, about 2 (N + `random_orders`) K rows.
    `zeroing` runs K copies of a text for each layer, and `flow` grows with the fourth power of its
    length, so these two are left out by default.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> kinds, texts = ("attention", "random"), ["The captain saw the"]
    >>> curves = fa.faithfulness(model, texts, kinds=kinds, steps=2, random_orders=1)
    >>> curves.deletion.shape  # kinds, texts, steps + 1
    (2, 1, 3)

    Args:
        model: With heads, a tokenizer, and a head that predicts a class or a token: a classifier,
            a masked language model, a decoder or an encoder-decoder.
        texts: At least one, each with two tokens or more that can be removed.
        second: The second text of each pair; of an encoder-decoder the target, which it writes
            where there is none.
        kinds: Names of `KINDS`: maps as of `flaxattn.attribution.faithfulness`, `relevance`
            (AttnLRP, of tokens), `input_gradient` (gradient times input), `integrated` (integrated
            gradients from the zero vector) and `random` (the mean of several random orders).
        labels: Classes in place of those that a classifier predicts.
        steps: K, from all tokens to none.
        scale: `probability`, or `log` for log-probabilities.
        random_orders: Random orders for each text.
        truncate: Whether a text over the model's limit is cut; otherwise it is an error.
        seed: Seed of random orders and of tokens that are predicted.
        watch: Receives progress.

    Returns:
        Curves of every kind and text, in probabilities or log-probabilities (nats).

    Raises:
        InputError: For an unknown kind or scale, a model that predicts no class or token, or a text
            that cannot be used; for kinds of which the model has none.
    """
    chosen = _checked(kinds, steps, scale, random_orders)
    explained = predictions(model, texts, second, labels=labels, truncate=truncate, seed=seed)
    refused: dict[str, str] = {}
    curves: list[dict[str, Float[np.ndarray, "2 K"]]] = []
    for number, one in enumerate(explained):
        _check_removable(one, number)
        ranks = _ranks(model, one, chosen, refused, random_orders, (seed, number))
        curves.append(_curves(model, one, ranks, steps, scale))
        watch("faithfulness", 1)
    left = tuple(kind for kind in chosen if kind not in refused)
    if not left:
        kind, reason = next(iter(refused.items()))
        raise InputError(f"{kind}: {reason}")
    whole = np.array([[text[kind] for text in curves] for kind in left])
    return Faithfulness(
        kinds=left,
        shares=np.linspace(0, 1, steps + 1),
        deletion=whole[:, :, 0],
        insertion=whole[:, :, 1],
        scale=scale,
        predicted=tuple(one.name for one in explained),
        removable=tuple(int(one.removable.sum()) for one in explained),
        refused=refused,
    )


def _ranks(
    model: Pretrained,
    prediction: Prediction,
    kinds: Sequence[str],
    refused: dict[str, str],
    orders: int,
    seed: tuple[int, int],
) -> dict[str, Float[np.ndarray, "_ S"]]:
    """Scores of tokens by kind, several of random order; kinds that are not defined are noted."""
    attributions, found = TokenAttributions(model, prediction), {}
    attributions.check()
    for kind in kinds:
        if kind == RANDOM:
            random = np.random.default_rng(seed)
            found[kind] = random.random((orders, len(prediction.removable)))
        elif kind not in refused:
            try:
                found[kind] = attributions.of(kind)[None]
            except InputError as error:
                refused[kind] = " ".join(str(error).split())
    return found


def _curves(
    model: Pretrained,
    prediction: Prediction,
    ranks: Mapping[str, Float[np.ndarray, "_ S"]],
    steps: int,
    scale: str,
) -> dict[str, Float[np.ndarray, "2 K"]]:
    """Deletion and insertion of each kind; of random orders the mean."""
    if not ranks:
        return {}
    kept = [
        np.stack(removal_masks(scores, prediction.removable, steps))
        for orders in ranks.values()
        for scores in orders
    ]
    masks = np.concatenate(kept).reshape(-1, len(prediction.removable))
    values = np.asarray(_log_probabilities(model, prediction, masks), np.float64)
    values = np.exp(values) if scale == "probability" else values
    shaped, start, found = values.reshape(-1, 2, steps + 1), 0, {}
    for kind, orders in ranks.items():
        found[kind] = shaped[start : start + len(orders)].mean(0)
        start += len(orders)
    return found


def _log_probabilities(
    model: Pretrained, prediction: Prediction, kept: Bool[np.ndarray, "R S"]
) -> Float[np.ndarray, " R"]:
    """Log-probability of the prediction, with only some tokens to attend to."""
    given = prediction.given(model.limit)
    width = given["attention_mask"].shape[1]
    masks = np.zeros((len(kept), width), given["attention_mask"].dtype)
    masks[:, : kept.shape[1]] = kept
    positions = sum(array.shape[1] for name, array in given.items() if name.endswith("input_ids"))
    parts = -(-len(masks) * positions // _POSITIONS)
    count = -(-len(masks) // parts)  # of every part alike, so that parts share a program
    places = np.minimum(np.arange(parts * count), len(masks) - 1).reshape(parts, count)
    score = TokenScore(model.module, log=True)
    found = [np.asarray(_scored(score, model.params, given, masks[some])) for some in places]
    return np.concatenate(found)[: len(kept)]


@functools.partial(jax.jit, static_argnames=("score",))
def _scored(
    score: TokenScore, params: Any, given: Mapping[str, Array], masks: Array
) -> Float[Array, " R"]:
    """Scores of one text under each of R masks of attention."""
    rows = {
        name: jnp.broadcast_to(jnp.asarray(array), (len(masks), *array.shape[1:]))
        for name, array in given.items()
    }
    return score(params, {**rows, "attention_mask": masks})


def _check_removable(prediction: Prediction, number: int) -> None:
    count = int(prediction.removable.sum())
    if count < 2:
        raise InputError(
            f"Text {number} (from 0) has {count} tokens that can be removed, expected 2 or more.\n"
            "The position that is predicted from always stays; leave the text out."
        )


def _checked(kinds: Sequence[str], steps: int, scale: str, random_orders: int) -> tuple[str, ...]:
    """The kinds, each once."""
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise InputError(
            f"There are no attributions of kind {unknown[0]!r} to judge.\n"
            f"Choose some of {', '.join(KINDS)}."
        )
    if not kinds:
        raise InputError(f"kinds: expected one or more of {', '.join(KINDS)}, received none.")
    if scale not in SCALES:
        raise InputError(f"scale {scale!r} is unknown.\nChoose one of {', '.join(SCALES)}.")
    if steps < 2 or random_orders < 1:
        raise InputError(
            "Curves have 2 steps or more, and 1 random order or more; received "
            f"steps={steps}, random_orders={random_orders}."
        )
    return tuple(dict.fromkeys(kinds))


class RemovalMasks(NamedTuple):
    """Tokens that stay at each step, K + 1 of them.

    Attributes:
        deletion: From all tokens to none, those with the largest scores go first.
        insertion: From none to all, those with the largest scores come first.
    """

    deletion: Bool[np.ndarray, "K S"]
    insertion: Bool[np.ndarray, "K S"]


def removal_masks(
    scores: Float[np.ndarray, " S"], removable: Bool[np.ndarray, " S"], steps: int
) -> RemovalMasks:
    """Return which tokens stay as those that are ranked are removed and added, in equal steps."""
    places = np.flatnonzero(removable)
    if not np.isfinite(scores[places]).all():
        raise InputError(
            "Scores of tokens are NaN or infinite, so they rank nothing.\n"
            "Look at the parameters of the model."
        )
    order = places[np.argsort(-scores[places], kind="stable")]
    counts = np.round(np.linspace(0, len(order), steps + 1)).astype(int)
    kept = np.ones((2, steps + 1, len(scores)), bool)
    for step, count in enumerate(counts):
        kept[0, step, order[:count]] = False
        kept[1, step, order[count:]] = False
    return RemovalMasks(kept[0], kept[1])


def curve_areas(
    deletion: Float[np.ndarray, "... K"], insertion: Float[np.ndarray, "... K"]
) -> dict[str, Float[np.ndarray, "..."]]:
    """Numbers that sum up curves whose K values are at equal steps from 0 to 1.

    `deletion` and `insertion` are areas under the curves, by trapezoids; `gap` is insertion minus
    deletion, 0 on average for a random order and large for faithful scores. `comprehensiveness` is
    the loss without the largest scores, `sufficiency` the loss with them alone, averaged over the
    steps between all and none (DeYoung et al. 2020).
    """
    below, above = _area(deletion), _area(insertion)
    whole = deletion[..., :1]
    return {
        "deletion": below,
        "insertion": above,
        "gap": above - below,
        "comprehensiveness": (whole - deletion[..., 1:-1]).mean(-1),
        "sufficiency": (whole - insertion[..., 1:-1]).mean(-1),
    }


def _area(curve: Float[np.ndarray, "... K"]) -> Float[np.ndarray, "..."]:
    return ((curve[..., 1:] + curve[..., :-1]) / 2).mean(-1)


_PATH = 16  # points between no input and the input
_VALUES = Capture(weights=True, value=True)


class TokenAttributions:
    """Scores of the input tokens of one prediction; computations that kinds share run once.

    Args:
        model: That predicts.
        prediction: What is explained: its logit.
    """

    def __init__(self, model: Pretrained, prediction: Prediction) -> None:
        self._model, self._prediction = model, prediction
        self._given = prediction.given(model.limit)
        self._sizes = sizes_of(prediction.row.metadata)
        self._makers: dict[str, Callable[[], Any]] = {
            "attention": lambda: self._scores("attention", self._attention),
            "rollout": lambda: self._scores("rollout", self._attention),
            "flow": self._flow,
            "norm": lambda: self._scores("norm", self._contributed("norm")),
            "effective": lambda: self._scores("effective", self._contributed("effective")),
            "zeroing": lambda: self._scores("zeroing", zeroing_of(model, prediction.row)),
            "gradient": lambda: self._scores("gradient", self._gradients),
            "chefer": lambda: self._scores("chefer", generic_relevance(self._gradients)),
            "relevance": self._relevance,
            "input_gradient": lambda: self._source(self._plain),
            "integrated": self._integrated,
        }

    def check(self) -> None:
        """Refuse a model whose attention to the text is NaN or infinite."""
        _ = self._trace

    def of(self, kind: str) -> Float[np.ndarray, " S"]:
        """Scores of the tokens of the text, or of the source; larger is more important."""
        return np.asarray(self._makers[kind](), np.float64)

    @cached_property
    def _recorded(self) -> Trace:
        return recorded(self._model.module, self._model.params, self._given)

    @cached_property
    def _trace(self) -> Trace:
        return self._model.trace_tokens(self._prediction.row, _VALUES)

    @cached_property
    def _attention(self) -> TextMaps:
        sides = self._trace.sides.items()
        return {side: layer_weights(record, record.layers) for side, record in sides}

    @cached_property
    def _plain(self) -> Slopes:
        return self._slopes(rules=False)

    @cached_property
    def _gradients(self) -> TextMaps:
        return weight_gradients(self._recorded, self._plain, self._sizes)

    def _slopes(self, rules: bool) -> Slopes:
        score = TokenScore(self._model.module)
        return slopes_of(score, self._model.params, self._given, self._recorded, rules=rules)

    def _relevance(self) -> Float[np.ndarray, " S"]:
        return self._source(self._slopes(rules=True))

    def _source(self, slopes: Slopes) -> Float[np.ndarray, " S"]:
        """Input times gradient, of the source where there is one."""
        tokens = tokens_of(self._recorded, slopes, self._sizes)
        return tokens["encoder" if "encoder" in tokens else "decoder"]

    def _scores(self, kind: str, maps: TextMaps) -> Float[np.ndarray, " S"]:
        return token_scores(kind, maps, self._prediction.position)

    def _contributed(self, name: str) -> TextMaps:
        projections = output_projections(self._model) if name == "norm" else None
        found = contributions(self._trace, [name], projections=projections)[name]
        return {side: maps for side, (maps,) in found.items()}

    def _flow(self) -> Float[np.ndarray, " S"]:
        if "cross" in self._trace.sides:
            return self._scores("flow", self._attention)  # which is refused
        place = self._prediction.position
        chosen: Sequence[int] | None = None if place is None else [place]
        return attention_flow(self._trace, positions=chosen).mean(0)

    def _integrated(self) -> Float[np.ndarray, " S"]:
        """Input times the mean gradient on the way from no input (Sundararajan et al. 2017)."""
        points = ((np.arange(_PATH) + 0.5) / _PATH).astype(np.float32)
        given = {name: np.repeat(array, _PATH, axis=0) for name, array in self._given.items()}
        score = TokenScore(self._model.module)
        slopes = slopes_of(score, self._model.params, given, None, scale=points)
        side = "encoder" if "encoder" in self._recorded.sides else "decoder"
        means = (np.asarray(slopes.tokens[side]) / points[:, None]).mean(0)
        return means[: self._sizes[side][0]]


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
