# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn extract`: parses, calls, prints. Everything heavy is imported when it runs.

The output folder is claimed before a model is loaded. `flaxattn.cli` registers the command.
"""

import dataclasses
import json
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flaxattn.commands import ray_flags
from flaxattn.commands.head_request import (
    BatchTokens,
    Limit,
    OnError,
    SecondColumn,
    TextColumn,
    Truncate,
)
from flaxattn.errors import InputError, StopRequestedError
from flaxattn.store.folder_lock import held

if TYPE_CHECKING:
    from flaxattn.kernels.contract import Capture
    from flaxattn.pretrained.pretrained_model import Pretrained
    from flaxattn.store.job import JobReport

_FIELDS = ("weights", "scores", "query", "key", "value", "head_output", "stats")
_STATS = "entropy,max,distance"
_PairFiles = Annotated[
    list[str] | None,
    typer.Option(help="Text file whose line i belongs to line i of the input; one for each."),
]
_Workers = Annotated[
    int,
    typer.Option(min=0, help="Number of processes that tokenize texts; 0 tokenizes in a thread."),
]


def extract(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="txt, jsonl, csv, tsv, parquet or arrow, also .gz and .zst; patterns; folders of "
            "a data set; - reads standard input.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the store.")],
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
    input_format: Annotated[
        str | None,
        typer.Option(
            help="Format of standard input and of files without an extension; default txt."
        ),
    ] = None,
    capture: Annotated[
        str | None,
        typer.Option(
            help=f"Fields to capture, separated by commas: {', '.join(_FIELDS)}; default "
            "weights, with --stats or --reduce only what these need."
        ),
    ] = None,
    stats: Annotated[
        str | None,
        typer.Option(
            help="Statistics to capture, separated by commas: lse, entropy, max, argmax, topk(k), "
            f"distance, sum_sq, received; default {_STATS}."
        ),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Layers to capture, such as 0,5-9; default all.")
    ] = None,
    heads: Annotated[
        str | None, typer.Option(help="Heads to capture, such as 0,5-9; default all.")
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Dtype of stored weights: float32, float16, bfloat16 or uint8.")
    ] = "float16",
    reduce: Annotated[
        str | None,
        typer.Option(
            help="Means over the corpus: statistics, offsets (key minus query position), or both."
        ),
    ] = None,
    truncate: Truncate = False,
    on_error: OnError = "fail",
    max_texts: Limit = None,
    seed: Annotated[int, typer.Option(help="Random seed for generated targets.")] = 0,
    batch_tokens: BatchTokens = None,
    workers: _Workers = 0,
    shard: Annotated[
        str | None,
        typer.Option(help="Part i of N of the job: shards i, i+N, i+2N, …; i counts from 0."),
    ] = None,
    shard_texts: Annotated[
        int, typer.Option(min=1, help="Largest number of texts per shard.")
    ] = 4096,
    engine: ray_flags.Engine = "local",
    ray_address: ray_flags.Address = None,
    ray_workers: ray_flags.Workers = None,
    ray_gpus: ray_flags.Gpus = None,
    ray_cpus: ray_flags.Cpus = None,
    ray_logs: ray_flags.Logs = False,
    fresh: Annotated[
        bool,
        typer.Option("--fresh/--resume", help="Refuse a folder that already holds an extraction."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Describe the job without writing anything.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Extract the attention of a corpus into a store, resumably.

    Read it with flaxattn.open_store, with plain zarr and with pyarrow.
    """
    part = _part(shard)
    settings = {
        "truncate": truncate,
        "on_error": on_error,
        "seed": seed,
        "max_texts": max_texts,
        "reduce": tuple(_words(reduce)),
        "shard_texts": shard_texts,
    }
    asked = _Request(
        _paired(inputs, pair_file or []),
        input_format,
        (text_column, pair_column, id_column),
        _captured(_fields(capture, stats, reduce), stats, layers=layers, heads=heads, dtype=dtype),
        settings,
        {"batch_tokens": batch_tokens, "workers": workers},
        tuple(model or ["tiny-bert"]),
        engine,
        ray_flags.given(ray_address, ray_workers, ray_gpus, ray_cpus, ray_logs),
    )
    if dry_run:
        _surveyed(out, asked, as_json)
        return
    with _stoppable(), held(out, part):
        report = _run(out, asked, part, fresh)
    _tell(dataclasses.asdict(report), as_json)
    if report.missing and not as_json:
        typer.echo(f"{report.missing} shards are left to others; the store is not complete yet")


@dataclasses.dataclass(frozen=True)
class _Request:
    """The command line, sorted by who wants to know."""

    inputs: Sequence[str | tuple[str, str]]
    kind: str | None
    columns: tuple[str, str | None, str | None]
    capture: Mapping[str, Any]
    settings: Mapping[str, Any]
    options: Mapping[str, Any]
    models: tuple[str, ...]
    engine: str
    ray: Mapping[str, Any]

    def asked(self) -> Any:
        """The same as `extraction.job` has it."""
        from flaxattn.corpus.texts import Columns
        from flaxattn.store.job import JobSpec
        from flaxattn.store.job_plan import Settings

        return JobSpec(
            self.inputs,
            self.request(),
            Columns(*self.columns),
            Settings(**self.settings),
            self.kind,
        )

    def request(self) -> "Capture":
        """Return the capture request that the options describe."""
        from flaxattn.kernels.contract import Capture

        try:
            return Capture(**self.capture)
        except ValueError as error:
            raise InputError(str(error)) from error

    def load(self) -> "Pretrained | dict[str, Pretrained]":
        """The model, or several by name."""
        from flaxattn.pretrained.from_pretrained import from_pretrained

        if len(self.models) == 1:
            return from_pretrained(self.models[0])
        names = [Path(model).name for model in self.models]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(
                f"two models are called {twice[0]!r}, and so would their stores be\n"
                "rename a directory, or extract one after the other"
            )
        return {n: from_pretrained(m) for n, m in zip(names, self.models, strict=True)}


def _run(out: Path, request: _Request, part: tuple[int, int] | None, fresh: bool) -> "JobReport":
    from flaxattn.commands.extract_progress import ExtractionProgress
    from flaxattn.pipeline.extraction import Options
    from flaxattn.store import extract_to as run
    from flaxattn.store.engines import engine_of

    if fresh:
        run.refuse_started(out)
    if request.engine != "local":
        import jax

        jax.config.update("jax_platforms", "cpu")  # accelerators here belong to the workers
    asked, how = request.asked(), Options(**request.options)
    with (
        engine_of(request.engine, request.ray, how) as commit,
        ExtractionProgress(Console(stderr=True)) as watcher,
    ):
        return run.run(out, request.load(), asked, how, part=part, watcher=watcher, commit=commit)


def _surveyed(out: Path, request: _Request, as_json: bool) -> None:
    from flaxattn.commands.extract_progress import ExtractionProgress
    from flaxattn.store.dry_run import survey

    asked = request.asked()
    with ExtractionProgress(Console(stderr=True)) as watcher:
        report, free = survey(out, request.load(), asked, watcher)
    told = dataclasses.asdict(report)
    told = {name: value for name, value in told.items() if not name.startswith("written")}
    _tell({**told, "free": free}, as_json)


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
    fields = _words(capture)
    if unknown := [name for name in fields if name not in _FIELDS]:
        raise typer.BadParameter(
            f"{unknown[0]!r} is none of {', '.join(_FIELDS)}.", param_hint="--capture"
        )
    if stats or (not fields and "statistics" in _words(reduce)):
        fields.append("stats")
    return fields if fields or reduce else ["weights"]


def _captured(
    fields: list[str], stats: str | None, *, layers: str | None, heads: str | None, dtype: str
) -> dict[str, Any]:
    """Arguments of a `Capture`."""
    names = _words(stats) or _words(_STATS)
    return {
        **{name: True for name in fields if name != "stats"},
        "stats": tuple(names) if "stats" in fields else (),
        "layers": _numbers(layers, "--layers"),
        "heads": _numbers(heads, "--heads"),
        "dtype": dtype,
    }


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    """The numbers in a list such as 0,5-9."""
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part, re.ASCII)
        if not ends:
            raise typer.BadParameter(
                f"{text!r} is not a list of numbers such as 0,5-9.", param_hint=option
            )
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return tuple(found)


def _part(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)/(\d+)", text, re.ASCII)
    if not found or int(found[1]) >= int(found[2]):
        raise typer.BadParameter(
            f"{text!r} is no part of a job; expected i/N with i from 0 to N - 1, such as 0/4.",
            param_hint="--shard",
        )
    return int(found[1]), int(found[2])


@contextmanager
def _stoppable() -> Iterator[None]:
    """SIGTERM ends the job at once; a shard that is being written is finished first."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one is meant
        raise StopRequestedError(
            "stopped; finished shards are in the store, and the same command goes on"
        )

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(said: Mapping[str, Any], as_json: bool) -> None:
    """Print the report of a job, as JSON or as a table."""
    if as_json:
        typer.echo(json.dumps(said, default=str, indent=2))
        return
    from flaxattn.commands.extract_progress import amount, duration
    from flaxattn.corpus.safe_text import printable

    table = Table(show_header=False)
    rows = dict(said["rows"])
    bad = rows.pop("bad", {})
    left_out = {f"left out: {code}": count for code, count in bad.items()}
    shown = {**said, "rows": rows.get("rows", 0), **left_out}
    for name, value in shown.items():
        if name in ("bytes", "written_bytes", "free"):
            value = amount(value)
        elif name == "seconds":
            value = duration(value)
        elif isinstance(value, int):
            value = f"{value:,}"
        table.add_row(_label(name), Text(printable(str(value))))
    Console(highlight=False).print(table)


def _label(name: str) -> str:
    return {
        "bytes": "bytes before compression",
        "there": "shards that were there",
        "written": "shards written",
        "missing": "shards missing",
        "truncated": "texts cut",
        "rows": "rows found",
    }.get(name, name.replace("_", " "))
