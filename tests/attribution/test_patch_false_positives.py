# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""On random weights, with answers that are drawn, heads are called causal as rarely as promised."""

from typing import Any

import numpy as np
import pytest
from small_models import WORDS, drawn

import flaxattn as fa
from flaxattn.measures.significance import adjusted
from flaxattn.models.decoder import DecoderLM
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

SEEDS, ALPHA = 20, 0.05


@pytest.fixture(scope="module")
def config(gpt2: PretrainedDecoder) -> Any:
    """4 layers of 4 heads."""
    size = gpt2.tokenizer.vocab_size
    ends = {"bos_token_id": 1, "eos_token_id": 1}
    return fa.GPT2Config(size, n_embd=32, n_layer=4, n_head=4, n_positions=48, **ends)


def random_model(config: Any, tokenizer: Any, seed: int) -> PretrainedDecoder:
    module = DecoderLM(config)
    params = drawn(module, np.ones((1, 2), np.int32), seed=seed)
    return PretrainedDecoder(module, params, tokenizer, config, "random")


def alike(random: np.random.Generator) -> fa.TextPair:
    """A pair of a template: effects on such pairs have much the same size."""
    one, other = random.choice(WORDS[:8], 2, replace=False)
    answers = random.permutation([one, other])  # so no effect has a sign on average
    text = "the {} is very sad the"
    return fa.TextPair(text.format(one), text.format(other), str(answers[0]), str(answers[1]))


def unlike(random: np.random.Generator) -> fa.TextPair:
    """A pair of random words."""
    words = list(random.choice(WORDS, 7))
    place = int(random.integers(1, 6))
    others = [*words[:place], random.choice([w for w in WORDS if w != words[place]])]
    answer, wrong = random.choice(WORDS, 2, replace=False)
    texts = " ".join(words), " ".join([*others, *words[place + 1 :]])
    return fa.TextPair(*texts, str(answer), str(wrong))


def reports(config: Any, tokenizer: Any, pair: Any, count: int, correction: str) -> list[Any]:
    """Effects of all heads of 20 models on pairs of their own."""
    found = []
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        pairs = [pair(random) for _ in range(count)]
        model = random_model(config, tokenizer, seed)
        options = {"alpha": ALPHA, "correction": correction, "batch": 12, "controls": 0}
        found.append(fa.patch(model, pairs, **options).effects[0])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("pair", [alike, unlike])
@pytest.mark.parametrize("count", [3, 12, 24])
def test_heads_without_effect_are_rarely_causal(
    config: Any, gpt2: PretrainedDecoder, pair: Any, count: int
) -> None:
    effects = reports(config, gpt2.tokenizer, pair, count, "none")
    each = np.array([one.causal.mean() for one in effects])
    error = each.std(ddof=1) / np.sqrt(SEEDS)
    assert each.mean() <= ALPHA + 2 * error < 0.1
    corrected = [adjusted(one.p) <= ALPHA for one in effects]
    assert np.mean(corrected) <= ALPHA
    assert sum(one.any() for one in corrected) / SEEDS <= ALPHA + 2 * np.sqrt(ALPHA / SEEDS)


@pytest.mark.slow
def test_few_pairs_alike_make_no_head_causal(config: Any, gpt2: PretrainedDecoder) -> None:
    random = np.random.default_rng(0)
    model = random_model(config, gpt2.tokenizer, 0)
    report = fa.patch(model, [alike(random) for _ in range(5)], correction="none")
    (effects,) = report.effects
    assert effects.p.min() == 2 / 2**5 and not effects.causal.any() and effects.control is None


@pytest.mark.slow
def test_a_head_that_always_helps_is_causal(config: Any, gpt2: PretrainedDecoder) -> None:
    model = random_model(config, gpt2.tokenizer, 0)
    random = np.random.default_rng(0)
    pairs = [alike(random) for _ in range(10)]
    clean = fa.patch(model, pairs, fa.PatchRequest(site="layer_input", by="layer"), controls=0)
    gap = clean.clean - clean.corrupted
    for pair, of in zip(range(len(pairs)), gap, strict=True):  # answers that the text favours
        if of < 0:
            one = pairs[pair]
            pairs[pair] = one._replace(answer=one.wrong, wrong=one.answer)
    again = fa.patch(model, pairs, fa.PatchRequest(site="layer_input", by="layer"), controls=0)
    assert again.effects[0].causal.all()
