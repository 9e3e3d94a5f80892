# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn extract` as a person types it, and what other programs read of its store."""

import io
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

import flaxattn as fa
from flaxattn import cli
from flaxattn.files import readable_size
from flaxattn.pipeline.progress_reporter import ProgressReporter, duration
from flaxattn.store.commit_shards import ShardReport
from flaxattn.store.extract_to import ExtractionProgress, JobReport
from flaxattn.store.plan import ShardPlan

Run = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.devices  # without a mesh, all devices share each batch
TEXTS = ["the cat is sad", "a b", "very very sad", "c d e", "the end ."]


@pytest.fixture(scope="module")
def folder(bert, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and a corpus of which two rows cannot be used."""
    folder = tmp_path_factory.mktemp("command")
    bert.save_pretrained(folder / "model")
    rows: list[Any] = [{"name": f"=t/{n}", "text": text} for n, text in enumerate(TEXTS)]
    lines = [json.dumps(row) for row in [*rows[:2], {"name": "x", "text": " "}, *rows[2:]]]
    (folder / "a.jsonl").write_text("\n".join([*lines, '{"name": "y"}']) + "\n")
    (folder / "a.txt").write_text("\n".join(TEXTS) + "\n")
    return folder


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    tmp_path: Path,
) -> Run:
    """Types a command; without more, of the text file into the folder `store`."""

    def typed(*words: Any, stdin: bytes | None = None) -> tuple[int, str, str]:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        usual = {"--out": tmp_path / "store", "--model": folder / "model"}
        more = [part for one in usual.items() if one[0] not in words for part in one]
        default = jax.config.jax_default_device
        jax.config.update("jax_default_device", jax.devices()[0])  # as on a machine with one
        try:
            code = cli.main(["extract", *(str(word) for word in (*words, *more))])
        finally:
            jax.config.update("jax_default_device", default)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return typed


@pytest.mark.slow
def test_a_corpus_becomes_a_store_that_anybody_reads(
    run: Run, bert, folder: Path, tmp_path: Path
) -> None:
    words = ["--id-column", "name", "--on-error", "quarantine", "--capture", "weights,stats"]
    code, out, err = run(folder / "a.jsonl", *words, "--stats", "entropy,topk(2)", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert facts["rows"] == {"rows": 7, "kept": 5, "bad": {"empty": 1, "missing-column": 1}}
    assert (facts["texts"], facts["shards"], facts["written"], facts["missing"]) == (5, 1, 1, 0)
    assert re.search(r"7 rows, about \d+ tokens: 1 of 1 shards to compute; about", err)
    store = tmp_path / "store"
    listed = [json.loads(line) for line in (store / "errors.jsonl").read_text().splitlines()]
    assert [(row["line"], row["column"], row["code"]) for row in listed] == [
        (3, "text", "empty"),
        (7, "text", "missing-column"),
    ]
    capture = fa.Capture(weights=True, stats=("entropy", "topk(2)"), dtype="float16")
    traces = [bert.trace(text, capture=capture) for text in TEXTS]
    opened = fa.open_store(store)
    for number, trace in enumerate(traces):
        weights = opened.weights(number, layer=1, head=0)
        np.testing.assert_allclose(weights, trace.encoder.weights[1, 0, 0], rtol=0, atol=1e-3)
    texts = pq.read_table(store / "shards/00000/texts.parquet").to_pylist()
    assert [(row["id"], row["text"], row["line"]) for row in texts] == [
        (f"=t/{n}", text, line)
        for n, (text, line) in enumerate(zip(TEXTS, (1, 2, 4, 5, 6), strict=True))
    ]
    tokens = pq.read_table(store / "shards/00000/tokens.parquet")
    entropy = [
        trace.encoder.stats["entropy"][:, 0, :, q]
        for trace in traces
        for q in range(len(trace.tokens[0]))
    ]
    found = np.array(tokens["encoder.entropy"].to_pylist()).reshape(-1, 2, 2)
    np.testing.assert_allclose(found, np.stack(entropy), rtol=0, atol=1e-5)
    maps = zarr.open(store / "shards/00000/maps.zarr", mode="r")["encoder.weights"]
    first = texts[1]
    start, n = first["encoder_offset"], first["encoder_queries"]
    plain = maps[0, 1, start : start + n * n].reshape(n, n)
    assert plain.dtype == np.float16
    np.testing.assert_array_equal(plain, opened.weights(1, layer=0, head=1))


@pytest.mark.float16
def test_a_table_at_the_end_and_nothing_to_do_the_second_time(run: Run, folder: Path) -> None:
    code, out, err = run(folder / "a.txt")
    assert code == 0
    rows = dict(line.strip("│ ").split("│") for line in out.splitlines() if "│" in line)
    printed = {name.strip(): value.strip() for name, value in rows.items()}
    assert (printed["texts"], printed["shards written"], printed["rows found"]) == ("5", "1", "5")
    printed, last = err.splitlines()[-2:]
    assert printed == "the time left is known after the first shard"
    assert last.startswith("extracting: 25 of 25 tokens, shard 1 of 1: 5 texts, ")
    code, out, err = run(folder / "a.txt", "--json")
    assert (code, json.loads(out)["written"], json.loads(out)["there"]) == (0, 0, 1)
    assert "0 of 1 shards to compute; 1 are there; about 0 bytes of attention" in err
    code, _, err = run(folder / "a.txt", "--no-resume")
    assert code == 2 and err.splitlines()[0].endswith("store holds an extraction")
    code, _, err = run(folder / "a.txt", "--dtype", "uint8")
    assert code == 2 and "changed: capture dtype float16 -> uint8" in err


@pytest.mark.float16
def test_a_dry_run_writes_nothing(run: Run, folder: Path, tmp_path: Path) -> None:
    words = ["--dry-run", "--json", "--on-error", "quarantine"]
    code, out, _ = run(folder / "a.jsonl", *words)
    facts = json.loads(out)
    assert (code, facts["texts"], facts["tokens"], facts["shards"], facts["missing"]) == (
        0,
        5,
        25,
        1,
        1,
    )
    assert facts["bytes"] == 2 * 2 * 2 * sum((len(text.split()) + 2) ** 2 for text in TEXTS)
    assert facts["free"] > 0 and "written" not in facts
    assert not list(tmp_path.iterdir())
    assert run("-", "--dry-run", stdin=b"the cat\n")[0] == 0
    assert not list(tmp_path.iterdir())
    assert run(folder / "a.txt")[0] == 0
    code, out, _ = run(folder / "a.txt", "--dry-run", "--json")
    assert (code, json.loads(out)["there"], json.loads(out)["missing"]) == (0, 1, 0)
    code, _, err = run(folder / "a.jsonl", *words)
    assert code == 2 and "holds another extraction" in err


@pytest.mark.float16
def test_standard_input_is_kept_so_that_the_job_can_continue(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("-", "--json", stdin=b"the cat\na b c\n")
    assert (code, json.loads(out)["texts"]) == (0, 2)
    kept = tmp_path / "store/stdin.txt"
    assert kept.read_bytes() == b"the cat\na b c\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    for name in ("shards/00000/texts", "shards/00000/tokens"):
        assert (tmp_path / f"store/{name}.parquet").stat().st_mode == kept.stat().st_mode
    umask = os.umask(0)
    os.umask(umask)
    usual = (tmp_path / "store/shards/00000/manifest.json").stat().st_mode
    assert usual & 0o777 == 0o666 & ~umask
    assert run("-", stdin=b"")[0] == 0
    code, _, err = run("-", stdin=b"other\n")
    assert code == 2 and "standard input is not what" in err


@pytest.mark.float16
def test_layers_heads_and_means(run: Run, folder: Path, tmp_path: Path) -> None:
    code, *_ = run(folder / "a.txt", "--layers", "1", "--heads", "0-1", "--reduce", "offsets")
    assert code == 0
    store = fa.open_store(tmp_path / "store")
    plan = json.loads((tmp_path / "store/plan.json").read_text())
    assert plan["capture"]["layers"] == [1] and not plan["capture"]["weights"]
    assert {row["layer"] for row in store.reductions().to_pylist()} == {1}
    words = ["--reduce", "statistics", "--out", tmp_path / "more", "--limit", "2"]
    assert run(folder / "a.txt", *words)[0] == 0
    names = {row["statistic"] for row in fa.open_store(tmp_path / "more").reductions().to_pylist()}
    assert names == {"entropy", "max", "distance"}


@pytest.mark.slow
def test_several_models(run: Run, bert, folder: Path, tmp_path: Path) -> None:
    bert.save_pretrained(tmp_path / "copy")
    words = ["--model", folder / "model", "--model", tmp_path / "copy", "--json"]
    code, out, err = run(folder / "a.txt", *words)
    assert (code, json.loads(out)["written"]) == (0, 1), err
    one, other = (fa.open_store(tmp_path / "store" / name) for name in ("model", "copy"))
    np.testing.assert_array_equal(one.weights(3), other.weights(3))
    words = ["--model", folder / "model", "--model", f"{folder}/model"]
    code, _, err = run(folder / "a.txt", *words)
    assert code == 2 and err.startswith("error: two models are called 'model'")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--capture", "weight"], "'weight' is not one of weights, scores"),
        (["--stats", "entrpy"], "unknown statistic 'entrpy'"),
        (["--layers", "1-"], "'1-' is not a list of numbers such as 0,5-9"),
        (["--heads", "9"], "9"),
        (["--dtype", "int4"], "'int4'"),
        (["--reduce", "means"], "'means' is not a reduction"),
        (["--shard", "3/3"], "'3/3' is not a part of a job; expected i/N"),
        (["--on-error", "ignore"], "'ignore' is unknown"),
        (["--model", "no-such-model"], "no-such-model"),
        (["--pair-column", "b"], "plain text has no columns"),
        (["missing.txt"], "missing.txt"),
    ],
)
def test_wrong_use_is_three_lines_at_most(
    run: Run, folder: Path, words: list[str], message: str
) -> None:
    code, _, err = run(folder / "a.txt", *words)
    lines = err[err.index("error: ") :].splitlines()
    assert code == 2 and message in " ".join(lines) and len(lines) <= 4


def unusable(place: str, folder: Path) -> Path:
    """An output that cannot be written to."""
    (folder / "file").write_text("precious")
    match place:
        case "below a file":
            return folder / "file" / "below"
        case "link to a file":
            (folder / "link").symlink_to(folder / "file")
        case "link to itself":
            (folder / "link").symlink_to(folder / "link")
        case "pipe":
            os.mkfifo(folder / "link")
        case "too long":
            return folder / ("x" * 300)
        case "read-only":  # nobody may write there, root included
            return Path("/proc/store")
        case "device":
            return Path("/dev/null")
    return folder / ("file" if place == "file" else "link")


PLACES = ["file", "below a file", "link to a file", "link to itself"]
PLACES += ["pipe", "too long", "read-only", "device"]


@pytest.mark.parametrize("place", PLACES)
def test_an_output_that_cannot_be_written_is_reported_before_a_model_is_loaded(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """F16: within 5 seconds, and nothing is touched."""
    monkeypatch.setattr("flaxattn.pretrained.from_pretrained.from_pretrained", None)
    out, started = unusable(place, tmp_path), time.process_time()
    code, _, err = run(folder / "a.txt", "--out", out)
    assert time.process_time() - started < 5
    assert code == 2 and err.startswith(f"error: cannot write to {out}\n"), err
    assert len(err.splitlines()) == 3 and not os.path.isdir(out)
    assert (tmp_path / "file").read_text() == "precious"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stderr: io.StringIO) -> tuple[ProgressReporter, ExtractionProgress, list[float]]:
    now = [0.0]
    progress = ProgressReporter(stderr, lambda: now[0], delay=0, pause=10)
    return progress, ExtractionProgress(progress, lambda: now[0]), now


def test_lines_come_at_most_every_ten_seconds() -> None:
    printed = io.StringIO()
    _, watcher, now = shown(printed)
    shards = [ShardPlan(8 * n, 8 * n + 8, 100, 10**6) for n in range(11)]
    for now[0] in (1.0, 9.0, 11.0, 12.0):
        watcher.planning(int(now[0]) * 1000, 5)
    watcher.planned(JobReport(Path("s"), 88, 1100, 11 * 10**6, 12, {}, 0, 1), shards, 10**9)
    for number, shard in enumerate(shards):
        now[0] += 30 if not number else 4
        watcher.committed(shard, [ShardReport(number, 8, 500_000, True)])
    lines = printed.getvalue().splitlines()
    assert lines[1] == "planning: 11,000 rows, about 5 tokens"
    assert lines[2] == (
        "88 rows, about 1,100 tokens: 11 of 12 shards to compute; 1 are there; about 11.0 MB of "
        "attention before compression, beside the tables of texts and tokens; 1.0 GB are free"
    )
    assert lines[3] == "the time left is known after the first shard"
    assert lines[4] == (
        "extracting: 100 of 1,100 tokens, shard 1 of 11: 8 texts, 0.3 texts/s, 3 tokens/s, "
        "500.0 kB, 5.0 min left"
    )
    assert [line.split(": ")[1] for line in lines[5:]] == [
        "400 of 1,100 tokens, shard 4 of 11",
        "700 of 1,100 tokens, shard 7 of 11",
        "1,000 of 1,100 tokens, shard 10 of 11",
    ]
    assert lines[-1].endswith("5.0 MB, 4 s left")  # the first, which compiles, does not count


def test_a_terminal_gets_a_bar() -> None:
    stream = Terminal()
    progress, watcher, _ = shown(stream)
    with progress:
        watcher.planned(
            JobReport(Path("s"), 8, 10, 100, 1, {}, 0, 0), [ShardPlan(0, 8, 10, 100)], 10**9
        )
        watcher.committed(ShardPlan(0, 8, 10, 100), [ShardReport(0, 8, 50, True)])
        progress._bar.refresh()
    assert "shard 1 of 1: 8 texts" in stream.getvalue() and "━" in stream.getvalue()


def test_amounts_as_people_say_them() -> None:
    assert [readable_size(n) for n in (0, 999, 1000, 1_234_000, 5 * 10**9, 2 * 10**12)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "1.2 MB",
        "5.0 GB",
        "2.0 TB",
    ]
    assert [duration(n) for n in (0, 59.4, 60, 5400)] == ["0 s", "59 s", "1.0 min", "1.5 h"]


def test_the_engine_ray_is_refused_where_it_cannot_work(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(folder / "a.txt", "--ray-workers", 2, "--ray-logs")
    assert code == 2 and err.splitlines() == [
        "error: options of Ray are given, but the engine is local",
        "received logs, workers",
        "choose the engine ray, or leave them out",
    ]
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = run(folder / "a.txt", "--engine", "ray")
    assert code == 2 and err.splitlines()[2] == "pip install 'flaxattn[ray]'"
    code, _, err = run(folder / "a.txt", "--engine", "beam")
    assert code == 2 and err.splitlines()[1] == "choose one of local, ray"
    assert not (tmp_path / "store/plan.json").exists()


@pytest.mark.slow
def test_two_parallel_text_files_are_pairs(run: Run, bert, folder: Path, tmp_path: Path) -> None:
    """What is stored is what a table of the same pairs stores; the partner's content counts."""
    rows = list(zip(TEXTS, reversed(TEXTS), strict=True))
    (tmp_path / "b.txt").write_text("".join(f"{b}\n" for _, b in rows))
    lines = [json.dumps({"text": a, "pair": b}) for a, b in rows]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    assert run(folder / "a.txt", "--pair-file", tmp_path / "b.txt")[0] == 0
    table = tmp_path / "table"
    assert run(tmp_path / "pairs.jsonl", "--pair-column", "pair", "--out", table)[0] == 0
    ours, theirs = fa.open_store(tmp_path / "store"), fa.open_store(table)
    assert len(ours) == len(rows)
    for number, (first, second) in enumerate(rows):
        found = ours.weights(number, layer=1, head=1)
        np.testing.assert_array_equal(found, theirs.weights(number, layer=1, head=1))
        assert len(found) == len(bert.trace(first, second).tokens[0])
    plan = json.loads((tmp_path / "store/plan.json").read_text())
    assert [file["name"] for file in plan["files"]] == ["a.txt", "b.txt"]
    (tmp_path / "b.txt").write_text("".join(f"{a}\n" for a, _ in rows))
    code, _, err = run(folder / "a.txt", "--pair-file", tmp_path / "b.txt")
    assert code == 2 and "changed: file b.txt" in err
    code, _, err = run(folder / "a.txt", folder / "a.jsonl", "--pair-file", tmp_path / "b.txt")
    assert code == 2 and err.splitlines()[0] == "error: 2 inputs and 1 files after --pair-file"
    (tmp_path / "b.txt").write_text("one\n")
    words = ["--pair-file", tmp_path / "b.txt", "--dry-run"]
    code, _, err = run(folder / "a.txt", *words, "--out", tmp_path / "new")
    assert code == 2 and "a.txt has 5 lines, " in err and "b.txt has 1" in err
