# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What the page of all levels holds: texts, numbers, likeness, a state to begin with; its size."""

import numpy as np
import pytest
import store_cases as cases
from page_payload import decode_weights, payload_of
from scipy.spatial.distance import squareform

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.measures.head_measures import head_measures
from flaxattn.measures.head_similarity import head_distances
from flaxattn.trace.trace import Trace


@pytest.fixture(scope="module")
def batch(peaked) -> Trace:
    """Three texts of unequal length."""
    tokens = [["a", "b", "c", "d"], ["e", "f", "g", "[PAD]"], ["h", "[PAD]", "[PAD]", "[PAD]"]]
    mask = np.array([[t != "[PAD]" for t in row] for row in tokens])
    weights = np.repeat(peaked(2, 2, 4), 3, axis=1) * mask[None, :, None, None]
    weights = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-9)
    return Trace.from_arrays(weights.astype(np.float32), tokens, mask=mask, model="m")


@pytest.mark.parametrize("level", ["head", "model", "atlas", "text"])
def test_every_door_opens_the_same_page_at_its_level(pair, level):
    door = getattr(fa, f"{level}_view")
    page = door(pair.trace)
    payload = payload_of(page)
    assert payload["start"].pop("level") == level
    assert payload["levels"] == ["atlas", "model", "head", "text"]
    other = payload_of(fa.head_view(pair.trace))
    other["start"].pop("level")
    assert payload == other
    titles = {"head": "heads", "model": "of all heads", "atlas": "atlas", "text": "in the text"}
    assert page.title == f"Attention {titles[level]} · tiny-bert"
    assert repr(page).startswith(f"Page({level} view: 13 tokens, 2 layers x 3 heads, uint11, ")


def test_all_texts_of_a_batch_travel_without_their_padding(batch):
    payload = payload_of(fa.head_view(batch))
    texts = [shaped["texts"]["source"]["tokens"] for shaped in payload["inputs"]]
    assert texts == [["a", "b", "c", "d"], ["e", "f", "g"], ["h"]]
    for number, (shaped, size) in enumerate(zip(payload["inputs"], (4, 3, 1), strict=True)):
        assert shaped["sides"][0]["weights"] == [f"{number}/encoder/weights/{n}" for n in (0, 1)]
        stored = payload["blocks"][f"{number}/encoder/weights/1"]
        shares = np.asarray(batch.encoder.weights)[1, number, :, :size, :size]
        np.testing.assert_allclose(
            decode_weights(stored, "uint11", (2, size, size)), shares, atol=2**-12
        )


@pytest.mark.parametrize(
    ("sequence", "first"), [(1, ["e"]), ([2, 0], ["h", "a"]), (-1, ["h"]), (None, ["a", "e", "h"])]
)
def test_sequences_are_chosen(batch, sequence, first):
    payload = payload_of(fa.head_view(batch, sequence=sequence))
    assert [shaped["texts"]["source"]["tokens"][0] for shaped in payload["inputs"]] == first


def test_too_many_texts_say_what_to_do(peaked, monkeypatch):
    monkeypatch.setattr("flaxattn.views.trace_page.PAGE_BYTES", 100)
    trace = Trace.from_arrays(np.repeat(peaked(1, 1, 5), 9, axis=1), [list("abcde")] * 9)
    with pytest.raises(InputError) as caught:
        fa.head_view(trace)
    assert str(caught.value) == (
        "The page would be 0 MB; browsers manage 0 MB.\nIt would hold 9 sequences of the trace.\n"
        "Choose some: sequence=[0, 1], or one: sequence=0."
    )


def test_numbers_of_heads_are_those_of_the_measures(pair):
    (side,) = payload_of(fa.atlas_view(pair.trace))["inputs"][0]["sides"]
    for measured in head_measures(pair.trace):
        found = side["measures"][measured.layer][measured.head]
        assert found["does"] == measured.does
        for name in ("next", "previous", "own", "first", "delimiter", "entropy", "distance"):
            assert found[name] == pytest.approx(getattr(measured, name), abs=6e-5)


def test_likeness_is_that_of_all_heads(pair):
    payload = payload_of(fa.atlas_view(pair.trace))
    likeness = payload["inputs"][0]["sides"][0]["likeness"]
    stored = np.frombuffer(payload["blocks"][likeness["distances"]], np.uint8)
    expected = head_distances(pair.shares.reshape(-1, pair.length, pair.length))
    np.testing.assert_allclose(stored / 255, expected, atol=0.5 / 255 + 1e-6)
    assert sorted(likeness["order"]) == list(range(6))
    assert squareform(stored).shape == (6, 6)


def test_statistics_alone_have_an_atlas_and_nothing_else():
    values = np.arange(24, dtype=np.float32).reshape(2, 1, 3, 4) / 10
    values[1, 0, 2] = np.nan
    stats = {"entropy": values, "argmax": np.zeros(values.shape, np.int32)}
    trace = Trace.from_arrays(tokens=[list("abcd")], stats=stats)
    payload = payload_of(fa.atlas_view(trace))
    assert payload["levels"] == ["atlas"]
    (side,) = payload["inputs"][0]["sides"]
    assert side["measures"][0][1] == {"does": "", "entropy": 0.55}
    assert side["measures"][1][2] == {"does": ""}
    assert "weights" not in side and "likeness" not in side
    with pytest.raises(InputError, match="A view draws attention weights; this trace holds only"):
        fa.model_view(trace)


def test_statistics_of_the_trace_stand_beside_the_measures(pair):
    stats = {"max": pair.shares[:, None].max(-1)}
    trace = Trace.from_arrays(pair.trace.encoder.weights, [pair.tokens], stats=stats)
    (side,) = payload_of(fa.atlas_view(trace))["inputs"][0]["sides"]
    expected = stats["max"][1, 0, 2].mean()
    assert side["measures"][1][2]["max"] == pytest.approx(expected, abs=6e-5)
    assert "next" in side["measures"][1][2]


def test_a_state_opens_the_page_as_it_was(translation):
    state = {
        "level": "model",
        "sequence": 0,
        "side": "encoder",
        "layer": 2,
        "heads": [1],
        "query": 5,
        "key": None,
        "mass": 80,
        "special": "hidden",
        "theme": "dark",
    }
    start = payload_of(fa.head_view(translation.trace, state=state))["start"]
    assert start == {name: value for name, value in state.items() if value is not None}
    other = payload_of(fa.head_view(translation.trace, layer=0, theme="light", state=state))
    assert (other["start"]["layer"], other["start"]["theme"]) == (0, "light")
    assert payload_of(fa.atlas_view(translation.trace, state=state))["start"]["level"] == "atlas"


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            "[1]",
            "state: expected a mapping such as {'layer': 3}, received list.\n"
            "Give the state of a page, or its JSON.",
        ),
        (
            {"colour": "red"},
            "state: there is no setting 'colour'.\nThere are level, sequence, side, layer, heads, "
            "query, key, mass, measure, weights, gold, attention, opacity, special, first, "
            "unit, labels, direction, "
            "drawing, order, dimensions, numbers, sorting, walk, compare, theme.",
        ),
        (
            {"special": "gone"},
            'state: special is \'gone\'.\nUse one of "shown", "hidden".',
        ),
        (
            {"level": "neurons"},
            'state: level is \'neurons\'.\nUse one of "atlas", "model", "head", "text", "neuron".',
        ),
        ({"layer": 7}, "There is no layer 7.\nThere are layers 0, 1."),
        ({"heads": [9]}, "There is no head 9.\nThere are heads 0, 1, 2."),
        ({"sequence": 2}, "There is no sequence 2.\nThere are sequences 0."),
        ({"side": "cross"}, "There is no side 'cross'.\nThis trace has encoder."),
        (
            {"query": 13},
            "state: query is 13.\nThere are positions 0 to 12 on that side.",
        ),
        (
            {"mass": 101},
            "state: mass is 101.\nUse a whole number of percent from 5 to 100.",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused(pair, state, message):
    with pytest.raises(InputError) as caught:
        fa.head_view(pair.trace, state=state)
    assert str(caught.value) == message


@pytest.mark.slow
def test_a_bert_base_of_64_tokens_is_about_a_megabyte(peaked):
    tokens = [f"token{i}" for i in range(64)]
    trace = Trace.from_arrays(
        np.concatenate([peaked(1, 12, 64, seed=s) for s in range(12)]), [tokens]
    )
    page = fa.head_view(trace, precision="uint8")
    assert len(page.html.encode()) <= 1_060_000


def test_a_store_has_an_atlas_of_means_over_its_texts(tmp_path):
    texts = cases.traces("statistics", 5)
    store = fa.open_store(cases.write(tmp_path / "store", texts))
    payload = payload_of(fa.atlas_view(store, layer=3))
    assert payload["levels"] == ["atlas"] and payload["blocks"] == {}
    assert payload["note"] == "Means over 5 texts, each the mean over its tokens."
    table = store.stats()
    for side in payload["inputs"][0]["sides"]:
        rows = [row for row in table.to_pylist() if row["side"] == side["name"]]
        for i, layer in enumerate(side["layers"]):
            for j, head in enumerate(side["heads"]):
                of_head = [row for row in rows if (row["layer"], row["head"]) == (layer, head)]
                assert len(of_head) == 5
                found = side["measures"][i][j]
                expected = np.mean([row["entropy"] for row in of_head])
                assert found["entropy"] == pytest.approx(expected, abs=6e-5)
                assert not [name for name in found if name.startswith("topk")]
    with pytest.raises(InputError, match="There is no layer 9"):
        fa.atlas_view(store, layer=9)


def test_a_store_without_statistics_says_what_to_extract(tmp_path):
    store = fa.open_store(cases.write(tmp_path / "store", cases.traces("decoder", 2)))
    with pytest.raises(InputError, match="extract again with statistics"):
        fa.atlas_view(store)


def test_odd_traces_make_a_page(peaked):
    one = np.ones((1, 1, 2, 1, 1), np.float32)
    assert "1 tokens" in repr(fa.atlas_view(Trace.from_arrays(one, [["a"]])))
    special = np.ones((1, 3), bool)
    every = Trace.from_arrays(peaked(1, 2, 3), [["[CLS]", "[SEP]", "[SEP]"]], special=special)
    assert payload_of(fa.model_view(every))["inputs"][0]["texts"]["source"]["special"] == [0, 1, 2]
    off = peaked(2, 2, 3)
    off[0, :, 1] = 0
    (side,) = payload_of(fa.model_view(Trace.from_arrays(off, [list("abc")])))["inputs"][0]["sides"]
    assert side["measures"][0][1]["entropy"] == 0
