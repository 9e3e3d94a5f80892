# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Layout of a store of attention: names of files, arrays and columns, shapes, chunks.

    plan.json  plan.sha256  errors.jsonl
    shards/00000/{manifest.json, texts.parquet, tokens.parquet, heads.parquet, reductions.parquet,
    maps.zarr/, errors.jsonl}

A shard has `errors.jsonl` where rows were left out; that of the store is all of them together.
Nothing here opens a file. The columns of the tables are described in `flaxattn.store.shard_tables`.
"""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

FORMAT = 1
PLAN, ERRORS, SHARDS = "plan.json", "errors.jsonl", "shards"
PLAN_SEAL = "plan.sha256"  # as sha256sum writes and checks it
COUNTS = ("rows", "texts", "tokens", "bytes", "truncated")
"""Numbers of a shard in its manifest."""
MANIFEST, TEXTS, TOKENS, HEADS = "manifest.json", "texts.parquet", "tokens.parquet", "heads.parquet"
REDUCTIONS, MAPS = "reductions.parquet", "maps.zarr"
GROUP = f"{MAPS}/zarr.json"
OF_MAPS = ("weights", "scores")
"""Arrays of a side with one value for each query and key; others have one row per position."""
OF_LAYERS = ("hidden",)
"""Arrays of a side that are of whole layers: their axis of heads has one place."""
CHUNK = 16384  # values that are compressed and checked together
SHARD_TEXTS = 2**20  # the most texts of a shard


class TokenSides(NamedTuple):
    """Token side of the queries and the keys of an attention: `source` or `target`."""

    queries: str
    keys: str


def is_store(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a folder that `flaxattn extract` wrote."""
    return (Path(path) / PLAN).is_file()


def shard_name(number: int) -> str:
    """Name of a shard's folder."""
    return f"{number:05d}"


def shard_folder(store: Path, number: int) -> Path:
    """Folder of a committed shard."""
    return store / SHARDS / shard_name(number)


def part_prefix(number: int) -> str:
    """Prefix of the names of folders in which this shard is being written."""
    return f".{shard_name(number)}."


def shard_numbers(names: Sequence[str]) -> list[int]:
    """Numbers of the committed shards among names of folders, ascending."""
    numbers = (int(name) for name in names if name.isascii() and name.isdigit())
    return sorted(int(name) for name in {*map(shard_name, numbers)} & {*names})


def places(side: str, with_target: bool) -> TokenSides:
    """Return the token sides of a side's queries and keys."""
    target = "target" if with_target else "source"
    return {
        "encoder": TokenSides("source", "source"),
        "decoder": TokenSides(target, target),
        "cross": TokenSides(target, "source"),
    }[side]


def head_count(name: str, heads: Sequence[int]) -> int:
    """Size of the axis of heads of an array that was captured of these heads."""
    return 1 if name in OF_LAYERS else len(heads)


def rows_of(name: str, side: TokenSides) -> str:
    """Return the tokens for which an array or a statistic has one row each."""
    return side.keys if name in ("key", "value", "received") else side.queries


def stored_dtype(dtype: str) -> np.dtype[Any]:
    """Dtype of values on disk: bfloat16 as uint16, which every Zarr reader knows."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def value_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype of values, for `bfloat16` that of ml_dtypes."""
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def chunk_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Shape of a compressed chunk of an array `[L, H, N, ...]`: a stretch of one head."""
    rest = tuple(shape[3:])
    length = max(1, CHUNK // math.prod(rest))
    return (1, 1, max(1, min(length, shape[2])), *rest)


def chunk_count(shape: Sequence[int], chunk: Sequence[int]) -> int:
    """Number of chunks in an array."""
    return math.prod(-(-size // step) for size, step in zip(shape, chunk, strict=True))


def zarr_path(name: str) -> str:
    """Folder of an array inside its shard."""
    return f"{MAPS}/{name}"


def chunks_path(name: str, axes: int) -> str:
    """The one file with an array's chunks, inside its shard."""
    return f"{zarr_path(name)}/c/" + "/".join("0" * axes)


def zarr_metadata(
    shape: Sequence[int], chunk: Sequence[int], dtype: str, attributes: Mapping[str, Any]
) -> dict[str, Any]:
    """Zarr v3's description of an array in one file of chunks that each have a crc32c."""
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    zstd = {"name": "zstd", "configuration": {"level": 1}}
    whole = [max(1, -(-size // step)) * step for size, step in zip(shape, chunk, strict=True)]
    sharding = {
        "chunk_shape": list(chunk),
        "codecs": [little, zstd, {"name": "crc32c"}],
        "index_codecs": [little, {"name": "crc32c"}],
        "index_location": "end",
    }
    return {
        "shape": list(shape),
        "data_type": stored_dtype(dtype).name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": whole}},
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "fill_value": 0,
        "attributes": {**attributes, "dtype": dtype},
        "dimension_names": ["layer", "head", "place", "depth"][: len(shape)],
    }
