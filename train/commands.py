# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The commands under `flaxattn train`: they parse, call a recipe's function and print.

`flaxattn.cli` loads this file only when one of them is asked for.
"""

from pathlib import Path
from typing import Annotated

import typer

from flaxattn.train import options
from flaxattn.train.glue_commands import glue
from flaxattn.train.gpt2_commands import gpt2_lm
from flaxattn.train.translation_commands import ManyFiles, translation

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def train() -> None:
    """Train a model from a recipe; a run that was stopped goes on where it was."""


@app.command("bert-mlm")
def bert_mlm(
    data: Annotated[
        list[Path] | None, typer.Option(help="Text, JSONL or Parquet files, also .gz.")
    ] = None,
    out: options.Out = None,
    more: Annotated[list[Path] | None, typer.Argument(help="More files for --data.")] = None,
    config: options.Config = None,
    change: options.Change = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Directory of a tokenizer; default: learn one.")
    ] = None,
    on_error: options.OnError = None,
    fresh: options.Fresh = False,
    fallback: options.Fallback = False,
    allow_changes: options.AllowChanges = False,
    tensorboard: options.TensorBoard = False,
    print_config: options.PrintConfig = False,
    distributed: options.Distributed = False,
    coordinator: options.Coordinator = None,
    processes: options.Processes = None,
    process: options.Process = None,
) -> None:
    """Pretrain BERT from text: masked words and next sentences."""
    from flaxattn.train.recipe import PretrainRecipe
    from flaxattn.train.settings import read_recipe, to_yaml

    changes = options.changes(change, on_error=on_error)
    recipe = read_recipe(PretrainRecipe, config, changes)
    if print_config:
        typer.echo(to_yaml(recipe), nl=False)
        return
    folder = options.run_folder(out, fresh, fallback, allow_changes, tensorboard)
    options.required("--data", data)
    options.join_hosts(distributed, coordinator, processes, process)
    from flaxattn.train.bert_mlm import pretrain

    files = [*(data or []), *(more or [])]
    summary = pretrain(files, folder, recipe, tokenizer=tokenizer, command=options.command_line())
    typer.echo(
        f"held-out masked-LM loss {summary['heldout'][0]['mlm_loss']:.3f} before, "
        f"{summary['heldout'][-1]['mlm_loss']:.3f} after "
        f"{summary['steps']} steps; without context {summary['unigram_loss']:.3f}"
    )
    options.print_end(summary, folder)


app.command("glue")(glue)
app.command("gpt2-lm", cls=ManyFiles)(gpt2_lm)
app.command("translation", cls=ManyFiles)(translation)
