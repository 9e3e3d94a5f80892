# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`patch`: effects of patching every head or layer of a model, over pairs of texts.

A change is a mask `[L, H, P]` of layers, heads and groups of positions. One program makes the plain
runs of both texts of all pairs, and then runs each change: a few of them together by vmap, and the
rest in a loop of as many steps as are needed, so that neither compiling nor memory depends on their
number.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from flaxattn.attribution.patch_effects import (
    Approximation,
    JointControl,
    PatchReport,
    UnitEffects,
)
from flaxattn.attribution.patch_task import (
    STREAM,
    Metric,
    PatchBatch,
    PatchRequest,
    PatchTask,
    metric_values,
    patch_task,
    scores_at,
)
from flaxattn.corpus.texts import TextPair
from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import NOTHING, Capture
from flaxattn.measures.significance import CORRECTIONS
from flaxattn.models.interventions import Intervention, site_values, with_interventions
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.pretrained.nonfinite_error import refusal
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.trace import Trace


class SiteTotal(NamedTuple):
    """Sum of a site over real positions.

    Attributes:
        total: The sum.
        count: Number of these positions.
    """

    total: Float[Any, "L *S"]
    count: Int[Any, ""]


def site_total(
    values: Float[Array, "L B S ..."],
    inputs: Mapping[str, Any],
    side: str,
    site: str,
    counted: Bool[Any, " B"],
) -> SiteTotal:
    """Add up a site over the real positions of a batch."""
    of_source = side == "encoder" or (side == "cross" and site in ("key", "value"))
    is_target = not of_source and "decoder_input_ids" in inputs
    mask = inputs["decoder_attention_mask" if is_target else "attention_mask"]
    real = (jnp.asarray(mask) != 0) & jnp.asarray(counted)[:, None]
    spread = real.reshape(1, *real.shape, *[1] * (values.ndim - 3))
    array = jnp.where(spread, values.astype(jnp.float32), 0)
    return SiteTotal(array.sum((1, 2)), real.sum())


def site_means(batches: Sequence[Any]) -> Any:
    """Means over batches, as arrays `[L, 1, 1, ...]` that broadcast to the site."""
    added = jax.tree.map(lambda *parts: np.sum(np.asarray(parts, np.float64), 0), *batches)
    return jax.tree.map(
        lambda one: jnp.asarray(one.total / one.count, jnp.float32)[:, None, None],
        added,
        is_leaf=lambda node: isinstance(node, SiteTotal),
    )


TOGETHER = 2048  # positions of the copies of a batch that run at once
Values = Mapping[str, Mapping[str, Float[Array, "L B ..."]]]
"""Values of sites, by side and site."""


class Sweep(NamedTuple):
    """The side whose units are changed one after the other, and the run that they are changed in.

    Attributes:
        side: `encoder`, `decoder` or `cross`.
        direction: "denoise" changes the corrupted run and takes values from the clean one, "noise"
            the reverse.
    """

    side: str
    direction: str

    @property
    def base(self) -> str:
        """Name of the run that is changed: "clean" or "corrupted"."""
        return "corrupted" if self.direction == "denoise" else "clean"

    @property
    def donor(self) -> str:
        """Name of the run that values come from."""
        return "clean" if self.direction == "denoise" else "corrupted"


class Changes(NamedTuple):
    """Changes of one sweep.

    Attributes:
        masks: Masks of N changes.
        count: Number of them that are run, the first ones; the others cost nothing.
    """

    masks: Bool[Any, "N L H P"]
    count: Int[Any, ""]


class PatchedBatch(NamedTuple):
    """Metrics of the pairs of a batch.

    Attributes:
        clean: Metric of the clean run.
        corrupted: Metric of the corrupted run.
        bases: For each sweep, the metric of the run that is changed. It is run once more beside the
            changes, so that a change of nothing is exactly 0 and rounding is not taken for an
            effect.
        metrics: For each sweep, the metric under each change; 0 for changes that were not run.
        estimates: For each sweep, changes of the metric to first order, H = 1 for a site without
            heads; empty unless the program asks for them.
    """

    clean: Float[Any, " B"]
    corrupted: Float[Any, " B"]
    bases: tuple[Float[Any, " B"], ...]
    metrics: tuple[Float[Any, "N B"], ...]
    estimates: tuple[Float[Any, "L H P B"], ...]


@dataclasses.dataclass(frozen=True)
class PatchProgram:
    """The static part of a program: all that decides what is compiled.

    Attributes:
        module: The model, which records nothing.
        metric: What is judged.
        site: What is changed.
        sweeps: Sides and directions.
        sides: All sides of the model's attention.
        frozen: Sites that keep the values of the base run on a path, but for the sender's; empty
            where patched runs continue freely.
        into: Sites of the receivers that a path ends in; empty for a path to the scores.
        estimates: Whether changes are estimated to first order, too.
    """

    module: nn.Module
    metric: Metric
    site: str
    sweeps: tuple[Sweep, ...]
    sides: tuple[str, ...]
    frozen: tuple[str, ...] = ()
    into: tuple[str, ...] = ()
    estimates: bool = False

    @classmethod
    def of(cls, module: Any, metric: Metric, site: str, **settings: Any) -> "PatchProgram":
        """The program of a model, which then records and keeps nothing else."""
        return cls(module.clone(capture=NOTHING, keep_hidden=False), metric, site, **settings)

    def frozen_along(self, side: str) -> list[tuple[str, str]]:
        """Sides and sites that are frozen on a path: all heads of the sender's stack."""
        stack = "encoder" if side == "encoder" else "decoder"
        sides = [s for s in self.sides if (s == "encoder") == (stack == "encoder")]
        return [
            (one, site)
            for site in self.frozen
            for one in ([stack] if site == "feed_forward_output" else sides)
        ]

    def where(
        self, mask: Bool[Array, "L H P"], batch: PatchBatch, side: str
    ) -> Bool[Array, "L #B ..."]:
        """A change as the mask of an intervention, which has no axis of a model's last one."""
        groups = None if batch.groups is None else jnp.asarray(batch.groups)
        if groups is None:  # all positions: axes B and S of size 1
            spread = mask[:, None, None, :, 0]
        else:
            count = jnp.einsum("lhp,pbs->lbsh", mask, groups, preferred_element_type=jnp.int32)
            spread = count > 0
        if self.site in ("query", "key", "value", "head_output"):
            return spread
        by_head = spread.transpose(0, 1, 3, 2)
        if self.site == "weights":  # groups are of queries
            return by_head[..., None]
        if self.site == "scores":  # groups are of keys, the query is the one that answers
            ids = batch.clean.get("decoder_input_ids", batch.clean["input_ids"])
            requested = jnp.arange(ids.shape[1])[None] == jnp.asarray(batch.places)[:, None]
            return by_head[..., None, :] & requested[None, :, None, :, None]
        return spread.any(-1)


class _Run(NamedTuple):
    """A run that is changed, and all that its metric depends on.

    Attributes:
        program: The static part.
        params: Parameters of the model.
        batch: The pairs.
        side: Side whose units are changed.
        inputs: Arguments of the model.
        values: Those of the run without changes.
        clean_scores: Scores of the clean run.
    """

    program: PatchProgram
    params: Any
    batch: PatchBatch
    side: str
    inputs: Mapping[str, Any]
    values: Values
    clean_scores: Float[Array, "B V"]

    def metric(self, changes: list[Intervention]) -> Float[Array, " B"]:
        """The metric of the run with changes."""
        batch = self.batch
        variables = with_interventions(self.params, changes)
        scores, _ = scores_at(self.program.module, variables, self.inputs, batch.places)
        metric = self.program.metric
        return metric_values(metric, scores, batch.answers, batch.wrong, self.clean_scores)

    def changed(self, mask: Bool[Array, "L H P"], donor: Float[Any, "..."]) -> Intervention:
        """The site with the donor's values where a mask says so."""
        where = self.program.where(mask, self.batch, self.side)
        return Intervention(self.program.site, donor, where=where, side=self.side)


@functools.partial(jax.jit, static_argnames=("program",))
def patch_batch(
    program: PatchProgram,
    params: Any,
    batch: PatchBatch,
    changes: tuple[Changes, ...],
    donors: tuple[Float[Any, "..."], ...] | None = None,
    receivers: tuple[Bool[Any, "L H"], ...] | None = None,
) -> PatchedBatch:
    """The metric of a batch in its plain runs, and under each change of each sweep.

    A site takes the donor's values where the mask of a change says so. On a path (Wang et al.
    2023) a first run freezes all heads of the stack at the base run's values, but for the sender,
    which has the donor's, and records what the receivers then read; a second run, in which nothing
    is frozen, gives the receivers that. Without receivers the first run is judged.
    """
    runs = {
        name: _plain_run(program, params, getattr(batch, name), batch, donors is None)
        for name in ("clean", "corrupted")
    }
    clean_scores = runs["clean"][0]
    plain = {
        name: metric_values(program.metric, scores, batch.answers, batch.wrong, clean_scores)
        for name, (scores, _) in runs.items()
    }
    bases, metrics, estimates = [], [], []
    for number, (sweep, some) in enumerate(zip(program.sweeps, changes, strict=True)):
        inputs, values = getattr(batch, sweep.base), runs[sweep.base][1]
        run = _Run(program, params, batch, sweep.side, inputs, values, clean_scores)
        donor = runs[sweep.donor][1][sweep.side][program.site] if donors is None else donors[number]
        ends = None if receivers is None else receivers[number]
        judged = functools.partial(_path_patched if program.frozen else _patched, run, donor, ends)
        each = _each(judged, some, batch)
        bases.append(each[0])
        metrics.append(each[1:])
        if program.estimates:
            estimates.append(_estimated(run, donor))
    return PatchedBatch(
        **plain, bases=tuple(bases), metrics=tuple(metrics), estimates=tuple(estimates)
    )


@functools.partial(jax.jit, static_argnames=("program",))
def site_totals(
    program: PatchProgram, params: Any, batch: PatchBatch, counted: Bool[Any, " B"]
) -> tuple[SiteTotal, ...]:
    """Sums of the site over all real positions of the donor's run, and their number, by sweep."""
    totals = []
    for sweep in program.sweeps:
        inputs = getattr(batch, sweep.donor)
        _, values = _plain_run(program, params, inputs, batch, True)
        array = values[sweep.side][program.site]
        totals.append(site_total(array, inputs, sweep.side, program.site, counted))
    return tuple(totals)


def _plain_run(
    program: PatchProgram, params: Any, inputs: Any, batch: PatchBatch, donates: bool
) -> tuple[Float[Array, "B V"], Values]:
    """Scores of a run without changes, and the values of the sites that are needed."""
    wanted = {pair: None for sweep in program.sweeps for pair in program.frozen_along(sweep.side)}
    if donates or program.estimates:
        wanted |= {(sweep.side, program.site): None for sweep in program.sweeps}
    module: Any = program.module
    if program.site == "weights" and wanted:
        module = module.clone(capture=Capture(weights=True))
        variables = {"params": params}
        scores, state = scores_at(module, variables, inputs, batch.places, ("intermediates",))
        records: Any = Trace.from_variables(state).sides
        return scores, {side: {"weights": records[side].weights} for side, _ in wanted}
    requested = [Intervention(site, operation="record", side=side) for side, site in wanted]
    variables = with_interventions(params, requested)
    collections = ("sites",) if requested else ()
    scores, state = scores_at(module, variables, inputs, batch.places, collections)
    return scores, site_values(state) if requested else {}


def _patched(
    run: _Run, donor: Float[Any, "..."], ends: None, mask: Bool[Array, "L H P"]
) -> Float[Array, " B"]:
    """The metric where a site takes the donor's values."""
    del ends
    return run.metric([run.changed(mask, donor)])


def _path_patched(
    run: _Run, donor: Float[Any, "..."], ends: Bool[Any, "L H"] | None, mask: Bool[Array, "L H P"]
) -> Float[Array, " B"]:
    """The metric where a sender reaches the receivers alone."""
    program, side = run.program, run.side
    frozen = [
        Intervention(site, run.values[one][site], side=one)
        for one, site in program.frozen_along(side)
    ]
    first = [*frozen, run.changed(mask, donor)]
    if ends is None:
        return run.metric(first)
    reading = [Intervention(site, operation="record", side=side) for site in program.into]
    variables = with_interventions(run.params, [*first, *reading])
    _, state = scores_at(program.module, variables, run.inputs, run.batch.places, ("sites",))
    read = site_values(state)[side]
    where = jnp.asarray(ends)[:, None, None]
    return run.metric([Intervention(s, read[s], where=where, side=side) for s in program.into])


def _estimated(run: _Run, donor: Float[Any, "..."]) -> Float[Array, "L H P B"]:
    """Patching to first order: (donor - base) · gradient of the metric, one backward pass."""
    site = run.program.site
    base = run.values[run.side][site]

    def total(added: Array) -> Array:
        return run.metric([Intervention(site, added, operation="add", side=run.side)]).sum()

    slope = jax.grad(total)(jnp.zeros_like(base))
    products = ((donor - base) * slope).sum(-1)
    if site == "weights":
        products = products.swapaxes(2, 3)
    products = products if products.ndim == 4 else products[..., None]
    if run.batch.groups is None:
        return products.sum(2).transpose(0, 2, 1)[:, :, None]
    groups = jnp.asarray(run.batch.groups).astype(products.dtype)
    return jnp.einsum("lbsh,pbs->lhpb", products, groups)


def _each(
    judged: Callable[[Bool[Array, "L H P"]], Float[Array, " B"]],
    changes: Changes,
    batch: PatchBatch,
) -> Float[Array, "M B"]:
    """The metric without a change, and of every change; many run together, to keep devices busy."""
    masks, (count, positions) = jnp.asarray(changes.masks), batch.clean["input_ids"].shape
    masks = jnp.concatenate([jnp.zeros_like(masks[:1]), masks])
    steps = -(-len(masks) // max(1, TOGETHER // (count * positions)))
    together = -(-len(masks) // steps)
    room = ((0, steps * together - len(masks)), *[(0, 0)] * 3)
    parts = jnp.pad(masks, room).reshape(steps, together, *masks.shape[1:])
    needed = (changes.count + together) // together  # one more than the changes, rounded up

    def step(n: Array, metrics: Array) -> Array:
        return metrics.at[n].set(jax.vmap(judged)(parts[n]))

    metrics = jax.lax.fori_loop(0, needed, step, jnp.zeros((steps, together, count)))
    return metrics.reshape(-1, count)[: len(masks)]


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
