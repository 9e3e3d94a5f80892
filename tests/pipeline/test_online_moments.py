# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Moments over a corpus, against float64 brute force over all observations at once."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaxattn.errors import InputError
from flaxattn.pipeline.online_moments import OnlineMoments, by_offset
from flaxattn.trace.record import AttentionRecord
from flaxattn.trace.trace import Trace

LAYERS, HEADS = (1, 3), (2, 0)


def trace(seed: int, queries: int, keys: int, side: str = "cross", dtype: Any = "f4") -> Trace:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(keys, 0.3), (2, 1, 2, queries)) * (255 if dtype == "u1" else 1)
    record = AttentionRecord(
        weights=weights.astype(dtype),  # type: ignore[arg-type]
        stats={
            "entropy": rng.normal(3, 1, (2, 1, 2, queries)).astype("f4"),  # type: ignore[dict-item]
            "received": rng.random((2, 1, 2, keys)).astype("f4"),
            "topk_weights": rng.random((2, 1, 2, queries, 2)).astype("f4"),
            "argmax": rng.integers(0, keys, (2, 1, 2, queries)),
        },
        layers=LAYERS,
        heads=HEADS,
    )
    return Trace(**{side: record})


def brute(traces: list[Trace]) -> dict[tuple[Any, ...], tuple[int, float, float]]:
    """Count, mean and M2 of lists of all observations."""
    found = defaultdict(list)
    for one in traces:
        for side in ("encoder", "cross"):
            record = getattr(one, side)
            if record is None:
                continue
            unit = 255 if record.weights.dtype == np.uint8 else 1
            for i, layer in enumerate(LAYERS):
                for j, head in enumerate(HEADS):
                    for name in ("entropy", "received"):
                        found[side, name, layer, head, None] += list(record.stats[name][i, 0, j])
                    for r in range(2):
                        values = record.stats["topk_weights"][i, 0, j, :, r]
                        found[side, f"topk_weights[{r}]", layer, head, None] += list(values)
                    for (q, k), w in np.ndenumerate(record.weights[i, 0, j]):
                        found[side, "weight", layer, head, k - q].append(w / unit)
    rows = {key: np.array(values, np.float64) for key, values in found.items()}
    return {k: (len(v), v.mean(), ((v - v.mean()) ** 2).sum()) for k, v in rows.items()}


def rows_of(running: OnlineMoments) -> dict[tuple[Any, ...], tuple[int, float, float]]:
    rows = running.table().to_pylist()
    found = {tuple(list(row.values())[:5]): tuple(list(row.values())[5:]) for row in rows}
    assert len(found) == len(rows)
    return found  # type: ignore[return-value]


def check(
    running: OnlineMoments, expected: dict[tuple[Any, ...], tuple[int, float, float]]
) -> None:
    found = rows_of(running)
    assert found.keys() == expected.keys()
    for key, (count, mean, m2) in expected.items():
        assert found[key][0] == count, key
        np.testing.assert_allclose(found[key][1:], (mean, m2), rtol=1e-11, atol=1e-12)


SIZES = st.tuples(st.integers(0, 99), st.integers(1, 6), st.integers(1, 6))


@given(st.lists(SIZES, min_size=1, max_size=6), st.data())
def test_any_order_and_grouping_is_brute_force_over_all(sizes, data) -> None:
    traces = [trace(*size) for size in sizes]
    expected = brute(traces)
    order = data.draw(st.permutations(traces))
    parts = [OnlineMoments("statistics", "offsets") for _ in range(3)]
    for one in order:
        parts[data.draw(st.integers(0, 2))].add(one)
    first, second, third = data.draw(st.permutations(parts))
    if data.draw(st.booleans()):
        second.merge(third)
        first.merge(second)
    else:
        first.merge(second)
        first.merge(third)
    check(first, expected)


def test_a_table_can_be_read_and_merged_further() -> None:
    import pyarrow as pa

    traces = [trace(0, 3, 5), trace(1, 4, 2), trace(2, 3, 3, "encoder")]
    one, two = OnlineMoments("statistics", "offsets"), OnlineMoments("statistics", "offsets")
    one.add(traces[0])
    for other in traces[1:]:
        two.add(other)
    joined = pa.concat_tables([one.table(), two.table()])  # the same head twice
    shuffled = joined.take(np.random.default_rng(0).permutation(len(joined)))
    check(OnlineMoments.of_table(shuffled), brute(traces))
    assert OnlineMoments.of_table(shuffled).kinds == ("statistics", "offsets")
    assert rows_of(OnlineMoments.of_table(one.table())) == rows_of(one)
    assert len(OnlineMoments("offsets").table()) == 0


def test_bytes_stand_for_shares() -> None:
    running = OnlineMoments("offsets")
    running.add(trace(3, 4, 4, dtype="u1"))
    expected = {k: v for k, v in brute([trace(3, 4, 4, dtype="u1")]).items() if k[1] == "weight"}
    check(running, expected)


def test_layers_and_heads_that_differ_are_kept_separate() -> None:
    record = trace(0, 2, 2).cross
    assert record is not None
    running = OnlineMoments("statistics")
    for layer, head in ((4, 7), (5, 6), (4, 7)):
        one = record.map(lambda _, array: array[:1] if array.ndim < 3 else array[:1, :, :1])
        running.add(Trace(cross=AttentionRecord(stats=one.stats, layers=(layer,), heads=(head,))))
    found = rows_of(running)
    assert {key[2:4] for key in found} == {(4, 7), (5, 6)}
    assert found["cross", "entropy", 4, 7, None][0] == 4
    assert found["cross", "entropy", 5, 6, None][0] == 2


def test_offsets_are_counted_from_the_lower_left() -> None:
    count, mean, _ = by_offset(np.arange(6.0).reshape(1, 2, 3))
    np.testing.assert_array_equal(count, [[1, 2, 2, 1]])  # offsets -1, 0, 1, 2
    np.testing.assert_array_equal(mean, [[3, 2, 3, 2]])


def test_what_cannot_be_reduced() -> None:
    with pytest.raises(InputError, match="reduce: 'entropy' is not a reduction"):
        OnlineMoments("entropy")
    with pytest.raises(InputError, match="reduce: nothing is not a reduction"):
        OnlineMoments()
    with pytest.raises(InputError, match="this trace holds none"):
        OnlineMoments("offsets").add(
            Trace(cross=AttentionRecord(layers=(0,), heads=(0,)), tokens=[["a"]])
        )
    with pytest.raises(InputError, match="has no column 'offset'"):
        OnlineMoments.of_table(OnlineMoments("offsets").table().drop_columns(["offset"]))
