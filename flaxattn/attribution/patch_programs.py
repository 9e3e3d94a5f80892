# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The compiled program of patching: a batch of pairs, plain and under many changes.

A change is a mask `[L, H, P]` of layers, heads and groups of positions. One program makes the plain
runs of both texts of all pairs, and then runs each change: a few of them together by vmap, and the
rest in a loop of as many steps as are needed, so that neither compiling nor memory depends on their
number. What is changed, and what the numbers mean, is decided in `flaxattn.attribution.patching`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from flaxattn.attribution.patch_metrics import Metric, metric_values, scores_at
from flaxattn.attribution.patch_task import PatchBatch
from flaxattn.attribution.site_means import SiteTotal, site_total
from flaxattn.kernels.contract import NOTHING, Capture
from flaxattn.models.interventions import Intervention, site_values, with_interventions
from flaxattn.trace.trace import Trace

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
        masks: Of N changes.
        count: Number of them that are run, the first ones; the others cost nothing.
    """

    masks: Bool[Any, "N L H P"]
    count: Int[Any, ""]


class PatchedBatch(NamedTuple):
    """Metrics of the pairs of a batch.

    Attributes:
        clean: Of the clean run.
        corrupted: Of the corrupted run.
        bases: Of each sweep, of the run that is changed. It is run once more beside the changes, so
            that a change of nothing is exactly 0 and rounding is not taken for an effect.
        metrics: Of each sweep, under each change; 0 for changes that were not run.
        estimates: Of each sweep, changes of the metric to first order, H = 1 for a site without
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
        params: Of the model.
        batch: The pairs.
        side: Whose units are changed.
        inputs: Arguments of the model.
        values: Those of the run without changes.
        clean_scores: Of the clean run.
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
