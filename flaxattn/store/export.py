# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Stored attention in other people's formats: npz, Hugging Face's tuples as npy, BertViz, CSV.

Ids and tokens are strangers' text: `flaxattn.files` makes file names and cells of them.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flaxattn.errors import InputError
from flaxattn.files import csv_cell, safe_name, written_whole
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.store.commit_shards import mode_of_texts
from flaxattn.store.open_store import Store, as_float32
from flaxattn.store.store_layout import TEXTS
from flaxattn.trace.record import FIELDS, AttentionRecord
from flaxattn.trace.trace import Trace

INDEX = "index.json"
FORMATS = ("npz", "npy", "bertviz", "csv")


def export(
    store: Store,
    out: Path,
    form: str,
    examples: Sequence[int] | None = None,
    watch: Watch = show_progress,
) -> list[str]:
    """Write texts of a store as files of another format.

    `npz`: an archive per text, read with `numpy.load`. `npy`: an array `[1, H, Q, K]` per layer of
    a text, named as in Hugging Face's outputs. `bertviz`: a JSON per text with the arguments of
    BertViz's head_view and model_view. `csv`: tables of texts, tokens and mean statistics. Beside
    all but the last, index.json says which id is in which file.
    """
    exported_shards(store, form, examples)
    chosen = store.examples if examples is None else examples
    with written_whole(out, mode=mode_of_texts(store.path)) as folder:
        if form == "csv":
            _csv(folder, store, chosen, watch)
        else:
            write = {"npz": _npz, "npy": _npy, "bertviz": _bertviz}[form]
            rows = []
            for name, row, trace in _texts(store, chosen):
                write(folder, name, trace)
                rows.append({"name": name, **row})
                watch("exporting", 1)
            index = json.dumps(rows, indent=1)
            (folder / INDEX).write_text(index + "\n", encoding="utf-8")
        return sorted(path.name for path in folder.iterdir())


def exported_shards(store: Store, form: str, examples: Sequence[int] | None = None) -> list[int]:
    """Numbers of the shards that an export reads; what cannot be exported is refused."""
    if form not in FORMATS:
        raise InputError(f"there is no format {form!r}\nchoose one of {', '.join(FORMATS)}")
    if examples is None:
        return [store.shard(number).manifest.shard for number in range(len(store.plan["shards"]))]
    return sorted({store.shard_of(example)[1].manifest.shard for example in examples})


def _texts(store: Store, examples: Sequence[int]) -> Iterator[tuple[str, Mapping[str, Any], Trace]]:
    """Name for files, origin and trace of each text."""
    width = len(str(max(store.plan["texts"] - 1, 0)))
    for example, row in _rows(store, examples):
        name = f"{example:0{width}d}-{safe_name(row['id'])}"
        yield name, row, store[example]


def _rows(store: Store, examples: Sequence[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Number and origin of each text."""
    for requested in examples:
        example, shard = store.shard_of(requested)
        place = example - shard.manifest.start
        columns = ["example", "id", "file", "line", "text", "text_b", "truncated"]
        (row,) = shard.table(TEXTS, columns, (place, place + 1)).to_pylist()
        yield example, row


def _exact(array: Any, field: str) -> np.ndarray:
    """float16 and statistics as they are, everything else as float32, which NumPy's files know."""
    array = np.asarray(array)
    return array if array.dtype.name == "float16" else as_float32(array, field)


def _npz(folder: Path, name: str, trace: Trace) -> None:
    """All arrays `[L, H, ...]` of a text."""
    arrays: dict[str, Any] = {"tokens": np.array(trace.tokens[0], str)}
    for field in ("decoder_tokens", "written"):
        if rows := getattr(trace, field):
            arrays[field] = np.array(rows[0], str)
    for side, record in trace.sides.items():
        arrays |= {
            f"{side}.layers": np.array(record.layers),
            f"{side}.heads": np.array(record.heads),
        }
        for field in FIELDS:
            if (array := getattr(record, field)) is not None:
                arrays[f"{side}.{field}"] = _exact(array, field)[:, 0]
        arrays |= {f"{side}.{n}": np.asarray(array)[:, 0] for n, array in record.stats.items()}
    np.savez(folder / f"{name}.npz", **arrays)  # no objects, so nothing is pickled


def _weights(trace: Trace) -> dict[str, AttentionRecord]:
    """The sides that hold whole weights."""
    sides = {side: record for side, record in trace.sides.items() if record.weights is not None}
    if not sides:
        raise InputError(
            "this format is of attention weights, and the store holds none\n"
            "export as npz or csv, or extract again with weights"
        )
    for record in sides.values():
        record.require_whole("This format")
    return sides


def _npy(folder: Path, name: str, trace: Trace) -> None:
    """Hugging Face's tuples: a file per layer."""
    sides = _weights(trace)
    for side, record in sides.items():
        field = "attentions" if len(sides) == 1 else f"{side}_attentions"
        for layer, array in zip(record.layers, _exact(record.weights, "weights"), strict=True):
            np.save(folder / f"{name}.{field}.{layer:02d}.npy", array, allow_pickle=False)


def _bertviz(folder: Path, name: str, trace: Trace) -> None:
    """Arguments of BertViz's functions."""
    sides, facts = _weights(trace), {}
    if "cross" in sides:
        target = trace.decoder_tokens or trace.written
        facts = {"encoder_tokens": list(trace.tokens[0]), "decoder_tokens": list(target[0])}
    else:
        facts["tokens"] = list(trace.tokens[0])
        second = (
            [] if trace.segments is None else np.flatnonzero(np.asarray(trace.segments)[0] == 1)
        )
        facts["sentence_b_start"] = int(second[0]) if len(second) else None
    for side, record in sides.items():
        weights = as_float32(np.asarray(record.weights), "weights").astype(np.float64)
        facts[f"{side}_attention" if "cross" in sides else "attention"] = weights.round(6).tolist()
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
    (folder / f"{name}.json").write_text(text, encoding="utf-8")


def _csv(folder: Path, store: Store, examples: Sequence[int], watch: Watch) -> None:
    """texts.csv, tokens.csv and, with statistics, heads.csv."""
    with _Table(folder / "texts.csv") as texts, _Table(folder / "tokens.csv") as tokens:
        for example, row in _rows(store, examples):
            texts.write([row])
            parts = store.shard_of(example)[1].tokens(example, _TOKEN)
            tokens.write([r for part in parts.values() for r in part.to_pylist()])
            watch("exporting", 1)
    if any(side["stats"] for side in store.shard_of(examples[0])[1].sides.values()):
        wanted = set(examples)
        with _Table(folder / "heads.csv") as heads:
            heads.write([r for r in store.stats().to_pylist() if r["example"] in wanted])


_TOKEN = ["example", "side", "position", "token", "written", "word", "segment", "special"]


class _Table:
    """A CSV file whose cells are not formulas."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer: Any = None

    def __enter__(self) -> "_Table":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows; the first one names the columns."""
        for row in rows:
            if self._writer is None:
                self._writer = csv.writer(self._file)
                self._writer.writerow([csv_cell(name) for name in row])
            self._writer.writerow([csv_cell(v) if isinstance(v, str) else v for v in row.values()])
