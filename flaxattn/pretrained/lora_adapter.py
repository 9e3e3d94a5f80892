# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters of peft, merged into the tensors of their base while these are read.

Merged is what `merge_and_unload` of peft makes: `W + s B A` with LoRA (Hu et al. 2021), and with
DoRA (Liu et al. 2024) that matrix with the stored norm of each row.
"""

import dataclasses
import math
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from flaxattn.errors import CheckpointError
from flaxattn.models.config_base import shown
from flaxattn.pretrained.name_tables import Family
from flaxattn.trace.tensor_file import TensorFiles, read_json

SETTINGS = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
_PART = re.compile(r"(.+)\.(lora_(?:embedding_)?[AB]|lora_magnitude_vector)(?:\.weight)?")
_WRAPPER = "base_model.model."
# Ways to initialise that change the base, which then has to be changed alike.
_CHANGE_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
_HEADS = {
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
    "FEATURE_EXTRACTION": "base",
}


@dataclasses.dataclass(frozen=True)
class LoraAdapter:
    """A directory that holds the changes of a model, and where peft says the model is.

    Attributes:
        directory: Directory of the adapter.
        settings: Its `adapter_config.json`.
    """

    directory: Path
    settings: Mapping[str, Any]

    @classmethod
    def read(cls, directory: Path) -> "LoraAdapter | None":
        """The adapter of a directory; None where it holds a model or nothing."""
        path = directory / SETTINGS
        if not path.is_file():
            return None
        if (directory / "config.json").is_file():
            warnings.warn(
                f"{directory} holds a model and an adapter. The model is opened as it is; move "
                "the adapter into a directory of its own to merge it.",
                UserWarning,
                stacklevel=5,
            )
            return None
        adapter = cls(directory, read_json(path))
        if (reason := adapter.obstacle()) is not None:
            raise adapter.refused(reason)
        return adapter

    @property
    def base(self) -> str:
        """Name of the model that it changes."""
        return str(self.settings.get("base_model_name_or_path"))

    @property
    def head(self) -> str | None:
        """Head of the model by its task; None for that of the base."""
        return _HEADS.get(str(self.settings.get("task_type")))

    def obstacle(self) -> str | None:
        """Return why the adapter cannot be merged here; None where nothing speaks against it."""
        settings = self.settings
        kind, start = settings.get("peft_type"), settings.get("init_lora_weights")
        if kind != "LORA":
            return f"peft_type {shown(kind)} is not merged here"
        if not isinstance(settings.get("base_model_name_or_path"), str):
            return "base_model_name_or_path does not say of which model"
        if isinstance(start, str) and start.lower().startswith(_CHANGE_BASE):
            return f"init_lora_weights {shown(start)} has changed the base as well"
        for name in ("use_qalora", "use_bdlora", "alora_invocation_tokens", "megatron_config"):
            if settings.get(name):
                return f"{name} is not merged here"
        return None

    def refused(self, reason: str) -> CheckpointError:
        """The error that names the adapter, its base and what to do."""
        kind = shown(self.settings.get("peft_type"))
        return CheckpointError(
            f"{self.directory} is an adapter ({kind}) of the model {self.base!r:.300}: {reason}.\n"
            "Merge it into that model with peft: AutoPeftModel.from_pretrained(adapter)"
            ".merge_and_unload().save_pretrained(directory).\n"
            f"Or name the directory of that model as base_model_name_or_path in {SETTINGS}."
        )

    def merged(self, base: TensorFiles, family: Family, config: Any) -> "MergedTensors":
        """The tensors of the base with the changes."""
        return MergedTensors(self, base, family, config)

    def classes(self, files: TensorFiles) -> int | None:
        """Number of classes of the head that the adapter holds; None where it holds none."""
        ends = ("classifier.weight", "score.weight", "classifier.out_proj.weight")
        if self.head not in ("ForSequenceClassification", "ForTokenClassification"):
            return None
        found = (shape[0] for name, shape in files.shapes.items() if name.endswith(ends))
        return next(found, None)

    def scale(self, module: str) -> float:
        """Factor of the product of two matrices."""
        rank, alpha = (self._of(module, name) for name in ("r", "lora_alpha"))
        return alpha / (math.sqrt(rank) if self.settings.get("use_rslora") else rank)

    def _of(self, module: str, name: str) -> float:
        """A setting of a layer, which patterns may name."""
        pattern = {"r": "rank_pattern", "lora_alpha": "alpha_pattern"}[name]
        for key, value in (self.settings.get(pattern) or {}).items():
            if re.fullmatch(rf"(.*\.)?({key})", module):
                return float(value)
        return float(self.settings.get(name, 8))


class MergedTensors(TensorFiles):
    """Tensors of a base with those of an adapter merged into them; merged ones are float32.

    Attributes:
        rows: Rows of the word embedding, where the adapter replaces it; else None.
    """

    rows: int | None = None

    def __init__(
        self, adapter: LoraAdapter, base: TensorFiles, family: Family, config: Any
    ) -> None:
        if not (adapter.directory / WEIGHTS).is_file():
            raise adapter.refused(f"it has no {WEIGHTS}")
        self.directory, self.shapes = base.directory, dict(base.shapes)
        self._adapter, self._base = adapter, base
        self._own = TensorFiles(adapter.directory, WEIGHTS)
        own = self._own.shapes
        self._changes: dict[str, dict[str, str]] = {}  # parts by the base's name of a tensor
        self._modules: dict[str, str] = {}
        self._whole: dict[str, str] = {}
        embeddings = {row.theirs for row in family.rows if row.shape[:1] == "V"}
        parts, whole = _sorted_parts(own)
        bare = {module: f"{module}.weight" for module in parts}
        names = _current(family, [*bare.values(), *whole], config)
        there = family.canonical(base.shapes, config)
        for module, weight in bare.items():
            if (name := names[weight]) not in there:
                raise adapter.refused(f"it changes {weight}, which that model does not have")
            self._changes[there[name]] = parts[module]
            self._modules[there[name]] = module
        for stored, theirs in whole.items():
            name = names[stored]
            self._whole[there.get(name, name)] = theirs
            self.shapes[there.get(name, name)] = own[theirs]
            if name in embeddings:
                self.rows = own[theirs][0]

    def letters(self) -> dict[str, str]:
        """Dtypes of the tensors of the base by name."""
        return self._base.letters()

    def dtype(self, name: str) -> np.dtype[Any]:
        """Dtype of a tensor; see `TensorFiles.dtype`."""
        if name in self._changes:
            return np.dtype(np.float32)
        whole = self._whole.get(name)
        return self._base.dtype(name) if whole is None else self._own.dtype(whole)

    def read(self, name: str, into: np.ndarray | None = None) -> np.ndarray:
        """Read one tensor; see `TensorFiles.read`."""
        if name in self._whole:
            return self._own.read(self._whole[name], into)
        if name not in self._changes:
            return self._base.read(name, into)
        merged = self._merged(name)
        if into is None:
            return merged
        into[...] = merged
        return into

    def _merged(self, name: str) -> Float[np.ndarray, "..."]:
        """A matrix of the base with its change."""
        parts = {part: self._part(stored) for part, stored in self._changes[name].items()}
        matrix = self._base.read(name).astype(np.float32)
        scale = self._adapter.scale(self._modules[name])
        if embedding := "lora_embedding_A" in parts:
            change = (parts["lora_embedding_B"] @ parts["lora_embedding_A"]).T
        else:
            change = parts["lora_B"] @ parts["lora_A"]
        transposed = bool(self._adapter.settings.get("fan_in_fan_out")) and not embedding
        if transposed:
            matrix = matrix.T
        if change.shape != matrix.shape:
            raise self._adapter.refused(
                f"it changes {name} by {list(change.shape)}, which is {list(matrix.shape)} there"
            )
        matrix = matrix + scale * change
        if (norms := parts.get("lora_magnitude_vector")) is not None:
            matrix *= (norms.reshape(-1) / np.linalg.norm(matrix, axis=1))[:, None]
        return np.ascontiguousarray(matrix.T if transposed else matrix)

    def _part(self, stored: str) -> Float[np.ndarray, "..."]:
        return self._own.read(stored).astype(np.float32)


def _sorted_parts(
    stored: Mapping[str, Any],
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Names of the adapter's tensors: parts by layer, and those that replace a whole tensor."""
    parts: dict[str, dict[str, str]] = {}
    whole: dict[str, str] = {}
    for theirs in stored:
        name = theirs.removeprefix(_WRAPPER)
        if (match := _PART.fullmatch(name)) is not None:
            parts.setdefault(match[1], {})[match[2]] = theirs
        else:
            whole[name.replace(".base_layer.", ".").replace(".modules_to_save.", ".")] = theirs
    return parts, whole


def _current(family: Family, names: list[str], config: Any) -> dict[str, str]:
    """The table's name of each name."""
    found = family.canonical(names, config)
    return {theirs: name for name, theirs in found.items()}
