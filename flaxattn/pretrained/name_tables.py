# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of names: what a tensor is called in a Hugging Face checkpoint, and where it is in ours.

A family of models has one `Family`; they are in `encoder_names`, `decoder_names` and
`seq2seq_names`. A report says whether a checkpoint and a model belong together, and an error why
they do not. Only names, axes and shapes; no tensor is read, except to compare two that should be
one.
"""

import collections
import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from flaxattn.errors import CheckpointError
from flaxattn.trace.tensor_file import TensorFiles

# What torch's wrappers put into names: parallel training, compilation, recomputation.
_WRAPPERS = re.compile(
    r"\b(module|_orig_mod|_forward_module|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)
_DEEPEST = 4  # modules of other names around a model


def wrapped_names(names: Iterable[str]) -> list[str]:
    """Names of modules around a model, such as `_orig_mod`, that occur in names of tensors."""
    found = (match[1] for name in names for match in _WRAPPERS.finditer(name))
    return list(dict.fromkeys(found))


class Part(NamedTuple):
    """Place of a parameter in a tensor that holds several.

    Attributes:
        number: Number of the part, from 0.
        groups: Number of times that the parts follow one another: once, or once for each head.
        shares: Shares of all parts of a group on the last axis, in proportion.
    """

    number: int
    groups: int
    shares: tuple[int, ...]

    def bounds(self, size: int) -> tuple[int, int]:
        """Return where the part begins and ends in a group."""
        unit = size // self.groups // sum(self.shares)
        start = sum(self.shares[: self.number])
        return start * unit, (start + self.shares[self.number]) * unit


class NameRow(NamedTuple):
    """One line of the table of names.

    Attributes:
        theirs: Tensor name in a Hugging Face checkpoint; `*` is the number of the layer.
        shape: Its axes there, in the letters of `Family.sizes`, or a digit.
        ours: Path in our parameter tree; with `*`, all layers are stacked on a leading axis.
        how: "=" for the same axes, "T" if ours has them the other way round, because torch keeps
            `[out, in]`, "1" if ours lacks the first one, which is 1. "0/AKK" if ours is the first
            of three parts of the last axis with these sizes, "0/H3" the first of three equal ones
            of each of H groups, "T0/AKK" the same after the axes are transposed. "1+" if the
            first layer has no such tensor.
        part: What `how` says of parts, in numbers; `Family.rows_of` fills it in.
    """

    theirs: str
    shape: str
    ours: str
    how: str
    part: Part | None = None

    @property
    def transposed(self) -> bool:
        """Return whether ours has the axes the other way round."""
        return self.how.startswith("T")

    @property
    def first_layer(self) -> int:
        """Number of the first layer that has such a tensor."""
        return 1 if self.how == "1+" else 0


def table(text: str) -> tuple[NameRow, ...]:
    """Rows of a table."""
    lines = (line.split() for line in text.splitlines() if line)
    return tuple(NameRow(theirs, shape, ours, how) for theirs, shape, ours, how in lines)


@dataclasses.dataclass(frozen=True)
class Family:
    """Tensor names of the checkpoints of one family of models.

    Attributes:
        name: What such a model is called in a message.
        rows: The table; several rows may describe one parameter, for different configurations.
        prefix: Prefixes of the backbone in a task model: of tensor names and of our paths.
        layers: Field of the configuration that counts the layers, by what stands before a number.
        sizes: Field of the configuration that a letter of a shape stands for, or its method that
            holds the size in a layer.
        core: Beginnings of names that a checkpoint must have; others are freshly initialised.
        silent: Names that may be missing without a word; they begin as zeros.
        buffers: Names that some versions wrote: counters and constants, not weights.
        others: Further names that a checkpoint of the family may have.
        renamed: Parts of names in old checkpoints, and what they are now.
        aliases: Puts right which name is which: from the checkpoint's names by names of the table,
            and the configuration.
        idle: Names that a model does not need, each with the one that it must repeat, or None: from
            the configuration and the model's paths.
        chosen: Whether a row holds for a configuration, where a parameter has several.
        written: Names that are written too: a copy of which tensor, if which other one is there.
        extra: What is added to a size.
        constants: Tensors that are not parameters but are written: from the configuration.
    """

    name: str
    rows: tuple[NameRow, ...]
    prefix: tuple[str, str]
    layers: Mapping[str, str]
    sizes: Mapping[str, str]
    core: tuple[str, ...]
    silent: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()
    renamed: tuple[tuple[str, str], ...] = ()
    others: frozenset[str] = frozenset()
    aliases: Callable[[dict[str, str], Any], dict[str, str]] = lambda names, config: names
    idle: Callable[[Any, Iterable[str]], Mapping[str, str | None]] = lambda config, paths: {}
    chosen: Callable[[NameRow, Any], bool] = lambda row, config: True
    written: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    extra: Mapping[str, int] = dataclasses.field(default_factory=dict)
    constants: Callable[[Any], Mapping[str, np.ndarray]] = lambda config: {}

    def rows_of(self, paths: Iterable[str], config: Any) -> dict[str, NameRow]:
        """The row of the table for every parameter."""
        known = {row.ours: row for row in self.rows if self.chosen(row, config)}
        found = {path: known[path.removeprefix(self.prefix[1])] for path in paths}
        return {path: row._replace(part=self._part(row, config)) for path, row in found.items()}

    def _part(self, row: NameRow, config: Any) -> Part | None:
        """Return the part of a tensor that a row names, as numbers."""
        number, slash, parts = row.how.removeprefix("T").partition("/")
        if not slash:
            return None
        if not parts[-1].isdigit():
            return Part(int(number), 1, tuple(self._size(letter, config, 0) for letter in parts))
        groups = self._size(parts[0], config, 0) if len(parts) > 1 else 1
        return Part(int(number), groups, (1,) * int(parts[-1]))

    def full_name(self, row: NameRow, path: str) -> str:
        """Name of a row's tensor in a checkpoint of the whole model."""
        return (self.prefix[0] if path.startswith(self.prefix[1]) else "") + row.theirs

    def numbered(self, row: NameRow, config: Any) -> list[str]:
        """The names a row stands for."""
        before, star, _ = row.theirs.partition("*")
        if not star:
            return [row.theirs]
        count = getattr(config, self.layers[before])
        numbers = range(row.first_layer, count)
        return [row.theirs.replace("*", str(number)) for number in numbers]

    def shape(self, row: NameRow, config: Any, layer: int = 0) -> tuple[int, ...]:
        """The shape a row's tensor has in a checkpoint."""
        return tuple(self._size(letter, config, layer) for letter in row.shape)

    def _size(self, letter: str, config: Any, layer: int) -> int:
        if letter.isdigit():
            return int(letter)
        size = getattr(config, self.sizes[letter])
        if callable(size):
            size = cast(Callable[[int], int], size)(layer)
        return size + self.extra.get(letter, 0)

    def layer_numbers(self, names: Iterable[str]) -> dict[str, set[int]]:
        """Numbers of the layers that occur, by what stands before them."""
        found: dict[str, set[int]] = {before: set() for before in self.layers}
        for name in names:
            if match := self._layer.match(name):
                found[match[1]].add(int(match[2]))
        return found

    def is_buffer(self, name: str) -> bool:
        """Return whether a tensor of this name is a counter or a constant, not a weight."""
        return self._layer.sub(r"\1*.", name) in self.buffers

    def is_known(self, name: str) -> bool:
        """Return whether a model of the family, with any head, has a tensor of this name."""
        known = {row.theirs for row in self.rows} | self.buffers | self.others
        return self._layer.sub(r"\1*.", name) in known

    def canonical(self, found: Iterable[str], config: Any) -> dict[str, str]:
        """Names of the table for the names a checkpoint uses.

        Where a tied tensor is held under the name of a copy alone, that is the tensor.
        """
        names: dict[str, str] = {}
        for theirs, unwrapped in self._unwrapped(found).items():
            name = self._current(unwrapped)
            if name in names:
                raise CheckpointError(
                    f"The checkpoint holds one tensor under two names: {names[name]} and {theirs}."
                    "\nRemove one of them; which is right cannot be known."
                )
            names[name] = theirs
        names = self.aliases(names, config)
        for copy, original in self.idle(config, {row.ours for row in self.rows}).items():
            if original is not None and original not in names and copy in names:
                names[original] = names.pop(copy)
        return names

    def _current(self, name: str) -> str:
        """The name without prefix, as it is spelt today."""
        name = name.removeprefix(self.prefix[0])
        for old, new in self.renamed:
            name = name.replace(old, new)
        return name

    def _unwrapped(self, found: Iterable[str]) -> dict[str, str]:
        """Names without those of modules around the model."""
        plain = {name: _WRAPPERS.sub("", name) for name in found}
        candidates = [plain]
        for _ in range(_DEEPEST):
            inner = candidates[-1]
            heads = collections.Counter(name.partition(".")[0] for name in inner.values())
            head, count = heads.most_common(1)[0] if heads else ("", 0)
            if 2 * count <= len(inner):
                break
            candidates.append({name: text.removeprefix(f"{head}.") for name, text in inner.items()})

        def known(names: Mapping[str, str]) -> int:
            return sum(self.is_known(self._current(name)) for name in names.values())

        return max(candidates, key=known)  # the first of the best

    def folded(self, texts: Iterable[str]) -> list[str]:
        """The texts, those that differ only in the number of the layer as one."""
        layers: dict[str, list[int]] = {}
        for text in texts:
            number = self._layer.match(text)
            entry = layers.setdefault(self._layer.sub(r"\1*.", text), [])
            entry += [int(number[2])] if number else []
        return [f"{text} (layer {_spans(n)})" if n else text for text, n in layers.items()]

    @property
    def _layer(self) -> re.Pattern[str]:
        before = "|".join(map(re.escape, self.layers)) or "(?!)"  # no layers: nothing matches
        return re.compile(f"({before})(\\d{{1,6}})\\.")


def _spans(numbers: list[int]) -> str:
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


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
