# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Previous-token, duplicate-token and induction heads, found on repeated random sequences.

A sequence of random tokens that is repeated holds nothing to go by but its own first half, so what
a head looks at in the second half says what it is for (Elhage et al. 2021, section "Induction
heads"; Olsson et al. 2022, section "Defining induction heads", whose prefix matching score is the
induction score here). The scores describe attention; whether a head copies what it attends to is
not looked at.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import Capture, Sieve
from flaxattn.measures.significance import adjusted, t_test
from flaxattn.pipeline.online_moments import Moments
from flaxattn.pretrained.nonfinite_error import first_nonfinite, nonfinite_error
from flaxattn.trace.record import AttentionRecord, count_nonfinite, layer_weights, with_lse
from flaxattn.trace.result_table import ResultTable, columns_of
from flaxattn.trace.trace import Trace

PREVIOUS, DUPLICATE, INDUCTION = KINDS = ("previous token", "duplicate token", "induction")
"""The kinds of heads; the statistics that `repeat_capture` asks for have these names."""


@dataclasses.dataclass(frozen=True)
class HeadScore:
    """Score of one head for one kind.

    Attributes:
        kind: One of `KINDS`.
        layer: Number of the layer.
        head: Number of the head.
        score: Mean share of attention on the key that makes a head of this kind, between 0 and 1.
        error: Standard error of the score over sequences; nan for a single sequence.
        lift: Score over what a head has that attends to all keys it sees alike.
    """

    kind: str
    layer: int
    head: int
    score: float
    error: float
    lift: float


@dataclasses.dataclass(frozen=True, repr=False)
class HeadScores(ResultTable):
    """Scores of every recorded head, by kind.

    Attributes:
        layers: Number of the layer at each row.
        heads: Number of the head at each column.
        scores: Mean share of attention by kind, `[L, H]`.
        errors: Standard errors of these means over sequences; nan for a single sequence.
        uniform: What a head has, by kind, that attends to all keys it sees alike.
        length: n, tokens before they are repeated.
        sequences: Number of sequences.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    scores: Mapping[str, Float[np.ndarray, "L H"]]
    errors: Mapping[str, Float[np.ndarray, "L H"]]
    uniform: Mapping[str, float]
    length: int
    sequences: int

    def to_columns(self) -> dict[str, list[Any]]:
        """A row for each kind and head: its score, standard error and lift."""
        rows = [
            {
                "kind": kind,
                "layer": layer,
                "head": head,
                "score": float(self.scores[kind][i, j]),
                "error": float(self.errors[kind][i, j]),
                "lift": float(self.lift(kind)[i, j]),
            }
            for kind in self.scores
            for i, layer in enumerate(self.layers)
            for j, head in enumerate(self.heads)
        ]
        return columns_of(rows)

    def lift(self, kind: str) -> Float[np.ndarray, "L H"]:
        """Scores of a kind over those of uniform attention."""
        return self.scores[_known(kind)] / self.uniform[kind]

    def strongest(self, kind: str, count: int | None = None) -> list[HeadScore]:
        """Heads by their score of a kind, the highest first; the earlier of equals first.

        Args:
            kind: One of `KINDS`.
            count: Number of them; None for all.

        Raises:
            InputError: For an unknown kind.
        """
        scores, lift = self.scores[_known(kind)], self.lift(kind)
        order = np.argsort(-scores, axis=None, kind="stable")[:count]
        places = zip(*np.unravel_index(order, scores.shape), strict=True)
        return [
            HeadScore(
                kind=kind,
                layer=self.layers[i],
                head=self.heads[j],
                score=float(scores[i, j]),
                error=float(self.errors[kind][i, j]),
                lift=float(lift[i, j]),
            )
            for i, j in places
        ]


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise InputError(f"There is no kind of head {kind!r}.\nThere are {', '.join(KINDS)}.")
    return kind


def repeated_tokens(
    sequences: int,
    length: int,
    vocabulary: int,
    *,
    first: int | None = None,
    avoid: Sequence[int] = (),
    seed: int = 0,
) -> Int[np.ndarray, "B S"]:
    """Random sequences of different tokens, each repeated once."""
    known = np.setdiff1d(np.arange(vocabulary), [*avoid, *([] if first is None else [first])])
    if sequences < 1 or length < 2 or len(known) < length:
        raise InputError(
            f"{sequences} sequences of {length} different tokens cannot be drawn from {len(known)} "
            "ids.\nAsk for 1 sequence or more, of 2 tokens or more, and of no more than there are."
        )
    draws = np.random.default_rng(seed)
    once = np.stack([draws.choice(known, length, replace=False) for _ in range(sequences)])
    start = np.full((sequences, 0 if first is None else 1), first or 0)
    return np.concatenate([start, once, once], axis=1).astype(np.int32)


def repeat_capture(length: int, layers: Sequence[int] | None = None) -> Capture:
    """Return the capture that `repeat_scores` needs: three numbers per query."""
    sieves = (Sieve(kind, offsets=(-gap, -gap)) for kind, gap in _gaps(length).items())
    return Capture(stats=tuple(sieves), layers=None if layers is None else tuple(layers))


def _gaps(length: int) -> dict[str, int]:
    """Offset of the key that a head of each kind looks at."""
    return {PREVIOUS: 1, DUPLICATE: length, INDUCTION: length - 1}


def repeat_scores(trace: Trace, length: int, *, causal: bool = True) -> HeadScores:
    """Score the heads of a trace of repeated sequences.

    * previous token: share on the key before the query, over all queries but the first token and
      the one behind it, for which that key is the beginning.
    * duplicate token: share on the same token in the first half, over the queries of the second.
    * induction: share on the token that followed it there, over the same queries.
    """
    record = trace.decoder or trace.encoder
    masses = None if record is None else _masses(record, length)
    if record is None or masses is None:
        raise InputError(
            "This trace holds neither weights nor the statistics of repeated sequences.\n"
            f"Ask for them: capture=repeat_capture({length}), or Capture(weights=True)."
        )
    positions = masses[PREVIOUS].shape[-1]
    beginning = positions - 2 * length
    if beginning not in (0, 1) or not (trace.mask is None or np.all(trace.mask)):
        raise InputError(
            f"Expected sequences of {2 * length} or {2 * length + 1} real positions, "
            f"{length} repeated, received {positions}, padding included.\n"
            "Make them with repeated_tokens, all of one length."
        )
    counted = np.arange(1 + beginning, positions), np.arange(beginning + length, positions)
    queries = {PREVIOUS: counted[0], DUPLICATE: counted[1], INDUCTION: counted[1]}
    each = {kind: mass[..., queries[kind]].mean(-1) for kind, mass in masses.items()}  # [L, B, H]
    visible = np.arange(1, positions + 1) if causal else np.full(positions, positions)
    return HeadScores(
        layers=record.layers,
        heads=record.heads,
        scores={kind: score.mean(1) for kind, score in each.items()},
        errors={kind: _standard_error(score) for kind, score in each.items()},
        uniform={kind: float((1 / visible[queries[kind]]).mean()) for kind in KINDS},
        length=length,
        sequences=masses[PREVIOUS].shape[1],
    )


def repeat_tests(
    scores: HeadScores, tau: float = 3.0, alpha: float = 0.05, correction: str = "bh"
) -> dict[str, tuple[Float[np.ndarray, "L H"], Bool[np.ndarray, "L H"]]]:
    """Test which heads are of each kind: a one-sided t-test over sequences of lift above tau."""
    count, shape = scores.sequences, scores.scores[PREVIOUS].shape
    p = []
    for kind in KINDS:
        error = scores.errors[kind] / scores.uniform[kind]
        moments = Moments(np.full(shape, count), scores.lift(kind), error**2 * count * (count - 1))
        p.append(t_test(moments, tau)[1])
    each = adjusted(np.stack(p), correction)
    return {kind: (one, one < alpha) for kind, one in zip(KINDS, each, strict=True)}


def _standard_error(scores: Float[np.ndarray, "L B H"]) -> Float[np.ndarray, "L H"]:
    count = scores.shape[1]
    if count == 1:
        return np.full((scores.shape[0], scores.shape[2]), np.nan)
    return scores.std(axis=1, ddof=1) / count**0.5


def _masses(record: AttentionRecord, length: int) -> dict[str, Float[np.ndarray, "L B H Q"]] | None:
    """Attention of every query to the key of each kind; None if the record does not hold it."""
    if record.weights is None:
        if not all(kind in record.stats for kind in KINDS):
            return None
        return {kind: np.asarray(record.stats[kind], np.float64) for kind in KINDS}
    record.require_whole("A score of repeated sequences")
    found: dict[str, list[np.ndarray]] = {kind: [] for kind in KINDS}
    for b in range(record.weights.shape[1]):
        weights = layer_weights(record, record.layers, b)
        for kind, gap in _gaps(length).items():
            band = np.diagonal(weights, -gap, axis1=-2, axis2=-1).astype(np.float64)
            missing = weights.shape[-1] - band.shape[-1]  # the first queries have no such key
            found[kind].append(np.pad(band, ((0, 0), (0, 0), (missing, 0))))
    return {kind: np.stack(bands, axis=1) for kind, bands in found.items()}


@check_arguments(0)
def detect_heads(
    model: Any,
    *,
    sequences: int = 16,
    length: int = 50,
    first: int | None = None,
    seed: int = 0,
    causal: bool = True,
) -> HeadScores:
    """Score every head of a model on repeated random sequences.

    The model keeps three numbers per query, so that long sequences fit too.

    >>> import flaxattn as fa
    >>> scores = fa.detect_heads(fa.from_pretrained("tiny-gpt2"), sequences=2, length=20)
    >>> scores.scores["induction"].shape  # layers, heads
    (4, 6)

    Args:
        model: With `module`, `params` and `config`, as `from_pretrained` returns it; the module
            takes ids `[B, S]` and has a `capture`.
        sequences: B.
        length: n, tokens before they are repeated.
        first: Id that every sequence begins with; default the `bos_token_id` of the configuration,
            where there is one.
        seed: Seed of the tokens.
        causal: Whether a query sees the keys up to itself only.

    Returns:
        Scores of all layers and heads.

    Raises:
        InputError: If the sequences are too long for the vocabulary or for the model, or the model
            has an encoder and a decoder.
    """
    if not all(hasattr(model, name) for name in ("module", "params", "config")):
        raise InputError(
            "detect_heads cannot use this model.\n"
            f"Expected one with module, params and config, received {type(model).__name__}.\n"
            'Load one with fa.from_pretrained("tiny-gpt2").'
        )
    config = model.config
    first = getattr(config, "bos_token_id", None) if first is None else first
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    added = [getattr(config, name, None) for name in names]
    avoid = [number for number in added if isinstance(number, int)]
    vocabulary = config.vocab_size
    ids = repeated_tokens(sequences, length, vocabulary, first=first, avoid=avoid, seed=seed)
    limits = (getattr(config, name, None) for name in ("n_positions", "max_position_embeddings"))
    limit = next((number for number in limits if number is not None), ids.shape[1])
    limit -= getattr(config, "first_position", 0)
    if ids.shape[1] > limit:
        raise InputError(
            f"{length} tokens repeated are {ids.shape[1]} positions; this model has {limit}.\n"
            "Lower length."
        )
    module = model.module.clone(capture=with_lse(repeat_capture(length)))

    @jax.jit
    def record_only(params: Any, ids: Any) -> Any:
        return module.apply({"params": params}, ids, mutable=["intermediates"])[1]

    trace = Trace.from_variables(record_only(model.params, ids))
    if trace.cross is not None:
        raise InputError(
            "Heads are detected in a model that reads one text; this one has an encoder and a "
            "decoder.\nName a decoder (GPT-2) or an encoder (BERT), or score a trace of your own: "
            "repeat_scores(trace, length)."
        )
    for side, record in trace.sides.items():
        place = first_nonfinite(count_nonfinite(record, side, {}))
        if place is not None:
            text = f"sequence {place.row}"
            raise nonfinite_error(model.name, model.params, place, side, text, go_on=False)
    return repeat_scores(trace, length, causal=causal)
