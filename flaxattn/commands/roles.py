# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn roles`: parses, calls, prints. Everything heavy is imported when it runs."""

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from flaxattn.commands.head_request import Alpha, AsJson, Request, RolesRequest
from flaxattn.commands.option_groups import with_options
from flaxattn.commands.option_lists import named
from flaxattn.errors import InputError

if TYPE_CHECKING:
    from flaxattn.measures.role_tests import Roles
    from flaxattn.measures.score_terms import ScoreOptions
    from flaxattn.measures.scored_corpus import ScoredCorpus
    from flaxattn.views.payloads.head_pages import HeadPages


@with_options
def roles(
    context: typer.Context,
    request: RolesRequest,
    relations: Annotated[
        str | None,
        typer.Option(help="Relations, separated by commas, or all; default nsubj,obj,amod,advmod."),
    ] = None,
    tau: Annotated[
        float, typer.Option(help="Mean score that a role must exceed; 1 is uniform attention.")
    ] = 3.0,
    alpha: Alpha = 0.05,
    correction: Annotated[
        str | None,
        typer.Option(
            help="Correction for the number of tests: none, bonferroni, holm or bh; default bh."
        ),
    ] = None,
    pande_parity: Annotated[
        bool,
        typer.Option("--pande-parity", help="Score as the paper's notebooks do, errors included."),
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Random seed of unrelated words and of the bootstrap.")
    ] = 0,
    repeats: Annotated[
        int, typer.Option(min=0, help="Number of repeated random sequences for a decoder.")
    ] = 16,
    drawings: Annotated[int, typer.Option(min=0, help="Number of shuffled-tree repetitions.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Test which heads are local, syntactic or delimiter heads.

    Writes roles.json, heads.parquet with every number of every head, evidence.parquet with the
    texts that show each role best, roles.png, role-grid.png with the strongest role of each head,
    role-overlap.png with the heads of several roles, and roles.html, a page with these texts and a
    page for each head (roles.html#head=1.0); examples.parquet holds the examples of these.

    Example: flaxattn roles treebank.conllu --model tiny-bert -o ROLES
    """
    from flaxattn.commands.head_corpus import gathered, rows_of
    from flaxattn.commands.head_facts import examples_table, head_pages
    from flaxattn.commands.head_page import evidence_facts, evidence_table
    from flaxattn.commands.head_report import refusals, tell
    from flaxattn.commands.report_files import write_report
    from flaxattn.commands.report_layout import (
        EVIDENCE,
        EXAMPLES,
        GRID,
        OVERLAP,
        figure_file,
        page_file,
    )
    from flaxattn.commands.report_run import ReportRun
    from flaxattn.commands.role_controls import control_notes, false_positives, repeated
    from flaxattn.measures.claims import role_claims
    from flaxattn.measures.patterns import head_patterns
    from flaxattn.measures.role_tests import Test, facts, find_roles
    from flaxattn.measures.score_terms import PAPER_RELATIONS, ScoreOptions, check_relations
    from flaxattn.views.figures.plot_role_grid import plot_role_grid
    from flaxattn.views.figures.plot_role_overlap import plot_role_overlap
    from flaxattn.views.figures.plot_roles import plot_roles

    chosen = check_relations(named(relations) if relations is not None else PAPER_RELATIONS)
    correction = correction or ("none" if pande_parity else "bh")
    test = Test(tau=tau, alpha=alpha, correction=correction, pande_parity=pande_parity)
    asked = ScoreOptions(chosen, request.annotated, seed, pande_parity)
    run = ReportRun.begin(context, "roles")
    corpus = gathered(request, asked, run.progress)
    found = find_roles(corpus.tally, asked, test)
    if not found.roles:
        raise InputError(_no_role(request, corpus))
    chance = false_positives(request, corpus, asked, test, drawings, run.progress)
    run.progress("collecting evidence", 0)
    claims = role_claims(found, corpus.evidence, corpus.tally.side)
    known = head_patterns(corpus.tally, alpha=alpha) if not corpus.refused else []
    settings = {"limit": request.limit, "lengths": request.range, "evidence": request.evidence}
    said = {
        **corpus.facts,
        "settings": {**dataclasses.asdict(asked), **dataclasses.asdict(test), **settings},
        "seed": seed,
        **facts(found),
        "labels": [label._asdict() for label in known],
        "false_positives": chance,
        "repeated": repeated(corpus, test, repeats),
        "refused": refusals(corpus.refused),
        "evidence": evidence_facts(claims, corpus.texts),
    }
    rows = rows_of(corpus, found, seed)
    beside = {EVIDENCE: evidence_table(claims)}
    if request.page:
        pages = head_pages(request, corpus, claims, "score", rows)
        beside[page_file(run.command)] = _page(request, corpus, found, claims, asked, pages)
        beside[EXAMPLES] = examples_table(claims, pages.examples)
    figures = {figure_file(run.command): plot_roles(found), GRID: plot_role_grid(found)}
    if any(role.found.any() for role in found.roles.values()):
        figures[OVERLAP] = plot_role_overlap(found)
    files = write_report(run, said, rows, figures, beside)
    tell(said, _table(found), [*found.warnings(), *control_notes(chance)], files, as_json)


def _page(
    request: Request,
    corpus: "ScoredCorpus",
    found: "Roles",
    claims: list,
    asked: "ScoreOptions",
    pages: "HeadPages",
) -> bytes:
    from flaxattn.commands.head_facts import weakest
    from flaxattn.commands.head_page import corpus_gold, numbers_of, report_page
    from flaxattn.measures.claims import claim_columns
    from flaxattn.views.evidence_page import EvidenceReport

    test, said = found.test, corpus.facts
    about = (
        f"{said['texts']:,} texts of {said['lengths']['mean']:.1f} positions on average. A head "
        f"has a role if its mean score is above {test.tau:g}, 1 being uniform attention "
        f"(p < {test.alpha:g}, {test.correction}). Counts depend on the lengths of texts."
    )
    values = {name: role.score for name, role in found.roles.items()}
    numbers = numbers_of(found, values, corpus.tally.side)
    title, model = "Roles of heads", str(said["model"])
    report = EvidenceReport(title, model, about, numbers, "score", heads=pages)
    gold = corpus_gold(corpus, claim_columns(claims, "score"), asked)
    weak = weakest(corpus, claims, "score")
    return report_page(report, claims, corpus.traces, request.sentences, gold, weak)


def _no_role(request: Request, corpus: "ScoredCorpus") -> str:
    known = sorted({column.name for column in corpus.tally.moments})
    return (
        f"{request.inputs[0]} holds no statistic that a role is scored by\n"
        f"it shows {', '.join(known) or 'nothing'}, see flaxattn stats\n"
        "extract again: --capture weights, or --stats received for cls, sep and delimiter"
    )


def _mass(share: float) -> str:
    return f"{share:.0%}" if share <= 1 else "over 100%"


def _table(roles: "Roles") -> Table:
    test = roles.test
    title = f"Heads with a mean score above {test.tau:g} (p < {test.alpha:g}, {test.correction})"
    caption = (
        f"share needed: the attention a score of {test.tau:g} takes at these lengths, so counts on "
        "texts of other lengths do not compare; over 100%: no head can have that score"
    )
    table = Table(title=title, caption=caption)
    table.add_column("role", no_wrap=True)
    for name in ("texts", "heads", "beyond position", "by layer", "keys", "share needed"):
        table.add_column(name, justify="right")
    for name, role in roles.roles.items():
        beyond = None if role.beyond is None else ((role.beyond < test.alpha) & role.found).sum()
        table.add_row(
            name,
            str(role.count),
            str(int(role.found.sum())),
            "" if beyond is None else str(int(beyond)),
            " ".join(str(count) for count in role.found.sum(1).tolist()),
            "" if role.reach.keys is None else f"{role.reach.keys:.1f}",
            "" if role.reach.mass is None else _mass(role.reach.mass),
        )
    return table
