# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Greedy writing, sampling and beam search on models that are tables, against brute force.

A table holds the scores of the next token after every possible text, so that all texts can be
listed. Text of real models is compared with torch in test_seq2seq_generation.py.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.errors import InputError
from flaxattn.pretrained.decoding_settings import Decoding, allowed
from flaxattn.pretrained.generation import (
    Generated,
    continued,
    generated,
    initial_state,
    largest,
    widened,
)

SIZE, LENGTH, END = 5, 4, 1
ALL = SIZE**LENGTH  # more beams than there are texts


def tables(count: int, seed: int = 0) -> np.ndarray:
    """Scores after every text of 0 to 3 tokens: `[models, texts, V]`, numbered breadth first."""
    texts = sum(SIZE**n for n in range(LENGTH))
    random = np.random.default_rng(seed)
    return 2 * random.standard_normal((count, texts, SIZE)).astype(np.float32)


def number(text: tuple[int, ...]) -> int:
    """Place of a text in a table."""
    place = 0
    for token in text:
        place = place * SIZE + token + 1
    return place


def run(table: np.ndarray, seed: int = 0, **settings: object) -> Generated:
    """Write with one model per sequence."""
    defaults = {"max_new_tokens": LENGTH, "eos": (END,), "pad": 0}
    decoding = Decoding(**{**defaults, **settings})  # pyright: ignore[reportArgumentType]
    models = jnp.arange(len(table))
    keys = None
    if decoding.do_sample:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), models)

    @jax.jit
    def go(table: jax.Array) -> Generated:
        def decode_step(tokens, position, cache, visible):
            place = cache["place"] * SIZE + tokens + 1
            scores = table[cache["model"], jnp.minimum(place, table.shape[1] - 1)]
            return scores, {**cache, "place": place}

        cache = {"place": jnp.zeros(len(table), int), "model": models}
        now = initial_state(table[:, 0], cache, jnp.full((len(table), 1), 3), decoding, keys)
        for until in (2, LENGTH):  # stopped in between, as where a cache grows
            now = continued(decode_step, widened(now, until), 1, decoding, keys, until)
        return generated(now, decoding)

    return go(jnp.asarray(table))


def every_text(table: np.ndarray) -> dict[tuple[int, ...], float]:
    """All texts that end, or reach the limit, with their log-probability."""
    logs = np.asarray(jax.nn.log_softmax(jnp.asarray(table), axis=-1), np.float64)
    found = {}
    for text in itertools.product(range(SIZE), repeat=LENGTH):
        length = text.index(END) + 1 if END in text else LENGTH
        whole = text[:length]
        found[whole] = sum(logs[number(whole[:i]), token] for i, token in enumerate(whole))
    return found


def text_of(ids: np.ndarray) -> tuple[int, ...]:
    """What was written, without prompt and padding."""
    generated = [int(i) for i in ids[1:]]
    return tuple(generated[: generated.index(END) + 1] if END in generated else generated)


@pytest.mark.few("0.6-power")
@pytest.mark.parametrize("penalty", ["power", "gnmt"])
@pytest.mark.parametrize(
    "exponent", [0.0, 0.6, *(pytest.param(x, marks=pytest.mark.slow) for x in (1.0, 2.0))]
)
def test_enough_beams_find_what_brute_force_finds(penalty: str, exponent: float) -> None:
    """The five best texts with their scores, in order."""
    table = tables(8)
    settings = {"num_beams": ALL, "num_return_sequences": 5}
    found = run(table, length_penalty=exponent, penalty=penalty, **settings)
    for model, ids, scores in zip(table, found.ids, found.scores, strict=True):
        size = (lambda n: n) if penalty == "power" else (lambda n: (5 + n) / 6)
        ranked = sorted(
            ((log / size(len(text)) ** exponent, text) for text, log in every_text(model).items()),
            reverse=True,
        )[:5]
        assert [text_of(np.asarray(row)) for row in ids] == [text for _, text in ranked]
        np.testing.assert_allclose(scores, [score for score, _ in ranked], atol=1e-5)


def test_greedy_takes_the_best_token_of_each_step() -> None:
    table = tables(20)
    found = run(table)
    for model, ids, score in zip(table, found.ids[:, 0], found.scores[:, 0], strict=True):
        text: tuple[int, ...] = ()
        while len(text) < LENGTH and (not text or text[-1] != END):
            text += (int(model[number(text)].argmax()),)
        assert text_of(np.asarray(ids)) == text
        assert score == pytest.approx(every_text(model)[text], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_the_score_never_decreases_with_the_width(exponent: float) -> None:
    """On 100 random models, from one width to the next."""
    table = tables(100, seed=1)
    best = [
        np.asarray(run(table, num_beams=n, length_penalty=exponent).scores[:, 0])
        for n in (2, 4, 8, 16, ALL)
    ]
    for narrow, wide in itertools.pairwise(best):
        assert (wide >= narrow - 1e-5).all()


@pytest.mark.slow
@pytest.mark.few("settings0")
@pytest.mark.parametrize(
    "settings", [{}, pytest.param({"num_beams": 3}, marks=pytest.mark.slow), {"do_sample": True}]
)
def test_neighbours_in_the_batch_change_nothing(settings: dict[str, object]) -> None:
    table = tables(6)
    together = run(table, **settings)
    for count in (1, 3):
        alone = run(table[:count], **settings)
        np.testing.assert_array_equal(alone.ids, together.ids[:count])
        np.testing.assert_array_equal(alone.scores, together.scores[:count])


@pytest.mark.slow
def test_draws_follow_the_probabilities() -> None:
    """4,000 first tokens: each share within four standard errors of the softmax."""
    table = np.repeat(tables(1), 4000, axis=0)
    expected = np.asarray(jax.nn.softmax(jnp.asarray(table[0, 0] / 1.5)))
    drawn = np.asarray(run(table, do_sample=True, temperature=1.5).ids[:, 0, 1])
    shares = np.bincount(drawn, minlength=SIZE) / 4000
    assert (np.abs(shares - expected) < 4 * np.sqrt(expected * (1 - expected) / 4000)).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "kept"), [({"top_k": 2}, 2), ({"top_p": 0.6}, None), ({"top_p": 1e-6}, 1)]
)
def test_draws_stay_among_the_best(settings: dict[str, object], kept: int | None) -> None:
    table = np.repeat(tables(1, seed=3), 2000, axis=0)
    probability = np.asarray(jax.nn.softmax(jnp.asarray(table[0, 0])))
    order = probability.argsort()[::-1]
    if kept is None:
        kept = int((probability[order].cumsum() < 0.6).sum()) + 1
    drawn = np.asarray(run(table, do_sample=True, **settings).ids[:, 0, 1])
    assert set(drawn.tolist()) == set(order[:kept].tolist())


@pytest.mark.slow
def test_seeds_and_sequences_draw_differently() -> None:
    table = np.repeat(tables(1), 50, axis=0)
    one, two = (run(table, seed=s, do_sample=True).ids for s in (1, 2))
    assert (one != two).any() and len({tuple(row) for row in np.asarray(one[:, 0]).tolist()}) > 5
    np.testing.assert_array_equal(one, run(table, seed=1, do_sample=True).ids)


@pytest.mark.parametrize("beams", [1, 3])
def test_banned_forced_and_least_length(beams: int) -> None:
    table = tables(30, seed=2)
    settings = {"banned": (2,), "forced_first": 4, "forced_last": END, "min_new_tokens": 3}
    ids = np.asarray(run(table, num_beams=beams, **settings).ids[:, 0, 1:])
    assert (ids[:, 0] == 4).all() and not (ids == 2).any()
    assert (ids[:, LENGTH - 1] == END).sum() + (ids[:, 2] == END).sum() == len(table)
    assert not (ids[:, :2] == END).any()


def test_no_ngram_is_written_twice() -> None:
    generated = jnp.array([[3, 1, 2, 1, 0, 0], [3, 1, 1, 1, 0, 0]])
    decoding = Decoding(no_repeat_ngram_size=2, max_new_tokens=5)
    scores = allowed(jnp.zeros((2, SIZE)), generated, 1, jnp.int32(3), decoding)
    banned = [set(np.flatnonzero(np.isinf(row)).tolist()) for row in np.asarray(scores)]
    assert banned == [{2}, {1}]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": 0}, "num_beams must be at least 1, received 0"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, received 0"),
        ({"num_beams": 2, "do_sample": True}, "do_sample draws one hypothesis, num_beams is 2"),
        ({"num_return_sequences": 3}, "num_return_sequences is 3, but only num_beams 1"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"top_p": 1.5}, "top_p in (0, 1]"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        Decoding(**settings)  # pyright: ignore[reportArgumentType]
    assert message in str(error.value)


@pytest.mark.parametrize("size", [1152, 2048, 2500])
def test_the_largest_scores_are_those_of_top_k(size: int) -> None:
    random = np.random.default_rng(size)
    tied = random.integers(0, 3, (16, 3, size)).astype(np.float32)
    rare = np.where(random.random(tied.shape) < 0.995, -np.inf, tied)
    for scores in (random.standard_normal(tied.shape), tied, rare, np.full_like(tied, -np.inf)):
        scores = jnp.asarray(scores, jnp.float32)
        best, places = largest(scores, 4)
        expected, where = jax.lax.top_k(scores, 4)
        np.testing.assert_array_equal(best, expected)
        finite = np.isfinite(expected)
        np.testing.assert_array_equal(places[finite], where[finite])
