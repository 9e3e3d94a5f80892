# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One pass of models over tokenized texts: `ModelRunner`, the only loop over batches.

Extraction, scores, probes, search, embeddings and predictions give it a program, which the compiled
step runs on one device or several, and use what it yields for each text. It chooses batches, keeps
the device busy, halves batches where memory does not suffice, refuses numbers that are not finite
and reports progress.
"""

import collections
import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, PyTree

from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError, UnavailableError
from flaxattn.kernels.contract import NOTHING, Capture
from flaxattn.models.layer_stack import unstacked
from flaxattn.pipeline.batches import Batch, BatchBudget, Cost, RowSlot, planned, stacked
from flaxattn.pipeline.batches import sides as sizes_of
from flaxattn.pipeline.progress_reporter import Watch, ignore
from flaxattn.pipeline.tokenize_texts import describe_range
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.nonfinite_error import Place, first_nonfinite, nonfinite_error, refusal
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.record import (
    SIDES,
    AttentionRecord,
    NonFinite,
    count_nonfinite,
    with_lse,
    without_added_lse,
)
from flaxattn.trace.trace import Trace

Sides = dict[str, AttentionRecord]
Recorded = tuple[Sides, dict[str, NonFinite]]
"""Records by side, and where they hold NaN or infinity."""
Arguments = Mapping[str, Any]
"""Arrays `[B, …]` by name, or trees of them, such as labels of positions by side."""
_log = logging.getLogger(__name__)
_DATA = "data"
_HALVINGS = 4


class Program(Protocol):
    """Computation on a batch; hashable, static under jit."""

    def __call__(
        self, module: nn.Module, params: Any, given: Arguments, notes: Arguments
    ) -> PyTree[Array]:
        """Run a module on its arguments and return a tree of arrays `[N, B, …]`.

        Args:
            module: The architecture, with its capture request.
            params: Parameters of one model.
            given: Arguments of the module.
            notes: Further arguments, for the program alone.
        """
        ...

    def label(self, number: int) -> str:
        """Name the numbers at an index of axis N, for errors."""
        ...


class Reduction(Protocol):
    """Function that replaces records on the device; hashable."""

    def __call__(self, sides: Mapping[str, AttentionRecord], notes: Arguments) -> Sides:
        """Reduce attention records `[L, B, …]` to others, with what else was given."""
        ...


@dataclasses.dataclass(frozen=True)
class AttentionProgram:
    """Attention records of a batch; outputs that nobody needs are not computed.

    Attributes:
        reduction: Makes other records of them before they leave the device; None keeps them.
    """

    reduction: Reduction | None = None

    def __call__(
        self, module: nn.Module, params: Any, given: Arguments, notes: Arguments
    ) -> Recorded:
        """Return the records that the module's capture names, and count what is not finite."""
        capture: Capture = vars(module)["capture"]
        watched = module.clone(capture=with_lse(capture))
        state = watched.apply({"params": params}, **given, mutable=["intermediates"])[1]
        whole = Trace.from_variables(state).sides
        sides = {side: without_added_lse(record, capture) for side, record in whole.items()}
        sides = sides if self.reduction is None else self.reduction(sides, notes)
        return sides, {side: count_nonfinite(whole[side], side, given) for side in sides}

    def label(self, number: int) -> str:
        """Name the records."""
        del number
        return "attention records"


@functools.partial(jax.jit, static_argnames=("module", "program", "several"))
def run_program(
    module: nn.Module,
    program: Program,
    params: Any,
    given: Arguments,
    notes: Arguments,
    several: bool = False,
) -> PyTree[Array]:
    """Run a program; with `several`, for parameters that are stacked along a first axis."""
    # Runs while the program is traced, so once for each shape.
    _log.debug(
        "compiling a step of %s for %s", type(module).__name__, jax.tree.map(jnp.shape, given)
    )
    one = functools.partial(program, module, given=given, notes=notes)
    outputs = jax.vmap(one)(params) if several else one(params)
    if jax.sharding.get_abstract_mesh().empty:
        return outputs
    rows = P(*[None] * (1 + several), _DATA)
    return jax.lax.with_sharding_constraint(outputs, rows)


class DeviceOutput(NamedTuple):
    """Outputs of consecutive rows of a batch, on the host.

    Attributes:
        first: The first of these rows.
        rows: Number of rows.
        models: What the program returned for each model, NumPy arrays `[N, rows, …]`.
    """

    first: int
    rows: int
    models: list[Any]


class StartedBatch(NamedTuple):
    """A batch that the device may be working on.

    Attributes:
        given: Its arguments.
        outputs: What will be computed; None where memory did not suffice.
    """

    given: Arguments
    outputs: Any | None


class DeviceStep:
    """Runs a program for models of one architecture.

    Args:
        module: The architecture, with its capture request.
        params: Parameters of each model.
        program: What is computed.
        mesh: With an axis "data", along which batches are cut; None for the default device.
        notes: Names of arguments that are for the program, not for the module.

    Raises:
        InputError: For a mesh without such an axis.
    """

    def __init__(
        self,
        module: nn.Module,
        params: Sequence[Any],
        program: Program,
        mesh: Mesh | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        if mesh is not None and _DATA not in mesh.shape:
            raise InputError(
                f'the mesh has no axis "{_DATA}", along which batches are cut\n'
                f"received axes {list(mesh.axis_names)}\n"
                'make it with jax.make_mesh((devices,), ("data",))'
            )
        self._module, self._program = module, program
        self._several = len(params) > 1
        self._mesh = mesh
        self._notes = frozenset(notes)
        # Up to a tenth of the time on CPU: no layer is copied out of its stack for every batch, and
        # the last one ends with its attention (BENCHMARKS.md). Accelerators copy a layer in
        # microseconds, and compile one kernel where they would have to compile L; so do programs
        # that reduce, which are compiled for longer than a thousand texts take.
        unstacks = _on_cpu() and program == AttentionProgram()
        each = [unstacked(p) if unstacks else p for p in params]
        whole = jax.tree.map(lambda *p: jnp.stack(p), *each) if self._several else each[0]
        self._params = jax.device_put(whole, self._sharding(P()))
        self.parts = 1 if mesh is None else mesh.shape[_DATA]
        self.halvings = 0

    def begin(self, given: Arguments) -> StartedBatch:
        """Give the device a batch."""
        if self.halvings:  # memory is scarce: one part after the other, when they are fetched
            return StartedBatch(given, None)
        try:
            return StartedBatch(given, self._run(given))
        except Exception as error:
            self._halve(error, given)
            return StartedBatch(given, None)

    def end(self, started: StartedBatch) -> Iterator[DeviceOutput]:
        """Yield the outputs of a batch, in parts."""
        given, outputs = started
        rows = _rows(given)
        first = 0
        while first < rows:
            size = rows if outputs is not None else self._size(rows)
            try:
                if outputs is None:
                    places = np.minimum(np.arange(first, first + size), rows - 1)
                    outputs = self._run(_taken(given, places))
                parts = self._fetched(outputs, first)
            except Exception as error:
                outputs, started = None, StartedBatch(given, None)  # free it on the device
                self._halve(error, given)
                continue
            outputs, started = None, StartedBatch(given, None)
            yield from parts
            first += size

    def _run(self, given: Arguments) -> Any:
        placed = {n: jax.device_put(a, self._sharding(P(_DATA))) for n, a in given.items()}
        with contextlib.nullcontext() if self._mesh is None else jax.set_mesh(self._mesh):
            outputs = self._outputs(self._params, placed)
        if not _on_cpu():
            for leaf in jax.tree.leaves(outputs):
                leaf.copy_to_host_async()
        return outputs

    def _outputs(self, params: Any, placed: Arguments) -> Any:
        given = {n: a for n, a in placed.items() if n not in self._notes}
        notes = {n: a for n, a in placed.items() if n in self._notes}
        return run_program(self._module, self._program, params, given, notes, self._several)

    def _fetched(self, outputs: Any, first: int) -> list[DeviceOutput]:
        """Parts as the devices hold them: on a CPU nothing is copied."""
        axis = 1 + self._several
        found: dict[int, list[np.ndarray]] = {}
        leaves, tree = jax.tree.flatten(outputs)
        for leaf in leaves:
            starts = {s.index[axis].start or 0: s.data for s in leaf.addressable_shards}
            for start, data in starts.items():
                found.setdefault(start, []).append(np.asarray(data))
        parts = []
        for start in sorted(found):
            arrays = found[start]
            each = range(len(arrays[0])) if self._several else [...]
            models = [jax.tree.unflatten(tree, [a[i] for a in arrays]) for i in each]
            parts.append(DeviceOutput(first + start, arrays[0].shape[axis], models))
        return parts

    def _sharding(self, spec: P) -> Any:
        return None if self._mesh is None else NamedSharding(self._mesh, spec)

    def _size(self, rows: int) -> int:
        """Rows that are computed at once, a multiple of `parts`."""
        shares = -(-rows // self.parts)
        return max(-(-shares >> self.halvings), 1) * self.parts

    def _halve(self, error: Exception, given: Arguments) -> None:
        """Halve from here on, or raise where that is of no use."""
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise error
        rows = _rows(given)
        size = self._size(rows)
        if self.halvings < _HALVINGS and size > self.parts:
            self.halvings += 1
            return
        sides = (given[name] for name in given if name.endswith("input_ids"))
        widths = sorted({array.shape[1] for array in sides}, reverse=True)
        shape = " x ".join(str(n) for n in (size, *widths))
        less = "fewer layers or heads, statistics instead of weights, dtype=uint8"
        advice = f"ask for less: {less}\nor " if self._program == AttentionProgram() else ""
        raise UnavailableError(
            f"out of memory with a batch of {shape}, after halving it {self.halvings} times; what "
            f"is kept of it takes {self._bytes(given, size):,} bytes\n"
            f"{advice}give shorter texts, or a lower batch_tokens from the start"
        ) from error

    def _bytes(self, given: Arguments, rows: int) -> int:
        shapes = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct((rows, *a.shape[1:]), a.dtype), dict(given)
        )
        outputs = jax.eval_shape(self._outputs, self._params, shapes)
        kept = outputs[0] if isinstance(self._program, AttentionProgram) else outputs
        return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(kept))


def _rows(given: Arguments) -> int:
    return len(jax.tree.leaves(dict(given))[0])


def _taken(given: Arguments, places: np.ndarray) -> Arguments:
    """Some rows of a batch."""
    return jax.tree.map(lambda array: array[places], dict(given))


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


_AHEAD = 2  # batches that the device is given before the first is fetched
_TOKENS = {"cpu": 1024}  # positions of a batch by default, on each device
_MANY_TOKENS = 16384  # on accelerators
# Positions times parameters that a device computes while a shape is compiled, roughly.
_COMPILING = {"cpu": 5e10}
_MUCH_COMPILING = 1e14  # accelerators


class TextOutput(NamedTuple):
    """Result of a program for one text.

    Attributes:
        text: Number of the text among those of the pass.
        start: Its first position in its row, which other texts may share.
        models: Output for each model: NumPy arrays `[N, 1, …]`, which may be views of a batch.
    """

    text: int
    start: int
    models: list[Any]


class ModelRunner:
    """Runs a program for models of one architecture over tokenized texts.

    Args:
        models: One or several that differ in their parameters only.
        program: What is computed of a batch.
        capture: Request for attention records.
        keep_hidden: Whether the module returns all hidden states.
        packs: Whether texts may share rows, where the model and the request allow it.
        mesh: Devices with an axis "data" that share every batch; None for the default device.
        notes: Names of arguments that are for the program, not for the module.
        batch_tokens: Positions of a batch, padding counted; None for the default of the device.
        allow_nonfinite: Whether NaN and infinity are passed on instead of refused; None where the
            caller has no such option, which is then not offered.
        watch: Receives progress.
        stage: Name of the pass in reports of progress.

    Attributes:
        budget: Size of a batch, and its cost.
    """

    def __init__(
        self,
        models: Sequence[Pretrained],
        program: Program,
        capture: Capture = NOTHING,
        *,
        keep_hidden: bool = False,
        packs: bool = False,
        mesh: Mesh | None = None,
        notes: Sequence[str] = (),
        batch_tokens: int | None = None,
        allow_nonfinite: bool | None = None,
        watch: Watch = ignore,
        stage: str = "",
    ) -> None:
        module = models[0].module.clone(capture=capture, keep_hidden=keep_hidden)
        self._models, self._program = models, program
        self._step = DeviceStep(module, [one.params for one in models], program, mesh, notes)
        budget = batch_budget(models, self._step.parts, batch_tokens)
        self.budget = budget._replace(packs=packs and models[0].packs(capture))
        self._allow_nonfinite = allow_nonfinite
        self._watch, self._stage = watch, stage

    def batches(self, rows: Sequence[TokenizedTexts], widths: Sequence[int] = ()) -> list[Batch]:
        """Return the batches of some texts; `widths` are the lengths they are padded to."""
        lengths = [row.lengths for row in rows]
        return planned(lengths, self._models[0].limit, self.budget, widths)

    def run(
        self,
        rows: Sequence[TokenizedTexts],
        texts: Sequence[Text] | Sequence[str],
        *,
        batches: Sequence[Batch] | None = None,
        inputs: Callable[[Batch], Mapping[str, Any]] | None = None,
        trim: Callable[[int, Any], Any] | None = None,
    ) -> Iterator[TextOutput]:
        """Yield the output for each text, batch by batch.

        Two batches are with the device while the output of the one before is used.

        Args:
            rows: The texts as the model takes them.
            texts: The same texts, or their names in errors.
            batches: Those of `batches(rows)`, which are the default.
            inputs: Makes the arguments of a batch; default those of the module.
            trim: Removes padding from the output for a text, given its number.
        """
        make = functools.partial(stacked, rows) if inputs is None else inputs
        queue = collections.deque(self.batches(rows) if batches is None else batches)
        started: collections.deque[tuple[Batch, Any]] = collections.deque()
        while queue or started:
            if queue and len(started) <= _AHEAD:
                batch = queue.popleft()
                started.append((batch, self._step.begin(make(batch))))
                continue
            batch = started[0][0]
            # The queue alone holds what is on the device, so that the step can free it.
            for part in self._step.end(started.popleft()[1]):
                yield from self._finished(part, batch, texts, trim)
            self._watch(self._stage, len(batch.places))

    def _finished(
        self,
        part: DeviceOutput,
        batch: Batch,
        texts: Sequence[Text] | Sequence[str],
        trim: Callable[[int, Any], Any] | None,
    ) -> Iterator[TextOutput]:
        """Yield the output for each text of some rows."""
        of_attention = isinstance(self._program, AttentionProgram)
        if of_attention and not self._allow_nonfinite:
            self._check_attention(part, batch, texts)
        for place in batch.places:
            row = place.row - part.first
            if not 0 <= row < part.rows:
                continue
            outputs = [_row_of(output, row) for output in part.models]
            if trim is not None:
                outputs = [trim(place.text, output) for output in outputs]
            if not of_attention and not self._allow_nonfinite:
                self._check_vectors(outputs, _name(texts, place))
            yield TextOutput(place.text, place.start, outputs)

    def _check_attention(
        self, part: DeviceOutput, batch: Batch, texts: Sequence[Text] | Sequence[str]
    ) -> None:
        """Refuse attention that is NaN or infinite."""
        # Rows after those of the texts repeat the last one.
        used = min(max(batch.places[-1].row + 1 - part.first, 0), part.rows)
        for model, (_, nonfinite) in zip(self._models, part.models, strict=True):
            for side in (side for side in SIDES if side in nonfinite):
                place = first_nonfinite(nonfinite[side], used)
                if place is not None:
                    name = _name(texts, _slot_at(batch, part.first, place))
                    raise nonfinite_error(model.name, model.params, place, side, name)

    def _check_vectors(self, outputs: Sequence[Any], name: str) -> None:
        """Refuse output for a text that holds NaN or infinity."""
        for model, output in zip(self._models, outputs, strict=True):
            for array in jax.tree.leaves(output):
                if np.isfinite(array).all():
                    continue
                number = next(n for n, one in enumerate(array) if not np.isfinite(one).all())
                problem = f"the {self._program.label(number)} are NaN or infinite for {name}"
                advise = self._allow_nonfinite is not None
                raise refusal(model.name, model.params, problem, go_on=advise)


def batch_budget(
    models: Sequence[Pretrained], parts: int, batch_tokens: int | None = None
) -> BatchBudget:
    """Return the size of a batch over so many devices, and its cost."""
    each = _TOKENS.get(jax.default_backend(), _MANY_TOKENS)
    tokens = each * parts if batch_tokens is None else batch_tokens
    if tokens < 1:
        raise InputError(f"batch_tokens is {tokens}, expected at least 1")
    model = models[0]
    size = sum(leaf.size for leaf in jax.tree.leaves(model.params))
    work = _COMPILING.get(jax.default_backend(), _MUCH_COMPILING)
    side = sizes_of(model.config)[0]
    cost = Cost(int(work / (size * len(models))), side.heads * side.depth)
    return BatchBudget(tokens, parts, cost)


def mesh_of(mesh: Mesh | None = None, devices: Sequence[Any] | None = None) -> Mesh | None:
    """Return the mesh that batches are cut over; by default all devices of this process."""
    if mesh is not None and devices is not None:
        raise InputError("give either mesh or devices, not both")
    if mesh is not None:
        return mesh
    if devices is None:
        chosen = jax.config.jax_default_device
        devices = jax.local_devices() if chosen is None else [None]
        if len(devices) == 1:
            return None
    if not len(devices):
        raise InputError("devices is empty\nname at least one, or leave it out for all")
    return Mesh(np.array(devices), ("data",), axis_types=(AxisType.Auto,))


def _row_of(output: Any, row: int) -> Any:
    return jax.tree.map(lambda array: array[:, row : row + 1], output)


def _name(texts: Sequence[Text] | Sequence[str], place: RowSlot) -> str:
    """Return the name of a text in an error."""
    text = texts[place.text]
    return text if isinstance(text, str) else describe_range([text])


def _slot_at(batch: Batch, first: int, place: Place) -> RowSlot:
    """Return the text that a position of a part of the batch belongs to."""
    row = first + place.row
    return max(
        (slot for slot in batch.places if slot.row == row and slot.start <= place.position),
        key=lambda slot: slot.start,
    )
