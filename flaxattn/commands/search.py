# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn search build|query`: parses, calls, prints. Everything heavy is imported when it runs.

`flaxattn.store.token_index` stores the vectors, `flaxattn.measures.search` compares them.
"""

import dataclasses
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

from flaxattn.commands.head_request import AllowNonfinite, Limit, Truncate
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
            "--output-dir", "-o", "--out", help="Output folder of the index; must be new."
        ),
    ],
    layers: Annotated[str, typer.Option(help="Layers to index, such as 0,5-9.")],
    model: _Model = "tiny-bert",
    kind: Annotated[
        str,
        typer.Option(help="head_output: the output of each head; hidden: the output of the layer."),
    ] = "head_output",
    text_column: Annotated[str, typer.Option(help="Column or key of the text.")] = "text",
    limit: Limit = None,
    truncate: Truncate = False,
    on_error: Annotated[
        str, typer.Option(help="Texts that cannot be used: fail or skip.")
    ] = "fail",
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Number of positions in a batch, padding included.")
    ] = None,
    allow_nonfinite: AllowNonfinite = False,
) -> None:
    """Build an index with a vector of every token, by head.

    Example: flaxattn search build corpus.txt --layers 2 -o INDEX

    Example: flaxattn search build corpus.txt --layers 1,3 --kind hidden -o INDEX
    """
    from flaxattn.commands.head_request import Request
    from flaxattn.commands.text_arguments import cost
    from flaxattn.commands.text_corpus import counted_texts
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.measures.search import (
        Wanted,
        build_head_index,
        bytes_per_token,
        check_wanted,
    )
    from flaxattn.pipeline.progress_reporter import ProgressReporter
    from flaxattn.pretrained.from_pretrained import from_pretrained

    if on_error not in ("fail", "skip"):
        raise typer.BadParameter("choose fail or skip.", param_hint="--on-error")
    request = Request(
        list(inputs),
        out,
        model,
        limit=limit,
        text_column=text_column,
        truncate=truncate,
        batch_tokens=batch_tokens,
        allow_nonfinite=allow_nonfinite,
    )
    bad, wanted = BadRows(on_error), Wanted(kind, numbers(layers, "--layers") or ())
    check_wanted(wanted, out)
    with ProgressReporter() as progress:
        texts = counted_texts(request, progress)
        progress(f"loading {model}", 0)
        loaded = from_pretrained(model)
        size = bytes_per_token(loaded, wanted)
        work = f"one forward pass over all texts; {size:,} bytes are written for each token"
        progress.announce(cost(texts.count or 0, model, work))
        progress.expect("texts", texts.count)
        count = build_head_index(
            loaded,
            texts.read(bad),
            out,
            wanted,
            dataclasses.replace(request.reading(bad), watch=progress),
            settings={"data": texts.describe(), "settings": {"limit": limit, "truncate": truncate}},
        )
    for code, number in sorted(bad.counts.items()):
        typer.echo(f"left out {number} texts: {code}", err=True)
    typer.echo(f"wrote {out.resolve()} with {count:,} texts")


@app.command()
def query(
    index: Annotated[Path, typer.Argument(help="Folder that `flaxattn search build` wrote.")],
    text: Annotated[str, typer.Argument(help="Sentence with the token to search for.")],
    token: Annotated[
        str,
        typer.Option(help="Number of the token, special tokens included, or a word of the text."),
    ],
    head: Annotated[
        str | None,
        typer.Option(
            help="LAYER.HEAD, from 0, such as 8.3; for an index of hidden states a layer "
            "suffices, and the head only names the attention to report."
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
    from flaxattn.measures.search import histograms, nearest, token_vector
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.store.token_index import open_head_index

    text = given_text(text, is_text)
    opened = open_head_index(index)
    layer, number = _head(head, opened.layers)
    place = int(token) if re.fullmatch(r"\d{1,9}", token, re.ASCII) else token
    loaded = from_pretrained(model or opened.facts["model"]["name"])
    position, found, vector = token_vector(loaded, opened, text, place, layer, number)
    hits = nearest(opened, vector, layer, number, top=top, one_per_text=one_per_text)
    counts = histograms(hits)
    if as_json:
        facts = {
            "query": {"text": text, "position": position, "token": found},
            "layer": layer,
            "head": number,
            "kind": opened.kind,
            "searched": len(opened),
            "hits": [_plain(hit) for hit in hits],
            "histograms": counts,
        }
        typer.echo(json.dumps(facts, indent=1))
        return
    where = f"layer {layer}" if number is None else f"head {layer}.{number}"
    title = f"{opened.kind} of {where} at {found!r}: the nearest of {len(opened):,} tokens"
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
        message = f"{text!r} is not a head such as {layers[0]}.0."
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
    from flaxattn.corpus.safe_text import printable

    return Text(printable(text))
