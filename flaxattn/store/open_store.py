# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reading a store of attention: any example, layer and head without reading the rest.

The store is a folder of shards that are whole or absent; only committed ones are seen, also while
others are being written. `flaxattn.store.shard` reads a shard. Texts are found by their words or
their id: tables are read a group of rows at a time, and no further than what was requested.
"""

import bisect
import functools
import hashlib
import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Int, Shaped

from flaxattn.corpus.bad_rows import Problem
from flaxattn.errors import InputError, StoreError, UnavailableError, check_arguments
from flaxattn.pipeline.online_moments import summed
from flaxattn.store.seals import consistent, damaged, parse_json, small_file
from flaxattn.store.shard import Shard
from flaxattn.store.shard_tables import lengths
from flaxattn.store.store_layout import (
    HEADS,
    MANIFEST,
    OF_LAYERS,
    OF_MAPS,
    PLAN,
    REDUCTIONS,
    SHARD_TEXTS,
    SHARDS,
    TEXTS,
    TOKENS,
    TokenSides,
    places,
    rows_of,
    shard_folder,
    shard_name,
    shard_numbers,
)
from flaxattn.trace.record import FIELDS, SIDES, AttentionRecord
from flaxattn.trace.trace import Trace

_OPEN = 128  # shards whose manifests and offsets are kept in memory
_TABLES = {"texts": TEXTS, "tokens": TOKENS, "heads": HEADS}

Numbers = int | Sequence[int] | None


@check_arguments()
def open_store(path: str | Path) -> "Store":
    """Open a store that `flaxattn extract` wrote, or is writing.

    >>> from pathlib import Path
    >>> import flaxattn as fa
    >>> _ = Path("corpus.txt").write_text("The cat is very sad.", encoding="utf-8")
    >>> report = fa.extract_to("STORE", fa.from_pretrained("tiny-bert"), "corpus.txt")
    >>> store = fa.open_store("STORE")
    >>> len(store), store[0].tokens[0][:3]
    (1, ['[CLS]', 'the', 'cat'])

    Args:
        path: Its folder.

    Returns:
        The store. Cost: plan.json is read and shards are listed; nothing else is opened.

    Raises:
        StoreError: If there is no store, or its plan is damaged.
    """
    return Store(Path(path))


class Store:
    """Attention of a corpus, on disk. Safe to read from many threads; no file stays open.

    Attributes:
        path: Its folder.
        plan: What was to be extracted, as plan.json says.
        plan_sha256: Digest of that file; every shard names it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan, self.plan_sha256 = read_plan(path)
        self._starts = [shard["start"] for shard in self.plan["shards"]]
        self._spans: dict[int, range] = {}  # texts of shards whose manifests were read
        self._shard = functools.lru_cache(_OPEN)(self._open_shard)

    def __repr__(self) -> str:
        model = self.plan["model"]["name"]
        return f"Store({str(self.path)!r}: {self.plan['texts']:,} texts of {model!r})"

    def __len__(self) -> int:
        """Texts of the shards that are there, and rows of the others.

        Reads a manifest of each shard, once.
        """
        return sum(map(len, self._ranges()))

    def _ranges(self) -> list[range]:
        """Numbers of the texts of each shard of the plan; of those not there yet, of the rows."""
        self.spans()
        planned = (range(shard["start"], shard["stop"]) for shard in self.plan["shards"])
        return [self._spans.get(number, rows) for number, rows in enumerate(planned)]

    @property
    def shards(self) -> list[int]:
        """Numbers of the shards that are there, read from the disk at every call."""
        folder = self.path / SHARDS
        found = shard_numbers([p.name for p in folder.iterdir()]) if folder.is_dir() else []
        return [number for number in found if number < len(self._starts)]

    @property
    def missing(self) -> list[int]:
        """Numbers of the shards that are not there yet."""
        return sorted({*range(len(self._starts))} - {*self.shards})

    @property
    def complete(self) -> bool:
        """Return whether every shard of the plan is there."""
        return not self.missing

    @property
    def examples(self) -> list[int]:
        """Numbers of the texts whose shards are there.

        Where rows were left out, the last numbers of their shard belong to no text.
        """
        return [example for span in self.spans() for example in span]

    def spans(self) -> list[range]:
        """Numbers of the texts of each shard that is there.

        Reads a manifest of each shard, once.
        """
        for number in (shards := self.shards):
            if number not in self._spans:
                manifest = self.shard(number).manifest
                self._spans[number] = range(manifest.start, manifest.stop)
        return [self._spans[number] for number in shards]

    def first_shard(self) -> Shard | None:
        """The first shard that is there and has texts; None if there is none."""
        shards = (self.shard(number) for number in self.shards)
        return next((s for s in shards if s.manifest.stop > s.manifest.start), None)

    def shard(self, number: int) -> Shard:
        """A shard, opened for reading; kept for the next time.

        Args:
            number: From 0.

        Raises:
            StoreError: If it is not there yet, damaged, or of another plan.
        """
        return self._shard(number)

    def _open_shard(self, number: int) -> Shard:
        span = self.plan["shards"][number]
        examples = f"examples {span['start']} to {span['stop'] - 1}"
        if not shard_folder(self.path, number).is_dir():
            raise StoreError(
                f"{self.path} does not hold shard {shard_name(number)} yet, with {examples}\n"
                f"{len(self.shards)} of its {len(self._starts)} shards are there\n"
                "run the same `flaxattn extract` again; it makes what is missing"
            )
        shard = Shard(self.path, number, self.plan_sha256)
        if shard.manifest.start != span["start"] or shard.manifest.stop > span["stop"]:
            raise damaged(shard.folder / MANIFEST, f"the plan says that the shard has {examples}")
        return shard

    def shard_of(self, example: int) -> tuple[int, Shard]:
        """An example's number from the start, and its shard, opened for reading.

        Args:
            example: The text; negative counts from the end.

        Raises:
            InputError: If there is no such example.
            StoreError: If the shard is not there yet, or damaged.
        """
        rows = self.plan["texts"]
        if not isinstance(example, int | np.integer):
            raise InputError(
                f"expected the number of a text, received {type(example).__name__}: "
                f"{example!r:.60}\n"
                f"{self.path} has the numbers 0 to {rows - 1}; ids are in its table of texts"
            )
        numbers = range(rows)
        if example < 0:
            numbers = [number for span in self._ranges() for number in span]
        if not -len(numbers) <= example < len(numbers):
            raise InputError(f"{self.path} has examples 0 to {rows - 1}; there is no {example}")
        example = numbers[example]
        shard = self._shard(bisect.bisect_right(self._starts, example) - 1)
        if example >= shard.manifest.stop:
            raise InputError(
                f"{self.path} has no example {example}: rows of its shard were left out\n"
                f"the shard has {shard.manifest.stop - shard.manifest.start} texts of "
                f"{shard.manifest.counts['rows']} rows, from number {shard.manifest.start} on\n"
                "`examples` of the store lists the numbers of all texts"
            )
        return example, shard

    def weights(
        self,
        example: int,
        layer: Numbers = None,
        head: Numbers = None,
        *,
        side: str | None = None,
        raw: bool = False,
    ) -> Shaped[np.ndarray, "*heads Q K"]:
        """Attention weights of one text.

        Args:
            example: The text; negative counts from the end.
            layer: Number of a layer, or several; all that were captured when None.
            head: Number of a head, or several.
            side: `encoder`, `decoder` or `cross`; default the first of these that is there.
            raw: Whether to return the values as stored; uint8 holds round(255 p).

        Returns:
            float32 `[L, H, Q, K]` of real positions, without the axis of a single layer or head.
            Cost: one chunk of 16,384 values for each layer and head, more for longer texts.

        Raises:
            StoreError: If the shard is not there yet, or something read is damaged.
            InputError: If there is no such example, or it was not captured.
        """
        _, shard = self.shard_of(example)
        side = side or next((s for s in SIDES if s in shard.sides), SIDES[0])
        return self.array(f"{side}.weights", example, layer, head, raw=raw)

    def array(
        self,
        name: str,
        example: int,
        layer: Numbers = None,
        head: Numbers = None,
        *,
        raw: bool = False,
    ) -> Shaped[np.ndarray, "..."]:
        """Anything that was captured of one text.

        Args:
            name: Such as `cross.scores`, `encoder.query` or `decoder.entropy`.
            example: As for `weights`, like what is not described here.
            layer: Number of a layer, or several.
            head: Number of a head, or several.
            raw: Whether to return values as stored rather than as float32.

        Returns:
            `[L, H, Q, K]` of weights and scores, `[L, H, positions, D]` of query, key, value and
            head_output, `[L, positions, E]` of hidden, `[L, H, Q]` or `[L, H, Q, R]` of statistics,
            which keep their dtype.

        Raises:
            StoreError: As for `weights`.
        """
        example, shard = self.shard_of(example)
        side, _, field = name.partition(".")
        facts = shard.sides.get(side, {"arrays": {}, "stats": {}, "layers": [], "heads": []})
        layers = _indices(layer, facts["layers"], "layer", name)
        if field in OF_LAYERS and head is not None:
            raise InputError(f"{name} is of whole layers, not of heads\nleave head={head} out")
        heads = _indices(head, facts["heads"], "head", name)
        if field in facts["stats"]:
            found = shard.statistic(shard.tokens(example, [name]), side, field)
            found = found[np.ix_(layers, heads)]
        elif field in facts["arrays"]:
            found = shard.values(name, example, layers, heads)
            if not raw:
                found = as_float32(found, field)
        else:
            held = [f"{s}.{n}" for s, t in shard.sides.items() for n in (*t["arrays"], *t["stats"])]
            raise InputError(f"{self.path} holds no {name}\nit holds {', '.join(held)}")
        axes = tuple(
            i
            for i, requested in enumerate((layer, head))
            if requested is not None and not np.ndim(requested)
        )
        return found.squeeze(axes)

    def __getitem__(self, example: int) -> Trace:
        """The trace of one text, with NumPy arrays as they are stored.

        Raises:
            StoreError: As for `weights`, like InputError.
        """
        example, shard = self.shard_of(example)
        return shard.trace(example)

    def __iter__(self) -> Iterator[Trace]:
        """The traces of all texts in order, each array of a shard read once.

        Memory: the arrays of one shard, uncompressed.

        Raises:
            StoreError: Before the first text if a shard is not there yet.
        """
        for number in self.missing[:1]:
            self.shard(number)
        return self._traces()

    def _traces(self) -> Iterator[Trace]:
        for number in range(len(self._starts)):
            shard = self.shard(number)
            whole = {name: shard.array(name).whole() for name in shard.manifest.arrays}
            for example in range(shard.manifest.start, shard.manifest.stop):
                yield shard.trace(example, whole)

    def stats(self) -> pa.Table:
        """Mean of each statistic per text, side, layer and head, over the text's real queries.

        Returns:
            The rows of every shard that is there; `complete` says whether these are all. Token by
            token statistics: `array("encoder.entropy", example)`, or `batches("tokens")`.

        Raises:
            InputError: If no statistic was captured.
            StoreError: If something is damaged.
        """
        shards = [self.shard(number) for number in self.shards]
        tables = [shard.table(HEADS) for shard in shards if HEADS in shard]
        if not tables:
            raise InputError(
                f"{self.path} holds no statistics {'yet' if not shards else 'of heads'}\n"
                "extract again with statistics, such as entropy and distance"
            )
        with consistent(self.path / SHARDS):
            return pa.concat_tables(tables, promote_options="default")

    def batches(self, table: str = "tokens") -> Iterator[pa.RecordBatch]:
        """Rows of a table, shard by shard.

        Args:
            table: `texts`, `tokens` or `heads`.

        Yields:
            Batches of the shards that are there, in order.

        Raises:
            InputError: If there is no such table.
            StoreError: If something is damaged.
        """
        if table not in _TABLES:
            raise InputError(f"a store has no table {table!r}\nit has {', '.join(_TABLES)}")
        for number in self.shards:
            shard = self.shard(number)
            if _TABLES[table] in shard:
                yield from shard.table(_TABLES[table]).to_batches()

    def reductions(self) -> pa.Table:
        """Moments over the corpus, merged over the shards that are there.

        Returns:
            Rows of side, statistic, layer, head, offset, count, mean and m2, the sum of squared
            differences from the mean.

        Raises:
            InputError: If nothing was summed up.
            StoreError: If something is damaged.
        """
        shards = [self.shard(number) for number in self.shards]
        tables = [shard.table(REDUCTIONS) for shard in shards if REDUCTIONS in shard]
        if not tables:
            raise InputError(
                f"{self.path} holds no reductions\nextract again with reductions, such as offsets"
            )
        with consistent(self.path / SHARDS):
            return summed(pa.concat_tables(tables))

    def to_xarray(self, example: int) -> Any:
        """One text as an xarray Dataset, with layers, heads and tokens as coordinates.

        Args:
            example: The text.

        Raises:
            ImportError: If xarray is not installed.
            StoreError: As for `weights`.
        """
        return as_xarray(self[example])


def read_plan(path: Path) -> tuple[dict[str, Any], str]:
    """The plan of a store, and the sha256 of its file."""
    try:
        data = small_file(path, PLAN)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(
            f"{path} is not a store of attention: {PLAN} cannot be read ({reason})\n"
            "name a folder that `flaxattn extract` wrote"
        ) from error
    try:
        plan = parse_json(data)
        _check_plan(plan)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error).splitlines()[0][:200] if type(error) is ValueError else "not a plan"
        raise StoreError(
            f"{path / PLAN} is damaged: {reason}\n"
            "put back a copy: another machine's folder of the same job has it"
        ) from error
    return plan, hashlib.sha256(data).hexdigest()


def _check_plan(plan: Any) -> None:
    """Raise ValueError, KeyError, TypeError or AttributeError for what is not a plan."""
    starts = [shard["start"] for shard in plan["shards"]]
    stops = [shard["stop"] for shard in plan["shards"]]
    whole = all(type(number) is int for number in (*starts, *stops, plan["texts"]))
    edges = [0, *stops]
    if not whole or edges != [*starts, plan["texts"]] or sorted(edges) != edges:
        raise ValueError("its shards do not cover its texts")
    if any(stop - start > SHARD_TEXTS for start, stop in zip(starts, stops, strict=True)):
        raise ValueError(f"a shard of it has more than {SHARD_TEXTS:,} texts")
    model, files = plan.get("model", ""), plan.get("files", [])
    for name in (model if isinstance(model, str) else model["name"], *(f["name"] for f in files)):
        if not isinstance(name, str):
            raise ValueError(f"it has a name that is {name!r:.80}")
    for problem in plan.get("problems", []):
        Problem(**problem)
    for field in ("capture", "settings"):
        if not isinstance(plan.get(field, {}), dict):
            raise ValueError(f"its field {field} cannot be {plan[field]!r:.80}")


def _indices(numbers: Numbers, known: Sequence[int], what: str, name: str) -> list[int]:
    """Places of the numbers requested."""
    wanted = known if numbers is None else np.atleast_1d(numbers).tolist()
    if missing := [number for number in wanted if number not in known]:
        raise InputError(
            f"{name} of {what} {missing[0]} was not captured\n"
            f"there are {what}s {', '.join(map(str, known)) or 'of other sides only'}"
        )
    return [known.index(number) for number in wanted]


def as_float32(values: np.ndarray, field: str) -> np.ndarray:
    """Values as float32; weights of uint8 as shares between 0 and 1."""
    scale = np.float32(255) if values.dtype == np.uint8 and field in OF_MAPS else None
    whole = values.astype(np.float32)
    return whole if scale is None else whole / scale


def as_xarray(trace: Trace) -> Any:
    """All arrays and statistics of a text, named `encoder.weights`, `encoder.entropy`, …."""
    try:
        xarray = importlib.import_module("xarray")
    except ImportError as error:
        raise UnavailableError(
            "to_xarray needs the package xarray, which is not installed\npip install xarray"
        ) from error
    size, found, labels = lengths(trace), {}, {}
    tokens = {"source": trace.tokens, "target": trace.decoder_tokens or trace.written}
    for kind, count in size.items():
        for dimension in (kind, f"{kind}_key"):
            labels[dimension] = np.arange(count)
            labels[f"{kind}_token"] = (kind, list(tokens[kind][0]))
    for side, record in trace.sides.items():
        where = places(side, "target" in size)
        labels |= {f"{side}_layer": list(record.layers), f"{side}_head": list(record.heads)}
        found |= _variables(side, record, where, labels)
    return xarray.Dataset(found, coords=labels)


def _variables(
    side: str, record: AttentionRecord, where: TokenSides, labels: dict[str, Any]
) -> dict[str, tuple[Any, ...]]:
    """Dimensions and values of each array of a side."""
    heads, found = [f"{side}_layer", f"{side}_head"], {}
    rows, columns = where.queries, f"{where.keys}_key"
    for axis, window in ((0, record.query_window), (1, record.key_window)):
        if window is not None:  # its maps have positions of their own
            name = f"{side}_{('query', 'key')[axis]}"
            labels[name] = np.arange(*window)
            rows, columns = (name, columns) if axis == 0 else (rows, name)
    for name in FIELDS:
        if (array := getattr(record, name)) is None:
            continue
        if name in OF_MAPS:
            found[f"{side}.{name}"] = ([*heads, rows, columns], np.asarray(array)[:, 0])
        elif name in OF_LAYERS:
            dimensions = [heads[0], rows_of(name, where), f"{side}_{name}_width"]
            found[f"{side}.{name}"] = (dimensions, np.asarray(array)[:, 0])
        else:
            dimensions = [*heads, rows_of(name, where), f"{side}_{name}_depth"]
            found[f"{side}.{name}"] = (dimensions, np.asarray(array)[:, 0].swapaxes(1, 2))
    for name, array in record.stats.items():
        rank = [f"{side}_rank"] if array.ndim == 5 else []
        dimensions = [*heads, rows_of(name, where), *rank]
        found[f"{side}.{name}"] = (dimensions, np.asarray(array)[:, 0])
    return found


_COLUMNS = ["example", "id", "text", "text_b", "source_tokens", "target_tokens"]
_SEARCHED = ["id", "text", "text_b"]
_NEAR = 32  # rows that may lie between two that are read together

Watch = Callable[[float], object]
"""Receives the finished share of the work, from 0 to 1."""


class StoredText(NamedTuple):
    """A text of a store.

    Attributes:
        example: Its number.
        id: Its name in the corpus.
        text: Itself; None if it was not kept.
        text_b: The second text of a pair, or a target.
        tokens: Number of tokens of source and target together.
    """

    example: int
    id: str
    text: str | None
    text_b: str | None
    tokens: int


class ExampleNumbers(Sequence[int]):
    """Numbers of the texts whose shards are there, in order, without a list of them.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._spans = store.spans()
        self._ends = list(itertools.accumulate(map(len, self._spans)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        place %= len(self)
        span = bisect.bisect_right(self._ends, place)
        return self._spans[span][place - (self._ends[span - 1] if span else 0)]

    def index(self, value: int, start: int = 0, stop: int | None = None) -> int:
        """Place of a text among those that are there."""
        for span, end in zip(self._spans, self._ends, strict=True):
            if value in span:
                place = end - span.stop + value
                if place in range(*slice(start, stop).indices(len(self))):
                    return place
        raise ValueError(value)


def read_texts(store: Store, examples: Sequence[int]) -> list[StoredText]:
    """Texts by their numbers.

    Reads the groups of rows that the texts are in.
    """
    found: dict[int, StoredText] = {}
    wanted = sorted(set(examples))
    while wanted:
        _, shard = store.shard_of(wanted[0])
        stop = 1
        while (
            stop < len(wanted)
            and wanted[stop] < shard.manifest.stop
            and wanted[stop] - wanted[stop - 1] <= _NEAR
        ):
            stop += 1
        start = shard.manifest.start
        rows = (wanted[0] - start, wanted[stop - 1] + 1 - start)
        table = shard.table(TEXTS, _COLUMNS, rows)
        table = table.take([example - wanted[0] for example in wanted[:stop]])
        for example, row in zip(wanted, table.to_pylist(), strict=False):
            tokens = row.pop("source_tokens") + row.pop("target_tokens")
            found[example] = StoredText(**row, tokens=tokens)
        wanted = wanted[stop:]
    return [found[example] for example in examples]


def search_texts(
    store: Store, words: str, count: int, watch: Watch | None = None
) -> Int[np.ndarray, "N"]:
    """Numbers of the texts that contain some words, in the order of the corpus.

    Reads the tables of texts up to the last one found, a group of rows at a time.
    """
    parts: list[np.ndarray] = []
    total = 0
    for shard, start, table in row_groups(store, TEXTS, _SEARCHED, watch):
        found = np.flatnonzero(_contain(table, words)) + shard.manifest.start + start
        parts.append(found[: count - total])
        total += len(parts[-1])
        if total >= count:
            break
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def texts_with(shard: Shard, words: str) -> Bool[np.ndarray, "N"]:
    """Mask of the texts of a shard that contain some words."""
    groups = shard.row_groups(TEXTS)
    return np.concatenate([_contain(shard.table(TEXTS, _SEARCHED, g), words) for g in groups])


def row_groups(
    store: Store, name: str, columns: Sequence[str] | None, watch: Watch | None = None
) -> Iterator[tuple[Shard, int, pa.Table]]:
    """Rows of a table of all shards that are there and have it, one group at a time."""
    shards = store.shards
    for done, number in enumerate(shards):
        shard = store.shard(number)
        groups = shard.row_groups(name) if name in shard else []
        for place, group in enumerate(groups):
            yield shard, group[0], shard.table(name, columns, group)
            if watch is not None:
                watch((done + (place + 1) / len(groups)) / len(shards))


def example_of(store: Store, name: str) -> int:
    """Number of the text of a name.

    Reads the ids of the corpus up to it.
    """
    for shard, start, table in row_groups(store, TEXTS, ["id"]):
        if (place := pc.index(table["id"], name).as_py()) >= 0:
            return shard.manifest.start + start + place
    some = ", ".join(repr(text.id) for text in read_texts(store, ExampleNumbers(store)[:3]))
    raise InputError(
        f"No text of {store.path} has the id {name!r}.\n"
        f"Its first ids are {some or 'not there yet'}."
    )


def _contain(table: pa.Table, words: str) -> Bool[np.ndarray, "N"]:
    """Mask of the rows that contain the search words."""
    contains = pc.MatchSubstringOptions(words, ignore_case=True)
    found = np.zeros(len(table), bool)
    for name in _SEARCHED:
        own = pc.fill_null(pc.call_function("match_substring", [table[name]], contains), False)
        found |= own.to_numpy(zero_copy_only=False) if isinstance(own, pa.Array) else own.to_numpy()
    return found
