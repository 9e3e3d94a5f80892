# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The command as a person types it: output, exit codes, and errors of at most three lines."""

import json
import shlex
import subprocess
import sys

import pytest
import typer

from flaxattn import __version__, cli
from flaxattn.errors import InputError
from flaxattn.kernels import devices
from flaxattn.pipeline import progress_reporter


def run(capsys, *words):
    """Exit code, standard output and standard error."""
    code = cli.main(list(words))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_version_and_help(capsys):
    assert run(capsys, "--version")[:2] == (0, f"flaxattn {__version__}\n")
    code, out, _ = run(capsys)
    assert code == 0
    assert all(name in out for name in ("demo", "view", "doctor", "bench", "train"))


@pytest.mark.parametrize(
    "words", [["demo"], ["view"], ["doctor"], ["bench"], ["train"], ["train", "bert-mlm"]]
)
def test_every_command_explains_itself_on_one_screen(capsys, words):
    code, out, _ = run(capsys, *words, "--help")
    assert code == 0
    assert len(out.splitlines()) < 60


def all_commands(command, path=()):
    """Every command without subcommands, by the words that call it."""
    context = command.make_context(None, [], resilient_parsing=True)
    if not hasattr(command, "list_commands"):
        return {path: command}
    names = {name: command.get_command(context, name) for name in command.list_commands(context)}
    found = {}
    for name, inner in names.items():
        if not inner.hidden:  # another name of a command
            found |= all_commands(inner, (*path, name))
    return found


COMMANDS = all_commands(typer.main.get_command(cli.app))


def test_there_are_commands():
    assert {("demo",), ("store", "info"), ("train", "mlm")} <= set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_ends_with_two_examples_that_the_command_takes(path):
    command = COMMANDS[path]
    examples = command.help.split("Example: ")[1:]
    assert len(examples) == 2
    for example in examples:
        program, *words = shlex.split(example.partition(" < ")[0])
        assert (program, *words[: len(path)]) == ("flaxattn", *path)
        assert command.make_context(None, words[len(path) :]).params  # raises at unknown options


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_options_have_one_name_over_all_commands(path):
    options = {name for parameter in COMMANDS[path].params for name in parameter.opts}
    assert not options & {"--max-texts", "--beam", "--batch"}
    assert "--head" not in options or path == ("search", "query")
    if "--out" in options:
        assert "-o" in options
        assert options & {"--output", "--output-dir"}


@pytest.mark.slow
def test_quiet_shows_no_progress_and_verbose_says_what_runs(capsys, caplog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress_reporter, "DELAY", 0.0)
    (tmp_path / "a.txt").write_text("The cat is sad.\n" * 3, encoding="utf-8")
    words = ("extract", "a.txt", "--stats", "entropy", "--no-resume")
    assert "texts" in run(capsys, *words, "-o", "loud")[2]
    assert run(capsys, "--quiet", *words, "-o", "quiet")[::2] == (0, "")
    assert run(capsys, "--verbose", *words, "-o", "verbose")[0] == 0
    assert "read tiny-bert as BertForPreTraining" in caplog.text
    assert run(capsys, "--quiet", "--verbose", "doctor")[0] == 2
    assert run(capsys, *words, "-o", "again")[2]  # the next call is loud again


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["vieww"], "Did you mean 'view'?"),
        (["view"], "Missing argument"),
        (["view", "hi", "--layer", "x"], "Invalid value for '--layer'"),
        (["view", "hi", "--heads", "1,b"], "'1,b' is not a list of numbers"),
        (
            ["view", "hi", "--view", "tail"],
            "'tail' is not a view; choose head, model, text, neuron, atlas, all",
        ),
        (["view", "hi", "--layer", "99"], "99"),
        (["view", "hi", "--heads", "99"], "99"),
        (["view", "hi", "--model", "no such model"], "No model 'no such model' was found"),
        (["view", " "], "empty"),
        (["view", "word " * 400], "128"),
        (["view", "a \udce4 b"], "UTF-8"),
        (["train", "bert-mlm", "--data", "absent.txt", "--out", "x"], "absent.txt"),
    ],
)
def test_wrong_use_is_refused_in_three_lines_with_exit_code_2(
    capsys, tmp_path, monkeypatch, words, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.startswith("error: ")
    assert len(err.splitlines()) <= 3
    assert "Traceback" not in err
    assert not (tmp_path / "attention.html").exists()


def test_debug_shows_where(monkeypatch):
    def broken(*_):
        raise InputError("no")

    monkeypatch.setattr("flaxattn.commands.demo.run", broken)
    assert cli.main(["demo"]) == 2
    with pytest.raises(InputError):
        cli.main(["--debug", "demo"])


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(28, "No space left on device", "out/x"), 1, "No space left on device out/x"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (RuntimeError("first\nsecond"), 1, "RuntimeError: first"),
    ],
)
def test_failures_on_the_way(capsys, monkeypatch, error, code, message):
    def broken(*_):
        raise error

    monkeypatch.setattr("flaxattn.commands.demo.run", broken)
    got, _, err = run(capsys, "demo")
    assert got == code
    assert message in err
    assert len(err.splitlines()) <= 3


def test_view_writes_a_page(capsys, tmp_path):
    page = tmp_path / "pair.html"
    code, out, _ = run(
        capsys, "view", "The dog ran.", "It was late.", "-o", str(page), "--layer", "1"
    )
    assert code == 0
    assert str(page) in out
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "late" in text


def test_view_cuts_only_when_told_and_says_so(capsys, tmp_path):
    page = tmp_path / "long.html"
    code, out, _ = run(capsys, "view", "word " * 400, "--truncate", "-o", str(page))
    assert code == 0
    assert "cut 274 tokens" in out


@pytest.mark.slow
def test_view_reads_standard_input():
    words = [sys.executable, "-m", "flaxattn", "--quiet", "view", "-"]
    got = subprocess.run(words, input=b"caf\xe9\n", capture_output=True, check=False)
    assert got.returncode == 2
    assert b"line 1: byte 0xe9 is not valid UTF-8" in got.stderr
    assert len(got.stderr.splitlines()) <= 3


def test_doctor(capsys):
    code, out, _ = run(capsys, "doctor", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["versions"]["flaxattn"] == __version__
    assert facts["kernels"][facts["chosen"]] is None
    assert facts["models"] == ["tiny-bert", "tiny-dates", "tiny-gpt2"]
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    for name, reason in facts["kernels"].items():
        assert f"{name}: {reason or 'runs here'}" in out
    for request, found in facts["choices"].items():
        assert f"{request}: {found['kernel']}" in out
    assert facts["choices"]["plain"]["kernel"] == facts["chosen"]


def test_doctor_says_why_a_better_kernel_is_passed_over(capsys, monkeypatch):
    ampere = devices.Device("gpu", "NVIDIA A100", (8, 0))
    monkeypatch.setattr(devices, "current", lambda array=None: ampere)
    out = run(capsys, "doctor")[1]
    assert "mosaic_gpu: it needs a Hopper GPU (compute capability 9), this is NVIDIA A100 (" in out
    assert "plain: cudnn\n" in out
    assert "weights: xla; cudnn: cuDNN returns neither weights nor scores" in out


@pytest.mark.slow
def test_demo_extracts_measures_and_writes(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "demo", "--out", "demo")[0] == 0
    code, out, _ = run(capsys, "demo", "--out", "demo")  # again, over its own files
    assert code == 0
    for name in ("heads.html", "heads.png", "heads.json"):
        assert str(tmp_path / "demo" / name) in out
        assert (tmp_path / "demo" / name).stat().st_size > 1000
    results = json.loads((tmp_path / "demo" / "heads.json").read_text())
    assert results["flaxattn"] == __version__
    assert len(results["data_sha256"]) == 64
    assert len(results["heads"]) == 16
    does = {head["does"] for head in results["heads"]}
    assert {"next token", "previous token", "delimiters"} <= does
    assert all(row in out for row in does)
    assert {path.name for path in tmp_path.iterdir()} == {"demo"}


@pytest.mark.parametrize("group", ["", "store", "search", "tokenizer", "train"])
def test_summaries_fit_the_help_table(typed, group):
    code, out, _ = typed(*group.split(), "--help")
    assert code == 0
    table = out[out.index("Commands:") :].splitlines()
    assert len(table) > 1
    assert not [line for line in table if line.rstrip().endswith("...") or len(line) > 80]
