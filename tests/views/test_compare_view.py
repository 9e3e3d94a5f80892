# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What the page of two traces holds: both, how far each head differs, and no bad input."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from page_payload import payload_of

import flaxattn as fa
from flaxattn.errors import InputError
from flaxattn.measures.compare_heads import Comparison
from flaxattn.measures.divergence import compare_traces
from flaxattn.trace.trace import Trace

TOKENS = ["[CLS]", "a", "b", "c", "[SEP]"]


def trace(weights: np.ndarray, tokens=TOKENS, **more) -> Trace:
    """A trace of one text."""
    return Trace.from_arrays(weights, [tokens], model="tiny", **more)


@pytest.fixture(scope="module")
def both(peaked) -> tuple[Trace, Trace]:
    """Two layers, three heads; head 0.1 is the same in both."""
    before, after = peaked(2, 3, 5), peaked(2, 3, 5, seed=1)
    after[0, 0, 1] = before[0, 0, 1]
    return trace(before), trace(after)


def test_the_page_holds_both_and_how_far_each_head_differs(both):
    first, second = both
    found = payload_of(fa.compare_view(first, second, names=("before", "after")))
    assert found["names"] == ["before", "after"]
    assert found["levels"] == ["atlas", "model", "head", "text"]
    (side,) = found["inputs"][0]["sides"]
    alone = [payload_of(fa.head_view(one)) for one in both]
    for part, page in zip((side, side["second"]), alone, strict=True):
        (expected,) = page["inputs"][0]["sides"]
        for ours, theirs in zip(part["weights"], expected["weights"], strict=True):
            assert found["blocks"][ours] == page["blocks"][theirs]
    for row in compare_traces(first, second):
        for part in (side, side["second"]):
            measure = part["measures"][row.layer][row.head]
            assert measure["divergence"] == pytest.approx(row.divergence, abs=1e-5)
            assert measure["cosine"] == pytest.approx(row.cosine, abs=1e-5)
    assert side["measures"][0][1]["divergence"] == 0


def test_it_opens_at_the_atlas_ranked_by_divergence_and_at_the_head_that_differs_most(both):
    start = payload_of(fa.compare_view(*both))["start"]
    top = compare_traces(*both)[0]
    assert (start["level"], start["measure"], start["order"]) == ("atlas", "divergence", "value")
    assert (start["compare"], start["layer"], start["heads"]) == (
        "together",
        top.layer,
        [top.head],
    )
    state = {"level": "head", "compare": "b", "layer": 1}
    start = payload_of(fa.compare_view(*both, state=state))["start"]
    assert (start["level"], start["compare"], start["layer"]) == ("head", "b", 1)
    other = 1 - top.layer
    assert payload_of(fa.compare_view(*both, include_layers=[other]))["start"]["layer"] == other


def test_a_translation_is_compared_side_by_side(translation, peaked):
    one = translation.trace
    page = payload_of(fa.compare_view(one, one, side="all"))
    sides = {side["name"]: side for side in page["inputs"][0]["sides"]}
    assert list(sides) == ["encoder", "decoder", "cross", "all"]
    assert "second" not in sides["all"]
    for name in ("encoder", "decoder", "cross"):
        for heads in sides[name]["measures"]:
            assert all(measure["divergence"] == 0 for measure in heads)


@pytest.mark.parametrize(
    ("other", "request_", "message"),
    [
        ({"tokens": [*TOKENS[:3], "x", "[SEP]"]}, {}, r"position 3: 'c' and 'x'"),
        ({"heads": 2}, {}, r"heads of encoder: 0, 1, 2 and 0, 1"),
        ({"layers": 1}, {"include_layers": [1]}, r"none of the layers that would travel"),
        ({}, {"names": ("a", "a")}, r"expected two different names, received \('a', 'a'\)"),
        ({}, {"names": "ab"}, r"expected two different names, received 'ab'"),
        ({}, {"state": {"compare": "c"}}, r"compare is 'c'"),
    ],
)
def test_what_cannot_be_compared_is_refused(peaked, other, request_, message):
    first = trace(peaked(2, 3, 5))
    shape = (other.get("layers", 2), other.get("heads", 3), 5)
    second = trace(peaked(*shape), other.get("tokens", TOKENS))
    with pytest.raises(InputError, match=message) as caught:
        fa.compare_view(first, second, **request_)
    assert str(caught.value).count("\n") < 3


def test_a_state_of_the_difference_is_no_figure_of_one_trace(both):
    for shown in ("difference", "together"):
        with pytest.raises(InputError, match="plot_state was given one") as caught:
            fa.plot_state(both[0], {"compare": shown})
        assert "second=other" in str(caught.value)


def test_a_figure_of_a_difference_or_of_either_trace(both):
    one, other = both
    state = {"layer": 1, "heads": [2], "drawing": "matrix"}
    maps = [np.asarray(t.encoder.weights)[1, 0, 2] for t in both]
    expected = {"a": maps[0], "b": maps[1], "difference": maps[1] - maps[0]}
    for shown, weights in expected.items():
        figure = fa.plot_state(one, {**state, "compare": shown}, second=other)
        np.testing.assert_allclose(figure.axes[0].images[0].get_array(), weights, atol=1e-6)
    figure = fa.plot_state(one, {**state, "compare": "together"}, second=other, names=("x", "y"))
    drawn = [ax.images[0].get_array() for ax in figure.axes[:3]]
    for picture, weights in zip(drawn, expected.values(), strict=True):
        np.testing.assert_allclose(picture, weights, atol=1e-6)
    titles = [ax.get_title().split("\n")[0] for ax in figure.axes[:3]]
    assert titles == ["x", "y", "y − x"]
    model = fa.plot_state(one, {"level": "model", "compare": "together"}, second=other)
    assert float(np.nanmin(model.axes[0].images[0].get_array())) < 0, "of the difference"


def test_a_figure_of_two_that_do_not_fit_is_refused(both, peaked):
    one, other = both
    state = {"compare": "together", "layer": 1, "heads": [0]}
    foreign = trace(peaked(2, 3, len(TOKENS)), [f"{token}s" for token in TOKENS])
    with pytest.raises(InputError, match="not of the same tokens"):
        fa.plot_state(one, state, second=foreign)
    with pytest.raises(InputError, match="takes three axes"):
        fa.plot_state(one, state, plt.figure().add_subplot(), second=other)
    with pytest.raises(InputError, match="no atlas of a difference"):
        fa.plot_state(one, {"level": "atlas", "compare": "difference"}, second=other)


def test_changes_of_a_page_are_those_of_python(peaked):
    """Of several texts, and only of the layers that travel."""
    arrays = [peaked(2, 3, len(TOKENS), seed=n) for n in range(8)]
    traces = [
        Trace.from_arrays(np.concatenate(some, axis=1), [TOKENS] * 4)
        for some in (arrays[:4], arrays[4:])
    ]
    comparison = Comparison()
    comparison.add(*traces)
    expected = {(c.layer, c.head): c for c in comparison.changes()}
    held = payload_of(fa.compare_view(*traces))["changes"]
    assert held["heads"].keys() == {"encoder"} and len(held["heads"]["encoder"]) == 6
    for name, changed in held["heads"]["encoder"].items():
        change = expected[tuple(map(int, name.split(".")))]
        assert changed["interval"] == pytest.approx(change.interval, abs=1e-5)
        assert changed["divergence"] == pytest.approx(change.divergence, abs=1e-5)
        assert (changed["texts"], changed["changed"]) == (4, change.changed)
        assert ("role" in changed) == change.role_changed
    some = payload_of(fa.compare_view(*traces, include_layers=[1]))["changes"]["heads"]["encoder"]
    assert some.keys() == {"1.0", "1.1", "1.2"}
    for name, changed in some.items():
        assert changed["interval"] == held["heads"]["encoder"][name]["interval"]
