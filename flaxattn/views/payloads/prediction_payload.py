# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Next-token probabilities of a trace as a page holds them, and what heads add to the logits.

k + 2 numbers and as many whole ones travel for each token, with contributions four and one for each
head more; a trace without predictions adds nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from flaxattn.trace.token_predictions import Predictions
from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.page_encoding import Blocks, visible

# Where a token of a text stands to what is predicted. A row of cross-attention stands beside what
# was generated from it.
_PLACES = {"read": "after", "written": "here"}


def add_predictions(
    inputs: Sequence[dict[str, Any]],
    ones: Sequence[Trace],
    layers: Mapping[str, Sequence[int]],
    blocks: Blocks,
) -> None:
    """Put the predictions of traces that have any into the sequences of a page.

    Each then has `predictions`: `texts`, whether a token of a text is `after` or `here` where the
    model predicts; `tokens`, all that are named; `count` (k); `ends`, positions where the text
    ends; and names of blocks. `names` holds k + 2 int32 for each position: places of the
    alternatives and of the target in `tokens`, and its rank. `scores` holds k + 1 float32: their
    probabilities. For contributions, `parts` holds four float32: those of all heads, all
    feed-forward layers, the embeddings and the biases; `heads` names a block `[T, H]` for each
    layer of the decoder.
    """
    for number, (shaped, one) in enumerate(zip(inputs, ones, strict=True)):
        found = one.predictions
        if found is None or not np.isfinite(found.log_probability).all():
            continue
        texts = {name: place for name, place in _PLACES.items() if name in shaped["texts"]}
        prefix = f"{number}/predictions"
        named = [*found.tokens[0], *(token for row in found.alternatives[0] for token in row)]
        places = {token: place for place, token in enumerate(dict.fromkeys(map(visible, named)))}
        shaped["predictions"] = {
            "texts": texts,
            "tokens": list(places),
            "count": found.likeliest.shape[-1],
            "ends": np.flatnonzero(~found.follows[0]).tolist(),
            "names": blocks.add(f"{prefix}/names", _names(found, places)),
            "scores": blocks.add(f"{prefix}/scores", _scores(found)),
        } | _contributions(found, one, layers.get("decoder", ()), blocks, prefix)


def _names(found: Predictions, places: Mapping[str, int]) -> np.ndarray:
    """Places of the alternatives and of the target, and its rank, of each position."""
    rows = zip(found.alternatives[0], found.tokens[0], found.rank[0].tolist(), strict=True)
    return np.array(
        [[*(places[visible(t)] for t in (*likely, own)), rank] for likely, own, rank in rows],
        np.int32,
    )


def _scores(found: Predictions) -> Float[np.ndarray, "T N"]:
    """Probabilities of the alternatives and of the target."""
    both = np.concatenate([found.likeliest[0], found.log_probability[0][:, None]], axis=1)
    return np.exp(both.astype(np.float64)).astype(np.float32)


def _contributions(
    found: Predictions, one: Trace, layers: Sequence[int], blocks: Blocks, prefix: str
) -> dict[str, Any]:
    """Parts of the logits by what adds them, where that is known."""
    if found.heads is None or one.decoder is None or not np.isfinite(found.heads).all():
        return {}
    assert found.feed_forward is not None and found.embedding is not None and found.bias is not None
    heads, fed = (array[0].astype(np.float64) for array in (found.heads, found.feed_forward))
    totals = [heads.sum((1, 2)), fed.sum(1), found.embedding[0], found.bias[0]]
    shown = heads[:, :, list(one.decoder.heads)].astype(np.float32)
    return {
        "parts": blocks.add(f"{prefix}/parts", np.stack(totals, 1).astype(np.float32)),
        "heads": [blocks.add(f"{prefix}/heads/{n}", shown[:, n]) for n in layers],
    }
