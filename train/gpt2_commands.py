# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn train gpt2-lm`: it parses, calls and prints.

Everything heavy is imported when it runs.
"""

from pathlib import Path
from typing import Annotated

import typer

from flaxattn.train import options


def gpt2_lm(
    data: Annotated[
        list[Path] | None, typer.Option(help="Text, JSONL or Parquet files, also .gz.")
    ] = None,
    heldout: Annotated[
        list[Path] | None, typer.Option(help="Files to evaluate on; default a part of --data.")
    ] = None,
    out: options.Out = None,
    model: Annotated[
        str | None, typer.Option(help="GPT-2 to start from: built-in name, directory or Hub id.")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="Directory of a tokenizer; default the model's, or learn one."),
    ] = None,
    config: options.Config = None,
    change: options.Change = None,
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
    """Train a GPT-2 on text, new or from a checkpoint.

    Samples are generated as it learns.
    """
    from flaxattn.train.gpt2_recipe import Gpt2Recipe
    from flaxattn.train.settings import read_recipe, to_yaml

    changes = options.changes(change, model=model, on_error=on_error)
    recipe = read_recipe(Gpt2Recipe, config, changes)
    if print_config:
        typer.echo(to_yaml(recipe), nl=False)
        return
    folder = options.run_folder(out, fresh, fallback, allow_changes, tensorboard)
    options.required("--data", data)
    options.join_hosts(distributed, coordinator, processes, process)
    from flaxattn.train.gpt2_lm import train_gpt2_lm

    summary = train_gpt2_lm(
        data or [],
        folder,
        recipe,
        heldout or [],
        tokenizer=tokenizer,
        command=options.command_line(),
    )
    before, after = summary["heldout"][0], summary["result"]
    typer.echo(
        f"held-out perplexity {before['perplexity']:.2f} before, {after['perplexity']:.2f} after; "
        f"bits per byte {before['bits_per_byte']:.3f} before, {after['bits_per_byte']:.3f} after "
        f"{summary['best']['step']} of {summary['steps']} steps"
    )
    options.print_end(summary, folder)
