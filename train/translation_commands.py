# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn train translation`: it parses, calls and prints.

Everything heavy is imported when it runs. What a trained model is used with is in
`flaxattn.commands.translate`.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from flaxattn.train import options

Data = Annotated[
    list[Path] | None,
    typer.Option(help="Two text files, source first, or tables: .tsv .csv .jsonl .parquet."),
]
_MANY = ("--data", "--dev", "--heldout")


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


def translation(
    data: Data = None,
    dev: Annotated[
        list[Path] | None, typer.Option(help="Files to evaluate on; default a part of --data.")
    ] = None,
    out: options.Out = None,
    source_lang: Annotated[
        str | None, typer.Option(help="Key or column of the source language.")
    ] = None,
    target_lang: Annotated[
        str | None, typer.Option(help="Key or column of the target language.")
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
    """Train an encoder-decoder on parallel text.

    The model is a Transformer, or a recurrent network with attention.
    """
    from flaxattn.train.settings import read_recipe, to_yaml
    from flaxattn.train.translation_recipe import TranslationRecipe

    changes = options.changes(change, source=source_lang, target=target_lang, on_error=on_error)
    recipe = read_recipe(TranslationRecipe, config, changes)
    if print_config:
        typer.echo(to_yaml(recipe), nl=False)
        return
    folder = options.run_folder(out, fresh, fallback, allow_changes, tensorboard)
    options.required("--data", data)
    options.join_hosts(distributed, coordinator, processes, process)
    from flaxattn.train.translation import train_translation

    summary = train_translation(
        data or [], folder, recipe, dev or [], command=options.command_line()
    )
    result = summary["result"]
    told = f"BLEU {result['bleu']:.2f} ({summary['bleu_signature']})  " if "bleu" in result else ""
    typer.echo(
        f"dev: {told}perplexity {result['perplexity']:.3f}  accuracy {result['accuracy']:.1%} "
        f"after {summary['steps']} steps"
    )
    options.print_end(summary, folder)
