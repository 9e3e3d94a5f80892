# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Modules of sentence-transformers that follow the model: pooling, dense layers and norms.

Files are kept as they are, so that a saved model has them again. They are understood where a
vector is wanted, and what is not understood is refused there, by name.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import numpy as np
import safetensors
from jaxtyping import Float

from flaxattn.errors import CheckpointError
from flaxattn.models.config_base import shown
from flaxattn.trace.tensor_file import FLOATS

MODULES = "modules.json"
POOLING = "1_Pooling/config.json"
_TRANSFORMER = "sentence_bert_config.json"
_PROMPTS = "config_sentence_transformers.json"
_TENSORS = "model.safetensors"
_FILES = (MODULES, _TRANSFORMER, _PROMPTS)
_IN_FOLDERS = re.compile(rf"\d+_\w+/(config\.json|{re.escape(_TENSORS)})")
HUB_PATTERNS = (*_FILES, "[0-9]*_*/config.json", f"[0-9]*_*/{_TENSORS}")
"""Files of a Hub repository that are fetched."""

# Names of sentence-transformers, and of `embed`, in the order in which vectors are joined.
_POOLINGS = {
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "mean-all",
    "mean_sqrt_len_tokens": "mean-sqrt",
    "weightedmean_tokens": "mean-weighted",
    "lasttoken": "last-all",
}
_SHORT = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens"}
_SHORT |= {"mean_sqrt_len": "mean_sqrt_len_tokens", "weightedmean": "weightedmean_tokens"}
_ACTIVATIONS: Mapping[str, Any] = {
    "Identity": jax.nn.identity,
    "Tanh": jax.nn.tanh,
    "ReLU": jax.nn.relu,
    "Sigmoid": jax.nn.sigmoid,
    "SiLU": jax.nn.silu,
    "GELU": functools.partial(jax.nn.gelu, approximate=False),
}


class Projection(NamedTuple):
    """A dense layer on vectors.

    Attributes:
        weight: Weight of the inputs for each output.
        bias: Bias of each output.
        activation: Name of the function of the outputs, as in `torch.nn`.
    """

    weight: Float[np.ndarray, "F E"]
    bias: Float[np.ndarray, " F"]
    activation: str

    def __call__(self, vectors: Float[np.ndarray, "N E"]) -> Float[np.ndarray, "N F"]:
        """Apply the layer."""
        return np.asarray(_ACTIVATIONS[self.activation](vectors @ self.weight.T + self.bias))


class Standardization(NamedTuple):
    """A LayerNorm on vectors."""

    weight: Float[np.ndarray, " E"]
    bias: Float[np.ndarray, " E"]

    def __call__(self, vectors: Float[np.ndarray, "N E"]) -> Float[np.ndarray, "N E"]:
        """Apply the layer."""
        return np.asarray(jax.nn.standardize(vectors, epsilon=1e-5)) * self.weight + self.bias


def unit(vectors: Float[np.ndarray, "*N E"]) -> Float[np.ndarray, "*N E"]:
    """Vectors of norm one, float32; those of zeros stay as they are."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)


class SentenceRecipe(NamedTuple):
    """Steps that make a vector of a text.

    Attributes:
        poolings: Names of `embed`; several vectors are joined.
        layers: What is applied to the pooled vector, in order; `unit` normalises.
        max_length: Tokens after which a text is cut; None for the limit of the model.
        prepares: Whether texts are prepared as in sentence-transformers: white space around them
            is left out, and what is too long is cut.
        lower_case: Whether texts are written in small letters first.
        prompts: Text that is put before a text, by name.
        default_prompt: Name of the prompt that is used unless another one is requested.
        pools_prompt: Whether the tokens of a prompt are pooled too.
    """

    poolings: tuple[str, ...] = ("mean",)
    layers: tuple[Any, ...] = ()
    max_length: int | None = None
    prepares: bool = False
    lower_case: bool = False
    prompts: Mapping[str, str] = {}
    default_prompt: str | None = None
    pools_prompt: bool = True


@dataclasses.dataclass(frozen=True)
class SentenceModules:
    """The files of a directory of sentence-transformers.

    Attributes:
        directory: Where they were read, for messages.
        files: Their bytes by name.
    """

    directory: str = dataclasses.field(compare=False)
    files: Mapping[str, bytes]

    @classmethod
    def read(cls, directory: str | Path) -> Self | None:
        """The files of a model directory; None where it is not of sentence-transformers."""
        folder = Path(directory)
        if not (folder / MODULES).is_file() and not (folder / POOLING).is_file():
            return None
        inside = [f"{path.parent.name}/{path.name}" for path in sorted(folder.glob("[0-9]*_*/*"))]
        names = [*_FILES, *filter(belongs, inside)]
        return cls(
            str(folder),
            {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()},
        )

    def recipe(self) -> SentenceRecipe:
        """Return the content of the files."""
        recipe, layers = SentenceRecipe(poolings=(), prepares=True), []
        for kind, folder in self._modules():
            settings = self._settings(f"{folder}/config.json") if folder else {}
            match kind:
                case "Transformer" if not folder:
                    recipe = recipe._replace(**self._transformer())
                case "Pooling" if not recipe.poolings:
                    recipe = recipe._replace(**self._pooling(f"{folder}/config.json", settings))
                case "Dense" if recipe.poolings:
                    layers.append(self._dense(folder, settings))
                case "LayerNorm" if recipe.poolings:
                    tensors = self._tensors(folder, ("norm.weight", "norm.bias"))
                    layers.append(Standardization(*tensors))
                case "Normalize" if recipe.poolings:
                    layers.append(unit)
                case "Dropout":
                    pass  # of training
                case _:
                    raise self._refused(
                        MODULES,
                        f"the module {shown(folder or kind)} of type {shown(kind)} at this place",
                        "Transformer, Pooling, and then Dense, LayerNorm and Normalize",
                    )
        if not recipe.poolings:
            raise self._refused(MODULES, "a model without Pooling", "models with one")
        return recipe._replace(layers=tuple(layers), **self._of_prompts())

    def only_normalizes(self, pooling: str) -> bool:
        """Return whether the vectors of that pooling are normalised and otherwise unchanged."""
        try:
            recipe = self.recipe()
        except CheckpointError:
            return False
        return recipe.poolings == (pooling,) and recipe.layers == (unit,)

    def _modules(self) -> list[tuple[str, str]]:
        """Type and folder of each module, in order."""
        if MODULES not in self.files:
            return [("Transformer", ""), ("Pooling", "1_Pooling")]
        try:
            listed = json.loads(self.files[MODULES])
            found = [(str(m["type"]), m.get("path")) for m in listed]
        except (ValueError, RecursionError, TypeError, LookupError, AttributeError) as error:
            raise CheckpointError(
                f"{self.directory}/{MODULES} is not a list of modules: {error}.\n"
                "Fetch the file again."
            ) from error
        modules = []
        for number, (kind, path) in enumerate(found):
            package, _, name = kind.rpartition(".")
            known = name if package.split(".")[0] in ("", "sentence_transformers") else kind
            usual = f"{number}_{known}" if number else ""
            modules.append((known, usual if path is None else str(path)))
        return modules

    def _settings(self, name: str) -> dict[str, Any]:
        """Content of a JSON file; empty where there is none."""
        if name not in self.files:
            return {}
        try:
            value = json.loads(self.files[name])
        except (ValueError, RecursionError) as error:
            raise CheckpointError(
                f"{self.directory}/{name} cannot be read as JSON: {error}.\nFetch the file again."
            ) from error
        if not isinstance(value, dict):
            raise self._refused(name, f"a JSON {type(value).__name__}", "an object")
        return value

    def _transformer(self) -> dict[str, Any]:
        settings = self._settings(_TRANSFORMER)
        longest = settings.get("max_seq_length")
        if longest is not None and (not isinstance(longest, int) or longest < 1):
            raise self._refused(_TRANSFORMER, f"max_seq_length {shown(longest)}", "a number")
        return {"max_length": longest, "lower_case": bool(settings.get("do_lower_case"))}

    def _pooling(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        if name not in self.files:
            raise CheckpointError(
                f"{self.directory} lacks {name}, which {MODULES} names.\n"
                "Fetch the whole directory, or name a pooling when embedding."
            )
        wanted = settings.get("pooling_mode")
        if wanted is None:
            start = "pooling_mode_"
            wanted = [n.removeprefix(start) for n, on in settings.items() if on and start in n]
        wanted = [wanted] if isinstance(wanted, str) else list(wanted)
        wanted = [_SHORT.get(mode, mode) for mode in wanted]
        unknown = [mode for mode in wanted if mode not in _POOLINGS]
        if unknown or not wanted:
            has = ", ".join(_POOLINGS)
            raise self._refused(name, f"the pooling {shown(unknown)}", f"{has}")
        poolings = tuple(ours for theirs, ours in _POOLINGS.items() if theirs in wanted)
        return {"poolings": poolings, "pools_prompt": settings.get("include_prompt", True)}

    def _dense(self, folder: str, settings: Mapping[str, Any]) -> Projection:
        name = f"{folder}/config.json"
        activation = str(settings.get("activation_function", "Tanh")).rpartition(".")[2]
        if activation not in _ACTIVATIONS:
            raise self._refused(name, f"activation {activation}", ", ".join(_ACTIVATIONS))
        names = {
            n: v for n, v in settings.items() if n in ("module_input_name", "module_output_name")
        }
        if unusual := {n: v for n, v in names.items() if v not in (None, "sentence_embedding")}:
            raise self._refused(name, f"{unusual}", "layers from sentence_embedding to itself")
        biased = settings.get("bias", True)
        tensors = self._tensors(folder, ("linear.weight", "linear.bias")[: 1 + biased])
        bias = tensors[1] if biased else np.zeros(len(tensors[0]), np.float32)
        return Projection(tensors[0], bias, activation)

    def _tensors(self, folder: str, names: tuple[str, ...]) -> list[np.ndarray]:
        """Tensors of a module, float32."""
        name = f"{folder}/{_TENSORS}"
        if name not in self.files:
            raise CheckpointError(
                f"{self.directory}: {MODULES} names {folder}, whose tensors are not there as "
                f"{name}.\nConvert its pytorch_model.bin to safetensors, or name a pooling when "
                "embedding."
            )
        try:
            stored = dict(safetensors.deserialize(self.files[name]))
            return [_as_float32(stored[each]) for each in names]
        except (safetensors.SafetensorError, KeyError) as error:
            raise CheckpointError(
                f"{self.directory}/{name} does not hold {' and '.join(names)}: {error}.\n"
                "Fetch the file again."
            ) from error

    def _of_prompts(self) -> dict[str, Any]:
        settings = self._settings(_PROMPTS)
        prompts, usual = settings.get("prompts") or {}, settings.get("default_prompt_name")
        if usual is not None and usual not in prompts:
            raise self._refused(_PROMPTS, f"default_prompt_name {shown(usual)}", f"{list(prompts)}")
        return {"prompts": prompts, "default_prompt": usual}

    def _refused(self, name: str, received: str, expected: str) -> CheckpointError:
        return CheckpointError(
            f"{self.directory}/{name}: {received} is not implemented.\nflaxattn has {expected}.\n"
            "Name a pooling when embedding, for vectors without these modules."
        )


def _as_float32(tensor: Mapping[str, Any]) -> np.ndarray:
    """A tensor as safetensors describes it."""
    array = np.frombuffer(tensor["data"], FLOATS[tensor["dtype"]])
    return array.reshape(tensor["shape"]).astype(np.float32)


def belongs(name: str) -> bool:
    """Return whether a file of a model directory is one of a module of sentence-transformers."""
    return name in _FILES or bool(_IN_FOLDERS.fullmatch(name))
