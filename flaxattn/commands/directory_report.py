# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Findings of `flaxattn doctor`: what a directory or file holds and what of it is applied.

Each part is looked at by itself, so that one that is wrong does not hide the others. No tensor is
read.
"""

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from flaxattn.errors import FlaxattnError
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.pretrained import hub
from flaxattn.pretrained.from_pretrained import without_parameters
from flaxattn.pretrained.gguf_file import SUFFIX, GgufFile
from flaxattn.pretrained.lora_adapter import LoraAdapter
from flaxattn.pretrained.model_directory import config_of, read_config
from flaxattn.pretrained.name_tables import wrapped_names
from flaxattn.pretrained.sentence_modules import SentenceModules
from flaxattn.text.open_tokenizer import open_tokenizer
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokenizer_files import read_tokenizer_json, shortened
from flaxattn.text.transformers_tokenizer import PythonTokenizer
from flaxattn.trace.tensor_file import TensorFiles, read_json, saved_beside

# Keys of config.json that no computation depends on.
_OF_NO_COMPUTATION = {
    *("_name_or_path", "auto_map", "dtype", "torch_dtype", "transformers_version", "use_cache"),
    *("gradient_checkpointing", "output_attentions", "output_hidden_states", "return_dict"),
    *("architectures", "model_type", "pretraining_tp", "torchscript", "tokenizer_class"),
    *(
        "is_encoder_decoder",
        "id2label",
        "label2id",
        "finetuning_task",
        "flaxattn_version",
        "task_specific_params",
    ),
}
_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


class Finding(NamedTuple):
    """One fact about a model.

    Attributes:
        subject: `kind`, `config`, `weights`, `tokenizer`, `vectors` or `opens`.
        text: The fact, or the error that opening the model raises.
        problem: Whether it keeps the model from being opened or used.
    """

    subject: str
    text: str
    problem: bool = False


def findings(name: str) -> list[Finding]:
    """Look at every part of a model, also behind one that is wrong."""
    path = Path(name).expanduser()
    if path.suffix == SUFFIX and path.is_file():
        return [*_of("kind", lambda: _gguf(path)), _opening(name)]
    directory = hub.find(name)
    found = list(_of("kind", lambda: _kind(directory)))
    adapter = not (directory / "config.json").is_file()
    if not adapter:
        found += _of("config", lambda: _config(directory))
        found += _of("weights", lambda: _weights(directory))
        found += _of("vectors", lambda: _vectors(directory))
    found += _of("tokenizer", lambda: _tokenizer(directory))
    return [*found, _opening(name)]


def opens(found: Iterable[Finding]) -> bool:
    """Whether the model can be opened."""
    return not any(one.problem for one in found if one.subject == "opens")


def _of(subject: str, look: Callable[[], Iterator[str]]) -> Iterator[Finding]:
    """What a look at a part finds, warnings and the error that ends it included."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            for text in look():
                yield Finding(subject, text)
        except FlaxattnError as error:
            yield Finding(subject, str(error), problem=True)
    for warning in caught:
        yield Finding(subject, str(warning.message))


def _kind(directory: Path) -> Iterator[str]:
    if (directory / "config.json").is_file():
        kind = read_json(directory / "config.json").get("model_type", "bert")
        yield f"a model directory of the type {kind}"
        if (directory / "adapter_config.json").is_file():
            yield "an adapter lies beside the model, which is opened as it is"
        return
    adapter = LoraAdapter.read(directory)
    if adapter is None:
        files = sorted(directory.glob(f"*{SUFFIX}"))
        if files:
            yield f"a folder with {files[0].name}; name the file to open it"
            return
        read_config(directory)
        return
    yield f"a LoRA adapter of {adapter.base!r}, which is merged into that model"


def _gguf(path: Path) -> Iterator[str]:
    file = GgufFile(path)
    yield f"a GGUF file of the architecture {file.metadata['general.architecture']}"
    kinds = file.tensors().letters().values()
    count = ", ".join(f"{list(kinds).count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
    yield f"{count}; every tensor is dequantized to float32"
    config_of(path, file.settings())
    file.tokenizer()


def _config(directory: Path) -> Iterator[str]:
    path = directory / "config.json"
    settings = _ReadSettings(read_json(path))
    config = config_of(path, settings)
    kept = set(json.loads(config.further_settings)) - _OF_NO_COMPUTATION
    if isinstance(config, DecoderConfig):  # which keeps the whole file
        kept -= settings.read
    if kept:
        yield f"keys that are kept and change nothing here: {', '.join(sorted(kept))}"


def _weights(directory: Path) -> Iterator[str]:
    saved_beside(directory)
    files = TensorFiles(directory)
    if wrappers := wrapped_names(files.shapes):
        yield f"names of tensors hold {', '.join(wrappers)}, which is left out"
    strange = {kind for kind in files.letters().values() if kind not in ("F32", "F16", "BF16")}
    if strange:
        yield f"tensors of the kinds {', '.join(sorted(strange))}, which are not read as weights"


def _vectors(directory: Path) -> Iterator[str]:
    modules = SentenceModules.read(directory)
    if modules is not None:
        modules.recipe()
        yield "fa.embed gives the vectors of sentence-transformers"


def _tokenizer(directory: Path) -> Iterator[str]:
    found = open_tokenizer(directory)
    file = directory / "tokenizer.json"
    if found is None:
        yield "none: the model reads input_ids alone"
    elif isinstance(found, PythonTokenizer):
        yield f"a {found.class_name} of transformers, which exists in Python only"
    elif not isinstance(found, Tokenizer) or not file.is_file():
        yield f"made of {'vocab.txt' if (directory / 'vocab.txt').is_file() else 'other files'}"
    else:
        yield from _applied(found, file)


def _applied(found: Tokenizer, file: Path) -> Iterator[str]:
    """What the files beside a tokenizer.json have changed in it."""
    stored, actual = read_tokenizer_json(file), found.backend
    before, after = (json.loads(one.to_str()) for one in (stored, actual))
    for part in _PARTS:
        if before[part] != after[part]:
            changes = ", ".join(_differences(before[part] or {}, after[part] or {}))
            yield f"tokenizer_config.json changes the {part} of tokenizer.json: {changes}"
    known = {token["content"]: token for token in before["added_tokens"]}
    new = [t["content"] for t in after["added_tokens"] if known.get(t["content"]) != t]
    if new:
        shown = shortened(", ".join(new), 120)
        yield f"{len(new)} tokens are added to tokenizer.json or changed: {shown}"


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            one, other = (shortened(repr(side.get(name)), 40) for side in (before, after))
            yield f"{name} {one} becomes {other}"


def _opening(name: str) -> Finding:
    """Whether the model opens, and as what."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = without_parameters(name)
        except FlaxattnError as error:
            return Finding("opens", f"no: {error}", problem=True)
    return Finding("opens", f"as {model.config.architectures[0]}")


class _ReadSettings(dict[str, Any]):
    """Settings that note which of them were read by name."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None, /) -> Any:
        """Read a setting and note it."""
        self.read.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.read.add(str(name))
        return super().__contains__(name)
