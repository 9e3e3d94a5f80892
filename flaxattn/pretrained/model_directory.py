# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face model directories in and out, following the tables of names.

Not here: finding the directory (`hub`), the files (`tensor_file`), whether a checkpoint and a model
belong together (`matching`).
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
from jax.sharding import Mesh
from jaxtyping import Array

from flaxattn.errors import CheckpointError, InputError
from flaxattn.files import names_inside, remove_abandoned, sha256_of, written_whole
from flaxattn.models.bert_config import BertConfig
from flaxattn.models.config_base import shown
from flaxattn.models.layers import ACTIVATIONS
from flaxattn.models.parameter_shardings import usable_mesh
from flaxattn.models.rnn_config import RnnConfig
from flaxattn.models.t5_config import T5Config
from flaxattn.pretrained import checkpoint_match, sentence_modules
from flaxattn.pretrained.checkpoint_match import CheckpointMatch
from flaxattn.pretrained.encoder_names import with_frequencies
from flaxattn.pretrained.model_types import CONFIGS, NOT_COVERED, ModelConfig, family_of
from flaxattn.pretrained.name_tables import Family, NameRow
from flaxattn.pretrained.parameter_loading import converted, placed, read_parameters
from flaxattn.pretrained.seq2seq_names import ties_output
from flaxattn.pretrained.tensor_layouts import theirs
from flaxattn.text.token_batch import Reader
from flaxattn.trace import tensor_file
from flaxattn.trace.tensor_file import TensorFiles

TARGET_PREFIX = "target_"  # of the files of a second tokenizer
STORED_DTYPES = ("float32", "float16", "bfloat16")


def read_config(directory: str | Path) -> ModelConfig:
    """Read `config.json` of a model directory."""
    path = Path(directory) / "config.json"
    if not path.is_file():
        held = ", ".join(sorted(p.name for p in Path(directory).iterdir())[:8]) or "nothing"
        raise CheckpointError(
            f"{directory} is not a model directory: it has no config.json.\nIt holds {held}.\n"
            "Give a directory written by save_pretrained."
        )
    return config_of(path, tensor_file.read_json(path))


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
    checkpoint_match.check_layers(
        files, found, family, config
    )  # before anything is made for each layer
    rows = family.rows_of(_parameter_shapes(module), config)
    report = checkpoint_match.compare(files, found, rows, family, config, compare_tied=compare_tied)
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
    if strange := checkpoint_match.strange(report, family):
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
