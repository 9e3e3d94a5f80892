# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A stranger's program that pyright checks strictly against the installed wheel (`.ci/run`)."""

from collections.abc import Sequence

import numpy as np
from jax import Array

import flaxattn as fa
from flaxattn.kernels.attention import attention
from flaxattn.kernels.contract import Capture, Sieve


def mean_entropy(texts: Sequence[str]) -> float:
    """Mean entropy of the attention of tiny-bert, in nats."""
    model = fa.from_pretrained("tiny-bert")
    trace = model.trace(texts[0], capture=fa.Capture(weights=True, stats=("entropy",)))
    assert trace.encoder is not None
    fa.head_view(trace).save("page.html")
    words: Sequence[str] = trace.tokens[0]
    print(words, trace.attentions[0].shape)
    return float(np.asarray(trace.encoder.stats["entropy"]).mean())


def next_token_share(q: Array, k: Array, v: Array) -> Array:
    """Share of the attention on the next token, [B, H, Q]."""
    following = Sieve("next", offsets=(1, 1))
    output, record = attention(q, k, v, causal=False, capture=Capture(stats=(following,)))
    assert output.shape == q.shape
    return record.stats["next"]


request = fa.PatchRequest(method="path", receivers=((3, 3),), into=("key",))
silenced = fa.Intervention("head_output", 0.0, layers=(0,), heads=(1,))
print(mean_entropy(["The cat is very sad."]), request, silenced)
