# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What a step may choose, beside the same rules in NumPy, one row and one token at a time.

The order is that of Hugging Face: repeated tokens, n-grams, banned ones, the least length, forced
ones, those banned at the beginning; then, to draw, temperature, top-k, top-p and min-p.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flaxattn.errors import InputError
from flaxattn.pretrained.decoding_settings import Decoding, allowed, chosen

SIZE, PROMPT, ROOM = 23, 5, 6


def expected(
    scores: np.ndarray, text: list[int], step: int, decoding: Decoding, length: int = PROMPT
) -> np.ndarray:
    """Scores of one row in float64; `text` has no padding."""
    scores, factor = scores.astype(np.float64), decoding.repetition_penalty
    for token in set(text):
        scores[token] *= factor if scores[token] < 0 else 1 / factor
    n = decoding.no_repeat_ngram_size
    for start in range(len(text) - n + 1 if n else 0):
        if n == 1 or text[start : start + n - 1] == text[-(n - 1) :]:
            scores[text[start + n - 1]] = -np.inf
    for token in decoding.banned:
        scores[token] = -np.inf
    for token in decoding.eos if step < decoding.min_new_tokens else ():
        scores[token] = -np.inf
    forced = {0: decoding.forced_first, decoding.max_new_tokens - 1: decoding.forced_last}
    if (only := forced.get(step)) is not None:
        scores[:] = -np.inf
        scores[only] = 0
    if step == (1 if length == 1 and decoding.forced_first is not None else 0):
        scores[list(decoding.banned_first)] = -np.inf
    return scores


def kept(scores: np.ndarray, decoding: Decoding) -> set[int]:
    """Tokens that may be drawn."""
    scores = scores / decoding.temperature
    order = [int(i) for i in np.argsort(-scores) if np.isfinite(scores[i])]
    order = order[: decoding.top_k or None]
    chances = np.exp(scores[order])
    chances /= chances.sum()
    before = np.concatenate([[0], np.cumsum(chances)[:-1]])
    left = [
        (i, p) for i, p, sum_ in zip(order, chances, before, strict=True) if sum_ < decoding.top_p
    ]
    return {i for i, p in left if p >= decoding.min_p * chances[0]}


def settings(random: np.random.Generator) -> dict[str, Any]:
    """Some of the settings, each with a value that matters."""
    some: dict[str, Any] = {
        "repetition_penalty": float(random.choice([0.5, 1.1, 1.5, 3.0])),
        "no_repeat_ngram_size": int(random.integers(1, 4)),
        "banned": tuple(random.integers(0, SIZE, 2).tolist()),
        "banned_first": tuple(random.integers(0, SIZE, 3).tolist()),
        "min_new_tokens": int(random.integers(1, 4)),
    }
    drawn = {name: value for name, value in some.items() if random.random() < 0.6}
    return {"max_new_tokens": ROOM, "eos": (1, 2, 7), **drawn}


def test_every_rule_is_numpys() -> None:
    """120 settings of 8 rows: prompts of 1 to 5 tokens, 0 to 5 tokens written."""
    random = np.random.default_rng(0)
    for _ in range(120):
        decoding, step = Decoding(**settings(random)), int(random.integers(0, ROOM))
        scores = random.standard_normal((8, SIZE)).astype(np.float32)
        written = random.integers(0, SIZE, (8, PROMPT + ROOM))
        padding = random.integers(0, PROMPT, 8) if not decoding.no_repeat_ngram_size else None
        found = allowed(
            jnp.asarray(scores),
            jnp.asarray(written),
            PROMPT,
            jnp.int32(step),
            decoding,
            None if padding is None else jnp.asarray(padding),
        )
        for row in range(8):
            start = 0 if padding is None else padding[row]
            text = written[row, start : PROMPT + step].tolist()
            wanted = expected(scores[row], text, step, decoding)
            np.testing.assert_allclose(found[row], wanted, rtol=1e-6)


@pytest.mark.parametrize("length", [1, 3])
def test_a_forced_token_comes_before_the_beginning(length: int) -> None:
    decoding = Decoding(
        max_new_tokens=4, forced_first=3, banned_first=(0, 3) if length == 1 else (0,)
    )
    scores, written = np.ones((1, SIZE), np.float32), np.full((1, length + 4), 5)
    for step in range(3):
        found = allowed(
            jnp.asarray(scores), jnp.asarray(written), length, jnp.int32(step), decoding
        )
        text = written[0, : length + step].tolist()
        np.testing.assert_array_equal(found[0], expected(scores[0], text, step, decoding, length))


@pytest.mark.parametrize(
    "drawing",
    [
        {"min_p": 0.2},
        {"min_p": 1.0},
        {"min_p": 0.05, "temperature": 2.0},
        {"min_p": 0.1, "top_k": 9, "top_p": 0.9, "temperature": 1.7},
        {"min_p": 0.02, "top_p": 0.8},
    ],
)
def test_draws_are_from_the_tokens_that_numpy_keeps(drawing: dict[str, Any]) -> None:
    """20,000 draws reach every token that is kept, and no other."""
    scores = 1.5 * np.random.default_rng(1).standard_normal(SIZE).astype(np.float32)
    decoding = Decoding(do_sample=True, **drawing)
    keys = jax.random.split(jax.random.key(0), 20_000)
    rows = jnp.broadcast_to(jnp.asarray(scores), (20_000, SIZE))
    found = np.asarray(jax.jit(lambda rows: chosen(rows, keys, decoding))(rows))
    assert set(found.tolist()) == kept(scores.astype(np.float64), decoding)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"min_p": 1.5}, "min_p must be in [0, 1], received 1.5"),
        ({"min_p": -0.1}, "min_p must be in [0, 1], received -0.1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be above 0, received 0.0"),
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        Decoding(**wrong)
    assert message in str(error.value) and len(str(error.value).splitlines()) <= 3
