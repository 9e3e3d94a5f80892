# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The attention-only parsing probe: all heads together as a parser (Clark et al. 2019, section 5).

Every possible governor of a word gets a score, linear in what the heads give from the one to the
other and back; a softmax over them says how probable each is. Embeddings of words, the paper's
second probe, have no place here. The paper's probe has two numbers for the root that all heads
share, which makes its loss no longer convex; here each head has its own. The fit is therefore the
one optimum, whatever the start.

Attachment scores stand beside baselines without trees: a fixed offset (right- and left-branching
among them), a control task in which each word type has an answer drawn at random (Hewitt & Liang
2019), and attention of a model that was never trained.
"""

import dataclasses
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, Int

from flaxattn.errors import InputError
from flaxattn.probes.word_records import ROOT, UNKNOWN, WordMaps

Targets = Callable[[WordMaps], Int[np.ndarray, " W"]]
"""The right answer for each word: its governor, `ROOT`, or `UNKNOWN`."""
_ITERATIONS = 500


@dataclasses.dataclass(frozen=True)
class ParsingProbe:
    """A fitted probe.

    Attributes:
        layers: Number of the layer at each index.
        heads: Number of the head at each index.
        given: Coefficients of what a word gives to a possible governor.
        received: Weight of what that one gives to the word.
        first: Weight of what the word gives to `[CLS]`, for being the root.
        separators: Weight of what it gives to `[SEP]`, likewise.
        bias: For being one's own governor, which no word of a tree is, and for being the root.
        loss: Mean cross-entropy in nats per word on the sentences it was fitted to.
        words: Number of words.
        settled: Whether the fit reached its optimum.
    """

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    given: Float[np.ndarray, "L H"]
    received: Float[np.ndarray, "L H"]
    first: Float[np.ndarray, "L H"]
    separators: Float[np.ndarray, "L H"]
    bias: Float[np.ndarray, "2"]
    loss: float
    words: int
    settled: bool

    def scores(self, words: WordMaps) -> Float[np.ndarray, "W W+1"]:
        """Score of each possible governor of each word; the last column is the root."""
        if (words.layers, words.heads) != (self.layers, self.heads):
            raise InputError(
                f"This probe reads {len(self.layers)} layers of {len(self.heads)} heads; "
                f"{words.name or 'the sentence'!r} has {len(words.layers)} of {len(words.heads)}.\n"
                "Fit one to sentences of the same model."
            )
        parts = (self.given, self.received, self.first, self.separators)
        flat = np.concatenate([*(part.ravel() for part in parts), self.bias])
        return _scores(flat.astype(np.float64), words)

    def governors(self, words: WordMaps) -> Int[np.ndarray, " W"]:
        """The most probable governor of each word, or `ROOT`; not always a tree."""
        best = self.scores(words).argmax(1)
        return np.where(best == len(words), ROOT, best)


def governors_of(words: WordMaps) -> Int[np.ndarray, " W"]:
    """The tree itself, what a probe should find."""
    return words.governors


def fit_parsing_probe(
    texts: Sequence[WordMaps], *, penalty: float = 1e-4, targets: Targets = governors_of
) -> ParsingProbe:
    """Fit a probe: the least mean cross-entropy over words plus a penalty, by L-BFGS.

    The loss is convex, so the result follows from the sentences alone: no seed, no rate, no number
    of epochs. Cost: a few hundred passes over all maps, 4 L H W² multiplications each. All maps
    stay in memory.
    """
    from scipy.optimize import minimize

    _check(texts, penalty)
    wanted = [targets(words) for words in texts]
    count = sum(int((target != UNKNOWN).sum()) for target in wanted)
    if not count:
        raise InputError(
            f"None of {len(texts)} sentences has a word with a known governor.\n"
            "Give the probe sentences with trees to learn from."
        )

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        total, slope = 0.0, np.zeros_like(flat)
        for words, target in zip(texts, wanted, strict=True):
            one, its = _loss(flat, words, target)
            total, slope = total + one, slope + its
        return total / count + penalty / 2 * float(flat @ flat), slope / count + penalty * flat

    shape = len(texts[0].layers), len(texts[0].heads)
    start = np.zeros(4 * shape[0] * shape[1] + 2)
    best = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS})
    *parts, bias = _parts(best.x)
    given, received, first, separators = (part.reshape(shape).astype(np.float32) for part in parts)
    return ParsingProbe(
        layers=texts[0].layers,
        heads=texts[0].heads,
        given=given,
        received=received,
        first=first,
        separators=separators,
        bias=bias.astype(np.float32),
        loss=float(best.fun - penalty / 2 * float(best.x @ best.x)),
        words=count,
        settled=bool(best.success),
    )


def _check(texts: Sequence[WordMaps], penalty: float) -> None:
    if not texts or not penalty > 0:
        raise InputError(
            f"A probe cannot be fitted to {len(texts)} sentences with penalty {penalty:g}.\n"
            "Give at least one sentence, and a penalty above 0."
        )
    other = [w for w in texts if (w.layers, w.heads) != (texts[0].layers, texts[0].heads)]
    if other:
        raise InputError(
            f"The sentence {other[0].name!r} was read by other heads than the first one.\n"
            "Fit one probe to each model."
        )


def _parts(flat: np.ndarray) -> tuple[np.ndarray, ...]:
    """Coefficients given, received, of `[CLS]`, of `[SEP]`, and the two biases."""
    return (*flat[:-2].reshape(4, -1), flat[-2:])


def _scores(flat: np.ndarray, words: WordMaps) -> Float[np.ndarray, "W W+1"]:
    given, received, first, separators, bias = _parts(flat)
    count, heads = len(words), len(given)
    both = np.stack([given, received]).astype(np.float32)
    to, back = (both @ words.weights.reshape(heads, -1)).reshape(2, count, count)
    found = np.empty((count, count + 1))
    found[:, :count] = to + back.T + bias[0] * np.eye(count)
    found[:, count] = first @ words.first.reshape(heads, -1) + bias[1]
    found[:, count] += separators @ words.separators.reshape(heads, -1)
    return found


def _loss(flat: np.ndarray, words: WordMaps, target: np.ndarray) -> tuple[float, np.ndarray]:
    """Cross-entropy summed over words that have a target, and its gradient."""
    count, known = len(words), np.flatnonzero(target != UNKNOWN)
    right = np.where(target == ROOT, count, target)[known]
    loss, slope = _cross_entropy(_scores(flat, words), known, right)
    heads = words.weights.shape[0] * words.weights.shape[1]
    among, root = slope[:, :count], slope[:, count]
    both = np.stack([among.ravel(), among.T.ravel()], 1).astype(np.float32)
    given, received = (words.weights.reshape(heads, -1) @ both).T
    parts = [given, received, words.first.reshape(heads, -1) @ root]
    parts += [words.separators.reshape(heads, -1) @ root, [np.trace(among), root.sum()]]
    return loss, np.concatenate(parts)


def _cross_entropy(
    scores: np.ndarray, known: np.ndarray, right: np.ndarray
) -> tuple[float, np.ndarray]:
    """Cross-entropy of the rows that have a right candidate, and its gradient."""
    scores = scores - scores.max(1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    slope = np.zeros_like(logs)
    slope[known] = np.exp(logs[known])
    slope[known, right] -= 1
    return -float(logs[known, right].sum()), slope


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
        seed: Seed of the control task.

    Raises:
        InputError: If more than a tenth of `test` are in `train` (counting sentences of 5 words
            and more), or there are none.
    """
    check_disjoint(train, test)
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


def check_disjoint(train: Sequence[Typed], test: Sequence[Typed]) -> None:
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
