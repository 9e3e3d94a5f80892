# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One pass of models over tokenized texts: `ModelRunner`, the only loop over batches.

Extraction, scores, probes, search, embeddings and predictions give it a program and use what it
yields for each text. It chooses batches, keeps the device busy, halves batches where memory does
not suffice, refuses numbers that are not finite and reports progress.
"""

import collections
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError
from flaxattn.kernels.contract import NOTHING, Capture
from flaxattn.pipeline.batches import Batch, BatchBudget, RowSlot, planned, stacked
from flaxattn.pipeline.device_step import (
    AttentionProgram,
    DeviceOutput,
    DeviceStep,
    Program,
)
from flaxattn.pipeline.length_buckets import Cost
from flaxattn.pipeline.progress_reporter import Watch, ignore
from flaxattn.pipeline.text_sizes import sides
from flaxattn.pipeline.tokenize_texts import describe_range
from flaxattn.pretrained.nonfinite_error import Place, first_nonfinite, nonfinite_error, refusal
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.readings import TokenizedTexts
from flaxattn.trace.record import SIDES

_AHEAD = 2  # batches that the device is given before the first is fetched
_TOKENS = {"cpu": 1024}  # positions of a batch by default, on each device
_MANY_TOKENS = 16384  # on accelerators
# Positions times parameters that a device computes while a shape is compiled, roughly.
_COMPILING = {"cpu": 5e10}
_MUCH_COMPILING = 1e14  # accelerators


class TextOutput(NamedTuple):
    """What a program returned for one text.

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
    side = sides(model.config)[0]
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
