# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Definitions of scores on any side of a model: of a decoder, of its encoder, and of cross.

The sieve bias score of `score_terms` compares with uniform attention over all N keys. A query that
sees n keys only is compared with uniform attention over these: its score is n times the mass on the
set F of keys it is expected to look at, over the size of F. Queries without a choice do not count:
they have no key in F, or all they see is in F, as the first one of a decoder. So uniform attention
scores exactly 1 on every role here, and a score is again a lift. Sets named here are

* of self-attention: `local` (two positions to either side), `own`, `previous`, `next` and `first`
  position, `delimiter` (tokens the model adds), `duplicate` (the same token elsewhere, before the
  query in a decoder), `induction` (decoder: what followed the same token before), and relations of
  a tree, in a decoder those whose other word came before;
* of cross-attention: `diagonal` (the source position as far along as the target's, and one to
  either side), `end` (tokens that the model adds after the source), `first`, `copy` (source tokens
  that read as the written one).

The causal baseline, `diagonal` and `copy` are ours; no publication is known to define them so.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from flaxattn.errors import InputError
from flaxattn.kernels import dense
from flaxattn.measures.encoder_terms import terms_of
from flaxattn.measures.key_range import CAUSAL, EVERY_KEY, KeyRange
from flaxattn.measures.score_sources import SETS, SIEVES
from flaxattn.measures.score_terms import ScoreOptions, ScoreSpec, Terms
from flaxattn.measures.side_labels import cross_labels, self_labels
from flaxattn.measures.tree_terms import add_tags, add_tree
from flaxattn.measures.windowed_terms import lifts_within, with_windows
from flaxattn.text.position_labels import PositionLabels, labels_of
from flaxattn.trace.trace import Trace

ROWS = ("entropy", "max", "sum_sq")
"""Row statistics whose mean over queries every side has."""
_SELF_MEANS = ("own", "previous", "next", "first", "delimiter")
_SELF = ("local", "own", "previous", "first", "delimiter", "duplicate")
_CROSS = ("diagonal", "end", "first", "copy")


def self_terms(
    layout: PositionLabels, options: ScoreOptions, *, causal: bool, window: KeyRange | None = None
) -> Terms:
    """Scores of self-attention over a text."""
    names = (*_SELF, "induction" if causal else "next")
    reach = window or (CAUSAL if causal else EVERY_KEY)
    terms = Terms(self_labels(layout))
    _add_sets(terms, names, reach.mask(len(layout)))
    _add_means(terms, ("distance", *(name for name in _SELF_MEANS if name in names)))
    if options.annotated:
        add_tree(terms, layout, options, reach)
        add_tags(terms, layout)
    return terms


def cross_terms(
    written: Sequence[str], tokens: Sequence[str], special: Bool[np.ndarray, " K"]
) -> Terms:
    """Scores of attention from a target to its source."""
    terms = Terms(cross_labels(written, tokens, special))
    _add_sets(terms, _CROSS, np.ones((len(written), len(tokens)), bool))
    _add_means(terms, _CROSS)
    return terms


def _add_sets(terms: Terms, names: Sequence[str], visible: Bool[np.ndarray, "Q K"]) -> None:
    """Scores, masses and ceilings of sets of keys, over the queries that have a choice."""
    counts = visible.sum(1)
    offset = np.arange(visible.shape[1]) - np.arange(visible.shape[0])[:, None]
    for name in names:
        members = np.zeros_like(visible)
        for source in SETS.get(name, (name,)):
            members = members | dense.inside(SIEVES[source], terms.labels.labels, offset)
        size = (members & visible).sum(1)
        counted = (size > 0) & (size < counts)
        if not counted.any():
            continue
        lift = counted * counts / np.maximum(size, 1) / counted.sum()
        for source in SETS.get(name, (name,)):
            terms.rows[ScoreSpec("score", name), source] = lift
            terms.rows[ScoreSpec("mass", name), source] = counted / counted.sum()
        terms.ceilings[name] = float(lift.sum())


def _add_means(terms: Terms, names: Sequence[str]) -> None:
    """Means over all queries, of statistics and of attention to sets of keys."""
    each = np.full(terms.labels.queries, 1 / max(terms.labels.queries, 1))
    for name in (*names, *ROWS):
        for source in SETS.get(name, (name,)):
            terms.rows[ScoreSpec("mean", name), source] = each


def side_terms(metadata: Trace, layout: PositionLabels, side: str, options: ScoreOptions) -> Terms:
    """The scores of one text on a side of a model.

    An encoder that has no decoder beside it has the scores of `score_terms`.
    """
    if side == "cross":
        if not metadata.written or metadata.special is None:
            raise InputError(
                "Roles of cross-attention need the tokens that were written, and which tokens of "
                "the source are special.\nTrace texts with their targets, or give written= and "
                "special= to Trace.from_arrays."
            )
        return cross_terms(
            metadata.written[0], metadata.tokens[0], np.asarray(metadata.special[0], bool)
        )
    if side == "decoder" and metadata.decoder_tokens:
        target = Trace(
            tokens=metadata.decoder_tokens,
            special=metadata.decoder_special,
            words=metadata.decoder_words,
        )
        plain = dataclasses.replace(options, annotated=False)
        return self_terms(labels_of(target), plain, causal=True)
    return self_terms(layout, options, causal=side == "decoder")


def terms_for(
    metadata: Trace,
    layout: PositionLabels,
    side: str,
    options: ScoreOptions,
    *,
    alone: bool,
    windows: Sequence[KeyRange] = (),
) -> Terms:
    """The scores of one text, whichever side of whichever model reads it."""
    made = terms_of(layout, options) if alone else side_terms(metadata, layout, side, options)
    made = made.restricted(options.only)
    if options.pande_parity or not windows:
        return made
    own = {
        window: lifts_within(layout, options, window)
        if alone
        else self_terms(layout, options, causal=True, window=window)
        for window in windows
    }
    return with_windows(made, {w: terms.restricted(options.only) for w, terms in own.items()})
