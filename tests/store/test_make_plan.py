# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From a corpus to a plan and the texts of its shards: every text once, in order, bound to it."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.input_files import find_inputs, fingerprint
from flaxattn.corpus.texts import Columns
from flaxattn.errors import CheckpointError, InputError
from flaxattn.kernels.contract import Capture
from flaxattn.pipeline.text_sizes import TextSize
from flaxattn.store.job_plan import JobPlan, Settings, read_plan
from flaxattn.store.make_plan import make_plan, prepare, shard_texts
from flaxattn.store.model_fingerprint import ModelFingerprint
from flaxattn.store.verify_store import verify

MARK = ModelFingerprint("m", "Model", "float32", "a", "b", "c")
TEXT = Columns()
LIMIT = 20


def measure(texts: Sequence[str], seconds: Sequence[str] | None) -> list[TextSize]:
    """A token per word; two words at the ends."""
    counts = [len(text.split()) + 2 for text in texts]
    targets = [len(text.split()) for text in seconds or [""] * len(texts)]
    return [
        TextSize(min(n, LIMIT), min(m, LIMIT), max(0, n - LIMIT), max(0, m - LIMIT), LIMIT)
        for n, m in zip(counts, targets, strict=True)
    ]


def squared(size: TextSize) -> int:
    return size.source**2


def asking(path: Path, columns: Columns = TEXT, **settings: Any) -> tuple[JobPlan, list[Any]]:
    files = find_inputs([path])
    request = (columns, MARK, Capture(weights=True), Settings(**settings))
    return JobPlan(fingerprint(files), *request), files


def planned(path: Path, store: Path, columns: Columns = TEXT, **settings: Any) -> JobPlan:
    asked, files = asking(path, columns, **settings)
    return prepare(store, asked, files, measure, squared)


def words(count: int) -> str:
    return " ".join(["word"] * count)


def corpus(path: Path, counts: Sequence[int]) -> Path:
    path.write_text("".join(words(count) + "\n" for count in counts))
    return path


@pytest.mark.slow
@hypothesis.given(
    st.lists(st.integers(1, 18), min_size=1, max_size=40),
    st.integers(1, 1500),
    st.integers(1, 7),
)
def test_every_text_is_in_one_shard_and_no_shard_is_too_large(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], room: int, most: int
) -> None:
    folder = tmp_path_factory.mktemp("plan")
    path = corpus(folder / "a.txt", counts)
    plan = planned(path, folder / "store", shard_bytes=room, shard_texts=most)
    assert plan.texts == len(counts)
    assert plan.tokens == sum(counts) + 2 * len(counts)
    assert plan.bytes == sum((count + 2) ** 2 for count in counts)
    met = []
    for number, shard in enumerate(plan.shards):
        texts = shard_texts(folder / "store", plan, number)
        met += texts
        assert len(texts) <= most
        assert shard.bytes <= room or len(texts) == 1
        assert shard.tokens == sum(size.source for _, size in texts)
        if number + 1 < len(plan.shards):  # it is full: the next text would not fit
            following = (counts[shard.stop] + 2) ** 2
            assert len(texts) == most or shard.bytes + following > room
    assert [text.index for text, _ in met] == list(range(len(counts)))
    assert [text.text for text, _ in met] == [words(count) for count in counts]
    assert [size.source for _, size in met] == [count + 2 for count in counts]


def test_the_same_plan_whoever_makes_it_and_wherever(tmp_path: Path) -> None:
    path = corpus(tmp_path / "a.txt", range(1, 15))
    (tmp_path / "moved").mkdir()
    first = planned(path, tmp_path / "one", shard_texts=4)
    second = planned(path.rename(tmp_path / "moved/a.txt"), tmp_path / "two", shard_texts=4)
    assert first == second and first.sha256 == second.sha256
    files = [(tmp_path / name / "inputs.parquet").read_bytes() for name in ("one", "two")]
    assert files[0] == files[1]
    names = [".plan.lock", "inputs.parquet", "plan.json", "plan.sha256"]
    assert sorted(os.listdir(tmp_path / "one")) == names


def test_a_plan_that_is_there_is_used_and_another_is_refused(tmp_path: Path) -> None:
    path, store = corpus(tmp_path / "a.txt", [3, 4, 5]), tmp_path / "store"
    plan = planned(path, store, shard_texts=2)
    before = {file.name: file.read_bytes() for file in store.iterdir()}

    def never(*_: object) -> Any:
        raise AssertionError("measured again")

    asked, files = asking(path, shard_texts=2)
    assert prepare(store, asked, files, never, never) == plan == read_plan(store)
    for change in ({"shard_texts": 3}, {"truncate": True, "shard_texts": 2}):
        with pytest.raises(InputError) as error:
            planned(path, store, **change)
        lines = str(error.value).splitlines()
        assert lines[0] == f"{store} holds another extraction"
        assert lines[1].startswith("changed: ") and next(iter(change)) in lines[1]
        assert lines[2] == "put it back as it was, or name another folder"
    corpus(path, [3, 4, 6])
    with pytest.raises(InputError, match=r"changed: file a\.txt \w{12}… -> "):
        planned(path, store, shard_texts=2)
    assert {file.name: file.read_bytes() for file in store.iterdir()} == before
    texts = shard_texts(store, plan, 1)  # what the corpus was when the plan was made
    assert [text.text for text, _ in texts] == [words(5)]


def test_rows_too_long_for_the_model_are_bad_rows_unless_they_may_be_cut(tmp_path: Path) -> None:
    counts = [3, LIMIT - 2, LIMIT - 1, 50_000, 4]  # the second fills the model exactly
    path = corpus(tmp_path / "a.txt", counts)
    with pytest.raises(InputError) as error:
        planned(path, tmp_path / "fail")
    assert str(error.value).splitlines() == [
        f"{path}, line 3, column 'text': 21 tokens, the model takes 20",
        f"received: {words(16)[:79]}…",
        "shorten the text, or pass truncate=True to cut it, "
        'or pass on_error="skip" to leave it out',
    ]
    assert os.listdir(tmp_path / "fail") == [".plan.lock"]
    plan = planned(path, tmp_path / "skip", on_error="quarantine")
    texts = shard_texts(tmp_path / "skip", plan, 0)
    assert [(text.index, text.id) for text, _ in texts] == [
        (0, "a.txt:1"),
        (1, "a.txt:2"),
        (2, "a.txt:5"),
    ]
    assert plan.rows == {"rows": 5, "kept": 3, "bad": {"too-many-tokens": 2}}
    listed = (tmp_path / "skip/errors.jsonl").read_text().splitlines()
    assert [json.loads(row)["line"] for row in listed] == [3, 4]
    plan = planned(path, tmp_path / "cut", truncate=True)
    assert (plan.texts, plan.truncated) == (5, 2)
    sizes = [size for _, size in shard_texts(tmp_path / "cut", plan, 0)]
    assert [(size.source, size.source_cut) for size in sizes[1:4]] == [
        (20, 0),
        (20, 1),
        (20, 49_982),
    ]


def test_pairs_and_targets(tmp_path: Path) -> None:
    rows = [("a", "b c"), ("d e", words(30)), ("f", "g")]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"s": s, "t": t, "n": s * 2}) + "\n" for s, t in rows))
    columns = Columns("s", "t", "n")
    with pytest.raises(InputError, match="line 2, column 't': 30 tokens, the model takes 20"):
        planned(path, tmp_path / "fail", columns)
    plan = planned(path, tmp_path / "skip", columns, on_error="skip")
    texts = [text for text, _ in shard_texts(tmp_path / "skip", plan, 0)]
    assert [(text.id, text.text, text.text_b) for text in texts] == [
        ("aa", "a", "b c"),
        ("ff", "f", "g"),
    ]
    assert plan.tokens == 3 + 2 + 3 + 1


def check_sealed(store: Path) -> None:
    """Any bit of the list, or of its seal, and either file when it is gone: verify names it."""
    assert not verify(store).damage
    seal, names = store / "errors.sha256", ("errors.jsonl", "errors.sha256")
    digest = hashlib.sha256((store / "errors.jsonl").read_bytes()).hexdigest()
    assert seal.read_text() == f"{digest}  errors.jsonl\n"
    for name in names:
        whole = (store / name).read_bytes()
        for bit in range(0, 8 * len(whole), 8 * len(whole) // 40 + 1):
            hurt = bytearray(whole)
            hurt[bit // 8] ^= 1 << bit % 8
            (store / name).write_bytes(hurt)
            assert verify(store).damage == [("errors.jsonl", "it does not match errors.sha256")]
        (store / name).unlink()
        ((file, told),) = verify(store).damage
        assert file == name and told.startswith("it is missing")
        (store / name).write_bytes(whole)
        if name == "errors.sha256":  # what is told makes one
            command = told.partition(": ")[2].removesuffix(" seals the list as it is")
            subprocess.run(command, shell=True, cwd=store, check=True)
            assert seal.read_bytes() == whole
    assert not verify(store).damage


def test_bad_rows_and_files_are_left_out_and_listed_with_the_plan(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "one"}\n{"text": ""}\n{"text": "two"}\n{"text"')
    (folder / "b.jsonl").write_text("")
    (folder / "c.jsonl").write_text('{"text": "three"}\n')
    plan = planned(folder, tmp_path / "store", on_error="quarantine")
    texts = [text for text, _ in shard_texts(tmp_path / "store", plan, 0)]
    assert [(text.index, text.id) for text in texts] == [
        (0, "a.jsonl:1"),
        (1, "a.jsonl:3"),
        (2, "c.jsonl:1"),
    ]
    assert [file.name for file in plan.files] == ["a.jsonl", "c.jsonl"]
    problems = {"empty": 1, "empty-file": 1, "truncated": 1}
    assert plan.rows == {"rows": 5, "kept": 3, "bad": problems}
    listed = (tmp_path / "store/errors.jsonl").read_text().splitlines()
    assert [json.loads(row)["code"] for row in listed] == ["empty", "truncated", "empty-file"]
    check_sealed(tmp_path / "store")
    (folder / "a.jsonl").write_text("[]\n")
    (folder / "c.jsonl").write_text("[]\n")
    with pytest.raises(InputError) as error:
        planned(folder, tmp_path / "none", on_error="skip")
    assert str(error.value).splitlines() == [
        "no text to read in a.jsonl, b.jsonl, c.jsonl",
        "received 2 rows, 3 problems",
        "give files that hold texts",
    ]
    assert os.listdir(tmp_path / "none") == [".plan.lock"]


def test_some_texts_only(tmp_path: Path) -> None:
    path = corpus(tmp_path / "a.txt", [1] * 9)
    assert planned(path, tmp_path / "store", limit=5).texts == 5


def test_a_file_that_changes_while_it_is_read_is_told(tmp_path: Path) -> None:
    path = corpus(tmp_path / "a.txt", [3, 4])
    asked, files = asking(path)

    def slow(texts: Sequence[str], seconds: Sequence[str] | None) -> list[TextSize]:
        corpus(path, [3, 4, 5])
        return measure(texts, seconds)

    with pytest.raises(InputError, match="changed while it was read"):
        prepare(tmp_path / "store", asked, files, slow, squared)
    assert os.listdir(tmp_path / "store") == [".plan.lock"]


def test_texts_that_are_not_those_of_the_plan_are_refused(tmp_path: Path) -> None:
    path, store = corpus(tmp_path / "a.txt", range(1, 16)), tmp_path / "store"
    plan = planned(path, store, shard_texts=5)
    other = planned(corpus(path, range(2, 17)), tmp_path / "other", shard_texts=5)
    kept = store / "inputs.parquet"
    whole = kept.read_bytes()

    def refusal() -> str:
        with pytest.raises(InputError) as error:
            for number in range(3):
                shard_texts(store, plan, number)
        lines = str(error.value).splitlines()
        assert lines[0] == f"{kept} cannot be used" and len(lines) == 3
        return lines[1]

    kept.write_bytes((tmp_path / "other/inputs.parquet").read_bytes())
    assert refusal() == "it belongs to another plan"
    assert len(other.shards) == 3
    kept.write_bytes(whole[:-30])
    refusal()
    kept.unlink()
    refusal()
    start, stop = 4, whole.rindex(b"flaxattn.request")
    silent = 0
    for place in range(start, stop, max(1, stop // 60)):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        kept.write_bytes(damaged)
        try:
            found = [planned for n in range(3) for planned in shard_texts(store, plan, n)]
            silent += [text.text for text, _ in found] != [words(n) for n in range(1, 16)]
        except InputError:
            pass
    assert not silent


def test_a_plan_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = corpus(tmp_path / "a.txt", [3, 4])

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        planned(path, tmp_path / "store")
    assert os.listdir(tmp_path / "store") == [".plan.lock"]


def test_a_dry_plan_writes_nothing(tmp_path: Path) -> None:
    path = corpus(tmp_path / "a.txt", [3, 4])
    asked, files = asking(path)
    told: list[tuple[int, int]] = []
    plan = make_plan(asked, files, measure, squared, BadRows(), note=lambda *now: told.append(now))
    assert told == [(2, 11)]
    assert plan == planned(path, tmp_path / "store")
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "store"]


MAKE = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(sys.argv[1]).parent))
import test_make_plan
test_make_plan.planned(Path(sys.argv[2]), Path(sys.argv[3]), shard_texts=3)
print("made", flush=True)
"""


@pytest.mark.slow
def test_jobs_that_plan_at_once_agree(tmp_path: Path) -> None:
    path = corpus(tmp_path / "a.txt", [1 + n % 17 for n in range(2000)])
    command = [sys.executable, "-P", "-c", MAKE, __file__, str(path), str(tmp_path / "store")]
    jobs = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [job.communicate()[0] for job in jobs] == ["made\n"] * 3
    plan = read_plan(tmp_path / "store")
    assert plan is not None and plan.texts == 2000
    assert len(shard_texts(tmp_path / "store", plan, 600)) == 3


PEAK = """
import resource, sys
from pathlib import Path
sys.path.insert(0, str(Path(sys.argv[1]).parent))
import test_make_plan
plan = test_make_plan.planned(Path(sys.argv[2]), Path(sys.argv[3]))
assert plan.texts == int(sys.argv[4])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    peaks = {}
    for rows in (10_000, 100_000):
        path = tmp_path / f"{rows}.txt"
        corpus(path, [1 + n % 17 for n in range(rows)])
        command = [sys.executable, "-P", "-c", PEAK, __file__, str(path), str(tmp_path / str(rows))]
        run = subprocess.run([*command, str(rows)], capture_output=True, text=True, check=True)
        peaks[rows] = int(run.stdout)
    assert peaks[100_000] < 1.05 * peaks[10_000]


@pytest.mark.parametrize(
    ("modes", "expected"), [((0o600,), 0o600), ((0o644,), 0o644), ((0o664, 0o640), 0o640)]
)
def test_texts_in_a_store_are_as_private_as_the_files_they_come_from(
    modes: tuple[int, ...], expected: int, tmp_path: Path
) -> None:
    paths = [corpus(tmp_path / f"{n}.txt", [2, 3]) for n in range(len(modes))]
    for path, mode in zip(paths, modes, strict=True):
        path.chmod(mode)
    umask = os.umask(0o022)
    try:
        files = find_inputs(paths)
        asked = JobPlan(fingerprint(files), TEXT, MARK, Capture(weights=True), Settings())
        prepare(tmp_path / "store", asked, files, measure, squared)
    finally:
        os.umask(umask)
    assert (tmp_path / "store/inputs.parquet").stat().st_mode & 0o777 == expected
    assert (tmp_path / "store/plan.json").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o755
