# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of heads summed on the device equal those of whole maps; bad texts are named."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import Sentence, Word
from flaxattn.corpus.texts import Text, annotated_text
from flaxattn.errors import InputError
from flaxattn.measures.role_tests import Test, find_roles
from flaxattn.measures.score_source import head_scores
from flaxattn.measures.scores import ScoreAccumulator, Scores, scores_of
from flaxattn.measures.specs import ScoreOptions, ScoreSpec
from flaxattn.pipeline import tokenize_texts
from flaxattn.pipeline.extraction import extract
from flaxattn.pipeline.tokenize_texts import ReadingOptions
from flaxattn.text.position_labels import Arc, labels_of

RELATIONS = ("nsubj", "obj", "amod")
OPTIONS = ScoreOptions(relations=RELATIONS)
FORMS = "a b c the cat is very sad , .".split()


def tree(number, size, rng):
    """A sentence of words of the tiny vocabulary, each hanging on the one before or on the root."""
    words, text = [], ""
    forms = rng.choice(FORMS, size)
    root = int(rng.integers(size))
    for place, form in enumerate(forms):
        governor = -1 if place == root else root if rng.random() < 0.5 else place - 1
        governor = root if governor == -1 and place != root else governor
        relation = "root" if place == root else str(rng.choice([*RELATIONS, "punct", "obj:x"]))
        start = len(text) + bool(text)
        text = f"{text} {form}".strip()
        words.append(Word(form, "NOUN", governor, relation, start, start + len(form), place + 1))
    return Sentence(f"s{number}", text, tuple(words), "a.conllu", 1)


@pytest.fixture(scope="module")
def sentences():
    rng = np.random.default_rng(0)
    return [tree(n, size, rng) for n, size in enumerate([1, 2, 12, 3, 20, 7, 7, 9, 15, 4, 6])]


@pytest.fixture(scope="module")
def streamed(bert, sentences):
    subjects = [annotated_text(sentence) for sentence in sentences]
    return Scores.joined(
        list(head_scores(bert, subjects, OPTIONS, reading=ReadingOptions(batch_tokens=128)))
    )


def layouts(bert, sentences):
    """Where the pieces of words are: one per word in this vocabulary."""
    found = []
    for sentence in sentences:
        reading = bert.read([sentence.text])
        layout = labels_of(reading.metadata, tokens=reading.given["input_ids"][0], name=sentence.id)
        arcs = [
            Arc(n, word.governor, word.relation)
            for n, word in enumerate(sentence.words)
            if word.governor >= 0
        ]
        words = [[n + 1] for n in range(len(sentence.words))]
        tags = [word.tag for word in sentence.words]
        found.append(dataclasses.replace(layout, words=words, tags=tags, arcs=arcs))
    counts = {}
    for layout in found:
        for token in layout.tokens[1:-1].tolist():
            counts[token] = counts.get(token, 0) + 1
    rare = [
        1 + int(np.argmin([counts[token] for token in layout.tokens[1:-1].tolist()]))
        for layout in found
    ]
    return [dataclasses.replace(one, rare=place) for one, place in zip(found, rare, strict=True)]


def assert_same(one, other):
    assert one.values.keys() == other.values.keys()
    for column, values in one.values.items():
        theirs = other.values[column]
        assert (np.isnan(values) == np.isnan(theirs)).all(), column
        # Shares to 1e-5; a lift is one times N over |F|.
        scale = np.ones(len(values))
        if column.kind in ("score", "control", "beyond") or column.name.endswith("score"):
            scale = one.lengths
        gap = np.nan_to_num(abs(values - theirs)) / scale[:, None, None]
        assert gap.max() < 1e-5, (column, gap.max())


def test_sums_on_the_device_are_those_of_whole_maps(bert, sentences, streamed):
    traces = extract(bert, [sentence.text for sentence in sentences])
    dense = scores_of(traces, OPTIONS, layouts(bert, sentences))
    assert_same(dense, streamed)
    assert len(streamed.values) > 90
    assert streamed.lengths.tolist() == [len(sentence.words) + 2 for sentence in sentences]
    assert streamed.offsets == dense.offsets
    for role, counts in dense.counts.items():
        np.testing.assert_array_equal(counts, streamed.counts[role])


@pytest.mark.slow
@pytest.mark.parametrize("parity", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_pairs_of_texts(bert, parity):
    rng = np.random.default_rng(1)
    firsts = [" ".join(rng.choice(FORMS, n)) for n in (3, 9, 5)]
    seconds = [" ".join(rng.choice(FORMS, n)) for n in (4, 2, 8)]
    options = ScoreOptions(annotated=False, pande_parity=parity)
    subjects = [
        Text(n, str(n), *texts) for n, texts in enumerate(zip(firsts, seconds, strict=True))
    ]
    (found,) = head_scores(bert, subjects, options)
    rare = ScoreSpec("strongest", "rare")  # how often words occur is not known to single traces
    values = {column: values for column, values in found.values.items() if column != rare}
    dense = scores_of(extract(bert, firsts, seconds), options)
    assert_same(dense, dataclasses.replace(found, values=values))


@pytest.mark.slow
def test_windows_and_batches_change_nothing(bert, sentences, streamed, monkeypatch):
    """But draws of rare words, whose frequencies are those of a window."""
    monkeypatch.setattr(tokenize_texts, "WINDOW", 5)
    monkeypatch.setattr(tokenize_texts, "TOGETHER", 4)
    subjects = [annotated_text(sentence) for sentence in sentences]
    seen = []
    reading = ReadingOptions(batch_tokens=64, watch=lambda _, count: seen.append(count))
    parts = list(head_scores(bert, subjects, OPTIONS, reading=reading))
    assert [len(part) for part in parts] == [4, 4, 3]
    assert sum(seen) == len(sentences)
    rare = ScoreSpec("strongest", "rare")
    whole, once = (
        dataclasses.replace(scores, values={c: v for c, v in scores.values.items() if c != rare})
        for scores in (Scores.joined(parts), streamed)
    )
    assert_same(whole, once)


@pytest.mark.slow
def test_devices_share_batches(bert, sentences, streamed):
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",), axis_types=(AxisType.Auto,))
    subjects = [annotated_text(sentence) for sentence in sentences]
    (shared,) = head_scores(
        bert, subjects, OPTIONS, reading=ReadingOptions(batch_tokens=128), mesh=mesh
    )
    assert_same(shared, streamed)


def test_tallies_of_windows_merge_to_the_whole(streamed):
    merged = ScoreAccumulator()
    for part in (streamed[7:], streamed[:3], streamed[3:7]):
        merged.merge(ScoreAccumulator.of(part))
    one, other = (
        find_roles(t, OPTIONS, Test(tau=1)) for t in (merged, ScoreAccumulator.of(streamed))
    )
    for name, role in one.roles.items():
        np.testing.assert_allclose(role.p, other.roles[name].p, rtol=1e-7, equal_nan=True)


@pytest.mark.slow
def test_a_word_without_a_token_is_named(bert, sentences):
    word = sentences[2].words[3]
    gap = word._replace(form="\u200b", start=word.stop, stop=word.stop)
    broken = sentences[2]._replace(words=(*sentences[2].words[:3], gap, *sentences[2].words[4:]))
    message = (
        "a.conllu, line 4: sentence 's2', word 4 '\\u200b': the tokenizer makes no token of it"
    )
    with pytest.raises(InputError) as error:
        list(head_scores(bert, [annotated_text(broken)], OPTIONS))
    assert message in str(error.value)
    bad = BadRows("skip")
    subjects = [annotated_text(broken), annotated_text(sentences[3])]
    (found,) = head_scores(bert, subjects, OPTIONS, reading=ReadingOptions(bad=bad))
    assert (len(found), dict(bad.counts)) == (1, {"no-tokens": 1})


@pytest.mark.slow
def test_long_texts_are_named_or_cut(bert):
    long = tree(99, 60, np.random.default_rng(2))
    with pytest.raises(InputError, match="line 1: text is too long: 62 tokens, the limit is 48"):
        list(head_scores(bert, [annotated_text(long)], OPTIONS))
    (found,) = head_scores(
        bert, [annotated_text(long)], OPTIONS, reading=ReadingOptions(truncate=True)
    )
    assert found.lengths.tolist() == [48]
    whole = sum(1 for word in long.words[:46] if -1 < word.governor < 46)
    kept = [arc for arc in long.words if arc.relation.split(":")[0] in RELATIONS]
    assert found.counts["governor(any)"][0] < len(kept)
    assert found.counts["governor(any)"][0] <= whole


def test_texts_of_which_only_some_are_pairs_are_refused(bert):
    with pytest.raises(InputError, match="text 'y' has no second text, and others have one"):
        list(head_scores(bert, [Text(0, "x", "a", "b"), Text(1, "y", "a")], OPTIONS))
