# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The page with attention that a command about texts writes where `--view` or `--output` asks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flaxattn.errors import InputError
from flaxattn.files import check_writable

if TYPE_CHECKING:
    from flaxattn.pretrained.pretrained_model import Pretrained
    from flaxattn.trace.trace import Trace

DEFAULT_PAGE = Path("attention.html")
View = Annotated[
    bool, typer.Option("--view", help="Write a page with the attention of the first text.")
]
PageFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", "--out", help=f"That page; default {DEFAULT_PAGE}."),
]


def requested_page(view: bool, out: Path | None) -> Path | None:
    """Return the path of the page that is requested; None without one."""
    if not view and out is None:
        return None
    check_writable(out or DEFAULT_PAGE, "the page")
    return out or DEFAULT_PAGE


def write_text_page(model: "Pretrained", path: Path, *texts: str, truncate: bool = False) -> None:
    """Run a model on a text or a pair once more, and write the page of its attention."""
    from flaxattn.kernels.contract import Capture

    capture = Capture(weights=True, query=True, key=True, value=True)
    write_page(model.trace(*texts, capture=capture, truncate=truncate), path)


def write_page(trace: "Trace", path: Path) -> None:
    """Write the page of a trace, without its vectors where they are too many, and say so."""
    from flaxattn.files import readable_size
    from flaxattn.views.trace_page import without_vectors
    from flaxattn.views.trace_views import head_view

    try:
        page = head_view(trace)
    except InputError as error:  # vectors of a long text are too many for a browser
        page = head_view(without_vectors(trace))
        typer.echo(f"no Neurons tab: {str(error).splitlines()[0]}", err=True)
    page.save(path)
    typer.echo(f"wrote {path.resolve()} ({readable_size(path.stat().st_size)})", err=True)


ALTERNATIVES = 5
"""Number of likeliest tokens that a page names after each token."""


def requested_predictions(model: "Pretrained") -> dict[str, Any]:
    """Return the options of a traced pass that request predictions, where the model has them."""
    if not model.writes:
        return {}
    return {"predictions": min(ALTERNATIVES, model.target_size)}


def with_contributions(model: "Pretrained", trace: "Trace") -> "Trace":
    """The trace with contributions to the logits, where the model is a decoder by itself."""
    from flaxattn.attribution.logit_lens import logit_contributions
    from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder

    if trace.predictions is None or not isinstance(model, PretrainedDecoder):
        return trace
    return logit_contributions(model, trace)
