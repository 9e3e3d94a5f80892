# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn fill-mask`: it parses, calls `fa.fill_mask` and prints.

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
    from flaxattn.pretrained.token_probabilities import Filling


MODEL = "tiny-bert"


def fill_mask(
    texts: Texts = None,
    files: TextFiles = None,
    model: Annotated[
        str, typer.Option(help="Built-in name, model directory, or Hugging Face Hub id.")
    ] = MODEL,
    top: Annotated[int, typer.Option(min=1, help="Number of tokens to print for each mask.")] = 5,
    truncate: Truncate = False,
    as_json: AsJson = False,
    view: View = False,
    out: PageFile = None,
    is_text: IsText = False,
) -> None:
    """Predict the tokens behind the masks of texts.

    A text is such as "Paris is the [MASK] of France.", with the mask token of the model. For each
    mask the likeliest tokens are printed with their probability and the filled text. With --json,
    a line per text holds its place, the text and the fillings of each mask.

    Example: flaxattn fill-mask "The cat is very [MASK]." --top 3 --view

    Example: flaxattn fill-mask --file masked.txt --model RUN/model
    """
    page = requested_page(view, out)
    lines = named_texts(texts, files, is_text)
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.pretrained.token_probabilities import fill_mask as fill

    loaded = from_pretrained(model)
    mask = getattr(loaded.tokenizer, "mask_token", "")
    for place, text in lines:
        if mask and mask not in text:
            raise InputError(
                f"{place} has no mask: {printable(text[:60])!r}\n"
                f"expected {mask} at least once\nput it in place of a word"
            )
    message = cost(len(lines), loaded.name, "one forward pass over all texts")
    with progress("filling", len(lines), message) as advance:
        several = fill(loaded, [text for _, text in lines], top, truncate=truncate)
        fillings = cast("list[list[list[Filling]]]", several)
        advance(len(lines))
    for (place, text), masks in zip(lines, fillings, strict=True):
        typer.echo(_as_json(place, text, masks) if as_json else _as_text(text, masks))
    if page is not None:
        write_text_page(loaded, page, lines[0][1], truncate=truncate)


def _as_json(place: str, text: str, masks: Sequence[Sequence["Filling"]]) -> str:
    fields = [[filling._asdict() for filling in fillings] for fillings in masks]
    return json.dumps({"place": place, "text": text, "masks": fields}, ensure_ascii=False)


def _as_text(text: str, masks: Sequence[Sequence["Filling"]]) -> str:
    rows = [printable(text)]
    width = max(len(filling.token) for fillings in masks for filling in fillings)
    for number, fillings in enumerate(masks, 1):
        rows += [f"mask {number} of {len(masks)}"] if len(masks) > 1 else []
        rows += [
            f"  {one.probability:.4f}  {printable(one.token):<{width}}  {printable(one.text)}"
            for one in fillings
        ]
    return "\n".join(rows)
