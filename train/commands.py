# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The commands under `flaxattn train`: they parse, call a recipe's function and print.

`flaxattn.cli` loads this file only when one of them is asked for.
"""

from pathlib import Path
from typing import Annotated

import typer

from flaxattn.train.glue_commands import glue

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def train() -> None:
    """Train a model from a recipe; a run that was stopped goes on where it was."""


@app.command("bert-mlm")
def bert_mlm(
    data: Annotated[list[Path], typer.Option(help="Text files, paragraphs between blank lines.")],
    out: Annotated[Path, typer.Option(help="Run directory; the model ends up in its model/.")],
    more: Annotated[list[Path] | None, typer.Argument(help="More files for --data.")] = None,
    config: Annotated[Path | None, typer.Option(help="Recipe as YAML.")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, such as steps=1000.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not resume; start again.")] = False,
) -> None:
    """Pretrain BERT from text: masked words and next sentences."""
    from flaxattn.train.bert_mlm import pretrain
    from flaxattn.train.recipe import read_recipe

    recipe = read_recipe(config, change or [])
    summary = pretrain([*data, *(more or [])], out, recipe, fresh)
    typer.echo(
        f"held-out masked-LM loss {summary['heldout'][0]['mlm_loss']:.3f} before, "
        f"{summary['heldout'][-1]['mlm_loss']:.3f} after "
        f"{summary['steps']} steps; without context {summary['unigram_loss']:.3f}"
    )
    typer.echo(f"wrote {(out / 'model').resolve()}")


app.command("glue")(glue)
