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
    Alpha,
    AsJson,
    Correction,
    Kept,
    Limit,
    SecondColumn,
    Sentences,
    TextColumn,
    Truncate,
    WithPage,
    check_unread,
    is_store,
)
from flaxattn.commands.report_layout import EVIDENCE, figure_file, page_file, table_file
from flaxattn.commands.report_run import Out, Overwrite, ReportRun
from flaxattn.errors import InputError

if TYPE_CHECKING:
    from flaxattn.commands.compare_roles import RolesOfBoth, RoleSummary
    from flaxattn.commands.compared_texts import ComparedTraces
    from flaxattn.measures.compare_heads import Comparison
    from flaxattn.measures.evidence import Evidence
    from flaxattn.measures.head_change import HeadChange
    from flaxattn.measures.paired_texts import ClaimRule
    from flaxattn.pipeline.progress_reporter import ProgressReporter
    from flaxattn.views.evidence_page import EvidenceReport

_MOST = 10  # heads whose divergence is claimed to be large
_APART = "divergence"
_ROLE = "role: "  # before the name of a role that is claimed to have changed


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
    correction: Correction = "bh",
    alpha: Alpha = 0.05,
    tau: Annotated[
        float, typer.Option(help="Mean score that a role must exceed; 1 is uniform attention.")
    ] = 3.0,
    seed: Annotated[int, typer.Option(help="Random seed of the bootstrap.")] = 0,
    limit: Limit = None,
    truncate: Truncate = False,
    on_error: Annotated[str, typer.Option(help="Rows that cannot be used: fail or skip.")] = "fail",
    allow_nonfinite: AllowNonfinite = False,
    page: WithPage = True,
    sentences: Sentences = SENTENCES,
    evidence: Kept = KEPT,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compare the attention of two models or stores, head by head.

    Of two encoders it also shows which heads took up or gave up roles, by layer, where both hold
    attention weights. A change is claimed only where its interval over the texts supports it; the
    report and the page say by which rule.

    The report is a folder with compare.json, compare.parquet (a row for each head),
    evidence.parquet (the texts that show each change best), compare.png, and compare.html, a page
    with these texts.

    Example: flaxattn compare tiny-bert RUN/model corpus.txt -o BEFORE-AFTER
    """
    from flaxattn.commands.compare_roles import RolesOfBoth, lines_of
    from flaxattn.commands.compared_texts import of_models, of_stores
    from flaxattn.commands.head_page import evidence_facts, evidence_table, report_page
    from flaxattn.commands.report_files import print_nonfinite, write_report
    from flaxattn.measures.role_tests import Test

    rule = _rule(correction, alpha, seed)
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
        "seed": seed,
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
    roles = RolesOfBoth(Test(tau=tau, alpha=alpha, correction=correction), rule)
    run.progress.announce(f"{texts.count:,} texts: one pass of {first} and one of {second}")
    comparison, shown = _compared(texts, evidence, roles, run.progress)
    changes = comparison.changes(rule)
    turned = roles.summary(changes)
    claims = _claims(changes, comparison, shown) + _role_claims(turned, comparison, shown)
    used = {text.text for claim in claims for text in claim.texts}
    facts = evidence_facts(claims, {number: texts.text(number) for number in sorted(used)})
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
        "rule": str(rule),
        "roles": turned.facts(),
        "evidence": facts,
        "heads": _rows(changes),
    }
    figures = {figure_file(run.command): _figure(comparison, changes)}
    beside = {EVIDENCE: evidence_table(claims)}
    if page:
        names = (first, second) if first != second else ("A", "B")
        about = _about(texts, rule, names)
        report = _report(comparison, roles, changes, rule, about, names)
        beside[page_file(run.command)] = report_page(report, claims, texts.pairs, sentences)
    files = write_report(run, said, said["heads"], figures, beside, table_file(run.command))
    if as_json:
        typer.echo(files[0].read_text(encoding="utf-8"), nl=False)
    else:
        print_nonfinite(said)
        _tell(changes, refused, lines_of(turned.changes), out)


def _rule(correction: str, alpha: float, seed: int) -> "ClaimRule":
    """The rule by which changes are claimed, of options that are checked."""
    from flaxattn.measures.paired_texts import ClaimRule
    from flaxattn.measures.significance import CORRECTIONS

    if correction not in CORRECTIONS:
        raise typer.BadParameter(
            f"choose one of {', '.join(CORRECTIONS)}.", param_hint="--correction"
        )
    if not 0 < alpha < 1:
        raise typer.BadParameter("give a number between 0 and 1.", param_hint="--alpha")
    return ClaimRule(alpha, correction, seed=seed)


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
        for name, value in roles.add(one, other).items():
            shown.add(("encoder", _ROLE + name, 1), value[None], [number])
            shown.add(("encoder", _ROLE + name, -1), -value[None], [number])
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
        if change.changed and len(claims) < _MOST:
            texts = shown.of((change.side, _APART, 1), *where)
            message = f"{_interval(change.interval)}, cosine {change.cosine:.3f}"
            if change.role_changed:
                message += f", {change.roles[0]} → {change.roles[1]}"
            at = change.layer, change.head
            claims.append(Claim(_APART, *at, change.divergence, message, change.side, texts))
    for name in dict.fromkeys(name for change in changes for name in change.changes):
        for change in changes:
            if name in change.significant and _claimable(change):
                value, at = change.changes[name], (change.layer, change.head)
                where = comparison.place(change.side, *at)
                sign = 1 if value > 0 else -1
                texts = [
                    t._replace(score=sign * t.score)
                    for t in shown.of((change.side, name, sign), *where)
                ]
                message = f"p {change.p[name]:.1g}"
                claims.append(Claim(name, *at, value, message, change.side, texts))
    return claims


def _claimable(change: "HeadChange") -> bool:
    """Return whether attention changed, or was not compared, so that the test of a number rules."""
    return change.changed or change.divergence != change.divergence


def _role_claims(turned: "RoleSummary", comparison: "Comparison", shown: "Evidence") -> list[Any]:
    """Roles that heads took up or gave up, the largest differences first."""
    from flaxattn.measures.claims import Claim

    claims = []
    rows = [row for row in turned.differences if row.claimed]
    for row in sorted(rows, key=lambda r: (r.role, -abs(r.after - r.before))):
        value, at = row.after - row.before, (row.layer, row.head)
        sign = 1 if value > 0 else -1
        key = "encoder", _ROLE + row.role, sign
        found = shown.of(key, *comparison.place("encoder", *at))
        texts = [t._replace(score=sign * t.score) for t in found]
        what = "taken up" if value > 0 else "given up"
        message = f"{what}: {row.before:.2f} → {row.after:.2f}, change in {_interval(row.interval)}"
        claims.append(Claim(_ROLE + row.role, *at, value, message, "encoder", texts))
    return claims


def _interval(ends: tuple[float, float]) -> str:
    return f"[{ends[0]:.3g}, {ends[1]:.3g}]".replace("-", "−")


def _about(texts: "ComparedTraces", rule: "ClaimRule", names: tuple[str, str]) -> str:
    """Summary of the page, and the rule by which changes are claimed."""
    count = "1 text" if texts.count == 1 else f"{texts.count:,} texts"
    return (
        f"{count}. Divergence is that of Jensen and Shannon, in nats; other numbers "
        f"are changes, {names[1]} less {names[0]}. {rule}"
    )


def _report(
    comparison: "Comparison",
    roles: "RolesOfBoth",
    changes: "Sequence[HeadChange]",
    rule: "ClaimRule",
    about: str,
    names: tuple[str, str],
) -> "EvidenceReport":
    from flaxattn.views.evidence_page import EvidenceReport, Numbers
    from flaxattn.views.second_trace import shape_changes

    sides = {}
    for side, (layers, heads) in comparison.heads.items():
        measures = {n: comparison.table(side, n) for s, n in comparison.names if s == side}
        if side == "encoder":
            measures |= {_ROLE + name: roles.table(name) for name in roles.names}
        sides[side] = Numbers(layers, heads, measures)
    model = f"{names[0]} and {names[1]}"
    notes = shape_changes(changes, rule)
    return EvidenceReport("How heads differ", model, about, sides, "value", names, notes)


def _figure(comparison: "Comparison", changes: "Sequence[HeadChange]") -> Any:
    from flaxattn.views.figures.plot_head_effects import plot_head_values

    apart = {s: comparison.table(s, _APART) for s, n in comparison.names if n == _APART}
    if apart:
        maps = {f"{side}: {_APART}": table for side, table in apart.items()}
        return plot_head_values(maps, "Jensen-Shannon divergence, nats", signed=False)
    maps = {f"{s}: {n}": comparison.table(s, n) for s, n in comparison.names}
    return plot_head_values(maps, "change")


def _refused(changes: "Sequence[HeadChange]") -> dict[str, list[str]]:
    """Statistics that a store lacks, by the capture that would record them."""
    from flaxattn.measures.compare_heads import MEASURES
    from flaxattn.measures.head_change import ALIKE

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
        what = what if _claimable(change) else "no change is claimed"
        alike = (
            f"divergence {change.divergence:.4f} {_interval(change.interval)}, "
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
            "divergence_low": change.interval[0],
            "divergence_high": change.interval[1],
            "changed": change.changed,
            "role_before": change.roles[0],
            "role_after": change.roles[1],
            "role_changed": change.role_changed,
            "cosine": change.cosine,
            **{f"{name}_change": value for name, value in change.changes.items()},
            **{f"{name}_p": value for name, value in change.p.items()},
            "significant": list(change.significant),
            "texts": change.texts,
        }
        for change in changes
    ]
