# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Report which heads are local, syntactic or delimiter heads, with controls: `roles_report`."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any

from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.claims import Claim, head_patterns, role_claims
from flaxattn.measures.head_roles import Source, Texts, TextSource, Trees
from flaxattn.measures.induction import detect_heads, repeat_tests
from flaxattn.measures.role_tests import Roles, Test, facts, false_positives, find_roles
from flaxattn.measures.score_source import ScoredCorpus
from flaxattn.measures.specs import PAPER_RELATIONS, ScoreOptions, check_relations
from flaxattn.pipeline.progress_reporter import reporting
from flaxattn.pipeline.tokenize_texts import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.reports.evidence import (
    DEFAULT_PAGE,
    PageOptions,
    evidence_facts,
    evidence_table,
    numbers_of,
)
from flaxattn.reports.report import EVIDENCE, EXAMPLES, GRID, OVERLAP, Report, figure_file
from flaxattn.reports.stats import (
    ReportedHeads,
    claims_page,
    examples_table,
    head_pages,
    refusals,
    rows_of,
)
from flaxattn.views.evidence_page import EvidenceReport
from flaxattn.views.figures.plot_roles import plot_role_grid, plot_role_overlap, plot_roles
from flaxattn.views.page import Page
from flaxattn.views.payloads.report_payload import HeadPages

_ADDED = 4  # ids that may not be drawn: of beginning, end and padding, and one more
_FEW = 40  # texts on which false positives are counted


@check_arguments(1)
def roles_report(
    source: Source,
    texts: Texts | TextSource | None = None,
    relations: Sequence[str] = PAPER_RELATIONS,
    *,
    test: Test | None = None,
    side: str | None = None,
    trees: Trees = (),
    seed: int = 0,
    reading: ReadingOptions = DEFAULTS,
    drawings: int = 20,
    repeats: int = 16,
    page: PageOptions = DEFAULT_PAGE,
) -> Report:
    """Report which heads have which roles, with the texts that show it and controls.

    As `flaxattn roles` does. `head_roles` returns the tests alone.

    Cost: one pass over the texts, two over 40 of them for the controls, and one over those on the
    page, once that is made.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> texts = ["The cat is very sad.", "It found no food.", "It sleeps."]
    >>> report = fa.roles_report(model, texts, drawings=0)
    >>> report.result.by_layer()["local"].shape
    (4,)

    Args:
        source: See `head_stats`.
        texts: See `head_stats`; without trees no head is syntactic.
        relations: Relations that have a role of their own.
        test: Threshold, level and correction; default 3, 5 %, Benjamini-Hochberg.
        side: `encoder`, `decoder` or `cross`; default cross-attention where there is any.
        trees: CoNLL-U file or files with the trees of a store's texts, in their order.
        seed: Random seed of unrelated words and of the bootstrap.
        reading: How texts are read.
        drawings: Number of shuffled trees under which false positives are counted; 0 leaves the
            control out, also that of the untrained model.
        repeats: Number of repeated random sequences for a decoder; 0 leaves them out.
        page: How much evidence is kept, and shown on the page.

    Returns:
        A report with a row for each head and number, figures, and a page with the texts that show
        each role and a page for each head; `result` is what `head_roles` returns.

    Raises:
        InputError: See `head_stats`; and for a store without a statistic that a role is scored by.
    """
    test = test or Test()
    options = ScoreOptions(check_relations(relations), seed=seed, pande_parity=test.pande_parity)
    with reporting() as shown:
        heads = ReportedHeads.of(source, texts, options, side, trees, reading, shown)
        corpus = heads.scores(("score",), page.evidence)
        found = find_roles(corpus.tally, heads.options, test)
        if not found.roles:
            raise InputError(_no_role(heads, corpus))
        by_chance = _false_positives(heads, corpus, test, drawings)
        shown("collecting evidence", 0)
        repeated = _repeated(corpus, test, repeats)
    claims = role_claims(found, corpus.evidence, corpus.tally.side)
    known = head_patterns(corpus.tally, alpha=test.alpha) if not corpus.refused else []
    rows = rows_of(corpus, found, seed)
    pages = head_pages(heads, corpus, claims, "score", rows, page.other_reports)
    settings = {**dataclasses.asdict(heads.options), **dataclasses.asdict(test), **heads.settings}
    contents = {
        **corpus.facts,
        "settings": {**settings, "evidence": page.evidence},
        "seed": seed,
        **facts(found),
        "labels": [label._asdict() for label in known],
        "false_positives": by_chance,
        "repeated": repeated,
        "refused": refusals(corpus.refused),
        "evidence": evidence_facts(claims, corpus.texts),
    }
    drawn = {figure_file("roles"): plot_roles, GRID: plot_role_grid}
    if any(role.found.any() for role in found.roles.values()):
        drawn[OVERLAP] = plot_role_overlap
    return Report(
        "roles",
        contents,
        rows,
        {name: functools.partial(plot, found) for name, plot in drawn.items()},
        {EVIDENCE: evidence_table(claims)},
        functools.partial(_page, heads, corpus, found, claims, pages, page.sentences),
        page_files={EXAMPLES: functools.partial(examples_table, claims, pages.examples)},
        result=found,
    )


def _page(
    heads: ReportedHeads,
    corpus: ScoredCorpus,
    found: Roles,
    claims: list[Claim],
    pages: HeadPages,
    sentences: int,
) -> Page:
    test, count = found.test, corpus.facts["texts"]
    mean = corpus.facts["lengths"]["mean"]
    about = (
        f"{count:,} texts of {mean:.1f} positions on average. A head has a role if its mean score "
        f"is above {test.tau:g}, 1 being uniform attention (p < {test.alpha:g}, "
        f"{test.correction}). Counts depend on the lengths of texts."
    )
    values = {name: role.score for name, role in found.roles.items()}
    numbers = numbers_of(found, values, corpus.tally.side)
    title, model = "Roles of heads", str(corpus.facts["model"])
    report = EvidenceReport(title, model, about, numbers, "score", heads=pages)
    return claims_page(heads, corpus, claims, report, sentences)


def _no_role(heads: ReportedHeads, corpus: ScoredCorpus) -> str:
    known = sorted({column.name for column in corpus.tally.moments})
    return (
        f"{heads.name} holds no statistic that a role is scored by\n"
        f"it shows {', '.join(known) or 'nothing'}, see flaxattn stats\n"
        "extract again with weights; the statistic received suffices for cls, sep and delimiter"
    )


def _false_positives(
    heads: ReportedHeads, corpus: ScoredCorpus, test: Test, drawings: int
) -> dict[str, Any]:
    """Roles that are found where there are none; empty where it cannot be known."""
    if corpus.model is None or not drawings:
        return {}
    every, reading = heads.again()
    texts = list(itertools.islice(every, min(_FEW, reading.limit or _FEW)))
    side = corpus.tally.side
    if side == "cross" and any(text.text_b is None for text in texts):
        return {}  # a model before training writes no targets worth reading
    return false_positives(
        corpus.model, texts, heads.options, test, side=side, drawings=drawings, reading=reading
    )


def _repeated(corpus: ScoredCorpus, test: Test, sequences: int) -> dict[str, Any]:
    """Heads of a decoder on random tokens that are repeated; empty for other models."""
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
