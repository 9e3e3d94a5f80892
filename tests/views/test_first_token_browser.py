# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The first token in the head view: its share is shown, and it can be left out, with a badge.

In a headless Chromium, from a file, without a network.
"""

from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest

from flaxattn.measures.head_measures import head_measures
from flaxattn.trace.record import without_first
from flaxattn.trace.trace import Trace
from flaxattn.views.trace_views import head_view

pytestmark = [pytest.mark.browser, pytest.mark.slow]
TOKENS = ["<|endoftext|>", "The", " cat", " sat", "."]
HIDDEN = "shown 100 % of the attention mass that is left"


class Sink(NamedTuple):
    trace: Trace
    weights: np.ndarray  # [H, Q, K]
    page: Path


@pytest.fixture(scope="module")
def sink(peaked, tmp_path_factory) -> Sink:
    """Two causal heads that leave much on the first token; the first query has nothing else."""
    weights = np.tril(peaked(1, 2, len(TOKENS)))
    weights[..., 0] += 2
    weights = np.tril(weights) / np.tril(weights).sum(-1, keepdims=True)
    trace = Trace.from_arrays(
        decoder_weights=weights, tokens=[TOKENS], decoder_tokens=[TOKENS], model="tiny"
    )
    page = head_view(trace, 0, precision="float16").save(
        tmp_path_factory.mktemp("sink") / "sink.html"
    )
    return Sink(trace, weights[0, 0], page)


def drawn(view):
    """Weights of lines, `[H, Q, K]`; 0 where there is none."""
    found = np.zeros((2, len(TOKENS), len(TOKENS)))
    for place, weight in view.lines().items():
        found[place] = weight
    return found


def test_the_share_on_the_first_token_is_shown_for_every_head(view, sink):
    view.open(sink.page)
    shares = [f"{100 * m.first:.0f} %" for m in head_measures(sink.trace)]
    assert view.texts(".fact .first") == shares
    assert view.texts(".hint.over") == ["on the first token"]
    assert view.texts(".fact .role") == ["first token", "first token"]
    assert not view.find(".badge").is_displayed()


def test_hiding_it_renormalises_and_says_so(view, sink):
    view.open(sink.page)
    view.click("[name=first]")
    rest = without_first(sink.weights)
    np.testing.assert_allclose(drawn(view), rest, atol=0.003)
    assert not rest[:, 0].any()  # nothing was left of this row
    assert np.isfinite(drawn(view)).all()
    assert view.find(".badge").is_displayed()
    assert view.texts(".badge")[0] == "renormalised"
    assert "on the first token are left out" in view.find(".badge").get_attribute("title")
    assert HIDDEN in view.texts(".status")[0]
    assert view.texts(".left .token-text") == view.texts(".right .token-text") == TOKENS
    assert view.texts(".token.out .token-text") == [TOKENS[0]]
    view.click("[name=first]")
    np.testing.assert_allclose(drawn(view), sink.weights, atol=0.003)
    assert not view.find(".badge").is_displayed()
    assert view.texts(".token.out") == []


def test_a_token_shows_what_was_hidden_of_it(view, sink):
    view.open(sink.page, "first=hidden&query=3")
    share = sink.weights[:, 3, 0].mean()
    hint = f"{100 * share:.0f} % of its attention is on the first token."
    assert view.texts(".panel .hint")[-1] == hint
    listed = [float(text) for text in view.texts(".panel .fact .value")]
    means = without_first(sink.weights)[:, 3].mean(0)
    assert listed == pytest.approx(sorted(means[means > 0], reverse=True), abs=0.002)


def test_address_and_svg_keep_it(view, sink):
    view.open(sink.page)
    view.click("[name=first]")
    assert view.browser.current_url.endswith("#first=hidden")
    before = view.lines()
    view.open(sink.page, "first=hidden")
    assert view.lines() == before
    assert view.find("[name=first]").is_selected()
    title = ElementTree.fromstring(view.svg())[0].text
    assert title == "tiny, layer 0, heads 0 1, renormalised without the first token"


def test_special_tokens_and_the_first_are_hidden_together(view, pair):
    view.open(pair.page, "special=hidden&first=hidden")
    kept = [i for i in range(pair.length) if i not in pair.special]
    keys = [i for i in kept if i]
    rest = pair.shares[0] / pair.shares[0][:, :, keys].sum(-1, keepdims=True)
    view.assert_draws(rest, queries=kept, keys=keys, error=0.003)
    assert "special tokens and the first token" in view.find(".badge").get_attribute("title")


def test_the_joined_square_has_a_first_token_in_each_text(view, translation):
    view.open(translation.page, "side=all&first=hidden&layer=0")
    assert view.texts(".token.out .token-text") == [translation.source[0], translation.read[0]]
    square, length = translation.square(0), len(translation.source)
    parts = [without_first(part) for part in np.split(square, [length], axis=-1)]
    rest = np.concatenate(parts, axis=-1)
    found = np.zeros_like(rest)
    for place, weight in view.lines().items():
        found[place] = weight
    np.testing.assert_allclose(found, rest, atol=0.003)
