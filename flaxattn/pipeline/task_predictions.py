# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Predictions of task heads for many texts: `classify` and `answer_question`.

`classify` returns the labels of a sequence classifier with their probabilities, `answer_question`
the spans of a context that answer a question.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int
from scipy.special import expit, log_softmax

from flaxattn.corpus.texts import plain_texts
from flaxattn.errors import InputError, check_arguments
from flaxattn.pipeline.run import Arguments, ModelRunner, mesh_of
from flaxattn.pipeline.tokenize_texts import TOGETHER, groups_of, tokenize
from flaxattn.pretrained.model_inputs import TokenizedTexts
from flaxattn.pretrained.model_types import CLASSIFIERS
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.text_lists import text_list


@dataclasses.dataclass(frozen=True)
class _Fields:
    """Program that returns fields of a model's output."""

    names: tuple[str, ...]

    def __call__(
        self, module: nn.Module, params: Any, given: Arguments, notes: Arguments
    ) -> Float[Array, "N B ..."]:
        out = module.apply({"params": params}, **given)
        return jnp.stack([getattr(out, name).astype(jnp.float32) for name in self.names])

    def label(self, number: int) -> str:
        return self.names[number]


def head_outputs(
    model: Pretrained,
    rows: Sequence[TokenizedTexts],
    fields: tuple[str, ...],
    names: Sequence[str],
    batch_tokens: int | None = None,
    *,
    by_token: bool = False,
) -> list[Float[np.ndarray, "N ..."]]:
    """Run a model on tokenized texts and return fields of its output, stacked, for each text.

    Memory: the fields, and two batches.

    Args:
        model: The model.
        rows: The texts.
        fields: Names of fields of one shape.
        names: Names of the texts, for errors.
        batch_tokens: Positions of a batch, padding counted.
        by_token: Whether fields have an axis of positions, which is cut to those of the text.
    """
    runner = ModelRunner([model], _Fields(fields), mesh=mesh_of(), batch_tokens=batch_tokens)

    def trim(text: int, output: Float[np.ndarray, "N 1 ..."]) -> Float[np.ndarray, "N 1 ..."]:
        return output[:, :, : rows[text].lengths[0]] if by_token else output

    found: list[np.ndarray] = [np.zeros(0)] * len(rows)
    for text, _, (output,) in runner.run(rows, names, trim=trim):
        found[text] = output[:, 0]
    return found


_WINDOW = 4096  # texts that are sorted by length together


class LabelScore(NamedTuple):
    """A label of a text.

    Attributes:
        label: Name of the class, as the model's `id2label` has it.
        score: Its probability; of a regression the number itself.
    """

    label: str
    score: float


@check_arguments()
def classify(
    model: Pretrained,
    text: str | Sequence[str],
    second: str | Sequence[str] | None = None,
    top: int | None = None,
    *,
    truncate: bool = False,
    batch_tokens: int | None = None,
) -> list[LabelScore] | list[list[LabelScore]]:
    """Return the labels of texts, or of pairs of texts, with their probabilities.

    Probabilities are a softmax over the classes; where config.json says
    `multi_label_classification` a sigmoid of each; where it says `regression`, or there is a single
    class, the score is the number that the model predicts.

    >>> import warnings
    >>> import flaxattn as fa
    >>> with warnings.catch_warnings(action="ignore"):  # the head of this one is untrained
    ...     model = fa.from_pretrained("tiny-bert", "ForSequenceClassification", num_labels=2)
    >>> scores = fa.classify(model, "The soup was cold.")
    >>> sorted(one.label for one in scores)
    ['LABEL_0', 'LABEL_1']

    Cost: one forward pass; memory is that of two batches.

    Args:
        model: A sequence classifier with its tokenizer, such as one that
            `flaxattn train classify` made.
        text: A text, or several.
        second: The second text of each pair.
        top: Number of labels to return; default all.
        truncate: Whether a text over the model's limit is cut; otherwise it is an error.
        batch_tokens: Positions of a batch, padding counted.

    Returns:
        Labels of the text, the likeliest first; for several texts a list of these.

    Raises:
        InputError: For a model that is not a sequence classifier or has no tokenizer, a text that
            cannot be read, or scores that are NaN.
    """
    if not isinstance(model.module, CLASSIFIERS):
        raise InputError(
            f"{model.name!r} is a {model.config.architectures[0]}, which has no labels of texts\n"
            "name a sequence classifier; flaxattn train classify makes one of an encoder"
        )
    labels = list(model.config.id2label.values())
    if top is not None and not 1 <= top <= len(labels):
        raise InputError(f"top is {top}\nexpected 1 to {len(labels)}, the number of labels")
    texts = text_list(text)
    pairs = None if second is None else text_list(second, "second text")
    if pairs is not None and len(pairs) != len(texts):
        raise InputError(
            f"received {len(texts)} texts and {len(pairs)} second ones\n"
            "expected a second text for each, or none"
        )
    problem = getattr(model.config, "problem_type", None) or (
        "regression" if len(labels) == 1 else "single_label_classification"
    )
    scored: list[list[LabelScore]] = []
    for start in range(0, len(texts), _WINDOW):
        part = slice(start, start + _WINDOW)
        numbered = plain_texts(texts[part], None if pairs is None else pairs[part], start)
        groups = groups_of(numbered, TOGETHER)
        rows = [row for group in groups for row in tokenize(model, group, truncate)]
        names = [f"text {one.index}" for one in numbered]
        for (logits,) in head_outputs(model, rows, ("logits",), names, batch_tokens):
            scores = _scores(logits.astype(np.float64), problem)
            order = np.argsort(-scores, kind="stable")[:top]
            scored.append([LabelScore(labels[n], float(scores[n])) for n in order])
    return scored[0] if isinstance(text, str) else scored


def _scores(logits: Float[np.ndarray, " C"], problem: str) -> Float[np.ndarray, " C"]:
    """Probabilities of the classes, or the numbers of a regression."""
    if problem == "regression":
        return logits
    if problem == "multi_label_classification":
        return expit(logits)
    return np.exp(log_softmax(logits))


_HEAD = "ForQuestionAnswering"
Span = tuple[int, int]


class Answer(NamedTuple):
    """A span of a context that may answer a question.

    Attributes:
        score: Probability of the span in its window; of an empty answer, the lowest over windows.
        start: First character of the context.
        end: Character behind the last one.
        answer: The words themselves; empty where the context has no answer.
        window: Half-open range of characters of the window that the score is from.
    """

    score: float
    start: int
    end: int
    answer: str
    window: Span


@check_arguments()
def answer_question(
    model: Pretrained,
    question: str | Sequence[str],
    context: str | Sequence[str],
    top: int = 1,
    *,
    null_answer: bool = False,
    max_answer_tokens: int = 15,
    max_length: int = 384,
    stride: int = 128,
    batch_tokens: int | None = None,
) -> list[Answer] | list[list[Answer]]:
    """Find the words of a context that answer a question.

    The model scores every token as the first and as the last of the answer. In each window a
    softmax over the tokens of the context and the first token, `[CLS]`, makes probabilities of
    either; a span has the product of both. Spans end at whole words, and the probabilities of
    spans of tokens that make the same words are added. A context that does not fit into
    `max_length` tokens with the question is read in windows that overlap by `stride` tokens; words
    that several windows hold get their highest score. The first token stands for "no answer".

    This is what the question-answering pipeline of Hugging Face transformers computes, with the
    same defaults, but for two things: that one takes the best spans of tokens before it turns them
    into words, and adds the scores of windows, which may then exceed 1.

    >>> import warnings
    >>> import flaxattn as fa
    >>> with warnings.catch_warnings(action="ignore"):  # the head of this one is untrained
    ...     model = fa.from_pretrained("tiny-bert", "ForQuestionAnswering")
    >>> answers = fa.answer_question(model, "Who slept?", "The cat slept, the dog did not.", top=3)
    >>> len(answers), "The cat slept, the dog did not."[answers[0].start : answers[0].end]
    (3, ...)

    Cost: one forward pass over all windows; memory is that of two batches.

    Args:
        model: An encoder with a question-answering head and its tokenizer, such as a
            `BertForQuestionAnswering`.
        question: A question, or several.
        context: The text with the answer, or one for each question.
        top: Number of answers; fewer where the context has fewer spans.
        null_answer: Whether "no answer" is among the answers: a span of no characters at 0.
        max_answer_tokens: Largest number of tokens of an answer.
        max_length: Number of tokens of a window with the question, special ones counted; a model
            with a lower limit has windows of that length.
        stride: Number of tokens that neighbouring windows share; at most half of the window.
        batch_tokens: Positions of a batch, padding counted.

    Returns:
        Answers, the likeliest first; for several questions a list of these.

    Raises:
        InputError: For a model without such a head or without tokenizer, an empty text, a question
            that leaves no room for the context, or scores that are NaN.
    """
    for name, count, low in (
        ("top", top, 1),
        ("max_answer_tokens", max_answer_tokens, 1),
        ("stride", stride, 0),
    ):
        if count < low:
            raise InputError(f"{name} is {count}\nexpected at least {low}")
    encoder = _checked(model)
    single = isinstance(question, str)
    questions = text_list(question, "question")
    contexts = text_list(context, "context")
    if len(questions) != len(contexts) or single != isinstance(context, str):
        raise InputError(
            f"received {len(questions)} questions and {len(contexts)} contexts\n"
            "expected a context for each question\ngive two texts, or two lists of one length"
        )
    room = min(max_length, encoder.limit)
    overlap = min(stride, room // 2)
    readings = [
        _windows(encoder, one, other, room, overlap, "" if single else f"question {number}: ")
        for number, (one, other) in enumerate(zip(questions, contexts, strict=True))
    ]
    rows = [row for windows in readings for row in windows]
    names = [f"question {n}" for n, windows in enumerate(readings) for _ in windows]
    fields = ("start_logits", "end_logits")
    scores = head_outputs(encoder, rows, fields, names, batch_tokens, by_token=True)
    outputs = iter(zip(rows, scores, strict=True))
    answers = []
    for text, windows in zip(contexts, readings, strict=True):
        scored = [(row, out[0], out[1]) for row, out in itertools.islice(outputs, len(windows))]
        answers.append(_answers(text, scored, max_answer_tokens, null_answer))
    best = [
        sorted(some, key=lambda one: (-one.score, one.start, one.end))[:top] for some in answers
    ]
    return best[0] if single else best


def _checked(model: Pretrained) -> PretrainedBert:
    architecture = model.config.architectures[0]
    if not isinstance(model, PretrainedBert) or not architecture.endswith(_HEAD):
        raise InputError(
            f"{model.name!r} is a {architecture}, which finds no answers in a text\n"
            f"name an encoder that was saved with the head {_HEAD}"
        )
    if model.tokenizer is None:
        raise InputError(
            f"{model.name!r} came without a tokenizer, so it cannot read text\n"
            "put tokenizer.json into its directory"
        )
    return model


def _windows(
    model: PretrainedBert, question: str, context: str, room: int, stride: int, name: str
) -> list[TokenizedTexts]:
    """Windows of a context; errors begin with the name of the question."""
    try:
        rows = model.read_windows(question, context, max_length=room, stride=stride).rows()
    except InputError as error:
        raise InputError(f"{name}{error}") from None
    if not len(_context_tokens(rows[0])[0]):
        raise InputError(
            f"{name}the tokenizer leaves nothing of the context {context[:40]!r}\n"
            "expected at least one token\ngive a text of words"
        )
    return rows


_Scored = tuple[TokenizedTexts, Float[np.ndarray, " S"], Float[np.ndarray, " S"]]


def _answers(context: str, windows: list[_Scored], most: int, null_answer: bool) -> list[Answer]:
    """All answers in a context, one for each span of words."""
    words = _word_spans([row for row, _, _ in windows])
    best: dict[Span, Answer] = {}
    nulls = []
    for row, start, end in windows:
        places, own = _context_tokens(row)
        allowed = np.concatenate([[0], places])
        first, last = (np.exp(log_softmax(np.float64(one[allowed]))) for one in (start, end))
        spans = [words.get(word, span) for word, span in own]
        window = (spans[0][0], spans[-1][1])
        nulls.append(Answer(float(first[0] * last[0]), 0, 0, "", window))
        for span, score in _span_scores(context, spans, first[1:], last[1:], most).items():
            if span not in best or best[span].score < score:
                best[span] = Answer(score, *span, context[slice(*span)], window)
    return [*best.values(), *([min(nulls)] if null_answer else [])]


def _context_tokens(
    row: TokenizedTexts,
) -> tuple[Int[np.ndarray, " N"], list[tuple[int | None, Span]]]:
    """Positions of the context in a window, with the word and the characters of each."""
    text = row.metadata
    assert text.segments is not None and text.spans is not None and text.words is not None
    spans, words = text.spans[0], text.words[0]
    size = row.lengths[0]
    second = np.asarray(text.segments)[0, :size] == 1
    places = [n for n in range(size) if second[n] and spans[n] is not None]
    return np.array(places, np.int64), [(words[n], spans[n] or (0, 0)) for n in places]


def _word_spans(rows: list[TokenizedTexts]) -> dict[int | None, Span]:
    """Characters of each word of the context, by its number."""
    words: dict[int | None, Span] = {}
    for row in rows:
        for word, (low, high) in _context_tokens(row)[1]:
            if word is not None:
                before = words.get(word, (low, high))
                words[word] = (min(low, before[0]), max(high, before[1]))
    return words


def _span_scores(
    context: str,
    spans: list[Span],
    first: Float[np.ndarray, " N"],
    last: Float[np.ndarray, " N"],
    most: int,
) -> dict[Span, float]:
    """Probability of each span of words that begins and ends in a window."""
    scores: dict[Span, float] = {}
    for distance in range(min(most, len(spans))):
        products = (first[: len(first) - distance] * last[distance:]).tolist()
        for begin, product in enumerate(products):
            low, high = spans[begin][0], spans[begin + distance][1]
            # Some tokenizers count white space to a word, or make words of it.
            high -= len(context[low:high]) - len(context[low:high].rstrip())
            low += len(context[low:high]) - len(context[low:high].lstrip())
            if low < high:
                scores[low, high] = scores.get((low, high), 0.0) + product
    return scores
