# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`classify`: labels of texts with their probabilities, by a sequence classifier."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import expit, log_softmax

from flaxattn.corpus.texts import plain_texts
from flaxattn.errors import InputError, check_arguments
from flaxattn.pipeline.head_outputs import head_outputs
from flaxattn.pipeline.tokenize_texts import TOGETHER, groups_of, tokenize
from flaxattn.pretrained.model_types import CLASSIFIERS
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.text.text_lists import text_list

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
