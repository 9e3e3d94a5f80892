# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A shard is there whole or not at all: full disks, failing calls, kills, readers, rivals.

`make all` makes every trial.
"""

import errno
import fcntl
import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import store_cases as cases

import flaxattn as fa
from flaxattn.errors import CheckpointError, StoreError
from flaxattn.store import commit_shards
from flaxattn.store.commit_shards import commit, remove_leftovers, shard_files, write_shard
from flaxattn.store.verify_store import verify
from flaxattn.trace.trace import Trace

FULL = os.environ.get("FLAXATTN_TRIALS") == "full"
CALLS = ("open", "write", "fsync", "rename")


@pytest.fixture(scope="module")
def texts() -> list[Trace]:
    return cases.traces("seq2seq", 4, "float16", seed=9)


@pytest.fixture(scope="module")
def files(texts: list[Trace], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The second shard of a store of two."""
    shards, sha256 = cases.plan(tmp_path_factory.mktemp("files"), 4, 2)
    return shard_files(sha256, 1, (2, 4), cases.items(texts[2:], shards[1]["start"]))


class Failing:
    """The module os, one of whose calls fails once."""

    def __init__(self, call: str = "", number: int = -1, fault: str = "EIO") -> None:
        self.call, self.number, self.fault = call, number, fault
        self.counts = dict.fromkeys(CALLS, 0)

    def __getattr__(self, name: str):
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def called(*arguments):
            self.counts[name] += 1
            if name != self.call or self.counts[name] != self.number:
                return real(*arguments)
            if self.fault == "short":
                return real(arguments[0], arguments[1][: max(1, len(arguments[1]) // 3)])
            if self.fault == "flip":
                changed = bytearray(arguments[1])
                changed[len(changed) // 2] ^= 4
                return real(arguments[0], changed)
            if self.fault == "done":  # it happened, and an error is told all the same
                real(*arguments)
            code = getattr(errno, self.fault, errno.EIO)
            raise OSError(code, os.strerror(code), str(arguments[0]))

        return called


def entries(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "shards").iterdir())


def faults(files: dict[str, bytes], store: Path) -> Iterator[tuple[str, int, str]]:
    """Every call of a commit with everything that may go wrong there."""
    counting = Failing()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_shards, "os", counting)
        commit(store, 1, files)
    kinds = {"write": ("EIO", "ENOSPC", "EINTR", "short", "flip"), "rename": ("EIO", "done")}
    for call, count in counting.counts.items():
        for number in range(1, count + 1):
            for fault in kinds.get(call, ("EIO", "EINTR", "ENOSPC")):
                yield call, number, fault


def test_no_failing_call_loses_or_half_writes_a_shard(
    files: dict[str, bytes], texts: list[Trace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F19: at every call that opens, writes, flushes or renames."""
    store = cases.write(tmp_path / "store", texts, per_shard=2, only=[0])
    trials = list(faults(files, cases.write(tmp_path / "count", texts, per_shard=2, only=[0])))
    assert len(trials) > 200
    for call, number, fault in trials if FULL else trials[::9]:
        failing, where = Failing(call, number, fault), (call, number, fault)
        with monkeypatch.context() as patch:
            patch.setattr(commit_shards, "os", failing)
            try:
                done = commit(store, 1, files)
            except StoreError as error:
                done = False
                message = str(error).splitlines()
                assert message[0].startswith(f"could not write {store / 'shards/00001'}: "), where
                assert len(message) == 3
        assert failing.counts[call] >= number, where
        assert done == (fault == "short"), where
        assert entries(store) in (["00000"], ["00000", "00001"]), where
        assert not done or "00001" in entries(store)
        if "00001" in entries(store):  # whole, whatever was told
            assert not verify(store).damage, where
        commit(store, 1, files)
        assert not verify(store).damage and fa.open_store(store).complete, where
        shutil.rmtree(store / "shards/00001")


def test_a_full_disk_leaves_finished_shards_and_no_other(
    texts: list[Trace], tmp_path: Path, small_disk
) -> None:
    """F5 for one shard: path, needed and free bytes; with room again it continues."""
    disk = small_disk(400_000)
    store = cases.write(disk / "store", texts, per_shard=2, only=[0])
    shards, sha256 = cases.plan(disk / "store", 4, 2)
    items = cases.items(texts[2:], 2)
    filler = disk / "filler"
    for trial in range(10 if FULL else 2):
        room = shutil.disk_usage(disk).free
        filler.write_bytes(b"0" * (room - 9000 - 1500 * trial))
        with pytest.raises(StoreError) as error:
            write_shard(store, sha256, 1, shards[1], items)
        message = str(error.value).splitlines()
        assert message[0] == f"could not write {store / 'shards/00001'}: No space left on device"
        needed, free = [int(word) for word in message[1].split() if word.isdigit()]
        assert message[1] == f"it needs {needed} bytes, {free} are free there"
        assert needed > 10_000 and 0 <= free < needed
        assert message[2].startswith("finished shards are as they were; free some space")
        assert entries(store) == ["00000"] and not verify(store).damage
        filler.unlink()
    report = write_shard(store, sha256, 1, shards[1], items)
    assert report.written and report.texts == 2 and report.bytes == needed
    assert fa.open_store(store).complete and not verify(store).damage


@pytest.mark.parametrize("pages", [1, 2])
def test_a_full_disk_is_reported_with_the_file_of_the_plan(
    bert: fa.Pretrained, tmp_path: Path, small_disk, pages: int
) -> None:
    """Nothing is left of the plan."""
    corpus, store = tmp_path / "a.txt", small_disk(pages * 4096) / "store"
    corpus.write_text("the cat is very sad\n" * 300)
    with pytest.raises(CheckpointError) as error:
        fa.extract_to(store, bert, corpus)
    first, second, third = str(error.value).splitlines()
    assert first == f"Could not write {store}: No space left on device."
    assert re.fullmatch(r"It failed at the file (plan.json|plan.sha256)\.", second)
    assert third.startswith("Nothing in it was changed. Free some space")
    assert not [name for name in os.listdir(store) if "lock" not in name]


KILLS = """
import os, signal, sys
from pathlib import Path
import store_cases as cases
from flaxattn.store import commit_shards as writer

texts = cases.traces("seq2seq", 4, "float16", seed=9)
store, step = Path(sys.argv[1]), int(sys.argv[2])
shards, sha256 = cases.plan(store, 4, 2)
files = writer.shard_files(sha256, 1, (2, 4), cases.items(texts[2:], 2))

class Killing:
    def __init__(self, number):
        self.left = number
    def __getattr__(self, name):
        if name in ("open", "write", "fsync", "rename"):
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)
        return getattr(os, name)

number = 1
while True:
    child = os.fork()
    if not child:
        writer.os = Killing(number)
        writer.commit(store, 1, files)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    names = sorted(p.name for p in (store / "shards").iterdir() if p.name[0] != ".")
    assert names in (["00000"], ["00000", "00001"]), names
    print(number, "killed" if os.WIFSIGNALED(status) else "done", *names, flush=True)
    if not os.WIFSIGNALED(status):
        break
    if len(names) == 2:
        os.rename(store / "shards/00001", store.parent / f"kept{number}")
    number += step
"""


def test_killed_at_any_call_the_shard_is_whole_or_absent(
    texts: list[Trace], tmp_path: Path
) -> None:
    """Kill -9 at one call after the other; what is left is found and removed by the next writer."""
    store = cases.write(tmp_path / "store", texts, per_shard=2, only=[0])
    path = os.pathsep.join([str(Path(cases.__file__).parent), *filter(None, sys.path)])
    command = [sys.executable, "-P", "-W", "ignore", "-c", KILLS, str(store), "1" if FULL else "7"]
    run = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    output = [line.split() for line in run.stdout.splitlines()]
    assert [row[1] for row in output] == ["killed"] * (len(output) - 1) + ["done"]
    assert len(output) > (50 if FULL else 7) and output[-1][2:] == ["00000", "00001"]
    assert output[0][2:] == ["00000"]
    left = [name for name in entries(store) if name.startswith(".")]
    assert len(left) >= len(output) - 3 and not verify(store).damage
    shards, sha256 = cases.plan(store, 4, 2)
    report = write_shard(store, sha256, 1, shards[1], cases.items(texts[2:], 2))
    assert not report.written  # the last one was done
    assert entries(store) == ["00000", "00001"]
    for kept in tmp_path.glob("kept*"):
        assert (kept / "manifest.json").read_bytes() == (
            store / "shards/00001/manifest.json"
        ).read_bytes()


def test_a_writer_at_work_is_not_swept_away(files: dict[str, bytes], tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    for name in (".00001.a.part", ".00001.b.part", ".00002.c.part"):
        (shards / name).mkdir(parents=True)
    held = os.open(shards / ".00001.b.part", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    assert remove_leftovers(tmp_path, 1) == 1
    os.close(held)
    assert entries(tmp_path) == [".00001.b.part", ".00002.c.part"]


def test_a_folder_swept_away_before_it_is_locked_is_made_again(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens, swept = os.open, []

    def sweeping(path: Any, *others: Any) -> int:
        if str(path).endswith(".part") and len(swept) < 2:
            swept.append(path)
            os.rmdir(path)
        return opens(path, *others)

    cases.plan(tmp_path, 4, 2)
    monkeypatch.setattr(os, "open", sweeping)
    assert commit(tmp_path, 1, files)
    assert len({*swept}) == 2 and entries(tmp_path) == ["00001"] and not verify(tmp_path).damage


def test_of_two_writers_of_one_shard_one_wins(files: dict[str, bytes], tmp_path: Path) -> None:
    """F24: at the same moment, and one after the other."""
    cases.plan(tmp_path, 4, 2)
    for trial in range(30 if FULL else 3):
        start = threading.Barrier(2)

        def write(_: int, start: threading.Barrier = start) -> bool:
            start.wait(60)
            remove_leftovers(tmp_path, 1)
            return commit(tmp_path, 1, files)

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(write, range(2))) == [False, True], trial
        assert entries(tmp_path) == ["00001"] and not verify(tmp_path).damage
        assert commit(tmp_path, 1, files) is False
        shutil.rmtree(tmp_path / "shards/00001")


def test_a_straggler_with_other_numbers_is_refused(
    files: dict[str, bytes], texts: list[Trace], tmp_path: Path
) -> None:
    shards, sha256 = cases.plan(tmp_path, 4, 2)
    commit(tmp_path, 1, files)
    changed = np.array(texts[2].cross.weights)
    changed[0, 0, 0, 0, 0] += 0.5
    cross = fa.Trace(**{**vars(texts[2]), "cross": cases.with_weights(texts[2].cross, changed)})
    with pytest.raises(StoreError) as error:
        write_shard(tmp_path, sha256, 1, shards[1], cases.items([cross, texts[3]], 2))
    message = str(error.value).splitlines()
    assert message[0].endswith(
        "shards/00001 exists with another content than the one computed here"
    )
    assert message[1] == "these differ: maps.zarr/cross.weights/c/0/0/0"
    assert entries(tmp_path) == ["00001"] and not verify(tmp_path).damage
    table = tmp_path / "shards/00001/tokens.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(StoreError, match=r"tokens.parquet is damaged: it has \d+ bytes instead"):
        commit(tmp_path, 1, files)


def test_a_reader_sees_committed_shards_only(texts: list[Trace], tmp_path: Path) -> None:
    """F23: a reader looks again and again while shards appear in any order."""
    every = list(itertools.islice(itertools.cycle(texts), 12))
    shards, sha256 = cases.plan(tmp_path, 12, 2)
    order = np.random.default_rng(0).permutation(6).tolist()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for number in order:
                own = every[2 * number : 2 * number + 2]
                write_shard(tmp_path, sha256, number, shards[number], cases.items(own, 2 * number))
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    seen, rounds, first = set(), 0, fa.open_store(tmp_path)
    while writer.is_alive() or rounds < (50 if FULL else 3):
        for store in (first, fa.open_store(tmp_path)):
            there = store.examples
            seen.add(len(there))
            for example in there:
                cases.same(every[example], store[example])
        rounds += 1
    writer.join()
    assert not failures and len(seen) > 1
    assert first.complete and first.examples == list(range(12))
