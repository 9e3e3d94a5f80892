# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The built-in translation model is trained: it rewrites dates, and shows where it read them."""

import datetime
from typing import Any

import numpy as np
import pytest
from date_formats import formats
from make_dates import EVERYDAY, dates, examples, split

import flaxattn as fa
from flaxattn.pretrained.pretrained_seq2seq import PretrainedSeq2Seq

ROWS = 500
# Written for this test; 3 May is American with slashes, German with dots.
WRITTEN = {
    "the 3rd of May, 1999": "1999-05-03",
    "May 3, 1999": "1999-05-03",
    "5/4/09": "2009-05-04",
    "Montag, 12. Juli 2010": "2010-07-12",
    "4.5.09": "2009-05-04",
    "den 31. Dezember 1968": "1968-12-31",
    "1. Jänner 1920": "1920-01-01",
    "12.VII.2010": "2010-07-12",
    "20100712": "2010-07-12",
}
PARTS = {"year": slice(0, 4), "month": slice(5, 7), "day": slice(8, 10)}  # of what is written


@pytest.fixture(scope="module")
def model() -> PretrainedSeq2Seq:
    loaded = fa.from_pretrained("tiny-dates")
    assert isinstance(loaded, PretrainedSeq2Seq)
    return loaded


@pytest.mark.slow
def test_dates_people_write(model: PretrainedSeq2Seq) -> None:
    assert model.generate(list(WRITTEN)) == list(WRITTEN.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "least"), [pytest.param("seen", 0.98, marks=pytest.mark.slow), ("unseen", 0.95)]
)
def test_held_out_dates(model: PretrainedSeq2Seq, part: str, least: float) -> None:
    """The share that is right to the last digit; formats unseen are not promise, only a floor."""
    drawn = list(examples(ROWS, 7, getattr(split(formats()), part), dates("heldout")))
    found = model.generate([one.text for one in drawn])
    assert np.mean([iso == one.iso for iso, one in zip(found, drawn, strict=True)]) >= least


def test_attention_lies_on_the_part_that_is_written(model: PretrainedSeq2Seq) -> None:
    """Day, month and year, in everyday formats: of the layers, the one that shows it best."""
    chosen = [one for one in formats() if one.layout in EVERYDAY and not one.two_digits]
    drawn = list(examples(200, 3, chosen, dates("heldout")))
    trace = model.trace([one.text for one in drawn], [one.iso for one in drawn])
    offsets = model.tokenizer.encode([one.text for one in drawn]).offsets
    hits = [
        [on_part(trace, b, one, offsets[b], layer) for layer in range(2)]
        for b, one in enumerate(drawn)
    ]
    assert np.mean(hits, axis=0).max() > 0.9


def on_part(trace: fa.Trace, b: int, example: Any, offsets: Any, layer: int) -> float:
    """Share of the three parts whose first digit looks most at a piece of that part."""
    assert trace.cross is not None
    weights = np.asarray(trace.cross.weights)[layer, b].mean(0)
    date, hits = datetime.date.fromisoformat(example.iso), []
    for part, (begin, end, *_) in example.format.spans(date).items():
        if part in PARTS:
            at = offsets[weights[PARTS[part].start].argmax()]
            hits.append(at[0] < end and at[1] > begin)
    return float(np.mean(hits))
