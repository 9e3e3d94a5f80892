# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face model directories in and out, following the tables of names.

Tensors are read straight into their place, on one device or many: a parameter of all layers is
filled layer by layer, in the dtype that it will have. On the CPU the memory that is filled becomes
the array; to other devices it is copied, one parameter at a time. Not here: finding the directory
(`hub`), the files (`tensor_file`), whether a checkpoint and a model belong together
(`name_tables`).
"""

import difflib
import functools
import glob
import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import traverse_util
from flax.typing import Dtype
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array

from flaxattn.errors import CheckpointError, InputError
from flaxattn.files import names_inside, remove_abandoned, sha256_of, written_whole
from flaxattn.models.config_base import shown
from flaxattn.models.encoder_config import BertConfig
from flaxattn.models.layers import ACTIVATIONS
from flaxattn.models.parameter_shardings import parameter_sharding, usable_mesh
from flaxattn.models.seq2seq_config import RnnConfig, T5Config
from flaxattn.pretrained import name_tables, sentence_modules
from flaxattn.pretrained.encoder_names import with_frequencies
from flaxattn.pretrained.model_types import CONFIGS, NOT_COVERED, ModelConfig, family_of
from flaxattn.pretrained.name_tables import CheckpointMatch, Family, NameRow, Part
from flaxattn.pretrained.seq2seq_names import ties_output
from flaxattn.text.tokens import Reader
from flaxattn.trace import tensor_file
from flaxattn.trace.tensor_file import TensorFiles


def ours(row: NameRow, array: np.ndarray) -> np.ndarray:
    """The parameter that a tensor holds, or one of several."""
    if row.how == "1":
        return array[0]
    array = array.T if row.transposed else array
    part = row.part
    if part is None:
        return array
    start, stop = part.bounds(array.shape[-1])
    grouped = array.reshape(*array.shape[:-1], part.groups, -1)
    return grouped[..., start:stop].reshape(*array.shape[:-1], -1)


def theirs(rows: Mapping[int, NameRow], arrays: Mapping[int, np.ndarray]) -> np.ndarray:
    """The tensor that holds one parameter, or several."""
    row, array = rows[0], arrays[0]
    if row.how == "1":
        return array[None]
    if row.part is not None:
        array = _joined(row.part, arrays)
    return np.ascontiguousarray(array.T) if row.transposed else array


def _joined(part: Part, arrays: Mapping[int, np.ndarray]) -> np.ndarray:
    before = arrays[0].shape[:-1]
    grouped = [arrays[n].reshape(*before, part.groups, -1) for n in sorted(arrays)]
    return np.concatenate(grouped, axis=-1).reshape(*before, -1)


Bounds = tuple[tuple[int, int], ...]
_ALIGNMENT = 64  # bytes; memory that begins at a multiple of it becomes an array without a copy
_STRAIGHT = ("=", "1")  # relations of a tensor to a parameter under which the bytes are the same


def read_parameters(
    files: TensorFiles,
    tensors: Mapping[str, Sequence[str]],
    rows: Mapping[str, NameRow],
    shapes: Mapping[str, Any],
    dtype: Any,
    mesh: Mesh | None = None,
) -> dict[str, Any]:
    """Read parameters; beside them only one tensor is held at any time."""
    together: dict[tuple[str, ...], list[str]] = {}  # some parameters are parts of one tensor
    for path, names in tensors.items():
        together.setdefault(tuple(names), []).append(path)
    read: dict[str, Any] = {}
    for names, paths in together.items():
        memory = {path: _memory(path, shapes[path], dtype, mesh) for path in paths}
        for number, name in enumerate(names):
            _read(files, name, [_place(rows[p], memory[p], shapes[p], number) for p in paths])
        for path in paths:
            arrays = tuple(one.finished() for one in memory.pop(path))
            read[path] = arrays if isinstance(shapes[path], tuple) else arrays[0]
    return read


def converted(name: str, array: np.ndarray, dtype: Any) -> np.ndarray:
    """Numbers in another dtype."""
    if dtype is None or array.dtype == jnp.dtype(dtype):
        return array
    with np.errstate(over="ignore"):
        cast = array.astype(jnp.dtype(dtype))
    if np.any(np.isinf(cast) & np.isfinite(array)):
        raise InputError(
            f"{name} has values too large for {jnp.dtype(dtype).name}: up to "
            f"{np.abs(array).max():.3g}.\nChoose bfloat16 or float32."
        )
    return cast


def placed(array: Array, path: str, mesh: Mesh | None) -> Array:
    """An array where the parameter of that path belongs."""
    if mesh is None:
        return array
    return jax.device_put(array, parameter_sharding(path, array.shape, mesh))


class ParameterMemory:
    """Memory of one parameter, whole or in the parts that devices hold.

    Attributes:
        shape: Shape of the parameter.
        parts: Memory of each part, by where the part begins and ends on every axis.
    """

    def __init__(self, shape: tuple[int, ...], dtype: Any, sharding: NamedSharding | None) -> None:
        self.shape, self._sharding = shape, sharding
        self._holders: dict[Any, Bounds] = {None: tuple((0, size) for size in shape)}
        if sharding is not None:
            held = sharding.addressable_devices_indices_map(shape)
            self._holders = {device: _bounds(index or (), shape) for device, index in held.items()}
        self.parts = {
            bounds: _aligned(tuple(stop - start for start, stop in bounds), dtype)
            for bounds in set(self._holders.values())
        }

    def whole(self, layer: int | None) -> np.ndarray | None:
        """Return the memory itself, of one layer or of all; None if it is in several parts."""
        memory = next(iter(self.parts.values()))
        if memory.shape != self.shape:
            return None
        return memory if layer is None else memory[layer]

    def write(self, array: np.ndarray, layer: int | None) -> None:
        """Write numbers into every part that they belong to."""
        for bounds, memory in self.parts.items():
            index = tuple(slice(*ends) for ends in bounds)
            if layer is None:
                memory[...] = array[index]
            elif bounds[0][0] <= layer < bounds[0][1]:
                memory[layer - bounds[0][0]] = array[index[1:]]

    def finished(self) -> Array:
        """Return the array; the memory must not be written again."""
        if self._sharding is None:
            return jax.device_put(*self.parts.values()).block_until_ready()
        arrays = [jax.device_put(self.parts[i], device) for device, i in self._holders.items()]
        whole = jax.make_array_from_single_device_arrays(self.shape, self._sharding, arrays)
        return whole.block_until_ready()


Place = tuple[NameRow, ParameterMemory, int | None]  # the last is a layer on the first axis


def _memory(path: str, shape: Any, dtype: Any, mesh: Mesh | None) -> list[ParameterMemory]:
    """Memory of a parameter, or of each layer where layers are unstacked."""
    shapes = shape if isinstance(shape, tuple) else (shape,)
    shardings = [mesh and parameter_sharding(path, one.shape, mesh) for one in shapes]
    return [ParameterMemory(a.shape, dtype, s) for a, s in zip(shapes, shardings, strict=True)]


def _place(row: NameRow, memory: list[ParameterMemory], shape: Any, number: int) -> Place:
    """Place of one of the tensors of a parameter."""
    if isinstance(shape, tuple):
        return row, memory[number], None
    return row, memory[0], number if "*" in row.theirs else None


def _read(files: TensorFiles, name: str, places: Sequence[Place]) -> None:
    """Read one tensor into all places that hold a part of it."""
    row, memory, layer = places[0]
    target = memory.whole(layer)
    if row.how in _STRAIGHT and target is not None and target.dtype == files.dtype(name):
        files.read(name, into=target)
        return
    array = files.read(name)
    for row, memory, layer in places:
        dtype = next(iter(memory.parts.values())).dtype
        memory.write(converted(name, ours(row, array), dtype), layer)


def _bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> Bounds:
    ends = (part.indices(size) for part, size in zip(index, shape, strict=True))
    return tuple((start, stop) for start, stop, _ in ends)


def _aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Memory that JAX can use as it is, not yet written to."""
    kind = jnp.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(kind).reshape(shape)


TARGET_PREFIX = "target_"  # of the files of a second tokenizer
STORED_DTYPES = ("float32", "float16", "bfloat16")


def read_config(directory: str | Path) -> ModelConfig:
    """Read `config.json` of a model directory."""
    path = Path(directory) / "config.json"
    if not path.is_file():
        held = ", ".join(sorted(p.name for p in Path(directory).iterdir())[:8]) or "nothing"
        raise CheckpointError(
            f"{directory} is not a model directory: it has no config.json.\nIt holds {held}.\n"
            f"{_model_inside(Path(directory))}"
        )
    return config_of(path, tensor_file.read_json(path))


def _model_inside(folder: Path) -> str:
    """Return the advice for a folder that is not a model: a run of training has one inside."""
    inside = [path.parent for path in sorted(folder.glob("*/config.json"))]
    if len(inside) == 1:
        return f"Did you mean {inside[0]}?"
    return "Give a directory written by save_pretrained."


def config_of(path: Path, settings: Mapping[str, Any]) -> ModelConfig:
    """The configuration of settings as `config.json` has them."""
    _check_not_quantized(path, settings)
    kind = settings.get("model_type", "bert")
    if not isinstance(kind, str) or kind not in CONFIGS:
        reason = f", {NOT_COVERED[kind]}," if kind in NOT_COVERED else ""
        raise CheckpointError(
            f"{path}: model_type is {shown(kind)}{reason} which flaxattn does not have.\n"
            f"It has {', '.join(CONFIGS)}.\n"
            f"The nearest is {nearest_type(settings, tuple(CONFIGS))}."
        )
    try:
        config = CONFIGS[kind].from_hf(settings)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {str(error).removeprefix('config.json: ')}") from error
    except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
        raise CheckpointError(
            f"{path} has a setting of the wrong type: {error}.\nCompare it with the original."
        ) from error
    if not isinstance(config, RnnConfig) and str(config.hidden_act) not in ACTIVATIONS:
        raise CheckpointError(
            f"{path}: {config.activation_key} is {shown(config.hidden_act)}; "
            f"flaxattn has {', '.join(ACTIVATIONS)}."
        )
    return config


def _check_not_quantized(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose tensors are no longer the weights."""
    stated = settings.get("quantization_config") or settings.get("compression_config")
    if stated:
        method = stated.get("quant_method") if isinstance(stated, dict) else stated
        raise CheckpointError(
            f"{path}: quantization_config says that the weights are quantized with "
            f"{shown(method)}, which flaxattn does not read.\n"
            "Take the checkpoint that is not quantized, or dequantize it and save it again."
        )


def as_stored(config: ModelConfig, files: TensorFiles) -> ModelConfig:
    """Settings that tensors decide.

    Transformers 5 says of every T5 that its output layer is tied, and an ESM keeps the frequencies
    of its rotary positions.
    """
    if isinstance(config, BertConfig) and config.position_embedding_type == "rotary":
        return with_frequencies(config, files)
    if not isinstance(config, T5Config) or not config.tie_word_embeddings:
        return config
    return config if ties_output(files) else config.untied()


def load(
    files: TensorFiles,
    module: nn.Module,
    seed: int = 0,
    *,
    dtype: Dtype = jnp.float32,
    mesh: Mesh | None = None,
) -> tuple[Any, CheckpointMatch]:
    """Read a checkpoint into the parameter tree of `module`.

    Accepts one safetensors file or shards, names with and without the prefix of a task model, the
    old names `gamma` and `beta`, and float16, bfloat16 or float32 tensors.
    Only one tensor is held beside the result at any time.

    Returns:
        The parameters and a report of what was missing, unexpected or ignored.
    """
    mesh = None if mesh is None else usable_mesh(mesh)
    held, rows, report = _matched(files, module)
    family = family_of(module.config)
    flat = read_parameters(files, held, rows, _parameter_shapes(module), dtype, mesh)
    for path, leaf in _fresh(module, set(rows) - set(flat), seed).items():
        flat[path] = placed(leaf.astype(dtype), path, mesh)
    _warn(files, report, family)
    return _nested(flat), report


def shapes_and_match(
    files: TensorFiles, module: nn.Module, dtype: Dtype
) -> tuple[Any, CheckpointMatch]:
    """Shapes of the parameters that `load` reads, and its report; no tensor is read."""
    *_, report = _matched(files, module, compare_tied=False)
    shapes = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), _parameter_shapes(module)
    )
    return _nested(shapes), report


def _matched(
    files: TensorFiles, module: nn.Module, compare_tied: bool = True
) -> tuple[dict[str, list[str]], dict[str, NameRow], CheckpointMatch]:
    """The tensors and the rows of each parameter of a module, and how both meet."""
    config: ModelConfig = module.config
    family = family_of(config)
    found = family.canonical(files.shapes, config)
    name_tables.check_layers(files, found, family, config)  # before anything is made for each layer
    rows = family.rows_of(_parameter_shapes(module), config)
    report = name_tables.compare(files, found, rows, family, config, compare_tied=compare_tied)
    numbered = {path: family.numbered(row, config) for path, row in rows.items()}
    held = {p: [found[name] for name in names if name in found] for p, names in numbered.items()}
    for name in {name for names in held.values() for name in names}:
        files.dtype(name)  # which refuses what are not floats
    return {path: names for path, names in held.items() if names}, rows, report


def save(
    directory: str | Path,
    module: nn.Module,
    params: Any,
    *,
    dtype: str | None = None,
    tokenizer: Reader | None = None,
    target_tokenizer: Reader | None = None,
    further: Mapping[str, Any] | None = None,
) -> None:
    """Write a directory that `flaxattn.from_pretrained` and Hugging Face transformers open.

    The directory gets `config.json`, the tokenizer's files, and `model.safetensors` with checksums
    of its tensors and of these files; all of them or none. The same arguments give the same bytes.
    """
    if dtype not in (None, *STORED_DTYPES):
        raise InputError(f"dtype {dtype!r} cannot be stored; choose one of {STORED_DTYPES}.")
    tensors = to_hf(module, params, dtype)
    config: ModelConfig = module.config
    stored = {array.dtype.name for array in tensors.values()}
    settings = {**config.to_hf(), "dtype": stored.pop() if len(stored) == 1 else "float32"}
    target = Path(directory)
    pattern = glob.escape(target.absolute().name)
    remove_abandoned(target.absolute().parent, f".{pattern}.*.part")  # see `written_whole`
    # The weights first: their header lists the files that belong to them, so no mixture is read.
    earlier = _earlier_files(target)
    with written_whole(target, first=tensor_file.SINGLE, obsolete=earlier) as folder:
        for name, content in {"config.json": settings, **(further or {})}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            if isinstance(content, bytes):
                (folder / name).write_bytes(content)
            else:
                _write_json(folder / name, content)
        if tokenizer is not None:
            tokenizer.save(folder)
        if target_tokenizer is not None:
            target_tokenizer.save(folder, prefix=TARGET_PREFIX)
        beside = {name: sha256_of(folder / name) for name in names_inside(folder)}
        tensor_file.write(folder / tensor_file.SINGLE, tensors, beside)
    _remove_shards(target)


def to_hf(module: nn.Module, params: Any, dtype: str | None = None) -> dict[str, np.ndarray]:
    """The parameters as Hugging Face names and lays them out."""
    shapes = _parameter_shapes(module)
    flat = _flat(params)
    wrong = [p for p in sorted({*shapes, *flat}) if _shape(flat.get(p)) != _shape(shapes.get(p))]
    if wrong:
        found, expected = _shape(flat.get(wrong[0])), _shape(shapes.get(wrong[0]))
        raise InputError(
            f"These parameters are not those of {type(module).__name__}: {len(wrong)} differ, "
            f"first {wrong[0]}.\nExpected shape {expected}, received {found}."
        )
    parts: dict[str, dict[int, np.ndarray]] = {}  # what each tensor holds, mostly one parameter
    held: dict[str, dict[int, NameRow]] = {}
    family = family_of(module.config)
    for path, row in family.rows_of(shapes, module.config).items():
        name = family.full_name(row, path)
        arrays = flat[path] if isinstance(flat[path], tuple) else np.asarray(flat[path])
        for number, one in enumerate(arrays) if "*" in name else [(0, arrays)]:
            one = converted(name, np.asarray(one), dtype)
            whole = name.replace("*", str(number + row.first_layer))
            place = row.part.number if row.part else 0
            parts.setdefault(whole, {})[place] = one
            held.setdefault(whole, {})[place] = row
    tensors = {name: theirs(held[name], arrays) for name, arrays in parts.items()}
    tensors |= family.constants(module.config)
    for copy, (original, beside) in family.written.items():
        if beside in tensors:
            tensors[copy] = tensors[original].copy()
    return tensors


def _write_json(path: Path, content: Any) -> None:
    text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _shape(leaf: Any) -> Any:
    if isinstance(leaf, tuple):
        return [_shape(one) for one in leaf]
    return None if leaf is None else tuple(leaf.shape)


def _flat(params: Any) -> dict[str, Any]:
    """Leaves by path; those of a stack with its layers apart are a tuple, of each layer one."""
    found: dict[str, Any] = {}
    for path, leaf in traverse_util.flatten_dict(params, sep="/").items():
        if not isinstance(leaf, tuple):
            found[path] = leaf
            continue
        layers = [traverse_util.flatten_dict(layer, sep="/") for layer in leaf]
        found |= {f"{path}/{name}": tuple(layer[name] for layer in layers) for name in layers[0]}
    return found


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The parameter tree that `_flat` takes apart."""
    by_layer: dict[str, dict[str, Any]] = {}
    whole: dict[str, Any] = {}
    for path, leaf in flat.items():
        before, _, name = path.partition("/layers/")
        if isinstance(leaf, tuple):
            by_layer.setdefault(f"{before}/layers", {})[name] = leaf
        else:
            whole[path] = leaf
    for path, leaves in by_layer.items():
        count = len(next(iter(leaves.values())))
        layers = ({name: leaf[n] for name, leaf in leaves.items()} for n in range(count))
        whole[path] = tuple(traverse_util.unflatten_dict(layer, sep="/") for layer in layers)
    return traverse_util.unflatten_dict(whole, sep="/")


@functools.lru_cache(maxsize=64)
def _parameter_shapes(module: nn.Module) -> dict[str, Any]:
    """Shape of every parameter by path, without computing any."""
    return dict(_shapes_of(type(module), module.config))


@functools.lru_cache(maxsize=64)  # to open a model needs them several times
def _shapes_of(architecture: type[nn.Module], config: ModelConfig) -> dict[str, Any]:
    ids = jnp.zeros((1, 1), jnp.int32)
    variables = jax.eval_shape(architecture(config).init, jax.random.key(0), ids)
    return _flat(variables["params"])


def _fresh(module: nn.Module, paths: set[str], seed: int) -> dict[str, Array]:
    """Initial values of some parameters; the others are never computed."""
    if not paths:
        return {}

    def init(key: Array) -> dict[str, Any]:
        tree = module.init(key, jnp.zeros((1, 1), jnp.int32))["params"]
        flat = _flat(tree)
        return {path: flat[path] for path in paths}

    return jax.jit(init)(jax.random.key(seed))


def _warn(files: TensorFiles, report: CheckpointMatch, family: Family) -> None:
    if report.missing:
        warnings.warn(
            f"{files.directory} lacks {', '.join(report.missing)}: freshly initialised. "
            "Train the model before using these outputs.",
            UserWarning,
            stacklevel=4,
        )
    if strange := name_tables.strange(report, family):
        warnings.warn(
            f"{files.directory} holds tensors that no {family.name} has: {', '.join(strange)}. "
            "They are not used.",
            UserWarning,
            stacklevel=4,
        )


def _earlier_files(directory: Path) -> list[str]:
    """Files that an earlier save wrote; a tokenizer of its own must not be read with this model."""
    try:
        names = tensor_file.stored_beside(directory / tensor_file.SINGLE)
        top = [n for n in names if (directory / n).parent == directory and n != ".."]
        return sorted({*top, *filter(sentence_modules.belongs, names)})
    except CheckpointError:  # the damaged file is about to be replaced
        return []


def _remove_shards(directory: Path) -> None:
    """Remove what an earlier, sharded save left; the single file has taken its place."""
    if (directory / tensor_file.INDEX).is_file():
        (directory / tensor_file.INDEX).unlink()
        for path in directory.glob("model-*-of-*.safetensors"):
            path.unlink()


# What a class of Hugging Face is for, and kinds of models with that purpose, the closest first.
_BY_PURPOSE = (
    (("ForCausalLM", "LMHeadModel"), ("llama", "gpt2")),
    (("ForConditionalGeneration", "MTModel"), ("t5", "bart")),
    (("",), ("modernbert", "bert")),
)


def nearest_type(settings: Mapping[str, Any], known: Sequence[str]) -> str:
    """Name the supported model type that is most like a given one.

    A type of a similar name is preferred, such as `gpt2` for `gpt_neo`; then one that is made for
    the same purpose.
    """
    kind, classes = settings.get("model_type"), settings.get("architectures")
    if isinstance(kind, str):
        inside = sorted((name for name in known if _stem(name) in kind), key=len, reverse=True)
        if close := difflib.get_close_matches(kind, known, n=1, cutoff=0.7) or inside:
            return close[0]
    head = classes[0] if isinstance(classes, list) and classes else ""
    if settings.get("is_encoder_decoder") is True:
        head = "ForConditionalGeneration"
    for ends, names in _BY_PURPOSE:
        if str(head).endswith(ends):
            return next((name for name in names if name in known), known[0])
    return known[0]


def _stem(name: str) -> str:
    """A type without its version, where that leaves a word."""
    stem = name.rstrip("0123456789")
    return stem if len(stem) > 2 else name
