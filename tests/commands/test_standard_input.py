# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A mistyped path is not taken for a text, unless --text says that it is one."""

import contextlib
import io
import json
import os

import pytest

from flaxattn import cli
from flaxattn.commands.text_arguments import check_no_path, given_text
from flaxattn.errors import InputError

PATHS = (
    *("corpus.txt", "corpus.TXT", "c.csv", "c.tsv", "c.jsonl", "c.parquet", "c.arrow", "c.conllu"),
    *("a.npz", "a.safetensors", "page.html", "c.txt.gz", "c.conllu.zst", "./corpus", "runs/store"),
    *("../x", "/nowhere/at/all", "store/"),
)
TEXTS = (
    *("corpus", "Good.", "e.g.", "The file a.txt is here.", "12/07/2003", "12.07.2003", "1/2"),
    *("", " ", "-", "a text and/or another", "see a/b\n", "U.S.A", "v2.0"),
)


@pytest.mark.parametrize("argument", PATHS)
def test_what_looks_like_a_path_is_refused_in_three_lines(tmp_path, monkeypatch, argument):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^There is no (trace file|file or folder) '") as refused:
        given_text(argument)
    assert len(str(refused.value).splitlines()) == 3 and "--text" in str(refused.value)
    assert given_text(argument, is_text=True) == argument


@pytest.mark.parametrize("argument", TEXTS)
def test_texts_are_texts(argument):
    check_no_path(argument)


def test_near_names_are_suggested(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("corpus.txt", "other.csv"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"names like it: corpus\.txt\n"):
        given_text("corpsu.txt")
    with pytest.raises(InputError, match="has a name like it"):
        given_text("qqqqq.jsonl")
    with pytest.raises(InputError, match="the folder no/such is not there either"):
        given_text("no/such/corpus.txt")
    (tmp_path / "evil\x1b.txt").touch()
    with pytest.raises(InputError) as refused:
        given_text("evil\x1b\x1b.txt")
    assert "\x1b" not in str(refused.value)


def test_a_file_in_place_of_a_text_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("A cat.\n", encoding="utf-8")
    with pytest.raises(InputError, match="where a text is expected") as refused:
        given_text("corpus.txt")
    assert len(str(refused.value).splitlines()) == 3 and "< FILE" in str(refused.value)


@pytest.mark.parametrize("words", [("view", "tiny-bert"), ("view", "M"), ("generate", "tiny-gpt2")])
def test_a_model_in_place_of_a_text_is_refused(typed, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "M").mkdir()
    (tmp_path / "M/config.json").write_text("{}", encoding="utf-8")
    code, out, error = typed(*words)
    assert code == 2 and not out and len(error.splitlines()) == 3
    assert "is a model, where a text is expected" in error


@pytest.mark.parametrize(
    "words",
    [
        ("view", "corpus.txt"),
        ("view", "stroe/"),
        ("view", "A cat.", "second.txt"),
        ("generate", "prompt.txt"),
        ("search", "query", "index", "sentence.txt", "--token", "1"),
    ],
)
def test_no_command_takes_a_mistyped_path_for_a_text(typed, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    code, out, error = typed(*words)
    assert code == 2 and not out and len(error.splitlines()) == 3
    assert "There is no file or folder" in error and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_text_forces_it(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert typed("view", "corpus.txt", "--text")[0] == 0
    assert (tmp_path / "attention.html").is_file()
    code, out, _ = typed("generate", "and/or", "--text", "--max-new-tokens", 2)
    assert code == 0 and out.startswith("and/or")


def modes_in(folder):
    """The permissions of the files of a folder."""
    return {path.stat().st_mode & 0o777 for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "stats - --no-page --compared 0",
        "weights - --kinds attention",
        "compare tiny-bert tiny-bert - --no-page",
        "ablate - --no-page --measure importance",
    ],
)
def test_a_report_of_standard_input_in_a_new_folder(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"The cat sat.\nIt rained.\n")))
    assert cli.main([*words.split(), "--out", "new/report"]) == 0
    command = words.split()[0]
    assert json.loads((tmp_path / f"new/report/{command}.json").read_bytes())["request"]
    assert (tmp_path / "new/report/stdin.txt").read_bytes() == b"The cat sat.\nIt rained.\n"
    assert modes_in(tmp_path / "new/report") == {0o600}  # as the text that they show


@pytest.fixture
def pipe(monkeypatch):
    """Makes standard input a pipe with some bytes in it."""
    with contextlib.ExitStack() as opened:

        def pipe(data):
            reading, writing = os.pipe()
            with os.fdopen(writing, "wb") as ours:
                ours.write(data)
            theirs = opened.enter_context(os.fdopen(reading, encoding="utf-8"))
            monkeypatch.setattr("sys.stdin", theirs)

        yield pipe


@pytest.mark.float16
def test_an_index_is_built_from_a_pipe_and_again_from_what_it_gave(
    typed, pipe, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    words = "search", "build", "-", "--layers", 1, "--out", "new/index"
    pipe(b"The cat sat.\nIt rained.\n")
    assert typed(*words, "--model", tmp_path / "none")[0] != 0
    assert not list(tmp_path.glob("new/*/*"))
    pipe(b"The cat sat.\nIt rained.\n")
    for _ in range(2):
        code, out, _ = typed(*words)
        assert code == 0 and out.endswith("with 2 texts\n")
        pipe(b"")
    query = "search", "query", "new/index", "The cat.", "--token", "cat", "--head", "1.0"
    assert typed(*query)[0] == 0
    pipe(b"The cat sat.\n")
    code, _, err = typed(*words)
    assert code == 2 and "standard input is not what" in err and len(err.splitlines()) <= 3
