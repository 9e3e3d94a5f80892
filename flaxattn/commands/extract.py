# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn extract`: parses, calls, prints. Everything heavy is imported when it runs.

`flaxattn.cli` registers the command.
"""

import dataclasses
import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flaxattn.commands.head_request import (
    AllowNonfinite,
    BatchTokens,
    Limit,
    OnError,
    SecondColumn,
    TextColumn,
    Truncate,
)
from flaxattn.commands.options import named, numbers, with_options
from flaxattn.errors import InputError, StopRequestedError

if TYPE_CHECKING:
    from flaxattn.kernels.contract import Capture
    from flaxattn.store.extract_to import JobReport


@dataclasses.dataclass(frozen=True)
class RayFlags:
    """The engine of a command, and options of the engine ray; their help is in their types."""

    engine: Annotated[
        str, typer.Option(help="Engine: local, or ray for the workers of a Ray cluster.")
    ] = "local"
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of a cluster's head, auto, or local; default $RAY_ADDRESS, else local."
        ),
    ] = None
    ray_workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of Ray workers; default one for each GPU, or each machine."
        ),
    ] = None
    ray_gpus: Annotated[
        int | None,
        typer.Option(
            min=0, help="GPUs of each worker; default 1 where there are any; 0 uses the CPU."
        ),
    ] = None
    ray_cpus: Annotated[
        float | None, typer.Option(min=0, help="CPUs of each worker, as Ray counts; default 1.")
    ] = None
    ray_logs: Annotated[bool, typer.Option("--ray-logs", help="Show Ray's own messages.")] = False

    @property
    def options(self) -> dict[str, Any]:
        """The options of Ray that were typed, as `ray_options` of `extract_to`."""
        values = {name.removeprefix("ray_"): value for name, value in vars(self).items()}
        del values["engine"]
        return {
            name: value
            for name, value in values.items()
            if value is not None and value is not False
        }

    def leave_accelerators(self) -> None:
        """Run this process on the CPU where its accelerators belong to Ray's workers."""
        if self.engine != "local":
            import jax

            jax.config.update("jax_platforms", "cpu")


_FIELDS = ("weights", "scores", "query", "key", "value", "head_output", "hidden", "stats")
_STATS = "entropy,max,distance"
_PAUSE = 10.0  # seconds between two lines of progress
_PairFiles = Annotated[
    list[str] | None,
    typer.Option(help="Text file whose line i belongs to line i of the input; one for each."),
]
_InputFormat = Annotated[
    str | None,
    typer.Option(help="Format of standard input and of files without an extension; default txt."),
]
_Workers = Annotated[
    int,
    typer.Option(min=0, help="Number of processes that tokenize texts; 0 tokenizes in a thread."),
]

_Stats = Annotated[
    str | None,
    typer.Option(
        help="Statistics to capture, separated by commas: lse, entropy (nats), max, argmax, "
        f"topk(k), distance, sum_sq, received (by keys), max_score, sink; default {_STATS}."
    ),
]
_VectorDtype = Annotated[
    str | None,
    typer.Option(
        help="Dtype of stored queries, keys, values, head outputs and hidden states: float32, "
        "float16 or bfloat16; default that of the computation."
    ),
]
_ShardTexts = Annotated[int, typer.Option(min=1, help="Largest number of texts per shard.")]


@with_options
def extract(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="txt, jsonl, csv, tsv, parquet, arrow or conllu, also .gz and .zst; "
            "patterns; folders of a data set; - reads standard input.",
        ),
    ],
    out: Annotated[Path, typer.Option("--output-dir", "-o", "--out", help="Folder of the store.")],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Built-in name, model directory, or Hugging Face Hub id; default tiny-bert. "
            "Several of one configuration run as one, and each gets a store inside --out."
        ),
    ] = None,
    text_column: TextColumn = "text",
    pair_column: SecondColumn = None,
    pair_file: _PairFiles = None,
    id_column: Annotated[
        str | None, typer.Option(help="Column or key of a text's name; default FILE:LINE.")
    ] = None,
    input_format: _InputFormat = None,
    capture: Annotated[
        str | None,
        typer.Option(
            help=f"Fields to capture, separated by commas: {', '.join(_FIELDS)}; default "
            "weights, with --stats or --reduce only what these need."
        ),
    ] = None,
    stats: _Stats = None,
    layers: Annotated[
        str | None, typer.Option(help="Layers to capture, such as 0,5-9; default all.")
    ] = None,
    heads: Annotated[
        str | None, typer.Option(help="Heads to capture, such as 0,5-9; default all.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Dtype of stored weights: float32, float16, bfloat16 or uint8.")
    ] = "float16",
    vector_dtype: _VectorDtype = None,
    reduce: Annotated[
        str | None,
        typer.Option(
            help="Means over the corpus: statistics, offsets (key minus query position), or both."
        ),
    ] = None,
    truncate: Truncate = False,
    on_error: OnError = "fail",
    limit: Limit = None,
    seed: Annotated[int, typer.Option(help="Random seed for generated targets.")] = 0,
    batch_tokens: BatchTokens = None,
    allow_nonfinite: AllowNonfinite = False,
    workers: _Workers = 0,
    shard: Annotated[
        str | None,
        typer.Option(help="Part i of N of the job: shards i, i+N, i+2N, …; i counts from 0."),
    ] = None,
    shard_texts: _ShardTexts = 4096,
    *,
    ray: RayFlags,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--no-resume",
            help="Finish the extraction that the folder holds, or refuse it.",
        ),
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read all texts and describe the job.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Extract the attention of a corpus into a store, resumably.

    Example: flaxattn extract corpus.txt --model tiny-bert -o STORE

    Example: flaxattn extract reviews.csv --text-column review --stats entropy -o STORE
    """
    fields = _fields(capture, stats, reduce)
    part = _part(shard)
    dtypes = (dtype, vector_dtype)
    wanted = _captured(fields, stats, layers=layers, heads=heads, dtypes=dtypes)
    from flaxattn.pipeline.progress_reporter import ProgressReporter
    from flaxattn.store.extract_to import ExtractionProgress, extract_to

    ray.leave_accelerators()
    with _stoppable(), ProgressReporter(delay=0, pause=_PAUSE) as progress:
        report = extract_to(
            out,
            model or "tiny-bert",
            _paired(inputs, pair_file or []),
            capture=wanted,
            text_column=text_column,
            pair_column=pair_column,
            id_column=id_column,
            input_format=input_format,
            shard=part,
            resume=resume,
            dry_run=dry_run,
            watcher=ExtractionProgress(progress),
            engine=ray.engine,
            ray_options=ray.options,
            truncate=truncate,
            on_error=on_error,
            seed=seed,
            limit=limit,
            reduce=tuple(named(reduce)),
            shard_texts=shard_texts,
            batch_tokens=batch_tokens,
            workers=workers,
            allow_nonfinite=allow_nonfinite,
        )
    _print_result(report, dry_run, as_json)


def _paired(inputs: list[str], partners: list[str]) -> list[str] | list[tuple[str, str]]:
    """Inputs, with the files beside them where there are any."""
    if not partners:
        return inputs
    if len(inputs) != len(partners):
        raise InputError(
            f"{len(inputs)} inputs and {len(partners)} files after --pair-file\n"
            "each input must have one of its own, in the same order\n"
            "name the files one by one, patterns and folders cannot be paired"
        )
    return list(zip(inputs, partners, strict=True))


def _fields(capture: str | None, stats: str | None, reduce: str | None) -> list[str]:
    """Fields to capture; by default no more than the rest of the command needs."""
    fields = named(capture, _FIELDS, "--capture")
    if stats or (not fields and "statistics" in named(reduce)):
        fields.append("stats")
    return fields if fields or reduce else ["weights"]


def _captured(
    fields: list[str],
    stats: str | None,
    *,
    layers: str | None,
    heads: str | None,
    dtypes: tuple[str, str | None],
) -> "Capture":
    """The capture request that the options describe."""
    from flaxattn.kernels.contract import Capture

    chosen: dict[str, Any] = {
        **{name: True for name in fields if name != "stats"},
        "stats": tuple(named(stats) or named(_STATS)) if "stats" in fields else (),
        "layers": numbers(layers, "--layers"),
        "heads": numbers(heads, "--heads"),
        "dtype": dtypes[0],
        "vector_dtype": dtypes[1],
    }
    try:
        return Capture(**chosen)
    except ValueError as error:
        raise InputError(str(error)) from error


def _part(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)/(\d+)", text, re.ASCII)
    if not found or int(found[1]) >= int(found[2]):
        raise typer.BadParameter(
            f"{text!r} is not a part of a job; expected i/N with i from 0 to N - 1, such as 0/4.",
            param_hint="--shard",
        )
    return int(found[1]), int(found[2])


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends the job at once; a shard that is being written is finished first."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one is meant
        raise StopRequestedError(
            "stopped; finished shards are in the store, and the same command continues"
        )

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_result(report: "JobReport", dry_run: bool, as_json: bool) -> None:
    """Print the report of a job, as JSON or as a table."""
    facts = dataclasses.asdict(report)
    unknown = [name for name in facts if name.startswith("written")] if dry_run else ["free"]
    contents = {name: value for name, value in facts.items() if name not in unknown}
    if as_json:
        typer.echo(json.dumps(contents, default=str, indent=2))
        return
    from flaxattn.files import printable, readable_size
    from flaxattn.pipeline.progress_reporter import duration

    table = Table(show_header=False)
    rows = dict(contents["rows"])
    bad = rows.pop("bad", {})
    left_out = {f"left out: {code}": count for code, count in bad.items()}
    shown = {**contents, "rows": rows.get("rows", 0), **left_out}
    for name, value in shown.items():
        if name in ("bytes", "written_bytes", "free"):
            value = readable_size(value)
        elif name == "seconds":
            value = duration(value)
        elif isinstance(value, int):
            value = f"{value:,}"
        table.add_row(_label(name), Text(printable(str(value))))
    Console(highlight=False).print(table)
    if report.missing and not dry_run:
        typer.echo(f"shards left to others: {report.missing}; the store is not complete yet")


def _label(name: str) -> str:
    return {
        "bytes": "attention before compression",
        "there": "shards that were there",
        "written": "shards written",
        "missing": "shards missing",
        "truncated": "texts cut",
        "rows": "rows found",
    }.get(name, name.replace("_", " "))
