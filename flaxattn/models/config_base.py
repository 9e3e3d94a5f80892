# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Configurations as Hugging Face's `config.json`: what all families read, write and check alike."""

import dataclasses
import json
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from flaxattn.errors import CheckpointError

FULL, SLIDING = "full_attention", "sliding_attention"  # types of layers
Pruned = tuple[tuple[int, ...], ...]
MOST_LABELS = 2**20  # each has a name
MOST_LAYERS = 2**20  # some configurations have a value for each layer
_LARGEST = 2**31 - 1  # ids and lengths are int32
_LAYERS = (
    "num_hidden_layers",
    "num_layers",
    "num_decoder_layers",
    "n_layer",
    "encoder_layers",
    "decoder_layers",
)
_IN_ANOTHER_FORM = frozenset({"labels", "architectures", "pruned_heads", "further_settings"})
_CLASSES = {"id2label", "label2id", "num_labels"}
# Settings that are fields in another form, that say who wrote the file, or that name code to run.
_NOT_KEPT = {"model_type", "dtype", "torch_dtype", "transformers_version", "_name_or_path"}
_NOT_KEPT |= {"auto_map"}


@dataclasses.dataclass(frozen=True)
class HFConfig:
    """Base of the configurations, which are frozen dataclasses with Hugging Face's field names.

    Attributes:
        further_settings: JSON object of the settings of a `config.json` that are not fields, which
            are written back as they are. Configurations that differ in them alone are equal.
        activation_key: Setting that names the feed-forward activation.
    """

    activation_key: ClassVar[str] = "hidden_act"

    further_settings: str = dataclasses.field(default="{}", kw_only=True, compare=False, repr=False)

    @classmethod
    def fields_of(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the fields that a `config.json` names; other keys are ignored.

        Args:
            settings: The parsed JSON object.
        """
        known = {field.name for field in dataclasses.fields(cls)}
        values = {n: settings[n] for n in known - _IN_ANOTHER_FORM if n in settings}
        if isinstance(values.get("eos_token_id"), list):
            values["eos_token_id"] = values["eos_token_id"][0]
        if classes := settings.get("architectures"):
            values["architectures"] = tuple(classes)
        if "labels" in known and (names := class_names(settings)):
            values["labels"] = names
        if "labels" in known:
            known |= _CLASSES
        if further := {n: v for n, v in settings.items() if n not in known | _NOT_KEPT}:
            values["further_settings"] = json.dumps(further, sort_keys=True)
        return values

    @property
    def num_labels(self) -> int:
        """Number of classes of a classifier; 0 for a family without one."""
        return len(self.id2label)

    @property
    def id2label(self) -> dict[int, str]:
        """Name of each class of a classifier by its number."""
        return dict(enumerate(vars(self).get("labels", ())))

    @property
    def label2id(self) -> dict[str, int]:
        """Number of each class of a classifier by its name."""
        return {name: number for number, name in self.id2label.items()}

    def settings(self, model_type: str) -> dict[str, Any]:
        """The content of a `config.json`, from all fields.

        Args:
            model_type: Hugging Face's name of the family.
        """
        found = {**json.loads(self.further_settings), "model_type": model_type}
        found |= dataclasses.asdict(self)
        del found["further_settings"]
        found["architectures"] = list(found["architectures"])
        if "pruned_heads" in found:
            found |= pruned_to_hf(found.pop("pruned_heads"))
        if "labels" in found:
            names = found.pop("labels")
            found["id2label"] = {str(i): name for i, name in enumerate(names)}
            found["label2id"] = {name: i for i, name in enumerate(names)}
        return found

    def check_sizes(self, names: Sequence[str]) -> None:
        """Check that sizes are integers from 1 to what int32 holds, and ids of tokens integers.

        Args:
            names: Names of fields or properties.

        Raises:
            CheckpointError: One is not.
        """
        for name in names:
            check_integer(
                name, getattr(self, name), 1, MOST_LAYERS if name in _LAYERS else _LARGEST
            )
        for field in dataclasses.fields(self):
            number = getattr(self, field.name)
            if field.name.endswith("_token_id") and number is not None:
                for each in number if isinstance(number, tuple) else (number,):
                    check_integer(field.name, each, -1, _LARGEST)
        if "labels" in vars(self) and not vars(self)["labels"]:
            raise CheckpointError("labels is empty.\nName at least one class; the default has two.")

    def check_floats(self) -> None:
        """Check that rates, epsilons and standard deviations are finite and in their range.

        Raises:
            CheckpointError: One is not, which would make every number of the model NaN.
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type not in (float, float | None) or (
                field.type is not float and value is None
            ):
                continue
            known = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not known or not math.isfinite(value) or not _in_range(field.name, float(value)):
                raise CheckpointError(
                    f"{field.name} is {value!r}, expected {_range_of(field.name)}.\n"
                    "Compare config.json with the original."
                )

    def check_ids(self, names: Sequence[str], size: int) -> None:
        """Check that ids that a model reads are in its embedding table.

        Args:
            names: Names of fields.
            size: Number of rows of the table.

        Raises:
            CheckpointError: One is not.
        """
        for name in names:
            if not 0 <= getattr(self, name) < size:
                raise CheckpointError(
                    f"{name} is {getattr(self, name)}, the embedding table has ids 0 to "
                    f"{size - 1}.\nCompare config.json with the original."
                )

    def check_heads(self, width: str, heads: str) -> None:
        """Check that the width of a model divides by its number of heads.

        Args:
            width: Field of the width.
            heads: Field of the number of heads.

        Raises:
            CheckpointError: It does not.
        """
        self.check_sizes((width, heads))
        size, count = getattr(self, width), getattr(self, heads)
        if size % count:
            raise CheckpointError(
                f"{width} {size} is not a multiple of {heads} {count}.\n"
                f"Every head gets {width} / {heads} dimensions; change one of them."
            )

    @classmethod
    def sized(cls, sizes: Mapping[str, Any], changes: Mapping[str, Any]) -> Self:
        """A configuration of a named size.

        Args:
            sizes: Fields of that size.
            changes: Fields that a user sets; they win.
        """
        return cls(**{**sizes, **changes})


def check_integer(name: str, number: Any, least: int, most: int) -> None:
    """Check a setting that counts something."""
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise CheckpointError(
            f"{name} is of the wrong type: expected an integer, got {shown(number)}.\n"
            "Write it without quotes and without a decimal point."
        )
    if number < least:
        raise CheckpointError(f"{name} must be at least {least}, got {shown(number)}.")
    if number > most:
        raise CheckpointError(f"{name} must be at most {most}, got {shown(number)}.")


def check_layer_types(types: Sequence[Any], layers: int) -> None:
    """Check that every layer has a type of attention."""
    if len(types) != layers:
        raise CheckpointError(
            f"layer_types names {len(types)} layers, num_hidden_layers is {layers}.\n"
            "Name the type of every layer."
        )
    if unknown := sorted(map(str, {*types} - {FULL, SLIDING})):
        raise CheckpointError(
            f"layer_types holds {shown(unknown[0])}; flaxattn implements {FULL} and {SLIDING}.\n"
            "Choose a checkpoint of that kind."
        )


def shown(value: Any) -> str:
    """A value in a message, whatever its length."""
    text = repr(value) if not isinstance(value, int) or value.bit_length() < 1000 else "a huge one"
    return text if len(text) <= 60 else f"{text[:59]}…"


def _range_of(name: str) -> str:
    """Range of a field that is a float, in words."""
    if "drop" in name:
        return "a number from 0 to below 1"
    return "a number above 0" if "eps" in name else "a number from 0"


def _in_range(name: str, value: float) -> bool:
    if "drop" in name:
        return 0 <= value < 1
    return value > 0 if "eps" in name else value >= 0


CAUSAL: Mapping[str, Any] = {"is_causal": True}
"""Settings of every decoder; upstream's may see all keys, which is refused."""


def check_supported(kind: str, settings: Mapping[str, Any], supported: Mapping[str, Any]) -> None:
    """Refuse settings that would change the arithmetic."""
    for name, value in supported.items():
        values = value if isinstance(value, tuple) else (value,)
        if (found := settings.get(name)) is not None and found not in values:
            raise CheckpointError(
                f"config.json: {name} is {found!r}; flaxattn's {kind} implements "
                f"{' or '.join(map(repr, values))}.\nChoose a checkpoint of that kind."
            )


def check_pruned(pruned: Pruned, layers: int, heads: int) -> None:
    """Check that the heads that layers lack are heads, and that every layer has one left."""
    if pruned and len(pruned) != layers:
        raise CheckpointError(
            f"pruned_heads names {len(pruned)} layers, the model has {layers}.\n"
            "Name the heads that each layer lacks; none is an empty list."
        )
    for layer, lacking in enumerate(pruned):
        if list(lacking) != sorted({head for head in lacking if 0 <= head < heads}):
            raise CheckpointError(
                f"pruned_heads of layer {layer} are {shown(list(lacking))}, expected numbers "
                f"from 0 to {heads - 1} in order.\nCompare config.json with the original."
            )
        if len(lacking) == heads:
            raise CheckpointError(
                f"pruned_heads leaves layer {layer} without any of its {heads} heads.\n"
                "Every layer keeps one head at least."
            )


def pruned_from_hf(setting: Any, layers: int) -> Pruned:
    """Heads that each layer lacks, from `pruned_heads` of a `config.json`."""
    named = {int(layer): tuple(sorted(heads)) for layer, heads in (setting or {}).items()}
    if not named:
        return ()
    check_integer("the number of layers", layers, 1, MOST_LAYERS)
    if unknown := sorted(layer for layer in named if not 0 <= layer < layers):
        raise CheckpointError(
            f"config.json: pruned_heads names layer {unknown[0]}, the model has layers 0 to "
            f"{layers - 1}.\nCompare it with the original."
        )
    return tuple(named.get(n, ()) for n in range(layers)) if any(named.values()) else ()


def pruned_to_hf(pruned: Pruned) -> dict[str, dict[str, list[int]]]:
    """The setting `pruned_heads` of a `config.json`; nothing if no layer lacks a head."""
    named = {str(layer): list(heads) for layer, heads in enumerate(pruned) if heads}
    return {"pruned_heads": named} if named else {}


def class_names(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Class names of a classifier, in id order; empty where a `config.json` names none."""
    if names := settings.get("id2label"):
        return tuple(names[key] for key in sorted(names, key=int))
    if (count := settings.get("num_labels")) is None:
        return ()
    check_integer("num_labels", count, 1, MOST_LABELS)
    return tuple(f"LABEL_{i}" for i in range(count))
