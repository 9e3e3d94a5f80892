# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn compare`: two models or checkpoints on the same texts, or two stores, head by head.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flaxattn.commands.head_request import (
    KEPT,
    SENTENCES,
    AllowNonfinite,
    AsJson,
    Kept,
    SecondColumn,
    Sentences,
    TextColumn,
    WithPage,
    check_unread,
    is_store,
)
from flaxattn.commands.report_layout import EVIDENCE, figure_file, page_file, table_file
from flaxattn.commands.report_run import Out, Overwrite, ReportRun
from flaxattn.errors import InputError

if TYPE_CHECKING:
    from flaxattn.commands.compare_roles import RolesOfBoth
    from flaxattn.commands.compared_texts import ComparedTraces
    from flaxattn.measures.compare_heads import Comparison, HeadChange
    from flaxattn.measures.evidence import Evidence
    from flaxattn.pipeline.progress_reporter import ProgressReporter

_MOST = 10  # heads whose divergence is claimed to be large
_APART = "divergence"


def compare(
    context: typer.Context,
    first: Annotated[
        str,
        typer.Argument(metavar="A", help="First model (name, directory or Hub id), or a store."),
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="Second model or store.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INPUT...",
            help="txt, jsonl, csv, tsv, parquet or arrow, also .gz and .zst; patterns; - reads "
            "standard input. Two stores have their texts.",
        ),
    ] = None,
    out: Out = Path("report-compare"),
    text_column: TextColumn = "text",
    pair_column: SecondColumn = None,
    correction: Annotated[
        str, typer.Option(help="Correction for the number of tests: none, bonferroni or bh.")
    ] = "bh",
    alpha: Annotated[float, typer.Option(help="Significance level of the tests.")] = 0.05,
    tau: Annotated[
        float, typer.Option(help="Mean score that a role must exceed; 1 is uniform attention.")
    ] = 3.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Largest number of texts.")] = None,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut texts that are too long.")
    ] = False,
    on_error: Annotated[str, typer.Option(help="Rows that cannot be used: fail or skip.")] = "fail",
    allow_nonfinite: AllowNonfinite = False,
    page: WithPage = True,
    sentences: Sentences = SENTENCES,
    evidence: Kept = KEPT,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compare the attention of two models or stores, head by head.

    Of two encoders it also tells which heads took up or gave up roles, by layer, where both hold
    attention weights. The report is a folder with compare.json, compare.parquet (a row for each
    head), evidence.parquet (the texts that show each change best), compare.png, and compare.html,
    a page with these texts.
    """
    from flaxattn.commands.compare_roles import RolesOfBoth, lines_of
    from flaxattn.commands.compared_texts import of_models, of_stores
    from flaxattn.commands.head_page import evidence_facts, evidence_table
    from flaxattn.commands.report_files import print_nonfinite, write_report
    from flaxattn.measures.role_tests import Test
    from flaxattn.measures.significance import CORRECTIONS

    if correction not in CORRECTIONS:
        raise typer.BadParameter(
            f"choose one of {', '.join(CORRECTIONS)}.", param_hint="--correction"
        )
    if not 0 < alpha < 1:
        raise typer.BadParameter("give a number between 0 and 1.", param_hint="--alpha")
    stores = _stores(first, second, inputs)
    run = ReportRun.begin(context, "compare")
    settings = {
        "models": [first, second],
        "columns": [text_column, pair_column],
        "correction": correction,
        "alpha": alpha,
        "tau": tau,
        "limit": limit,
        "truncate": truncate,
        "evidence": evidence,
        "seed": None,  # nothing is drawn
    }
    run.progress(f"loading {first} and {second}", 0)
    if stores:
        read = {"text_column": text_column, "pair_column": pair_column, "truncate": truncate}
        read["allow_nonfinite"] = allow_nonfinite
        check_unread(first, read)
        texts = of_stores((first, second), limit)
    else:
        columns = (text_column, pair_column)
        kept: dict[str, Any] = {"truncate": truncate, "on_error": on_error}
        kept |= {"allow_nonfinite": allow_nonfinite, "folder": run.path}
        texts = of_models((first, second), inputs or [], columns, limit, **kept)
    roles = RolesOfBoth(Test(tau=tau, alpha=alpha, correction=correction))
    run.progress.announce(f"{texts.count:,} texts: one pass of {first} and one of {second}")
    comparison, shown = _compared(texts, evidence, roles, run.progress)
    changes = comparison.changes(correction=correction, alpha=alpha)
    claims = _claims(changes, comparison, shown)
    used = {text.text for claim in claims for text in claim.texts}
    told = evidence_facts(claims, {number: texts.text(number) for number in sorted(used)})
    layers = {
        side: [dict(zip(("layer", _APART, "cosine"), row, strict=True)) for row in rows]
        for side, rows in comparison.by_layer().items()
    }
    refused = _refused(changes)
    said = {
        "settings": settings,
        "data": texts.corpus.source,
        "layers": layers,
        "refused": refused,
        "nonfinite": _nonfinite(changes, texts.count),
        "roles": roles.facts(),
        "evidence": told,
        "heads": _rows(changes),
    }
    figures = {figure_file(run.command): _figure(comparison, changes)}
    beside = {EVIDENCE: evidence_table(claims)}
    if page:
        names = (first, second) if first != second else ("A", "B")
        beside[page_file(run.command)] = _page(texts, comparison, changes, claims, names, sentences)
    files = write_report(run, said, said["heads"], figures, beside, table_file(run.command))
    if as_json:
        typer.echo(files[0].read_text(encoding="utf-8"), nl=False)
    else:
        print_nonfinite(said)
        _tell(changes, refused, lines_of(roles.changes()), out)


def _stores(first: str, second: str, inputs: Sequence[str] | None) -> bool:
    """Return whether two stores are compared."""
    found = [is_store(name) for name in (first, second)]
    if any(found) and not all(found):
        store, model = (first, second) if found[0] else (second, first)
        raise InputError(
            f"{store} is a store, {model} is none; a store is compared with a store\n"
            f"extract the same texts with it first: flaxattn extract TEXTS --model {model} -o OTHER"
        )
    if all(found) and inputs:
        raise InputError(
            f"two stores have their texts already, received {inputs[0]} beside them\n"
            "leave the texts out, or name models in place of stores"
        )
    if not any(found) and not inputs:
        raise InputError(
            "two models are compared on texts, and no text was named\n"
            f"name files: flaxattn compare {first} {second} TEXTS -o REPORT"
        )
    return all(found)


def _compared(
    texts: "ComparedTraces", keep: int, roles: "RolesOfBoth", progress: "ProgressReporter"
) -> "tuple[Comparison, Evidence]":
    """Both sides' attention to all texts, and the texts that show changes best."""
    import numpy as np

    from flaxattn.measures.compare_heads import Comparison
    from flaxattn.measures.evidence import Evidence

    comparison, shown = Comparison(), Evidence(keep)
    progress.expect("comparing", texts.count)
    for number, (one, other) in enumerate(texts.traces()):
        roles.add(one, other)
        for values in comparison.add(one, other):
            for (side, name), value in values.items():
                shown.add((side, name, 1), np.asarray(value)[None], [number])
                shown.add((side, name, -1), -np.asarray(value)[None], [number])
        progress("comparing", 1)
    return comparison, shown


def _claims(
    changes: "Sequence[HeadChange]", comparison: "Comparison", shown: "Evidence"
) -> list[Any]:
    """Heads that differ most, and every change that is significant."""
    from flaxattn.measures.claims import Claim

    claims = []
    for change in changes:
        where = comparison.place(change.side, change.layer, change.head)
        if change.divergence > 0 and len(claims) < _MOST:
            texts = shown.of((change.side, _APART, 1), *where)
            told = f"± {change.divergence_error:.2g}, cosine {change.cosine:.3f}"
            at = change.layer, change.head
            claims.append(Claim(_APART, *at, change.divergence, told, change.side, texts))
    for name in dict.fromkeys(name for change in changes for name in change.changes):
        for change in changes:
            if name in change.significant:
                value, at = change.changes[name], (change.layer, change.head)
                where = comparison.place(change.side, *at)
                sign = 1 if value > 0 else -1
                texts = [
                    t._replace(score=sign * t.score)
                    for t in shown.of((change.side, name, sign), *where)
                ]
                told = f"p {change.p[name]:.1g}"
                claims.append(Claim(name, *at, value, told, change.side, texts))
    return claims


def _page(
    texts: "ComparedTraces",
    comparison: "Comparison",
    changes: "Sequence[HeadChange]",
    claims: list[Any],
    names: tuple[str, str],
    most: int,
) -> bytes:
    from flaxattn.commands.head_page import report_page
    from flaxattn.views.evidence_page import EvidenceReport, Numbers

    sides = {}
    for side, (layers, heads) in comparison.heads.items():
        measures = {n: comparison.table(side, n) for s, n in comparison.names if s == side}
        sides[side] = Numbers(layers, heads, measures)
    about = (
        f"{texts.count:,} texts. Divergence is that of Jensen and Shannon, in nats; other numbers "
        f"are changes, {names[1]} less {names[0]}, and claimed where they are significant."
    )
    model = f"{names[0]} and {names[1]}"
    report = EvidenceReport("How heads differ", model, about, sides, "value", names)
    return report_page(report, claims, texts.pairs, most)


def _figure(comparison: "Comparison", changes: "Sequence[HeadChange]") -> Any:
    from flaxattn.views.figures.plot_head_effects import plot_head_values

    apart = {s: comparison.table(s, _APART) for s, n in comparison.names if n == _APART}
    if apart:
        maps = {f"{side}: {_APART}": table for side, table in apart.items()}
        return plot_head_values(maps, "Jensen-Shannon divergence, nats", center=None)
    maps = {f"{s}: {n}": comparison.table(s, n) for s, n in comparison.names}
    return plot_head_values(maps, "change")


def _refused(changes: "Sequence[HeadChange]") -> dict[str, list[str]]:
    """Statistics that a store lacks, by the capture that would record them."""
    from flaxattn.measures.compare_heads import ALIKE, MEASURES

    if any(change.divergence == change.divergence for change in changes):
        return {}
    known = {name for change in changes for name in change.changes}
    return {"Capture(weights=True)": [n for n in (*ALIKE, *MEASURES) if n not in known]}


def _nonfinite(changes: "Sequence[HeadChange]", texts: int) -> list[dict[str, Any]]:
    """Heads whose attention is NaN or infinite on some texts, and on how many."""
    return [
        {
            "side": change.side,
            "layer": change.layer,
            "head": change.head,
            "texts": texts - change.texts,
        }
        for change in sorted(changes, key=lambda c: (c.side, c.layer, c.head))
        if change.texts < texts
    ]


def _tell(
    changes: "Sequence[HeadChange]",
    refused: dict[str, list[str]],
    roles: list[str],
    out: Path,
) -> None:
    for change in changes[:5]:
        what = ", ".join(change.significant) or "no measure changed significantly"
        alike = (
            f"divergence {change.divergence:.4f} ± {change.divergence_error:.4f}, "
            f"cosine {change.cosine:.3f}: "
        )
        if change.divergence != change.divergence:
            alike = "attention is NaN or infinite: "
        alike = "" if refused else alike
        typer.echo(f"{change.side} {change.layer}.{change.head}  {alike}{what}")
    for line in roles:
        typer.echo(line)
    for request, names in refused.items():
        typer.echo(f"not in these stores, {request} would hold it: {', '.join(names)}")
    typer.echo(f"wrote {out.resolve()}")


def _rows(changes: "Sequence[HeadChange]") -> list[dict[str, Any]]:
    """A flat row for each head."""
    return [
        {
            "side": change.side,
            "layer": change.layer,
            "head": change.head,
            "divergence": change.divergence,
            "divergence_error": change.divergence_error,
            "cosine": change.cosine,
            **{f"{name}_change": value for name, value in change.changes.items()},
            **{f"{name}_p": value for name, value in change.p.items()},
            "significant": list(change.significant),
            "texts": change.texts,
        }
        for change in changes
    ]
