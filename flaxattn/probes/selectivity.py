# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a parsing probe: attachment scores beside baselines without trees.

A fixed offset (right- and left-branching among them), a control task in which each word type has
an answer drawn at random (Hewitt & Liang 2019), and attention of a model that was never trained.
The probe itself is in `parsing`.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Int

from flaxattn.errors import InputError
from flaxattn.probes.parsing_probe import ParsingProbe, Targets, fit_parsing_probe, governors_of
from flaxattn.probes.word_maps import ROOT, UNKNOWN, WordMaps


class Attachment(NamedTuple):
    """Number of words with the right governor; punctuation is not counted.

    Attributes:
        right: Words with the right one.
        words: All of them.
    """

    right: int
    words: int

    @property
    def score(self) -> float:
        """Unlabelled attachment score, between 0 and 1; nan without words."""
        return self.right / self.words if self.words else float("nan")


class ParserScores(NamedTuple):
    """A probe fitted to some sentences and judged on others.

    Attributes:
        probe: Fitted to the trees.
        tree: Its attachment.
        fitted: On the sentences it was fitted to: far above `tree` where there were too few.
        offset: The fixed offset that is best on those, key minus query.
        baseline: Attachment by it.
        control: Attachment of another probe, fitted to the control task, to that task's answers.
        untrained: Attachment of a third one, on maps of an untrained model; None without.
    """

    probe: ParsingProbe
    tree: Attachment
    fitted: Attachment
    offset: int
    baseline: Attachment
    control: Attachment
    untrained: Attachment | None

    @property
    def selectivity(self) -> float:
        """Points by which the probe finds trees better than it learns words by heart."""
        return 100 * (self.tree.score - self.control.score)

    def facts(self) -> dict[str, Any]:
        """Scores in percent, ready for JSON."""
        each = {"tree": self.tree, "fitted": self.fitted, "control": self.control}
        each["offset"] = self.baseline
        if self.untrained is not None:
            each["untrained"] = self.untrained
        scores = {name: 100 * one.score for name, one in each.items()}
        return {
            "uas": scores,
            "selectivity": self.selectivity,
            "offset": self.offset,
            "words": self.tree.words,
            "fitted_to_words": self.probe.words,
            "settled": self.probe.settled,
        }


def attachment(
    governors: Callable[[WordMaps], Int[np.ndarray, " W"]],
    texts: Iterable[WordMaps],
    targets: Targets = governors_of,
) -> Attachment:
    """Compare governors with what they should be."""
    right = count = 0
    for words in texts:
        wanted = targets(words)
        there = ~words.punctuation & (wanted != UNKNOWN)
        right += int((governors(words) == wanted)[there].sum())
        count += int(there.sum())
    return Attachment(right, count)


def control_task(seed: int = 0) -> Targets:
    """A task that only who knows the words can do: each type attaches itself to a place at random.

    The places are the word itself, the first and the last word of the sentence (Hewitt & Liang
    2019). A type, that is, a word with the same tokens, draws one for all sentences.
    """

    def targets(words: WordMaps) -> Int[np.ndarray, " W"]:
        found = np.empty(len(words), int)
        for place, positions in enumerate(words.types):
            drawn = zlib.crc32(repr((seed, positions)).encode()) % 3
            found[place] = (place, 0, len(words) - 1)[drawn]
        return np.where(words.governors == UNKNOWN, UNKNOWN, found)

    return targets


def by_offset(offset: int) -> Callable[[WordMaps], Int[np.ndarray, " W"]]:
    """Governors so many words after each word: 1 is a right-branching tree's mirror, -1 its own."""

    def governors(words: WordMaps) -> Int[np.ndarray, " W"]:
        places = np.arange(len(words)) + offset
        return np.where((places >= 0) & (places < len(words)), places, ROOT)

    return governors


def judge_parsing(
    train: Sequence[WordMaps],
    test: Sequence[WordMaps],
    *,
    untrained: tuple[Sequence[WordMaps], Sequence[WordMaps]] | None = None,
    penalty: float = 1e-4,
    seed: int = 0,
) -> ParserScores:
    """Fit a parsing probe to some sentences, judge it on others, and say what it is worth.

    Args:
        train: Sentences it is fitted to.
        test: Others of the same model.
        untrained: Both kinds of sentences as a model with random parameters sees them.
        penalty: See `fit_parsing_probe`.
        seed: Of the control task.

    Raises:
        InputError: If more than a tenth of `test` are in `train` (counting sentences of 5 words
            and more), or there are none.
    """
    check_apart(train, test)
    probe = fit_parsing_probe(train, penalty=penalty)
    task = control_task(seed)
    control = fit_parsing_probe(train, penalty=penalty, targets=task)
    random = None
    if untrained is not None:
        blind = fit_parsing_probe(untrained[0], penalty=penalty)
        random = attachment(blind.governors, untrained[1])
    offset = _best_offset(train)
    return ParserScores(
        probe,
        attachment(probe.governors, test),
        attachment(probe.governors, train),
        offset,
        attachment(by_offset(offset), test),
        attachment(control.governors, test, task),
        random,
    )


class Typed(Protocol):
    """A sentence whose words have types: attention between them, or their vectors."""

    @property
    def types(self) -> tuple[tuple[int, ...], ...]:
        """The tokens of each word."""
        ...

    @property
    def name(self) -> str:
        """The name of the probe."""
        ...


def check_apart(train: Sequence[Typed], test: Sequence[Typed]) -> None:
    """Refuse to judge a probe on what it was fitted to."""
    if not train or not test:
        raise InputError(
            f"A probe needs sentences to learn from and others to be judged on; received "
            f"{len(train)} and {len(test)}.\nGive two files with trees."
        )
    known = {words.types for words in train}
    same = [words.name for words in test if words.types in known and len(words.types) > _SHORT]
    if len(same) > _SHARED * len(test):
        raise InputError(
            f"{len(same)} of {len(test)} sentences to judge the probe on are among those it is "
            f"fitted to, such as {same[0]!r}.\nGive sentences of other texts."
        )


_SHORT = 4  # words: greetings and the like recur in any corpus
_SHARED = 0.1  # of the sentences: corpora share some longer ones too


def _best_offset(texts: Sequence[WordMaps]) -> int:
    """The commonest offset from a word that is not punctuation to its governor."""
    offsets: Counter[int] = Counter()
    for words in texts:
        there = ~words.punctuation & (words.governors >= 0)
        offsets.update((words.governors - np.arange(len(words)))[there].tolist())
    return min(offsets, key=lambda step: (-offsets[step], abs(step), step), default=1)
