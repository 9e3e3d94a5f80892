# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`from_pretrained`: a model by name, with everything it was saved with.

A name stands for a directory or file with configuration and tensors; of an adapter they are those
of its base, with the changes of the adapter. `untrained` is a model with random parameters.
"""

import dataclasses
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.typing import Dtype
from jax.sharding import Mesh

from flaxattn.errors import CheckpointError, InputError, UnavailableError, check_arguments
from flaxattn.models.config_base import MOST_LABELS, check_integer, shown
from flaxattn.models.encoder_config import EncoderConfig
from flaxattn.models.seq2seq_config import EncoderDecoderConfig, RnnConfig
from flaxattn.pretrained import decoding_settings, hub, model_directory
from flaxattn.pretrained.gguf_file import SUFFIX, GgufFile
from flaxattn.pretrained.lora_adapter import LoraAdapter
from flaxattn.pretrained.model_directory import as_stored, config_of, read_config
from flaxattn.pretrained.model_types import ModelConfig, family_of, modules_of
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.pretrained.pretrained_encoders import (
    PretrainedBert,
    PretrainedRnnClassifier,
    PretrainedT5Encoder,
)
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq
from flaxattn.pretrained.sentence_modules import SentenceModules
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokens import Reader
from flaxattn.text.transformers_tokenizer import PythonTokenizer, open_tokenizer
from flaxattn.trace.tensor_file import TensorFiles, saved_beside


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A model that was found and whose tensors are still to be read.

    Attributes:
        directory: Directory of the model; the file itself where that is a GGUF file.
        config: Its configuration.
        files: Its tensors.
        saved: Checksums of the files beside them; empty where another program wrote these.
        adapter: Whose changes are merged into the tensors; None where there is none.
        gguf: The one file that holds the model; None for a directory.
    """

    directory: Path
    config: ModelConfig
    files: TensorFiles
    saved: Mapping[str, str]
    adapter: LoraAdapter | None = None
    gguf: GgufFile | None = None

    @classmethod
    def find(cls, name: str | Path, **hosted: Any) -> "Checkpoint":
        """Find a model by its name."""
        path = Path(name).expanduser()
        if path.suffix == SUFFIX and path.is_file():
            return cls._of_gguf(GgufFile(path))
        directory = hub.find(name, **hosted)
        if (adapter := LoraAdapter.read(directory)) is None:
            return cls._of(directory)
        base = cls._of(_base(adapter, hosted))
        files = adapter.merged(base.files, family_of(base.config), base.config)
        config = base.config
        if files.rows is not None:  # tokens were added
            config = dataclasses.replace(config, vocab_size=files.rows)
        return dataclasses.replace(base, config=config, files=files, adapter=adapter)

    def unchanged(self) -> bool:
        """Return whether the files beside the tensors are still those that were found."""
        return self.gguf is not None or saved_beside(self.directory) == self.saved

    @classmethod
    def _of_gguf(cls, file: GgufFile) -> "Checkpoint":
        config = config_of(file.path, file.settings())
        return cls(file.path, config, file.tensors(), {}, gguf=file)

    @classmethod
    def _of(cls, directory: Path) -> "Checkpoint":
        saved, config = saved_beside(directory), read_config(directory)
        files = TensorFiles(directory)
        return cls(directory, as_stored(config, files), files, saved)


def _base(adapter: LoraAdapter, hosted: Mapping[str, Any]) -> Path:
    """Directory of the model that an adapter changes, beside the adapter or by its name."""
    beside = adapter.directory / adapter.base
    if beside.is_dir():
        return beside
    revision = adapter.settings.get("revision")
    try:
        return hub.find(adapter.base, **{**hosted, "revision": revision})
    except (CheckpointError, UnavailableError) as error:
        raise adapter.refused("that model is not at hand") from error


_log = logging.getLogger(__name__)
_DTYPES = ("float32", "bfloat16", "float16")


@check_arguments()
def from_pretrained(
    name: str | Path,
    head: str | None = None,
    dtype: Dtype | None = None,
    *,
    num_labels: int | None = None,
    mesh: Mesh | None = None,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
) -> Pretrained:
    """Load a model.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> model.counts()  # layers, heads
    (4, 4)
    >>> model(input_ids=[[2, 40, 3]]).last_hidden_state.shape
    (1, 3, 256)

    Args:
        name: Name of a built-in model, a Hugging Face directory, or a Hub id, tried in this order;
            or a GGUF file of llama.cpp, whose tensors are dequantized. A LoRA adapter is merged
            into its base.
        head: An architecture such as `BertForMaskedLM`, or its end `ForMaskedLM` for that of the
            checkpoint's family, or `base` for the model without head; by default what the
            checkpoint was saved as. Weights of a head that the checkpoint lacks
            are freshly initialised, and a UserWarning says so.
        dtype: Dtype of the parameters and of the computation: float32 (default), bfloat16 or
            float16, whatever the files hold. LayerNorm and softmax compute in float32 all the same.
        num_labels: Number of classes of a new classifier.
        mesh: Devices that the parameters are laid out over as in training: cut along its axes
            "data" and "model", so that none holds more than its part. Default one device.
        revision: Branch, tag or commit on the Hub.
        cache_dir: Folder of the Hub's files.
        local_files_only: Do not use the network; `HF_HUB_OFFLINE=1` does the same.

    Returns:
        The model.

    Raises:
        CheckpointError: If there is no such model, or its files do not make a whole one.
        UnavailableError: If the Hub would be needed but cannot be reached.
        InputError: For an unknown head or dtype, a mesh with other axes, or parameters that are
            too large for the dtype.
    """
    hosted = {"revision": revision, "cache_dir": cache_dir, "local_files_only": local_files_only}
    kind = _dtype(dtype)
    found = Checkpoint.find(name, **hosted)
    module = _module(found, head, kind, num_labels)
    handle, parts = _handle(module.config), _reading(found, module.config)
    params, report = model_directory.load(found.files, module, dtype=kind, mesh=mesh)
    _log.debug("read %s as %s from %s", name, type(module).__name__, found.directory)
    if not found.unchanged():
        raise CheckpointError(
            f"{found.directory} was saved anew while it was read.\n"
            "Nothing of it is used; load it again."
        )
    return handle(
        module=module, params=params, config=module.config, name=str(name), report=report, **parts
    )


@check_arguments()
def without_parameters(
    name: str | Path, head: str | None = None, dtype: Dtype | None = None
) -> Pretrained:
    """Open a model without reading its parameters; in their place are their shapes.

    Configuration, tokenizer and the headers of the files are read and checked as `from_pretrained`
    does, the tensors are not.
    """
    kind = _dtype(dtype)
    found = Checkpoint.find(name)
    module = _module(found, head, kind, None)
    handle, parts = _handle(module.config), _reading(found, module.config)
    params, report = model_directory.shapes_and_match(found.files, module, kind)
    return handle(
        module=module, params=params, config=module.config, name=str(name), report=report, **parts
    )


def architectures_for(config: ModelConfig) -> tuple[str, ...]:
    """Return the architectures that a configuration can be loaded as, the backbone first."""
    return tuple(modules_of(config))


def _handle(config: ModelConfig) -> type[Pretrained]:
    if isinstance(config, EncoderConfig):
        return PretrainedBert
    if isinstance(config, EncoderDecoderConfig):
        alone = PretrainedRnnClassifier if isinstance(config, RnnConfig) else PretrainedT5Encoder
        return PretrainedSeq2Seq if config.decoder_layers else alone
    return PretrainedDecoder


def _dtype(dtype: Dtype | None) -> Any:
    try:
        kind = jnp.dtype("float32" if dtype is None else dtype)
    except TypeError as error:
        raise InputError(f"dtype {dtype!r}: expected one of {', '.join(_DTYPES)}.") from error
    if kind.name not in _DTYPES:
        raise InputError(f"dtype {kind.name}: expected one of {', '.join(_DTYPES)}.")
    return kind


def _module(found: Checkpoint, head: str | None, dtype: Any, num_labels: int | None) -> Any:
    """The Linen module of a checkpoint."""
    config, architectures = found.config, modules_of(found.config)
    if head is None and found.adapter is not None:
        head = found.adapter.head
    wanted = _architecture(head, config, architectures)
    config = dataclasses.replace(config, architectures=(wanted,))
    if num_labels is None and found.adapter is not None:
        num_labels = found.adapter.classes(found.files) if config.num_labels else None
    if num_labels is not None:
        config = _relabelled(config, num_labels)
    return architectures[wanted](config, dtype=dtype)


def _architecture(head: str | None, config: ModelConfig, architectures: Mapping[str, Any]) -> str:
    wanted = config.architectures[0] if head is None else head
    first = next(iter(architectures))
    wanted = first if wanted == "base" else wanted
    if head is not None and head.startswith("For"):
        wanted = first.removesuffix("Model") + head
    if wanted in architectures:
        return wanted
    if head is not None:
        raise InputError(
            f"The architecture {shown(wanted)} is not one that flaxattn has.\n"
            f"It has {', '.join(architectures)}.\n"
            'Load the model without head with head="base", or name one of these as head.'
        )
    warnings.warn(
        f"The checkpoint is a {shown(wanted)}, which flaxattn does not have: "
        f"it is opened without its head, as {first}.",
        UserWarning,
        stacklevel=5,
    )
    return first


def _relabelled(config: ModelConfig, count: int) -> ModelConfig:
    if not config.num_labels:
        raise InputError(
            f"num_labels={count}: encoder-decoders have no classifier.\nLeave num_labels out."
        )
    try:
        check_integer("num_labels", count, 1, MOST_LABELS)
    except CheckpointError as error:  # the caller said it, no file
        raise InputError(str(error)) from error
    labels = tuple(f"LABEL_{i}" for i in range(count))
    return config if count == config.num_labels else dataclasses.replace(config, labels=labels)


def _reading(found: Checkpoint, config: ModelConfig) -> dict[str, Any]:
    """The parts of a model that deal with text: tokenizers, and how text is generated."""
    directory, size = found.directory, config.vocab_size
    if found.gguf is not None:
        return {"tokenizer": _fitting(directory, found.gguf.tokenizer(), size)}
    tokenizer = None
    if found.adapter is not None:  # peft saves the tokenizer where tokens were added
        tokenizer = _tokenizer(found.adapter.directory, "", size)
    if tokenizer is None:
        tokenizer = _tokenizer(directory, "", size)
    parts: dict[str, Any] = {"tokenizer": tokenizer}
    parts["sentence_modules"] = SentenceModules.read(directory)
    if isinstance(config, EncoderDecoderConfig):
        if config.decoder_layers:
            target = _tokenizer(directory, model_directory.TARGET_PREFIX, config.target_size)
            parts |= {"target_tokenizer": target, "generation": decoding_settings.read(directory)}
        return parts
    if isinstance(tokenizer, PythonTokenizer):
        raise CheckpointError(
            f"{directory}: its tokenizer is a {tokenizer.class_name}, which exists in Python only\n"
            "flaxattn reads such tokenizers for translation models\n"
            'add a tokenizer.json and the tokenizer_class "PreTrainedTokenizerFast" in '
            "tokenizer_config.json, or load the model without its tokenizer files"
        )
    if isinstance(config, EncoderConfig):
        return parts
    return parts | {"generation": decoding_settings.read(directory)}


def _tokenizer(directory: Path, prefix: str, size: int) -> Reader | None:
    return _fitting(directory, open_tokenizer(directory, prefix), size)


def _fitting(directory: Path, tokenizer: Reader | None, size: int) -> Reader | None:
    """The tokenizer of a model whose embedding table has so many rows."""
    if isinstance(tokenizer, Tokenizer):
        tokenizer = dataclasses.replace(tokenizer, rows=size)
    if tokenizer is not None:
        _check_size(directory, tokenizer, size)
    return tokenizer


def _check_size(directory: Path, tokenizer: Reader, size: int) -> None:
    if tokenizer.largest_id >= size:
        raise CheckpointError(
            f"{directory}: the tokenizer gives texts the id {tokenizer.largest_id}, the embedding "
            f"table has ids 0 to {size - 1}.\n"
            "Its files are not of one model; take them all from the same place."
        )


@check_arguments()
def untrained(model: Pretrained, seed: int = 0) -> Pretrained:
    """Replace the parameters of a model by random ones, as before any training.

    Such a model has learnt nothing, so it is the baseline of roles and probes.

    >>> import flaxattn as fa
    >>> fa.untrained(fa.from_pretrained("tiny-bert")).name
    'tiny-bert, untrained'

    Args:
        model: A BERT, a GPT-2 or an encoder-decoder.
        seed: Random seed for the parameters.

    Returns:
        A model of its own, with the same tokenizer and configuration.

    Raises:
        InputError: If `model` is not a `Pretrained`.
    """
    given = {"input_ids": np.ones((1, 2), np.int32)}
    if isinstance(model, PretrainedSeq2Seq):
        given["decoder_input_ids"] = given["input_ids"]
    params = jax.jit(model.module.init)(jax.random.key(seed), **given)["params"]
    return dataclasses.replace(model, params=params, name=f"{model.name}, untrained")
