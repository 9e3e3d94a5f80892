# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`patch`: effects of patching every head or layer of a model, over pairs of texts.

The request is a `PatchRequest`, what runs is in `flaxattn.attribution.patch_programs`, and what
comes back is a `PatchReport`.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from flaxattn.attribution.patch_effects import (
    Approximation,
    JointControl,
    PatchReport,
    UnitEffects,
)
from flaxattn.attribution.patch_programs import (
    Changes,
    PatchedBatch,
    PatchProgram,
    Sweep,
    patch_batch,
    site_totals,
)
from flaxattn.attribution.patch_request import STREAM, PatchRequest
from flaxattn.attribution.patch_task import PatchTask, patch_task
from flaxattn.attribution.site_means import site_means
from flaxattn.corpus.text_pairs import TextPair
from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.significance import CORRECTIONS
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.pretrained.nonfinite_error import refusal
from flaxattn.pretrained.pretrained_model import Pretrained

_CHECKED = 32  # units whose first-order effect is compared with patching


class _Tests(NamedTuple):
    """Options of tests, intervals and controls; see `patch`."""

    alpha: float
    correction: str
    controls: int
    seed: int


class _PatchJob(NamedTuple):
    """All that runs of one call have in common.

    Attributes:
        task: The pairs.
        request: What is patched.
        program: The compiled part.
        donors: As for `patch_batch`.
        receivers: As for `patch_batch`.
    """

    task: PatchTask
    request: PatchRequest
    program: PatchProgram
    donors: tuple[Any, ...] | None
    receivers: tuple[Bool[np.ndarray, "L H"], ...] | None

    def kind(self, number: int) -> str:
        """Kind of effect of a sweep; mediation has two."""
        if self.request.method != "mediation":
            return ""
        return "direct" if self.program.sweeps[number].direction == "denoise" else "indirect"


@check_arguments(2)
def patch(
    model: Pretrained,
    pairs: Sequence[TextPair],
    request: PatchRequest | None = None,
    *,
    batch: int = 16,
    alpha: float = 0.05,
    correction: str = "bh",
    controls: int = 20,
    seed: int = 0,
    watch: Watch = show_progress,
) -> PatchReport:
    """Patch every head or layer of a model by itself, and judge the answer to each pair.

    An effect is tested by flipping the signs of its pairs (`sign_flip_test` of
    `flaxattn.measures.significance`), which holds for any number of them: T pairs allow p-values
    down to 2 / 2^T before they are corrected, so fewer than six never make a head causal at 0.05,
    and 144 heads take about 13. Pairs must not repeat each other.

    Costs a forward pass of all pairs for each unit (two for paths with receivers), three more, and
    `controls` and four for the control; attribution costs one backward pass. Values of the patched
    site are kept for one batch, L·B·S·H·D numbers.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> text = "the old king and the {} were happy. the old king and the"
    >>> words = [("lady", "girl"), ("girl", "horse"), ("horse", "lady")]
    >>> pairs = [fa.TextPair(text.format(a), text.format(b), a, b) for a, b in words]
    >>> fa.patch(model, pairs, controls=0).effects[0].means.shape
    (4, 6, 1)

    Args:
        model: A language model, a masked one whose texts have one mask each, an encoder-decoder,
            or a classifier of texts, with its tokenizer.
        pairs: At least two.
        request: What is patched; the output of each head from the clean run into the corrupted one
            by default.
        batch: Pairs that run together.
        alpha: Largest corrected p-value of a unit that is called causal.
        correction: For many tests: "bh", "bonferroni", "holm" or "none".
        controls: Random sets of units that the causal ones together are compared with; 0 for none.
        seed: Random seed of the bootstrap, of checks and of controls.
        watch: Receives progress.

    Returns:
        Effects by unit, with bootstrap intervals and corrected p-values, in units of the metric.

    Raises:
        InputError: For a model that scores no answers, or whose scores are NaN or infinite, pairs
            that cannot be used, or options of tests that make no sense.
    """
    request = PatchRequest() if request is None else request
    tests = _Tests(alpha, correction, controls, seed)
    _check_tests(tests)
    task = patch_task(model, pairs, metric=request.metric, positions=request.positions, batch=batch)
    job = _job(task, request)
    groups = len(task.group_names)
    units = [_units(request, task.sizes[sweep.side], groups) for sweep in job.program.sweeps]
    run = units
    if request.method == "attribution":  # the units whose first-order effects are checked
        run = [masks[_checked(len(masks), seed)] for masks in units]
    is_controlled = controls > 0 and request.method != "attribution"
    room = max(*map(len, run), controls + 1 if is_controlled else 0)
    all_pairs = _over_pairs(job, run, room, watch)
    _check_metrics(task, all_pairs)
    effects = [_effects(job, number, masks, all_pairs, tests) for number, masks in enumerate(units)]
    if is_controlled:
        effects = _with_controls(job, effects, units, room, tests)
    return PatchReport(
        request,
        model.name,
        tuple(pairs),
        task.group_names,
        all_pairs.clean,
        all_pairs.corrupted,
        tuple(effects),
        alpha,
        correction,
        seed,
    )


def _job(task: PatchTask, request: PatchRequest) -> _PatchJob:
    """The program of a request, with the values that do not come from the pair."""
    directions = (request.direction,)
    if request.method == "mediation":  # the indirect effect, and the direct one
        directions = ("noise", "denoise")
    sweeps = tuple(Sweep(side, to) for side in _sides(task, request) for to in directions)
    paths: dict[str, Any] = {}
    receivers = None
    if request.method == "path":
        frozen = ("head_output", *(("feed_forward_output",) * request.freeze_feed_forward))
        paths = {"frozen": frozen, "into": request.into if request.receivers else ()}
        if request.receivers:
            receivers = tuple(_ends(task, request, sweep.side) for sweep in sweeps)
    program = PatchProgram.of(
        task.model.module,
        request.metric,
        request.site,
        sweeps=sweeps,
        sides=tuple(task.sizes),
        estimates=request.method == "attribution",
        **paths,
    )
    donors = None
    if request.method == "knockout":
        donors = (-jnp.inf,) * len(sweeps)
    elif request.donor == "zero":
        donors = (0.0,) * len(sweeps)
    elif request.donor == "mean":
        donors = _means(task, program)
    return _PatchJob(task, request, program, donors, receivers)


def _sides(task: PatchTask, request: PatchRequest) -> list[str]:
    """Sides whose heads or layers are patched."""
    sides = list(task.sizes) if request.side is None else [request.side]
    writes = len(task.sizes) > 1
    if request.side is None and request.site in STREAM:
        sides = [side for side in sides if side != "cross"]  # layers belong to the decoder
    if request.side is None and request.method == "knockout" and writes:
        sides = ["decoder", "cross"] if task.pairs.groups is None else ["cross"]
    for side in sides:
        if side not in task.sizes:
            raise InputError(
                f"{task.model.name!r} has no side {side}.\nIt has {', '.join(task.sizes)}."
            )
        _check_knockout(task, request, side)
        of_source = side == ("cross" if request.method == "knockout" else "encoder")
        if task.pairs.groups is not None and writes and not of_source:
            raise InputError(
                f"Positions are those of the source; the side {side} has targets.\n"
                "Choose side encoder, or positions all."
            )
    return sides


def _check_knockout(task: PatchTask, request: PatchRequest, side: str) -> None:
    """Refuse knockouts of queries that no answer is read from."""
    if request.method != "knockout":
        return
    if side == "encoder" and len(task.sizes) > 1:
        raise InputError(
            f"{task.model.name!r} answers from its decoder; no query of the encoder answers.\n"
            "Choose side cross or decoder."
        )
    if (task.pairs.places < 0).any():
        raise InputError(
            f"{task.model.name!r} answers from the mean of all positions, not from one of them.\n"
            "Choose another method."
        )


def _ends(task: PatchTask, request: PatchRequest, side: str) -> Bool[np.ndarray, "L H"]:
    """True for the heads that paths of a side end in."""
    ends = np.zeros(task.sizes[side], bool)
    for layer, head in request.receivers:
        _check_head(task, side, layer, head)
        ends[layer, head] = True
    return ends


def _units(
    request: PatchRequest, size: tuple[int, int], groups: int
) -> Bool[np.ndarray, "N L H P"]:
    """The mask of every unit: heads or layers, times groups of positions."""
    layers, heads = size
    near = np.abs(np.arange(layers)[:, None] - np.arange(layers)) <= request.window // 2
    columns = np.eye(heads, dtype=bool) if request.by == "head" else np.ones((1, heads), bool)
    masks = (
        near[:, None, None, :, None, None]
        & columns[None, :, None, None, :, None]
        & np.eye(groups, dtype=bool)[None, None, :, None, None, :]
    )
    return masks.reshape(-1, layers, heads, groups)


def _over_pairs(
    job: _PatchJob,
    units: Sequence[Bool[np.ndarray, "N L H P"]],
    room: int,
    watch: Watch,
) -> PatchedBatch:
    """Metrics of all pairs under each unit of each sweep, in float64."""
    changes = tuple(Changes(_filled(masks, room), np.int32(len(masks))) for masks in units)
    sides = dict.fromkeys(sweep.side for sweep in job.program.sweeps)
    batches = []
    for batch, count in job.task.batches():
        values = patch_batch(
            job.program, job.task.model.params, batch, changes, job.donors, job.receivers
        )
        batches.append(jax.tree.map(lambda a, n=count: np.asarray(a, np.float64)[..., :n], values))
        for side in sides:
            watch(f"patching {side}", count)
    return jax.tree.map(lambda *parts: np.concatenate(parts, -1), *batches)


def _unwatched(stage: str, count: int) -> None:
    """Receive the progress of the control, which is a small part of the whole."""
    del stage, count


def _filled(masks: Bool[np.ndarray, "N L H P"], count: int) -> Bool[np.ndarray, "M L H P"]:
    """The masks, and as many empty ones as are missing up to a number."""
    return np.pad(masks, ((0, count - len(masks)), *[(0, 0)] * 3))


def _effects(
    job: _PatchJob,
    number: int,
    masks: Bool[np.ndarray, "N L H P"],
    all_pairs: PatchedBatch,
    tests: _Tests,
) -> UnitEffects:
    """Effects of the units of one sweep."""
    request, sweep = job.request, job.program.sweeps[number]
    changes = all_pairs.metrics[number] - all_pairs.bases[number]
    approximation = None
    if request.method == "attribution":
        each = _joined(request, all_pairs.estimates[number])
        some = _checked(len(masks), tests.seed)
        estimate = each.reshape(len(masks), -1)[some]
        approximation = _compared(changes[: len(some)], estimate, some, each.shape[:-1])
    else:
        layers, heads = masks.shape[1:3] if request.by == "head" else (masks.shape[1], 1)
        shape = (layers, heads, len(job.task.group_names), job.task.count)
        each = changes[: len(masks)].reshape(shape)
    _check_changes(job.task, sweep.side, each)
    kind = job.kind(number)
    if kind == "direct":  # of the corrupted text, with the head as in the clean run
        each = each + (all_pairs.corrupted - all_pairs.clean)
    effects = UnitEffects.of(sweep.side, kind, each, tests.alpha, tests.correction, tests.seed)
    return dataclasses.replace(effects, approximation=approximation)


def _checked(count: int, seed: int) -> Int[np.ndarray, " N"]:
    """Numbers of the units whose first-order effects are compared with patching."""
    return np.random.default_rng(seed).permutation(count)[:_CHECKED]


def _joined(
    request: PatchRequest, each: Float[np.ndarray, "L H P T"]
) -> Float[np.ndarray, "L H P T"]:
    """First-order effects summed over heads, and over windows of layers, where requested."""
    each = each.sum(1, keepdims=True) if request.by == "layer" else each
    half = request.window // 2
    return np.stack([each[max(0, n - half) : n + half + 1].sum(0) for n in range(len(each))])


def _compared(
    exact: Float[np.ndarray, "N T"],
    estimate: Float[np.ndarray, "N T"],
    some: Int[np.ndarray, " N"],
    shape: tuple[int, ...],
) -> Approximation:
    """First-order effects of some units, of all in a shape, beside patching them."""
    varies = exact.std() > 0 and estimate.std() > 0
    correlation = float(np.corrcoef(exact.ravel(), estimate.ravel())[0, 1]) if varies else np.nan
    error = np.abs(exact - estimate)
    patched, errors = np.full((2, math.prod(shape)), np.nan)
    patched[some], errors[some] = exact.mean(1), error.mean(1)
    return Approximation(
        len(exact),
        correlation,
        float(error.mean()),
        float(np.abs(exact).mean()),
        patched.reshape(shape),
        errors.reshape(shape),
    )


def _with_controls(
    job: _PatchJob,
    effects: Sequence[UnitEffects],
    units: Sequence[Bool[np.ndarray, "N L H P"]],
    room: int,
    tests: _Tests,
) -> list[UnitEffects]:
    """The effects with their causal units patched together, beside as many random units."""
    sets, controlled = [], []
    for number, (one, masks) in enumerate(zip(effects, units, strict=True)):
        causal = np.flatnonzero(one.causal)
        some = 0 < len(causal) < len(masks) and job.kind(number) != "direct"
        controlled.append(len(causal) if some else 0)
        random = np.random.default_rng(tests.seed)
        drawn = [random.permutation(len(masks))[: len(causal)] for _ in range(tests.controls)]
        joint = [masks[chosen].any(0) for chosen in (causal, *drawn)] if some else []
        sets.append(np.stack(joint) if some else masks[:0])
    if not any(controlled):
        return list(effects)
    changed = _over_pairs(job, sets, room, _unwatched)
    return [
        dataclasses.replace(one, control=_control(number, changed, count, tests.controls))
        if (count := controlled[number])
        else one
        for number, one in enumerate(effects)
    ]


def _control(number: int, changed: PatchedBatch, count: int, draws: int) -> JointControl:
    """The effect of the causal units of a sweep together, beside those of random ones."""
    changes = changed.metrics[number][: draws + 1] - changed.bases[number]
    joint = changes.mean(1)
    as_large = int((np.abs(joint[1:]) >= abs(joint[0])).sum())
    return JointControl(count, float(joint[0]), joint[1:], (1 + as_large) / (1 + draws))


def _means(task: PatchTask, program: PatchProgram) -> tuple[Float[Any, "L #1 #1 ..."], ...]:
    """Means of the site over all real positions of the texts that values come from, by sweep."""
    batches = []
    for batch, count in task.batches():
        counted = np.arange(len(batch.places)) < count
        batches.append(site_totals(program, task.model.params, batch, counted))
    return site_means(batches)


def _check_metrics(task: PatchTask, all_pairs: PatchedBatch) -> None:
    """Refuse metrics of plain runs that are NaN or infinite."""
    broken = np.flatnonzero(~np.isfinite(all_pairs.clean + all_pairs.corrupted))
    if len(broken):
        problem = f"the metric of pair {broken[0]} is NaN or infinite"
        raise refusal(task.model.name, task.model.params, problem, go_on=False)


def _check_changes(task: PatchTask, side: str, each: Float[np.ndarray, "L H P T"]) -> None:
    """Refuse effects that are NaN or infinite."""
    broken = np.argwhere(~np.isfinite(each))
    if len(broken):
        layer, head, _, pair = broken[0].tolist()
        problem = f"patching {side} {layer}.{head}, the metric of pair {pair} is NaN or infinite"
        raise refusal(task.model.name, task.model.params, problem, go_on=False)


def _check_tests(tests: _Tests) -> None:
    if not 0 < tests.alpha <= 1:
        raise InputError(f"alpha is {tests.alpha}, expected a number above 0 and at most 1.")
    if tests.correction not in CORRECTIONS:
        raise InputError(
            f"There is no correction {tests.correction!r}.\nChoose one of {', '.join(CORRECTIONS)}."
        )
    if tests.controls < 0:
        raise InputError(f"controls are {tests.controls} random sets, expected 0 or more.")


def _check_head(task: PatchTask, side: str, layer: int, head: int) -> None:
    layers, heads = task.sizes[side]
    if not (0 <= layer < layers and 0 <= head < heads):
        raise InputError(
            f"There is no head {layer}.{head} to receive a path: the {side} has layers 0 to "
            f"{layers - 1} and heads 0 to {heads - 1}.\nBoth are counted from 0."
        )
