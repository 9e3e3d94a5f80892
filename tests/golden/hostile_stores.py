# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Stores that somebody made to do harm: names, links, pipes, sizes and types, with right checksums.

Each is a small store of `store_cases` and one change; a manifest is sealed again after it, since
its checksum needs no key.
"""

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import store_cases

Change = Callable[[Path, Path], object]
"""Hurts a store in place; the second path is the folder around it, with the file `victim`."""

VICTIM = b"export SECRET=1\n"
MANIFEST, TEXTS, TOKENS = (
    f"shards/00000/{name}" for name in ("manifest.json", "texts.parquet", "tokens.parquet")
)
CHUNKS = "shards/00000/maps.zarr/encoder.weights/c/0/0/0"


def build(folder: Path) -> Path:
    """A store of two shards in a folder, with a file beside it that nobody must touch."""
    (folder / "victim").write_bytes(VICTIM)
    texts = store_cases.traces("seq2seq", 3, "uint8", seed=3)
    return store_cases.write(folder / "deep/store", texts, per_shard=2)


def sealed(body: Any) -> bytes:
    """Content of a manifest whose own checksum is right."""
    text = json.dumps(body, ensure_ascii=False)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    whole = f'{{"sha256": "{digest}", "shard": {text}}}\n'
    return whole.encode("utf-8", "surrogatepass")


def manifest(store: Path) -> dict[str, Any]:
    return json.loads((store / MANIFEST).read_bytes())["shard"]


def field(*path: str | int, to: Any) -> Change:
    """Set a field of the first manifest."""

    def change(store: Path, _: Path) -> None:
        body = manifest(store)
        put(body, path, to)
        (store / MANIFEST).write_bytes(sealed(body))

    return change


def put(body: Any, path: tuple[str | int, ...], value: Any) -> None:
    for step in path[:-1]:
        body = body[step]
    body[path[-1]] = value


def plan(**fields: Any) -> Change:
    """Set fields of plan.json, and name the new plan in every manifest."""

    def change(store: Path, _: Path) -> None:
        path = store / "plan.json"
        path.write_text(json.dumps(json.loads(path.read_bytes()) | fields))
        renamed(store)

    return change


def renamed(store: Path) -> None:
    digest = hashlib.sha256((store / "plan.json").read_bytes()).hexdigest()
    for path in (store / "shards").glob("*/manifest.json"):
        body = json.loads(path.read_bytes())["shard"]
        path.write_bytes(sealed(body | {"plan": digest}))


def named(name: str, content: bytes = VICTIM) -> Change:
    """Name one more file in the manifest, with its right size and checksum."""

    def change(store: Path, around: Path) -> None:
        entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        body = manifest(store)
        body["files"][name.format(around=around)] = entry
        (store / MANIFEST).write_bytes(sealed(body))

    return change


def instead(file: str, make: Callable[[Path, Path], object]) -> Change:
    """Put something in the place of a file or folder."""

    def change(store: Path, around: Path) -> None:
        path = store / file
        if path.is_dir():
            shutil.move(path, around / "moved")
        else:
            path.unlink(missing_ok=True)
        make(path, around)

    return change


def link(target: str) -> Callable[[Path, Path], object]:
    return lambda path, around: path.symlink_to(target.format(around=around))


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def directory(path: Path, _: Path) -> None:
    path.mkdir()


def listening(path: Path, _: Path) -> None:
    before = os.getcwd()
    os.chdir(path.parent)  # the address of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def sparse(path: Path, _: Path) -> None:
    """A terabyte that takes no room."""
    with path.open("wb") as file:
        file.truncate(2**40)


def of(content: bytes | Callable[[], bytes]) -> Callable[[Path, Path], object]:
    return lambda path, _: path.write_bytes(content if isinstance(content, bytes) else content())


def resealed(file: str, edit: Callable[[bytes], bytes]) -> Change:
    """Change a file of the first shard, and seal it again."""

    def change(store: Path, _: Path) -> None:
        path = store / file
        data = edit(path.read_bytes())
        path.write_bytes(data)
        body = manifest(store)
        inside = file.removeprefix("shards/00000/")
        body["files"][inside] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, entry in body["arrays"].items():
            if inside.startswith(f"maps.zarr/{name}/c/"):
                tail = data[-16 * (len(entry["crc32"]) // 8) - 4 :]
                entry["index"] = hashlib.sha256(tail).hexdigest()
        (store / MANIFEST).write_bytes(sealed(body))

    return change


def table(file: str, edit: Callable[[pa.Table], pa.Table]) -> Change:
    """Change a table of the first shard, and seal it again."""

    def edited(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        pq.write_table(edit(pq.read_table(pa.BufferReader(data))), sink)
        return sink.getvalue().to_pybytes()

    return resealed(file, edited)


def column(name: str, values: Callable[[int], Any]) -> Callable[[pa.Table], pa.Table]:
    def edit(whole: pa.Table) -> pa.Table:
        place = whole.column_names.index(name)
        return whole.set_column(place, name, pa.array(values(len(whole))))

    return edit


def offsets(data: bytes, *pair: int) -> bytes:
    """A file of chunks whose first chunk lies elsewhere."""
    start = len(data) - 16 * 4 - 4
    return data[:start] + b"".join(n.to_bytes(8, "little") for n in pair) + data[start + 16 :]


def many_rows() -> bytes:
    """A few kilobytes of Parquet with very many equal rows."""
    sink = pa.BufferOutputStream()
    ones = pa.DictionaryArray.from_arrays(pa.array([0] * 5_000_000, pa.int32()), ["x" * 1000])
    pq.write_table(pa.table({"token": ones}), sink, row_group_size=5_000_000, compression="zstd")
    return sink.getvalue().to_pybytes()


_WEIGHTS = ("arrays", "encoder.weights")
_SIDE = ("traces", "sides", "encoder")
_SPAN = [{"start": 0, "stop": 10**18}]
NAMES = {
    "above the store": "../../../../victim",
    "through the store": "maps.zarr/../../../../../victim",
    "absolute": "{around}/victim",
    "device": "/dev/zero",
    "empty": "",
    "dot": ".",
    "zero byte": "a\0b",
    "backslash": "..\\..\\victim",
    "new line": "a\nb\nc\nd\x1b[31m",
    "long": "x" * 4000,
    "no character": "\ud800",
    "manifest": "manifest.json",
}
OBJECTS = {
    "link outside": link("{around}/victim"),
    "link to a device": link("/dev/zero"),
    "pipe": pipe,
    "socket": listening,
    "folder": directory,
    "terabyte": sparse,
    "nothing": of(b""),
}
PLACES = {"table": TEXTS, "chunks": CHUNKS, "manifest": MANIFEST, "plan": "plan.json"}
JSON = {
    "no UTF-8": b'{"\xff\xfe": 1}',
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "half": b'{"sha256": "',
    "list": b"[]",
    "number": b"1e999",
    "NaN": b'{"shards": [NaN], "texts": NaN, "shard": NaN}',
    "digits": b'{"texts": ' + b"9" * 10_000 + b"}",
    "many values": lambda: b'{"shards": [' + b"[]," * 20_000_000 + b"[]]}",
}
STORES: dict[str, Change] = {
    **{f"name: {what}": named(name) for what, name in NAMES.items()},
    **{
        f"{what} in place of {where}": instead(file, make)
        for what, make in OBJECTS.items()
        for where, file in PLACES.items()
    },
    "link in place of a shard": instead("shards/00000", link("{around}/moved")),
    "link in place of all shards": instead("shards", link("{around}/moved")),
    "link in place of arrays": instead("shards/00000/maps.zarr", link("{around}/moved")),
    "file in place of a shard": instead("shards/00000", of(b"x")),
    "errors are a pipe": lambda store, _: os.mkfifo(store / "errors.jsonl"),
    "errors link outside": lambda store, around: (store / "errors.jsonl").symlink_to(
        around / "victim"
    ),
    "seal is a device": lambda store, _: (store / "plan.sha256").symlink_to("/dev/zero"),
    "folder among the shards": lambda store, _: (store / "shards/0").mkdir(),
    "link inside a shard": lambda store, around: (store / "shards/00000/x").symlink_to(around),
    **{f"manifest: {what}": instead(MANIFEST, of(data)) for what, data in JSON.items()},
    **{f"plan: {what}": instead("plan.json", of(data)) for what, data in JSON.items()},
    "plan of 10^18 texts": plan(texts=10**18, shards=_SPAN),
    "plan and shard of 10^18 texts": lambda store, around: (
        field("stop", to=10**18)(store, around),
        shutil.rmtree(store / "shards/00001"),
        plan(texts=10**18, shards=_SPAN)(store, around),
    ),
    "plan of 10^400 texts": plan(texts=10**400, shards=[{"start": 0, "stop": 10**400}]),
    "plan of fewer than no texts": plan(texts=-5, shards=[{"start": 0, "stop": -5}]),
    "plan with a model of no name": plan(model={"name": ["\x1b[31m"]}),
    "plan with files of numbers": plan(files=[{"name": 5}]),
    "shape of 10^12": field(*_WEIGHTS, "shape", 2, to=10**12),
    "shape of 10^30": field(*_WEIGHTS, "shape", 2, to=10**30),
    "negative shape": field(*_WEIGHTS, "shape", 2, to=-4),
    "shape that is not a number": field(*_WEIGHTS, "shape", 2, to=float("nan")),
    "shape of other heads": field(*_WEIGHTS, "shape", 1, to=200),
    "chunk of 10^9": field(*_WEIGHTS, "chunk", to=[1, 1, 10**9]),
    "array of objects": field(*_WEIGHTS, "dtype", to="object"),
    "checksums of nothing": field(*_WEIGHTS, "crc32", to=""),
    "array of no name": field("arrays", "../x.weights", to={}),
    "negative size": field("files", "texts.parquet", "size", to=-1),
    "enormous size": field("files", "texts.parquet", "size", to=2**62 - 1),
    "statistic of 10^9 values": field(*_SIDE, "stats", "entropy", to=["float32", 10**9]),
    "scale that is not a number": field(*_SIDE, "scale", to=float("nan")),
    "layer twice": field(*_SIDE, "layers", to=[3, 3]),
    "side of no name": field("traces", "sides", "\x1b[31m", to={}),
    "field of no name": field("traces", "fields", 0, to="__class__"),
    "texts without columns": table(TEXTS, lambda t: t.select(["example"])),
    "texts with names for numbers": table(TEXTS, column("source_tokens", lambda n: ["x"] * n)),
    "texts with negative numbers": table(TEXTS, column("encoder_queries", lambda n: [-(2**9)] * n)),
    "texts with enormous numbers": table(TEXTS, column("encoder_keys", lambda n: [2**60] * n)),
    "texts longer than the maps": table(TEXTS, column("encoder_keys", lambda n: [2**20] * n)),
    "no texts": table(TEXTS, lambda t: t.slice(0, 0)),
    "no tokens": table(TOKENS, lambda t: t.slice(0, 0)),
    "tokens that are numbers": table(TOKENS, column("token", lambda n: list(range(n)))),
    "tokens without statistics": table(TOKENS, lambda t: t.drop(["encoder.entropy"])),
    "statistics of one number": table(TOKENS, column("encoder.entropy", lambda n: [0.5] * n)),
    "tokens without end": resealed(TOKENS, lambda _: many_rows()),
    "table of nothing": resealed(TEXTS, lambda _: b""),
    "table of anything": resealed(TEXTS, lambda _: b"PAR1" * 100),
    "chunk of all memory": resealed(CHUNKS, lambda data: offsets(data, 0, 2**62)),
    "chunk before the file": resealed(CHUNKS, lambda data: offsets(data, 2**64 - 8, 8)),
    "chunk that is not a zstd": resealed(CHUNKS, lambda data: b"\0" * 16 + data[16:]),
}


def paths(body: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every field of a JSON value."""
    items = body.items() if isinstance(body, dict) else enumerate(body)
    for name, value in items:
        yield (*path, name)
        if isinstance(value, dict | list):
            yield from paths(value, (*path, name))


WRONG = (None, [], {}, "x", -1, 1.5, True, float("nan"), 10**400, [[[]]], {"": None}, 2**62 - 1)
"""Values that most fields cannot have."""
