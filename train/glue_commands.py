# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn train glue` and `flaxattn evaluate`: they parse, call and print.

Everything heavy is imported when one of them runs.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flaxattn.train import options

if TYPE_CHECKING:
    from flaxattn.train.recipe import GlueRecipe

Task = Annotated[str | None, typer.Option(help="cola sst2 mrpc stsb qqp mnli qnli rte wnli ax.")]
Data = Annotated[
    str | None, typer.Option(help="Folder of the task, or of all of GLUE; or datasets:NAME.")
]
Model = Annotated[
    str | None, typer.Option(help="Built-in name, model directory, or Hugging Face Hub id.")
]


def glue(
    data: Data = None,
    out: options.Out = None,
    task: Task = None,
    model: Model = None,
    config: options.Config = None,
    change: options.Change = None,
    on_error: options.OnError = None,
    trace_before_after: Annotated[
        int,
        typer.Option(
            min=0, help="Number of dev examples whose attention is stored, before and after."
        ),
    ] = 0,
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
    """Fine-tune BERT on a GLUE task, once per seed.

    The best seed on the dev set counts.
    """
    recipe = _recipe(config, change, task, model, on_error)
    if print_config:
        from flaxattn.train.settings import to_yaml

        typer.echo(to_yaml(recipe), nl=False)
        return
    folder = options.run_folder(out, fresh, fallback, allow_changes, tensorboard)
    options.required("--data", data)
    assert data is not None
    options.join_hosts(distributed, coordinator, processes, process)
    from flaxattn.train.glue import finetune

    summary = finetune(data, folder, recipe, trace_before_after, command=options.command_line())
    for name, value in summary["metrics"].items():
        spread = "" if value["deviation"] is None else f" ± {value['deviation']:.4f}"
        typer.echo(f"{name} {value['mean']:.4f}{spread}")
    options.print_end(summary, folder)


def evaluate(
    data: str,
    model: str,
    task: str,
    out: Path | None = None,
    predictions: Path | None = None,
    config: Path | None = None,
    change: list[str] | None = None,
    on_error: str | None = None,
) -> None:
    """Judge a fine-tuned model; `flaxattn.cli` has the options and their help.

    Args:
        data: folder of the task, or of all of GLUE.
        model: directory of a fine-tuned model.
        task: name of the task.
        out: gets the metrics as JSON.
        predictions: folder for GLUE's files of the test sets.
        config: recipe as YAML.
        change: `key=value` pairs.
        on_error: policy for bad rows.
    """
    from flaxattn.train import glue_evaluate

    recipe = _recipe(config, change, task, model, on_error)
    answer = glue_evaluate.evaluate(data, recipe, out, predictions)
    for part, found in answer["metrics"].items():
        typer.echo(f"{part}: " + "  ".join(f"{name} {value:.4f}" for name, value in found.items()))
    for place in (predictions if answer["predictions"] else None, out):
        if place is not None:
            typer.echo(f"wrote {place.resolve()}")


def _recipe(
    config: Path | None,
    change: list[str] | None,
    task: str | None,
    model: str | None,
    on_error: str | None,
) -> "GlueRecipe":
    """The recipe of a file, changed by `--set` and then by the options with names of their own."""
    import dataclasses

    from flaxattn.train.glue_tasks import find_task
    from flaxattn.train.recipe import GlueRecipe
    from flaxattn.train.settings import build, read_recipe

    recipe = read_recipe(GlueRecipe, config, change or [])
    given = {"task": task, "model": model, "on_error": on_error}
    named = {name: value for name, value in given.items() if value is not None}
    checked = build(GlueRecipe, named, "options")
    changes = {name: getattr(checked, name) for name in named}
    recipe = dataclasses.replace(recipe, **changes)
    return dataclasses.replace(recipe, task=find_task(recipe.task).name)
