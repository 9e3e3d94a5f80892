# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Controls of `flaxattn roles`: false positives, and heads on repeated random tokens.

Both are read off few texts. What is counted is decided in `flaxattn.measures` and extraction.
"""

import itertools
from typing import TYPE_CHECKING, Any

from flaxattn.commands.head_corpus import read_inputs
from flaxattn.commands.head_request import Request

if TYPE_CHECKING:
    from flaxattn.measures.role_tests import Test
    from flaxattn.measures.score_terms import ScoreOptions
    from flaxattn.measures.scored_corpus import ScoredCorpus
    from flaxattn.pipeline.progress_reporter import ProgressReporter

_ADDED = 4  # ids that may not be drawn: of beginning, end and padding, and one more
_EVEN = " (its score is multiplied by the entropy, which is highest for uniform attention)"
_FEW = 40  # texts on which false positives are counted


def false_positives(
    request: Request,
    corpus: "ScoredCorpus",
    asked: "ScoreOptions",
    test: "Test",
    drawings: int,
    progress: "ProgressReporter",
) -> dict[str, Any]:
    """Roles that are found where there are none; empty where it cannot be known."""
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.measures import false_positives as counted

    if corpus.model is None or not drawings:
        return {}
    # The pass over all texts has reported what cannot be used.
    bad = BadRows("fail" if request.on_error == "fail" else "skip")
    found = read_inputs(request, bad)[0]
    texts = list(itertools.islice(found, min(_FEW, request.limit or _FEW)))
    if corpus.tally.side == "cross" and any(text.text_b is None for text in texts):
        return {}  # a model before training writes no targets worth reading
    return counted.false_positives(
        corpus.model,
        texts,
        asked,
        test,
        side=corpus.tally.side,
        drawings=drawings,
        reading=request.reading(bad, progress),
    )


def control_notes(found: dict[str, Any]) -> list[str]:
    """Lines that say how many roles are found by chance."""
    if not found:
        return []
    before, other = found["untrained"], found["other_trees"]
    named = [
        f"{count} {name}{_EVEN if name.endswith('_entropy') else ''}"
        for name, count in before["by_role"].items()
        if count
    ]
    lines = [
        f"by chance: the model before training has {before['found']} roles in {before['tests']:,} "
        f"tests on {found['texts']} texts{': ' if named else ''}{', '.join(named)}"
    ]
    if other:
        lines.append(
            f"by chance: under other trees, {other['drawings']} times drawn, {other['found']} "
            f"roles in {other['tests']:,} tests, {other['drawings_beyond']} drawings with one "
            "beyond position"
        )
    return lines


def repeated(corpus: "ScoredCorpus", test: "Test", sequences: int) -> dict[str, Any]:
    """Heads of a decoder on random tokens that are repeated; empty for other models."""
    from flaxattn.measures.induction import detect_heads, repeat_tests
    from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

    model = corpus.model
    if not isinstance(model, PretrainedDecoder) or corpus.tally.side != "decoder" or sequences < 2:
        return {}
    if corpus.facts["nonfinite"]:
        return {}  # random tokens find the same heads broken
    length = min(50, (model.limit - 1) // 2, model.config.vocab_size - _ADDED)
    scores = detect_heads(model, sequences=sequences, length=length)
    found = repeat_tests(scores, test.tau, test.alpha, test.correction)
    kinds = {}
    for kind, (p, has) in found.items():
        kinds[kind.replace(" ", "_")] = [
            {
                "layer": row.layer,
                "head": row.head,
                "score": row.score,
                "lift": row.lift,
                "p_corrected": float(p[_at(scores, row)]),
                "found": bool(has[_at(scores, row)]),
            }
            for row in scores.strongest(kind)
        ]
    return {"length": length, "sequences": sequences, "heads": kinds}


def _at(scores: Any, row: Any) -> tuple[int, int]:
    return scores.layers.index(row.layer), scores.heads.index(row.head)
