# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores from recorded statistics are those of whole maps; what is missing is named."""

import laid_out
import numpy as np
import pytest

from flaxattn.kernels import reductions
from flaxattn.kernels.contract import Capture, Sieve
from flaxattn.measures.scores import capture_hints, dense_values, recorded_values
from flaxattn.measures.specs import ScoreOptions, ScoreSpec, self_labels
from flaxattn.measures.terms import terms_of

SIEVES = (
    Sieve("after", offsets=(1, 1)),
    Sieve("before", offsets=(-1, -1)),
    Sieve("self", offsets=(0, 0)),
    Sieve("near", offsets=(-2, 2)),
    Sieve("mine", same_segment=True),
    Sieve("alike", same_token=True),
    Sieve("alike elsewhere", same_token=True, same_segment=False),
)
PLAIN = ("entropy", "distance", "max", "sum_sq")


def recorded(weights, layout):
    """What a store would hold of maps, computed the plain way."""
    stats = reductions.statistics(weights, (*PLAIN, *SIEVES), self_labels(layout).labels)
    order = np.argsort(-weights, -1, kind="stable")[..., :4]
    return stats | {"received": weights.sum(-2), "topk_indices": order}


@pytest.fixture(params=["single", "pair"])
def text(request):
    layout = getattr(laid_out, request.param)()
    options = ScoreOptions(annotated=request.param == "single", relations=("nsubj", "obj", "amod"))
    weights = laid_out.random_maps(2, 3, len(layout), np.random.default_rng(5))
    return weights, layout, terms_of(layout, options)


def test_statistics_tell_what_maps_tell(text):
    weights, layout, terms = text
    capture = Capture(stats=(*PLAIN, "received", "topk(4)", *SIEVES))
    found = recorded_values(recorded(weights, layout), capture, terms)
    whole = dense_values(weights, terms)
    for column, value in found.items():
        np.testing.assert_allclose(value, whole[column], atol=1e-12, err_msg=str(column))
    left = {column for column in whole if column not in found}
    requests = capture_hints(terms)
    assert left == {c for c, request in requests.items() if request == "weights=True"}
    assert requests.keys() == whole.keys() and len(found) > 20


@pytest.mark.parametrize(
    ("names", "column", "request_"),
    [
        (("entropy",), ScoreSpec("mean", "entropy"), 'stats=("entropy",)'),
        (("received",), ScoreSpec("score", "sep"), 'stats=("received",)'),
        (("topk_indices",), ScoreSpec("strongest", "next"), 'stats=("topk(4)",)'),
        (("near",), ScoreSpec("score", "local"), 'stats=(Sieve("local", offsets=(-2, 2)),)'),
        (("mine",), ScoreSpec("mean", "own segment"), 'Sieve("own segment", same_segment=True)'),
    ],
)
def test_what_is_missing_is_recorded_by_what_is_named(names, column, request_):
    layout = laid_out.single()
    terms = terms_of(layout, ScoreOptions(relations=("nsubj",)))
    weights = laid_out.random_maps(2, 2, len(layout), np.random.default_rng(0))
    stats = recorded(weights, layout)
    capture = Capture(stats=SIEVES)
    without = {name: array for name, array in stats.items() if name not in names}
    assert column not in recorded_values(without, capture, terms)
    assert request_ in capture_hints(terms)[column]
    only = {name: stats[name] for name in names}
    assert column in recorded_values(only, capture, terms)


def test_a_sieve_counts_by_its_conditions():
    layout = laid_out.single()
    terms = terms_of(layout, ScoreOptions(relations=("nsubj",)))
    stats = {"next": np.ones((1, 1, len(layout)))}
    other = Capture(stats=(Sieve("next", offsets=(2, 2)),))
    assert not recorded_values(stats, other, terms)
    right = Capture(stats=(Sieve("next", offsets=(1, 1)),))
    found = recorded_values(stats, right, terms)
    assert found[ScoreSpec("mean", "next")] == 1 and len(found) == 2


def test_too_few_of_the_largest_do_not_tell_the_strongest():
    layout = laid_out.pair()  # three delimiters: the strongest plain key may be the fourth
    terms = terms_of(layout, ScoreOptions(annotated=False))
    keys = np.zeros((1, 1, len(layout), 3), int)
    found = recorded_values({"topk_indices": keys}, Capture(), terms)
    assert ScoreSpec("strongest", "next") not in found
    assert ScoreSpec("pattern", "next strongest") in found, "the largest of all is known"
