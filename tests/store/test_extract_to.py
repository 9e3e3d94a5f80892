# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A corpus into a store: every text once, in order, whatever shards, stops, parts and batches."""

import dataclasses
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hostile_stores
import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
import store_cases
from whole_stores import content

import flaxattn as fa
from flaxattn.errors import InputError, StoreError, UnavailableError
from flaxattn.store.extract_to import Watcher, claimed
from flaxattn.store.merge_stores import merge
from flaxattn.store.verify_store import verify

pytestmark = pytest.mark.devices  # without a mesh, all devices share each batch
FULL = os.environ.get("FLAXATTN_TRIALS") == "full"
MAPS = fa.Capture(weights=True, stats=("entropy", "argmax"))
Extract = Callable[..., Any]


class StoppedError(Exception):
    """Somebody pulled the plug."""


class StopAfter(Watcher):
    """Ends a job when so many shards are in the store."""

    def __init__(self, shards: int) -> None:
        self.left = shards

    def committed(self, shard: Any, reports: Any) -> None:
        self.left -= 1
        if not self.left:
            raise StoppedError


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """14 texts, of one width but for the last two: few shapes are compiled."""
    rng = np.random.default_rng(3)
    sizes = [1, 6, 2, *rng.integers(1, 7, 9), 12, 13]
    return [" ".join(rng.choice("the cat is very sad , .".split(), size)) for size in sizes]


@pytest.fixture(scope="module")
def corpus(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "a.txt"
    path.write_text("\n".join(texts) + "\n")
    return path


@pytest.fixture(scope="module")
def extract(bert, corpus: Path) -> Extract:
    def called(store: Path, model: Any = bert, inputs: Any = corpus, **options: Any) -> Any:
        usual = {"capture": MAPS, "shard_texts": 4, "devices": jax.devices()[:1]}
        return fa.extract_to(store, model, inputs, **{**usual, **options})

    return called


@pytest.fixture(scope="module")
def undisturbed(extract: Extract, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("undisturbed") / "store"
    extract(store)
    return store


def check_close(store: Path, traces: list[Any], tolerance: float = 1e-6) -> None:
    opened = fa.open_store(store)
    assert opened.complete and len(opened) == len(traces)
    for stored, trace in zip(opened, traces, strict=True):
        assert [list(r) for r in stored.tokens] == [list(r) for r in trace.tokens]
        for side in ("encoder", "decoder", "cross"):
            ours, theirs = getattr(stored, side), getattr(trace, side)
            assert (ours is None) == (theirs is None)
            if theirs is not None:
                np.testing.assert_allclose(ours.weights, theirs.weights, rtol=0, atol=tolerance)
                entropy = theirs.stats["entropy"]
                np.testing.assert_allclose(ours.stats["entropy"], entropy, rtol=0, atol=1e-5)


def test_the_store_holds_what_trace_returns_text_by_text(
    bert, texts: list[str], undisturbed: Path
) -> None:
    check_close(undisturbed, [bert.trace(text, capture=MAPS) for text in texts])
    assert not verify(undisturbed).damage
    shards = sorted((undisturbed / "shards").iterdir())
    rows = [row for s in shards for row in pq.read_table(s / "texts.parquet").to_pylist()]
    assert [row["example"] for row in rows] == list(range(len(texts)))
    assert [row["text"] for row in rows] == texts
    assert [row["id"] for row in rows] == [f"a.txt:{n}" for n in range(1, len(texts) + 1)]


def test_the_report_counts_what_was_found_and_written(
    extract: Extract, corpus: Path, texts: list[str], tmp_path: Path
) -> None:
    (tmp_path / "b.txt").write_text(corpus.read_text() + "\n\nthe cat\n")
    report = extract(tmp_path / "s", inputs=tmp_path / "b.txt", on_error="skip")
    assert (report.texts, report.shards) == (len(texts) + 1, 5)  # four rows each
    assert report.rows == {"rows": 17, "kept": 15, "bad": {"empty": 2}}
    assert (report.there, report.written, report.missing) == (0, 5, 0)
    assert (report.written_texts, report.written_tokens) == (report.texts, report.tokens)
    maps = [record for trace in fa.open_store(tmp_path / "s") if (record := trace.encoder)]
    sizes = [s.weights.nbytes + sum(a.nbytes for a in s.stats.values()) for s in maps]
    assert report.bytes == sum(sizes)
    assert report.tokens == sum(record.weights.shape[-1] for record in maps)
    files = [p for p in (tmp_path / "s/shards").rglob("*") if p.is_file()]
    manifests = sum(p.stat().st_size for p in files)
    assert report.written_bytes == manifests


def test_the_same_call_again_writes_nothing(extract: Extract, undisturbed: Path) -> None:
    before = {p: p.stat() for p in (undisturbed / "shards").rglob("*")}
    report = extract(undisturbed)
    assert (report.there, report.written, report.written_bytes) == (4, 0, 0)
    assert {p: p.stat() for p in (undisturbed / "shards").rglob("*")} == before


@pytest.mark.parametrize("after", [1, 3])
def test_a_job_that_stopped_continues_and_ends_with_the_same_bytes(
    extract: Extract, undisturbed: Path, tmp_path: Path, after: int
) -> None:
    store = tmp_path / "store"
    with pytest.raises(StoppedError):
        extract(store, watcher=StopAfter(after))
    there = fa.open_store(store).shards
    assert there in ([*range(after)], [*range(after + 1)])  # one may be written meanwhile
    kept = {p: p.stat() for p in (store / "shards").iterdir()}
    assert not [p for p in kept if p.name.startswith(".")]
    report = extract(store)
    assert (report.there, report.written) == (len(there), 4 - len(there))
    assert {p: p.stat() for p in kept} == kept  # no work was done twice
    assert content(store) == content(undisturbed)


def test_missing_shards_and_no_others_are_computed(
    extract: Extract, undisturbed: Path, tmp_path: Path
) -> None:
    store = shutil.copytree(undisturbed, tmp_path / "store")
    shutil.rmtree(store / "shards/00002")
    (store / "shards/.00002.0123456789abcdef.part").mkdir()  # whoever made it was killed
    with pytest.raises(StoreError, match="does not hold shard 00002 yet, with examples 8 to 11"):
        fa.open_store(store).weights(8)
    report = extract(store)
    assert (report.there, report.written, report.written_texts) == (3, 1, 4)
    assert content(store) == content(undisturbed)


def flipped(path: Path, trials: int, seed: int = 0) -> Iterator[None]:
    """One bit of a file after the other, and at last the file as it was."""
    whole, rng = path.read_bytes(), np.random.default_rng(seed)
    for place in rng.integers(len(whole), size=trials).tolist():
        hurt = bytearray(whole)
        hurt[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(hurt)
        yield
    path.write_bytes(whole)


@pytest.mark.parametrize("inputs", [["a b c", "a b c"], ["a b c"], "a b c", [["a b c"]], [5]])
def test_texts_in_the_place_of_files_are_refused(
    extract: Extract, inputs: Any, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as error:
        extract(tmp_path / "store", inputs=inputs)
    message = str(error.value).splitlines()
    assert message[0].startswith("extract_to reads files, and ") and len(message) == 3
    assert message[2].endswith("or call fa.extract(model, texts)")
    assert not (tmp_path / "store").exists()


def damage(store: Path) -> list[tuple[str, str]]:
    """What verification names, also where it cannot open the store."""
    try:
        return [tuple(entry) for entry in verify(store).damage]
    except StoreError as error:
        return [(str(error), "")]


@pytest.mark.parametrize("name", ["plan.json", "plan.sha256"])
@pytest.mark.parametrize("shards", [3, 0])
def test_a_job_whose_plan_was_damaged_writes_nothing(
    extract: Extract, undisturbed: Path, tmp_path: Path, name: str, shards: int
) -> None:
    """Also where no shard is there yet that names the plan; verify names the file as well."""
    store = shutil.copytree(undisturbed, tmp_path / "store")
    for number in range(shards, 4):
        shutil.rmtree(store / f"shards/{number:05d}")
    for _ in flipped(store / name, 100 if FULL else 8, shards):
        with pytest.raises((InputError, StoreError)) as error:
            extract(store)
        assert len(str(error.value).splitlines()) == 3
        assert len(list((store / "shards").iterdir())) == shards
        assert any(name in " ".join(entry) for entry in damage(store))
    (store / name).write_bytes((undisturbed / name).read_bytes()[:50])
    with pytest.raises((InputError, StoreError)):
        extract(store)
    (store / name).write_bytes((undisturbed / name).read_bytes())
    assert extract(store).written == 4 - shards
    assert content(store) == content(undisturbed)


def test_verify_misses_no_file_beside_the_shards(undisturbed: Path, tmp_path: Path) -> None:
    store = shutil.copytree(undisturbed, tmp_path / "store")
    for name in ("plan.json", "plan.sha256"):
        whole = (store / name).read_bytes()
        (store / name).write_bytes(whole[:50])
        assert name in [word for entry in verify(store).damage for word in " ".join(entry).split()]
        (store / name).unlink()
        if name != "plan.json":
            ((file, what),) = verify(store).damage
            assert file == name and what.startswith("it is missing")
        (store / name).write_bytes(whole)
    assert not verify(store).damage


def test_a_plan_of_an_older_version_keeps_its_hash(
    extract: Extract, undisturbed: Path, tmp_path: Path
) -> None:
    """Written in another form, under which its shards were made."""
    store = shutil.copytree(undisturbed, tmp_path / "store")
    plan = json.loads((store / "plan.json").read_bytes())
    (store / "plan.json").write_text(json.dumps(plan | {"flaxattn": "0.0.1"}))
    (store / "plan.sha256").unlink()
    hostile_stores.renamed(store)
    shutil.rmtree(store / "shards/00002")
    assert extract(store).written == 1
    assert len(list(fa.open_store(store))) == 14
    assert [entry.file for entry in verify(store).damage] == ["plan.sha256"]


def test_parts_make_the_same_store_in_one_folder_and_in_several(
    extract: Extract, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "shared"
    reports = [extract(store, shard=(i, 3)) for i in (2, 0, 1)]
    assert [report.written for report in reports] == [1, 2, 1]
    assert [report.missing for report in reports] == [3, 1, 0]
    assert content(store) == content(undisturbed)
    monkeypatch.setattr(jax, "process_count", lambda: 2)  # what jax.distributed says
    for process in (0, 1):
        monkeypatch.setattr(jax, "process_index", lambda process=process: process)
        extract(tmp_path / f"host{process}")
    assert fa.open_store(tmp_path / "host1").shards == [1, 3]
    merge([tmp_path / "host0", tmp_path / "host1"], tmp_path / "merged")
    assert content(tmp_path / "merged") == content(undisturbed)
    with pytest.raises(InputError, match=r"shard 2/2 does not exist\nexpected i/N with i from 0"):
        extract(tmp_path / "none", shard=(2, 2))


def test_merged_parts_of_an_unfinished_job_can_be_finished(
    extract: Extract, undisturbed: Path, tmp_path: Path
) -> None:
    extract(tmp_path / "part", shard=(1, 3))
    merge([tmp_path / "part"], tmp_path / "store")
    assert extract(tmp_path / "store").written == 3
    assert content(tmp_path / "store") == content(undisturbed)


@pytest.mark.few("how1")
@pytest.mark.parametrize("how", [{"batch_tokens": 64}, {"shard_texts": 14}, {"devices": None}])
def test_batches_shards_and_devices_change_nothing_that_counts(
    extract: Extract, undisturbed: Path, tmp_path: Path, how: dict[str, Any]
) -> None:
    extract(tmp_path / "store", **how)
    check_close(tmp_path / "store", list(fa.open_store(undisturbed)))


@pytest.mark.few("gpt2", "pairs")
@pytest.mark.parametrize(
    "family", ["gpt2", "seq2seq", "bert pairs", pytest.param("written", marks=pytest.mark.slow)]
)
def test_every_family_of_models(
    request: pytest.FixtureRequest, extract: Extract, tmp_path: Path, family: str
) -> None:
    name = {"written": "seq2seq", "bert pairs": "bert"}.get(family, family)
    model = request.getfixturevalue(name)
    pairs = [("a b c", "the cat"), ("the cat is", "a"), ("d", "e f")]
    both = family in ("seq2seq", "bert pairs")
    rows = [{"name": f"n/{i}", "text": a, "other": b} for i, (a, b) in enumerate(pairs)]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    extract(tmp_path / "s", model, path, pair_column="other" if both else None, id_column="name")
    found = [
        model.trace(a, b, capture=MAPS) if both else model.trace(a, capture=MAPS) for a, b in pairs
    ]
    check_close(tmp_path / "s", found)
    texts = pq.read_table(tmp_path / "s/shards/00000/texts.parquet")
    assert texts["id"].to_pylist() == ["n/0", "n/1", "n/2"]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["translation", "rnn"])
@pytest.mark.parametrize("writes", [False, True])
def test_models_that_translate_are_stored_as_traced_one_by_one(
    request: pytest.FixtureRequest, extract: Extract, tmp_path: Path, family: str, writes: bool
) -> None:
    """Sources and targets of many lengths share batches; so do those that the model writes."""
    model, rng = request.getfixturevalue(family), np.random.default_rng(5)
    sizes = [(1, 5), (9, 1), (3, 3), (7, 8), (2, 9), (9, 6)]
    pairs = [tuple(" ".join(rng.choice([*"abch", "the", "cat"], n)) for n in two) for two in sizes]
    rows = [{"text": a} if writes else {"text": a, "other": b} for a, b in pairs]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    extract(tmp_path / "s", model, path, pair_column=None if writes else "other")
    found = [
        model.trace(a, capture=MAPS) if writes else model.trace(a, b, capture=MAPS)
        for a, b in pairs
    ]
    assert found[0].cross is not None and (found[0].encoder is None) == (family == "rnn")
    check_close(tmp_path / "s", found)
    assert not verify(tmp_path / "s").damage


@pytest.mark.slow
def test_several_models_fill_a_store_each_in_one_pass(
    bert, extract: Extract, undisturbed: Path, tmp_path: Path
) -> None:
    other = dataclasses.replace(bert, params=jax.tree.map(lambda x: x * 0.9, bert.params))
    with pytest.raises(StoppedError):
        extract(tmp_path / "s", {"one": bert, "../two": other}, watcher=StopAfter(2))
    extract(tmp_path / "s", {"one": bert, "../two": other})
    names = sorted(p.name for p in (tmp_path / "s").iterdir() if not p.name.startswith("."))
    assert names == ["_two-2b9b1e32940e", "one"]  # nothing outside of the folder
    check_close(tmp_path / "s/one", list(fa.open_store(undisturbed)))
    extract(tmp_path / "alone", other)
    check_close(tmp_path / "s" / names[0], list(fa.open_store(tmp_path / "alone")))


@pytest.mark.slow
def test_means_over_the_corpus_need_no_map(
    extract: Extract, undisturbed: Path, tmp_path: Path
) -> None:
    stats = fa.Capture(stats=("entropy",))
    report = extract(tmp_path / "s", capture=stats, reduce=("offsets", "statistics"))
    expected = fa.OnlineMoments("offsets", "statistics")
    for trace in fa.open_store(undisturbed):
        expected.add(trace)
    keys = ["side", "statistic", "layer", "head", "offset", "count"]
    order = [(name, "ascending") for name in keys]
    tables = fa.open_store(tmp_path / "s").reductions(), expected.table()
    found, mean = (table.sort_by(order) for table in tables)
    assert found.select(keys).to_pylist() == mean.select(keys).to_pylist()
    for name in ("mean", "m2"):
        ours, theirs = (table[name].to_numpy() for table in (found, mean))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert not list((tmp_path / "s").rglob("encoder.weights"))
    assert report.bytes < extract(undisturbed).bytes / 4
    extract(tmp_path / "only", capture=fa.Capture(), reduce=("offsets",))
    with pytest.raises(InputError, match="changed: reduce"):
        extract(tmp_path / "only", capture=fa.Capture(), reduce=("statistics",))


@pytest.mark.parametrize("change", ["model", "capture", "corpus", "column", "setting"])
def test_another_job_is_refused_with_what_changed(
    bert, extract: Extract, corpus: Path, undisturbed: Path, tmp_path: Path, change: str
) -> None:
    """F18: the store is as it was."""
    store, text = shutil.copytree(undisturbed, tmp_path / "store"), tmp_path / "a.txt"
    text.write_text(corpus.read_text() + "one more\n")
    model = dataclasses.replace(bert, params=jax.tree.map(lambda x: x * 0.9, bert.params))
    options, message = {
        "model": ({"model": model}, "model's parameters"),
        "capture": ({"capture": fa.Capture(weights=True)}, "capture stats"),
        "corpus": ({"inputs": text}, "file a.txt"),
        "column": ({"id_column": "id"}, "id column null -> id"),
        "setting": ({"truncate": True}, "truncate False -> true"),
    }[change]
    before = content(store)
    with pytest.raises(InputError) as error:
        extract(store, **options)
    lines = str(error.value).splitlines()
    assert lines[0] == f"{store} holds another extraction"
    assert lines[1].lower().startswith(f"changed: {message.lower()}")
    assert len(lines) == 3 and content(store) == before


def test_a_second_job_in_the_folder_is_refused(extract: Extract, tmp_path: Path) -> None:
    """F17: the holder is named; jobs of different parts are not rivals."""
    store = tmp_path / "store"
    with claimed(store, (0, 2)):
        assert extract(store, shard=(1, 2)).written == 2
        for part in (None, (0, 2)):
            with pytest.raises(InputError) as error:
                extract(store, shard=part)
            message = f"another run is at work in {store}\nprocess {os.getpid()} on "
            assert str(error.value).startswith(message)
    assert extract(store).written == 2


def test_too_small_a_disk_is_reported_before_anything_is_computed(
    extract: Extract, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = "flaxattn.store.extract_to.commit_shards"
    usage = SimpleNamespace(free=1000)
    with monkeypatch.context() as patch:
        patch.setattr("flaxattn.store.extract_to.shutil.disk_usage", lambda _: usage)
        patch.setattr(never, None)
        with pytest.raises(StoreError) as error:
            extract(tmp_path / "s")
    needed = extract(tmp_path / "s").bytes
    message = f"{tmp_path / 's'} needs about {needed:,} bytes for 4 shards; 1,000 are free\n"
    assert str(error.value).startswith(message)
    assert len(str(error.value).splitlines()) == 3


def test_texts_that_do_not_fit_the_request_are_named_by_file_and_line(
    extract: Extract, corpus: Path, texts: list[str], tmp_path: Path
) -> None:
    window = fa.Capture(weights=True, query_window=(2, 6))
    short = next(i for i, text in enumerate(texts) if len(text.split()) + 2 < 6)
    with pytest.raises(InputError) as error:
        extract(tmp_path / "s", capture=window)
    lines = str(error.value).splitlines()
    assert lines[0] == f"a.txt, line {short + 1}: text is too short" and len(lines) <= 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"shard_text": 3},
            "extract_to() got an unexpected keyword argument 'shard_text'.\nKnown: store, model,",
        ),
        (
            {"shard_text": 3},
            "resume, input_format.\nDid you mean shard_texts?",
        ),
        ({"on_error": "ignore"}, "on_error 'ignore' is unknown\nchoose one of fail, skip"),
        ({"shard_texts": 0}, "shard_texts is 0, expected at least 1"),
        ({"reduce": ("means",)}, "reduce: 'means' is not a reduction"),
        ({"capture": fa.Capture(weights=True, layers=(7,))}, "7"),
        ({"inputs": "/no/such/file.txt"}, "/no/such/file.txt"),
        ({"inputs": []}, "no text to read"),
        ({"pair_column": "b"}, "plain text has no columns"),
    ],
)
def test_requests_that_cannot_be_met(
    extract: Extract, tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        extract(tmp_path / "s", **wrong)
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 3
    assert not (tmp_path / "s" / "plan.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("trial", range(10 if FULL else 1))
def test_too_little_memory_halves_batches_and_stores_the_same(
    extract: Extract,
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trial: int,
) -> None:
    """F12: the device, or in odd trials the host, refuses batches of more than a few rows."""
    from flaxattn.pipeline.run import run_program

    most, shard = ((2, 4), (1, 4), (3, 4), (1, 2), (1, 14))[trial // 2]
    sizes: list[int] = []
    refused = "RESOURCE_EXHAUSTED: out of memory" if trial % 2 == 0 else ""
    run = run_program

    def scarce(module: Any, program: Any, params: Any, given: Any, *others: Any) -> Any:
        sizes.append(len(given["input_ids"]))
        if sizes[-1] > most:
            raise MemoryError(refused)
        return run(module, program, params, given, *others)

    monkeypatch.setattr("flaxattn.pipeline.run.run_program", scarce)
    extract(tmp_path / "s", shard_texts=shard)
    assert max(sizes) > most >= sizes[-1]
    check_close(tmp_path / "s", list(fa.open_store(undisturbed)))


def test_no_memory_at_all_is_reported_and_leaves_whole_shards(
    extract: Extract, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F12: after halving four times the job ends, and the same call continues the job."""
    from flaxattn.pipeline.run import DeviceStep

    with monkeypatch.context() as patch, pytest.raises(UnavailableError) as error:
        patch.setattr(
            "flaxattn.pipeline.run.run_program", lambda *_: (_ for _ in ()).throw(MemoryError())
        )
        patch.setattr(DeviceStep, "_bytes", lambda *_: 0)
        extract(tmp_path / "s")
    assert str(error.value).startswith("out of memory with a batch of ")
    assert len(str(error.value).splitlines()) == 3
    extract(tmp_path / "s")
    assert content(tmp_path / "s") == content(undisturbed)


@pytest.mark.parametrize("trial", range(15 if FULL else 1))
def test_a_lost_worker_names_its_texts_and_the_same_call_continues(
    extract: Extract,
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trial: int,
) -> None:
    """F13: a worker is killed, hangs or fails at once or later; reported within a minute."""
    kind = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM)[trial % 3]
    monkeypatch.setattr(
        "flaxattn.pipeline.tokenize_texts.TokenPrefetch.__init__.__defaults__", (0, 20.0)
    )

    def kill() -> None:
        while not (children := multiprocessing.active_children()):
            time.sleep(0.01)
        time.sleep(0.3 * (trial // 3))
        os.kill(children[0].pid or 0, kind)

    killer, started = threading.Thread(target=kill), time.monotonic()
    killer.start()
    with pytest.raises(UnavailableError) as error:
        extract(tmp_path / "s", workers=1)
    killer.join()
    assert time.monotonic() - started < 60
    assert "(a.txt:" in str(error.value) and len(str(error.value).splitlines()) <= 3
    extract(tmp_path / "s")
    assert content(tmp_path / "s") == content(undisturbed)


def test_a_rival_that_was_quicker_is_no_harm(
    extract: Extract, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F24: on a file system without locks two jobs may do the same."""
    store = tmp_path / "s"

    class Rival(Watcher):
        def planned(self, *_: Any) -> None:
            shutil.copytree(undisturbed / "shards", store / "shards")

    report = extract(store, watcher=Rival())
    assert (report.written, report.missing) == (0, 0)
    assert content(store) == content(undisturbed)


def test_what_is_stored_does_not_know_where_the_model_lies(
    bert, extract: Extract, undisturbed: Path, tmp_path: Path
) -> None:
    store = shutil.copytree(undisturbed, tmp_path / "store")
    shutil.rmtree(store / "shards/00001")
    extract(store, dataclasses.replace(bert, name="elsewhere/b"))
    assert content(store) == content(undisturbed)


def test_stored_traces_are_whole(undisturbed: Path, extract: Extract, tmp_path: Path) -> None:
    extract(tmp_path / "again")
    for one, other in zip(*map(fa.open_store, (undisturbed, tmp_path / "again")), strict=True):
        store_cases.same(one, other)
