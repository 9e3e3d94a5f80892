# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""From a corpus to a plan and the texts of its shards: every text once, in order, bound to it."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import pytest
from hypothesis import strategies as st

from flaxattn.corpus.bad_rows import Problem
from flaxattn.corpus.input_files import InputFile, KeptOpen, find_inputs, fingerprint
from flaxattn.corpus.texts import Columns, Text
from flaxattn.errors import CheckpointError, InputError
from flaxattn.kernels.contract import Capture
from flaxattn.pipeline.batches import TextSize
from flaxattn.store.plan import (
    Corpus,
    JobPlan,
    ModelFingerprint,
    Settings,
    make_plan,
    measured_texts,
    prepare,
    read_plan,
    shard_texts,
    write_sum,
)

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


def of_files(files: list[InputFile], on_error: str = "fail") -> Corpus:
    return Corpus.of(files, measure, on_error)


def asking(
    path: Path, columns: Columns = TEXT, on_error: str = "fail", **settings: Any
) -> tuple[JobPlan, Corpus]:
    files = find_inputs([path])
    request = (columns, MARK, Capture(weights=True), Settings(**settings))
    return JobPlan(fingerprint(files), *request), of_files(files, on_error)


def planned(path: Path, store: Path, columns: Columns = TEXT, **settings: Any) -> JobPlan:
    return prepare(store, *asking(path, columns, **settings), squared)


class Read(NamedTuple):
    texts: list[Text]
    sizes: list[TextSize]
    problems: list[Problem]


def read(path: Path, plan: JobPlan, number: int = 0, on_error: str = "skip") -> Read:
    whole = of_files(find_inputs([path]), on_error)
    found = shard_texts(plan, number, whole, KeptOpen())
    sizes = measured_texts(plan, whole, found)
    return Read(list(found.texts.values()), sizes, found.problems)


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
    texts, sizes = [], []
    for number, shard in enumerate(plan.shards):
        found = read(path, plan, number)
        texts += found.texts
        sizes += found.sizes
        assert len(found.texts) <= most
        assert shard.bytes <= room or len(found.texts) == 1
        assert shard.tokens == sum(size.source for size in found.sizes)
        if number + 1 < len(plan.shards):  # it is full: the next text would not fit
            following = (counts[shard.stop] + 2) ** 2
            assert len(found.texts) == most or shard.bytes + following > room
    assert [text.index for text in texts] == list(range(len(counts)))
    assert [text.text for text in texts] == [words(count) for count in counts]
    assert [size.source for size in sizes] == [count + 2 for count in counts]


def test_texts_after_the_first_thousand_are_not_read_and_their_size_is_estimated(
    tmp_path: Path,
) -> None:
    counts = [1 + n % 16 for n in range(5000)]
    path = corpus(tmp_path / "a.txt", counts)
    request, whole = asking(path, shard_bytes=20_000)
    measured: list[int] = []

    def counting(texts: Sequence[str], seconds: Sequence[str] | None) -> list[TextSize]:
        measured.append(len(texts))
        return measure(texts, seconds)

    plan = make_plan(request, whole._replace(measure=counting), squared)
    assert sum(measured) == 1000
    assert plan.texts == 5000 == plan.shards[-1].stop
    texts = [text.text for n in range(len(plan.shards)) for text in read(path, plan, n).texts]
    assert texts == [words(count) for count in counts]
    assert plan.tokens == pytest.approx(sum(counts) + 2 * len(counts), rel=0.05)
    assert plan.bytes == pytest.approx(sum((n + 2) ** 2 for n in counts), rel=0.2)
    sizes = [sum(s.source**2 for s in read(path, plan, n).sizes) for n in range(len(plan.shards))]
    assert max(sizes) < 2 * 20_000


def test_long_texts_behind_short_ones_fill_no_shard_too_much(tmp_path: Path) -> None:
    path = corpus(tmp_path / "a.txt", [2] * 3000 + [16] * 3000)
    plan = planned(path, tmp_path / "store", shard_bytes=20_000)
    sizes = [sum(s.source**2 for s in read(path, plan, n).sizes) for n in range(len(plan.shards))]
    assert max(sizes) < 4 * 20_000


def test_the_same_plan_whoever_makes_it_and_wherever(tmp_path: Path) -> None:
    path = corpus(tmp_path / "a.txt", range(1, 15))
    (tmp_path / "moved").mkdir()
    first = planned(path, tmp_path / "one", shard_texts=4)
    second = planned(path.rename(tmp_path / "moved/a.txt"), tmp_path / "two", shard_texts=4)
    assert first == second and first.sha256 == second.sha256
    names = [".plan.lock", "plan.json", "plan.sha256"]
    assert sorted(os.listdir(tmp_path / "one")) == names


def test_a_plan_that_is_there_is_used_and_another_is_refused(tmp_path: Path) -> None:
    path, store = corpus(tmp_path / "a.txt", [3, 4, 5]), tmp_path / "store"
    plan = planned(path, store, shard_texts=2)
    before = {file.name: file.read_bytes() for file in store.iterdir()}

    def never(*_: object) -> Any:
        raise AssertionError("measured again")

    request, whole = asking(path, shard_texts=2)
    assert prepare(store, request, whole._replace(measure=never), never) == plan == read_plan(store)
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
    corpus(path, [3, 4, 5])
    assert planned(path, store, shard_texts=2, on_error="skip") == plan  # nothing was left out


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
    plan = planned(path, tmp_path / "skip", on_error="skip")
    found = read(path, plan)
    assert [(text.index, text.id) for text in found.texts] == [
        (0, "a.txt:1"),
        (1, "a.txt:2"),
        (4, "a.txt:5"),  # it is numbered when the shard is written
    ]
    assert plan.texts == 5
    rows = [("a.txt", 3, "too-many-tokens"), ("a.txt", 4, "too-many-tokens")]
    assert [(row.file, row.line, row.code) for row in found.problems] == rows
    with pytest.raises(InputError, match="line 3, column 'text': 21 tokens"):
        read(path, plan, on_error="fail")
    plan = planned(path, tmp_path / "cut", truncate=True)
    assert [(size.source, size.source_cut) for size in read(path, plan).sizes[1:4]] == [
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
    assert [(text.id, text.text, text.text_b) for text in read(path, plan).texts] == [
        ("aa", "a", "b c"),
        ("ff", "f", "g"),
    ]
    assert plan.tokens == 3 + 2 + 3 + 1


def test_bad_rows_and_files_are_left_out_and_listed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"text": "one"}\n{"text": ""}\n{"text": "two"}\n{"text"')
    (folder / "b.jsonl").write_text("")
    (folder / "c.jsonl").write_text('{"text": "three"}\n')
    plan = planned(folder, tmp_path / "store", on_error="skip")
    found = read(folder, plan)
    assert [(text.index, text.id) for text in found.texts] == [
        (0, "a.jsonl:1"),
        (1, "a.jsonl:3"),
        (2, "c.jsonl:1"),
    ]
    assert [file.name for file in plan.files] == ["a.jsonl", "c.jsonl"]
    assert [(row.file, row.code) for row in plan.problems] == [("b.jsonl", "empty-file")]
    rows = [("a.jsonl", 2, "empty"), ("a.jsonl", 4, "truncated")]
    assert [(row.file, row.line, row.code) for row in found.problems] == rows
    with pytest.raises(InputError, match="the file is empty"):  # a file of the plan was left out
        planned(folder, tmp_path / "store")
    (folder / "a.jsonl").write_text("[]\n")
    (folder / "c.jsonl").write_text("[]\n")
    with pytest.raises(InputError) as error:
        planned(folder, tmp_path / "none", on_error="skip")
    assert str(error.value).splitlines() == [
        "no text to read in a.jsonl, b.jsonl, c.jsonl",
        "received 2 rows without a text",
        "give files that hold texts",
    ]
    assert os.listdir(tmp_path / "none") == [".plan.lock"]


def test_a_plan_of_other_files_than_its_own_is_refused(tmp_path: Path) -> None:
    path, store = corpus(tmp_path / "a.txt", [3, 4]), tmp_path / "store"
    plan = planned(path, store)
    rows = (plan.shards[0].rows[0]._replace(file=1),)
    shards = (dataclasses.replace(plan.shards[0], rows=rows),)
    (store / "plan.json").write_text(dataclasses.replace(plan, shards=shards).text)
    write_sum(store)
    with pytest.raises(InputError, match="it names rows of more files than there are"):
        planned(path, store)


def test_some_texts_only(tmp_path: Path) -> None:
    path = corpus(tmp_path / "a.txt", [1] * 9)
    plan = planned(path, tmp_path / "store", limit=5)
    assert plan.texts == 5 == len(read(path, plan).texts)


def test_a_file_that_changes_while_it_is_read_is_reported(tmp_path: Path) -> None:
    path = corpus(tmp_path / "a.txt", [3, 4])
    request, whole = asking(path)

    def slow(texts: Sequence[str], seconds: Sequence[str] | None) -> list[TextSize]:
        corpus(path, [3, 4, 5])
        return measure(texts, seconds)

    with pytest.raises(InputError, match="changed while it was read"):
        prepare(tmp_path / "store", request, whole._replace(measure=slow), squared)
    assert os.listdir(tmp_path / "store") == [".plan.lock"]


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
    notes: list[tuple[int, int]] = []
    plan = make_plan(*asking(path), squared, note=lambda *now: notes.append(now))
    assert notes == [(2, 11)]
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
    assert len(read(path, plan, 600).texts) == 3


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
