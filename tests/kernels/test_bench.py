# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The benchmark measures what it says, contenders compute the same, and its file is whole."""

import json
import os
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.benchmarks import (
    bench,
    bench_contenders,
    bench_peers,
    bench_rows,
    bench_targets,
    cases,
)
from flaxattn.kernels.contract import NOTHING

CASE = cases.case("seven")
PADDED = cases.case("padded 64")
TWELVE = replace(CASE, queries=12)
ROOF = ("matmul_flops_per_second", "copy_bytes_per_second", "dispatch_seconds")
TINY = bench.BenchSettings(
    cases=("seven",),
    requests=("statistics", "weights uint8"),
    modes=("forward",),
    rounds=3,
    seconds=1e-4,
    torch_python="",
)


def split(case, dtype="float32"):
    """Arrays with a gradient, and the other arguments."""
    arguments = case.arguments(dtype)
    arrays = {name: arguments.pop(name) for name in ("q", "k", "v")}
    del arguments["causal"]
    return arrays, arguments


@pytest.mark.slow
@pytest.mark.few("topk", "bfloat16")
@pytest.mark.parametrize("request_name", bench.REQUESTS)
def test_plain_jax_computes_what_we_do(request_name):
    capture = bench.REQUESTS[request_name]
    arrays, others = split(PADDED)
    ours = jax.jit(bench_peers.ours(PADDED, capture, "xla"))(arrays, others)
    plain = jax.jit(bench_peers.naive(PADDED, capture))(arrays, others)
    assert len(ours) == len(plain)
    for one, other in zip(ours, plain, strict=True):
        assert one.shape == other.shape
        limit = 1 if one.dtype == jnp.uint8 else 0.01 if one.dtype == jnp.bfloat16 else 1e-5
        np.testing.assert_allclose(
            one.astype(jnp.float32), other.astype(jnp.float32), atol=limit, rtol=1e-5
        )


@pytest.mark.slow
def test_the_gradient_reaches_every_float_result():
    capture = bench.REQUESTS["statistics"]
    arrays, others = split(CASE)
    cotangent = jnp.zeros_like(arrays["q"])
    ours = bench_peers.with_gradient(bench_peers.ours(CASE, capture, "xla"))
    plain = bench_peers.with_gradient(bench_peers.naive(CASE, capture))
    (gradients,) = jax.jit(ours)(arrays, others, cotangent)[-1]
    (expected,) = jax.jit(plain)(arrays, others, cotangent)[-1]
    assert float(jnp.abs(gradients["q"]).max()) > 0.01  # of the statistics only
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[name], atol=1e-4)


@pytest.mark.slow
def test_a_run_has_facts_rows_and_targets(tmp_path):
    printed = []
    out = tmp_path / "new" / "bench.json"
    bench.measure(TINY, out, printed.append)
    document = json.loads(out.read_text())
    assert os.listdir(out.parent) == ["bench.json"]
    assert document["schema"] == bench.SCHEMA
    assert set(document["versions"]) == {"python", "flaxattn", "jax", "jaxlib", "numpy"}
    assert document["device"]["platform"] == "cpu"
    assert document["settings"]["dtype"] == "float32"
    assert document["settings"]["seed"] == 0
    assert document["date"].endswith("+00:00")
    assert document["torch"] == "not measured: no torch here"
    assert all(value > 0 for value in document["roofline"].values())
    names = [(row["request"], row["name"]) for row in document["rows"]]
    assert names == [
        (request, name) for request in TINY.requests for name in ("flaxattn xla", "XLA naive")
    ]
    for row in document["rows"]:
        assert row["shape"] == {"B": 2, "H": 3, "Q": 7, "K": 7, "D": 32}
        assert 0 < row["best_seconds"] <= row["median_seconds"]
        assert row["rounds"] == 3
        assert row["flops"] == 4 * 2 * 3 * 7 * 7 * 32
        assert row["bytes"] >= 4 * (2 * 7 * 3 * 32 * 4)
        assert row["roofline_fraction"] > 0
        assert row["peak_bytes"] >= row["bytes"]
        assert row["difference"] < 1e-5
    assert document["rows"][0]["over_ours"] == 1
    assert all(target["passed"] is None for target in document["targets"])
    text = "\n".join(printed)
    assert "seven (2 x 3 x 7 x 7 x 32), statistics, forward" in text
    assert "17 of 17 not measured: they need a Hopper GPU and torch" in text


def test_the_file_stays_as_it_was_when_writing_fails(tmp_path):
    out = tmp_path / "bench.json"
    bench.write({"rows": []}, out)
    with pytest.raises(TypeError):
        bench.write({"rows": object()}, out)
    assert json.loads(out.read_text()) == {"rows": []}
    assert os.listdir(tmp_path) == ["bench.json"]


def test_every_result_is_kept_before_the_next_one_begins(tmp_path, monkeypatch):
    written, out = [], tmp_path / "bench.json"

    def measured(case, arguments, cotangent, request, mode, turns, torch, roof, without):
        if out.exists():
            written.append([row["request"] for row in json.loads(out.read_text())["rows"]])
        if len(written) == 2:
            raise KeyboardInterrupt
        about = {"case": case.name, "dtype": "float32", "shape": {}, "name": "any"}
        return [about | {"request": request, "mode": mode, "note": "none"}]

    monkeypatch.setattr(bench, "measured", measured)
    monkeypatch.setattr(bench, "roofline", lambda *_: dict.fromkeys(ROOF, 1.0))
    settings = replace(TINY, requests=("nothing", "received", "topk(8)"))
    with pytest.raises(KeyboardInterrupt):
        bench.measure(settings, out, lambda text: None)
    document = json.loads(out.read_text())
    assert written == [["nothing"], ["nothing", "received"]]
    assert [row["request"] for row in document["rows"]] == ["nothing", "received"]
    assert len(document["targets"]) == 17


def test_an_implementation_can_be_left_out():
    arguments = CASE.arguments()
    roof = dict.fromkeys(ROOF, 1e9)
    turns = bench_rows.Turns(1, 1e-4)
    common = CASE, arguments, arguments["q"], "nothing", "forward", turns, None, roof
    rows = bench_rows.measured(*common, without=("xla",))
    assert [row["name"] for row in rows] == ["XLA naive"]
    with pytest.raises(ValueError, match="unknown implementation 'cuda'"):
        replace(TINY, without=("cuda",))


def test_faults_are_those_of_this_library():
    good = {"request": "nothing", "mode": "forward", "note": "", "difference": 0.01}
    rows = [
        good | {"name": "flaxattn cudnn"},
        good | {"name": "torch eager", "note": "no memory"},
        good | {"name": "flaxattn xla", "note": "no memory"},
        good | {"name": "flaxattn mosaic_gpu", "difference": float("nan")},
        good | {"name": "flaxattn mosaic_gpu", "difference": 1.0},
    ]
    assert bench_rows.faults(rows) == {
        "flaxattn xla": "nothing, forward: no memory",
        "flaxattn mosaic_gpu": "nothing, forward: its output differs by nan",
    }


def test_a_contender_that_fails_says_why_and_the_others_continue(monkeypatch):
    def broken(arrays, others):
        raise NotImplementedError("no such thing\nand more")

    def some(case, capture, arguments):
        return {"broken": broken, "XLA naive": bench_peers.naive(case, capture)}

    monkeypatch.setattr(bench_rows, "in_jax", some)
    arguments = CASE.arguments()
    roof = {"matmul_flops_per_second": 1e9, "copy_bytes_per_second": 1e9}
    turns = bench_rows.Turns(1, 1e-4)
    cotangent = arguments["q"]
    rows = bench_rows.measured(CASE, arguments, cotangent, "nothing", "forward", turns, None, roof)
    assert [row["name"] for row in rows] == ["XLA naive", "broken"]
    assert rows[0]["over_ours"] is None
    assert rows[1]["note"] == "NotImplementedError: no such thing"
    assert "broken               not measured: NotImplementedError" in bench_rows.table(rows)


def hopper_rows(**changes):
    """Rows as a GPU would give them: every target reached exactly."""
    times = {"nothing": 100e-6, "statistics": 125e-6, "received": 190e-6, "topk(8)": 200e-6}
    times |= {"weights bfloat16": 230e-6, "weights uint8": 160e-6}
    eager = {"statistics": 1000e-6, "topk(8)": 800e-6, "weights bfloat16": 805e-6}
    common = {"dtype": "bfloat16", "mode": "forward", "flops": 4 * 64 * 10**9}
    common |= {"peak_bytes": 105, "temporary_bytes": 10**6, "returned_bytes": 40}
    rows = []
    for case in ("BERT-base", "long"):
        about = common | {"case": case}
        for request, seconds in times.items():
            rows.append(about | {"request": request, "name": bench_targets.OURS, "s": seconds})
        for request, seconds in eager.items():
            rows.append(about | {"request": request, "name": "torch eager", "s": seconds})
        plain = about | {"request": "nothing"}
        both = plain | {"mode": "forward + backward"}
        rows += [
            plain | {"name": "jax cuDNN", "s": 90e-6},
            plain | {"name": "torch sdpa", "s": 90e-6, "peak_bytes": 100},
            both | {"name": bench_targets.OURS, "s": 300e-6},
            both | {"name": "jax cuDNN", "s": 240e-6},
        ]
    factor = changes.get("slower", 1)
    return [
        row | {"median_seconds": row["s"] * (factor if row["name"] == bench_targets.OURS else 1)}
        for row in rows
    ]


def test_targets_are_judged_from_the_rows():
    reached = bench_targets.judged(hopper_rows())
    assert len(reached) == 17
    for target in reached:
        assert target["value"] == pytest.approx(target["limit"]) or target["passed"], target
    faster = bench_targets.judged(hopper_rows(slower=0.99))
    assert all(target["passed"] for target in faster if "over our" not in target["target"])
    slower = bench_targets.judged(hopper_rows(slower=1.1))
    failed = [target["target"] for target in slower if not target["passed"]]
    assert sum("cuDNN" in words for words in failed) == 4
    assert sum("torch eager" in words for words in failed) == 5
    assert sum("seconds" in words for words in failed) == 2
    text = bench_targets.as_text(slower)
    assert "MISSED  BERT-base: bfloat16 weights, seconds: 0.000253 (<= 0.00023)" in text
    assert "not measured" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--case", "sevenn"], "unknown case 'sevenn'"),
        (["--request", "all"], "unknown request 'all'"),
        (["--dtype", "int8"], "unknown dtype 'int8'"),
        (["--rounds", "0"], "rounds is 0, expected 1 or more"),
    ],
)
def test_wrong_words_are_refused(capsys, words, message):
    from flaxattn import cli  # not above: beside a GPU, what the commands need may be missing

    assert cli.main(["bench", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    with pytest.raises(SystemExit) as ended:
        bench.main(words)
    assert ended.value.code == 2


def test_a_place_that_cannot_be_written_is_refused_first(capsys, tmp_path, monkeypatch):
    from flaxattn import cli

    monkeypatch.setattr(bench, "run", None)
    assert cli.main(["bench", "--case", "seven", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "Cannot write the results" in error and "is a folder" in error
    assert len(error.splitlines()) <= 3


@pytest.mark.slow
def test_the_command_measures(capsys, tmp_path):
    from flaxattn import cli

    out = tmp_path / "bench.json"
    words = ["--case", "seven", "--request", "nothing", "--rounds", "1", "--out", str(out)]
    assert cli.main(["bench", *words, "--torch-python", str(tmp_path / "none")]) == 0
    assert f"wrote {out}" in capsys.readouterr().out
    document = json.loads(out.read_text())
    assert document["torch"].startswith("not measured: ")
    assert [row["mode"] for row in document["rows"]] == [mode for mode in bench.MODES for _ in "ab"]


@pytest.mark.few("received", "topk")
@pytest.mark.parity
@pytest.mark.parametrize("request_name", bench.REQUESTS)
def test_torch_computes_what_we_do(request_name):
    pytest.importorskip("torch")
    from flaxattn.benchmarks.bench_torch import Peer

    class InProcess(bench_contenders.Torch):
        def __init__(self):
            self.peer = Peer("cpu")

        def ask(self, do, **options):
            return getattr(self.peer, do)(**options)

    capture = bench.REQUESTS[request_name]
    arguments = TWELVE.arguments()
    torch = InProcess()
    torch.load(TWELVE, arguments, arguments["q"])
    contender = bench_contenders.InTorch("torch eager", torch, "eager", capture, True)
    arrays, others = split(TWELVE)
    function = bench_peers.with_gradient(bench_peers.ours(TWELVE, capture, "xla"))
    *ours, gradients = jax.jit(function)(arrays, others, arguments["q"])
    np.testing.assert_allclose(contender.output, ours[0][0, :, 0], atol=1e-5)
    theirs, slopes = torch.peer.runs["eager"]()
    assert contender.seconds(1) > 0
    floats = [x for x in theirs if x.is_floating_point()]
    whole = [x for x in theirs if not x.is_floating_point()]
    for one, other in zip(ours, floats + whole, strict=True):
        other = other.detach().float().numpy()
        other = other.swapaxes(1, 2) if one is ours[0] else other
        limit = 1 if one.dtype == jnp.uint8 else 0.01 if one.dtype == jnp.bfloat16 else 1e-4
        np.testing.assert_allclose(one.astype(jnp.float32), other, atol=limit, rtol=1e-4)
    expected = [gradients[0][name] for name in "qkv"]
    for one, other in zip(expected, slopes, strict=True):
        np.testing.assert_allclose(one, other.numpy().swapaxes(1, 2), atol=2e-2, rtol=1e-2)
    if capture == NOTHING:
        arrays, others = split(PADDED)
        output = bench_peers.ours(PADDED, capture, "xla")(arrays, others)[0]
        torch.load(PADDED, PADDED.arguments(), arrays["q"])
        for peer in ("eager", "sdpa"):
            padded = bench_contenders.InTorch(peer, torch, peer, capture, False)
            np.testing.assert_allclose(padded.output, output[0, :, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("options", "pairs"),
    [
        ({}, 40),
        ({"causal": True}, 1 + 2 + 3 + 4 + 5),
        ({"window": (1, 0)}, 1 + 2 + 2 + 2 + 2),
        ({"window": (None, 1)}, 2 + 3 + 4 + 5 + 6),
        ({"causal": True, "offset": 2}, 3 + 4 + 5 + 6 + 7),
        ({"segments": 2}, 20),
    ],
)
def test_only_pairs_that_are_needed_count_as_work(options, pairs):
    assert bench_rows._pairs(cases.Case("some", 5, keys=8, **options)) == pairs
