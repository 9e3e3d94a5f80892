# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Weights other than attention in a page: every shape that fits, the scale, what is refused."""

import dataclasses

import numpy as np
import pytest
from page_payload import decode_weights, payload_of

import flaxattn as fa
from flaxattn.attribution.ablation import HeadEffects
from flaxattn.errors import InputError
from flaxattn.measures.head_measures import head_values
from flaxattn.trace.trace import Trace

LAYERS, HEADS, LENGTH = 2, 3, 4


def only(page, name: str) -> dict:
    """The part of one kind, of a page of one side and one text."""
    (side,) = payload_of(page)["inputs"][0]["sides"]
    return side["other"][name]


def values(page, name: str, number: int = 0) -> np.ndarray:
    """Weights of a kind as they are stored, `[L, H or 1, Q, K]`."""
    held = payload_of(page)
    (side,) = held["inputs"][number]["sides"]
    part, length = side["other"][name], len(held["inputs"][number]["texts"]["source"]["tokens"])
    heads = 1 if part["common"] else len(side["heads"])
    precision = part.get("precision", held["precision"])
    blocks = [held["blocks"][block] for block in part["weights"]]
    return np.stack([decode_weights(b, precision, (heads, length, length)) for b in blocks])


@pytest.fixture(scope="module")
def trace(peaked) -> Trace:
    """Of one text."""
    return Trace.from_arrays(peaked(LAYERS, HEADS, LENGTH), [list("abcd")])


@pytest.fixture(scope="module")
def norms(peaked) -> np.ndarray:
    """`[L, H, Q, K]`, some above 1."""
    return peaked(LAYERS, HEADS, LENGTH, seed=5)[:, 0] * 7


def test_values_are_shares_of_the_largest_of_their_layer_which_is_reported(trace, norms):
    page = fa.head_view(trace, weights={"norm": norms})
    part, peaks = only(page, "norm"), norms.max((1, 2, 3))
    assert (part["shares"], part["signed"], part["common"]) == (False, False, False)
    assert part["peaks"] == pytest.approx(peaks.tolist(), rel=1e-4)
    stored = values(page, "norm") * peaks[:, None, None, None]
    assert np.abs(stored - norms).max() <= 2**-12 * peaks.max()
    assert part["label"] == "‖αf(x)‖"


def test_every_shape_that_fits_gives_the_same_page(trace, norms):
    pages = [
        fa.head_view(trace, weights={"norm": given}).html
        for given in (norms, norms[:, None], [norms], {"encoder": norms}, {"encoder": [norms]})
    ]
    assert len(set(pages)) == 1
    common = fa.rollout(trace)
    pages = [
        fa.head_view(trace, weights={"mine": given})
        for given in (common, common[:, None], [common])
    ]
    assert len({page.html for page in pages}) == 1
    part = only(pages[0], "mine")
    assert part["common"] and part["shares"] and part["peaks"] == [1, 1]
    assert "likeness" not in part
    np.testing.assert_allclose(values(pages[0], "mine")[:, 0], common, atol=2**-12)


def test_texts_of_a_batch_are_cut_out_of_padding(peaked):
    weights = np.concatenate([peaked(LAYERS, HEADS, LENGTH, seed=s) for s in (0, 1)], 1)
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], bool)
    both = Trace.from_arrays(weights, [list("abc_"), list("wxyz")], mask=mask)
    whole = np.abs(np.random.default_rng(0).normal(size=weights.shape))
    page = fa.head_view(both, weights={"norm": whole})
    for number, length in enumerate((3, 4)):
        cut = whole[:, number, :, :length, :length]
        stored = values(page, "norm", number) * cut.max((1, 2, 3), keepdims=True)
        np.testing.assert_allclose(stored, cut, atol=1e-3)
    listed = [whole[:, 0, :, :3, :3], whole[:, 1]]
    assert fa.head_view(both, weights={"norm": listed}).html == page.html
    page = fa.head_view(both, include_layers=[1], weights={"norm": whole})
    (side,) = payload_of(page)["inputs"][1]["sides"]
    assert side["other"]["norm"]["peaks"] == [pytest.approx(whole[1, 1].max(), rel=1e-4)]


def test_signs_are_kept_whatever_the_precision(trace, norms):
    signed = norms * np.where(np.arange(LENGTH) % 2, -1, 1)
    page = fa.head_view(trace, weights={"gradient": signed}, precision="uint8")
    part = only(page, "gradient")
    assert part["signed"] and part["precision"] == "float16"
    np.testing.assert_array_equal(np.sign(values(page, "gradient")), np.sign(signed))


def test_measures_are_of_sizes_as_shares_of_their_row(trace, norms):
    part = only(fa.head_view(trace, weights={"norm": -norms}), "norm")
    rows = norms / norms.sum(-1, keepdims=True)
    as_if = Trace.from_arrays(rows[:, None].astype(np.float32), trace.tokens)
    for name in ("entropy", "previous", "first"):
        expected = head_values(as_if, name).values
        found = [[measure[name] for measure in row] for row in part["measures"]]
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_nan_stays_and_zero_layers_have_a_scale(trace, norms):
    broken = norms.copy()
    broken[0, 1, 2] = np.nan
    broken[1] = 0
    page = fa.head_view(trace, weights={"norm": broken})
    np.testing.assert_array_equal(np.isnan(values(page, "norm")), np.isnan(broken))
    assert only(page, "norm")["peaks"][1] == 1
    assert only(page, "norm")["measures"][0][1]["does"] == "not a number"


def test_a_state_chooses_what_shows(trace, norms):
    page = fa.head_view(trace, weights={"norm": norms}, state={"weights": "norm"})
    assert payload_of(page)["start"]["weights"] == "norm"


def test_what_does_not_fit_is_refused_in_three_lines(trace, norms):
    huge = norms.copy()
    huge[0, 0, 0, 0] = np.inf
    for request, message in [
        ({"weights": norms}, "weights: expected a mapping from names to arrays, received ndarray."),
        ({"weights": {"norm": norms[:1]}}, "weights['norm'] have shape (1, 3, 4, 4); weights of"),
        ({"weights": {"norm": [norms, norms]}}, "weights['norm'] have shape"),
        ({"weights": {"norm": {"cross": norms}}}, "weights['norm'] are of 'cross'; this trace"),
        ({"weights": {"attention": norms}}, "weights: the name 'attention' is taken."),
        ({"weights": {"a": norms}}, "weights: the name 'a' is taken."),
        ({"weights": {"norm": huge}}, "weights['norm'] of the encoder hold infinite values"),
        ({"state": {"weights": "norm"}}, "state: weights are 'norm', which encoder does not have."),
        ({"effects": {"ablation": norms}}, "effects: expected what fa.ablate(task) returns"),
    ]:
        with pytest.raises(InputError) as caught:
            fa.head_view(trace, **request)
        assert message in str(caught.value) and len(str(caught.value).splitlines()) <= 3
    with pytest.raises(
        InputError, match="A page of two traces shows attention; weights are of one"
    ):
        fa.compare_view(trace, trace, weights={"norm": norms})


@pytest.fixture(scope="module")
def effects() -> HeadEffects:
    """Growth of the loss, of heads that a trace has and of one layer more."""
    means = np.arange(9, dtype=float).reshape(3, 3) / 100 - 0.02
    return HeadEffects("ablation", {"head_mask": means}, {"head_mask": means}, 2.5, 12)


def test_effects_are_numbers_of_the_atlas_whatever_the_weights(trace, norms, effects):
    importance = dataclasses.replace(effects, kind="importance", texts=1)
    held = payload_of(fa.atlas_view(trace, weights={"norm": norms}, effects=[effects, importance]))
    (side,) = held["inputs"][0]["sides"]
    for part in (side, side["other"]["norm"]):
        found = [[m["ablation"] for m in row] for row in part["measures"]]
        np.testing.assert_allclose(found, effects.means["head_mask"][:2], atol=1e-6)
    assert held["measured_by"] == {
        "ablation": "growth of the loss, in nats, without the head; mean over 12 texts, whose loss "
        "is 2.5 with all heads",
        "importance": "size of the loss's slope in a factor on the head; mean over 1 text, whose "
        "loss is 2.5 with all heads",
    }
    few = dataclasses.replace(effects, means={"head_mask": np.zeros((1, 3))})
    with pytest.raises(InputError, match="has 1 layers of 3 heads; the trace has layer 1"):
        fa.atlas_view(trace, effects=few)
