# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Layers with a window are compared with uniform attention over the keys in it."""

import dataclasses
from pathlib import Path

import jax
import laid_out
import numpy as np
import pytest
from dense_gemma import DenseGemma, visible
from small_decoders import write_decoder

import flaxattn as fa
from flaxattn.corpus.texts import plain_texts
from flaxattn.measures.score_source import head_scores, store_source
from flaxattn.measures.scores import Scores, dense_values, scores_of
from flaxattn.measures.specs import CAUSAL, EVERY_KEY, KeyRange, ScoreOptions, ScoreSpec, ranges_of
from flaxattn.measures.specs import WINDOW as LOCAL
from flaxattn.measures.terms import by_layer, lifts_within, self_terms, terms_of, with_windows
from flaxattn.models.encoder_config import ModernBertConfig

TREE = ScoreOptions(relations=("nsubj", "obj", "amod"))
LAYOUTS = {"single": laid_out.single(), "pair": laid_out.pair()}
WINDOW = KeyRange(2, 2)


def asked_of(layout):
    return TREE if layout.arcs else ScoreOptions(annotated=False)


def lifts_of(values):
    """Columns that compare with uniform attention."""
    kinds = ("score", "control")
    return {c: v for c, v in values.items() if c.kind in kinds or c.name.endswith(", score")}


def test_the_keys_of_a_range() -> None:
    offset = np.arange(9) - np.arange(9)[:, None]
    for reach, expected in (
        (EVERY_KEY, offset == offset),
        (CAUSAL, offset <= 0),
        (KeyRange(2, 1), (offset >= -2) & (offset <= 1)),
        (KeyRange(3, 0), (offset >= -3) & (offset <= 0)),
        (KeyRange(20, 20), offset == offset),
    ):
        assert np.array_equal(reach.mask(9), expected)
        assert np.array_equal(reach.counts(9), expected.sum(1))
        for queries, keys in (([1, 2], [0]), ([3], [5, 6]), ([7, 8], [7, 8])):
            assert reach.covers(queries, keys) == expected[np.ix_(queries, keys)].all()


def test_ranges_of_models() -> None:
    assert ranges_of(ModernBertConfig.tiny()) == (EVERY_KEY, *[KeyRange(8, 8)] * 2, EVERY_KEY)
    assert ranges_of(ModernBertConfig.tiny(num_hidden_layers=1)) == ()


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_window_of_the_whole_text_gives_the_scores_without_one(name: str) -> None:
    layout, rng = LAYOUTS[name], np.random.default_rng(0)
    weights = laid_out.random_maps(2, 3, len(layout), rng)
    whole = KeyRange(len(layout), len(layout))
    expected = dense_values(weights, terms_of(layout, asked_of(layout)))
    found = dense_values(weights, lifts_within(layout, asked_of(layout), whole))
    expected = lifts_of(expected)
    assert found.keys() >= expected.keys() and len(expected) > 5
    for column in expected:
        np.testing.assert_allclose(found[column], expected[column], rtol=1e-12)


@pytest.mark.parametrize("name", LAYOUTS)
def test_uniform_attention_in_a_window_scores_one(name: str) -> None:
    layout = LAYOUTS[name]
    visible = WINDOW.mask(len(layout))
    weights = (visible / visible.sum(1, keepdims=True))[None, None]
    found = dense_values(weights, lifts_within(layout, asked_of(layout), WINDOW))
    found = {c: v.item() for c, v in lifts_of(found).items() if c.name != "block_entropy"}
    assert found == {column: pytest.approx(1, abs=1e-12) for column in found}
    roles = {column.name for column in found if column.kind == "score"}
    assert roles >= {"local", "cls", "sep", "delimiter", "block"}


def test_uniform_attention_in_the_window_of_a_decoder_scores_one() -> None:
    layout, window = laid_out.single(), KeyRange(3, 0)
    visible = window.mask(len(layout))
    terms = self_terms(layout, TREE, causal=True, window=window)
    found = dense_values((visible / visible.sum(1, keepdims=True))[None, None], terms)
    found = {c.name: v.item() for c, v in lifts_of(found).items()}
    assert found == {name: pytest.approx(1, abs=1e-12) for name in found}
    assert {"local", "own", "previous", "first", "governor(any)"} <= found.keys()


def test_each_layer_has_the_scores_of_its_window() -> None:
    layout, rng = laid_out.single(), np.random.default_rng(0)
    weights = laid_out.random_maps(3, 2, len(layout), rng)
    ranges = (WINDOW, EVERY_KEY, WINDOW)
    plain, own = terms_of(layout, TREE), lifts_within(layout, TREE, WINDOW)
    values = by_layer(dense_values(weights, with_windows(plain, {WINDOW: own})), ranges, (WINDOW,))
    expected = dense_values(weights, plain), dense_values(weights, own)
    assert values.keys() == expected[0].keys()
    for column, array in values.items():
        lift = column in lifts_of({column: array})
        np.testing.assert_allclose(array[1], expected[0][column][1], rtol=1e-12)
        for layer in (0, 2):
            if lift and column not in expected[1]:
                assert np.isnan(array[layer]).all()
            else:
                source = expected[1] if column in expected[1] else expected[0]
                np.testing.assert_allclose(array[layer], source[column][layer], rtol=1e-12)


@pytest.mark.slow
def test_a_model_whose_heads_attend_uniformly_scores_one_in_every_layer(modern) -> None:
    def flat(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return leaf * 0 if name.endswith("query/kernel") else leaf

    params = jax.tree_util.tree_map_with_path(flat, modern.params)
    model = dataclasses.replace(modern, params=params)
    texts = plain_texts(["the cat is very sad", "birds sang loudly, and sang"])
    options = ScoreOptions(annotated=False)
    scores = Scores.joined(list(head_scores(model, texts, options)))
    for role in ("local", "cls", "sep", "delimiter", "block"):
        values = scores.values[ScoreSpec("score", role)]
        np.testing.assert_allclose(values, np.ones((2, 3, 2)), rtol=2e-5)
    mass = scores.values[ScoreSpec("mass", "local")]
    assert (mass[:, 1:] > 0.6).all() and (mass[:, 0] < 0.5).all()  # 5 keys of 7, of all


def test_lifts_of_a_decoder_with_windows_are_those_of_dense_maps(tmp_path: Path) -> None:
    """Mean attention to keys over the mean of uniform attention to those that a query sees."""
    gemma = fa.from_pretrained(write_decoder(tmp_path / "gemma"))
    texts = ["the cat sat on a mat and on a dog", "a dog", "birds sang and sang loudly"]
    options = ScoreOptions(annotated=False)
    scores = Scores.joined(list(head_scores(gemma, plain_texts(texts), options)))
    dense = DenseGemma(gemma)
    assert ranges_of(gemma.config) == (KeyRange(5, 0), EVERY_KEY, KeyRange(5, 0))
    for number, text in enumerate(texts):
        given = gemma.read([text]).rows()[0].padded(gemma.limit)
        ids = np.asarray(given["input_ids"])[np.asarray(given["attention_mask"]) != 0]
        offset = np.arange(len(ids))[:, None] - np.arange(len(ids))
        sets = {"own": offset == 0, "previous": offset == 1, "local": abs(offset) <= LOCAL}
        for layer, found in enumerate(dense.run(ids)[0]):
            mask = visible(len(ids), gemma.config.windows[layer])
            for name, members in sets.items():
                size, choice = (members & mask).sum(1), mask.sum(1)
                counted = (size > 0) & (size < choice)
                mass = (found.weights * members).sum(-1)
                lift = (mass * choice / np.maximum(size, 1))[:, counted].mean(1)
                values = scores.values[ScoreSpec("score", name)][number, layer]
                np.testing.assert_allclose(values, lift, rtol=2e-4, atol=2e-5)
                values = scores.values[ScoreSpec("mass", name)][number, layer]
                np.testing.assert_allclose(values, mass[:, counted].mean(1), atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_traces_and_stores_know_the_windows_of_their_model(modern, tmp_path: Path, kind) -> None:
    model = modern if kind == "encoder" else fa.from_pretrained(write_decoder(tmp_path / "gemma"))
    texts = ["the cat sat on a mat and on a dog", "birds sang and sang loudly"]
    requested, lines = ScoreOptions(annotated=False), tmp_path / "texts.txt"
    lines.write_text("\n".join(texts) + "\n", encoding="utf-8")
    expected = Scores.joined(list(head_scores(model, plain_texts(texts), requested))).values
    traced = [model.trace(text, capture=fa.Capture(weights=True)) for text in texts]
    saved = [fa.Trace.load(one.save(tmp_path / f"{n}.trace")) for n, one in enumerate(traced)]
    everything = {"traces": scores_of(traced, requested, side=kind).values}
    everything["files"] = scores_of(saved, requested, side=kind).values
    stats = ("entropy", fa.Sieve("near", offsets=(-LOCAL, LOCAL)))
    for name, capture in (
        ("weights", fa.Capture(weights=True)),
        ("statistics", fa.Capture(stats=stats)),
    ):
        if (kind, name) == ("decoder", "statistics"):
            continue  # a decoder's scores are read off weights
        fa.extract_to(tmp_path / name, model, [lines], capture=capture)
        source = store_source(fa.open_store(tmp_path / name), (), requested, side=kind)
        everything[name] = Scores.joined([part.scores for part in source.parts]).values
    assert ScoreSpec("score", "local") in everything["weights"]
    for name, values in everything.items():
        shared = lifts_of(values).keys() & expected.keys()
        assert ScoreSpec("score", "local") in shared
        for column in shared:
            np.testing.assert_allclose(
                values[column], expected[column], rtol=3e-4, atol=3e-5, err_msg=f"{name} {column}"
            )
