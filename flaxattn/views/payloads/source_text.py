# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Texts that tokens were made from, as a page holds them: passages, and where each token stands.

A trace counts characters; browsers count UTF-16 units, of which a character beyond U+FFFF has two.
"""

import itertools
from typing import Any

import numpy as np

from flaxattn.trace.trace import Trace
from flaxattn.views.payloads.encoded_weights import visible


def source_text(one: Trace) -> dict[str, Any]:
    """Return the passages of a sequence, and the span of each of its tokens."""
    if not one.texts or not one.spans:
        return {}
    passages = [[visible(char) for char in text] for text in one.texts[0]]
    places = [
        list(itertools.accumulate((_units(char) for char in passage), initial=0))
        for passage in passages
    ]
    of_token = _passages(one, len(passages))
    spans: list[list[int] | None] = []
    for number, span in zip(of_token, one.spans[0], strict=True):
        ends = places[number]
        if span is None:
            spans.append(None)
        elif not 0 <= span[0] <= span[1] < len(ends):
            return {}
        else:
            spans.append([number, ends[span[0]], ends[span[1]]])
    return {"passages": ["".join(passage) for passage in passages], "spans": spans}


def _passages(one: Trace, count: int) -> list[int]:
    """Passage that each token is of: of a pair its segment, else the only one."""
    if count == 1 or one.segments is None:
        return [0] * len(one.tokens[0])
    return np.minimum(np.asarray(one.segments[0]), count - 1).tolist()


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
