# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Progress of long jobs: rate and time left, a bar on a terminal, plain lines elsewhere."""

import io
import sys
import time
import types

import pytest

from flaxattn.pipeline import progress_reporter
from flaxattn.pipeline.progress_reporter import (
    BYTES,
    ProgressReporter,
    duration,
    show_progress,
)
from flaxattn.pipeline.tokenize_texts import ReadingOptions


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_reporter, "DELAY", 0.0)


def reporter() -> tuple[ProgressReporter, list[float]]:
    now = [0.0]
    return ProgressReporter(io.StringIO(), lambda: now[0]), now


def test_a_line_has_steps_rate_and_time_left() -> None:
    progress, now = reporter()
    assert progress._line() == "starting: 0 s so far"
    progress.expect("scoring heads", 1000)
    now[0] = 30.0
    assert progress._line() == "scoring heads: 0 of 1,000, 30 s so far"
    progress("scoring heads", 100)  # compiling took 30 seconds
    assert progress._line() == "scoring heads: 100 of 1,000, 3.3/s, 4.5 min left"
    now[0] = 40.0
    progress("scoring heads", 400)  # and does not count where more is known
    assert progress._line() == "scoring heads: 500 of 1,000, 40.0/s, 12 s left"
    progress("scoring heads", 500)
    assert progress._line() == "scoring heads: 1,000 of 1,000, 90.0/s, done"
    progress("fitting", 3)
    now[0] = 41.0
    assert progress._line() == "fitting: 3, 3.0/s"


def test_bytes_are_shown_as_people_say_them() -> None:
    progress, now = reporter()
    progress.expect("verifying", 50_000_000, BYTES)
    assert progress._line() == "verifying: 0 bytes of 50.0 MB, 0 s so far"
    now[0] = 2.0
    progress("verifying", 20_000_000)
    assert progress._line() == "verifying: 20.0 MB of 50.0 MB, 10.0 MB/s, 3 s left"


def test_steps_of_an_earlier_run_count_for_no_rate() -> None:
    progress, now = reporter()
    progress.expect("training", 100, "steps", before=60)
    now[0] = 10.0
    assert progress._line() == "training: 60 of 100 steps, 10 s so far"
    progress("training", 20)
    assert progress._line() == "training: 80 of 100 steps, 2.0/s, 10 s left"


def test_other_figures_take_the_place_of_the_rate() -> None:
    progress, now = reporter()
    progress.expect("training", 10, "steps")
    progress("training", 0, "loss 9.000")
    assert progress._line() == "training: 0 of 10 steps, 0 s so far, loss 9.000"
    now[0] = 5.0
    progress("training", 5, "loss 2.000")
    progress("training", 0)
    assert progress._line() == "training: 5 of 10 steps, loss 2.000, 5 s left"


def test_without_delay_lines_come_at_once_and_a_job_of_any_length_ends_with_one() -> None:
    printed = io.StringIO()
    with ProgressReporter(printed, delay=0, pause=60) as progress:
        progress.announce("4 texts, one pass")
        assert printed.getvalue() == "4 texts, one pass\n"
        progress("texts", 4)
    assert len(printed.getvalue().splitlines()) == 2
    with ProgressReporter(printed, delay=0, pause=60) as progress:
        progress("loading", 0)
    assert len(printed.getvalue().splitlines()) == 2, "nothing was counted"


def test_short_jobs_print_nothing() -> None:
    printed = io.StringIO()
    with ProgressReporter(printed) as progress:
        progress.announce("4 texts, one pass")
        progress("texts", 4)
    assert printed.getvalue() == ""


def test_what_is_announced_comes_first(at_once: None) -> None:
    printed = io.StringIO()
    with ProgressReporter(printed) as progress:
        progress.announce("4 texts, one pass")
        progress.expect("texts", 4)
        progress("texts", 4)
    lines = printed.getvalue().splitlines()
    assert "4 texts, one pass" in lines and lines[-1].startswith("texts: 4 of 4, ")
    assert "\r" not in printed.getvalue() and "\x1b" not in printed.getvalue()


def test_silent_steps_are_shown_too(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_reporter, "PAUSE", 0.02)
    printed = io.StringIO()
    with ProgressReporter(printed) as progress:
        progress.expect("compiling", 7)
        time.sleep(0.3)  # nothing is reported meanwhile
    assert printed.getvalue().count("compiling: 0 of 7, 0 s so far\n") > 2


def test_lines_are_seconds_apart(at_once: None) -> None:
    progress, now = reporter()
    for now[0] in range(60):
        progress("texts", 1)
    assert 10 <= len(progress._stream.getvalue().splitlines()) <= 13  # type: ignore[attr-defined]


def test_a_terminal_gets_a_bar_and_standard_output_stays_its_own() -> None:
    stream, stdout = Terminal(), sys.stdout
    with ProgressReporter(stream) as progress:
        progress.announce("[4] texts, one pass")
        progress.expect("scoring heads", 4)
        progress("scoring heads", 3)
        assert sys.stdout is stdout
        progress._bar.refresh()
    assert "[4] texts, one pass" in stream.getvalue()
    assert "scoring heads: 3 of 4" in stream.getvalue() and "━" in stream.getvalue()


def test_results_are_printed_where_the_bar_is_taken_away() -> None:
    stream = Terminal()
    with ProgressReporter(stream) as progress:
        progress.expect("measuring", 4)
        with progress.hidden():
            before = stream.getvalue()
            time.sleep(0.3)  # the bar is drawn ten times a second
            assert stream.getvalue() == before and before.endswith("\x1b[2K")
        progress("measuring", 4)
        progress._bar.refresh()
    assert "measuring: 4 of 4" in stream.getvalue()


def test_a_long_line_wraps_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    stream = Terminal()
    with ProgressReporter(stream) as progress:
        progress.expect("training", 100, "steps")
        progress("training", 3, "loss 2.345  accuracy 25.0%  1,234 tokens/s  MFU 40%")
        progress._bar.refresh()
    assert (
        "2.345" in stream.getvalue() and "MFU" in stream.getvalue() and "…" not in stream.getvalue()
    )


def test_a_job_continues_where_nobody_reads(at_once: None) -> None:
    printed = io.StringIO()
    with ProgressReporter(printed) as progress:
        printed.close()
        progress("texts", 1)
        time.sleep(0.05)


def test_a_failed_job_ends_without_a_last_line(at_once: None) -> None:
    progress, _ = reporter()
    with pytest.raises(ZeroDivisionError), progress:
        time.sleep(0.05)
        before = progress._stream.getvalue()  # type: ignore[attr-defined]
        raise ZeroDivisionError
    assert progress._stream.getvalue() == before  # type: ignore[attr-defined]


def test_python_functions_show_progress(
    at_once: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ReadingOptions().watch("a stage", 1)  # of no other test, whose line may be seconds old
    assert capsys.readouterr().err.startswith("a stage: 1, "), "in a script"
    show_progress("a stage", 1)
    assert capsys.readouterr().err == "", "a line every few seconds"
    show_progress("fitting", 1)
    assert capsys.readouterr().err.startswith("fitting: 1, "), "another stage is another job"
    shell = types.SimpleNamespace(kernel=object(), execution_count=3)
    module = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", module)
    for shell.execution_count in (3, 4):
        show_progress("fitting", 1)
        assert capsys.readouterr().err.startswith("fitting: 1, "), "a cell of its own"


def test_short_jobs_of_python_functions_print_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(3):
        show_progress("a short job", 1)
    assert capsys.readouterr().err == ""


def test_python_functions_report_to_the_reporter_that_is_shown(at_once: None) -> None:
    stream = io.StringIO()
    with ProgressReporter(stream) as progress:
        show_progress("scoring heads", 3)
        progress.show()
    assert "scoring heads: 3" in stream.getvalue()


def test_times_as_people_say_them() -> None:
    assert [duration(n) for n in (0, 59.4, 60, 5400)] == ["0 s", "59 s", "1.0 min", "1.5 h"]
