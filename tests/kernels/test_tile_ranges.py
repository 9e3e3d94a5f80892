# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Tiles wholly of padding or of foreign segments are left out, and no other ones.

Counted against every pair of positions, one by one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flaxattn.kernels.call import Call
from flaxattn.kernels.checks import checked
from flaxattn.kernels.plan import pack
from flaxattn.kernels.tiles import needed_tiles, tile_ranges

BLOCK_Q, BLOCK_K = 4, 3


def packed(queries=24, keys=None, batch=1, block_q=BLOCK_Q, block_k=BLOCK_K, **options):
    """(plan, packed vectors by name) of a call."""
    q = jnp.zeros((batch, queries, 2, 8))
    k = jnp.zeros((batch, keys or queries, 2, 8))
    plan, operands = pack(checked(Call(q, k, k, **options)), block_q, block_k)
    return plan, operands._asdict()


def tiles_of(allowed, block_q=BLOCK_Q, block_k=BLOCK_K):
    """Tiles [B, I, J] with an allowed pair, from all pairs [B, Q, K]."""
    batch, queries, keys = allowed.shape
    tails = [(0, 0), (0, -queries % block_q), (0, -keys % block_k)]
    padded = np.pad(np.asarray(allowed), tails)
    shape = (batch, padded.shape[1] // block_q, block_q, padded.shape[2] // block_k, block_k)
    return padded.reshape(shape).any((2, 4))


def segments_of(lengths):
    return jnp.asarray(np.repeat(np.arange(len(lengths)), lengths))[None]


def same(of_queries, of_keys):
    return np.asarray(of_queries)[:, :, None] == np.asarray(of_keys)[:, None]


def visited(ranges):
    return int((ranges[..., 1] - ranges[..., 0]).sum())


@pytest.mark.slow
def test_packed_sequences_visit_the_tiles_of_their_own():
    ids = segments_of([5, 1, 9, 4, 5])
    plan, vectors = packed(segment_ids=ids)
    expected = tiles_of(same(ids, ids))
    np.testing.assert_array_equal(needed_tiles(plan, vectors, BLOCK_Q, BLOCK_K), expected)
    ranges = tile_ranges(plan, vectors, BLOCK_Q, BLOCK_K)
    assert visited(ranges.keys) == visited(ranges.queries) == expected.sum() == 20
    assert plan.ranged


@pytest.mark.slow
def test_padding_in_a_segment_of_its_own_adds_no_tiles_to_the_other_blocks():
    """Unpacked ends are segment 0 behind the others, which is not an order of ids."""
    ids = jnp.asarray([1] * 6 + [2] * 8 + [0] * 10)[None]
    plan, vectors = packed(segment_ids=ids)
    needed = np.asarray(needed_tiles(plan, vectors, BLOCK_Q, BLOCK_K))
    np.testing.assert_array_equal(needed, tiles_of(same(ids, ids)))


@pytest.mark.slow
def test_packing_and_padding_pay():
    length = 4096
    eight = segments_of([length // 8] * 8)
    half = jnp.arange(length)[None] < length // 2
    counts = []
    for options in (
        {"segment_ids": eight},
        {"segment_ids": eight, "causal": True},
        {"mask": half},
        {"mask": half, "causal": True},
        {"causal": True},
    ):
        plan, vectors = packed(length, block_q=128, block_k=128, **options)
        ranges = tile_ranges(plan, vectors, 128, 128)
        counts.append(visited(ranges.keys))
        assert visited(ranges.queries) == counts[-1]
    assert counts == [8 * 16, 8 * 10, 512, 136 + 256, 528]  # of 1024


@pytest.mark.slow
def test_keys_that_no_head_may_see_are_left_out():
    mask = np.zeros((1, 2, 1, 24), bool)
    mask[0, 0, :, 3:9] = mask[0, 1, :, 6:15] = True
    plan, vectors = packed(mask=jnp.asarray(mask))
    ranges = tile_ranges(plan, vectors, BLOCK_Q, BLOCK_K)
    assert ranges.keys.tolist() == [[[1, 5]] * 6]
    assert ranges.queries.tolist() == [[[0, 6] if 1 <= j < 5 else [0, 0] for j in range(8)]]


def test_a_bias_of_minus_infinity_is_a_mask():
    bias = jnp.where(jnp.arange(24) < 7, 0.5, -jnp.inf)[None, None, None]
    plan, vectors = packed(bias=bias)
    assert plan.ranged
    assert tile_ranges(plan, vectors, BLOCK_Q, BLOCK_K).keys.tolist() == [[[0, 3]] * 6]


@pytest.mark.slow
def test_an_example_of_nothing_but_padding_visits_nothing():
    mask = jnp.zeros((2, 24), bool).at[0].set(True)
    plan, vectors = packed(batch=2, mask=mask)
    ranges = tile_ranges(plan, vectors, BLOCK_Q, BLOCK_K)
    assert visited(ranges.keys[0]) == 6 * 8
    assert not np.asarray(ranges.keys[1]).any() and not np.asarray(ranges.queries[1]).any()


def test_examples_with_offsets_of_their_own_skip_what_is_outside_of_their_band():
    offsets = jnp.asarray([0, 11])
    plan, vectors = packed(3, 24, 2, causal=True, window=(5, None), query_offset=offsets)
    places = np.asarray(offsets)[:, None, None] + np.arange(3)[:, None]
    away = np.arange(24) - places
    expected = tiles_of((away <= 0) & (away >= -5))
    np.testing.assert_array_equal(needed_tiles(plan, vectors, BLOCK_Q, BLOCK_K), expected)


def test_calls_without_such_masks_have_no_ranges():
    for options in (
        {},
        {"causal": True},
        {"window": (3, 3)},
        {"mask": jnp.ones((1, 1, 24, 24)) > 0},
    ):
        assert not packed(**options)[0].ranged


@st.composite
def calls(draw):
    """Options of a call, and its allowed pairs."""
    queries, keys = draw(st.sampled_from([(1, 29), (22, 22), (30, 7)]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    ids = [rng.integers(0, 4, (2, n)).astype(np.int32) - 1 for n in (queries, keys)]
    if draw(st.booleans()):
        ids = [np.sort(each, axis=1) for each in ids]
    mask = np.arange(keys)[None] < rng.integers(0, keys + 1, (2, 1))
    left, right = draw(st.sampled_from([(None, None), (3, 2), (None, 0), (6, None), (0, 0)]))
    offset = draw(st.integers(0, 20))
    places = np.arange(queries)[:, None] + offset
    away = np.arange(keys) - places
    allowed = same(*ids) & mask[:, None]
    allowed &= True if left is None else away >= -left
    allowed &= True if right is None else away <= right
    options = {"segment_ids": tuple(map(jnp.asarray, ids)), "mask": jnp.asarray(mask)}
    options |= {"window": (left, right), "query_offset": offset}
    return queries, keys, options, allowed


@pytest.mark.slow
@given(call=calls())
def test_no_tile_with_an_allowed_pair_is_left_out(call):
    queries, keys, options, allowed = call
    plan, vectors = packed(queries, keys, batch=2, **options)
    expected = tiles_of(allowed)
    found = np.asarray(needed_tiles(plan, vectors, BLOCK_Q, BLOCK_K))
    assert not (expected & ~found).any()
    ranges = tile_ranges(plan, vectors, BLOCK_Q, BLOCK_K)
    for ends, inner in ((ranges.keys, expected), (ranges.queries, np.swapaxes(expected, 1, 2))):
        assert ends.dtype == jnp.int32
        for ids in np.ndindex(*inner.shape):
            first, stop = ends[ids[:2]]
            assert not inner[ids] or first <= ids[2] < stop


@pytest.mark.slow
def test_ranges_are_small_and_computed_by_the_program():
    length = 8192
    ids = jax.ShapeDtypeStruct((4, length), jnp.int32)

    def count(ids):
        plan, vectors = packed(length, batch=4, block_q=128, block_k=128, segment_ids=ids)
        return tile_ranges(plan, vectors, 128, 128)

    memory = jax.jit(count).lower(ids).compile().memory_analysis()
    assert memory.output_size_in_bytes < 10_000
    assert memory.temp_size_in_bytes < 4 * length * length / 16
