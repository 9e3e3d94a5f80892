# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn roles`: parses, calls, prints. Everything heavy is imported when it runs."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from flaxattn.commands.head_request import Alpha, AsJson, RolesRequest
from flaxattn.commands.options import named, with_options

if TYPE_CHECKING:
    from flaxattn.measures.role_tests import Roles

_EVEN = " (its score is multiplied by the entropy, which is highest for uniform attention)"


@with_options
def roles(
    context: typer.Context,
    request: RolesRequest,
    relations: Annotated[
        str | None,
        typer.Option(help="Relations, separated by commas, or all; default nsubj,obj,amod,advmod."),
    ] = None,
    tau: Annotated[
        float, typer.Option(help="Threshold of a role's mean score; uniform attention scores 1.")
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
        typer.Option(
            "--pande-parity",
            help="Reproduce the notebooks of Pande et al. (2021), their errors included.",
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Random seed of unrelated words and of the bootstrap.")
    ] = 0,
    repeats: Annotated[
        int,
        typer.Option(
            min=0,
            help="Number of random sequences, each repeated once, to find induction heads on.",
        ),
    ] = 16,
    drawings: Annotated[
        int,
        typer.Option(
            min=0, help="Number of times that trees are shuffled to count false positives."
        ),
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """Test which heads are local, syntactic or delimiter heads.

    Writes roles.json, heads.parquet with every number of every head, evidence.parquet with the
    texts that show each role best, roles.png, role-grid.png with the strongest role of each head,
    role-overlap.png with the heads of several roles, and roles.html, a page with these texts and a
    page for each head (roles.html#head=1.0); examples.parquet holds the examples of these.

    Example: flaxattn roles treebank.conllu --model tiny-bert -o ROLES

    Example: flaxattn roles treebank.conllu --relations all --lengths 20-40 -o ROLES
    """
    from flaxattn.commands.report_run import ReportRun, print_report
    from flaxattn.commands.text_corpus import head_source
    from flaxattn.measures.role_tests import Test
    from flaxattn.measures.specs import PAPER_RELATIONS, check_relations
    from flaxattn.reports.roles import roles_report

    chosen = check_relations(named(relations) if relations is not None else PAPER_RELATIONS)
    correction = correction or ("none" if pande_parity else "bh")
    test = Test(tau=tau, alpha=alpha, correction=correction, pande_parity=pande_parity)
    run = ReportRun.begin(context, "roles")
    source, texts = head_source(request, run.progress)
    report = roles_report(
        source,
        texts,
        chosen,
        test=test,
        seed=seed,
        drawings=drawings,
        repeats=repeats,
        **request.reported(),
    )
    if files := run.finish(report, as_json):
        notes = [*report.result.warnings(), *control_notes(report.facts["false_positives"])]
        if chosen and not report.facts["settings"]["annotated"]:
            notes.append(
                f"no text has a tree, so no head was tested for {', '.join(chosen)}; "
                "give sentences with trees, a file in .conllu"
            )
        print_report(report.facts, _table(report.result), notes, files)


def control_notes(found: dict[str, Any]) -> list[str]:
    """Lines that say how many roles are found by chance."""
    if not found:
        return []
    before, other = found["untrained"], found["other_trees"]
    listed = [
        f"{count} {name}{_EVEN if name.endswith('_entropy') else ''}"
        for name, count in before["by_role"].items()
        if count
    ]
    lines = [
        f"by chance: the model before training has {before['found']} roles in {before['tests']:,} "
        f"tests on {found['texts']} texts{': ' if listed else ''}{', '.join(listed)}"
    ]
    if other:
        lines.append(
            f"by chance: under other trees, {other['drawings']} times drawn, {other['found']} "
            f"roles in {other['tests']:,} tests, {other['drawings_beyond']} drawings with one "
            "beyond position"
        )
    return lines


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
