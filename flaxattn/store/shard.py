# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""One committed shard, opened for reading: its tables, its arrays, the traces of its texts.

A table is checked when it is first read, an array chunk by chunk. `flaxattn.store.open_store` finds
the shard of an example.
"""

import dataclasses
import itertools
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Shaped

from flaxattn.errors import StoreError
from flaxattn.store.seals import check_content, consistent, damaged, read_manifest
from flaxattn.store.shard_tables import ROWS_TOGETHER, SPAN_TYPES, TOKEN_TYPES
from flaxattn.store.store_layout import (
    OF_LAYERS,
    OF_MAPS,
    PLAN,
    TEXTS,
    TOKENS,
    places,
    rows_of,
    shard_folder,
)
from flaxattn.store.zarr_arrays import StoredArray
from flaxattn.trace.record import SIDES, AttentionRecord, windows_from_json
from flaxattn.trace.trace import Trace

_SIZES = ("_tokens", "_queries", "_keys", "_start")
_LONGEST = 2**24  # tokens of a text


class _Chunk(NamedTuple):
    """Bytes of a table: a column of a group of rows, headers of its pages included."""

    group: int
    path: str
    start: int
    size: int
    crc32: int

    def holds(self, columns: Sequence[str] | None) -> bool:
        """Return whether it is part of one of these columns; None for all."""
        return columns is None or any(f"{self.path}.".startswith(f"{c}.") for c in columns)


class _Footer(NamedTuple):
    """Footer of a table that was checked, and checksums of its parts."""

    metadata: pq.FileMetaData
    chunks: tuple[_Chunk, ...]

    @classmethod
    def of(cls, metadata: pq.FileMetaData, path: Path) -> Self:
        """Read the footer of a file that was checked."""
        chunks, left = [], path.stat().st_size
        with path.open("rb") as file:
            for group, number in itertools.product(
                range(metadata.num_row_groups), range(metadata.num_columns)
            ):
                column = metadata.row_group(group).column(number)
                first = column.dictionary_page_offset or column.data_page_offset
                start, size = min(first, column.data_page_offset), column.total_compressed_size
                left -= size
                if min(start, size, left) < 0:
                    raise ValueError("its columns do not fit into the file")
                file.seek(start)
                crc32 = zlib.crc32(file.read(size))
                chunks.append(_Chunk(group, column.path_in_schema, start, size, crc32))
        return cls(metadata, tuple(chunks))


class Shard:
    """A committed shard. Many threads may read it; no file stays open.

    Attributes:
        manifest: What it is and what its files must be.
        folder: Its folder.
    """

    def __init__(self, store: Path, number: int, plan_sha256: str) -> None:
        self.manifest = read_manifest(store, number)
        self.folder = shard_folder(store, number)
        if self.manifest.plan != plan_sha256:
            raise StoreError(
                f"{self.folder} was made under another plan than {store / PLAN}\n"
                f"it names the plan {self.manifest.plan[:12]}…, the file is {plan_sha256[:12]}…\n"
                "put back the plan.json it was made under, or delete the folder and extract again"
            )
        self._footers: dict[str, _Footer] = {}  # of tables that were checked
        self._arrays: dict[str, StoredArray] = {}

    @property
    def sides(self) -> Mapping[str, Any]:
        """Layers, heads, arrays and statistics of each side."""
        return self.manifest.traces["sides"]

    def __contains__(self, name: str) -> bool:
        """Return whether it has a file of this name."""
        return name in self.manifest.files

    @cached_property
    def _numbers(self) -> dict[str, np.ndarray]:
        """Sizes from the table of texts, and where each text's tokens and maps begin."""
        with self._opened(TEXTS) as file:
            names = [n for n in file.schema_arrow.names if n.endswith(_SIZES)]
            table = self._read(file, TEXTS, names)
        with consistent(self.folder / TEXTS):
            numbers = {name: table[name].to_numpy() for name in names}
            areas = {kind: numbers[f"{kind}_tokens"] for kind in ("source", "target")}
            for side in self.sides:
                areas[side] = numbers[f"{side}_queries"] * numbers[f"{side}_keys"]
            self._check_numbers(numbers)
        # Summing up is quicker than reading the offsets that the table has for other programs.
        return numbers | {f"{n}_offset": np.cumsum(area) - area for n, area in areas.items()}

    def _check_numbers(self, numbers: Mapping[str, np.ndarray]) -> None:
        """Raise ValueError for sizes of texts that no writer of shards makes."""
        for name, column in numbers.items():
            if column.dtype != np.int64 or len(column) != self.manifest.stop - self.manifest.start:
                raise ValueError(name)
            if column.min() < 0 or column.max() > _LONGEST:
                raise ValueError(name)

    def _opened(self, name: str) -> pq.ParquetFile:
        """A table whose file was checked once; its footer is read then and kept."""
        path, checked = self.folder / name, self._footers.get(name)
        known = None if checked is None else checked.metadata
        if known is None:
            check_content(self.folder, name, self.manifest.files[name])
        try:
            file = pq.ParquetFile(path, metadata=known, page_checksum_verification=True)
            groups = range(file.num_row_groups)
            if any(file.metadata.row_group(i).num_rows > ROWS_TOGETHER for i in groups):
                raise ValueError(f"more than {ROWS_TOGETHER:,} of its rows are stored together")
            if checked is None:
                self._footers[name] = _Footer.of(file.metadata, path)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise damaged(path, str(error).splitlines()[0][:200]) from error
        return file

    def table(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        rows: tuple[int, int] | None = None,
    ) -> pa.Table:
        """Read a table."""
        with self._opened(name) as file:
            return self._read(file, name, columns, rows)

    def row_groups(self, name: str) -> list[tuple[int, int]]:
        """First row and end of each group of rows of a table that are stored together."""
        with self._opened(name) as file:
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        return list(itertools.pairwise([0, *itertools.accumulate(sizes)]))

    def _read(
        self,
        file: pq.ParquetFile,
        name: str,
        columns: Sequence[str] | None,
        rows: tuple[int, int] | None = None,
    ) -> pa.Table:
        """Rows of an opened table."""
        try:
            if rows is None:
                self._check(name, range(file.num_row_groups), columns)
                return file.read(columns, use_threads=False)
            sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            ends = np.cumsum(sizes)
            first = int(np.searchsorted(ends, rows[0], side="right"))
            last = int(np.searchsorted(ends, max(rows[1] - 1, rows[0]), side="right"))
            groups = range(first, min(last + 1, len(sizes)))
            start = rows[0] - int(ends[first] - sizes[first])
            self._check(name, groups, columns)
            found = file.read_row_groups(list(groups), columns, use_threads=False)
            return found.slice(start, rows[1] - rows[0])
        except (OSError, LookupError, ValueError, MemoryError, pa.ArrowException) as error:
            what = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise damaged(self.folder / name, what) from error

    def _check(self, name: str, groups: Iterable[int], columns: Sequence[str] | None) -> None:
        """Compare the parts of a table that are about to be read with those that were checked."""
        with (self.folder / name).open("rb") as file:
            for chunk in self._footers[name].chunks:
                if chunk.group in groups and chunk.holds(columns):
                    file.seek(chunk.start)
                    if zlib.crc32(file.read(chunk.size)) != chunk.crc32:
                        raise ValueError("it changed while the store was open")

    def row(self, example: int) -> dict[str, int]:
        """The numbers of a text: how many tokens, where they and the maps begin."""
        place = example - self.manifest.start
        return {name: int(column[place]) for name, column in self._numbers.items()}

    def array(self, name: str) -> StoredArray:
        """An array by name, such as `encoder.weights`."""
        if name not in self._arrays:
            self._arrays[name] = StoredArray(self.folder, name, self.manifest)
        return self._arrays[name]

    def values(
        self,
        name: str,
        example: int,
        layers: Sequence[int],
        heads: Sequence[int],
        whole: Mapping[str, np.ndarray] | None = None,
    ) -> Shaped[np.ndarray, "L H *rest"]:
        """An array's part of one text; one of whole layers has no axis of heads."""
        row, (side, _, field) = self.row(example), name.partition(".")
        heads = [0] if field in OF_LAYERS else heads
        if field in OF_MAPS:
            shape = (row[f"{side}_queries"], row[f"{side}_keys"])
            start, count = row[f"{side}_offset"], shape[0] * shape[1]
        else:
            kind = rows_of(field, places(side, self._with_target))
            start, count = row[f"{kind}_offset"], row[f"{kind}_tokens"]
            shape = (count,)
        if whole is None:
            found = self.array(name).read(layers, heads, start, start + count)
        else:
            found = whole[name][:, :, start : start + count][np.ix_(layers, heads)]
        if field in OF_LAYERS:
            return found[:, 0]
        with consistent(self.folder / TEXTS):
            return found.reshape(*found.shape[:2], *shape, *found.shape[3:])

    @property
    def _with_target(self) -> bool:
        fields = self.manifest.traces["fields"]
        return "decoder_tokens" in fields or "written" in fields

    def tokens(self, example: int, columns: Sequence[str] | None = None) -> dict[str, pa.Table]:
        """A text's rows of the table of tokens, of source and target."""
        row = self.row(example)
        start = row["source_offset"] + row["target_offset"]
        source, target = row["source_tokens"], row["target_tokens"]
        found = self.table(TOKENS, columns, (start, start + source + target))
        if len(found) != source + target:
            raise damaged(self.folder / TOKENS, f"it has no {source + target} tokens of a text")
        return {"source": found.slice(0, source), "target": found.slice(source)}

    def statistic(
        self, tokens: Mapping[str, pa.Table], side: str, name: str
    ) -> Shaped[np.ndarray, "L H Q *R"]:
        """A statistic of one text."""
        facts = self.sides[side]
        kind = rows_of(name, places(side, self._with_target))
        heads = (len(facts["layers"]), len(facts["heads"]), *facts["stats"][name][1:])
        with consistent(self.folder / TOKENS):
            column = tokens[kind][f"{side}.{name}"].combine_chunks()
            values = column.flatten().to_numpy(zero_copy_only=False)
            if values.dtype.name != facts["stats"][name][0]:
                raise TypeError(name)
            return np.moveaxis(values.reshape(len(column), *heads), 0, 2)

    def metadata(self, example: int) -> Trace:
        """The trace of one text without attention: no array is read."""
        return self._metadata(self.tokens(example), self._text(example))

    def _text(self, example: int) -> dict[str, Any]:
        place = example - self.manifest.start
        with consistent(self.folder / TEXTS):
            return self.table(TEXTS, rows=(place, place + 1)).to_pylist()[0]

    def _metadata(self, tokens: Mapping[str, pa.Table], text: Mapping[str, Any]) -> Trace:
        held = self.manifest.traces["fields"]
        with consistent(self.folder / TOKENS):
            _check_rows(tokens, text, held)
            fields = {name: _beside(name, tokens, text) for name in held}
            source = tokens["source"]["token"].to_pylist()
        return Trace(tokens=[source], **fields, model=self.manifest.traces["model"])

    def trace(self, example: int, whole: Mapping[str, np.ndarray] | None = None) -> Trace:
        """The trace of one text, as it was stored, with NumPy arrays."""
        tokens, text, row = self.tokens(example), self._text(example), self.row(example)
        with consistent(self.folder / TEXTS):
            sides = {
                side: self._record(side, example, row, tokens, text, whole)
                for side in SIDES
                if side in self.sides
            }
        return dataclasses.replace(self._metadata(tokens, text), **sides)

    def _record(
        self,
        side: str,
        example: int,
        row: Mapping[str, int],
        tokens: Mapping[str, pa.Table],
        text: Mapping[str, Any],
        whole: Mapping[str, np.ndarray] | None,
    ) -> AttentionRecord:
        """The record of one side."""
        facts = self.sides[side]
        every = range(len(facts["layers"])), range(len(facts["heads"]))
        arrays: dict[str, Any] = {}
        for name in facts["arrays"]:
            array = self.values(f"{side}.{name}", example, *every, whole)
            by_position = name not in (*OF_MAPS, *OF_LAYERS)
            arrays[name] = (array.swapaxes(1, 2) if by_position else array)[:, None]
        stats: Any = {name: self.statistic(tokens, side, name)[:, None] for name in facts["stats"]}
        windows: dict[str, Any] = {
            f"{axis}_window": (start, start + row[f"{side}_{count}"])
            for axis, count in (("query", "queries"), ("key", "keys"))
            if (start := row.get(f"{side}_{axis}_start")) is not None
        }
        return AttentionRecord(
            **arrays,
            stats=stats,
            layers=tuple(facts["layers"]),
            heads=tuple(facts["heads"]),
            implementation=text[f"{side}_implementation"],
            scale=facts.get("scale"),
            sliding_windows=windows_from_json(facts.get("sliding_windows", ())),
            **windows,
        )


def _check_rows(
    tokens: Mapping[str, pa.Table], text: Mapping[str, Any], held: Sequence[str]
) -> None:
    """Raise an error for columns of tokens and texts of another type than those written."""
    for rows in tokens.values():
        for name, kind in (TOKEN_TYPES | (SPAN_TYPES if "spans" in held else {})).items():
            if rows.schema.field(name).type != kind:
                raise TypeError(name)
    for name in ("id", "text", "text_b"):
        if not isinstance(text[name], str | None):
            raise TypeError(name)


def _beside(name: str, tokens: Mapping[str, pa.Table], text: Mapping[str, Any]) -> Any:
    """A field of a trace beside its records."""
    rows = tokens["target" if name.startswith("decoder_") or name == "written" else "source"]
    match name.removeprefix("decoder_"):
        case "mask":
            return np.ones((1, len(rows)), bool)
        case "segments":
            return rows["segment"].to_numpy()[None]
        case "special":
            return rows["special"].to_numpy()[None]
        case "words":
            return [rows["word"].to_pylist()]
        case "tokens":
            return [rows["token"].to_pylist()]
        case "written":
            return [rows["written"].to_pylist()]
        case "truncated":
            return (text["truncated"],)
        case "spans":
            ends = zip(rows["start"].to_pylist(), rows["stop"].to_pylist(), strict=True)
            return [[None if start is None else (start, stop) for start, stop in ends]]
        case _:
            return [tuple(text[n] for n in ("text", "text_b") if text[n] is not None)]
