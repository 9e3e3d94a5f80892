# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attention that is NaN or infinite is refused by model, layer, head and text."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from small_models import with_nan

import flaxattn as fa
from flaxattn.corpus.texts import Text, plain_texts
from flaxattn.errors import InputError
from flaxattn.measures.head_similarity import head_pairs
from flaxattn.measures.score_source import head_scores
from flaxattn.measures.specs import ScoreOptions
from flaxattn.pipeline.extraction import Options, extract_shards
from flaxattn.pipeline.tokenize_texts import ReadingOptions

CAPTURES = {
    "weights": fa.Capture(weights=True),
    "uint8": fa.Capture(weights=True, dtype="uint8"),
    "entropy": fa.Capture(stats=("entropy",)),
    "argmax": fa.Capture(stats=("argmax",)),
    "sieve": fa.Capture(stats=(fa.Sieve("next", offsets=(1, 1)),)),
    "query": fa.Capture(query=True),
    "head_output": fa.Capture(head_output=True),
    "hidden": fa.Capture(hidden=True, vector_dtype="bfloat16"),
    "one head": fa.Capture(weights=True, heads=(1,), layers=(1,)),
    "window": fa.Capture(weights=True, query_window=(0, 2)),
}
SIDES = {"bert": "encoder", "gpt2": "decoder", "seq2seq": "encoder"}


def said(error: pytest.ExceptionInfo[Exception]) -> str:
    text = str(error.value)
    assert len(text.splitlines()) <= 3
    assert "allow_nonfinite=True" in text
    return text


@pytest.fixture(params=["bert", "gpt2", "seq2seq"])
def family(request: pytest.FixtureRequest) -> Any:
    return request.param, request.getfixturevalue(request.param)


@pytest.mark.few("bert-weights")
@pytest.mark.parametrize("capture_name", CAPTURES)
def test_extraction_and_traces_name_layer_head_and_text(family: Any, capture_name: str) -> None:
    name, model = family
    if name == "seq2seq" and capture_name == "one head":
        return  # its decoder has no layer 1
    broken, capture = with_nan(model), CAPTURES[capture_name]
    head = 1 if capture_name == "one head" else 0
    expected = f"the {SIDES[name]} attention of layer 1, head {head} is NaN or infinite for text 0"
    pairs = ["the cat", "a"] if name == "seq2seq" else None
    for run in (fa.extract, lambda m, *given, **kept: m.trace(*given, **kept)):
        with pytest.raises(InputError) as error:
            run(broken, ["a b c d", "the cat"], pairs, capture=capture)
        message = said(error)
        assert expected in message and repr(model.name) in message
        assert "layers/attention/query/kernel" in message or "query/kernel" in message
        run(model, ["a b c d", "the cat"], pairs, capture=capture)


@pytest.mark.slow
def test_what_is_kept_is_what_it_was(bert, texts) -> None:
    capture = fa.Capture(weights=True, stats=("entropy",))
    trace = bert.trace(texts[0], capture=capture)
    assert list(trace.encoder.stats) == ["entropy"]
    (found,) = fa.extract(bert, texts[:1], capture=capture)
    assert list(found.encoder.stats) == ["entropy"]
    broken = with_nan(bert)
    for trace in (
        broken.trace(texts[1], capture=capture, allow_nonfinite=True),
        fa.extract(broken, texts[1:2], capture=capture, allow_nonfinite=True)[0],
    ):
        rows = np.isnan(trace.encoder.weights).all((1, 2, 3, 4))
        assert rows.tolist() == [False, True]


def test_uint8_cannot_keep_nan(bert) -> None:
    capture = fa.Capture(weights=True, dtype="uint8")
    for run in (fa.extract, lambda m, *given, **kept: m.trace(*given, **kept)):
        with pytest.raises(InputError, match="uint8 cannot hold NaN"):
            run(bert, ["a"], capture=capture, allow_nonfinite=True)


def lonely(model: Any) -> Any:
    """A model that is finite but for one piece: `sad`, whose vector is infinite."""
    ids = model.tokenizer.encode("sad").input_ids[0]
    number = next(i for i in ids if model.tokenizer.readable_tokens([i])[0].endswith("sad"))

    def infinite(path: Any, leaf: Any) -> Any:
        if leaf.shape[0] != model.config.vocab_size or leaf.ndim != 2:
            return leaf
        leaf = np.array(leaf)
        leaf[number] = np.inf
        return leaf

    return dataclasses.replace(
        model, params=jax.tree_util.tree_map_with_path(infinite, model.params)
    )


@pytest.mark.slow
def test_the_text_is_named_where_rows_are_shared(gpt2) -> None:
    broken = lonely(gpt2)
    texts = ["a b", "the cat", "c d e", "cat sad", "a", "b"]
    with pytest.raises(InputError, match="for text 3\n"):
        fa.extract(broken, texts)
    fine = [text for text in texts if "sad" not in text]
    assert len(fa.extract(broken, fine)) == 5


@pytest.mark.slow
def test_the_file_and_line_are_named(bert) -> None:
    texts = [
        Text(n, f"x{n}", f"a {word}", file="in.txt", line=n + 1) for n, word in enumerate("ab")
    ]
    shards = extract_shards([bert, with_nan(bert)], [texts], Options())
    with pytest.raises(InputError, match=r"for text 0 \(in\.txt:1\)\n"):
        next(shards)


@pytest.mark.slow
def test_rows_are_counted_where_they_are_allowed(bert) -> None:
    texts = plain_texts(["a b c", "the cat"])
    options = Options(allow_nonfinite=True)
    ((whole, broken),) = extract_shards([bert, with_nan(bert)], [texts], options)
    assert whole.nonfinite == 0
    # Layer 1, two heads, the positions of both texts with their special tokens.
    assert broken.nonfinite == 2 * (5 + 4)


def readers() -> dict[str, Callable[..., Any]]:
    def scores(model: Any, options: ReadingOptions) -> Any:
        texts = plain_texts(["a b c", "the cat is sad"])
        return next(head_scores(model, texts, ScoreOptions(annotated=False), reading=options))

    def pairs(model: Any, options: ReadingOptions) -> Any:
        return head_pairs(model, plain_texts(["a b c", "the cat"]), reading=options)

    return {"scores": scores, "pairs": pairs}


@pytest.mark.slow
@pytest.mark.parametrize("name", readers())
def test_scores_are_refused(bert, name: str) -> None:
    run = readers()[name]
    with pytest.raises(InputError) as error:
        run(with_nan(bert), ReadingOptions())
    assert "layer 1, head 0" in said(error)
    run(bert, ReadingOptions())


@pytest.mark.slow
def test_scores_of_broken_heads_are_left_out(bert) -> None:
    scores = readers()["scores"](with_nan(bert), ReadingOptions(allow_nonfinite=True))
    whole = readers()["scores"](bert, ReadingOptions())
    for column, values in scores.values.items():
        assert np.isnan(values[:, 1]).all(), column
        np.testing.assert_allclose(values[:, 0], whole.values[column][:, 0], atol=1e-6)


@pytest.mark.slow
def test_detected_heads_and_generated_texts_are_refused(gpt2, seq2seq) -> None:
    with pytest.raises(InputError, match="layer 1, head 0 is NaN or infinite for sequence 0\n"):
        fa.detect_heads(with_nan(gpt2), length=5, sequences=2)
    with pytest.raises(InputError, match="the scores of what follows text 0 are NaN\n"):
        with_nan(seq2seq).generate(["the cat"], max_new_tokens=4)
