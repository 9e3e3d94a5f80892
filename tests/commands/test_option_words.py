# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Errors that a command prints name options, not arguments of Python functions."""

from pathlib import Path

import pytest
import typer

from flaxattn import cli
from flaxattn.commands.options import in_options, options_of

LONG = "text 0 is too long\nshorten it, or pass truncate=True to cut it at the limit"


def test_arguments_become_options_that_the_command_has() -> None:
    options = {"--truncate", "--batch-tokens", "--help"}
    assert in_options(LONG, options).endswith(
        "shorten it, or pass --truncate to cut it at the limit"
    )
    assert in_options(LONG, {"--help"}).endswith("\nshorten it")
    assert in_options("give batch_tokens=512, x=3", options) == "give --batch-tokens 512, x=3"
    assert in_options("layer_norm_eps: 1e-12", options) == "layer_norm_eps: 1e-12"
    column = "name the right one, as in text_column='text'"
    assert in_options(column, {"--set"}) == "name the right one, as in --set text_column='text'"
    python = "Capture them: model.trace(text, capture=fa.Capture(weights=True, key=True))."
    assert in_options(python, {"--weights"}) == (
        "Capture them: flaxattn extract --capture weights,key."
    )


def test_the_options_are_those_of_the_command_that_was_typed() -> None:
    command = typer.main.get_command(cli.app)
    assert "--truncate" in options_of(command, ["stats", "--model", "tiny-bert", "a.txt"])
    assert "--truncate" not in options_of(command, ["doctor", "stats"])
    assert "--set" in options_of(command, ["train", "gpt2-lm", "--data", "a.txt"])


@pytest.mark.parametrize("words", [["stats", "long.txt"], ["view", "cat " * 900]])
def test_a_text_that_is_too_long_is_refused_in_words_of_the_command(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("long.txt").write_text("cat " * 900 + "\n")
    assert cli.main([*words, "--model", "tiny-bert"]) != 0
    message = capsys.readouterr().err
    assert "=True" not in message and len(message.strip().splitlines()) <= 3
    assert "--truncate" in message
