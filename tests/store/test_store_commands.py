# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn store`: what it prints, exports that other programs read, stores put together."""

import csv
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import store_cases as cases

import flaxattn as fa
from flaxattn.cli import main
from flaxattn.errors import CheckpointError, InputError, StoreError
from flaxattn.files import csv_cell, printable, safe_name
from flaxattn.store.commit_shards import write_shard
from flaxattn.store.export import export
from flaxattn.store.merge_stores import merge
from flaxattn.store.open_store import Store
from flaxattn.store.verify_store import shard_sizes, verify
from flaxattn.trace.trace import Trace

# F26: what an id, or the name of a file, may try.
PATHS = [
    "../up",
    "../../../../etc/passwd",
    "/absolute",
    "C:\\windows\\system32",
    "a\\b",
    "nul\0byte",
    "CON",
    "aux.txt",
    "COM1",
    "x" * 300,
    "trailing.",
    "trailing ",
    ".",
    "..",
    "",
    ".hidden",
    "%2e%2e%2fup",
    "\uff0e\uff0e\uff0fup",
    "a/b/c",
    "~root",
    "-rf",
    "new\nline",
    "A",
    "a",
    "a",
]


@pytest.fixture(scope="module")
def texts() -> list[Trace]:
    return cases.traces("seq2seq", 7, "uint8", seed=1)


@pytest.fixture(scope="module")
def path(texts: list[Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cases.write(tmp_path_factory.mktemp("commands") / "store", texts)


def test_names_are_harmless_and_stay_different() -> None:
    names = [safe_name(name) for name in PATHS]
    for given, name in zip(PATHS, names, strict=True):
        assert 0 < len(name) <= 73 and name.isascii() and name[0] not in ".-"
        assert not set(name) & set('/\\:*?"<>|\0\n ~%')
        assert name.split(".")[0].upper() not in ("CON", "AUX", "COM1")
        assert safe_name(given) == name
    assert len(set(names)) == len(set(PATHS))
    assert safe_name("corpus.txt-12") == "corpus.txt-12"


def test_ids_lead_nowhere_but_into_the_folder(tmp_path: Path) -> None:
    """F26: in the ids of texts, and in the files they came from."""
    texts = cases.traces("decoder", len(PATHS))
    (tmp_path / "a").mkdir()
    shards, sha256 = cases.plan(tmp_path / "a/store", len(PATHS), len(PATHS))
    items = [
        (replace(item[0], id=name, file=name), item[1])
        for item, name in zip(cases.items(texts), PATHS, strict=True)
    ]
    write_shard(tmp_path / "a/store", sha256, 0, shards[0], items)
    store = fa.open_store(tmp_path / "a/store")
    for form in ("npz", "npy", "bertviz"):
        out = tmp_path / "a" / form
        names = export(store, out, form)
        assert len(names) == (2 if form == "npy" else 1) * len(PATHS) + 1
        rows = json.loads((out / "index.json").read_text())
        assert [row["id"] for row in rows] == PATHS  # one file for each, also of equal ids
        assert len({row["name"].lower() for row in rows}) == len(PATHS)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["bertviz", "npy", "npz", "store"]
    assert not [p for p in (tmp_path / "a").rglob("*") if p.is_dir() and p.parent.name in names]


def test_npz_and_npy_hold_what_is_stored(path: Path, texts: list[Trace], tmp_path: Path) -> None:
    store = fa.open_store(path)
    export(store, tmp_path, "npz", [0, 6])
    export(store, tmp_path, "npy", [6])
    with np.load(tmp_path / f"6-{safe_name('corpus.txt:7')}.npz", allow_pickle=False) as kept:
        for side in ("encoder", "decoder", "cross"):
            assert np.array_equal(kept[f"{side}.weights"], store.weights(6, side=side))
            entropy = getattr(texts[6], side).stats["entropy"][:, 0]
            assert np.array_equal(kept[f"{side}.entropy"], entropy)
        assert kept["written"].tolist() == list(texts[6].written[0])
        assert kept["cross.layers"].tolist() == [0, 3]
    layer = np.load(next(tmp_path.glob("6-*.cross_attentions.03.npy")), allow_pickle=False)
    assert np.array_equal(layer[0], store.weights(6, layer=3, side="cross"))
    assert len(list(tmp_path.glob("*.npy"))) == 6


def test_bertviz_gets_its_arguments(path: Path, tmp_path: Path) -> None:
    store = fa.open_store(path)
    export(store, tmp_path, "bertviz", [2])
    facts = json.loads(next(tmp_path.glob("2-*.json")).read_text())
    text = store[2]
    assert facts["encoder_tokens"] == text.tokens[0]
    assert facts["decoder_tokens"] == text.decoder_tokens[0]
    for side in ("encoder", "decoder", "cross"):
        np.testing.assert_allclose(
            np.array(facts[f"{side}_attention"])[:, 0], store.weights(2, side=side), atol=5e-7
        )
    (single,) = cases.traces("encoder", 1)
    other = fa.open_store(cases.write(tmp_path / "encoder", [single]))
    export(other, tmp_path / "out", "bertviz")
    (name,) = (tmp_path / "out").glob("0-*.json")
    facts = json.loads(name.read_text())
    assert list(facts) == ["tokens", "sentence_b_start", "attention"]
    assert facts["sentence_b_start"] == len(single.tokens[0]) // 2


def test_formulas_and_escapes_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F29: ten payloads, in ids, texts and tokens; in CSV and on the terminal."""
    payloads = [
        "=1+1",
        "+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(1)",
        "\t=1",
        "\r=1",
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "\u202egnp.exe",
        "[bold]markup[/bold]",
    ]
    rng = np.random.default_rng(0)
    weights = cases.maps(rng, 10, 10)
    trace = Trace.from_arrays(weights, [payloads], texts=[(payloads[0],)])
    shards, sha256 = cases.plan(tmp_path / "store", 10, 10)
    items = [
        (replace(item[0], id=payload), item[1])
        for item, payload in zip(cases.items([trace] * 10), payloads, strict=True)
    ]
    write_shard(tmp_path / "store", sha256, 0, shards[0], items)
    export(fa.open_store(tmp_path / "store"), tmp_path / "out", "csv")
    for name in ("texts.csv", "tokens.csv"):
        with (tmp_path / "out" / name).open(encoding="utf-8", newline="") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    with (tmp_path / "out/texts.csv").open(encoding="utf-8", newline="") as file:
        kept = {row["id"] for row in csv.DictReader(file)}
    assert kept == {csv_cell(payload) for payload in payloads}
    for number in range(10):
        assert main(["store", "info", str(tmp_path / "store"), "--example", str(number)]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed and "\u202e" not in printed and "\x07" not in printed
    assert (
        "\\x1b[31mred" in printed
        and "[bold]markup[/bold]" in printed
        and "\\u202egnp.exe" in printed
    )
    assert printable("plain é 漢 👩\u200d🚀") == "plain é 漢 👩\u200d🚀"


def test_info_says_what_is_there(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["store", "info", str(path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["texts"] == 7 and printed["shards_present"] == 3 and printed["complete"]
    assert [side["side"] for side in printed["sides"]] == ["encoder", "decoder", "cross"]
    assert (
        printed["sides"][2]["layers"] == "0, 3" and "weights uint8" in printed["sides"][2]["arrays"]
    )
    assert printed["bytes"] == sum(p.stat().st_size for p in _files(path / "shards"))
    assert main(["store", "info", str(path)]) == 0
    assert "weights uint8" in capsys.readouterr().out
    assert main(["store", "info", str(path), "--example", "7"]) == 2
    assert capsys.readouterr().err == f"error: {path} has examples 0 to 6; there is no 7\n"


def test_verify_prints_each_damage(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["store", "verify", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("3 of 3 shards, ") and printed.endswith("files: all are as written\n")
    hurt = shutil.copytree(path, tmp_path / "hurt")
    (hurt / "shards/00001/texts.parquet").unlink()
    (hurt / "shards/00002/extra").touch()
    assert main(["store", "verify", str(hurt), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["damage"] == [
        {"file": "shards/00001/texts.parquet", "what": "No such file or directory"},
        {"file": "shards/00002/extra", "what": "it does not belong to the shard"},
    ]
    shutil.rmtree(hurt / "shards/00000")
    assert main(["store", "verify", str(hurt)]) == 1
    printed = capsys.readouterr().out
    assert (
        "2 of 3 shards, " in printed
        and "files: 2 damaged\n" in printed
        and "texts.parquet" in printed
    )
    assert "missing: 00000; run the same `flaxattn extract` again, or pass --unfinished" in printed
    assert main(["store", "verify", str(tmp_path / "none")]) == 2


def test_a_missing_shard_is_no_success_unless_the_job_is_unfinished(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hurt = shutil.copytree(path, tmp_path / "hurt")
    shutil.rmtree(hurt / "shards/00001")
    assert main(["store", "verify", str(hurt)]) == 1
    assert "missing: 00001; run the same `flaxattn extract` again" in capsys.readouterr().out
    assert main(["store", "verify", str(hurt), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["missing"] == [1]
    assert main(["store", "verify", str(hurt), "--unfinished"]) == 0
    assert capsys.readouterr().out.endswith("files: all are as written\nmissing: 00001\n")


@pytest.mark.parametrize("form", ["npz", "csv"])
def test_an_export_is_as_private_as_the_texts_of_its_store(
    texts: list[Trace], tmp_path: Path, form: str
) -> None:
    one = cases.write(tmp_path / "one", texts)
    for mode in (0o600, 0o644):
        (one / "shards/00000/texts.parquet").chmod(mode)
        assert main(["store", "export", str(one), "-o", str(tmp_path / "x"), "--format", form]) == 0
        assert {path.stat().st_mode & 0o777 for path in (tmp_path / "x").iterdir()} == {mode}


@pytest.mark.parametrize("copy", [False, True])
def test_a_merged_store_is_as_private_as_those_it_is_made_of(
    texts: list[Trace], tmp_path: Path, copy: bool
) -> None:
    one = cases.write(tmp_path / "one", texts)
    private = "shards/00000/texts.parquet"
    (one / private).chmod(0o600)
    merge([one], tmp_path / "out", copy=copy)
    assert (tmp_path / "out" / private).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("copy", [False, True])
def test_stores_of_one_plan_become_one(
    path: Path, texts: list[Trace], tmp_path: Path, copy: bool
) -> None:
    parts = [
        cases.write(tmp_path / f"{n}", texts, only=only) for n, only in enumerate(([0, 1], [1]))
    ]
    out = tmp_path / "out"
    found = merge(parts, out, copy=copy)
    assert found.shards == 2 and found.missing == [2]
    assert found.copied == (1 if not copy else 1 + len(_files(out / "shards")))
    linked = (out / "shards/00000/texts.parquet").stat().st_nlink
    assert linked == (1 if copy else 2)
    assert not verify(out).damage
    third = cases.write(tmp_path / "third", texts, only=[2])
    whole = tmp_path / "whole"
    whole.mkdir()  # an empty folder will do
    assert main(["store", "merge", str(out), str(third), "-o", str(whole)]) == 0
    for text, read in zip(texts, fa.open_store(whole), strict=True):
        cases.same(text, read)
    assert _content(whole) == _content(path)


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def _content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in _files(folder)}


def test_a_merge_is_whole_or_not_at_all(path: Path, texts: list[Trace], tmp_path: Path) -> None:
    other = cases.write(tmp_path / "other", texts[:5])
    with pytest.raises(InputError, match=r"were made under different plans\nonly stores with the"):
        merge([path, other], tmp_path / "out")
    with pytest.raises(InputError, match=r"is in use\nname a new folder"):
        merge([path], other)
    hurt = shutil.copytree(path, tmp_path / "hurt")
    (table := hurt / "shards/00002/tokens.parquet").write_bytes(b"PAR1")
    with pytest.raises(StoreError, match=r"tokens.parquet is damaged: it has 4 bytes instead"):
        merge([hurt], tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hurt", "other"]
    merge([hurt, path], tmp_path / "out")  # the other one is whole
    assert not verify(tmp_path / "out").damage and table.stat().st_size == 4
    differing = cases.write(tmp_path / "differing", cases.traces("seq2seq", 7, seed=2))
    with pytest.raises(StoreError, match=r"shard 0 of .* and of .* differ\ndelete the one"):
        merge([path, differing], tmp_path / "out2")
    assert not (tmp_path / "out2").exists()


def test_exports_refuse_what_they_cannot_say(path: Path, tmp_path: Path) -> None:
    store = fa.open_store(path)
    with pytest.raises(InputError, match=r"there is no format 'hdf5'\nchoose one of npz, npy, "):
        export(store, tmp_path / "out", "hdf5")
    statistics = fa.open_store(cases.write(tmp_path / "s", cases.traces("statistics", 1)))
    with pytest.raises(InputError, match=r"is of attention weights, and the store holds none\n"):
        export(statistics, tmp_path / "out", "npy")
    windows = fa.open_store(cases.write(tmp_path / "w", cases.traces("windows", 1)))
    with pytest.raises(InputError, match="This format needs the weights of all positions"):
        export(windows, tmp_path / "out", "bertviz")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="it is a file, not a directory"):
        export(store, tmp_path / "file", "npz")
    export(statistics, tmp_path / "csv", "csv")
    assert sorted(os.listdir(tmp_path / "csv")) == ["heads.csv", "texts.csv", "tokens.csv"]
    words = ["store", "export", str(path), "-o", str(tmp_path / "out"), "--examples"]
    assert main([*words, "0-x"]) == 2
    assert main([*words, "0,2-3", "--json"]) == 0
    assert len(os.listdir(tmp_path / "out")) == 4


def test_progress_counts_bytes_of_shards_and_texts(path: Path, tmp_path: Path) -> None:
    progress: list[tuple[str, int]] = []

    def watch(stage: str, count: int) -> None:
        progress.append((stage, count))

    sizes = shard_sizes(path)
    assert list(sizes) == [0, 1, 2]
    assert sum(sizes.values()) == sum(p.stat().st_size for p in _files(path / "shards"))
    assert shard_sizes(tmp_path / "none") == {}
    verify(path, watch)
    assert progress == [("verifying", size) for size in sizes.values()]
    progress.clear()
    merge([path, path], tmp_path / "out", watch=watch)
    assert progress == [("merging", 2 * size) for size in sizes.values()]
    progress.clear()
    export(fa.open_store(path), tmp_path / "csv", "csv", watch=watch)
    assert progress == [("exporting", 1)] * 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--examples", "0-6,9"], "has examples 0 to 6; there is no 9"),
        (["--format", "hdf5"], "there is no format 'hdf5'"),
        (["--examples", "0,4"], "does not hold shard 00001 yet"),
        ([], "does not hold shard 00001 yet"),
    ],
)
def test_an_export_is_refused_before_anything_is_read(
    words: list[str],
    message: str,
    path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = path
    if "shard" in message:
        store = shutil.copytree(path, tmp_path / "store")
        shutil.rmtree(store / "shards/00001")
    monkeypatch.setattr(Store, "__getitem__", None)
    assert main(["store", "export", str(store), "-o", str(tmp_path / "out"), *words]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) <= 3
    assert not (tmp_path / "out").exists()


def test_a_merge_is_refused_before_anything_is_read(
    path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flaxattn.store.merge_stores.check_shard", None)
    words = ["store", "merge", str(path), "-o", str(tmp_path / "out")]
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr("flaxattn.store.merge_stores.shutil.disk_usage", lambda _: usage)
    assert main([*words, "--copy"]) == 2
    error = capsys.readouterr().err
    size = sum(shard_sizes(path).values())
    assert f"{tmp_path / 'out'} needs {size:,} bytes for 3 shards; 10 are free" in error
    assert "link the files" in error and len(error.splitlines()) <= 3
    (tmp_path / "out").mkdir()
    (tmp_path / "out/file").touch()
    assert main(words) == 2
    assert "out is in use\nname a new folder" in capsys.readouterr().err
