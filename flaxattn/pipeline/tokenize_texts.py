# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenize texts, some at a time and in the background; errors name the text.

A worker process that dies, fails or says nothing for too long ends the work with an error that
names its texts; nothing waits forever. Each process is served by a thread of its own, so that it is
known at any time which texts it has.
"""

import collections
import dataclasses
import itertools
import multiprocessing
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self, TypeVar

from flaxattn.corpus.bad_rows import BadRows, Problem
from flaxattn.corpus.safe_text import printable
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError, UnavailableError
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.pretrained_model import Pretrained

TOGETHER = 64  # texts that are tokenized at a time, and named when something happens to the worker
T = TypeVar("T")


class TextError(InputError):
    """A text that cannot be read, or cannot be used for the request.

    Attributes:
        number: Index of the text.
        problem: What is wrong with it: its subject without a number, and the rest.
    """

    def __init__(self, number: int, problem: str) -> None:
        self.number, self.problem = number, problem
        super().__init__(re.sub(r"^(second text|text|target)", rf"\1 {number}", problem))

    def __reduce__(self) -> tuple[Any, ...]:
        return TextError, (self.number, self.problem)


def groups_of(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items in order; the last one may be shorter."""
    rest = iter(items)
    while group := list(itertools.islice(rest, size)):
        yield group


def describe_range(texts: Sequence[Text]) -> str:
    """Name some consecutive texts for an error message: their numbers, and where they stand."""
    first, last = texts[0], texts[-1]
    ends = [printable(f"{text.file}:{text.line}") for text in (first, last)] if first.file else []
    if len(texts) == 1:
        return f"text {first.index}" + (f" ({ends[0]})" if ends else "")
    where = f" ({ends[0]} to {ends[1]})" if ends else ""
    return f"texts {first.index} to {last.index}{where}"


def tokenize(model: Pretrained, texts: Sequence[Text], truncate: bool) -> list[TokenizedTexts]:
    """Each text as the model takes it, without padding."""
    pairs = [text.text_b or "" for text in texts if text.text_b is not None]
    try:
        return model.read([text.text for text in texts], pairs or None, truncate=truncate).rows()
    except Exception as error:
        _name_text(model, texts, truncate)
        raise error


def tokenize_each(
    model: Pretrained, texts: Sequence[Text], truncate: bool, bad: BadRows
) -> Iterator[tuple[Text, TokenizedTexts]]:
    """Each text that the model can read, beside what it reads; the others are reported."""
    for text, row in zip(texts, tokenize_or_refuse(model, texts, truncate), strict=True):
        if isinstance(row, TextError):
            message = row.problem.splitlines()[0]
            code = "too-many-tokens" if "too long" in message else "empty"
            bad.report(Problem(text.file, text.line, "", code, message))
        else:
            yield text, row


def tokenize_or_refuse(
    model: Pretrained, texts: Sequence[Text], truncate: bool
) -> list[TokenizedTexts | TextError]:
    """Each text as the model takes it, or the reason why it cannot be read."""
    try:
        rows = tokenize(model, texts, truncate)
    except TextError as error:
        if len(texts) == 1:
            return [error]
        return [row for text in texts for row in tokenize_or_refuse(model, [text], truncate)]
    return [
        row if row.lengths[0] else TextError(text.index, "text has no token")
        for text, row in zip(texts, rows, strict=True)
    ]


def _name_text(model: Pretrained, texts: Sequence[Text], truncate: bool) -> None:
    """Raise for the text that fails by itself, unless the first does for a reason of all."""
    for text in texts:
        second = None if text.text_b is None else [text.text_b]
        try:
            model.read([text.text], second, truncate=truncate)
        except InputError as error:
            named = re.match(r"(second text|text|target) 0 ", str(error))
            if named:
                problem = str(error).replace(f"{named[1]} 0 ", f"{named[1]} ", 1)
                raise TextError(text.index, problem) from None
            return
        except Exception as error:
            problem = f"text cannot be read\n{type(error).__name__}: {error}\nleave it out"
            raise TextError(text.index, problem) from error


PATIENCE = 50.0  # seconds that a worker may be silent; with its end and the message under 60
_DEPTH = 64  # groups of texts that are read ahead
R = TypeVar("R")


def compute_ahead(
    pool: ThreadPoolExecutor, function: Callable[[T], R], items: Iterable[T]
) -> Iterator[R]:
    """Yield `function(item)` for each item in order, computed in a pool, some items ahead."""
    waiting: collections.deque[Future[R]] = collections.deque()
    rest = iter(items)
    while True:
        for item in itertools.islice(rest, _DEPTH - len(waiting)):
            waiting.append(pool.submit(function, item))
        if not waiting:
            return
        yield waiting.popleft().result()


def in_background(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield `function(item)` for each item in order, computed in a thread of its own."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="flaxattn-read")
    try:
        yield from compute_ahead(pool, function, items)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class TokenPrefetch:
    """Tokenizes groups of texts in order, some of them ahead.

    A context manager: leaving it ends the workers.

    Args:
        model: Model with the tokenizer.
        workers: Processes; 0 reads in a thread of this one.
        truncate: Whether texts over the model's limit are cut.
        patience: Seconds that a process may take for one group.
    """

    def __init__(
        self,
        model: Pretrained,
        workers: int = 0,
        *,
        truncate: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        # A reader needs no parameters, so none are sent to a process.
        nothing: Any = None
        self._model = dataclasses.replace(model, module=nothing, params=nothing)
        self._workers, self._truncate, self._patience = workers, truncate, patience
        self._pool = ThreadPoolExecutor(max(workers, 1), thread_name_prefix="flaxattn-read")
        self._mine = threading.local()
        self._processes: list[_Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.end()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def read(self, groups: Iterable[list[Text]]) -> Iterator[list[TokenizedTexts | TextError]]:
        """The rows of each group of texts, in order, or why a text cannot be read."""
        return compute_ahead(self._pool, self._one, groups)

    def _one(self, texts: list[Text]) -> list[TokenizedTexts | TextError]:
        if not self._workers:
            return tokenize_or_refuse(self._model, texts, self._truncate)
        if not hasattr(self._mine, "process"):
            self._mine.process = _Process(self._model, self._truncate, self._patience)
            self._processes.append(self._mine.process)
        return self._mine.process.read(texts)


class _Process:
    """A worker process, and the end of its pipe that is here."""

    def __init__(self, model: Pretrained, truncate: bool, patience: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._patience, self._started = patience, False
        self._process = context.Process(target=_serve, args=(there, model, truncate), daemon=True)
        self._process.start()
        there.close()

    def read(self, texts: list[Text]) -> list[TokenizedTexts | TextError]:
        if not self._started:
            self._answer(texts, "starting, before it read")
            self._started = True
        self._send(texts)
        rows, problem = self._answer(texts, "reading")
        if problem is not None:
            raise TextError(*problem)
        return rows

    def _send(self, texts: list[Text]) -> None:
        try:
            self._here.send(texts)
        except OSError as error:
            raise self._lost(texts, "before it read") from error

    def _answer(self, texts: list[Text], doing: str) -> Any:
        try:
            if not self._here.poll(self._patience):
                self.end()
                raise UnavailableError(
                    f"a worker process said nothing for {self._patience:.0f} s while {doing} "
                    f"{describe_range(texts)}\nit was ended; nothing of these texts was computed\n"
                    "look at these texts, or read without processes: workers=0"
                )
            return self._here.recv()
        except (EOFError, OSError) as error:
            raise self._lost(texts, doing) from error

    def _lost(self, texts: list[Text], doing: str) -> UnavailableError:
        self._process.join(5)
        return UnavailableError(
            f"a worker process died while {doing} {describe_range(texts)} "
            f"(exit code {self._process.exitcode})\n"
            "it was killed, ran out of memory, or your script starts work when it is imported\n"
            'put that under if __name__ == "__main__":, or read without processes: workers=0'
        )

    def end(self) -> None:
        """Stop the process, whatever it does."""
        self._process.kill()
        self._process.join(5)


def _serve(pipe: Connection, model: Pretrained, truncate: bool) -> None:
    """Tokenize groups of texts until the other end is closed; runs in a process of its own."""
    import jax

    jax.config.update("jax_platforms", "cpu")  # the accelerator belongs to the other process
    pipe.send(None)
    while True:
        try:
            texts = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            answer: tuple[Any, Any] = tokenize_or_refuse(model, texts, truncate), None
        except Exception as error:
            problem = f"text cannot be read with those after it\n{type(error).__name__}: {error}"
            answer = None, (texts[0].index, problem)
        pipe.send(answer)
