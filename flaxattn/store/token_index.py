# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""An index of tokens by what heads made of them, on disk: written shard by shard, and read back.

Any NumPy and any Parquet reader opens its files:

    index.json           what it is, sealed with its own sha256, and the sha256 of all that follows
    00000.texts.parquet  a row per text: id, text, file, line, and the row of its first token
    00000.tokens.parquet a row per position, special ones too; see `TOKENS`
    00000.vectors.npy    float16 [L, H, P, D], of norm one, of the P positions that are not special
    00000.strongest.npy  int32 [L, H, P]: the position that each of them attends to most

What is near what is found in `flaxattn.measures.search`. No model is here.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float16, Int, Int32

from flaxattn.errors import InputError, StoreError
from flaxattn.files import sha256_of

FORMAT = 1
INDEX = "index.json"
KINDS = ("head_output", "hidden")
TEXTS = pa.schema(
    [
        ("id", pa.string()),
        ("text", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("first", pa.int64()),
    ]
)
TOKENS = pa.schema(
    [
        ("text", pa.int64()),  # number of its row in the table of texts
        ("position", pa.int32()),
        ("token", pa.string()),
        ("start", pa.int32()),  # characters of its text
        ("stop", pa.int32()),
        ("special", pa.bool_()),
        ("tag", pa.string()),  # universal part of speech of its word; null without a tree
        ("relation", pa.string()),  # of its word to its governor
        ("governor", pa.int32()),  # words from its word to the governor; null for a root
    ]
)


@dataclasses.dataclass(frozen=True)
class Contents:
    """A shard of an index, in memory.

    Attributes:
        texts: Columns of `TEXTS`.
        tokens: Columns of `TOKENS`.
        vectors: Vectors of positions that are not special, in the order of `tokens`; H is 1 for
            hidden states.
        strongest: Position of the key that each of them attends to most, by head.
    """

    texts: Mapping[str, Any]
    tokens: Mapping[str, Any]
    vectors: Float16[np.ndarray, "L H P D"]
    strongest: Int32[np.ndarray, "L A P"]


class HeadIndexWriter:
    """Writes an index into a folder that is put in place when all is well.

    Args:
        folder: From `flaxattn.files.written_whole`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shards: list[dict[str, Any]] = []

    def add(self, contents: Contents) -> None:
        """Write a shard."""
        names = _names(len(self._shards))
        for name, columns, schema in (
            (names["texts"], contents.texts, TEXTS),
            (names["tokens"], contents.tokens, TOKENS),
        ):
            table = pa.table(dict(columns), schema=schema)
            path = self._folder / name
            pq.write_table(table, path, compression="zstd", write_page_checksum=True)
        sums = {}
        for name, array in (("vectors", contents.vectors), ("strongest", contents.strongest)):
            array = np.ascontiguousarray(array)
            np.save(self._folder / names[name], array, allow_pickle=False)
            digests = [
                [_digest(array[i, j]) for j in range(len(array[i]))] for i in range(len(array))
            ]
            sums[name] = {"shape": list(array.shape), "sha256": digests}
        self._shards.append(
            {
                "texts": len(contents.texts["id"]),
                "tokens": int(contents.vectors.shape[2]),
                "sha256": {n: sha256_of(self._folder / names[n]) for n in ("texts", "tokens")},
                "arrays": sums,
            }
        )

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write `index.json`."""
        body = {"format": FORMAT, **facts, "shards": self._shards}
        (self._folder / INDEX).write_bytes(_sealed(body))


class HeadIndex:
    """An index that was written. Each array is compared with its sha256 when it is first read.

    Attributes:
        path: Its folder.
        facts: What `index.json` says.
        kind: `head_output` or `hidden`.
        layers: Numbers of the layers, from 0.
        heads: Numbers of the heads, from 0.
        annotated: Whether tokens have a part of speech and a relation.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]) -> None:
        self.path, self.facts = path, facts
        self.kind: str = facts["kind"]
        self.layers = tuple(facts["layers"])
        self.heads = tuple(facts["heads"])
        self.annotated: bool = facts["annotated"]
        self._shards = facts["shards"]
        self._checked: set[Any] = set()

    def __repr__(self) -> str:
        layers = ", ".join(map(str, self.layers))
        return (
            f"HeadIndex({str(self.path)!r}: {len(self):,} tokens, {self.kind} of layers {layers})"
        )

    def __len__(self) -> int:
        """Tokens that can be found."""
        return sum(shard["tokens"] for shard in self._shards)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return len(self._shards)

    @property
    def texts(self) -> int:
        """Texts of all shards."""
        return sum(shard["texts"] for shard in self._shards)

    def table(self, shard: int, which: str) -> pa.Table:
        """A table of a shard."""
        path = self.path / _names(shard)[which]
        try:
            data = path.read_bytes()
        except OSError as error:
            raise _damaged(path, error.strerror or str(error)) from error
        if hashlib.sha256(data).hexdigest() != self._shards[shard]["sha256"][which]:
            raise _damaged(path, "its content is not what was written (sha256)")
        return pq.read_table(pa.BufferReader(data))

    def vectors(self, shard: int, layer: int, head: int) -> Float16[np.ndarray, "P D"]:
        """Vectors of a shard, mapped from the disk."""
        i, j = self._place(layer, head)
        return self._array(shard, "vectors", i, 0 if self.kind == "hidden" else j)

    def strongest(self, shard: int, layer: int, head: int) -> Int[np.ndarray, " P"]:
        """Position in its text of the key that each token attends to most; arguments as above."""
        return self._array(shard, "strongest", *self._place(layer, head))

    def _place(self, layer: int, head: int) -> tuple[int, int]:
        for what, number, known in (("layer", layer, self.layers), ("head", head, self.heads)):
            if number not in known:
                raise InputError(
                    f"{self.path} has no {what} {number}\n"
                    f"it has {what}s {', '.join(map(str, known))}, counted from 0\n"
                    f"choose one of them, or build an index with it"
                )
        return self.layers.index(layer), self.heads.index(head)

    def _array(self, shard: int, which: str, i: int, j: int) -> np.ndarray:
        path, facts = self.path / _names(shard)[which], self._shards[shard]["arrays"][which]
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # NumPy parses the header as Python, with all of its errors
            reason = str(error).splitlines() or [type(error).__name__]
            raise _damaged(path, reason[0]) from error
        dtype = {"vectors": "float16", "strongest": "int32"}[which]
        if (list(array.shape), array.dtype.name) != (facts["shape"], dtype):
            raise _damaged(path, f"it is {array.dtype} {list(array.shape)}")
        part = array[i, j]
        if (shard, which, i, j) not in self._checked:
            if _digest(part) != facts["sha256"][i][j]:
                where = f"layer {self.layers[i]}, head {self.heads[j]}"
                raise _damaged(path, f"{where} is not what was written (sha256)")
            self._checked.add((shard, which, i, j))
        return part


def open_head_index(path: str | Path) -> HeadIndex:
    """Open an index."""
    folder = Path(path)
    file = folder / INDEX
    if not file.is_file():
        raise InputError(
            f"{folder} is not an index of tokens: it has no {INDEX}\n"
            f"make one with `flaxattn search build INPUT --out {folder}`"
        )
    data = file.read_bytes()
    try:
        facts = json.loads(data)["index"]
        whole = _sealed(facts) == data
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(file, "it cannot be read") from error
    if not whole:
        raise _damaged(file, "its content does not match its own sha256")
    if facts["format"] != FORMAT:
        raise _damaged(file, f"it has format {facts['format']}, expected {FORMAT}")
    return HeadIndex(folder, facts)


def _names(shard: int) -> dict[str, str]:
    kinds = {"texts": "parquet", "tokens": "parquet", "vectors": "npy", "strongest": "npy"}
    return {kind: f"{shard:05d}.{kind}.{suffix}" for kind, suffix in kinds.items()}


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


def _sealed(body: Mapping[str, Any]) -> bytes:
    text = json.dumps(body, ensure_ascii=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"sha256": "{digest}", "index": {text}}}\n'.encode()


def _damaged(path: Path, what: str) -> StoreError:
    return StoreError(
        f"{path} is damaged: {what}\n"
        "nothing was read from it\n"
        "build the index again with `flaxattn search build`"
    )
