# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Report on a model before its parameters are read: what it is, what runs with it, and its memory.

Configuration, tokenizer and the headers of its files are read; `doctor` prints it.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from flaxattn.commands.directory_report import Finding, opens
from flaxattn.files import readable_size
from flaxattn.models.losses import label_names
from flaxattn.models.rnn_config import RnnConfig
from flaxattn.pipeline.memory_estimate import memory_needed, model_memory
from flaxattn.pretrained import hub
from flaxattn.pretrained.from_pretrained import Checkpoint, architectures_for, without_parameters
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.trace.tensor_file import read_json

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
