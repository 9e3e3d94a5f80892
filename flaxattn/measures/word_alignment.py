# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Word alignment read off cross-attention, and its evaluation.

Pairs are (source word, target word), numbered from 0 as whitespace separates them, as in the
Pharaoh format. It takes a trace, runs no model and draws nothing.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from flaxattn.errors import InputError
from flaxattn.text.tokenizer_files import shortened
from flaxattn.trace.record import AttentionRecord, choose, layer_weights
from flaxattn.trace.trace import Trace

Pair = tuple[int, int]
_LINK = re.compile(r"(\d{1,9})([-?p])(\d{1,9})", re.ASCII)


def word_alignment(
    trace: Trace,
    layer: int | Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> list[list[Pair]]:
    """The source word that each target word attended to most while it was written.

    Weights of the chosen layers and heads are averaged; by default the last layer but one, which
    aligns best in Transformers of six (Garg et al. 2019; Kobayashi et al. 2020). A row of
    cross-attention belongs to the token that it wrote, `trace.written`, not to the one that the
    decoder read there. Tokens become words as in Clark et al. 2019, section 4.1: what a source word
    receives is the sum over its tokens, what a target word gives is the mean over its own. Special
    tokens are not words.
    """
    found = []
    for b in range(len(trace)):
        weights = word_weights(trace, b, layer, heads)
        best = weights.argmax(-1) if weights.size else np.zeros(len(weights), int)
        some = weights.sum(-1) > 0
        found.append([(int(best[word]), word) for word in np.flatnonzero(some).tolist()])
    return found


def word_weights(
    trace: Trace,
    sequence: int = 0,
    layer: int | Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> Float[np.ndarray, "T S"]:
    """Cross-attention of one sequence between words, as `word_alignment` compares it."""
    tokens = token_weights(trace, sequence, layer, heads)
    written, read = word_members(trace, sequence)
    means = written / np.maximum(written.sum(0), 1)
    return (means.T @ tokens @ read).astype(np.float32)


def word_members(
    trace: Trace, sequence: int = 0
) -> tuple[Bool[np.ndarray, "T N"], Bool[np.ndarray, "S M"]]:
    """Group target tokens by each of N words, and source tokens by each of M words.

    Returns:
        True where a token belongs to a word.
    """
    b = trace.place(sequence)
    length, width = np.shape(cross(trace).weights)[-2:]
    written = _members(trace.decoder_words, None, trace.decoder_mask, b, length)
    return written, _members(trace.words, trace.special, trace.mask, b, width)


def token_weights(
    trace: Trace,
    sequence: int = 0,
    layer: int | Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> Float[np.ndarray, "T S"]:
    """Cross-attention of one sequence, averaged over layers and heads, padding included."""
    record = cross(trace)
    layers, chosen = chosen_maps(trace, layer, heads)
    columns = [record.heads.index(head) for head in chosen]
    return layer_weights(record, layers, trace.place(sequence))[:, columns].mean((0, 1))


def chosen_maps(
    trace: Trace, layer: int | Sequence[int] | None, heads: Sequence[int] | None
) -> tuple[list[int], list[int]]:
    """Numbers of the decoder layers and of the heads that a request means."""
    record = cross(trace)
    if layer is None:
        layer = record.layers[max(0, len(record.layers) - 2)]
    layers = choose(np.ravel(layer).tolist(), record.layers, "decoder layer")
    return layers, choose(heads, record.heads, "head")


def cross(trace: Trace) -> AttentionRecord:
    """The record of cross-attention, which is sure to have weights of all positions."""
    if trace.cross is None or trace.cross.weights is None:
        raise InputError(
            "An alignment is read off cross-attention weights; this trace holds none.\n"
            "Trace an encoder-decoder: model.trace(source, capture=fa.Capture(weights=True))."
        )
    trace.cross.require_whole("An alignment")
    return trace.cross


def pharaoh(pairs: Iterable[Pair]) -> str:
    """Pairs in the Pharaoh format: `[(0, 0), (2, 1)]` is `0-0 2-1`."""
    return " ".join(f"{source}-{target}" for source, target in pairs)


def read_pharaoh(line: str) -> tuple[set[Pair], set[Pair]]:
    """Read one sentence's alignment.

    Returns:
        The sure pairs, and the possible ones, of which the sure ones are part.
    """
    sure: set[Pair] = set()
    possible: set[Pair] = set()
    for text in line.split():
        link = _LINK.fullmatch(text)
        if link is None:
            raise InputError(
                f"{shortened(text)!r} is not a link of words, in the line {shortened(line)!r}.\n"
                "Expected i-j for a sure link, i?j or ipj for a possible one, numbers from 0."
            )
        pair = (int(link[1]), int(link[3]))
        possible.add(pair)
        if link[2] == "-":
            sure.add(pair)
    return sure, possible


def alignment_error_rate(
    found: Sequence[Iterable[Pair]],
    sure: Sequence[Iterable[Pair]],
    possible: Sequence[Iterable[Pair]] | None = None,
) -> float:
    """Alignment error rate of a corpus (Och & Ney 2003).

    1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), the sizes counted over all sentences; 0 is best.
    """
    possible = sure if possible is None else possible
    if not len(found) == len(sure) == len(possible):
        raise InputError(
            f"Expected the alignments of as many sentences three times, received {len(found)} "
            f"found, {len(sure)} sure, {len(possible)} possible.\nGive one entry per sentence."
        )
    hits = size = 0
    for a, s, p in zip(map(set, found), map(set, sure), map(set, possible), strict=True):
        hits += len(a & s) + len(a & (p | s))
        size += len(a) + len(s)
    if not size:
        raise InputError(
            "There is no link, neither found nor sure: their error rate is not defined.\n"
            "Check that the file of gold alignments is not empty."
        )
    return 1 - hits / size


def _members(
    words: Sequence[Sequence[int | None]], special: Any, mask: Any, b: int, length: int
) -> Bool[np.ndarray, "K N"]:
    """True where a token belongs to a word; without numbers of words each token is one."""
    real = np.ones(length, bool) if mask is None else np.asarray(mask)[b] > 0
    if words:
        member = np.array([-1 if word is None else word for word in words[b]])
        member = np.where(real, member, -1)
    else:
        plain = real if special is None else real & ~np.asarray(special)[b]
        member = np.where(plain, np.cumsum(plain) - 1, -1)
    return member[:, None] == np.arange(member.max(initial=-1) + 1)
