# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention in a few examples on disk, before and after fine-tuning.

    traces/before/  traces/after/      model.safetensors (weights, float16, with checksums)
                                       trace.json (tokens, texts, labels, names)

`load_trace` reads one of the two folders back; it needs no model.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flaxattn.errors import CheckpointError
from flaxattn.files import written_whole
from flaxattn.kernels.contract import Capture
from flaxattn.pretrained.pretrained_bert import PretrainedBert
from flaxattn.text.tokenizer import Tokenizer
from flaxattn.trace import tensor_file as tensorfile
from flaxattn.trace.tensor_file import TensorFiles
from flaxattn.trace.trace import Trace
from flaxattn.train.glue_files import GlueExample

_FILE = "trace.json"
_TOGETHER = 8  # examples in memory at once
_CAPTURE = Capture(weights=True, dtype="float16")


def save_trace(
    folder: Path, model: PretrainedBert, examples: Sequence[GlueExample], max_length: int
) -> None:
    """Read examples and store what attention saw, each without padding."""
    assert model.tokenizer is not None
    settings = {**model.tokenizer.settings, "model_max_length": max_length}
    reader = dataclasses.replace(model, tokenizer=Tokenizer(model.tokenizer.backend, settings))
    tensors: dict[str, np.ndarray] = {}
    rows: list[dict[str, Any]] = []
    for start in range(0, len(examples), _TOGETHER):
        some = examples[start : start + _TOGETHER]
        for example, trace in zip(some, _read(reader, some), strict=True):
            assert trace.encoder is not None
            assert trace.encoder.weights is not None
            weights = np.asarray(trace.encoder.weights)[:, 0]
            tensors[_name(len(rows))] = np.ascontiguousarray(weights)
            rows.append(_row(example, trace))
    content = {"model": model.name, "examples": rows}
    with written_whole(folder, last=_FILE) as staging:
        tensorfile.write(staging / tensorfile.SINGLE, tensors)
        text = json.dumps(content, ensure_ascii=False, indent=1)
        (staging / _FILE).write_text(text + "\n", encoding="utf-8")


def load_trace(folder: str | Path) -> Trace:
    """The trace that a folder holds; sequences are padded to the longest."""
    folder = Path(folder)
    content = tensorfile.read_json(folder / _FILE)
    files = TensorFiles(folder)
    try:
        rows = content["examples"]
        longest = max(len(row["tokens"]) for row in rows)
        arrays = [_padded(files.read(_name(i)), longest) for i in range(len(rows))]
        fields = {name: [row[name] for row in rows] for name in ("texts", "truncated", "words")}
        mask = np.array([_fill([True] * len(row["tokens"]), longest, False) for row in rows])
        segments = np.array([_fill(row["segments"], longest, 0) for row in rows], np.int32)
        special = np.array([_fill(row["special"], longest, True) for row in rows])
        tokens = [_fill(row["tokens"], longest, "[PAD]") for row in rows]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{folder} holds no trace: {error!r}\nwrite it again with --trace-before-after"
        ) from error
    return Trace.from_arrays(
        np.stack(arrays, axis=1),
        tokens,
        mask=mask,
        segments=segments,
        special=special,
        words=[_fill(row, longest, None) for row in fields["words"]],
        texts=[tuple(texts) for texts in fields["texts"]],
        truncated=fields["truncated"],
        model=str(content.get("model", "")),
    )


def _read(model: PretrainedBert, examples: Sequence[GlueExample]) -> Trace:
    firsts = [example.first for example in examples]
    seconds = [example.second or "" for example in examples]
    second = None if examples[0].second is None else seconds
    return model.trace(firsts, second, capture=_CAPTURE, truncate=True)


def _row(example: GlueExample, trace: Trace) -> dict[str, Any]:
    assert trace.segments is not None
    assert trace.special is not None
    return {
        "name": f"{example.file}:{example.line}",
        "label": example.label,
        "texts": list(trace.texts[0]),
        "tokens": list(trace.tokens[0]),
        "words": list(trace.words[0]),
        "segments": np.asarray(trace.segments)[0].tolist(),
        "special": np.asarray(trace.special)[0].tolist(),
        "truncated": int(trace.truncated[0]),
    }


def _name(number: int) -> str:
    return f"weights.{number}"


def _fill(values: list[Any], length: int, value: Any) -> list[Any]:
    return [*values, *[value] * (length - len(values))]


def _padded(weights: np.ndarray, length: int) -> np.ndarray:
    extra = length - weights.shape[-1]
    return np.pad(weights, ((0, 0), (0, 0), (0, extra), (0, extra)))
