# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Processes that read texts: what they return, and what happens when one is lost."""

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator

import pytest

from flaxattn.corpus.texts import Text, plain_texts
from flaxattn.errors import UnavailableError
from flaxattn.pipeline.tokenize_texts import PATIENCE, TOGETHER, TextError, TokenPrefetch, groups_of

# Starting a process imports jax, which takes seconds.
pytestmark = pytest.mark.slow


def groups(texts: list[str], first: int = 0) -> Iterator[list[Text]]:
    return groups_of(plain_texts(texts, None, first), TOGETHER)


def some(count: int) -> Iterator[list[Text]]:
    return groups([f"the cat is {'very ' * (i % 9)}sad" for i in range(count)])


def children() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def test_processes_read_as_a_thread_does_and_end(bert) -> None:
    with TokenPrefetch(bert) as thread, TokenPrefetch(bert, workers=2) as processes:
        expected = [row for rows in thread.read(some(200)) for row in rows]
        found = [row for rows in processes.read(some(200)) for row in rows]
        assert len(children()) == 2
    assert not children()
    assert [row.metadata.texts for row in found] == [row.metadata.texts for row in expected]
    for one, other in zip(found, expected, strict=True):
        assert {n: a.tolist() for n, a in one.given.items()} == {
            n: a.tolist() for n, a in other.given.items()
        }


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (signal.SIGKILL, r"a worker process died .*text.* 64 to 127 \(exit code -9\)"),
        (signal.SIGSTOP, r"said nothing for 3 s while reading texts 64 to 127"),
    ],
    ids=["killed", "hangs"],
)
def test_a_lost_worker_is_reported_with_its_texts(bert, kind, message) -> None:
    with TokenPrefetch(bert, workers=1) as ahead:
        assert len(list(ahead.read(some(1)))) == 1
        ahead._processes[0]._patience = 3  # a shorter one would not suffice to start
        os.kill(children()[0], kind)
        started = time.monotonic()
        with pytest.raises(UnavailableError, match=message) as caught:
            list(ahead.read(groups(["the cat"] * 64, first=64)))
        assert time.monotonic() - started < 20
    assert len(str(caught.value).splitlines()) <= 3
    assert not children()


def test_a_text_that_a_worker_cannot_read_is_named(bert) -> None:
    texts = ["the cat"] * 70 + ["bad \ud800"] + ["the"] * 70
    with TokenPrefetch(bert, workers=1) as ahead:
        rows = [row for group in ahead.read(groups(texts)) for row in group]
    errors = {n: row for n, row in enumerate(rows) if isinstance(row, TextError)}
    assert list(errors) == [70] and str(errors[70]).startswith("text 70 is not valid")
    assert not children()


def test_patience_leaves_time_for_the_message_within_a_minute() -> None:
    assert PATIENCE + 5 < 60
