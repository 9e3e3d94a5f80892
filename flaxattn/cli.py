# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The `flaxattn` command: parses, calls, prints. It computes nothing.

Exit codes: 0 done, 1 damage found or a failure that nobody foresaw, 2 wrong use, or input or a
place that cannot be used (a full disk, say), 75 stopped by SIGTERM with its state saved, so that
the same command continues, 130 interrupted. An error is at most three lines; `--debug` shows the
traceback.
"""

import importlib
import logging
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from flaxattn import __version__
from flaxattn.commands import (
    ablate,
    answer,
    circuits,
    classify,
    compare,
    evaluate,
    extract,
    faithfulness,
    fill_mask,
    generate,
    heads,
    lens,
    patch,
    probe,
    roles,
    search,
    stats,
    store,
    translate,
    view,
    weights,
)
from flaxattn.errors import FlaxattnError, StopRequestedError
from flaxattn.files import check_folder, check_writable, readable_size
from flaxattn.pipeline.allocator import keep_freed_memory
from flaxattn.pipeline.progress_reporter import PROGRESS, ProgressReporter

app = typer.Typer(
    name="flaxattn",
    help="Transformers in JAX that return their attention.",
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
_INTERRUPTED = 130  # what Typer makes of Ctrl-C too
_STOPPED = 75  # EX_TEMPFAIL: try again
_out = Console(soft_wrap=True, highlight=False)

Model = Annotated[
    str, typer.Option("--model", help="Built-in name, model directory, or Hugging Face Hub id.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"flaxattn {__version__}")
        raise typer.Exit


_VERSION = typer.Option(
    "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Log models, kernels and compiled programs."),
    ] = False,
    version: Annotated[bool, _VERSION] = False,
) -> None:
    del debug, version  # `main` reads debug itself: it must know even if parsing fails
    if quiet and verbose:
        raise typer.BadParameter("it excludes --verbose", param_hint="--quiet")
    PROGRESS.setLevel(logging.WARNING if quiet else logging.INFO)
    if verbose:
        logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("flaxattn").setLevel(logging.DEBUG if verbose else logging.NOTSET)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--output-dir", "-o", "--out", help="Output folder.")] = Path(
        "flaxattn-demo"
    ),
    model: Model = "tiny-bert",
) -> None:
    """Extract, measure and show attention on built-in sentences.

    Example: flaxattn demo --output-dir DEMO

    Example: flaxattn demo --model tiny-gpt2
    """
    from flaxattn.commands.demo import run

    run(out, model, _out)


@app.command()
def doctor(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Built-in model, directory, GGUF file or Hub id to report on; default none."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a list.")] = False,
) -> None:
    """Report on the installation, or on a model.

    Prints versions, devices and the attention kernel in use. For a model, it reads configuration,
    tokenizer and the headers of the files, not the parameters, and reports its type, which files
    are applied or have no effect, and what prevents it from opening; the exit status is then 1.

    Example: flaxattn doctor tiny-bert

    Example: flaxattn doctor RUN/model --json
    """
    if model is not None:
        from flaxattn.commands.model_report import as_json as report_json
        from flaxattn.commands.model_report import as_text as report_text
        from flaxattn.commands.model_report import findings, opens

        found = findings(model)
        with warnings.catch_warnings(action="ignore"):  # the findings name their reasons
            typer.echo((report_json if as_json else report_text)(model, found))
        if not opens(found):
            raise typer.Exit(1)
        return
    from flaxattn.commands import doctor as report

    typer.echo(report.as_json() if as_json else report.as_text())


@app.command()
def bench(
    case: Annotated[
        list[str] | None, typer.Option(help="Name of a case; repeat for several.")
    ] = None,
    request: Annotated[
        list[str] | None, typer.Option(help="Name of a request; repeat for several.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Dtype of the arrays; default bfloat16, on CPU float32.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="Number of rounds in which each contender is timed.")
    ] = 20,
    seed: Annotated[int, typer.Option(help="Random seed of the arrays.")] = 0,
    torch_python: Annotated[
        str | None, typer.Option(help="Python with torch to compare with; '' for no torch.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--output", "-o", "--out", help="File for the results.")
    ] = Path("flaxattn-bench.json"),
) -> None:
    """Time attention beside plain XLA, cuDNN and torch.

    Example: flaxattn bench --rounds 5 -o bench.json

    Example: flaxattn bench --dtype float32 --torch-python ''
    """
    from flaxattn.benchmarks import bench as benchmark

    try:
        settings = benchmark.BenchSettings(
            cases=tuple(case or ()),
            requests=tuple(request or benchmark.REQUESTS),
            dtype=dtype,
            rounds=rounds,
            seed=seed,
            torch_python=torch_python,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    check_writable(out, "the results")
    benchmark.measure(settings, out, typer.echo)


app.command()(view.view)
app.command()(extract.extract)
app.command()(compare.compare)
app.command()(ablate.ablate)
app.command()(patch.patch)
app.command()(faithfulness.faithfulness)
app.command()(generate.generate)
app.command()(translate.translate)
app.command("fill-mask")(fill_mask.fill_mask)
app.command()(answer.answer)
app.command()(classify.classify)
app.command()(evaluate.evaluate)
app.command()(stats.stats)
app.command()(roles.roles)
app.command()(probe.probe)
app.command()(weights.weights)
app.command()(circuits.circuits)
app.command()(heads.heads)
app.command()(lens.lens)
app.add_typer(store.app, name="store")
app.add_typer(search.app, name="search")

_tokenizer = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(_tokenizer, name="tokenizer")


@_tokenizer.callback()
def tokenizer() -> None:
    """Train a tokenizer."""


@_tokenizer.command("train")
def train_tokenizer(
    files: Annotated[list[Path], typer.Argument(help="Text, JSONL or Parquet files, also .gz.")],
    out: Annotated[
        Path, typer.Option("--output-dir", "-o", "--out", help="Output folder for the tokenizer.")
    ],
    vocab_size: Annotated[
        int, typer.Option(help="Size of the vocabulary, the five special tokens included.")
    ] = 30522,
    lowercase: Annotated[
        bool, typer.Option("--lowercase/--cased", help="Fold case and strip accents.")
    ] = True,
    max_length: Annotated[
        int, typer.Option(help="Longest input in tokens that the tokenizer declares.")
    ] = 512,
    text_column: Annotated[
        str, typer.Option(help="Column or key of the text in JSONL, Parquet, CSV and TSV.")
    ] = "text",
    on_error: Annotated[
        str, typer.Option(help="Rows that cannot be used: fail, skip or quarantine.")
    ] = "fail",
) -> None:
    """Learn a WordPiece vocabulary from files of any size.

    Example: flaxattn tokenizer train text/*.txt -o TOKENIZER

    Example: flaxattn tokenizer train corpus.parquet --text-column body --cased -o TOKENIZER
    """
    training = importlib.import_module("flaxattn.train.corpus")
    check_folder(out)
    size = sum(path.stat().st_size for path in files if path.is_file())
    with ProgressReporter() as progress:
        progress.announce(
            f"{len(files):,} files, {readable_size(size)}: all of their text is read twice"
        )
        learnt, bad = training.learn_tokenizer(
            files,
            out,
            vocab_size,
            lowercase,
            max_length=max_length,
            text_column=text_column,
            on_error=on_error,
            watch=progress,
        )
    if left_out := sum(bad.counts.values()):
        typer.echo(f"left out {left_out} lines or rows that cannot be used")
    typer.echo(f"wrote {learnt.vocab_size} tokens to {out.resolve()}")


class _LazyTrain(TyperGroup):
    """`flaxattn train …`: its commands live in `flaxattn.train`, loaded when one is requested."""

    def _loaded(self) -> Any:
        commands = importlib.import_module("flaxattn.train.commands")
        return typer.main.get_command(commands.app)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the recipes."""
        return self._loaded().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of one recipe."""
        return self._loaded().get_command(ctx, cmd_name)


_train = typer.Typer(cls=_LazyTrain, rich_markup_mode=None)
app.add_typer(_train, name="train", help="Train a model from a recipe.")


@_train.callback()
def train() -> None:
    """Train a model from a recipe."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    if arguments is None:  # the process is ours
        keep_freed_memory()
        arguments = sys.argv[1:]
    arguments = arguments or ["--help"]
    command = typer.main.get_command(app)
    try:
        code = command.main(arguments, prog_name="flaxattn", standalone_mode=False) or 0
    except (typer.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except StopRequestedError as stopped:
        return _fail(str(stopped), _STOPPED)
    except Exception as error:
        if "--debug" in arguments:
            raise
        if isinstance(error, FlaxattnError):
            from flaxattn.commands.options import in_options, options_of

            return _fail(in_options(str(error), options_of(command, arguments)), 2)
        return _report(error, command, arguments)
    return _fail("interrupted", code) if code == _INTERRUPTED else code


def _report(error: Exception, command: Any, arguments: list[str]) -> int:
    """Print an error in at most three lines; wrong use has an exit status of its own."""
    from flaxattn.commands.options import plain_value, typed_command

    if format_message := getattr(error, "format_message", None):  # wrong use, found by Typer
        message = plain_value(format_message(), arguments)
        return _fail(f"{message}\nSee: {typed_command(command, arguments)} --help", 2)
    if "jax" in sys.modules:
        from flaxattn.commands.doctor import missing_device

        if reason := missing_device():
            return _fail(reason, 2)
    if isinstance(error, OSError):
        place = f" {error.filename}" if error.filename else ""
        return _fail(f"{error.strerror or error}{place}", 1)
    lines = str(error).splitlines() or [""]
    return _fail(f"{type(error).__name__}: {lines[0]}\n`flaxattn --debug …` shows where.", 1)


def _fail(message: str, code: int) -> int:
    typer.echo(f"error: {message}", err=True)
    return code
