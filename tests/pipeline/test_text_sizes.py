# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes predicted before a model runs equal those it then reads; fingerprints of models."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.kernels.contract import Capture, Sieve
from flaxattn.pipeline.batches import TextSize, measure_for, raw_bytes, sides
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.store.plan import model_fingerprint

TEXTS = ["A cat.", "The cat is very sad, unbelievably so.", "é 漢字 \u202e x"]
PAIRS = ["It sat.", "Because it found no food.", "!"]
DATES = ["March 3, 1999", "3 Mar 99", "1999-03-03"]
SIEVE = Sieve("next", offsets=(1, 1))
EVERYTHING = Capture(
    weights=True,
    scores=True,
    query=True,
    key=True,
    value=True,
    head_output=True,
    hidden=True,
    stats=("entropy", "received", "argmax", "topk(3)", SIEVE),
    dtype="float16",
)
CAPTURES = {
    "everything": EVERYTHING,
    "some layers and heads": dataclasses.replace(EVERYTHING, layers=(1,), heads=(0, 2)),
    "vectors of two bytes": dataclasses.replace(EVERYTHING, vector_dtype="bfloat16"),
    "bytes": Capture(weights=True, dtype="uint8"),
    "a window": Capture(weights=True, query_window=(1, 4), key_window=(0, 2)),
}


@pytest.fixture(scope="module")
def bert() -> Pretrained:
    return fa.from_pretrained("tiny-bert")


@pytest.fixture(scope="module")
def dates() -> Pretrained:
    return fa.from_pretrained("tiny-dates")


def stored(trace: Any) -> int:
    """Bytes of what a trace of one text holds."""
    records = [getattr(trace, side) for side in ("encoder", "decoder", "cross")]
    return sum(leaf.nbytes for leaf in jax.tree.leaves([one for one in records if one is not None]))


def tokens(encoded: Any) -> list[int]:
    return np.asarray(encoded.attention_mask).sum(1).tolist()


@pytest.mark.slow
@pytest.mark.few("some")
@pytest.mark.parametrize("name", CAPTURES)
def test_bytes_of_texts_and_pairs(name: str, bert: Pretrained) -> None:
    capture = CAPTURES[name]
    (size,) = measure_for(bert, True)(TEXTS[1:2], PAIRS[1:2])
    trace = bert.trace(TEXTS[1], PAIRS[1], capture=capture)
    assert raw_bytes(capture, sides(bert.config), size) == stored(trace)


@pytest.mark.slow
def test_bytes_of_a_source_and_its_target(dates: Pretrained) -> None:
    (size,) = measure_for(dates, True)(DATES[:1], DATES[2:])
    trace = dates.trace(DATES[0], DATES[2], capture=EVERYTHING)
    assert raw_bytes(EVERYTHING, sides(dates.config), size) == stored(trace)
    (most,) = measure_for(dates, False)(DATES[:1], None)
    assert most.target > size.target  # what it writes is not known yet


@pytest.mark.slow
def test_bytes_of_a_language_model(reciter: Any) -> None:
    model = fa.from_pretrained(reciter.folder)
    sizes = measure_for(model, False)(TEXTS, None)
    for text, size in zip(TEXTS, sizes, strict=True):
        trace = model.trace(text, capture=EVERYTHING)
        assert raw_bytes(EVERYTHING, sides(model.config), size) == stored(trace)
    with pytest.raises(InputError, match="reads no pairs"):
        measure_for(model, True)


def test_counts_are_those_of_encoding(bert: Pretrained, dates: Pretrained) -> None:
    reader: Any = bert.tokenizer
    assert reader.count(TEXTS) == tokens(reader.encode(TEXTS))
    assert reader.count(TEXTS, PAIRS) == tokens(reader.encode(TEXTS, PAIRS))
    limit = measure_for(bert, False)(TEXTS, None)[0].limit
    long = "cat " * (limit - 2)
    whole, over = measure_for(bert, False)([long, long + "cat cat"], None)
    assert whole == TextSize(limit, 0, 0, 0, limit)
    assert over == TextSize(limit, 0, 2, 0, limit)
    assert reader.encode(long + "cat cat", max_length=limit, truncate=True).truncated == [2]
    reader = dates.tokenizer
    assert reader.count(DATES) == tokens(reader.encode(DATES))


def test_a_model_without_tokenizer_is_reported(bert: Pretrained) -> None:
    with pytest.raises(InputError, match="came without a tokenizer"):
        measure_for(dataclasses.replace(bert, tokenizer=None), False)


@pytest.mark.slow
def test_marks_tell_models_apart_and_do_not_depend_on_their_place(
    bert: Pretrained, tmp_path: Path
) -> None:
    first = model_fingerprint(bert)
    bert.save_pretrained(tmp_path / "copy")
    again = model_fingerprint(fa.from_pretrained(tmp_path / "copy"))
    assert dataclasses.replace(again, name=first.name) == first
    half = model_fingerprint(fa.from_pretrained("tiny-bert", dtype="bfloat16"))
    assert [
        f.name for f in dataclasses.fields(first) if getattr(half, f.name) != getattr(first, f.name)
    ] == ["dtype", "parameters"]
    leaves, tree = jax.tree.flatten(bert.params)
    last = np.array(leaves[-1])
    last.flat[-1] = np.nextafter(last.flat[-1], np.inf)
    other = dataclasses.replace(bert, params=jax.tree.unflatten(tree, [*leaves[:-1], last]))
    assert model_fingerprint(other).parameters != first.parameters
    reader: Any = bert.tokenizer
    settings = {**reader.settings, "do_lower_case": "other"}
    changed = dataclasses.replace(reader, settings=settings)
    assert (
        model_fingerprint(dataclasses.replace(bert, tokenizer=changed)).tokenizer != first.tokenizer
    )
    assert model_fingerprint(dataclasses.replace(bert, tokenizer=None)).tokenizer == ""
