# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The measurements of `docs/induction.py`: heads, patching, paths, weights, knockout, losses.

Each function takes a model and returns numbers as JSON has them.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import spearmanr

import flaxattn as fa
from flaxattn.attribution.head_losses import LossBatch
from flaxattn.measures.induction import INDUCTION, KINDS, PREVIOUS
from flaxattn.measures.significance import bootstrap_interval
from flaxattn.models.outputs import cross_entropy

TEXT = "The painter met the gardener near the mill. Later the painter met the gardener"
LEAST = {PREVIOUS: 0.7, INDUCTION: 0.5}
"""Mean share of attention from which a head is of a kind."""
DRAWS = 1000
"""Bootstrap samples of pairs or texts."""
Heads = list[list[int]]


def detected(model: Any, sequences: int, length: int, seed: int) -> dict[str, Any]:
    """Scores of all heads on repeated random tokens, and the heads of each kind."""
    scores = fa.detect_heads(model, sequences=sequences, length=length, seed=seed)
    return {
        "scores": {kind: scores.scores[kind].tolist() for kind in KINDS},
        "errors": {kind: scores.errors[kind].tolist() for kind in KINDS},
        "uniform": dict(scores.uniform),
        "heads": {
            kind: [[h.layer, h.head] for h in scores.strongest(kind) if h.score >= least]
            for kind, least in LEAST.items()
        },
    }


def pattern(model: Any, heads: Mapping[str, Heads]) -> dict[str, Any]:
    """What the strongest head of each kind attends to in one text, and what is predicted there."""
    trace = model.trace(TEXT, predictions=1)
    tokens = list(trace.tokens[0])
    rows = []
    (before, previous), (after, induction) = (heads[kind][0] for kind in LEAST)
    weights = np.asarray(trace.decoder.weights)[:, 0]
    for place, token in enumerate(tokens):
        earlier = [n for n in range(place) if tokens[n] == token]
        follower = earlier[0] + 1 if earlier else None
        rows.append(
            {
                "token": token,
                "previous": float(weights[before, previous, place, max(place - 1, 0)]),
                "follower": None if follower is None else tokens[follower],
                "share": None
                if follower is None
                else float(weights[after, induction, place, follower]),
                "first": float(weights[after, induction, place, 0]),
                "next": trace.predictions.tokens[0][place],
                "probability": float(np.exp(trace.predictions.log_probability[0, place])),
            }
        )
    return {"text": TEXT, "heads": [heads[kind][0] for kind in LEAST], "rows": rows}


def effects_of(report: Any) -> dict[str, Any]:
    """Effects of a report with one side and all positions together, by layer and head."""
    (effects,) = report.effects
    control = effects.control
    return {
        "clean": float(report.clean.mean()),
        "corrupted": float(report.corrupted.mean()),
        "total": report.total,
        **{n: getattr(effects, n)[..., 0].tolist() for n in ("means", "low", "high", "causal")},
        "control": control
        and {
            "heads": control.heads,
            "effect": control.effect,
            "random": float(control.random.mean()),
            "largest": float(control.random.max()),
            "p": control.p,
        },
    }


def activation(model: Any, pairs: Sequence[fa.TextPair], sets: int, seed: int) -> dict[str, Any]:
    """Effects of the clean output of each head in the corrupted run, and where these arise."""
    whole = fa.patch(model, pairs, controls=sets, seed=seed)
    request = fa.PatchRequest(positions="segment")
    parts = fa.patch(model, pairs, request, controls=0, seed=seed)
    names = ("layer", "head", "positions", "effect", "low", "high", "causal")
    rows = [{name: row[name] for name in names} for row in parts.rows()]
    return effects_of(whole) | {"segments": [row for row in rows if row["causal"]][:8]}


def paths(
    model: Any, pairs: Sequence[fa.TextPair], receivers: Heads, sets: int, seed: int
) -> dict[str, Any]:
    """Effects of each head through one input of the induction heads, and directly on the logits."""
    found: dict[str, Any] = {}
    ends = tuple((layer, head) for layer, head in receivers)
    for into in ("key", "query", "value"):
        request = fa.PatchRequest(method="path", receivers=ends, into=(into,))
        keys = into == "key"
        report = fa.patch(model, pairs, request, controls=sets if keys else 0, seed=seed)
        found[into] = effects_of(report)
        if keys:
            found["first"] = leading(report.effects[0].each[:, :, 0], seed)
    report = fa.patch(model, pairs, fa.PatchRequest(method="path"), controls=0, seed=seed)
    return found | {"logits": effects_of(report)}


def leading(each: Float[np.ndarray, "L H T"], seed: int) -> dict[str, Any]:
    """The head with the largest mean, the next one, and the interval of their difference."""
    order = np.argsort(-each.mean(-1), axis=None)[:2]
    first, second = (tuple(map(int, np.unravel_index(n, each.shape[:2]))) for n in order)
    apart = each[first] - each[second]
    low, high = bootstrap_interval(apart[:, None], 0.95, DRAWS, seed)
    return {
        "head": list(first),
        "next": list(second),
        "difference": float(apart.mean()),
        "low": float(low[0]),
        "high": float(high[0]),
    }


def composed(
    model: Any, heads: Mapping[str, Heads], effects: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """Composition and copying scores of the weights beside the effects of paths."""
    circuits = fa.head_circuits(model)
    scores = {c.kind: c.scores for c in circuits.compositions}
    receivers = heads[INDUCTION]
    rows = []
    for layer, head in receivers:
        edges = [
            edge
            for edge in circuits.edges("key")
            if (edge["reader_layer"], edge["reader_head"]) == (layer, head)
        ]
        writers = [[edge["writer_layer"], edge["writer_head"]] for edge in edges]
        place = writers.index(heads[PREVIOUS][0])
        rows.append(
            {
                "head": [layer, head],
                "strongest": writers[0],
                "strongest score": edges[0]["score"],
                "rank": place + 1,
                "writers": len(writers),
                "score": edges[place]["score"],
                "copying": float(circuits.copying["decoder"][layer, head]),
            }
        )
    layer = max(layer for layer, _ in receivers)
    reading = [head for at, head in receivers if at == layer]
    means = {kind: scores[kind][:layer, :, layer][..., reading].mean(-1) for kind in scores}
    effect = np.asarray(effects)[:layer]
    agreement: Any = spearmanr(means["key"].ravel(), effect.ravel())
    return {
        "rows": rows,
        "expected": circuits.expected,
        "means": {kind: mean.tolist() for kind, mean in means.items()},
        "correlation": float(agreement.statistic),
        "p": float(agreement.pvalue),
        "strongest": circuits.edges("key", 1)[0],
    }


def knocked_out(model: Any, pairs: Sequence[fa.TextPair], seed: int) -> dict[str, Any]:
    """Effects of hiding groups of positions from the last one, by head and by layer."""
    names = ("layer", "head", "positions", "effect", "low", "high", "causal")
    found: dict[str, Any] = {}
    for by in ("head", "layer"):
        request = fa.PatchRequest(method="knockout", positions="segment", by=by)
        report = fa.patch(model, pairs, request, controls=0, seed=seed)
        found[by] = [{name: row[name] for name in names} for row in report.rows()]
        found["clean"] = float(report.clean.mean())
    return found


def contributed(model: Any, texts: Sequence[str], receivers: Heads, seed: int) -> dict[str, Any]:
    """Direct contributions to the logit of the next word: in the repetition, and before it."""
    trace = model.trace(list(texts), predictions=1)
    found: Any = fa.logit_contributions(model, trace).predictions
    half = found.ids.shape[1] // 2
    first, again = slice(1, half - 1), slice(half + 1, 2 * half - 1)  # the same words follow
    assert (found.targets[:, first] == found.targets[:, again]).all()
    change = found.heads[:, again].mean(1) - found.heads[:, first].mean(1)  # [B, L, H]
    fed = found.feed_forward  # [B, T, L]
    logits = found.heads.sum((2, 3)) + fed.sum(2) + found.embedding + found.bias
    whole = logits[:, again].mean(1) - logits[:, first].mean(1)
    low, high = bootstrap_interval(change, 0.95, DRAWS, seed)
    chosen = np.zeros(change.shape[1:], bool)
    chosen[tuple(np.array(receivers).T)] = True
    sums = np.stack([change[:, chosen].sum(1), change[:, ~chosen].sum(1), whole], axis=1)
    ends = bootstrap_interval(sums, 0.95, DRAWS, seed)
    probability = np.exp(found.log_probability)
    return {
        "means": change.mean(0).tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        **{
            name: [float(sums[:, n].mean()), *(float(end[n]) for end in ends)]
            for n, name in enumerate(("induction", "others", "logit"))
        },
        "feed forward": (fed[:, again].mean(1) - fed[:, first].mean(1)).mean(0).tolist(),
        "probability": [float(probability[:, part].mean()) for part in (first, again)],
    }


def half_losses(
    module: Any, again: bool, params: Any, given: Any, masks: Any
) -> Float[Array, " B"]:
    """Mean loss of each text on its second half, or on its first."""
    out = module.apply({"params": params}, **given, **masks)
    ids, half = given["input_ids"], given["input_ids"].shape[1] // 2
    start, end = (half, 2 * half - 1) if again else (0, half - 1)
    logits, targets = out.logits[:, start:end], ids[:, start + 1 : end + 1]
    losses = cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
    return losses.reshape(len(ids), -1).mean(1)


@functools.partial(jax.jit, static_argnames=("module", "again"))
def losses_under(
    module: Any, again: bool, params: Any, given: Any, masks: Float[Array, "N L H"]
) -> Float[Array, "N B"]:
    """`half_losses` under each of N masks of heads."""
    return jax.lax.map(
        lambda one: half_losses(module, again, params, given, {"head_mask": one}), masks
    )


def ablated(
    model: Any, texts: Sequence[str], heads: Mapping[str, Heads], sets: int, seed: int
) -> dict[str, Any]:
    """Losses of both halves without sets of heads: those of the circuit, and random ones."""
    named = {"": [], **{kind: heads[kind] for kind in LEAST}}
    count = len(heads[INDUCTION])
    circuit = [tuple(head) for kind in LEAST for head in heads[kind]]
    others = [head for head in np.ndindex(*model.counts()) if head not in circuit]
    random = np.random.default_rng(seed)
    drawn = [[others[n] for n in random.permutation(len(others))[:count]] for _ in range(sets)]
    masks = np.ones((len(named) + sets, *model.counts()), np.float32)
    for number, removed in enumerate([*named.values(), *drawn]):
        for layer, head in removed:
            masks[number, layer, head] = 0
    given = {"input_ids": np.asarray(model.read(list(texts)).given["input_ids"])}
    found: dict[str, Any] = {"random heads": count}
    for half, again in (("second", True), ("first", False)):
        losses = losses_under(model.module, again, model.params, given, masks)
        each = np.asarray(losses, np.float64)
        rise = each - each[:1]
        ends = bootstrap_interval(rise[: len(named)].T, 0.95, DRAWS, seed)
        means = rise[len(named) :].mean(1)
        found[half] = {
            "loss": float(each[0].mean()),
            "rise": {
                kind: [float(rise[n].mean()), *(float(end[n]) for end in ends)]
                for n, kind in enumerate(named)
                if kind
            },
            "random": [float(means.mean()), float(means.min()), float(means.max())],
        }
        if again:
            worst = sorted(drawn[int(means.argmax())])
            found["worst"] = [list(head) for head in worst]
            found["harmful"] = int((means > found[half]["rise"][INDUCTION][0] / 2).sum())
    second = functools.partial(half_losses, model.module, True)
    batches = [LossBatch(given, len(texts))]
    alone = fa.ablate(fa.HeadTask(model.masks(), batches, second, model.params, model.name))
    return found | {"alone": alone.means["head_mask"].tolist()}
