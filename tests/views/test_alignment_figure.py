# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The figures of cross-attention and of positions show the numbers they were given."""

import warnings
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.measures.word_alignment import word_weights
from flaxattn.models.positions import sinusoids
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.plot_alignment import plot_alignment
from flaxattn.views.figures.plot_heads import plot_heads
from flaxattn.views.figures.plot_positions import plot_positions


def drawn(figure, index: int = 0) -> np.ndarray:
    """The numbers of a map, in a figure that can be drawn without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.canvas.draw()
    return np.asarray(figure.axes[index].images[0].get_array())


def labels(ax) -> tuple[list[str], list[str]]:
    """What stands beside the rows and below the columns."""
    ticks = (ax.get_yticklabels(), ax.get_xticklabels())
    rows, columns = ([text.get_text() for text in side] for side in ticks)
    return rows, columns


class TestAlignment:
    def test_it_draws_the_mean_of_heads_in_the_last_layer_but_one(self, translation):
        figure = fa.plot_alignment(translation.trace)
        np.testing.assert_allclose(drawn(figure), translation.shares["cross"][0].mean(0), atol=1e-6)
        ax = figure.axes[0]
        assert labels(ax) == (translation.written, translation.source)
        assert ax.get_title() == "layer 0, mean of 4 heads"
        assert (ax.get_ylabel(), ax.get_xlabel()) == ("target, as written", "source")
        assert ax.images[0].get_clim() == (0, 1)

    @pytest.mark.parametrize(
        ("request_", "layers", "heads", "title"),
        [
            ({"layer": 1, "head": 2}, [1], [2], "layer 1, head 2"),
            ({"layer": [0, 1]}, [0, 1], [0, 1, 2, 3], "mean of 2 layers, mean of 4 heads"),
            ({"layer": np.int64(1), "head": [3, 0]}, [1], [3, 0], "layer 1, mean of 2 heads"),
        ],
    )
    def test_layers_and_heads_are_chosen_or_averaged(
        self, translation, request_, layers, heads, title
    ):
        figure = plot_alignment(translation.trace, **request_)
        expected = translation.shares["cross"][layers][:, heads].mean((0, 1))
        np.testing.assert_allclose(drawn(figure), expected, atol=1e-6)
        assert figure.axes[0].get_title() == title

    def test_tokens_are_joined_to_words(self, translation):
        figure = plot_alignment(translation.trace, layer=1, words=True)
        np.testing.assert_allclose(drawn(figure), word_weights(translation.trace, layer=1))
        words = (["a", "lakehouse", "&amp;"], ["<b>ein</b>", "Haus", "am", "See"])
        assert labels(figure.axes[0]) == words

    @pytest.mark.parametrize("words", [False, True])
    def test_gold_links_get_boxes_around_their_words(self, translation, words):
        ax = plot_alignment(translation.trace, words=words, gold="0-0 1-1 3?1").axes[0]
        boxes = {
            (*box.get_xy(), box.get_width(), box.get_height(), box.get_linestyle())
            for box in ax.patches
        }
        tokens = {
            (-0.5, -0.5, 1, 1, "solid"),
            (0.5, 0.5, 2, 2, "solid"),
            (3.5, 0.5, 1, 2, "dotted"),
        }
        whole = {(-0.5, -0.5, 1, 1, "solid"), (0.5, 0.5, 1, 1, "solid"), (2.5, 0.5, 1, 1, "dotted")}
        assert boxes == (whole if words else tokens)
        pairs = plot_alignment(translation.trace, gold=[(0, 0), (1, 1)]).axes[0]
        assert len(pairs.patches) == 2

    def test_it_draws_into_axes_of_ones_own(self, translation):
        figure, axes = plt.subplots(1, 2)
        assert plot_alignment(translation.trace, ax=axes[1]) is figure
        assert (len(axes[0].images), len(axes[1].images), len(figure.axes)) == (0, 1, 2)

    def test_cross_attention_alone_is_enough(self, translation):
        trace = Trace.from_arrays(
            cross_weights=translation.shares["cross"][:, None],
            tokens=[translation.source],
            decoder_tokens=[translation.read],
        )
        figure = plot_alignment(trace, head=0)
        np.testing.assert_allclose(drawn(figure), translation.shares["cross"][0, 0])
        assert labels(figure.axes[0])[0] == translation.read

    @pytest.mark.parametrize(
        ("request_", "message"),
        [
            ({"layer": 2}, "There is no decoder layer 2.\nThere are decoder layers 0, 1."),
            ({"head": 4}, "There is no head 4.\nThere are heads 0, 1, 2, 3."),
            ({"sequence": 1}, "The trace has sequences 0 to 0; there is no 1."),
            (
                {"gold": "0-0 4-0"},
                "The gold link 4-0 names a word that is not there.\nThe source has 4 words, the "
                "target 3; they are numbered from 0.",
            ),
        ],
    )
    def test_what_is_not_there_is_named(self, translation, request_: dict[str, Any], message):
        with pytest.raises(InputError) as caught:
            plot_alignment(translation.trace, **request_)
        assert str(caught.value) == message

    def test_a_trace_without_cross_attention_says_what_to_trace(self, pair):
        with pytest.raises(InputError, match=r"this trace holds none\.\nTrace an encoder-decoder"):
            plot_alignment(pair.trace)

    def test_a_text_without_words_says_so(self, translation):
        trace = Trace(
            cross=translation.trace.cross,
            tokens=translation.trace.tokens,
            written=translation.trace.written,
            decoder_words=[[None] * 7],
        )
        with pytest.raises(InputError, match="no word to draw"):
            plot_alignment(trace, words=True)


@pytest.mark.parametrize("side", ["encoder", "decoder", "cross"])
def test_maps_of_heads_of_any_side(translation, side):
    figure = plot_heads(translation.trace, layers=[1], heads=[1], side=side)
    np.testing.assert_array_equal(drawn(figure), translation.shares[side][1, 1])
    texts = {
        "encoder": (translation.source, translation.source),
        "decoder": (translation.read, translation.read),
        "cross": (translation.written, translation.source),
    }
    assert labels(figure.axes[0]) == texts[side]


class TestPositions:
    def test_it_draws_the_table_and_its_cosines(self):
        table = sinusoids(20, 16)
        figure = fa.plot_positions(table, title="$5 positions")
        np.testing.assert_array_equal(drawn(figure), table)
        cosines = drawn(figure, 1)
        np.testing.assert_allclose(np.diag(cosines), 1, atol=1e-6)
        # The product of two sinusoidal vectors depends on their distance alone.
        for distance in (1, 7):
            np.testing.assert_allclose(np.diff(np.diag(cosines, distance)), 0, atol=1e-5)
        assert [ax.get_xlabel() for ax in figure.axes[:2]] == ["feature", "position"]
        assert figure.axes[0].images[0].get_clim() == (-np.abs(table).max(), np.abs(table).max())

    def test_it_draws_into_axes_of_ones_own(self):
        figure, axes = plt.subplots(1, 3)
        assert plot_positions(np.zeros((2, 3)), axes[1:]) is figure
        assert [len(ax.images) for ax in axes] == [0, 1, 1]

    @pytest.mark.parametrize("table", [np.zeros(3), np.zeros((0, 4)), np.full((2, 2), np.nan)])
    def test_another_shape_is_refused(self, table):
        with pytest.raises(InputError, match=r"finite numbers of shape \[P, E\], received \("):
            plot_positions(table)

    def test_one_axes_is_not_enough(self):
        with pytest.raises(InputError, match="draws into two axes, received 1"):
            plot_positions(np.ones((2, 2)), [plt.subplots()[1]])

    def test_segments_are_drawn_below(self):
        rng = np.random.default_rng(0)
        table, segments = rng.normal(size=(6, 4)), 2 * rng.normal(size=(2, 4))
        figure = fa.plot_positions(table, segments=segments)
        np.testing.assert_allclose(drawn(figure, 2), segments, rtol=1e-6)
        lengths = np.linalg.norm(segments, axis=1)[:, None] * np.linalg.norm(table, axis=1)
        np.testing.assert_allclose(drawn(figure, 3), segments @ table.T / lengths, atol=1e-6)
        assert [ax.get_ylabel() for ax in figure.axes[:4]] == ["position"] * 2 + ["segment"] * 2
        assert len({ax.images[0].get_clim() for ax in figure.axes[:4:2]}) == 1, "one scale"
        with pytest.raises(InputError, match="positions have 4 features, segments 3\nexpected"):
            fa.plot_positions(table, segments=np.ones((2, 3)))
        with pytest.raises(InputError, match=r"shape \[T, E\], received .*\n.*model\.segments"):
            fa.plot_positions(table, segments=np.ones(3))
        with pytest.raises(InputError, match="draws into four axes, received 2"):
            fa.plot_positions(table, plt.subplots(1, 2)[1], segments=segments)

    @pytest.mark.slow
    def test_a_model_hands_out_its_segments(self, modern):
        model = fa.from_pretrained("tiny-bert")
        out = model([[5, 6]], token_type_ids=[[0, 1]], output_hidden_states=True)
        other = model([[5, 6]], token_type_ids=[[0, 0]], output_hidden_states=True)
        assert model.segments().shape == (2, model.config.hidden_size)
        embeddings = np.asarray(model.params["bert"]["embeddings"]["token_type"]["embedding"])
        np.testing.assert_array_equal(model.segments(), embeddings)
        assert not np.allclose(out.hidden_states[0][0, 1], other.hidden_states[0][0, 1])
        with pytest.raises(InputError, match="has no table of segments"):
            modern.segments()
