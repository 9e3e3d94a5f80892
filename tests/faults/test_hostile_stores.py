# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Stores of somebody else: whatever they hold is read rightly or refused, and nothing is touched.

Three lines at most, within 2 seconds and 500 MB, whatever reads them.
"""

import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import hostile_stores as hostile
import pytest
import store_cases
from peak_memory import forget, highest

from flaxattn.cli import main
from flaxattn.errors import FlaxattnError
from flaxattn.store.verify_store import verify

FULL = os.environ.get("FLAXATTN_TRIALS") == "full"
MOST_SECONDS, MOST_BYTES = 2.0, 500e6
HANGS = 10.0  # seconds on the clock
COMMANDS = {
    "verify": "store verify {s}",
    "info": "store info {s}",
    "merge": "store merge {s} -o {o}/merged",
    "view": "view {s} -o {o}/page.html",
}


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole store and what is around it; every command has run on it once, which imports."""
    folder = tmp_path_factory.mktemp("pattern")
    store = hostile.build(folder)
    for name, command in COMMANDS.items():
        (folder / name).mkdir()
        assert main(command.format(s=store, o=folder / name).split()) == 0
    store_cases.read_everything(store)
    return folder


@pytest.fixture
def around(pattern: Path, tmp_path: Path) -> Path:
    shutil.copytree(pattern / "deep", tmp_path / "deep")
    shutil.copy(pattern / "victim", tmp_path / "victim")
    return tmp_path


def listing(folder: Path) -> list[tuple[str, object]]:
    """Everything in a folder: kind, size, links, times, and the content of small files."""
    rows: list[tuple[str, object]] = []
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        small = path.is_file() and not path.is_symlink() and status.st_size < 2**20
        content = hashlib.sha256(path.read_bytes()).hexdigest() if small else ""
        facts = (status.st_mode, status.st_size, status.st_nlink, status.st_mtime_ns, content)
        rows.append((path.relative_to(folder).as_posix(), facts))
    return rows


@contextmanager
def bounded(what: str) -> Iterator[None]:
    """Fail what hangs, is slow, or takes much memory."""

    def hung(*_: object) -> None:
        raise AssertionError(f"{what} hangs")

    before = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, HANGS)
    forget()
    memory, started = highest(), time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    seconds, size = time.process_time() - started, highest() - memory
    assert seconds < MOST_SECONDS and size < MOST_BYTES, (what, seconds, size)


def refused(read: Callable[[], object], store: Path) -> bool:
    """Whether reading raised an error of ours, of three lines."""
    with bounded("reading"):
        try:
            read()
        except FlaxattnError as error:
            lines = str(error).splitlines()
            assert 1 <= len(lines) <= 3 and max(map(len, lines)) < 1000, str(error)
            return True
    return False


@pytest.mark.few("name", "link")
@pytest.mark.parametrize("name", hostile.STORES)
def test_a_hostile_store_is_refused_and_touches_nothing(
    name: str, around: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, out = around / "deep/store", around / "out"
    hostile.STORES[name](store, around)
    out.mkdir()
    before = listing(around)
    noticed = []
    for what, command in COMMANDS.items():
        with bounded(what):
            code = main(command.format(s=store, o=out).split())
        printed = capsys.readouterr()
        assert code in (0, 1, 2), (what, printed)
        assert len(printed.err.splitlines()) <= 3 and "Traceback" not in printed.err, (
            what,
            printed.err,
        )
        assert "\x1b[31m" not in printed.out + printed.err
        noticed.append(code != 0)
        shutil.rmtree(out)
        out.mkdir()
    os.utime(out, ns=(0, 0))
    noticed.append(refused(lambda: store_cases.read_everything(store), store))
    assert any(noticed), "nobody noticed"
    after = [row for row in listing(around) if row[0] != "out"]
    assert after == [row for row in before if row[0] != "out"]


def test_there_are_many_hostile_stores() -> None:
    assert len(hostile.STORES) >= 90


@pytest.mark.few("plan")
@pytest.mark.parametrize("file", [hostile.MANIFEST, "plan.json"])
def test_no_type_of_a_field_is_trusted(file: str, around: Path) -> None:
    """Every field of a manifest and of a plan, with every kind of JSON value."""
    store = around / "deep/store"
    data = (store / file).read_bytes()
    whole = json.loads(data)
    body = whole.get("shard", whole)
    before, trials = listing(around), 0
    fields = [(path, value) for path in hostile.paths(body) for value in hostile.WRONG]
    right = [store_cases.plainly(trace) for trace in store_cases.read_everything(store)]
    for path, value in fields if FULL else fields[::7]:
        hurt = json.loads(json.dumps(body))
        hostile.put(hurt, path, value)
        content = hostile.sealed(hurt) if body is not whole else json.dumps(hurt).encode()
        (store / file).write_bytes(content)
        if body is whole:
            hostile.renamed(store)
        read: list[object] = []

        def everything(read: list[object] = read) -> None:
            verify(store)
            read += [store_cases.plainly(trace) for trace in store_cases.read_everything(store)]

        try:
            assert refused(everything, store) or hurt == body or len(read) == len(right)
        except AssertionError as error:
            raise AssertionError(f"{path} = {value!r:.50}: {error}") from error
        trials += 1
    (store / file).write_bytes(data)
    print(f"{file}: {trials} stores")
    names = [row[0] for row in listing(around)]
    assert names == [row[0] for row in before]
