# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The built-in model is trained: its heads look at neighbours and delimiters, and it predicts.

The passages were written for this test; no part of them is in the training text.
"""

from functools import cache
from importlib.resources import files

import numpy as np
import pytest

import flaxattn as fa
from flaxattn.measures.head_measures import HeadMeasures, head_measures
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.trace import Trace

PASSAGES = [
    (
        "The committee met on Tuesday to discuss the new library, which had been closed since the "
        "spring. Nobody knew who would pay for the repairs.",
        "In the end the mayor promised that the work would begin before the winter, and everyone "
        "went home.",
    ),
    (
        "She opened the window because the kitchen was full of smoke. The dog, who had been asleep "
        "under the table, barked twice and ran out into the garden.",
        "It was still raining, so he came back at once.",
    ),
    (
        "When the train stopped at the last village, only two men got out. One of them carried a "
        "heavy box; the other looked at his watch and said that they were late.",
        "They walked up the hill without a word, and the door was opened before they could knock.",
    ),
]


@pytest.fixture(scope="module")
def model() -> Pretrained:
    return fa.from_pretrained("tiny-bert")


@pytest.fixture(scope="module")
def trace(model: Pretrained) -> Trace:
    return model.trace([first for first, _ in PASSAGES], [second for _, second in PASSAGES])


@pytest.fixture(scope="module")
def measures(trace: Trace) -> list[HeadMeasures]:
    return head_measures(trace)


@pytest.mark.parametrize("place", ["next", "previous", "delimiter"])
def test_a_head_puts_more_than_half_of_its_mass_there(
    measures: list[HeadMeasures], place: str
) -> None:
    """Mean over every real query, special tokens included."""
    assert max(getattr(head, place) for head in measures) > 0.5


def test_these_are_different_heads_and_not_all_heads(measures: list[HeadMeasures]) -> None:
    def strong(place: str) -> set[tuple[int, int]]:
        return {(head.layer, head.head) for head in measures if getattr(head, place) > 0.5}

    found = [strong("next"), strong("previous"), strong("delimiter")]
    assert not found[0] & found[1]
    assert len(measures) == 16
    assert len(set.union(*found)) < 16


@cache
def hidden_words() -> tuple[np.ndarray, ...]:
    """Every passage once per offset, every seventh piece hidden: ids, mask, types, truth."""
    model = fa.from_pretrained("tiny-bert")
    assert model.tokenizer is not None
    firsts, seconds = zip(*PASSAGES, strict=True)
    batch = model.tokenizer.encode(list(firsts), list(seconds), max_length=128, pad_to=128)
    rows = []
    for offset in range(7):
        hidden = ~batch.special & (np.arange(128)[None] % 7 == offset)
        ids = np.where(hidden, model.tokenizer.mask_id, batch.input_ids)
        rows.append((ids, batch.attention_mask, batch.token_type_ids, batch.input_ids, hidden))
    return tuple(np.concatenate(column) for column in zip(*rows, strict=True))


@pytest.mark.slow
def test_it_predicts_hidden_words_far_better_than_their_frequencies_do(model: Pretrained) -> None:
    ids, mask, types, truth, hidden = hidden_words()
    out = model(input_ids=ids, attention_mask=mask, token_type_ids=types)
    scores = np.asarray(out.prediction_logits, np.float64)
    top = scores.max(-1)
    normal = np.log(np.exp(scores - top[..., None]).sum(-1)) + top
    nll = normal - np.take_along_axis(scores, truth[..., None], -1)[..., 0]
    bias = np.asarray(model.params["mlm_head"]["bias"], np.float64)
    assert nll[hidden].mean() < 4.5  # word frequencies alone give about 6.6 nats
    assert (scores.argmax(-1) == truth)[hidden].mean() > 0.25
    assert bias.shape == (8000,)


@pytest.mark.slow
def test_it_hides_a_word_and_finds_it_again(model: Pretrained) -> None:
    assert model.tokenizer is not None
    row = model.tokenizer.encode("he looked at [MASK] and said nothing .")
    out = model(input_ids=row.input_ids)
    place = row.tokens[0].index("[MASK]")
    best = np.argsort(np.asarray(out.prediction_logits[0, place]))[::-1][:10]
    words = {model.tokenizer.backend.id_to_token(int(i)) for i in best}
    assert words & {"her", "him", "me", "them", "it"}


def test_the_shipped_files_are_small_and_complete() -> None:
    folder = files("flaxattn") / "pretrained" / "tiny-bert"
    sizes = {item.name: len(item.read_bytes()) for item in folder.iterdir()}
    assert set(sizes) == {
        "README.md",
        "config.json",
        "model.safetensors",
        "recipe.yaml",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    }
    assert sum(sizes.values()) <= 16 * 2**20
