# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Functions that take texts give the same answer for every container, and refuse tables."""

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import flaxattn as fa
from flaxattn.errors import InputError

TEXTS = ["The [MASK] sat.", "A dog [MASK]."]


class Series:
    """What a Series of pandas or polars has: its values as Python objects, and an iterator."""

    ndim = 1

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def tolist(self) -> list[Any]:
        return self.values


CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "generator": lambda texts: (text for text in texts),
    "array of str": np.array,
    "array of objects": lambda texts: np.array(texts, object),
    "Series": Series,
    "Arrow array": pa.array,
    "Arrow column": lambda texts: pa.chunked_array([texts]),
}
SHORT = [CONTAINERS["generator"], CONTAINERS["Arrow column"]]  # of SLOW_DOORS
TABLES = {
    "Arrow table": lambda texts: pa.table({"text": texts}),
    "data frame": lambda texts: types.SimpleNamespace(columns=["text"], ndim=2),
    "dataset": lambda texts: types.SimpleNamespace(column_names=["text"]),
}
MISSING = (None, float("nan"))


def values_of(report: fa.Report) -> list[Any]:
    """Rows of the table of a report."""
    return [repr(row) for row in report.table.to_pylist()]


BERT, GPT2, DATES = "tiny-bert", "tiny-gpt2", "tiny-dates"
DOORS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "trace": (BERT, lambda model, texts: model.trace(texts).encoder.weights),
    "trace of a decoder": (GPT2, lambda model, texts: model.trace(texts).decoder.weights),
    "trace of a source": (DATES, lambda model, texts: model.trace(texts).encoder.weights),
    "generate": (GPT2, lambda model, texts: model.generate(texts, max_new_tokens=2, seed=1)),
    "translate": (DATES, lambda model, texts: model.generate(texts, max_new_tokens=2)),
    "extract": (BERT, lambda model, texts: fa.extract(model, texts)[1].encoder.weights),
    "embed": (BERT, fa.embed),
    "fill_mask": (BERT, lambda model, texts: repr(fa.fill_mask(model, texts, k=2))),
    "head_stats": (
        BERT,
        lambda model, texts: fa.head_stats(model, texts).moments["mean", "next"].mean,
    ),
    "stats_report": (
        BERT,
        lambda model, texts: fa.stats_report(model, texts, compared=0).rows["mean"],
    ),
    "compare": (BERT, lambda model, texts: values_of(fa.compare(model, model, texts))),
    "weights": (
        BERT,
        lambda model, texts: values_of(fa.weights(model, texts, kinds=("attention",))),
    ),
    "attention_norms": (BERT, lambda model, texts: fa.attention_norms(model, texts)["encoder"]),
    "logit_lens": (GPT2, lambda model, texts: [one.tokens for one in fa.logit_lens(model, texts)]),
    "token_losses": (
        GPT2,
        lambda model, texts: [one.losses for one in fa.token_losses(model, texts)],
    ),
}


SLOW_DOORS = {"compare", "head_stats", "stats_report", "token_losses", "weights"}


@pytest.mark.few("extract", "translate", "weights", "fill_mask", "generate")
@pytest.mark.parametrize("door", DOORS)
def test_every_container_gives_the_answer_of_a_list(door: str) -> None:
    name, call = DOORS[door]
    model = fa.from_pretrained(name)
    expected = call(model, TEXTS)
    for container in SHORT if door in SLOW_DOORS else CONTAINERS.values():
        found = call(model, container(TEXTS))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("door", DOORS)
def test_tables_and_missing_texts_are_refused(door: str) -> None:
    name, call = DOORS[door]
    model = fa.from_pretrained(name)
    tables = list(TABLES.values())
    if name != GPT2:  # of which a mapping is one message of a chat
        tables.append(lambda texts: {"text": texts})
    for table in tables:
        with pytest.raises(InputError, match=r"columns text\npass one .* table\['text'\]"):
            call(model, table(TEXTS))
    for value in MISSING:
        with pytest.raises(InputError, match=r"1 is missing"):
            call(model, Series([TEXTS[0], value]))
