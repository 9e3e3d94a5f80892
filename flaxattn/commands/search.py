# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn search build|query`: parses, calls, prints. Everything heavy is imported when it runs.

An index is a store of attention; `flaxattn.measures.search` searches it.
"""

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
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
    TextColumn,
    Truncate,
)
from flaxattn.commands.options import numbers
from flaxattn.commands.text_arguments import IsText, given_text

if TYPE_CHECKING:
    from flaxattn.measures.search import Hit
    from flaxattn.measures.search import Token as Found

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_Model = Annotated[str, typer.Option("--model", help="Built-in name, model directory, or Hub id.")]
_AROUND = 30  # characters on both sides of a token
_SHOWN = 8  # bars of a histogram


@app.callback()
def search() -> None:
    """Search a corpus for contexts in which a head acts alike."""


@app.command()
def build(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Sentences with trees (.conllu, also .gz and .zst), or texts as for extract.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--output-dir",
            "-o",
            "--out",
            help="Folder of the store; the same command again finishes one that was begun.",
        ),
    ],
    layers: Annotated[str, typer.Option(help="Layers to index, such as 0,5-9.")],
    model: _Model = "tiny-bert",
    kind: Annotated[
        str,
        typer.Option(help="head_output: the output of each head; hidden: the output of the layer."),
    ] = "head_output",
    text_column: TextColumn = "text",
    limit: Limit = None,
    truncate: Truncate = False,
    on_error: OnError = "fail",
    batch_tokens: BatchTokens = None,
    allow_nonfinite: AllowNonfinite = False,
) -> None:
    """Build an index: a store with a vector of every token, by head.

    `flaxattn extract --capture head_output --stats argmax --vector-dtype float16` makes the same
    store, also on several machines.

    Example: flaxattn search build corpus.txt --layers 2 -o INDEX

    Example: flaxattn search build corpus.txt --layers 1,3 --kind hidden -o INDEX
    """
    from flaxattn.measures.search import check_family, index_capture
    from flaxattn.pipeline.progress_reporter import ProgressReporter
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.store.extract_to import ExtractionProgress, extract_to

    capture = index_capture(kind, numbers(layers, "--layers") or ())
    with ProgressReporter(delay=0) as progress:
        progress(f"loading {model}", 0)
        loaded = from_pretrained(model)
        check_family(loaded)
        report = extract_to(
            out,
            loaded,
            inputs,
            capture=capture,
            text_column=text_column,
            limit=limit,
            truncate=truncate,
            on_error=on_error,
            batch_tokens=batch_tokens,
            allow_nonfinite=allow_nonfinite,
            watcher=ExtractionProgress(progress),
        )
    for code, number in sorted(report.rows.get("bad", {}).items()):
        typer.echo(f"texts left out: {number} ({code})", err=True)
    typer.echo(f"wrote {out.resolve()} with {report.texts:,} texts")


@app.command()
def query(
    index: Annotated[
        Path,
        typer.Argument(
            help="Store of `flaxattn search build`, or any with head_output or hidden states."
        ),
    ],
    text: Annotated[str, typer.Argument(help="Sentence with the token to search for.")],
    token: Annotated[
        str,
        typer.Option(help="Number of the token, special tokens included, or a word of the text."),
    ],
    head: Annotated[
        str | None,
        typer.Option(
            help="LAYER.HEAD, from 0, such as 8.3; for hidden states a layer suffices, and the "
            "head only names the attention to report."
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of contexts.")] = 20,
    one_per_text: Annotated[
        bool, typer.Option("--one-per-text", help="Keep only the best token of each text.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="Model; default the one the index was made with.")
    ] = None,
    is_text: IsText = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Print the contexts most similar to a token of a sentence.

    Example: flaxattn search query INDEX "The cat is sad." --token cat --head 2.1

    Example: flaxattn search query INDEX "The cat is sad." --token 2 --head 2.1 --one-per-text
    """
    from flaxattn.measures.search import (
        histograms,
        nearest,
        stored_layers,
        stored_vectors,
        token_vector,
    )
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.store.open_store import open_store

    text = given_text(text, is_text)
    opened = open_store(index)
    if missing := len(opened.missing):
        typer.echo(f"shards that are missing: {missing}; the others are searched", err=True)
    layer, number = _head(head, stored_layers(opened))
    kind = stored_vectors(opened, layer, number).kind
    place = int(token) if re.fullmatch(r"\d{1,9}", token, re.ASCII) else token
    loaded = from_pretrained(model or opened.plan["model"]["name"])
    position, found, vector = token_vector(loaded, opened, text, place, layer, number)
    hits, searched = nearest(opened, vector, layer, number, top=top, one_per_text=one_per_text)
    counts = histograms(hits)
    if as_json:
        facts = {
            "query": {"text": text, "position": position, "token": found},
            "layer": layer,
            "head": number,
            "kind": kind,
            "searched": searched,
            "hits": [_plain(hit) for hit in hits],
            "histograms": counts,
        }
        typer.echo(json.dumps(facts, indent=1))
        return
    where = f"layer {layer}" if number is None else f"head {layer}.{number}"
    title = f"{kind} of {where} at {found!r}: the nearest of {searched:,} tokens"
    console = Console(highlight=False)
    console.print(_table(title, hits))
    for whose, kinds in counts.items():
        for name, values in kinds.items():
            if values:
                console.print(_shown(f"{whose}, {name}: {_bars(values)}"))


def _head(text: str | None, layers: tuple[int, ...]) -> tuple[int, int | None]:
    """Layer and head of `8.3`; the layer of `8`; the only layer there is."""
    found = re.fullmatch(r"(\d{1,4})(?:\.(\d{1,4}))?", text or "", re.ASCII)
    if text is None and len(layers) == 1:
        return layers[0], None
    if found is None:
        what = "no head was named" if text is None else f"{text!r} is not a head"
        message = f"{what}; name one such as {layers[0]}.0."
        raise typer.BadParameter(message, param_hint="--head")
    return int(found[1]), None if found[2] is None else int(found[2])


def _plain(hit: "Hit") -> dict[str, Any]:
    """A hit as JSON has it."""
    other = None if hit.strongest is None else hit.strongest._asdict()
    return {**hit._asdict(), "token": hit.token._asdict(), "strongest": other}


def _table(title: str, hits: "list[Hit]") -> Table:
    table = Table(title=_shown(title), title_justify="left")
    table.add_column("cosine", justify="right")
    for name in ("text", "context", "attends most to"):
        table.add_column(name, overflow="fold")
    for hit in hits:
        other = "" if hit.strongest is None else _named(hit.strongest)
        table.add_row(f"{hit.similarity:.3f}", _shown(hit.id), _context(hit), _shown(other))
    return table


def _context(hit: "Hit") -> Text:
    """The characters around a token, itself in brackets and bold."""
    start, stop = hit.token.start, hit.token.stop
    before, after = hit.text[max(start - _AROUND, 0) : start], hit.text[stop : stop + _AROUND]
    found = _shown(before)
    found.append(f"[{_shown(hit.text[start:stop])}]", style="bold")
    return found.append(_shown(after))


def _named(token: "Found") -> str:
    return f"{token.token} ({token.position})"


def _bars(values: Mapping[str, int]) -> str:
    shown = [f"{name} {count}" for name, count in itertools.islice(values.items(), _SHOWN)]
    rest = sum(values.values()) - sum(itertools.islice(values.values(), _SHOWN))
    return ", ".join([*shown, *([f"others {rest}"] if rest else [])])


def _shown(text: str) -> Text:
    """Text that is neither markup nor an order to the terminal."""
    from flaxattn.files import printable

    return Text(printable(text))
