# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`make gpu` without a GPU: stages that pass, fail, hang and die; record, summary, resumption.

The stages here are tiny scripts. The primitives have test_gpu_primitives.py, the tests that run on
a device are those of test_conformance.py.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from flaxattn.benchmarks import (
    bench_targets,
    cases,
    device_facts,
    first_hour,
    first_hour_summary,
    gpu_stages,
    stage_record,
    stage_runner,
)
from flaxattn.benchmarks.stage_record import Stage

PASS = "print('fine')"
FAIL = "print('before'); raise ValueError('the reason')"
HANG = "import time; print('before', flush=True); time.sleep(60)"
DIE = "import os; print('before', flush=True); os.kill(os.getpid(), 11)"
WRITE = "import sys; open(sys.argv[1], 'w').write({text!r})"
FACTS = WRITE.format(text=json.dumps({"gpu": "NVIDIA H100", "driver": "1"}))


def stage(name, code=PASS, part="primitives", seconds=30.0, **options):
    options = {"about": ("mosaic_gpu",)} | options
    return Stage(name, part, (sys.executable, "-S", "-c", code, "{result}"), seconds, **options)


def names_in(*names):
    """A script that writes the names of tests, as the listing does."""
    ids = [f"test_x.py::test_on_the_gpu[{name}]" for name in names]
    return WRITE.format(text=json.dumps({"tests": dict.fromkeys(ids, "collected")}))


def row(name="flaxattn mosaic_gpu", **fields):
    about = {"case": "BERT-base", "request": "nothing", "mode": "forward", "dtype": "bfloat16"}
    return about | {"name": name, "note": "", "median_seconds": 1e-4, "difference": 0.0} | fields


def timing(name, *rows, code=None, **options):
    code = code or WRITE.format(text=json.dumps({"rows": rows}))
    return stage(name, code, "timing", alone=True, **options)


ALL = ("mosaic_gpu-bfloat16-one", "cudnn-bfloat16-one", "xla-bfloat16-one")


def plan(primitives=(), timings=(), tests=ALL, code=PASS, device=FACTS):
    return gpu_stages.FirstHourPlan(
        device=stage("device", device, "device", about=()),
        listing=stage("list of tests", names_in(*tests), "conformance", about=()),
        primitives=tuple(primitives),
        timings=tuple(timings),
        tests=(sys.executable, "-S", "-c", code),
    )


@pytest.fixture
def hour(tmp_path):
    """Runs a plan: exit status, document and what was said."""

    def hour(plan, **settings):
        printed = []
        options = {"out": tmp_path / "gpu.json", "tests": tmp_path} | settings
        run = first_hour.FirstHour(plan, first_hour.FirstHourSettings(**options), printed.append)
        code = run.run()
        return code, json.loads((tmp_path / "gpu.json").read_text()), "\n".join(printed)

    return hour


def entry(document, name):
    return next(each for each in document["stages"] if each["name"] == name)


def order(printed):
    """Names of stages in the order in which they ended."""
    return [line.split(" s  ")[1].split(":")[0] for line in printed.splitlines() if " s  " in line]


def test_all_stages_pass(hour, tmp_path):
    code, document, messages = hour(plan([stage("one"), stage("two")], [timing("rows", row())]))
    assert code == 0
    assert {each["status"] for each in document["stages"]} == {"passed"}
    assert [each["name"] for each in document["stages"]] == [
        *("device", "list of tests", "one", "two", "rows"),
        *(f"{name} 1 of 1: one" for name in gpu_stages.IMPLEMENTATIONS),
    ]
    assert document["device"]["gpu"] == "NVIDIA H100"
    assert document["schema"] == 1 and document["version"] and document["commit"]
    assert document["date"].endswith("+00:00") and document["finished"].endswith("+00:00")
    assert entry(document, "one")["output"] == ["fine"]
    assert len(document["targets"]) == 17
    trusted = "trust mosaic_gpu: primitives (2) and groups of tests (1) passed, all there are"
    assert document["trust"] == trusted == messages.splitlines()[-1]
    assert "gpu.json" in messages.splitlines()[0] and "20 minutes" in messages.splitlines()[0]
    assert os.listdir(tmp_path) == ["gpu.json"]


@pytest.mark.parametrize(
    ("code", "status", "reason", "output"),
    [
        (FAIL, "failed", "exit status 1: ValueError: the reason", "ValueError: the reason"),
        (HANG, "timed out", "no end after 1 s", "before"),
        (DIE, "failed", "died of SIGSEGV", "before"),
    ],
)
def test_a_stage_that_does_not_pass_costs_itself_only(hour, code, status, reason, output):
    bad = stage("bad", code, seconds=1)
    began = time.monotonic()
    status_of_all, document, messages = hour(plan([bad, stage("good")], [timing("rows", row())]))
    assert time.monotonic() - began < 20
    assert status_of_all == 1
    found = entry(document, "bad")
    assert (found["status"], found["reason"]) == (status, reason)
    assert output in found["output"]
    assert [each["name"] for each in document["stages"] if each["status"] != "passed"] == ["bad"]
    assert f"  {status}: bad: {reason}" in messages
    assert document["trust"].startswith("trust cudnn: mosaic_gpu ")
    assert "in 'bad'" in document["trust"]


def test_a_process_that_hangs_says_where_and_leaves_nothing(hour, tmp_path):
    code = textwrap.dedent("""
        import subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
        open(%r, "w").write(str(child.pid))
        def deep_inside():
            time.sleep(60)
        deep_inside()
    """)
    note = tmp_path / "child"
    _, document, _ = hour(plan([stage("bad", code % str(note), seconds=1)]))
    assert any("in deep_inside" in line for line in entry(document, "bad")["output"])
    deadline = time.monotonic() + 5
    while Path(f"/proc/{note.read_text()}").exists() and time.monotonic() < deadline:
        state = Path(f"/proc/{note.read_text()}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":  # dead; nobody has requested its exit status
            return
        time.sleep(0.1)
    assert not Path(f"/proc/{note.read_text()}").exists()


@pytest.mark.slow
def test_the_record_is_on_disk_while_a_stage_hangs(tmp_path):
    out = tmp_path / "gpu.json"
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_first_hour as t
        from flaxattn.benchmarks import first_hour
        from pathlib import Path
        first_hour.guarded()
        settings = first_hour.FirstHourSettings(out=Path({str(out)!r}), tests=Path("none"))
        plan = t.plan([t.stage("one"), t.stage("stuck", t.HANG), t.stage("last")])
        sys.exit(first_hour.FirstHour(plan, settings, first_hour._tell).run())
        """)
    )
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            deadline, document = time.monotonic() + 60, {"stages": []}
            while time.monotonic() < deadline and process.poll() is None:
                if out.exists():
                    document = json.loads(out.read_text())
                states = {each["name"]: each["reason"] for each in document["stages"]}
                if states.get("stuck", "").startswith("started at"):
                    break
                time.sleep(0.05)
            assert entry(document, "one")["status"] == "passed"
            assert entry(document, "stuck")["status"] == "not reached"
            process.send_signal(signal.SIGHUP)  # the terminal is closed: it continues
            time.sleep(0.3)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            printed, _ = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 1
    document = json.loads(out.read_text())
    states = [each["status"] for each in document["stages"]]
    assert states == ["passed"] * 3 + ["not reached"] * 2
    assert "before it had an outcome" in entry(document, "stuck")["reason"]
    assert "before" in entry(document, "stuck")["output"]
    assert "Stopped." in printed and "Targets on a Hopper GPU" in printed
    assert printed.splitlines()[-1] == document["trust"]


@pytest.mark.slow
def test_when_the_time_is_over_the_rest_is_not_reached(hour):
    slow = [stage(f"slow {number}", "import time; time.sleep(0.8)") for number in range(9)]
    began = time.monotonic()
    code, document, messages = hour(plan(slow), minutes=2 / 60)
    assert code == 1 and time.monotonic() - began < 10
    states = [each["status"] for each in document["stages"]]
    assert "passed" in states and "not reached" in states
    assert set(states) == {"passed", "not reached"}
    assert "not reached" in document["trust"] or "not tested" in document["trust"]
    assert messages.splitlines()[-1] == document["trust"]


@pytest.mark.slow
def test_checks_leave_time_for_the_timings_and_continue_after_them(hour, monkeypatch):
    slow = [stage(f"slow {number}", "import time; time.sleep(0.6)") for number in range(4)]
    code, document, messages = hour(plan(slow, [timing("rows", row())]), minutes=20 / 60)
    assert (code, order(messages)[-1]) == (0, "rows")
    monkeypatch.setattr(first_hour, "BEFORE_TIMING", 0.06)
    code, document, messages = hour(plan(slow, [timing("rows", row())]), minutes=20 / 60)
    assert code == 0
    assert order(messages)[:3] == ["device", "list of tests", "slow 0"]
    assert order(messages).index("rows") < order(messages).index("slow 3")
    assert len(document["stages"]) == len(order(messages)) == 10


@pytest.mark.slow
def test_several_checks_run_at_once_and_timings_alone(hour, tmp_path):
    code = "import time; print(time.time(), flush=True); time.sleep(0.7); print(time.time())"
    rows = [timing(f"rows {number}", code=code) for number in range(2)]
    _, document, _ = hour(plan([stage("a", code), stage("b", code)], rows), jobs=3)
    times = {
        name: [float(line) for line in entry(document, name)["output"]]
        for name in ("a", "b", "rows 0", "rows 1")
    }
    assert times["a"][0] < times["b"][1] and times["b"][0] < times["a"][1]
    for name in ("rows 0", "rows 1"):
        for other in {*times} - {name}:
            assert times[name][0] > times[other][1] or times[name][1] < times[other][0]


def test_a_timing_that_hangs_is_made_without_the_kernel(hour):
    peer = row("flaxattn cudnn", median_seconds=2e-4)
    rows = [
        timing(
            f"rows {number}",
            code=HANG,
            seconds=1,
            instead=timing(f"rows {number}, without", peer, about=()),
        )
        for number in range(3)
    ]
    code, document, messages = hour(plan(timings=rows))
    assert code == 1
    # Once one has hung, what works comes first.
    assert order(messages)[5:] == [
        *("rows 0", "rows 0, without", "rows 1, without", "rows 2, without", "rows 1", "rows 2")
    ]
    assert entry(document, "rows 2, without")["status"] == "passed"
    assert "| BERT-base | nothing | forward | 0.200 |" in messages
    assert document["trust"].startswith("trust cudnn: mosaic_gpu hung in 'rows 0'")


@pytest.mark.slow
def test_timings_without_a_kernel_come_first_where_it_hung_before(hour):
    without = timing("rows, without", row("x"), about=())
    rows = [timing("rows", code=HANG, seconds=1, instead=without)]
    stages = [stage("bad", HANG, seconds=1)]
    _, document, messages = hour(plan(stages, rows))
    assert order(messages)[-2:] == ["rows, without", "rows"]
    # What was measured in its place is not measured again either.
    _, document, messages = hour(plan(stages, rows), resume=True)
    assert order(messages) == ["device", "bad", "rows"]
    assert entry(document, "rows, without")["status"] == "passed"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"note": "XlaRuntimeError: no", "median_seconds": None}, "XlaRuntimeError: no"),
        ({"difference": 0.3}, "its output differs by 0.3"),
        ({"difference": float("nan")}, "its output differs by nan"),
    ],
)
@pytest.mark.parametrize("name", ["mosaic_gpu", "xla"])
def test_a_wrong_row_fails_its_timing_and_names_the_kernel(hour, name, fields, fault):
    rows = [row("torch eager", note="no memory"), row(f"flaxattn {name}", **fields)]
    code, document, _ = hour(plan(timings=[timing("rows", *rows)]))
    assert code == 1
    assert entry(document, "rows")["reason"] == f"flaxattn {name}: nothing, forward: {fault}"
    trusted = "cudnn" if name == "mosaic_gpu" else "mosaic_gpu"
    assert document["trust"].startswith(f"trust {trusted}: ")
    if trusted == "mosaic_gpu":
        assert "plain forward at" not in document["trust"]


def test_resuming_skips_what_passed(hour, tmp_path):
    counted = "open(%r, 'a').write('x')"
    count, again = tmp_path / "count", tmp_path / "again"
    fails_once = f"import os, sys; sys.exit(not os.path.exists({str(again)!r}))"
    stages = [stage("counted", counted % str(count)), stage("flaky", fails_once)]
    assert hour(plan(stages), tests=tmp_path / "none")[0] == 1
    again.touch()
    code, document, _ = hour(plan(stages), resume=True, tests=tmp_path / "none")
    assert (code, count.read_text()) == (0, "x")
    assert entry(document, "counted")["status"] == "passed"
    assert (tmp_path / "gpu.previous.json").exists()
    # Without the option everything runs again.
    assert hour(plan(stages), tests=tmp_path / "none")[0] == 0
    assert count.read_text() == "xx"


@pytest.mark.parametrize("changed", ["device", "commit", "sources"])
def test_resuming_repeats_what_passed_elsewhere(hour, tmp_path, monkeypatch, changed):
    count = tmp_path / "count"
    stages = [stage("counted", f"open({str(count)!r}, 'a').write('x')")]
    assert hour(plan(stages))[0] == 0
    device = FACTS
    if changed == "device":
        device = FACTS.replace("H100", "H200")
    else:
        monkeypatch.setattr(first_hour, f"_{changed}", lambda *_: "another")
    assert hour(plan(stages, device=device), resume=True)[0] == 0
    assert count.read_text() == "xx"


def test_without_a_device_nothing_else_runs_and_earlier_results_stay(hour, tmp_path):
    assert hour(plan([stage("one")]))[0] == 0
    before = (tmp_path / "gpu.json").read_text()
    code, document, messages = hour(plan([stage("one")], device=FAIL), resume=True)
    assert code == 1
    assert json.loads(before) == document
    assert "no device to run on" in messages
    code, document, _ = hour(plan([stage("one")], device=FAIL))
    assert entry(document, "one")["status"] == "not reached"
    assert document["trust"].startswith("trust none of the implementations: ")


def test_a_full_disk_costs_the_file_and_not_the_summary(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    printed = []
    settings = first_hour.FirstHourSettings(out=tmp_path / "gpu.json", tests=tmp_path)
    run = first_hour.FirstHour(plan([stage("one")]), settings, printed.append)
    monkeypatch.setattr(stage_record, "write_text", full)
    assert run.run() == 1
    assert any(line.endswith("  one") for line in printed)
    assert any("gpu.json could not be written: No space left on device" in line for line in printed)
    assert printed[-1].splitlines()[-1].startswith("trust mosaic_gpu: ")


def test_a_command_that_is_missing_fails_its_stage(hour):
    missing = replace(stage("missing"), command=("/no/such/program",))
    _, document, _ = hour(plan([missing, stage("good")]))
    assert entry(document, "missing")["status"] == "failed"
    assert "No such file" in entry(document, "missing")["reason"]
    assert entry(document, "good")["status"] == "passed"


def test_groups_go_from_small_to_large_for_each_implementation():
    names = ["padded 2048", "one", "few keys", "dropout, causal 129", "padded 64", "seven"]
    dtypes = ("bfloat16", "float16")
    ids = [
        f"t.py::test_on_the_gpu[{each}-{dtype}-{name}]"
        for each in ("xla", "mosaic_gpu")
        for dtype in dtypes
        for name in names
    ]
    ids += ["t.py::test_cudnn_on_the_gpu[bfloat16-one]", "t.py::test_other"]
    groups = plan().groups(ids)
    assert [group.name for group in groups] == [
        "cudnn 1 of 1: one",
        "mosaic_gpu 1 of 3: one, seven",
        "xla 1 of 3: one, seven",
        "mosaic_gpu 2 of 3: few keys, padded 64",
        "xla 2 of 3: few keys, padded 64",
        "mosaic_gpu 3 of 3: dropout, causal 129, padded 2048",
        "xla 3 of 3: dropout, causal 129, padded 2048",
        "others 1 of 1: test_other",
    ]
    found = [word for group in groups for word in group.command if "::" in word]
    assert sorted(found) == sorted(ids)
    assert groups[0].about == ("cudnn",) and groups[-1].about == ()


def test_the_plan_for_a_gpu_holds_every_primitive_and_every_target():
    found = gpu_stages.plan(Path("tests/kernels"))
    assert len(found.primitives) == 11
    names = [each.name for each in found.timings]
    assert names[::6] == ["BERT-base, nothing", "long, nothing", "BERT-base, padded, nothing"]
    assert names[13:] == [f"{case}, nothing" for case in cases.RESTRICTED[1:]]
    stages = [found.device, found.listing, *found.primitives, *found.timings]
    assert len({each.name for each in stages}) == len(stages)
    assert all(each.alone and each.instead for each in found.timings)
    seconds = max(each.seconds for each in stages)
    assert seconds <= 180
    commands = [" ".join(each.command) for each in stages]
    for words in ("device_facts", "gpu_primitives", "bench --case", "pytest"):
        assert any(words in command for command in commands)


@pytest.mark.slow
def test_the_tests_are_listed_where_little_is_installed(hour, tmp_path, monkeypatch):
    for name in ("flax", "tokenizers", "transformers", "safetensors", "typer", "rich"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not installed')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setitem(first_hour.ENVIRONMENT, "JAX_PLATFORMS", "cpu")
    listing = gpu_stages.plan(Path(__file__).parent).listing
    code = "import sys; print(*[word for word in sys.argv if '::' in word])"
    _, document, _ = hour(replace(plan(code=code), listing=listing))
    assert entry(document, "list of tests")["status"] == "passed"
    groups = [each for each in document["stages"] if each["part"] == "conformance"][1:]
    assert {name for each in groups for name in each["about"]} == {*gpu_stages.IMPLEMENTATIONS}
    tried = [word for each in groups for word in each["output"][0].split("test_conformance.py::")]
    assert sum(word.startswith("test_") for word in tried) >= 98


@pytest.mark.slow
def test_outcomes_are_written_as_tests_run(tmp_path):
    test = tmp_path / "test_some.py"
    test.write_text(
        "import json, pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert 0\n"
        "def test_skipped(): pytest.skip('why')\n"
        "def test_last():\n"
        f"    tests = json.load(open({str(tmp_path / 'out.json')!r}))['tests']\n"
        "    assert [*tests.values()] == ['passed', 'failed', 'skipped', 'running']\n"
    )
    words = ["-p", "outcome_file", "-p", "no:cacheprovider", "-q", "-c", os.devnull]
    command = [sys.executable, "-m", "pytest", *words, "--rootdir", str(tmp_path), str(test)]
    own = {"FLAXATTN_OUTCOMES": str(tmp_path / "out.json")}
    own["PYTHONPATH"] = str(Path(__file__).parents[1] / "fixtures")
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=os.environ | own
    )
    assert done.returncode == 1, done.stdout
    outcomes = json.loads((tmp_path / "out.json").read_text())["tests"]
    assert [*outcomes.values()] == ["passed", "failed", "skipped", "passed"]
    reason = stage_runner._verdict(stage("any"), 1, {"tests": outcomes})[1]
    assert reason == "exit status 1 in test_bad"
    skipped = {"a.py::test_x": "passed", "a.py::test_y": "skipped"}
    assert stage_runner._verdict(stage("any"), 0, {"tests": skipped}) == (
        "failed",
        "skipped test_y",
    )
    outcomes = {"a.py::test_x[y]": "running"}
    assert stage_runner._verdict(stage("any"), -9, {"tests": outcomes})[1] == (
        "died of SIGKILL in test_x[y]"
    )


def test_the_tables_are_markdown():
    rows = [row(), row("jax cuDNN", median_seconds=9.5e-5), row("broken", median_seconds=None)]
    rows.append(row(request="weights uint8", median_seconds=2e-4))
    stages = [timing("rows")]
    record = stage_record.StageRecord(Path("none.json"), {"version": "1", "commit": "c"})
    record.document |= {"date": "d", "device": {"gpu": "NVIDIA H100"}}
    record.save = lambda: None
    record.add(stages)
    record.change("rows", status="passed", reason="", result={"rows": rows})
    text = first_hour_summary.summary(record.document)
    lines = text.splitlines()
    assert "| target, on NVIDIA H100 | base | long |" in lines
    assert "| plain forward, rate over cuDNN's | 0.95 (>= 0.90: reached) | not measured |" in lines
    assert "| uint8 weights, seconds | 200 µs (<= 160 µs: missed) |  |" in lines
    assert "| case | request | ms | flaxattn mosaic_gpu | jax cuDNN | broken |" in lines
    assert "| BERT-base | nothing | forward | 0.100 | 0.095 | failed |" in lines
    assert "  reached BERT-base: plain forward, rate over cuDNN's: 0.95 (>= 0.9)" in lines
    assert bench_targets.as_text(bench_targets.judged(rows)) in text


def test_show_prints_the_summary_again(hour, tmp_path, capsys):
    _, _, messages = hour(plan([stage("one")]))
    out = tmp_path / "gpu.json"
    assert first_hour.main(["--show", "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == messages[messages.index("flaxattn 0") :].strip()
    with pytest.raises(SystemExit):
        first_hour.main(["--show", "--out", str(tmp_path / "none.json")])
    assert "cannot read" in capsys.readouterr().err


def test_facts_are_reported_without_a_driver():
    facts = device_facts.of_host()
    assert {"gpu", "driver", "memory", "ptxas", "versions"} == set(facts)
    assert {"python", "jax", "jaxlib", "flaxattn"} <= set(facts["versions"])


def test_the_commit_and_the_sources_identify_a_run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert first_hour._commit() == "unknown"
    (tmp_path / "test_a.py").write_text("1")
    one = first_hour._sources(tmp_path)
    (tmp_path / "test_a.py").write_text("2")
    assert first_hour._sources(tmp_path) != one
