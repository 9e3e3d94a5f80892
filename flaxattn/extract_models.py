# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What extraction asks of models: several that run as one must be alike, and some write first.

Batches and devices are not known here.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from flaxattn.encoded import Reader
from flaxattn.errors import InputError
from flaxattn.extract_batches import Batch, stacked
from flaxattn.handle import Pretrained
from flaxattn.inputs import bucket
from flaxattn.reading import Reading
from flaxattn.seq2seq_handle import PretrainedSeq2Seq


def check_alike(models: Sequence[Pretrained]) -> None:
    """Check that models differ in nothing but the values of their parameters.

    Args:
        models: At least one.

    Raises:
        InputError: Naming the first that differs, and in what.
    """
    if not models:
        raise InputError("there is no model\nname at least one")
    first = models[0]
    for model in models[1:]:
        told = {
            "architecture or configuration": model.module != first.module,
            "shapes of parameters": _shapes(model) != _shapes(first),
            "tokenizer": not _same_readers(model, first),
        }
        if wrong := [what for what, differs in told.items() if differs]:
            raise InputError(
                f"{model.name!r} and {first.name!r} cannot run as one: they differ in "
                f"{wrong[0]}\nextract them one after the other"
            )


def with_targets(
    models: Sequence[Pretrained],
    rows: Sequence[Reading],
    settings: Mapping[str, Any],
    batch_tokens: int,
) -> Sequence[Reading]:
    """Rows with the targets that an encoder-decoder writes, where they came without.

    What is written for a source does not depend on those beside it: a batch has one limit of
    length, which would else follow from its longest source.

    Args:
        models: Of which several cannot write, as their targets would differ.
        rows: Of one text each.
        settings: Of `generate`.
        batch_tokens: Positions of a batch.

    Raises:
        InputError: For settings of a model that writes nothing here, or several models.
    """
    model = models[0]
    if not isinstance(model, PretrainedSeq2Seq) or len(rows[0].lengths) == 2:
        if settings:
            raise InputError(
                f"{', '.join(settings)}: nothing is written here, so there is nothing to set\n"
                "leave them out; only an encoder-decoder without targets writes"
            )
        return rows
    if len(models) > 1:
        raise InputError(
            "several models write different targets, which cannot be read as one\n"
            "give the targets, as text_b"
        )
    told = dict(settings)
    seed = told.pop("seed", 0)
    groups: dict[Any, list[int]] = {}
    for i in sorted(range(len(rows)), key=lambda i: rows[i].lengths, reverse=True):
        length = rows[i].lengths[0]
        decoding = model.decoding(length, 1, told)
        groups.setdefault((bucket(length, model.limit), decoding), []).append(i)
    found: list[Reading] = list(rows)
    for (width, decoding), members in groups.items():
        most = max(batch_tokens // width, 1)
        for start in range(0, len(members), most):
            some = members[start : start + most]
            # At most two shapes per group: full batches, and one for the rest.
            batch = Batch(tuple(some), min(most, 1 << (len(some) - 1).bit_length()), (width,))
            given = stacked(rows, batch)
            sources = [rows[i] for i in some]
            for i, row in zip(
                some, model.with_targets(sources, given, decoding, seed), strict=True
            ):
                found[i] = row
    return found


def _shapes(model: Pretrained) -> Any:
    return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), model.params)


def _same_readers(model: Pretrained, other: Pretrained) -> bool:
    names = ("tokenizer", "target_tokenizer")
    pairs = [(getattr(model, name, None), getattr(other, name, None)) for name in names]
    return all(one is two or _files(one) == _files(two) for one, two in pairs)


def _files(reader: Reader | None) -> dict[str, bytes]:
    """The files of a tokenizer, by name."""
    if reader is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        reader.save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}
