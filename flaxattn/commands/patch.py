# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn patch`: effects of the heads of a model on the answers to pairs of texts.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from flaxattn.commands.head_request import (
    KEPT,
    SENTENCES,
    Alpha,
    Architecture,
    AsJson,
    Correction,
    Kept,
    Model,
    Sentences,
    WithPage,
)
from flaxattn.commands.options import head_numbers, named, with_options
from flaxattn.commands.report_run import Out, Overwrite, ReportRun, cell, print_files

if TYPE_CHECKING:
    from flaxattn.attribution.patch_effects import PatchReport
    from flaxattn.attribution.patch_task import PatchRequest

_PRINTED = 10  # heads or layers


@dataclasses.dataclass(frozen=True)
class PatchOptions:
    """Options of `flaxattn patch` that choose what is patched; the fields of `fa.PatchRequest`."""

    metric: Annotated[
        str,
        typer.Option(
            help="Metric of the answer: logit-diff (against the column wrong), logit, probability, "
            "or kl, the divergence in nats from the clean run."
        ),
    ] = "logit-diff"
    method: Annotated[
        str,
        typer.Option(
            help="activation: exchange values between the two runs; attribution: the same to first "
            "order; path: direct paths to --receivers or the scores; knockout: block attention of "
            "the answered position; mediation: exchange attention weights."
        ),
    ] = "activation"
    site: Annotated[
        str,
        typer.Option(
            help="Values that are patched: head_output, query, key, value, weights, and by layer "
            "attention_output, feed_forward_output, layer_input or layer_output."
        ),
    ] = "head_output"
    by: Annotated[str, typer.Option(help="Patch every head, or every layer: head or layer.")] = (
        "head"
    )
    positions: Annotated[
        str,
        typer.Option(
            help="Patch all positions together, segments around the words that differ, or each "
            "position by itself: all, segment or token."
        ),
    ] = "all"
    direction: Annotated[
        str,
        typer.Option(
            help="denoise: clean values into the corrupted run; noise: corrupted values into the "
            "clean run."
        ),
    ] = "denoise"
    donor: Annotated[
        str,
        typer.Option(help="Origin of the values: the other text of the pair, zero, or the mean."),
    ] = "pair"
    receivers: Annotated[
        str | None,
        typer.Option(help="Heads that paths end in, such as 3.1,3.4; default the scores."),
    ] = None
    into: Annotated[str, typer.Option(help="Inputs of the receivers that change, with commas.")] = (
        "query,key,value"
    )
    freeze_feed_forward: Annotated[
        bool,
        typer.Option("--freeze-feed-forward", help="Follow paths through attention alone."),
    ] = False
    window: Annotated[
        int, typer.Option(help="Number of layers that are patched together; odd.")
    ] = 1
    side: Annotated[
        str | None,
        typer.Option(
            help="Attention of an encoder-decoder: encoder, decoder or cross; default all."
        ),
    ] = None

    def request(self) -> "PatchRequest":
        """The request."""
        from flaxattn.attribution.patch_task import RECEIVING, PatchRequest

        lists: dict[str, Any] = {
            "receivers": head_numbers(self.receivers, "--receivers"),
            "into": tuple(named(self.into, RECEIVING, "--into")),
        }
        return PatchRequest(**(vars(self) | lists))


@with_options
def patch(
    context: typer.Context,
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="PAIRS...",
            help="Tables with the columns clean, corrupted and answer, and wrong for logit-diff: "
            "csv, tsv, jsonl, parquet or arrow, also .gz and .zst; patterns.",
        ),
    ],
    options: PatchOptions,
    out: Out = Path("report-patch"),
    model: Model = "tiny-gpt2",
    head: Architecture = None,
    prefix_column: Annotated[
        str | None,
        typer.Option(help="Column or key of the beginning of an encoder-decoder's target."),
    ] = None,
    batch: Annotated[
        int, typer.Option("--batch-size", min=1, help="Number of pairs per batch.")
    ] = 16,
    limit: Annotated[int | None, typer.Option(min=2, help="Largest number of pairs.")] = None,
    alpha: Alpha = 0.05,
    correction: Correction = "bh",
    controls: Annotated[
        int,
        typer.Option(min=0, help="Number of random sets that the causal heads are compared with."),
    ] = 20,
    on_error: Annotated[str, typer.Option(help="Rows that cannot be used: fail or skip.")] = "fail",
    seed: Annotated[int, typer.Option(help="Random seed of the bootstrap and of controls.")] = 0,
    page: WithPage = True,
    sentences: Sentences = SENTENCES,
    evidence: Kept = KEPT,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Patch each head between clean and corrupted texts.

    The report is a folder with patch.json, patch.parquet (a row for each head or layer, and group
    of positions), pairs.parquet (their effect on each pair), patch.png, and, where heads are
    patched, evidence.parquet and patch.html, a page with the texts that show each causal head best.

    Example: flaxattn patch pairs.csv --model tiny-gpt2 --metric logit-diff -o PATCHED

    Example: flaxattn patch pairs.csv --method path --receivers 3.1 --into query -o PATHS
    """
    from flaxattn.commands.ablate import model_head
    from flaxattn.commands.text_corpus import read_pairs
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.reports.evidence import PageOptions
    from flaxattn.reports.patching import patch_report

    request = options.request()
    run = ReportRun.begin(context, "patch")
    run.progress("reading pairs", 0)
    wrong = request.metric == "logit-diff"
    rows, source = read_pairs(pairs, limit, on_error, run.path, wrong=wrong, prefix=prefix_column)
    run.progress(f"loading {model}", 0)
    report = patch_report(
        from_pretrained(model, head=model_head(model, head)),
        rows,
        request,
        batch=batch,
        alpha=alpha,
        correction=correction,
        controls=controls,
        seed=seed,
        page=PageOptions(evidence, sentences),
        data=source,
    )
    if files := run.finish(report, as_json):
        _print_result(report.result)
        print_files(files)


def _print_result(found: "PatchReport") -> None:
    """Print the largest effects."""
    request = found.request
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{request.metric} of {len(found.pairs):,} pairs: {found.clean.mean():.3f} on clean texts, "
        f"{found.corrupted.mean():.3f} on corrupted ones"
    )
    table = Table(title=f"Largest effects of {request.method} on {found.model}")
    for name in (request.by, "effect", "95 % interval", "share", "p", "causal"):
        table.add_column(name, justify="left" if name == request.by else "right", no_wrap=True)
    rows = sorted(found.rows(), key=lambda row: -abs(row["effect"]))
    for row in rows[:_PRINTED]:
        place = f"{row['side']} {row['layer']}" + (
            f".{row['head']}" if request.by == "head" else ""
        )
        place += "" if row["positions"] == "all" else f" at {row['positions']}"
        place += "" if request.method != "mediation" else f", {row['kind']}"
        ends = "" if math.isnan(row["low"]) else f"{row['low']:+.3f} to {row['high']:+.3f}"
        p = "<0.001" if row["p_corrected"] < 0.001 else cell(row["p_corrected"], ".3f")
        share, causal = cell(row["share"], ".1%"), "yes" if row["causal"] else "no"
        table.add_row(place, f"{row['effect']:+.3f}", ends, share, p, causal)
    console.print(table)
    for effects in found.effects:
        name = f"{effects.side} {effects.kind}".strip()
        console.print(
            f"{name}: {int(effects.causal.sum())} of {effects.means.size} causal "
            f"(p at most {found.alpha:g}, {found.correction})"
        )
        if (control := effects.control) is not None:
            console.print(
                f"{name}: these together {control.effect:+.3f}, as many random ones "
                f"{control.random.mean():+.3f} on average (p {control.p:.3f})"
            )
        if (checked := effects.approximation) is not None:
            console.print(
                f"{name}: first order against patching, {checked.units} checked: mean error "
                f"{checked.error:.3g}, mean effect {checked.scale:.3g}"
            )
