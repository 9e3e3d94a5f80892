# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Do a checkpoint and a model belong together? The report, and the error that says why not.

It compares names and shapes; it reads no tensor, except to compare two that should be one.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from flaxattn.errors import CheckpointError
from flaxattn.pretrained.name_tables import Family, NameRow
from flaxattn.trace.tensor_file import TensorFiles


@dataclasses.dataclass(frozen=True)
class CheckpointMatch:
    """Report on how the tensors of a checkpoint match the parameters of a model.

    Attributes:
        missing: Tensors of the head that the checkpoint lacks; freshly initialised.
        unexpected: Tensors of the checkpoint that the model does not use.
        ignored: Buffers, and copies of tied weights.
    """

    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def table(self) -> str:
        """A plain-text table with one line per name; empty if everything met."""
        notes = {
            "missing": "freshly initialised: train it before use",
            "unexpected": "in the checkpoint, not in this model",
            "ignored": "a buffer or a copy of a tied weight",
        }
        lines = [(status, name) for status in notes for name in getattr(self, status)]
        width = max((len(name) for _, name in lines), default=0)
        return "\n".join(f"{s.upper():10}  {name:{width}}  {notes[s]}" for s, name in lines)

    __str__ = table


def compare(
    files: TensorFiles,
    found: Mapping[str, str],
    rows: Mapping[str, NameRow],
    family: Family,
    config: Any,
    *,
    compare_tied: bool = True,
) -> CheckpointMatch:
    """Compare the tensors that a model needs with those of a checkpoint."""
    missing, lost, wrong, used = [], [], [], set[str]()
    causes: dict[str, None] = {}
    for row in {row.theirs: row for row in rows.values()}.values():
        for layer, name in enumerate(family.numbered(row, config)):
            expected = family.shape(row, config, layer)
            if name not in found:
                if name not in family.silent:
                    (lost if name.startswith(family.core) else missing).append(name)
                continue
            used.add(name)
            shape = files.shapes[found[name]]
            if shape != expected:
                wrong.append(f"{name} {list(shape)} instead of {list(expected)}")
                causes |= _causes(family, row, shape, expected, config)
    if lost or wrong:
        raise CheckpointError(_mismatch(files, family, lost, wrong, list(causes)))
    idle = family.idle(config, rows)
    if compare_tied:
        _check_tied(files, found, set(found) - used, idle)
    ignored = {name for name in found if family.is_buffer(name) or name in idle} - used
    unexpected = sorted(set(found) - used - ignored, key=_natural)
    return CheckpointMatch(tuple(missing), tuple(unexpected), tuple(sorted(ignored)))


def check_layers(files: TensorFiles, found: Mapping[str, str], family: Family, config: Any) -> None:
    """Check that a checkpoint has the layers that its config says."""
    for before, numbers in family.layer_numbers(found).items():
        if getattr(config, family.layers[before]) == 0:  # a side that the model does without
            continue
        if not numbers:
            held = ", ".join(sorted(files.shapes)[:3]) or "no tensor at all"
            raise CheckpointError(
                f"{files.directory} does not hold a {family.name}: no tensor is called {before}0.…"
                f"\nIt holds {held}.\n"
                f"Its config.json describes a {family.name}; take both from the same model."
            )
        setting = family.layers[before]
        if (count := max(numbers) + 1) != getattr(config, setting):
            raise CheckpointError(
                f"{files.directory} does not match its config.json: {setting} is "
                f"{getattr(config, setting)}, the tensors have {count} layers.\n"
                "Take config.json and the weights from the same model."
            )


def _check_tied(
    files: TensorFiles,
    found: Mapping[str, str],
    unused: set[str],
    idle: Mapping[str, str | None],
) -> None:
    """Check that tensors that the model does not need, but that are tied, are the same numbers."""
    for name in sorted(unused & set(idle)):
        original = idle[name]
        if original is None or original not in found:
            continue
        one, other = files.read(found[original]), files.read(found[name])
        if not np.array_equal(one, other, equal_nan=True):
            raise CheckpointError(
                f"{files.directory} does not match its config.json, which ties {name} to "
                f"{original}: it is a different tensor.\n"
                'If they were trained apart, set "tie_word_embeddings": false in config.json.'
            )


def _causes(
    family: Family, row: NameRow, found: tuple[int, ...], expected: tuple[int, ...], config: Any
) -> dict[str, None]:
    if len(found) != len(expected):
        return {}
    causes: dict[str, None] = {}
    by_layer = {letter for letter, name in family.sizes.items() if callable(getattr(config, name))}
    differ = {c for c, *sizes in zip(row.shape, expected, found, strict=True) if len({*sizes}) > 1}
    if differ <= by_layer and len(row.shape) > 1:
        causes["pruned_heads of config.json are not the heads that the tensors lack"] = None
    for letter, here, there in zip(row.shape, expected, found, strict=True):
        if here != there and letter in family.sizes and letter not in by_layer:
            config, tensors = (size - family.extra.get(letter, 0) for size in (here, there))
            name = family.sizes[letter]
            causes[f"{name} is {config} in config.json, {tensors} in the tensors"] = None
    return causes


def _mismatch(
    files: TensorFiles, family: Family, lost: list[str], wrong: list[str], causes: list[str]
) -> str:
    """At most three lines that name every missing and every misshapen tensor, and a cause."""
    what = [f"it lacks {len(lost)} tensors"] if lost else []
    what += [f"{len(wrong)} tensors have another shape"] if wrong else []
    listed = [f"Missing: {', '.join(family.folded(lost))}."] if lost else []
    listed += [f"Shapes: {', '.join(family.folded(wrong))}."] if wrong else []
    cause = "; ".join(causes) or "an incomplete copy, or weights of another kind of model"
    return (
        f"{files.directory} does not match its config.json: {' and '.join(what)}.\n"
        f"{' '.join(listed)}\nLikely cause: {cause}."
    )


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.split(".")]


def strange(report: CheckpointMatch, family: Family) -> list[str]:
    """Return the unexpected tensors that no model of the family has, with any head."""
    return family.folded(name for name in report.unexpected if not family.is_known(name))
