# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Every pass over texts: memory for few rows, several devices and the batch change no result."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import flaxattn as fa
from flaxattn.corpus.dependency_trees import Sentence, Word
from flaxattn.corpus.texts import plain_texts
from flaxattn.errors import UnavailableError
from flaxattn.measures.head_similarity import head_pairs
from flaxattn.measures.score_source import head_scores
from flaxattn.measures.specs import ScoreOptions
from flaxattn.pipeline.run import run_program
from flaxattn.pipeline.task_predictions import head_outputs
from flaxattn.pipeline.tokenize_texts import ReadingOptions
from flaxattn.probes.head_probe import word_states

TEXTS = ["a b", "the cat a b c", "h e", "a", "d e f g h", "the b c", "a b c", "b"]
MAPS = fa.Capture(weights=True, stats=("entropy", "received", fa.Sieve("next", offsets=(1, 1))))
Pass = Callable[[Any, ReadingOptions, Path], list[np.ndarray]]


def extract(model: Any, reading: ReadingOptions, folder: Path) -> list[np.ndarray]:
    traces = fa.extract(model, TEXTS, batch_tokens=reading.batch_tokens)
    return [trace.encoder.weights for trace in traces]


def scores(model: Any, reading: ReadingOptions, folder: Path) -> list[np.ndarray]:
    options = ScoreOptions(annotated=False)
    (found,) = head_scores(model, plain_texts(TEXTS), options, reading=reading)
    return [*found.values.values()]


def pairs(model: Any, reading: ReadingOptions, folder: Path) -> list[np.ndarray]:
    found = head_pairs(model, plain_texts(TEXTS), reading=reading)
    assert found is not None
    return [found.moments.mean]


def embed(model: Any, reading: ReadingOptions, folder: Path) -> list[np.ndarray]:
    return [fa.embed(model, TEXTS, batch_tokens=reading.batch_tokens)]


def states(model: Any, reading: ReadingOptions, folder: Path) -> list[np.ndarray]:
    def sentence(text: str) -> Sentence:
        starts = np.cumsum([0, *(len(word) + 1 for word in text.split())]).tolist()
        words = [
            Word(word, "X", number - 1, "dep" if number else "root", start, start + len(word), 1)
            for number, (word, start) in enumerate(zip(text.split(), starts, strict=False))
        ]
        return Sentence(text, text, tuple(words), "", 1)

    return [one.vectors for one in word_states(model, map(sentence, TEXTS), reading=reading)]


def index(model: Any, reading: ReadingOptions, folder: Path) -> list[np.ndarray]:
    options = {"batch_tokens": reading.batch_tokens, "allow_nonfinite": reading.allow_nonfinite}
    found = fa.index_heads(model, TEXTS, folder / "index", [0, 1], **options)
    return [found.array("encoder.head_output", number) for number in range(len(TEXTS))]


def fields(model: Any, reading: ReadingOptions, folder: Path) -> list[np.ndarray]:
    rows = model.read(TEXTS).rows()
    names = ("last_hidden_state",)
    return head_outputs(model, rows, names, TEXTS, reading.batch_tokens, by_token=True)


PASSES: dict[str, Pass] = {
    one.__name__: one for one in (extract, scores, pairs, embed, states, index, fields)
}


@pytest.fixture
def scarce(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Memory for batches of a few rows only; returns the sizes that were tried."""

    def at_most(rows: int) -> list[int]:
        sizes: list[int] = []
        run = run_program

        def limited(module: Any, program: Any, params: Any, given: Any, *rest: Any) -> Any:
            if not isinstance(given["input_ids"], jax.core.Tracer):  # sizes are traced as well
                sizes.append(len(given["input_ids"]))
                if sizes[-1] > rows:
                    raise MemoryError
            return run(module, program, params, given, *rest)

        monkeypatch.setattr("flaxattn.pipeline.run.run_program", limited)
        return sizes

    return at_most


def check_close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        close = 1e-3 if one.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(np.float32(one), np.float32(other), rtol=1e-4, atol=close)


@pytest.mark.float16
@pytest.mark.parametrize("name", PASSES)
def test_too_little_memory_halves_batches(
    bert: Any, tmp_path: Path, scarce: Callable[[int], list[int]], name: str
) -> None:
    expected = PASSES[name](bert, ReadingOptions(batch_tokens=64), tmp_path / "whole")
    sizes = scarce(2)
    check_close(PASSES[name](bert, ReadingOptions(batch_tokens=64), tmp_path / "few"), expected)
    assert sizes[1] == sizes[0] // 2 and max(sizes) > 2 >= sizes[-1]


@pytest.mark.slow
@pytest.mark.devices
@pytest.mark.parametrize("name", PASSES)
def test_devices_share_batches(bert: Any, tmp_path: Path, name: str) -> None:
    found = PASSES[name](bert, ReadingOptions(), tmp_path / "all")
    with jax.default_device(jax.devices()[0]):
        check_close(found, PASSES[name](bert, ReadingOptions(), tmp_path / "one"))


def test_after_four_halvings_it_stops(
    bert: Any, texts: list[str], scarce: Callable[[int], list[int]]
) -> None:
    sizes = scarce(0)
    with pytest.raises(
        UnavailableError, match="batch of 1 x 48, after halving it 4 times"
    ) as caught:
        fa.extract(bert, texts * 8, capture=MAPS, batch_tokens=768, devices=jax.devices()[:1])
    assert len(sizes) == 5
    lines = str(caught.value).splitlines()
    assert len(lines) <= 3
    # Weights, entropy, received and the sieve of 2 layers and 2 heads.
    assert f"takes {4 * (48 * 48 + 3 * 48) * 4:,} bytes" in lines[0]
    assert "fewer layers or heads, statistics" in lines[1]


def test_advice_about_memory_is_about_maps_only_where_maps_are_kept(
    bert: Any, scarce: Callable[[int], list[int]]
) -> None:
    scarce(0)
    with pytest.raises(UnavailableError, match="batch of 1 x ") as error:
        fa.embed(bert, TEXTS, batch_tokens=64)
    assert len(str(error.value).splitlines()) == 2
    assert "fewer layers or heads" not in str(error.value)
