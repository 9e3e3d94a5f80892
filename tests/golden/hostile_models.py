# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Model directories and tables that somebody else made in order to do harm; each is made on demand.

A directory begins as a copy of a small BERT that another program wrote, without checksums of ours.
A model must be refused when it is loaded or reads a text; of a table any part may be read.
"""

import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
TEXT = "a" * 40 + "b!"  # what a model that loads is given to read
Spoil = Callable[[Path], Any]
MANY, LINES = 10**6, "a\nb\nc\nd\ne"
EMPTY = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'


def foreign(folder: Path) -> None:
    """Take the checksums away."""
    path = folder / WEIGHTS
    safetensors.numpy.save_file(safetensors.numpy.load_file(path), path, {"format": "pt"})


def config(**changes: Any) -> Spoil:
    return lambda folder: edit(folder / "config.json", changes)


def edit(path: Path, changes: Mapping[str, Any]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def content(name: str, data: str | bytes) -> Spoil:
    data = data.encode() if isinstance(data, str) else data
    return lambda folder: (folder / name).write_bytes(data)


def tokenizer(**changes: Any) -> Spoil:
    return lambda folder: edit(folder / "tokenizer.json", changes)


def splitter(pattern: str) -> Spoil:
    split = {"type": "Split", "pattern": {"Regex": pattern}}
    return tokenizer(pre_tokenizer={**split, "behavior": "Isolated", "invert": False})


def only_vocabulary(lines: list[str]) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / "tokenizer.json").unlink()
        (folder / "vocab.txt").write_text("\n".join(lines))

    return spoil


def tensors(change: Callable[[dict[str, np.ndarray]], Any]) -> Spoil:
    def spoil(folder: Path) -> None:
        held = dict(safetensors.numpy.load_file(folder / WEIGHTS))
        change(held)
        safetensors.numpy.save_file(held, folder / WEIGHTS, {"format": "pt"})

    return spoil


def indexed(*files: str) -> Spoil:
    """An index that places all tensors in other files."""

    def spoil(folder: Path) -> None:
        names = list(safetensors.numpy.load_file(folder / WEIGHTS))
        (folder / WEIGHTS).rename(folder / "part")
        placed = {name: files[number % len(files)] for number, name in enumerate(names)}
        (folder / INDEX).write_text(json.dumps({"weight_map": placed}))

    return spoil


def sealed(name: str) -> Spoil:
    """A header that says which other files belong to the tensors."""

    def spoil(folder: Path) -> None:
        path = folder / WEIGHTS
        facts = {"format": "pt", "flaxattn.files": json.dumps({name: "0" * 64})}
        safetensors.numpy.save_file(safetensors.numpy.load_file(path), path, facts)

    return spoil


def special(name: str, make: Callable[[Path], Any]) -> Spoil:
    """Something that is not a file in the place of one."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return spoil


def header(text: str, size: int = 0) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode() + b"\0" * size


MODELS: dict[str, Spoil] = {
    # Sizes
    "labels below zero": config(num_labels=-1, id2label=None),
    "a billion labels": config(num_labels=10**9, id2label=None),
    "no heads": config(num_attention_heads=0),
    "a fraction for a width": config(hidden_size=16.0),
    "a vocabulary of 1e12": config(vocab_size=1e12),
    "a vocabulary of 10**12": config(vocab_size=10**12),
    "a billion layers": config(num_hidden_layers=10**9),
    "a billion layers of which one is pruned": config(
        num_hidden_layers=10**9, pruned_heads={"0": [1]}
    ),
    "a million layers of which one is pruned": config(
        num_hidden_layers=MANY, pruned_heads={"0": [1]}
    ),
    "a million layers": config(num_hidden_layers=MANY),
    "the largest width": config(hidden_size=2**31 - 1, num_attention_heads=1),
    "the largest width of all": config(
        hidden_size=2**31 - 1, intermediate_size=2**31 - 1, vocab_size=2**31 - 1
    ),
    "the longest text": config(max_position_embeddings=2**31 - 1),
    "a negative width": config(intermediate_size=-5),
    "no segments": config(type_vocab_size=0),
    "a million pruned heads": config(pruned_heads={"0": list(range(MANY))}),
    "a pruned head that is a word": config(pruned_heads={"0": ["a"]}),
    "a pruned layer far away": config(pruned_heads={str(10**18): [0]}),
    # Other words of config.json
    "classes in a list": config(id2label=["a"]),
    "an architecture that is a number": config(architectures=5),
    "a kind of many lines": config(model_type=LINES * 1000),
    "an activation that is a list": config(hidden_act=[LINES]),
    "nested": content("config.json", "[" * 100_000),
    "nested objects": content("config.json", '{"a":' * 100_000),
    "an endless number": content("config.json", '{"vocab_size": ' + "9" * 100_000 + "}"),
    "not text": content("config.json", b"\xff\xfe\0{"),
    "a pipe for a config": special("config.json", os.mkfifo),
    "a device for a config": special("config.json", lambda path: path.symlink_to("/dev/zero")),
    # Tensors
    "a pipe for weights": special(WEIGHTS, os.mkfifo),
    "a device for weights": special(WEIGHTS, lambda path: path.symlink_to("/dev/zero")),
    "an index that leads outside": indexed("../outside/secret"),
    "an index of an absolute name": indexed("/etc/passwd"),
    "an index of a device": indexed("/dev/zero"),
    "an index of a pipe": lambda folder: (os.mkfifo(folder / "pipe"), indexed("pipe")(folder)),
    "an index of itself": indexed(INDEX),
    "a link that leads outside": lambda folder: (
        (folder / "link").symlink_to("../outside/secret"),
        indexed("part", "link")(folder),
    ),
    "a checksum of a file outside": sealed("../outside/secret"),
    "a checksum of a device": sealed("/dev/zero"),
    "a checksum of a name of many letters": sealed("x" * 100_000),
    "names of many lines": tensors(lambda held: held.update({LINES: held.popitem()[1]})),
    "only a name of many lines": content(
        WEIGHTS, safetensors.numpy.save({LINES * 50: np.ones(2, np.float32)})
    ),
    "many tensors in a header": content(
        WEIGHTS,
        header("{" + ",".join(f'"{n}":{EMPTY}' for n in range(99_999)) + "}"),
    ),
    "a shape beyond memory": content(
        WEIGHTS, header('{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}}')
    ),
    "other tensors": tensors(lambda held: (held.clear(), held.update(a=np.ones(3, np.float32)))),
    # Tokenizers
    "an expression that does not end": splitter("^(a|a)*$|b"),
    "an expression that is cut": splitter("(" * 3),
    "an expression of many brackets": splitter("(" * 5000 + ")" * 5000),
    "a nested tokenizer": content("tokenizer.json", '{"model":' * 100_000),
    "a tokenizer of nothing": content("tokenizer.json", "{}"),
    "a vocabulary of too many lines": only_vocabulary([f"w{n}" for n in range(200_000)]),
    "a vocabulary without its marks": only_vocabulary(["a", "b"]),
    "settings in a list": content("tokenizer_config.json", "[1]"),
    "a limit that is a word": content("tokenizer_config.json", '{"model_max_length": "many"}'),
    "a limit below zero": content("tokenizer_config.json", '{"model_max_length": -5}'),
    "a limit that is not a number": content("tokenizer_config.json", '{"model_max_length": NaN}'),
    "a mark that is a number": content("tokenizer_config.json", '{"pad_token": 5}'),
    "a mark that is a list": content("tokenizer_config.json", '{"pad_token": [[]]}'),
}


def parquet(**options: Any) -> bytes:
    """A small table."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ["a", "b"], "text": ["one", "two"]}), sink, **options)
    return sink.getvalue().to_pybytes()


def repeated(rows: int, size: int) -> bytes:
    """Few bytes whose rows share one long entry."""
    sink = pa.BufferOutputStream()
    words = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * size]))
    pq.write_table(pa.table({"text": words}), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def tree(governor: str, number: str = "1", columns: int = 10) -> str:
    row = [number, "a", "a", "X", "X", "_", governor, "dep", "_", "_"]
    return "\t".join((row + ["_"] * columns)[:columns]) + "\n\n"


TABLES: dict[str, tuple[str, bytes]] = {
    "footer beyond the file": ("a.parquet", parquet()[:-8] + struct.pack("<I", 2**31) + b"PAR1"),
    "footer below zero": ("a.parquet", parquet()[:-8] + b"\xff\xff\xff\xffPAR1"),
    "only marks": ("a.parquet", b"PAR1PAR1"),
    "half a table": ("a.parquet", parquet()[: len(parquet()) // 2]),
    "pages gone": ("a.parquet", b"PAR1" + b"\0" * 60 + parquet()[64:]),
    "rows that share an entry": ("a.parquet", repeated(100, 2**20)),
    "governor of itself": ("a.conllu", tree("1").encode()),
    "governor beyond the sentence": ("a.conllu", tree("9" * 400).encode()),
    "governor below zero": ("a.conllu", tree("-1").encode()),
    "words in a ring": ("a.conllu", (tree("2")[:-1] + tree("1", "2")).encode()),
    "a number of many digits": ("a.conllu", tree("0", "1" * 5000).encode()),
    "a row of many columns": ("a.conllu", tree("0", columns=200_000).encode()),
    "a word without columns": ("a.conllu", tree("0", columns=2).encode()),
    "a sentence of many words": (
        "a.conllu",
        "".join(tree(str(max(0, n - 1)), str(n))[:-1] for n in range(1, 5000)).encode(),
    ),
    "nested rows": ("a.jsonl", b'{"text": ' + b"[" * 100_000 + b"\n"),
    "a row of an endless number": ("a.jsonl", b'{"text": "a", "n": ' + b"9" * 100_000 + b"}\n"),
    "a lone surrogate": ("a.jsonl", b'{"text": "\\ud800"}\n'),
    "a row that is a number": ("a.jsonl", b"5\n" * 1000),
    "bytes that are not text": ("a.jsonl", b'{"text": "\xff\xfe\0"}\n'),
    "many keys": ("a.jsonl", json.dumps({str(n): n for n in range(100_000)}).encode()),
}
