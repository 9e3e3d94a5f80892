# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Which files a path, a pattern, a folder of a data set and a pipe stand for."""

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flaxattn.corpus.input_files import Fingerprint, find_inputs, fingerprint
from flaxattn.errors import InputError

ROWS = pa.table({"text": ["one", "two", "three"]})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: str, content: str = "x\n") -> Path:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)
    return target


def found(*named: str | Path, **options: object) -> list[str]:
    return [str(file.path) for file in find_inputs(named, **options)]  # type: ignore[arg-type]


def refusal(*named: str | Path, **options: object) -> str:
    with pytest.raises(InputError) as error:
        found(*named, **options)
    assert len(str(error.value).splitlines()) <= 3
    return str(error.value)


def pipe(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))


def saved(where: Path, shards: int) -> None:
    """A data set as `save_to_disk` writes it."""
    where.mkdir(parents=True)
    names = [f"data-{n:05}-of-{shards:05}.arrow" for n in range(shards)]
    for name in names:
        with pa.ipc.new_stream(where / name, ROWS.schema) as stream:
            stream.write_table(ROWS)
    index = {"_data_files": [{"filename": name} for name in names], "_split": "train"}
    (where / "state.json").write_text(json.dumps(index))
    (where / "dataset_info.json").write_text("{}")


def test_order_is_as_named_and_sorted_inside_a_pattern(folder: Path) -> None:
    for name in ("b.txt", "c.txt", "a.txt", "sub/d.txt", "z.jsonl"):
        write(name)
    assert found("z.jsonl", "*.txt") == ["z.jsonl", "a.txt", "b.txt", "c.txt"]
    assert found("**/*.txt") == ["a.txt", "b.txt", "c.txt", "sub/d.txt"]
    assert found("[ab].txt") == ["a.txt", "b.txt"]
    write("[ab].txt")
    assert found("[ab].txt") == ["[ab].txt"]  # a file of that name is meant
    assert refusal("*.csv").startswith("no file matches *.csv\n")
    assert refusal().startswith("no text to read\n")
    assert refusal("a.txt", "./a.txt").startswith(f"{folder / 'a.txt'} is named twice\n")


def test_names_do_not_depend_on_where_the_files_lie(folder: Path) -> None:
    for name in ("one/a.txt", "one/b.txt", "two/x/a.txt"):
        write(name)
    assert [f.name for f in find_inputs(["one/a.txt", "one/b.txt"])] == ["a.txt", "b.txt"]
    assert [f.name for f in find_inputs([folder / "one/a.txt"])] == ["a.txt"]
    assert [f.name for f in find_inputs(["one/a.txt", "two/x/a.txt"])] == [
        "one/a.txt",
        "two/x/a.txt",
    ]


def test_a_saved_data_set(folder: Path) -> None:
    saved(folder / "set/train", 2)
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    assert found("set/train") == [f"set/train/{name}" for name in names]
    saved(folder / "set/test", 1)
    write("set/dataset_dict.json", '{"splits": ["train", "test"]}')
    assert refusal("set") == (
        "set holds several splits: test, train\nname one of them, for example set/test"
    )
    for index in (
        '{"_data_files": [{"filename": "../secret.arrow"}]}',
        "{}",
        "[",
        '{"_data_files": []}',
    ):
        write("set/train/state.json", index)
        assert refusal("set/train").startswith("set/train/state.json is not the index of a saved")


def test_a_store_and_a_model_are_no_data_sets(folder: Path) -> None:
    write("MODEL/config.json", "{}")
    assert refusal("MODEL").startswith("MODEL is the folder of a model, and texts are expected")
    write("MODEL/rows.jsonl", "{}")  # a data set with a config.json is one all the same
    assert found("MODEL") == ["MODEL/rows.jsonl"]
    write("STORE/plan.json", "{}")
    write("STORE/shards/00000/texts.parquet", "")
    assert refusal("STORE").startswith("STORE is a store of attention, and texts are expected")


def test_a_folder_of_one_kind_of_file(folder: Path) -> None:
    for name in ("b.jsonl", "a.jsonl.gz", "README.md", ".cache/c.jsonl", "_SUCCESS", "x.txt"):
        write(f"data/{name}")
    pq.write_table(ROWS, folder / "t.parquet")
    assert found("data") == ["data/a.jsonl.gz", "data/b.jsonl"]
    (folder / "t.parquet").rename(folder / "data/t.parquet")
    assert "found files of several kinds: parquet, jsonl" in refusal("data")
    (folder / "empty").mkdir()
    assert "found none of these" in refusal("empty")


def test_what_cannot_be_read_is_known_before_it_is_read(folder: Path) -> None:
    os.mkfifo("pipe.txt")
    write("empty.txt", "")
    write("good.txt", "a\n")
    files = find_inputs(["pipe.txt", "empty.txt", "absent.txt", "good.txt"])
    codes = [file.problem and file.problem.code for file in files]
    assert codes == ["not-a-file", "empty-file", "missing-file", None]
    digest = "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7"
    assert fingerprint(files) == (Fingerprint("good.txt", 2, digest),)


def test_standard_input_is_kept_for_the_next_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, b"one\ntwo\n")
    assert refusal("-") == "standard input cannot be read here\nname a file"
    store = folder / "store"
    store.mkdir()
    for content in (b"one\ntwo\n", b"one\ntwo\n", b""):
        pipe(monkeypatch, content)
        (file,) = find_inputs(["-"], folder=store)
        assert (file.path, file.name, file.kind) == (store / "stdin.txt", "stdin.txt", "txt")
        assert file.path.read_bytes() == b"one\ntwo\n"
    pipe(monkeypatch, b"one\n")
    assert refusal("-", folder=store).startswith("standard input is not what")
    assert file.path.read_bytes() == b"one\ntwo\n"
    pipe(monkeypatch, b"{}\n")
    assert found("-", folder=store, kind="jsonl") == [str(store / "stdin.jsonl")]
    assert sorted(os.listdir(store)) == ["stdin.jsonl", "stdin.txt"]


def test_a_pipe_that_breaks_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Breaks()))
    with pytest.raises(OSError, match="Input/output"):
        find_inputs(["-"], folder=folder)
    assert not os.listdir(folder)
