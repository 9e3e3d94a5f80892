# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The commands under `flaxattn train`: they parse, call a recipe's function and print.

`flaxattn.cli` loads this file only when one of them is requested; everything heavy is imported
when one runs.
"""

import dataclasses
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from flaxattn.commands.options import with_options
from flaxattn.errors import InputError

if TYPE_CHECKING:
    from flaxattn.train.recipe import GlueRecipe, Recipe
    from flaxattn.train.run_folder import RunFolder


R = TypeVar("R", bound="Recipe")
FILES_HELP = "Text, JSONL or Parquet files, also .gz."
# A host that is silent for so long is taken for dead; the others then end with an error.
_HEARTBEAT_SECONDS = 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of every training command; their help is in their types."""

    out: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            "-o",
            "--out",
            help="Run directory; the model is written to its model/.",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(help="Recipe as YAML, or the name of one that comes with flaxattn."),
    ] = None
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting, such as steps=1000; repeat for several."),
    ] = None
    on_error: Annotated[
        str | None, typer.Option(help="Rows that cannot be used: fail, skip or quarantine.")
    ] = None
    fresh: Annotated[bool, typer.Option("--fresh", help="Start again instead of resuming.")] = False
    fallback: Annotated[
        bool, typer.Option("--fallback", help="Resume from the checkpoint before a damaged one.")
    ] = False
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Resume with another recipe or other data.")
    ] = False
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write TensorBoard event files.")
    ] = False
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the recipe without training.")
    ] = False
    distributed: Annotated[
        bool,
        typer.Option(
            "--distributed", help="Join the other processes, as SLURM, TPU or MPI describe them."
        ),
    ] = False
    coordinator: Annotated[
        str | None, typer.Option(help="Address:port of process 0, for a run of several processes.")
    ] = None
    processes: Annotated[int | None, typer.Option(help="Number of processes of the run.")] = None
    process: Annotated[int | None, typer.Option(help="Index of this process, from 0.")] = None

    def begin(self, kind: type[R], data: object, **named: object) -> tuple[R, "RunFolder"]:
        """Return the recipe and the run's folder; with `--print-config`, print it and end."""
        from flaxattn.train.run_folder import RunFolder
        from flaxattn.train.settings import read_recipe, to_yaml

        named = {"on_error": self.on_error, **named}
        recipe = read_recipe(kind, self.config, self.change or (), named)
        if self.print_config:
            typer.echo(to_yaml(recipe), nl=False)
            raise typer.Exit
        for name, value in {"--out": self.out, "--data": data}.items():
            if not value:
                raise typer.BadParameter("it is required, and was not given.", param_hint=name)
        assert self.out is not None
        folder = RunFolder(
            self.out,
            fresh=self.fresh,
            fallback=self.fallback,
            allow_changes=self.allow_changes,
            tensorboard=self.tensorboard,
        )
        self.join_processes()  # before jax is used
        return recipe, folder

    def join_processes(self) -> None:
        """Connect to the other processes of the run; does nothing where there are none.

        `--distributed` alone asks the cluster (SLURM, Cloud TPU, Kubernetes, MPI) for them. From
        then on `jax.devices()` are the devices of all hosts.
        """
        options = (self.coordinator, self.processes, self.process)
        if not self.distributed and options == (None, None, None):
            return
        if None in options and options != (None, None, None):
            raise InputError(
                "--coordinator, --processes and --process belong together\n"
                f"received coordinator {options[0]}, processes {options[1]}, process {options[2]}\n"
                "give all three, or --distributed alone where the cluster sets them"
            )
        import jax

        try:
            jax.distributed.initialize(
                *options, heartbeat_timeout_seconds=_HEARTBEAT_SECONDS, initialization_timeout=120
            )
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"cannot join the other processes\n{str(error).splitlines()[0][:200]}\n"
                "check --coordinator, and that all processes were started"
            ) from error


def command_line() -> str:
    """The command as it was typed, for the model's card."""
    return shlex.join(["flaxattn", *sys.argv[1:]])


def print_end(summary: Mapping[str, Any], folder: "RunFolder") -> None:
    """Print how many rows were left out, and where the model is."""
    lost = summary["rows"]["rows"] - summary["rows"]["kept"]
    if lost:
        typer.echo(f"left out {lost} bad rows of {summary['rows']['rows']}")
    typer.echo(f"wrote {(folder.path / 'model').resolve()}")


_MANY = ("--data", "--dev", "--heldout")
app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Files = Annotated[list[Path] | None, typer.Option(help=FILES_HELP)]
Heldout = Annotated[
    list[Path] | None, typer.Option(help="Files to evaluate on; default a part of --data.")
]


class ManyFiles(TyperCommand):
    """A command of which `--data A B` means `--data A --data B`; `--dev`, `--heldout` likewise."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before every further file."""
        words: list[str] = []
        option, first = "", True
        for word in args:
            if word.startswith("-"):
                option, first = (word if word in _MANY else ""), True
                words.append(word)
            else:
                words += [word] if first or not option else [option, word]
                first = False
        return super().parse_args(ctx, words)


@app.callback()
def train() -> None:
    """Train a model from a recipe; a run that was stopped resumes."""


@app.command("bert-mlm", hidden=True)
@app.command("mlm")
@with_options
def mlm(
    data: Files = None,
    more: Annotated[list[Path] | None, typer.Argument(help="More files for --data.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Encoder to start from: built-in name, directory or Hub id.")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="Directory of a tokenizer; default the model's, or learn one."),
    ] = None,
    *,
    options: TrainingOptions,
) -> None:
    """Train an encoder on masked words, new or a checkpoint.

    A new one is a BERT, which predicts next sentences, too; a checkpoint may be of any family of
    encoders. `bert-mlm` is another name of this command.

    Example: flaxattn train mlm --data text/*.txt -o RUN --set steps=1000

    Example: flaxattn train mlm --data corpus.parquet --model tiny-bert --set steps=200 -o RUN
    """
    from flaxattn.train.recipe import PretrainRecipe

    recipe, folder = options.begin(PretrainRecipe, data, model=model)
    from flaxattn.train.bert_mlm import pretrain

    files = [*(data or []), *(more or [])]
    summary = pretrain(files, folder, recipe, tokenizer=tokenizer, command=command_line())
    typer.echo(
        f"held-out masked-LM loss {summary['heldout'][0]['mlm_loss']:.3f} before, "
        f"{summary['heldout'][-1]['mlm_loss']:.3f} after "
        f"{summary['steps']} steps; without context {summary['unigram_loss']:.3f}"
    )
    print_end(summary, folder)


@app.command("gpt2-lm", cls=ManyFiles, hidden=True)
@app.command("lm", cls=ManyFiles)
@with_options
def lm(
    data: Files = None,
    heldout: Heldout = None,
    model: Annotated[
        str | None, typer.Option(help="Decoder to start from: built-in name, directory or Hub id.")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="Directory of a tokenizer; default the model's, or learn one."),
    ] = None,
    *,
    options: TrainingOptions,
) -> None:
    """Train a decoder on text, new or from a checkpoint.

    A new one is a GPT-2, or another type with --set architecture=llama and the like. Samples are
    generated as it learns. `gpt2-lm` is another name of this command.

    Example: flaxattn train lm --data books/*.txt -o RUN --set steps=1000

    Example: flaxattn train lm --data books/*.txt --model tiny-gpt2 --set steps=200 -o RUN
    """
    from flaxattn.train.recipe import LanguageModelRecipe

    recipe, folder = options.begin(LanguageModelRecipe, data, model=model)
    from flaxattn.train.lm import train_lm

    files, others, command = data or [], heldout or [], command_line()
    summary = train_lm(files, folder, recipe, others, tokenizer=tokenizer, command=command)
    before, after = summary["heldout"][0], summary["result"]
    typer.echo(
        f"held-out perplexity {before['perplexity']:.2f} before, {after['perplexity']:.2f} after; "
        f"bits per byte {before['bits_per_byte']:.3f} before, {after['bits_per_byte']:.3f} after "
        f"{summary['best']['step']} of {summary['steps']} steps"
    )
    print_end(summary, folder)


@app.command("translation", cls=ManyFiles)
@with_options
def translation(
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Two text files, source first, or tables: .tsv .csv .jsonl .parquet."),
    ] = None,
    dev: Heldout = None,
    source_lang: Annotated[
        str | None, typer.Option(help="Key or column of the source language.")
    ] = None,
    target_lang: Annotated[
        str | None, typer.Option(help="Key or column of the target language.")
    ] = None,
    *,
    options: TrainingOptions,
) -> None:
    """Train an encoder-decoder on parallel text.

    The model is a Transformer, or a recurrent network with attention.

    Example: flaxattn train translation --data train.de train.en -o RUN

    Example: flaxattn train translation --data pairs.tsv --source-lang de --target-lang en -o RUN
    """
    from flaxattn.train.recipe import TranslationRecipe

    recipe, folder = options.begin(TranslationRecipe, data, source=source_lang, target=target_lang)
    from flaxattn.train.translation import train_translation

    summary = train_translation(data or [], folder, recipe, dev or [], command=command_line())
    result = summary["result"]
    bleu = f"BLEU {result['bleu']:.2f} ({summary['bleu_signature']})  " if "bleu" in result else ""
    typer.echo(
        f"dev: {bleu}perplexity {result['perplexity']:.3f}  accuracy {result['accuracy']:.1%} "
        f"after {summary['steps']} steps"
    )
    print_end(summary, folder)


@app.command("glue")
@with_options
def glue(
    data: Annotated[
        str | None, typer.Option(help="Folder of the task, or of all of GLUE; or datasets:NAME.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="cola sst2 mrpc stsb qqp mnli qnli rte wnli ax.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Built-in name, model directory, or Hugging Face Hub id.")
    ] = None,
    trace_before_after: Annotated[
        int,
        typer.Option(
            min=0, help="Number of dev examples whose attention is stored, before and after."
        ),
    ] = 0,
    *,
    options: TrainingOptions,
) -> None:
    """Fine-tune BERT on a GLUE task, once per seed.

    The model of the seed that is best on the dev set is kept.

    Example: flaxattn train glue --task sst2 --data GLUE --model tiny-bert -o RUN

    Example: flaxattn train glue --task rte --data datasets:glue --set 'seeds=[1,2,3]' -o RUN
    """
    from flaxattn.train.glue_tasks import find_task
    from flaxattn.train.recipe import GlueRecipe

    name = None if task is None else find_task(task).name
    recipe, folder = options.begin(GlueRecipe, data, task=name, model=model)
    assert data is not None
    _finetune(data, folder, recipe, trace_before_after)


@app.command("classify", cls=ManyFiles)
@with_options
def classify(
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Files with texts and labels: .csv .tsv .jsonl .parquet, also .gz."),
    ] = None,
    dev: Heldout = None,
    model: Annotated[
        str | None, typer.Option(help="Built-in name, model directory, or Hugging Face Hub id.")
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(help="Column or key of the text; default text.")
    ] = None,
    pair_column: Annotated[
        str | None, typer.Option(help="Column or key of the second text; default none.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column or key of the label; default label.")
    ] = None,
    regression: Annotated[
        bool, typer.Option("--regression", help="Predict labels as numbers, not as classes.")
    ] = False,
    trace_before_after: Annotated[
        int,
        typer.Option(
            min=0, help="Number of dev examples whose attention is stored, before and after."
        ),
    ] = 0,
    *,
    options: TrainingOptions,
) -> None:
    """Fine-tune an encoder on labels of your own.

    Texts may be pairs. Labels are the values of a column; their names are kept in the model.
    Without --dev a tenth of the examples is kept for evaluation. The model of
    the seed that is best there is kept.

    Example: flaxattn train classify --data train.csv --dev dev.csv -o RUN

    Example: flaxattn train classify --data ratings.csv --label-column stars --regression -o RUN
    """
    from flaxattn.train.recipe import ClassifyRecipe

    columns = {"text_column": text_column, "pair_column": pair_column, "label_column": label_column}
    recipe, folder = options.begin(
        ClassifyRecipe, data, model=model, regression=regression or None, **columns
    )
    _finetune(data or [], folder, recipe, trace_before_after, dev or [])


def _finetune(
    data: str | list[Path],
    folder: "RunFolder",
    recipe: "GlueRecipe",
    traces: int,
    dev: Sequence[Path] = (),
) -> None:
    """Fine-tune, and print the metrics."""
    from flaxattn.train.glue import finetune

    summary = finetune(data, folder, recipe, traces, dev=dev, command=command_line())
    for name, value in summary["metrics"].items():
        spread = "" if value["deviation"] is None else f" ± {value['deviation']:.4f}"
        typer.echo(f"{name} {value['mean']:.4f}{spread}")
    print_end(summary, folder)
    stores = [folder.path / "traces" / when for when in ("before", "after")]
    if traces and all(store.is_dir() for store in stores):
        pair = " ".join(shlex.quote(str(store)) for store in stores)
        typer.echo(f"wrote the attention before and after: flaxattn view {pair} shows it")


def evaluate_classifier(
    data: str,
    model: str,
    task: str | None,
    out: Path | None = None,
    predictions: Path | None = None,
    config: Path | None = None,
    change: list[str] | None = None,
    on_error: str | None = None,
    **columns: str | None,
) -> None:
    """Judge a fine-tuned model; `flaxattn.cli` has the options and their help."""
    from flaxattn.train import glue
    from flaxattn.train.glue_tasks import find_task
    from flaxattn.train.recipe import ClassifyRecipe, GlueRecipe
    from flaxattn.train.settings import read_recipe

    name = None if task is None else find_task(task).name
    named = {"task": name, "model": model, "on_error": on_error, **columns}
    kind = ClassifyRecipe if task is None else GlueRecipe
    recipe = read_recipe(kind, config, change or (), named)
    answer = glue.evaluate(data, recipe, out, predictions)
    for part, found in answer["metrics"].items():
        typer.echo(f"{part}: " + "  ".join(f"{name} {value:.4f}" for name, value in found.items()))
    for place in (predictions if answer["predictions"] else None, out):
        if place is not None:
            typer.echo(f"wrote {place.resolve()}")
