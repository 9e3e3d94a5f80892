# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""F9, F10: files that were changed by accident or by malice, given to every parser there is.

A parser returns what is right or raises an error of ours, of three lines, within a second and 200
MB. `make all` gives each one `SECONDS`, about ten minutes for all of them.
"""

import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from bombs import HOSTILE
from hostile_cases import PARSERS, Parser
from hostile_models import MODELS, TABLES, TEXT, foreign
from mutations import Edit, edited, edits, untouched
from peak_memory import forget, highest

import flaxattn as fa
from flaxattn.errors import FlaxattnError
from flaxattn.pretrained.pretrained_model import Pretrained

FULL = os.environ.get("FLAXATTN_TRIALS") == "full"
SECONDS = 600 / len(PARSERS)
MOST_SECONDS, MOST_BYTES, LIMITS = 1.0, 200e6, {"seconds": 2.0, "size": 500e6, "letters": 3000.0}


def measured(
    read: Callable[[Path], Any],
    path: Path,
    expected: str = "",
    seconds: float = MOST_SECONDS,
    size: float = MOST_BYTES,
    letters: float = math.inf,
) -> Any:
    """What is read, or None for an error as it should be; never too slow nor too large."""
    forget()
    before, started = highest(), time.process_time()
    try:
        found = read(path)
    except FlaxattnError as error:
        message = str(error)
        assert 1 <= len(message.splitlines()) <= 3 and expected in message, message[:2000]
        assert len(message) < letters, message[:2000]
        found = None
    except BaseException as error:  # also the panic of a program in Rust
        raise AssertionError(f"{type(error).__name__}: {error}") from error
    assert time.process_time() - started < seconds
    assert highest() - before < size
    return found


def in_order(found: list[Any], right: list[Any], lines: int) -> None:
    """Rows of the first so many lines are as they were."""
    ours = [row for row in found or [] if row[2] <= lines]
    assert not found or ours == [row for row in right if row[2] <= lines]


def trial(parser: Parser, path: Path, data: bytes, right: Any, changes: list[Edit]) -> None:
    """One hostile copy."""
    path.write_bytes(edited(data, changes))
    found = measured(parser.read, path)
    if parser.sealed and found is not None:
        assert found == right
    if parser.lines:
        in_order(found, right, data[: untouched(data, changes)].count(b"\n"))


def pickles(canary: Path) -> dict[str, bytes]:
    """Pickles that make a file when they are read: as text, as bytes, in an array of objects."""
    command = f"touch {canary}".encode()
    text = b"cposix\nsystem\n(S'" + command + b"'\ntR."
    size = len(command).to_bytes(4, "little")
    data = b"\x80\x02cposix\nsystem\nX" + size + command + b"\x85R."
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n"
    array = b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + data
    return {"text": text, "data": data, "array": array}


def test_no_parser_opens_a_pickle(tmp_path: Path) -> None:
    """F9: three of them in place of the file of every parser."""
    canary = tmp_path / "canary"
    for number, (name, parser) in enumerate(PARSERS.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = parser.write(folder)
        parser.read(path)  # for the first time, which imports
        for kind, data in pickles(canary).items():
            path.write_bytes(data)
            found = measured(parser.read, path)
            assert not canary.exists(), (name, kind)
            assert found is None or kind == "text" or not parser.sealed, (name, kind)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_lies_about_its_size_is_refused_at_once(name: str, tmp_path: Path) -> None:
    hostile = HOSTILE[name]
    parser = PARSERS[hostile.parser]
    path = parser.write(tmp_path)
    parser.read(path)
    path.write_bytes(hostile.data())
    assert measured(parser.read, path, hostile.message) is None


@pytest.mark.parametrize("name", PARSERS)
def test_a_hostile_file_is_read_rightly_or_refused(name: str, tmp_path: Path) -> None:
    parser = PARSERS[name]
    path = parser.write(tmp_path)
    data = path.read_bytes()
    right = parser.read(path)  # for the first time, which imports and compiles
    assert measured(parser.read, path) == right or not parser.sealed

    def one(changes: list[Edit]) -> None:
        trial(parser, path, data, right, changes)

    deadline, seed, count = time.monotonic() + SECONDS, 0, 0
    while not seed or (FULL and time.monotonic() < deadline):
        settings = hypothesis.settings(
            max_examples=(size := 50 if FULL else 4),
            derandomize=False,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        given = hypothesis.given(edits())(lambda changes: one(changes))
        hypothesis.seed(seed)(settings(given))()
        seed, count = seed + 1, count + size
    print(f"{name}: {count} files")


def listing(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every path below a folder with its kind, its time and what is in it."""
    found = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path)] = (state.st_mode, state.st_mtime_ns, data)
    return found


def load_and_read(folder: Path) -> Any:
    """Load a model and let it tokenize a text."""
    return fa.from_pretrained(folder).read(TEXT, truncate=True).lengths


@pytest.fixture(scope="module")
def plain_model(bert: Pretrained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model as another program wrote it."""
    folder = tmp_path_factory.mktemp("plain") / "model"
    bert.save_pretrained(folder)
    foreign(folder)
    load_and_read(folder)  # for the first time, which imports and compiles
    return folder


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_hostile_model_is_refused(name: str, plain_model: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes((plain_model / "model.safetensors").read_bytes())
    folder = shutil.copytree(plain_model, tmp_path / "model")
    MODELS[name](folder)
    before = listing(tmp_path)
    assert measured(load_and_read, folder, **LIMITS) is None
    assert listing(tmp_path) == before


@pytest.mark.parametrize("name", TABLES)
def test_a_hostile_table_is_read_or_refused(name: str, tmp_path: Path) -> None:
    file, data = TABLES[name]
    path = tmp_path / file
    read = PARSERS["trees" if file.endswith("conllu") else "table jsonl"].read
    path.write_bytes(data)
    before = listing(tmp_path)
    measured(read, path, **LIMITS)
    assert listing(tmp_path) == before
