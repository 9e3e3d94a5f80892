# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn demo`: the main job, start to end, on sentences written for it.

Extract attention, measure every head, write a page, a figure, the numbers, and sample files that
other commands can be tried on.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flaxattn import __version__
from flaxattn.corpus.sample_files import sample_files
from flaxattn.files import check_folder, write_text, written_whole
from flaxattn.measures.head_measures import HeadMeasures, head_measures
from flaxattn.pipeline.progress_reporter import ProgressReporter
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.pretrained.pretrained_encoders import PretrainedBert
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.trace.trace import Trace
from flaxattn.views.figures.plot_heads import plot_heads
from flaxattn.views.page import add_data
from flaxattn.views.trace_views import head_view

PAIRS = (
    ("The cat is very sad.", "Because it could not find food to eat."),
    (
        "The old man walked slowly down to the river, and he sat upon the bank.",
        "The water was high, for it had rained all night in the hills.",
    ),
    (
        "My sister wrote me a long letter from the city last week.",
        "She said that the house was small, but that she was happy in it.",
    ),
    (
        "When the door opened at last, nobody came in.",
        "There was only the wind, and a little snow upon the step.",
    ),
)


def run(out: Path, model: str, console: Console) -> None:
    """Run the demonstration and print its results."""
    check_folder(out)
    with ProgressReporter() as progress:
        progress(f"loading {model}", 0)
        loaded = from_pretrained(model)
        progress(f"extracting attention from {len(PAIRS)} pairs", 0)
        trace = _traced(loaded)
        progress("measuring heads", 0)
        measures = head_measures(trace)
        progress("writing the page", 0)
        with written_whole(out) as folder:
            write_text(folder / "heads.html", add_data(head_view(trace).html, "tour", {}))
            plot_heads(trace).savefig(folder / "heads.png", dpi=150)
            results = json.dumps(_results(model, measures), indent=2)
            (folder / "heads.json").write_text(results, encoding="utf-8")
            sample_files(folder / "samples")
    console.print(_table(measures))
    files = {"page": "heads.html", "figure": "heads.png", "numbers": "heads.json"}
    for what, name in (*files.items(), ("samples", "samples")):
        console.print(f"{what:<8} {(out / name).resolve()}")
    console.print("Open the page in a browser; it needs no network.")


def _traced(model: Pretrained) -> Trace:
    """Pairs for an encoder; one text each for a decoder, whose second half continues the first."""
    if isinstance(model, PretrainedBert):
        first, second = (list(side) for side in zip(*PAIRS, strict=True))
        return model.trace(first, second)
    return model.trace([" ".join(pair) for pair in PAIRS])


def _results(model: str, measures: Sequence[HeadMeasures]) -> dict[str, object]:
    """The measures, with the settings that reproduce them."""
    text = json.dumps(PAIRS).encode()
    return {
        "flaxattn": __version__,
        "model": model,
        "data_sha256": hashlib.sha256(text).hexdigest(),
        "sequences": len(PAIRS),
        "heads": [{**asdict(m), "does": m.does} for m in measures],
    }


def _table(measures: Sequence[HeadMeasures]) -> Table:
    title = "What the heads do: shares of attention, mean over the sentences"
    table = Table(
        title=title,
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        caption="entropy in nats, distance in tokens",
    )
    table.add_column("head", justify="right")
    table.add_column("mostly attends to", no_wrap=True)
    names = ("next", "previous", "own", "delimiter")
    for name in (*names, "entropy", "distance"):
        table.add_column(name, justify="right")
    for m in measures:
        shares = [getattr(m, name) for name in names]
        cells = [f"[bold]{share:.0%}[/bold]" if share > 0.5 else f"{share:.0%}" for share in shares]
        averages = (f"{m.entropy:.2f}", f"{m.distance:.1f}")
        table.add_row(f"{m.layer}.{m.head}", m.does, *cells, *averages)
    return table
