# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Description of a store, in numbers and names that fit a screen."""

from pathlib import Path
from typing import Any

from flaxattn.store.open_store import Store
from flaxattn.store.store_layout import SHARDS, TEXTS, shard_folder, shard_numbers


def shard_sizes(store: Path) -> dict[int, int]:
    """Number of bytes on disk of each committed shard, by its number; no file is opened."""
    folder = store / SHARDS
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return {number: _size(shard_folder(store, number)) for number in shard_numbers(names)}


def _size(folder: Path) -> int:
    """Bytes in the regular files of a folder."""
    files = (path for path in folder.rglob("*") if not path.is_symlink() and path.is_file())
    return sum(path.lstat().st_size for path in files)


def describe(store: Store) -> dict[str, Any]:
    """Shards, texts, bytes, and what was captured on each side.

    Reads names and sizes of all files, and every manifest.
    """
    there = store.shards
    sizes = shard_sizes(store.path)
    size, texts = sum(sizes[number] for number in there), len(store.examples)
    facts: dict[str, Any] = {
        "texts": len(store),
        "texts_present": texts,
        "shards": len(store.plan["shards"]),
        "shards_present": len(there),
        "complete": store.complete,
        "bytes": size,
        "bytes_per_text": round(size / texts) if texts else None,
        "plan_sha256": store.plan_sha256,
    }
    if there:
        manifests = [store.shard(number).manifest for number in there]
        traces = next((m for m in manifests if m.stop > m.start), manifests[0]).traces
        facts["nonfinite_rows"] = sum(manifest.nonfinite for manifest in manifests)
        facts["model"] = traces["model"]
        facts["sides"] = [
            {
                "side": side,
                "layers": ", ".join(map(str, kept["layers"])),
                "heads": ", ".join(map(str, kept["heads"])),
                "arrays": ", ".join(f"{n} {kind[0]}" for n, kind in kept["arrays"].items()),
                "statistics": ", ".join(kept["stats"]),
            }
            for side, kept in traces["sides"].items()
        ]
    return facts


def describe_text(store: Store, example: int) -> dict[str, Any]:
    """One text: where it came from, and its tokens."""
    example, shard = store.shard_of(example)
    place = example - shard.manifest.start
    columns = ["example", "id", "file", "line", "text", "text_b", "truncated"]
    (row,) = shard.table(TEXTS, columns, (place, place + 1)).to_pylist()
    kept = ["side", "position", "token", "written", "word", "segment", "special"]
    parts = shard.tokens(example, kept).values()
    return {**row, "tokens": [token for part in parts for token in part.to_pylist()]}
