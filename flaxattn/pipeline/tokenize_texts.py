# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenize texts, some at a time and in the background; errors name the text.

`ReadingOptions` are the options of every function that reads texts and runs a model over them. A
worker process that dies, fails or says nothing for too long ends the work with an error that names
its texts; nothing waits forever. Each process is served by a thread of its own, so that it is known
at any time which texts it has. Texts with trees get the labels of their positions.
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
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from flaxattn.corpus.bad_rows import BadRows, Problem
from flaxattn.corpus.dependency_trees import NO_GOVERNOR, Sentence
from flaxattn.corpus.texts import Text
from flaxattn.errors import InputError, UnavailableError
from flaxattn.files import printable
from flaxattn.pipeline.progress_reporter import Watch, show_progress
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.position_labels import Arc, PositionLabels, labels_of
from flaxattn.text.tokens import positions_of_words, token_spans
from flaxattn.trace.trace import Trace


@dataclasses.dataclass(frozen=True)
class ReadingOptions:
    """Options for reading texts, and for choosing those that count.

    >>> import flaxattn as fa
    >>> model, texts = fa.from_pretrained("tiny-bert"), ["The cat is very sad.", "It sleeps."]
    >>> stats = fa.head_stats(model, texts, reading=fa.ReadingOptions(limit=1))
    >>> stats.moments["mean", "next"].counts[0, 0]
    np.int64(1)

    Attributes:
        truncate: Whether texts over the model's limit are cut; words beyond it count nowhere.
        bad: Receives the texts that cannot be used: over the limit, or with a word that the
            tokenizer makes no token of; None raises at the first one.
        batch_tokens: Number of positions in a batch, padding included; None for the default of the
            device.
        watch: Receives progress; the default prints it to standard error.
        limit: Largest number of texts; None for all.
        lengths: Fewest and most positions of texts that count, special tokens included: scores
            compare best on texts of like lengths.
        allow_nonfinite: Whether attention and hidden states that are NaN or infinite are kept, and
            scores of them left out; otherwise they are an error that names model, layer and text.
    """

    truncate: bool = False
    bad: BadRows | None = None
    batch_tokens: int | None = None
    watch: Watch = show_progress
    limit: int | None = None
    lengths: tuple[int, int] | None = None
    allow_nonfinite: bool = False

    @property
    def problems(self) -> BadRows:
        """Receiver of texts that cannot be used, in any case."""
        return BadRows() if self.bad is None else self.bad

    @property
    def again(self) -> Self:
        """The same options for a second pass, in which bad texts are skipped without a report."""
        return dataclasses.replace(self, bad=BadRows("skip"))


DEFAULTS = ReadingOptions()


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


WINDOW = 4096
"""Texts that are sorted by length together, and among which the rarest token is found."""
LONGEST = 1 << 30
"""Positions that no text has."""


class LabelledText(NamedTuple):
    """A text as the model takes it, the layout of its positions, and what it was read from."""

    reading: TokenizedTexts
    layout: PositionLabels
    text: Text


def windows(
    model: Pretrained,
    texts: Iterable[Text],
    reading: ReadingOptions = DEFAULTS,
    size: int | None = None,
) -> Iterator[list[LabelledText]]:
    """Read texts in order, up to `size` at a time, which is `WINDOW` by default."""
    size = WINDOW if size is None else size
    window: list[LabelledText] = []
    groups = groups_of(itertools.islice(texts, reading.limit), TOGETHER)
    for labelled in in_background(lambda group: label_texts(model, group, reading), groups):
        window += labelled
        if len(window) + TOGETHER > size:
            yield window
            window = []
    if window:
        yield window


def with_rare(layouts: Sequence[PositionLabels]) -> list[PositionLabels]:
    """Layouts that know their rarest token, by its frequency in all of them."""
    counts = collections.Counter(
        token for layout in layouts for token in layout.tokens[layout.plain].tolist()
    )
    found = []
    for layout in layouts:
        places = np.flatnonzero(layout.plain)
        often = [counts[token] for token in layout.tokens[places].tolist()]
        rare = int(places[int(np.argmin(often))]) if often else -1
        found.append(dataclasses.replace(layout, rare=rare))
    return found


def label_texts(
    model: Pretrained, texts: Sequence[Text], options: ReadingOptions
) -> list[LabelledText]:
    """Tokenize some texts and label their positions."""
    pairs = [text.text_b is not None for text in texts]
    if any(pairs) and not all(pairs):
        missing = texts[pairs.index(False)]
        raise InputError(
            f"text {missing.id!r} has no second text, and others have one\n"
            "give every text its second, or none"
        )
    found, (low, high) = [], options.lengths or (0, LONGEST)
    for text, reading in tokenize_each(model, texts, options.truncate, options.problems):
        layout = labels_of(reading.metadata, tokens=reading.given["input_ids"][0], name=text.id)
        if text.sentence is not None:
            tree = _on_tree(model, text.sentence, reading, layout)
            if isinstance(tree, Problem):
                options.problems.report(tree)
                continue
            layout = tree
        if low <= len(layout) <= high:
            found.append(LabelledText(reading, layout, text))
    return found


def _on_tree(
    model: Pretrained, sentence: Sentence, reading: TokenizedTexts, layout: PositionLabels
) -> PositionLabels | Problem:
    """The layout with the words of a tree; a problem where the tokenizer leaves nothing of one."""
    assert model.tokenizer is not None
    encoded = model.tokenizer.encode(sentence.text, max_length=LONGEST)
    cut = bool(reading.metadata.truncated[0])
    return with_tree(layout, sentence, encoded.offsets[0][: len(layout)], cut)


def offsets_in(text: str, trace: Trace, layout: PositionLabels) -> list[tuple[int, int]]:
    """Half-open range of characters of each token of a text that was recorded."""
    if trace.spans and trace.texts and list(trace.texts[0]) == [text]:
        return [span or (0, 0) for span in trace.spans[0]]
    return token_spans(text, trace.tokens[0], layout.special.tolist())


def with_tree(
    layout: PositionLabels, sentence: Sentence, offsets: Sequence[tuple[int, int]], cut: bool
) -> PositionLabels | Problem:
    """A layout with the words of the tree over its text."""
    spans = [(word.start, word.stop) for word in sentence.words]
    words = positions_of_words(spans, offsets, layout.special.tolist())
    end = max((offsets[place][1] for place in np.flatnonzero(layout.plain).tolist()), default=0)
    for number, (word, tokens) in enumerate(zip(sentence.words, words, strict=True), 1):
        if not tokens and not (cut and word.start >= end):
            message = (
                f"sentence {sentence.id!r}, word {number} {word.form!r}: the tokenizer makes no "
                "token of it"
            )
            return Problem(sentence.file, word.line, "", "no-tokens", message)
    arcs = [
        Arc(number, word.governor, word.relation)
        for number, word in enumerate(sentence.words)
        if word.governor != NO_GOVERNOR
    ]
    tags = [word.tag for word in sentence.words]
    return dataclasses.replace(layout, words=words, tags=tags, arcs=arcs)
