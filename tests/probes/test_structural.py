# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A structural probe finds a tree that vectors hold, and finds none where there is none."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path
from scipy.stats import spearmanr

from flaxattn.errors import InputError
from flaxattn.probes import structural_probe
from flaxattn.probes.probe_file import load_probe, save_probe
from flaxattn.probes.structural_probe import (
    Fitting,
    StructuralProbe,
    fit_structural_probes,
    judge_structural,
    structural_scores,
)
from flaxattn.probes.word_records import (
    ROOT,
    WordStates,
    chain_metric,
    control_metric,
    spanning_edges,
    tree_metric,
)

WIDE = 16
FAST = Fitting(rate=0.02, batch=10, epochs=60, seed=1)


def random_tree(count, rng):
    order = rng.permutation(count)
    governors = np.full(count, ROOT)
    for place in range(1, count):
        governors[order[place]] = order[rng.integers(place)]
    return governors.tolist()


def on_a_tree(governors):
    """Vectors whose squared distances are edges: a word is the sum of the edges above it."""
    found = np.zeros((len(governors), 8))
    for word in range(len(governors)):
        place = word
        while governors[place] != ROOT:
            found[word, place] = 1
            place = governors[place]
    return found


def sentence(number, rng, turn, count=7):
    """State 0 is noise; state 2 holds the tree in half of its directions, and noise as large.

    Of the seven words the last one is punctuation.
    """
    governors = random_tree(count, rng)
    noise = rng.normal(size=(count, 8))
    known = np.concatenate([on_a_tree(governors), noise], 1) @ turn
    vectors = np.stack([rng.normal(size=(count, WIDE)), known]).astype(np.float32)
    types = tuple((int(piece),) for piece in rng.integers(0, 30, count))
    marks = np.arange(count) == count - 1
    return WordStates((0, 2), vectors, tree_metric(governors), types, marks, f"s{number}")


@pytest.fixture(scope="module")
def turn():
    return np.linalg.qr(np.random.default_rng(5).normal(size=(WIDE, WIDE)))[0]


@pytest.fixture(scope="module")
def texts(turn):
    rng = np.random.default_rng(0)
    return [sentence(number, rng, turn) for number in range(220)]


@pytest.fixture(scope="module")
def judged(texts):
    rng = np.random.default_rng(9)

    def blind(layer):
        drawn = [rng.normal(size=(1, 7, WIDE)).astype(np.float32) for _ in texts]
        some = [
            dataclasses.replace(words, layers=(layer,), vectors=vectors)
            for words, vectors in zip(texts, drawn, strict=True)
        ]
        return some[:190], some[190:]

    return judge_structural(texts[:190], texts[190:], FAST, untrained=blind)


@given(st.integers(1, 8), st.integers(0, 1000))
def test_distances_and_depths_are_those_of_shortest_paths(count, seed):
    governors = random_tree(count, np.random.default_rng(seed))
    edges = np.zeros((count, count))
    for word, governor in enumerate(governors):
        if governor != ROOT:
            edges[word, governor] = 1
    found = tree_metric(governors)
    expected = shortest_path(edges, directed=False, unweighted=True)
    np.testing.assert_array_equal(found.distances, expected)
    np.testing.assert_array_equal(found.depths, expected[governors.index(ROOT)])
    arcs = {(min(w, g), max(w, g)) for w, g in enumerate(governors) if g != ROOT}
    assert spanning_edges(found.distances, np.ones(count, bool)) == arcs
    vectors = on_a_tree([*governors])
    np.testing.assert_allclose(((vectors[:, None] - vectors) ** 2).sum(2), expected)


@given(st.integers(2, 5), st.integers(0, 1000))
def test_no_tree_is_shorter_than_the_least_one(count, seed):
    rng = np.random.default_rng(seed)
    distances = rng.choice([0.0, 0.3, 1.1, 2.0, 5.0], (count, count))
    distances = distances + distances.T
    np.fill_diagonal(distances, 0)
    found = spanning_edges(distances, np.ones(count, bool))
    pairs = list(itertools.combinations(range(count), 2))

    def joined(edges):
        matrix = np.eye(count)
        for one, other in edges:
            matrix[one, other] = matrix[other, one] = 1
        return (np.linalg.matrix_power(matrix, count) > 0).all()

    trees = [t for t in itertools.combinations(pairs, count - 1) if joined(t)]
    assert len(found) == count - 1 and joined(found)
    least = min(sum(distances[edge] for edge in tree) for tree in trees)
    assert sum(distances[edge] for edge in found) == pytest.approx(least)


def test_a_tree_that_vectors_hold_is_found_and_nothing_else(judged, texts, turn):
    noise, known = judged.scores
    assert known.uuas == 1 and known.root_accuracy == 1
    assert known.distance_spearman > 0.95 and known.norm_spearman > 0.9
    near = sum((words.tree.distances[:6, :6] == 1).sum() // 2 for words in texts[190:])
    assert (known.edges, known.sentences) == (near, 30)
    assert judged.probe.layer == 2 and judged.best == 1
    assert noise.uuas < 0.5 and judged.untrained.uuas < 0.5 and judged.chain.uuas < 0.6
    assert judged.control.uuas < 0.8 and judged.selectivity > 20
    # The projection itself: the tree's directions stay as long as they are, the others vanish.
    for found in (judged.probe.distance, judged.probe.depth):
        seen = found @ turn.T
        assert np.linalg.norm(seen[:, 8:], axis=0).max() < 0.15
        np.testing.assert_allclose(np.linalg.norm(seen[:, :7], axis=0), 1, atol=0.15)
    facts = judged.facts()
    assert facts["layer"] == 2 and facts["scores"]["uuas"] == 1
    assert [row["layer"] for row in facts["layers"]] == [0, 2]
    assert facts["fitted_to_sentences"] == 171


def test_scores_are_those_of_a_plain_loop(judged, texts):
    probe, some = judged.probes[0], texts[190:196]
    right = edges = roots = 0
    rows, norms = [], []
    for words in some:
        vectors = words.vectors[0].astype(float)
        apart = ((vectors[:, None] - vectors) @ probe.distance.T.astype(float)) ** 2
        distances, depths = probe.metric(words)
        np.testing.assert_allclose(distances, apart.sum(2), atol=1e-6)
        np.testing.assert_allclose(depths, ((vectors @ probe.depth.T) ** 2).sum(1), rtol=1e-4)
        words_only = np.arange(7) < 6
        gold = {
            (i, j)
            for i, j in itertools.combinations(range(6), 2)
            if words.tree.distances[i, j] == 1
        }
        right += len(gold & spanning_edges(distances, words_only))
        edges += len(gold)
        roots += (
            int(words.tree.depths[np.argmin(depths[:6])] == 0)
            if (words.tree.depths[:6] == 0).any()
            else 0
        )
        pairs = zip(distances, words.tree.distances, strict=True)
        rows.append(np.mean([spearmanr(one, other).statistic for one, other in pairs]))
        norms.append(spearmanr(depths, words.tree.depths).statistic)
    rooted = sum((words.tree.depths[:6] == 0).any() for words in some)
    expected = (right / edges, np.mean(rows), roots / rooted, np.mean(norms), edges, 6)
    assert structural_scores(probe.metric, some) == pytest.approx(expected)


def test_correlations_are_averaged_over_lengths(turn):
    rng = np.random.default_rng(3)
    short, long = sentence(0, rng, turn, 6), [sentence(n, rng, turn, 7) for n in (1, 2, 3)]
    tiny = sentence(4, rng, turn, 4)
    probe = StructuralProbe(0, np.eye(WIDE), np.eye(WIDE), (0, 0), (1, 1), 1)
    one = structural_scores(probe.metric, [short])
    three = structural_scores(probe.metric, long)
    both = structural_scores(probe.metric, [*long, tiny, short])
    mean = (one.distance_spearman + three.distance_spearman) / 2
    assert both.distance_spearman == pytest.approx(mean)
    assert both.norm_spearman == pytest.approx((one.norm_spearman + three.norm_spearman) / 2)
    assert np.isnan(structural_scores(probe.metric, [tiny]).norm_spearman)
    flat = structural_scores(lambda words: (np.zeros((6, 6)), np.zeros(6)), [short])
    assert (flat.distance_spearman, flat.norm_spearman) == (0, 0)


def test_permuting_words_permutes_the_predictions(judged, texts):
    words, order = texts[200], np.random.default_rng(2).permutation(7)
    tree = words.tree.among(order.tolist())
    moved = dataclasses.replace(
        words,
        vectors=words.vectors[:, order],
        tree=tree,
        types=tuple(words.types[place] for place in order),
        punctuation=words.punctuation[order],
    )
    distances, depths = judged.probe.metric(words)
    others, other_depths = judged.probe.metric(moved)
    np.testing.assert_allclose(others, distances[np.ix_(order, order)], atol=1e-9)
    np.testing.assert_allclose(other_depths, depths[order], atol=1e-9)
    one, other = (structural_scores(judged.probe.metric, [some]) for some in (words, moved))
    assert other == pytest.approx(one, nan_ok=True)


@pytest.mark.parametrize("kind", ["distance", "depth"])
def test_the_slope_is_that_of_finite_differences(texts, kind):
    plain = [structural_probe._plain(words, words.tree, kind) for words in texts[:3]]
    batch = structural_probe._batch(plain, 4)
    assert batch.vectors.shape == (2, 4, 8, WIDE) and batch.sizes.tolist() == [7, 7, 7, 0]
    rng = np.random.default_rng(0)
    maps = rng.normal(0, 0.1, (2, 3, WIDE)).astype(np.float32)
    slope = jax.grad(lambda some: structural_probe._losses(some, batch).sum())(maps)
    for _ in range(3):
        way = rng.normal(size=maps.shape).astype(np.float32)
        ends = [float(structural_probe._losses(maps + s * way, batch).sum()) for s in (-2e-3, 2e-3)]
        assert float((slope * way).sum()) == pytest.approx((ends[1] - ends[0]) / 4e-3, rel=0.02)
    apart = (maps[0] @ plain[0].vectors[0].T).T
    predicted = ((apart[:, None] - apart) ** 2).sum(2) if kind == "distance" else (apart**2).sum(1)
    one = structural_probe._losses(maps, structural_probe._batch(plain[:1], 4))
    assert float(one[0]) == pytest.approx(abs(plain[0].wanted - predicted).mean(), rel=1e-4)


def test_the_same_seed_gives_the_same_probe_and_padding_does_not_count(texts):
    fitting = Fitting(rank=2, epochs=2, seed=3)
    seen = []
    one = fit_structural_probes(texts[:20], texts[20:25], fitting, watch=seen.append)
    again = fit_structural_probes(texts[:20], texts[20:25], fitting)
    assert seen == [1] * 4 and [p.layer for p in one] == [0, 2]
    for a, b in zip(one, again, strict=True):
        np.testing.assert_array_equal(a.distance, b.distance)
        assert a.distance.shape == (2, WIDE) and a.losses == b.losses and a.sentences == 20
    plain = [structural_probe._plain(words, words.tree, "distance") for words in texts[20:25]]
    losses = structural_probe._mean_losses(np.stack([p.distance for p in one]), plain, 20)
    np.testing.assert_allclose(losses, [p.losses[0] for p in one], rtol=1e-5)


def test_every_sentence_is_learnt_from(texts):
    fitting = Fitting(rank=2, batch=1, epochs=1, seed=3)
    plain = fit_structural_probes(texts[:4], texts[20:25], fitting)[0].distance
    for number in range(4):
        others = [*texts[:number], texts[10], *texts[number + 1 : 4]]
        changed = fit_structural_probes(others, texts[20:25], fitting)[0].distance
        assert (changed != plain).any(), number


def test_the_control_tree_follows_from_types(texts):
    answers = {}
    for words in texts:
        found = control_metric(words.types, words.punctuation, 4)
        assert found.depths[0] == 0 and found.depths[5] == 1 and found.distances[0, 5] == 1
        for place in (1, 2, 3, 4, 6):
            hangs = "first" if found.distances[0, place] == 1 else "last"
            assert found.distances[5, place] == (2 if hangs == "first" else 1)
            assert answers.setdefault(words.types[place], hangs) == hangs
    assert set(answers.values()) == {"first", "last"}
    assert chain_metric(3).distances.tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    lone = control_metric(((1,),), np.array([True]))
    assert lone.depths.tolist() == [0]


def test_a_file_keeps_the_probe_and_damage_shows(judged, texts, tmp_path):
    path = save_probe(judged.probe, tmp_path / "p.safetensors", {"model": "m"})
    saved = load_probe(path)
    assert saved.notes == {"model": "m"} and isinstance(saved.probe, StructuralProbe)
    for field in dataclasses.fields(saved.probe):
        one, other = getattr(saved.probe, field.name), getattr(judged.probe, field.name)
        np.testing.assert_array_equal(one, other)
        assert type(one) is type(other)
    assert structural_scores(saved.probe.metric, texts[190:]) == judged.scores[1]
    data = path.read_bytes()
    for damage, message in (
        (data[:-1] + bytes([data[-1] ^ 1]), "is not what was written"),
        (
            data.replace(b'\\"kind\\": \\"struct', b'\\"kind\\": \\"abstra'),
            "abstraural probe",
        ),
        (data.replace(b'\\"epochs', b'\\"epoxes'), "not that of a probe"),
        (data.replace(b"[16,16]", b"[8,32 ]", 1), "are not those of a structural probe"),
    ):
        assert damage != data
        path.write_bytes(damage)
        with pytest.raises(InputError, match=message):
            load_probe(path)


def test_what_cannot_be_fitted_or_judged(judged, texts):
    with pytest.raises(InputError, match="received 0 and 3"):
        fit_structural_probes([], texts[:3])
    with pytest.raises(InputError, match="with rank 0, rate"):
        fit_structural_probes(texts[:3], texts[3:5], Fitting(rank=0))
    other = dataclasses.replace(texts[0], layers=(0, 1))
    with pytest.raises(InputError, match="'s0' has other hidden states"):
        fit_structural_probes(texts[1:3], [other])
    with pytest.raises(InputError, match=r"has hidden states \[0, 1\], not 2"):
        judged.probe.metric(other)
    narrow = dataclasses.replace(texts[0], vectors=texts[0].vectors[..., :4])
    with pytest.raises(InputError, match="reads vectors of 16 numbers; 's0' has some of 4"):
        judged.probe.metric(narrow)
    with pytest.raises(InputError, match=r"1 of 2 sentences .* such as 's1'"):
        judge_structural(texts[:5], [texts[1], texts[9]])


def test_coefficients_of_another_dtype_are_stored_as_float32(tmp_path):
    matrix = np.linspace(0, 1, 12).reshape(3, 4)
    probe = StructuralProbe(1, matrix, matrix, (0.5, 0.5), (9, 9), 90)
    save_probe(probe, tmp_path / "p.safetensors")
    read = load_probe(tmp_path / "p.safetensors").probe
    assert read.distance.dtype == np.float32
    np.testing.assert_allclose(read.distance, matrix, rtol=1e-7)
