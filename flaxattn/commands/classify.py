# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn classify`: it parses, calls `fa.classify` and prints.

Everything heavy is imported when it runs. `flaxattn.cli` registers it.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

import typer

from flaxattn.commands.head_request import Truncate
from flaxattn.commands.text_arguments import (
    AsJson,
    IsText,
    TextFiles,
    Texts,
    cost,
    named_texts,
    progress,
)
from flaxattn.commands.written_page import PageFile, View, requested_page, write_text_page
from flaxattn.errors import InputError
from flaxattn.files import printable

if TYPE_CHECKING:
    from flaxattn.pipeline.task_predictions import LabelScore


def classify(
    model: Annotated[
        str, typer.Option(help="Sequence classifier: model directory or Hugging Face Hub id.")
    ],
    texts: Texts = None,
    files: TextFiles = None,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Read each text as two, separated by a tab.")
    ] = False,
    top: Annotated[
        int | None, typer.Option(min=1, help="Number of labels to print; default all.")
    ] = None,
    truncate: Truncate = False,
    as_json: AsJson = False,
    view: View = False,
    out: PageFile = None,
    is_text: IsText = False,
) -> None:
    """Print the labels of texts with their probabilities.

    A text has a line: its likeliest label, the probability of that, further labels, and the text.
    With --json, a line per text holds its place, the text and all labels.

    Example: flaxattn classify "The soup was cold." --model RUN/model

    Example: flaxattn classify --file pairs.tsv --pairs --model RUN/model --json
    """
    page = requested_page(view, out)
    lines = named_texts(texts, files, is_text)
    parts = [_parts(place, text, pairs) for place, text in lines]
    from flaxattn.pipeline.task_predictions import classify as labels_of
    from flaxattn.pretrained.from_pretrained import from_pretrained

    loaded = from_pretrained(model)
    second = [part[1] for part in parts] if pairs else None
    message = cost(len(lines), loaded.name, "one forward pass over all texts")
    with progress("classifying", len(lines), message) as advance:
        several = labels_of(loaded, [part[0] for part in parts], second, top, truncate=truncate)
        labels = cast("list[list[LabelScore]]", several)
        advance(len(lines))
    for (place, text), scores in zip(lines, labels, strict=True):
        typer.echo(_as_json(place, text, scores) if as_json else _as_text(text, scores))
    if page is not None:
        write_text_page(loaded, page, *parts[0], truncate=truncate)


def _parts(place: str, text: str, pairs: bool) -> tuple[str, ...]:
    """A text by itself, or the two texts of a pair."""
    if not pairs:
        return (text,)
    parts = text.split("\t")
    if len(parts) != 2 or not all(part.strip() for part in parts):
        raise InputError(
            f"{place} is not a pair: it has {len(parts) - 1} tabs\n"
            "expected two texts with a tab between them\nleave out --pairs for single texts"
        )
    return tuple(parts)


def _as_json(place: str, text: str, scores: Sequence["LabelScore"]) -> str:
    labels = [one._asdict() for one in scores]
    return json.dumps({"place": place, "text": text, "labels": labels}, ensure_ascii=False)


def _as_text(text: str, scores: Sequence["LabelScore"]) -> str:
    shown = "  ".join(f"{printable(one.label)} {one.score:.4f}" for one in scores)
    return f"{shown}\t{printable(text)}"
