# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn doctor MODEL`: what a directory or file holds, what runs with it, and its memory."""

import dataclasses
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from flaxattn.errors import FlaxattnError
from flaxattn.files import readable_size
from flaxattn.models.decoder_config import DecoderConfig
from flaxattn.models.outputs import label_names
from flaxattn.models.seq2seq_config import RnnConfig
from flaxattn.pipeline.batches import memory_needed, model_memory
from flaxattn.pretrained import hub
from flaxattn.pretrained.from_pretrained import Checkpoint, architectures_for, without_parameters
from flaxattn.pretrained.gguf_file import SUFFIX, GgufFile
from flaxattn.pretrained.lora_adapter import LoraAdapter
from flaxattn.pretrained.model_directory import config_of, read_config
from flaxattn.pretrained.name_tables import wrapped_names
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.pretrained.sentence_modules import SentenceModules
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.text.tokenizer_files import read_tokenizer_json, shortened
from flaxattn.text.transformers_tokenizer import PythonTokenizer, open_tokenizer
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
    found += _of("tokenizer", lambda: _tokenizer_findings(directory))
    return [*found, _opening(name)]


def opens(found: Iterable[Finding]) -> bool:
    """True if the model can be opened."""
    return not any(one.problem for one in found if one.subject == "opens")


def _of(subject: str, look: Callable[[], Iterator[str]]) -> Iterator[Finding]:
    """Inspect a part; include warnings and the error that ends it."""
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


def _tokenizer_findings(directory: Path) -> Iterator[str]:
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
    """Changes that other files made to a tokenizer.json."""
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
    """Open the model and name its class, or the reason why it cannot be opened."""
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


_TEXT = "it has no tokenizer; it takes input_ids alone. Put tokenizer.json into its directory"
_HEADS = "its attention has no heads of its own"
# Fields that the report shows elsewhere, or that say nothing about the arithmetic.
_TOLD = {"architectures", "labels", "further_settings", "initializer_range", "init_std"}
_WRITES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "MTModel", "RnnLM")


def model_report(name: str) -> dict[str, Any]:
    """Collect the facts about a model; no parameter is read."""
    model, found = without_parameters(name), Checkpoint.find(name)
    directory, config = found.directory, model.config
    files = [path for path in directory.iterdir() if path.is_file()] if directory.is_dir() else []
    files = files or [directory]
    layers, heads = model.counts()
    count = sum(leaf.size for leaf in jax.tree.leaves(model.params))
    memory = {
        name: {"arrays": size, "process": memory_needed(size)}
        for name, size in model_memory(model).items()
    }
    return {
        "name": name,
        "source": _source(name, directory),
        "directory": str(directory),
        "model_type": _model_type(found),
        "architecture": config.architectures[0],
        "architectures": list(architectures_for(config)),
        "missing": list(model.report.missing),
        "unexpected": list(model.report.unexpected),
        "layers": layers,
        "heads": heads,
        "limit": model.limit,
        "classes": list(config.id2label.values()),
        "settings": _settings(config),
        "switches": _switches(config),
        "parameters": count,
        "parameter_bytes": {"float32": 4 * count, "bfloat16": 2 * count},
        "disk_bytes": sum(path.stat().st_size for path in files),
        "stored_dtypes": dict(Counter(found.files.letters().values())),
        "tokenizer": _tokenizer(model),
        "runs": uses(model),
        "memory_bytes": memory,
    }


def uses(model: Pretrained) -> dict[str, str | None]:
    """Return why a use of the library does not work with a model, or None where it does."""
    config, text = model.config, None if model.tokenizer is not None else _TEXT
    architecture, others = config.architectures[0], architectures_for(config)
    additive = _HEADS if isinstance(config, RnnConfig) else None
    blind = None if model.counts()[1] else "it has no attention"
    masks = None if model.masks() else "its heads cannot be masked"
    return {
        "call": None,
        "trace": text or blind,
        "extract": text or blind,
        "measure": text or blind,
        "embed": text,
        "generate": text or _generation(model, others),
        "fill_mask": text or _needs(architecture, others, ("ForMaskedLM", "ForPreTraining")),
        "answer_question": text or _answers(model, others),
        "classify": text or _needs(architecture, others, ("Classification",)),
        "labels and loss": None if label_names(architecture) else _head(others),
        "attention_norms": text or additive,
        "rollout": text or additive,
        "ablate": text or masks or (None if label_names(architecture) else _head(others)),
        "prune": None
        if hasattr(config, "pruned_heads")
        else "its checkpoints cannot say which heads are missing; silence heads with masks",
    }


def _generation(model: Pretrained, others: tuple[str, ...]) -> str | None:
    if not hasattr(model, "generate"):
        return "it is neither a language model nor an encoder-decoder"
    return _needs(model.config.architectures[0], others, _WRITES)


def _answers(model: Pretrained, others: tuple[str, ...]) -> str | None:
    if not isinstance(model, PretrainedBert):
        return "it is not an encoder"
    return _needs(model.config.architectures[0], others, ("ForQuestionAnswering",))


def _needs(architecture: str, others: tuple[str, ...], ends: tuple[str, ...]) -> str | None:
    if architecture.endswith(ends):
        return None
    named = [name for name in others if name.endswith(ends)]
    return f"load it with head={named[0]}" if named else "models of its type have no such head"


def _head(others: tuple[str, ...]) -> str:
    named = [name for name in others if label_names(name)]
    return f"it is loaded without head; name one: {', '.join(named)}" if named else "no head"


def _model_type(found: Checkpoint) -> str:
    if found.gguf is not None:
        return found.gguf.layout.model_type
    return str(read_json(found.directory / "config.json").get("model_type", "bert"))


def _source(name: str, directory: Path) -> str:
    if name in hub.built_in():
        return "built in"
    if not directory.is_dir():
        return "GGUF file"
    return "directory" if Path(name).expanduser().is_dir() else f"Hub, in {directory}"


def _settings(config: Any) -> dict[str, Any]:
    """Fields of a configuration that the report does not show elsewhere."""
    fields = [field for field in dataclasses.fields(config) if field.name not in _TOLD]
    return {field.name: getattr(config, field.name) for field in fields}


def _switches(config: Any) -> list[str]:
    """Names of the settings whose values are not the defaults of their type."""
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    return [name for name, value in _settings(config).items() if value != defaults[name]]


def _tokenizer(model: Pretrained) -> dict[str, Any] | None:
    reader = model.tokenizer
    if reader is None:
        return None
    kind = type(reader.backend.model).__name__ if isinstance(reader, Tokenizer) else "Python"
    return {"kind": kind, "size": reader.vocab_size}


def as_json(name: str, found: Sequence[Finding]) -> str:
    """The report as JSON; of a model that does not open, the findings alone."""
    facts: dict[str, Any] = {"name": name}
    if opens(found):
        facts = model_report(name)
    facts |= {"opens": opens(found), "findings": [one._asdict() for one in found]}
    return json.dumps(facts, indent=2, ensure_ascii=False)


def as_text(name: str, found: Sequence[Finding]) -> str:
    """The report for a person; of a model that does not open, the findings alone."""
    first = [(one.subject, one.text) for one in found if one.subject == "kind"]
    others = [(one.subject, one.text) for one in found if one.subject != "kind"]
    if opens(found):
        others = _rows(name) + [row for row in others if row[0] != "opens"]
    return "\n".join(_row(title, text) for title, text in [*first, *others])


def _row(title: str, text: str) -> str:
    """A title and its text, whose further lines stand below the first."""
    return f"{title:<13} " + text.replace("\n", "\n" + 14 * " ")


def _rows(name: str) -> list[tuple[str, str]]:
    facts = model_report(name)
    stored = ", ".join(f"{count} x {kind}" for kind, count in facts["stored_dtypes"].items())
    reader, half = facts["tokenizer"], facts["parameter_bytes"]["bfloat16"]
    rows = [
        ("model", f"{facts['name']} ({facts['source']})"),
        ("type", f"{facts['model_type']}, saved as {facts['architecture']}"),
        ("can load as", ", ".join(facts["architectures"])),
        ("shape", f"{facts['layers']} layers, {facts['heads']} heads"),
        ("limit", f"{facts['limit']:,} tokens"),
        ("parameters", f"{facts['parameters']:,}; in bfloat16 {readable_size(half)}"),
        ("on disk", f"{readable_size(facts['disk_bytes'])}; tensors: {stored}"),
        ("tokenizer", f"{reader['kind']}, {reader['size']:,} tokens" if reader else "none"),
    ]
    if facts["architecture"].endswith("Classification"):
        rows += [("classes", ", ".join(facts["classes"]))]
    rows += [("setting", f"{name} = {facts['settings'][name]}") for name in facts["switches"]]
    rows += [("missing", f"{name}: freshly initialised") for name in facts["missing"]]
    rows += [("not used", name) for name in facts["unexpected"]]
    rows += [("runs", ", ".join(use for use, reason in facts["runs"].items() if reason is None))]
    rows += [("does not run", f"{use}: {why}") for use, why in facts["runs"].items() if why]
    rows += [
        (
            "memory",
            f"{use}: {readable_size(size['arrays'])} in float32; this process then has about "
            f"{readable_size(size['process'])}",
        )
        for use, size in facts["memory_bytes"].items()
    ]
    return rows
