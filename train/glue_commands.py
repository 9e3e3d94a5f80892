# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn train glue` and `flaxattn evaluate`: they parse, call and print.

Everything heavy is imported when one of them runs.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flaxattn.train.recipe import GlueRecipe

Task = Annotated[str | None, typer.Option(help="cola sst2 mrpc stsb qqp mnli qnli rte wnli ax.")]
Data = Annotated[
    str | None, typer.Option(help="Folder of the task, or of all of GLUE; or datasets:NAME.")
]
Model = Annotated[
    str | None, typer.Option(help="Built-in name, model directory, or Hugging Face Hub id.")
]
Config = Annotated[Path | None, typer.Option(help="Recipe as YAML.")]
Change = Annotated[
    list[str] | None, typer.Option("--set", help="One setting, such as seeds=[1,2,3]; repeat.")
]
OnError = Annotated[
    str | None, typer.Option(help="Rows that cannot be used: fail, skip or quarantine.")
]


def glue(
    data: Data = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; model/ is in it.")] = None,
    task: Task = None,
    model: Model = None,
    config: Config = None,
    change: Change = None,
    on_error: OnError = None,
    trace_before_after: Annotated[
        int, typer.Option(help="Dev examples whose attention is kept, before and after.")
    ] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not resume; start again.")] = False,
    fallback: Annotated[
        bool, typer.Option("--fallback", help="Go on from the checkpoint before a damaged one.")
    ] = False,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Go on with another recipe or other data.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the recipe and do nothing.")
    ] = False,
) -> None:
    """Fine-tune BERT on a task of GLUE, once per seed; the best on the dev set counts."""
    recipe = _recipe(config, change, task, model, on_error)
    if print_config:
        from flaxattn.train.settings import to_yaml

        typer.echo(to_yaml(recipe), nl=False)
        return
    for name, value in (("--data", data), ("--out", out)):
        if value is None:
            raise typer.BadParameter("it is missing; name a folder", param_hint=name)
    from flaxattn.train.glue import finetune
    from flaxattn.train.run_folder import RunFolder

    assert data is not None
    assert out is not None
    folder = RunFolder(out, fresh=fresh, fallback=fallback, allow_changes=allow_changes)
    summary = finetune(data, folder, recipe, trace_before_after)
    for name, value in summary["metrics"].items():
        spread = "" if value["deviation"] is None else f" ± {value['deviation']:.4f}"
        typer.echo(f"{name} {value['mean']:.4f}{spread}")
    lost = summary["rows"]["rows"] - summary["rows"]["kept"]
    if lost:
        typer.echo(f"left out {lost} bad rows of {summary['rows']['rows']}")
    typer.echo(f"wrote {(out / 'model').resolve()}")


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
