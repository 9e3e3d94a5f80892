# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Two stores of the same texts, and weights that are NaN: what is compared and reported."""

import dataclasses

import numpy as np
import pytest
import store_cases
from drawn_figures import one_line
from page_payload import payload_of

import flaxattn as fa
from flaxattn.errors import InputError, StoreError
from flaxattn.measures.divergence import compare_stores, compare_traces
from flaxattn.store.open_store import Store, open_store
from flaxattn.trace.trace import Trace


def other_weights(text: Trace, seed: int, missing: bool = False) -> Trace:
    """The same text under another model."""
    rng, sides = np.random.default_rng(seed), {}
    for side in ("encoder", "decoder", "cross"):
        if (record := getattr(text, side)) is None:
            continue
        weights = store_cases.maps(rng, *record.weights.shape[3:], "float16")
        if missing and side == "cross":
            weights[1, 0, 0, 0, 0] = np.nan
        stats = {name: array + 1 for name, array in record.stats.items() if name == "entropy"}
        sides[side] = dataclasses.replace(record, weights=weights, stats=stats)
    return dataclasses.replace(text, **sides)


@pytest.fixture(scope="module")
def texts() -> tuple[list[Trace], list[Trace]]:
    """Five texts under two models; of two of them a weight of cross 3.1 is NaN."""
    first = store_cases.traces("seq2seq", 5)
    return first, [other_weights(t, n, missing=n in (1, 3)) for n, t in enumerate(first)]


@pytest.fixture(scope="module")
def stores(texts, tmp_path_factory) -> tuple[Store, Store]:
    """Of both, in shards of different sizes."""
    folder = tmp_path_factory.mktemp("stores")
    pairs = zip(("before", "after"), texts, (2, 3), strict=True)
    paths = [store_cases.write(folder / name, own, per_shard) for name, own, per_shard in pairs]
    return open_store(paths[0]), open_store(paths[1])


def test_heads_are_means_over_texts_on_which_they_could_be_compared(stores, texts):
    found = compare_stores(*stores)
    assert found.texts == 5 and found.left_out == {("cross", 3, 1): 2}
    rows = [compare_traces(*pair) for pair in zip(*texts, strict=True)]
    for head in found.heads:
        same = [r for row in rows for r in row if (r.side, r.layer, r.head) == astuple(head)]
        assert head.divergence == pytest.approx(np.nanmean([r.divergence for r in same]))
        assert head.cosine == pytest.approx(np.nanmean([r.cosine for r in same]))
    assert [h.divergence for h in found.heads] == sorted(
        (h.divergence for h in found.heads), reverse=True
    )
    means = {n: np.nanmean([r.divergence for r in row]) for n, row in enumerate(rows)}
    assert [n for n, _ in found.most] == sorted(means, key=lambda n: -means[n])
    assert fa.compare_traces(*stores) == found.heads


def astuple(head) -> tuple[str, int, int]:
    return head.side, head.layer, head.head


def test_some_texts_and_one_side(stores, texts):
    found = compare_stores(*stores, side="encoder", texts=[-1, 0])
    expected = [compare_traces(texts[0][n], texts[1][n], side="encoder") for n in (4, 0)]
    for head in found.heads:
        same = [r.divergence for row in expected for r in row if astuple(r) == astuple(head)]
        assert head.divergence == pytest.approx(np.mean(same))
    assert {h.side for h in found.heads} == {"encoder"} and found.texts == 2


def test_all_texts_are_read_a_shard_at_a_time(stores, monkeypatch):
    read = []
    monkeypatch.setattr(Store, "__getitem__", lambda *_: read.append(1))
    assert compare_stores(*stores).texts == 5 and not read


def test_the_page_is_an_atlas_of_divergence_and_statistics(stores):
    found = payload_of(fa.compare_view(*stores, names=("before", "after")))
    assert (found["levels"], found["names"]) == (["atlas"], ["before", "after"])
    best = compare_stores(*stores).heads[0]
    start = found["start"]
    assert (start["measure"], start["order"], start["compare"]) == (
        "divergence",
        "value",
        "difference",
    )
    assert (start["side"], start["layer"], start["heads"]) == (best.side, best.layer, [best.head])
    sides = {side["name"]: side for side in found["inputs"][0]["sides"]}
    for head in compare_stores(*stores).heads:
        side = sides[head.side]
        at, place = side["layers"].index(head.layer), side["heads"].index(head.head)
        ours, theirs = side["measures"][at][place], side["second"]["measures"][at][place]
        assert (
            ours["divergence"] == theirs["divergence"] == pytest.approx(head.divergence, abs=1e-4)
        )
        assert theirs["entropy"] - ours["entropy"] == pytest.approx(1, abs=2e-4)
        assert "lse" not in ours, "only the second store lacks it"
    divergence = found["measured_by"]["divergence"]
    assert divergence == "before and after, 5 texts; NaN in some texts, left out there: cross 3.1"
    assert "Those that differ most: " in found["note"]
    one = payload_of(fa.compare_view(*stores, texts=[2], side="cross", layer=3))
    assert (one["start"]["side"], one["start"]["layer"]) == ("cross", 3)
    assert one["measured_by"]["divergence"] == "A and B, 1 text"


def test_what_cannot_be_compared_is_refused_in_three_lines(stores, texts, tmp_path):
    first, second = stores
    fewer = open_store(store_cases.write(tmp_path / "fewer", texts[0][:3]))
    strange = [*texts[1][:3], *store_cases.traces("seq2seq", 2, seed=9)]
    strange = open_store(store_cases.write(tmp_path / "strange", strange))
    for pair, request, message in [
        ((first, fewer), {}, "has 5 texts, "),
        ((first, strange), {}, "Text 3 of "),
        ((first, second), {"texts": [5]}, "has examples 0 to 4; there is no 5"),
        ((first, second), {"texts": []}, "No text was requested."),
        ((first, texts[0][0]), {}, "A store is compared with a store, a trace with a trace"),
        ((first, second), {"weights": {}}, "A page of two traces shows attention; weights are"),
    ]:
        with pytest.raises(InputError) as caught:
            fa.compare_view(*pair, **request)
        assert message in str(caught.value) and len(str(caught.value).splitlines()) <= 3
    part = open_store(store_cases.write(tmp_path / "part", texts[0], only=[0]))
    with pytest.raises(StoreError, match="does not hold shard"):
        fa.compare_view(first, part)


@pytest.fixture(scope="module")
def broken(peaked) -> tuple[Trace, Trace]:
    """Of the second, a weight of head 1.2 is NaN."""
    arrays = [peaked(2, 3, 4, seed=seed) for seed in (0, 1)]
    arrays[1][1, 0, 2, 3, 0] = np.nan
    one, other = (Trace.from_arrays(array, [list("abcd")]) for array in arrays)
    return one, other


def test_heads_with_nan_come_last_and_the_page_names_them(broken):
    rows = fa.compare_traces(*broken)
    last = rows[-1]
    assert (last.layer, last.head) == (1, 2) and np.isnan([last.divergence, last.cosine]).all()
    assert not np.isnan([r.divergence for r in rows[:-1]]).any()
    found = payload_of(fa.compare_view(*broken))
    assert found["measured_by"]["divergence"] == (
        "A and B, 1 text; not compared, a weight is NaN: encoder 1.2"
    )
    assert "divergence" not in found["inputs"][0]["sides"][0]["measures"][1][2]
    assert "missing" not in found["inputs"][0]


def test_the_figure_names_them_too(broken):
    figure = fa.plot_compare(*broken, count=6)
    assert one_line(figure.axes[0].get_title()).endswith(" not compared, NaN: encoder 1.2")
    assert len(figure.axes) == 3 * 5 + 2
    nothing = Trace.from_arrays(np.full((1, 1, 1, 2, 2), np.nan), [list("ab")])
    with pytest.raises(InputError, match="No head of the two traces can be compared"):
        fa.plot_compare(nothing, nothing)
