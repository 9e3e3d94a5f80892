# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Do a checkpoint and a model belong together? The report, and the error that says why not.

It compares names and shapes; it reads no tensor, except to compare two that should be one.
"""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np

from flaxattn import names
from flaxattn.config import BertConfig
from flaxattn.errors import CheckpointError
from flaxattn.names import Row
from flaxattn.tensorfile import TensorFiles

_SETTINGS = {
    "V": "vocab_size",
    "P": "max_position_embeddings",
    "T": "type_vocab_size",
    "E": "hidden_size",
    "F": "intermediate_size",
    "C": "num_labels",
}


@dataclasses.dataclass(frozen=True)
class Report:
    """How the tensors of a checkpoint met the parameters of a model.

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
    rows: Mapping[str, Row],
    config: BertConfig,
) -> Report:
    """Compare what a model needs with what a checkpoint holds.

    Args:
        files: The checkpoint.
        found: Its tensors: the checkpoint's name by the table's name.
        rows: What the model needs: rows of the table by parameter path.
        config: Says the sizes.

    Returns:
        What was missing of the head, unexpected or ignored.

    Raises:
        CheckpointError: If a tensor of embeddings or encoder is missing, a shape or the number
            of layers contradicts the config, or a tied decoder is a different tensor. It names
            all of them.
    """
    _check_layers(files, found, config)
    missing, lost, wrong, used = [], [], [], set[str]()
    causes: dict[str, None] = {}
    for row in rows.values():
        expected = tuple(_size(letter, config) for letter in row.shape)
        for name in names.numbered(row, config.num_hidden_layers):
            if name not in found:
                core = name.startswith(("embeddings.", "encoder."))
                (lost if core else missing).append(name)
                continue
            used.add(name)
            shape = files.shapes[found[name]]
            if shape != expected:
                wrong.append(f"{name} {list(shape)} instead of {list(expected)}")
                causes |= _causes(row, shape, expected)
    if lost or wrong:
        raise CheckpointError(_mismatch(files, lost, wrong, list(causes)))
    idle = _idle(files, found, rows)
    ignored = {name for name in found if name in names.BUFFERS or name in idle} - used
    unexpected = sorted(set(found) - used - ignored, key=_natural)
    return Report(tuple(missing), tuple(unexpected), tuple(sorted(ignored)))


def _size(letter: str, config: BertConfig) -> int:
    return int(letter) if letter.isdigit() else getattr(config, _SETTINGS[letter])


def _check_layers(files: TensorFiles, found: Mapping[str, str], config: BertConfig) -> None:
    numbers = names.layer_numbers(found)
    if not numbers:
        held = ", ".join(sorted(files.shapes)[:3]) or "no tensor at all"
        raise CheckpointError(
            f"{files.directory} does not hold a BERT: no tensor is called encoder.layer.0.…\n"
            f"It holds {held}.\n"
            "flaxattn reads checkpoints that Hugging Face's BertModel family wrote."
        )
    if (count := max(numbers) + 1) != config.num_hidden_layers:
        raise CheckpointError(
            f"{files.directory} does not match its config.json: num_hidden_layers is "
            f"{config.num_hidden_layers}, the tensors have {count} layers.\n"
            "Take config.json and the weights from the same model."
        )


def _idle(files: TensorFiles, found: Mapping[str, str], rows: Mapping[str, Row]) -> frozenset[str]:
    """Names that repeat other tensors in a model whose masked-LM decoder is tied."""
    if "mlm_head/bias" not in rows:
        return frozenset()
    if "mlm_head/decoder/kernel" in rows or names.DECODER not in found:
        return frozenset({names.DECODER_BIAS})
    words, decoder = files.read(found[names.WORDS]), files.read(found[names.DECODER])
    if not np.array_equal(words, decoder, equal_nan=True):
        raise CheckpointError(
            f"{files.directory} does not match its config.json, which ties the masked-LM decoder "
            f"to the word embeddings: {names.DECODER} is a different tensor.\n"
            'If the decoder was trained apart, set "tie_word_embeddings": false in config.json.'
        )
    return frozenset({names.DECODER, names.DECODER_BIAS})


def _causes(row: Row, found: tuple[int, ...], expected: tuple[int, ...]) -> dict[str, None]:
    if len(found) != len(expected):
        return {}
    return {
        f"{_SETTINGS[letter]} is {here} in config.json, {there} in the tensors": None
        for letter, here, there in zip(row.shape, expected, found, strict=True)
        if here != there and letter in _SETTINGS
    }


def _mismatch(files: TensorFiles, lost: list[str], wrong: list[str], causes: list[str]) -> str:
    """At most three lines that name every missing and every misshapen tensor, and a cause."""
    what = [f"it lacks {len(lost)} tensors"] if lost else []
    what += [f"{len(wrong)} tensors have another shape"] if wrong else []
    listed = [f"Missing: {', '.join(names.folded(lost))}."] if lost else []
    listed += [f"Shapes: {', '.join(names.folded(wrong))}."] if wrong else []
    cause = "; ".join(causes) or "an incomplete copy, or weights of another kind of model"
    return (
        f"{files.directory} does not match its config.json: {' and '.join(what)}.\n"
        f"{' '.join(listed)}\nLikely cause: {cause}."
    )


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.split(".")]


def strange(report: Report) -> list[str]:
    """Unexpected tensors that no BERT has, whatever its head: the model lacks something.

    Args:
        report: What `compare` returned.
    """
    unknown: Iterable[str] = (name for name in report.unexpected if not names.is_known(name))
    return names.folded(unknown)
