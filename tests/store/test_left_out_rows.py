# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Stores of a corpus with rows that cannot be used: what is kept, what is listed, what is read."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.store.export import export
from flaxattn.store.extract_to import Watcher
from flaxattn.store.head_numbers import corpus_means
from flaxattn.store.merge_stores import merge
from flaxattn.store.open_store import ExampleNumbers, example_of, read_texts, search_texts
from flaxattn.store.verify_store import describe, verify

WORDS = "the cat is very sad because nobody came home".split()
MAPS = fa.Capture(weights=True, stats=("entropy",))
LONG = " ".join(["the"] * 600)  # the model takes fewer
ROWS = ["", "the cat", LONG, "is very sad", *[""] * 4, "because", "nobody came", LONG, "home"]
"""Shards of four rows: two texts, none, three."""
KEPT = {0: "the cat", 1: "is very sad", 8: "because", 9: "nobody came", 10: "home"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "a.txt"
    path.write_text("\n".join(ROWS) + "\n")
    return path


@pytest.fixture(scope="module")
def extract(tiny_bert, corpus: Path) -> Callable[..., Any]:
    def called(store: Path, inputs: Any = corpus, **options: Any) -> Any:
        usual = {"capture": MAPS, "shard_texts": 4, "devices": jax.devices()[:1]}
        return fa.extract_to(store, tiny_bert, inputs, **{**usual, **options})

    return called


@pytest.fixture(scope="module")
def tiny_bert():
    return fa.from_pretrained("tiny-bert")


@pytest.fixture(scope="module")
def path(extract, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("left-out") / "store"
    extract(store, on_error="quarantine")
    return store


def content(store: Path) -> dict[str, bytes]:
    files = (path for path in store.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(store).as_posix(): path.read_bytes() for path in files}


def test_every_reader_of_a_store_reads_the_texts_that_are_there(
    path: Path, tiny_bert, tmp_path: Path
) -> None:
    store = fa.open_store(path)
    assert store.complete and store.examples == list(KEPT) == list(ExampleNumbers(store))
    assert [trace.texts[0][0] for trace in store] == list(KEPT.values())
    for example, text in KEPT.items():
        weights = tiny_bert.trace(text).encoder.weights[:, 0]
        np.testing.assert_allclose(store.weights(example), weights, rtol=0, atol=1e-5)
    assert len(store) == 5 and store[-1].texts[0][0] == "home"
    assert store[-5].texts[0][0] == "the cat"
    for example in (2, 7, 11):
        with pytest.raises(InputError, match=r"rows of its shard were left out\nthe shard has"):
            store[example]
    assert [text.text for text in read_texts(store, [10, 0])] == ["home", "the cat"]
    assert search_texts(store, "came", 5).tolist() == [9]
    assert example_of(store, "a.txt:12") == 10
    assert store.stats()["example"].unique().to_pylist() == list(KEPT)
    assert corpus_means(store).texts == 5
    facts = describe(store)
    assert (facts["texts"], facts["texts_present"], facts["complete"]) == (5, 5, True)
    for form in ("npz", "csv"):
        export(store, tmp_path / form, form)
    names = sorted(os.listdir(tmp_path / "npz"))
    assert [int(name[:2]) for name in names[:5]] == list(KEPT)
    assert len(fa.head_stats(store).lengths) == 5


def test_rows_that_are_left_out_are_listed_with_their_shard(path: Path, extract) -> None:
    listed = [json.loads(line) for line in (path / "errors.jsonl").read_text().splitlines()]
    assert [row["line"] for row in listed] == [1, 3, 5, 6, 7, 8, 11]
    assert {row["file"] for row in listed} == {"a.txt"}
    report = extract(path, on_error="quarantine")
    assert report.rows == {"rows": 12, "kept": 5, "bad": {"empty": 5, "too-many-tokens": 2}}
    assert (report.texts, report.there, report.written, report.truncated) == (5, 3, 0, 0)


def test_a_dry_run_counts_what_the_job_finds(path: Path, extract, tmp_path: Path) -> None:
    dry = extract(tmp_path / "none", on_error="skip", dry_run=True)
    done = extract(path, on_error="quarantine")
    for name in ("texts", "tokens", "bytes", "shards", "rows", "truncated"):
        assert getattr(dry, name) == getattr(done, name), name
    assert (dry.there, dry.missing) == (0, 3)
    assert not (tmp_path / "none").exists()


def test_parts_and_other_folders_make_the_same_store(path: Path, extract, tmp_path: Path) -> None:
    for part in (1, 0, 2):
        extract(tmp_path / f"{part}", on_error="quarantine", shard=(part, 3))
    merge([tmp_path / f"{part}" for part in range(3)], tmp_path / "out")
    assert content(tmp_path / "out") == content(path)
    assert not verify(tmp_path / "out").damage


def test_verify_finds_every_damage_of_the_lists(path: Path, tmp_path: Path) -> None:
    store = shutil.copytree(path, tmp_path / "store")
    assert not verify(store).damage
    (store / "shards/00002/errors.jsonl").with_name("other").touch()  # none of the shard's files
    assert [entry.file for entry in verify(store).damage] == ["shards/00002/other"]
    (store / "shards/00002/other").unlink()
    for name in ("errors.jsonl", "shards/00001/errors.jsonl"):
        whole = (store / name).read_bytes()
        for bit in range(0, 8 * len(whole), 97):
            hurt = bytearray(whole)
            hurt[bit // 8] ^= 1 << bit % 8
            (store / name).write_bytes(hurt)
            assert [entry.file for entry in verify(store).damage] == [name]
        (store / name).write_bytes(whole)
    assert not verify(store).damage
    shutil.rmtree(store / "shards/00001")  # the list of a store that is filled may differ
    assert not verify(store).damage


def test_a_list_is_brought_up_to_date_by_every_job(path: Path, extract, tmp_path: Path) -> None:
    store = shutil.copytree(path, tmp_path / "store")
    shutil.rmtree(store / "shards/00000")
    lines = (store / "errors.jsonl").read_text().splitlines(keepends=True)
    (store / "errors.jsonl").write_text("".join(lines[2:]))
    extract(store, on_error="skip")
    assert content(store) == content(path)


def test_a_job_that_met_a_bad_row_continues_without_it(
    extract, corpus: Path, path: Path, tmp_path: Path
) -> None:
    """Rows after the first thousand are read when their shard is computed."""
    rows = [WORDS[n % 9] for n in range(1100)] + ["", "the cat"]
    (tmp_path / "a.txt").write_text("\n".join(rows) + "\n")
    capture = fa.Capture(stats=("entropy",))
    settings = {"inputs": tmp_path / "a.txt", "shard_texts": 400, "capture": capture}
    with pytest.raises(InputError, match=r'line 1101, .*\n.*on_error="skip"'):
        extract(tmp_path / "store", **settings)
    there = fa.open_store(tmp_path / "store").shards
    report = extract(tmp_path / "store", on_error="skip", **settings)
    assert (report.there, report.written) == (len(there), 3 - len(there))
    assert report.rows == {"rows": 1102, "kept": 1101, "bad": {"empty": 1}}
    extract(tmp_path / "whole", on_error="skip", **settings)
    assert content(tmp_path / "whole") == content(tmp_path / "store")


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl"])
def test_a_corpus_of_any_format_is_read_in_parts(
    extract, path: Path, tmp_path: Path, name: str
) -> None:
    lines = [json.dumps({"text": row}) for row in ROWS] if "json" in name else ROWS
    data = ("\n".join(lines) + "\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    for part in (2, 1, 0):
        extract(tmp_path / "s", tmp_path / name, on_error="skip", shard=(part, 3))
    ours, theirs = fa.open_store(tmp_path / "s"), fa.open_store(path)
    assert ours.examples == theirs.examples
    for one, other in zip(ours, theirs, strict=True):
        assert one.texts == other.texts
        np.testing.assert_array_equal(one.encoder.weights, other.encoder.weights)


def test_a_corpus_that_changes_while_it_is_read_is_refused(extract, tmp_path: Path) -> None:
    rows = [WORDS[n % 9] for n in range(12)]
    (tmp_path / "a.txt").write_text("\n".join(rows))

    class Changing(Watcher):
        def planned(self, *_: Any) -> None:
            (tmp_path / "a.txt").write_text("\n".join(reversed(rows)))

    with pytest.raises(InputError, match="a file of the corpus changed while it was read"):
        extract(tmp_path / "s", tmp_path / "a.txt", watcher=Changing())
    assert not (tmp_path / "s/shards").exists()
    with pytest.raises(InputError, match=r"changed: file a\.txt"):
        extract(tmp_path / "s", tmp_path / "a.txt")

    class Removing(Watcher):
        def planned(self, *_: Any) -> None:
            (tmp_path / "a.txt").unlink()

    with pytest.raises(InputError, match="a file of the corpus changed while it was read"):
        extract(tmp_path / "t", tmp_path / "a.txt", watcher=Removing())
