# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Figures of models, neurons, atlases and comparisons hold the numbers of the trace they draw."""

import dataclasses

import matplotlib.pyplot as plt
import numpy as np
import pytest
import store_cases
from drawn_figures import one_line
from small_decoders import write_decoder

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.measures.divergence import compare_traces
from flaxattn.measures.head_measures import head_measures, head_values
from flaxattn.measures.head_similarity import head_likeness
from flaxattn.store.open_store import open_store
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.figure_style import save_figure
from flaxattn.views.figures.plot_atlas import plot_atlas, plot_compare
from flaxattn.views.figures.plot_heads import Maps, draw_thumbnails, plot_heads, plot_model
from flaxattn.views.figures.plot_neuron import plot_neuron
from flaxattn.views.payloads.neuron_payload import rotary_pairs


def array_of(image):
    """What an image draws; NaN where it is masked."""
    return np.ma.filled(np.ma.asarray(image.get_array(), float), np.nan)


@pytest.fixture(scope="module")
def projected():
    """A trace with queries and keys whose weights are the softmax of their products."""
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 2, 1, 5, 3, 4)).astype(np.float32)  # [L, B, S, H, D] each
    scores = np.einsum("lbqhd,lbkhd->lbhqk", q, k) / 2
    scores = np.where(np.tri(5, dtype=bool), scores, -np.inf).astype(np.float32)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    record = AttentionRecord(weights=weights, query=q, key=k, layers=(3, 5), heads=(0, 1, 4))
    return Trace(decoder=record, tokens=[["<s>", "a", "$b", "c\n", "d"]], model="toy"), scores


def test_thumbnails_are_the_weights_with_gaps_between(pair):
    figure = plot_model(pair.trace)
    ax = figure.axes[0]
    drawn, size = array_of(ax.images[0]), pair.length
    for layer, head in np.ndindex(2, 3):
        x, y = ax.get_xticks()[head], ax.get_yticks()[layer]
        left, top = round(x - (size - 1) / 2), round(y - (size - 1) / 2)
        part = drawn[top : top + size, left : left + size]
        np.testing.assert_array_equal(part, pair.shares[layer, head])
    assert np.isnan(drawn).sum() == drawn.size - 6 * size**2
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "1", "2"]
    assert ax.images[0].get_clim() == (0, 1)


def test_long_texts_are_pooled_by_the_largest_weight_and_it_says_so(peaked):
    weights = peaked(1, 2, 200)
    trace = Trace.from_arrays(weights, [["t"] * 200])
    ax = plot_model(trace).axes[0]
    expected = np.zeros((2, 128, 128), np.float32)
    for i, j in np.ndindex(200, 200):  # as in the page: the pixel i * 128 // 200
        place = np.s_[:, i * 128 // 200, j * 128 // 200]
        expected[place] = np.maximum(expected[place], weights[0, 0, :, i, j])
    drawn = array_of(ax.images[0])
    np.testing.assert_array_equal(drawn[:, :128], expected[0])
    np.testing.assert_array_equal(drawn[:, -128:], expected[1])
    assert "the largest of 2 × 2 weights" in one_line(ax.get_title())


def test_pooling_keeps_the_largest_size_whatever_its_sign():
    weights = np.zeros((1, 1, 200, 200), np.float32)
    weights[0, 0, 0, :2] = 0.2, -0.7
    weights[0, 0, 150, 199] = np.nan
    drawn = array_of(plot_model_of(weights).images[0])
    assert drawn[0, 0] == np.float32(-0.7) and np.isnan(drawn[96, 127])
    assert np.isnan(drawn).sum() == 1


def plot_model_of(weights):
    """Thumbnails of weights with signs."""
    maps = Maps(weights, signed=True)
    return draw_thumbnails(maps, [0], [0], "", None).axes[0]


def test_a_neuron_shows_each_step_of_the_computation(projected):
    trace, scores = projected
    figure = plot_neuron(trace, 5, 4, 2, dimensions="all", sorting="position")
    ax = figure.axes[0]
    q, k = (np.asarray(a)[1, 0, :, 2] for a in (trace.decoder.query, trace.decoder.key))
    drawn = [array_of(image) for image in ax.images]
    np.testing.assert_array_equal(drawn[0][:, 0], trace.decoder.weights[1, 0, 2, 2])
    np.testing.assert_array_equal(drawn[1], np.tile(q[2], (5, 1)))
    np.testing.assert_array_equal(drawn[2], k)
    np.testing.assert_array_equal(drawn[3], k * q[2])
    np.testing.assert_allclose(drawn[4][:, 0], (k * q[2]).sum(-1), rtol=1e-5)
    expected = np.where(np.arange(5) <= 2, scores[1, 0, 2, 2], np.nan)
    np.testing.assert_allclose(drawn[5][:, 0], expected, rtol=1e-5)
    assert [t.get_text() for t in ax.get_yticklabels()][:3] == ["<s>", "a", "$b"]
    assert ax.get_title() == "layer 5, head 4, query 2: $b"
    shown = [text.get_text() for text in ax.texts]
    assert f"{expected[0]:.2f}".replace("-", "−") in shown and "nan" not in shown
    figure.canvas.draw()


@pytest.mark.slow
def test_a_neuron_of_a_rotary_model_shows_vectors_before_and_after_rotation(tmp_path):
    gemma = fa.from_pretrained(write_decoder(tmp_path / "gemma"))
    capture = fa.Capture(weights=True, query=True, key=True)
    trace = gemma.trace("the cat sat on a mat", capture=capture)
    figure = plot_neuron(trace, 1, 2, 4, dimensions="all", sorting="position")
    ax, found = figure.axes[0], rotary_pairs(trace[0].decoder, 1, 2, 4)
    drawn = [array_of(image) for image in ax.images]
    q, k = found.rotated_query, found.rotated_keys
    rows = (len(k), 1)
    expected = [np.tile(found.query, rows), np.tile(q, rows), found.keys, k, q * k, found.shares]
    for one, other in zip(drawn[1:], expected, strict=False):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert len(drawn) == 9
    np.testing.assert_allclose(drawn[8][:5, 0], found.shares[:5].sum(1), rtol=1e-4)
    names = [label.get_text() for label in ax.get_xticklabels()]
    assert names[3:7] == ["k before\nrotation", "k", "q × k", "score\nby pair"]
    assert (names[0], names[8]) == ("softmax", f"× {6**-0.5:.3g}")
    assert ax.get_title().splitlines()[1:] == [found.summary(1)]
    figure.canvas.draw()


def test_a_neuron_says_when_its_scores_do_not_lead_to_the_weights(projected):
    trace, scores = projected
    title = plot_neuron(trace, 3, 0, 4, scale=9.0).axes[0].get_title()
    assert "the model scales otherwise or adds a bias: weights differ by up to" in one_line(title)
    own = dataclasses.replace(trace.decoder, scores=scores)
    whole = dataclasses.replace(trace, decoder=own)
    ax = plot_neuron(whole, 3, 0, 4, scale=9.0, dimensions="all", sorting="position").axes[0]
    assert "bias" not in ax.get_title()
    np.testing.assert_array_equal(array_of(ax.images[5])[:, 0], scores[0, 0, 0, 4])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0, 0), "There is no layer 0.\nThere are layers 3, 5."),
        ((3, 9, 0), "There is no head 9.\nThere are heads 0, 1, 4."),
        ((3, 0, 5), "There is no query 5.\nThere are queries 0 to 4."),
    ],
)
def test_a_neuron_that_is_not_there(projected, arguments, message):
    with pytest.raises(InputError) as caught:
        plot_neuron(projected[0], *arguments)
    assert str(caught.value) == message


def test_a_neuron_without_queries_says_what_to_capture(pair):
    with pytest.raises(InputError) as caught:
        plot_neuron(pair.trace, 0, 0, 0)
    assert str(caught.value) == (
        "This trace holds no query and no key to draw.\n"
        "Capture them: capture=fa.Capture(weights=True, query=True, key=True)."
    )


def test_an_atlas_is_the_measure_of_every_head(pair):
    ax = plot_atlas(pair.trace, "previous").axes[0]
    expected = np.array([m.previous for m in head_measures(pair.trace)]).reshape(2, 3)
    np.testing.assert_allclose(array_of(ax.images[0]), expected)
    assert ax.get_title() == "encoder: previous"


def test_an_atlas_of_a_captured_statistic_and_of_a_store(tmp_path):
    texts = store_cases.traces("statistics")
    store = open_store(store_cases.write(tmp_path / "store", texts))
    expected = np.mean([t.encoder.stats["entropy"][:, 0].mean(-1) for t in texts], 0)
    found = head_values(store, "entropy")
    np.testing.assert_allclose(found.values, expected, rtol=1e-5)
    assert (found.layers, found.heads) == (store_cases.LAYERS, store_cases.HEADS)
    drawn = plot_atlas(store, "entropy").axes[0].images[0]
    np.testing.assert_allclose(array_of(drawn), expected, rtol=1e-5)
    one = head_values(texts[0], "received")
    np.testing.assert_allclose(one.values, texts[0].encoder.stats["received"][:, 0].mean(-1))
    with pytest.raises(InputError, match=r"has no statistic or measure 'next'\.\nIt has entropy"):
        plot_atlas(store, "next")
    with pytest.raises(InputError, match=r"a store holds many.\nTake a text: plot_atlas\(store"):
        plot_atlas(store, "entropy", order="cluster")


def test_an_atlas_sorts_and_clusters_heads_and_writes_their_numbers(pair):
    found = head_values(pair.trace, "entropy")
    ax = plot_atlas(pair.trace, "entropy", order="value").axes[0]
    np.testing.assert_array_equal(array_of(ax.images[0]).ravel(), -np.sort(-found.values.ravel()))
    order = np.argsort(-found.values.ravel()).tolist()
    numbers = [f"{n // 3}.{n % 3}\n{found.values.ravel()[n]:.2f}" for n in range(6)]
    assert [text.get_text() for text in ax.texts] == [numbers[n] for n in order]
    ax = plot_atlas(pair.trace, "entropy", order="cluster").axes[0]
    alike = head_likeness(pair.shares.reshape(6, pair.length, pair.length))
    drawn, places = array_of(ax.images[0]), ax.get_yticks().tolist()
    shown = [text.get_text() for text in ax.texts]
    assert shown == [numbers[n] for n in alike.order]
    assert len(places) == alike.groups.max() + 1
    np.testing.assert_array_equal(drawn[~np.isnan(drawn)], found.values.ravel()[alike.order])
    rows = {t.get_text().split("\n")[0]: round(t.get_position()[1]) for t in ax.texts}
    for one, other in np.ndindex(6, 6):
        same = rows[f"{one // 3}.{one % 3}"] == rows[f"{other // 3}.{other % 3}"]
        assert same == (alike.groups[one] == alike.groups[other])


def test_roles_are_marked_at_their_heads(pair):
    roles = {(0, 1): "previous", (1, 2): "$broad$", (1, 0): "previous"}
    figure = plot_atlas(pair.trace, "entropy", roles=roles)
    ax = figure.axes[0]
    marks = {c.get_label(): np.floor(c.get_offsets() + 0.5).tolist() for c in ax.collections}
    assert marks == {"P1 previous": [[1, 0], [0, 1]], "B1 $broad$": [[2, 1]]}
    written = [text.get_text() for text in ax.texts]
    assert (written.count("P1"), written.count("B1")) == (2, 1)
    figure.canvas.draw()
    with pytest.raises(InputError, match=r"is of head 7\.0, which is not drawn"):
        plot_atlas(pair.trace, roles={(7, 0): "x"})


def test_more_roles_than_there_are_shapes_are_distinguished(peaked):
    trace = Trace.from_arrays(peaked(6, 7, 4), [list("abcd")])
    roles = {at: f"governor(r{at[0]}{at[1]})" for at in np.ndindex(6, 7)}
    figure = plot_atlas(trace, "entropy", roles=roles)
    assert {f"S{n}" for n in range(1, 43)} < {text.get_text() for text in figure.axes[0].texts}
    assert len({c.get_label() for c in figure.axes[0].collections}) == 42


def test_a_comparison_ranks_heads_and_draws_their_difference(pair):
    other = pair.shares.copy()
    other[1, 2] = other[1, 2][:, ::-1]
    other[0, 1, 0] = np.eye(pair.length)[3]
    second = dataclasses.replace(
        pair.trace, encoder=store_cases.with_weights(pair.trace.encoder, other[:, None])
    )
    figure = plot_compare(pair.trace, second, count=2, names=("before", "after"))
    ranked = compare_traces(pair.trace, second)
    for row, (layer, head) in enumerate([(1, 2), (0, 1)]):
        one, two, apart = (array_of(ax.images[0]) for ax in figure.axes[3 * row : 3 * row + 3])
        np.testing.assert_array_equal(one, pair.shares[layer, head])
        np.testing.assert_array_equal(two, other[layer, head])
        np.testing.assert_array_equal(apart, other[layer, head] - pair.shares[layer, head])
        title = figure.axes[3 * row].get_title()
        assert title == f"encoder {layer}.{head}: {ranked[row].divergence:.3f} nats\nbefore"
    assert figure.axes[2].images[0].get_clim() == figure.axes[5].images[0].get_clim()
    figure.canvas.draw()
    values = plot_compare(pair.trace, second, measure="entropy")
    drawn = [array_of(ax.images[0]) for ax in values.axes[:3]]
    np.testing.assert_allclose(drawn[2], drawn[1] - drawn[0])
    np.testing.assert_array_equal(drawn[0], head_values(pair.trace, "entropy").values)


@pytest.mark.slow
def test_a_comparison_draws_the_side_that_differs_most():
    one = store_cases.trace(np.random.default_rng(0), "seq2seq", "float32")
    turned = store_cases.with_weights(one.cross, one.cross.weights[..., ::-1])
    figure = plot_compare(one, dataclasses.replace(one, cross=turned), count=9)
    titles = [ax.get_title() for ax in figure.axes[:12:3]]
    assert len(titles) == 4 and all(title.startswith("cross ") for title in titles)


def test_what_cannot_be_compared_is_reported(pair, tmp_path):
    store = open_store(store_cases.write(tmp_path / "store", store_cases.traces("statistics")))
    with pytest.raises(InputError, match="Stores are compared by a measure"):
        plot_compare(store, store)
    with pytest.raises(InputError, match=r"three axes for each of 2 rows, received 2"):
        plot_compare(pair.trace, pair.trace, 2, axes=plt.subplots(1, 2)[1])
    with pytest.raises(InputError, match="draws 1 to 24 heads, received count=0"):
        plot_compare(pair.trace, pair.trace, 0)
    with pytest.raises(InputError, match="differ in entropy's heads: encoder, 2 layers × 2 heads"):
        plot_compare(store, pair.trace, measure="entropy")


def test_figures_draw_into_axes_of_ones_own(pair, projected):
    figure, axes = plt.subplots(2, 3)
    assert plot_model(pair.trace, ax=axes[0, 0]) is figure
    assert plot_atlas(pair.trace, ax=axes[0, 1]) is figure
    assert plot_neuron(projected[0], 3, 0, 1, ax=axes[0, 2]) is figure
    assert plot_compare(pair.trace, pair.trace, 1, axes=axes[1]) is figure
    assert len(figure.axes) == 6 and all(ax.images for ax in axes.flat)


@pytest.mark.slow
@pytest.mark.few("svg")
@pytest.mark.parametrize("kind", ["svg", pytest.param("pdf", marks=pytest.mark.slow), "png"])
def test_the_same_figure_gives_the_same_bytes(peaked, projected, tmp_path, kind):
    trace = Trace.from_arrays(peaked(1, 3, 3), [["a", "$b", "ç"]])
    makers = {
        "heads": lambda: plot_heads(trace, [0], [0]),
        "model": lambda: plot_model(trace),
        "atlas": lambda: plot_atlas(trace, order="cluster", roles={(0, 0): "first"}),
        "neuron": lambda: plot_neuron(projected[0], 3, 0, 1),
        "compare": lambda: plot_compare(trace, trace, 1),
    }
    for name, make in makers.items():
        files = [save_figure(make(), tmp_path / f"{name}{i}.{kind}") for i in range(2)]
        first, second = (file.read_bytes() for file in files)
        assert first == second, name
        start = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}[kind]
        assert first.startswith(start) and len(first) > 2000
        plt.close("all")


def test_a_figure_is_saved_whole_or_not_at_all(pair, tmp_path, monkeypatch):
    figure = plot_model(pair.trace)
    with pytest.raises(InputError) as caught:
        save_figure(figure, tmp_path / "x.jpg")
    assert "is saved as svg, pdf, png; " in str(caught.value)
    with pytest.raises(InputError, match="is in a folder that does not exist"):
        save_figure(figure, tmp_path / "none" / "x.png")
    path = save_figure(figure, tmp_path / "x.png")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_figure(plot_atlas(pair.trace), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["x.png"]
