# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn view`: parses, calls, prints. Everything heavy is imported when it runs.

A source is a text, a trace file or a store; each becomes traces, and each trace a page. A new view
is a row in `VIEWS`.
"""

import dataclasses
import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from flaxattn.commands.head_request import AllowNonfinite
from flaxattn.commands.options import named, numbers
from flaxattn.commands.text_arguments import IsText, check_no_model, check_no_path, given_text
from flaxattn.commands.written_page import requested_predictions, with_contributions
from flaxattn.files import check_writable

if TYPE_CHECKING:
    from flaxattn.store.open_store import Store
    from flaxattn.trace.trace import Trace


_OF_LOSS = ("relevance", "chefer")
KINDS = ("norm", "rollout", "effective", *_OF_LOSS)
_ABLATION = "ablation"
_OF_MODEL = ("norm", *_OF_LOSS, _ABLATION)  # a trace alone does not tell them


def wanted_kinds(requested: str | None, source: str) -> list[str]:
    """Parse the value of `--weights`."""
    found = named(requested, (*KINDS, _ABLATION), "--weights")
    for name in found:
        if name in _OF_MODEL and source != "text":
            message = f"{name} needs the model that read a text; the source is a {source}."
            raise typer.BadParameter(message, param_hint="--weights")
    return list(dict.fromkeys(found))


def of_model(model: Any, trace: "Trace", kinds: Sequence[str], **reads: Any) -> dict[str, Any]:
    """Return the arguments of `flaxattn.head_view` that show them."""
    from flaxattn.pretrained.head_projections import output_projections

    of_trace = [kind for kind in kinds if kind in KINDS and kind not in _OF_LOSS]
    found: dict[str, Any] = _shown(trace, of_trace, output_projections(model))
    if of_loss := [kind for kind in kinds if kind in _OF_LOSS]:
        made = _of_loss(model, trace, of_loss, reads["truncate"])
        both = {**found.get("weights", {}), **made}
        first = next(kind for kind in kinds if kind in both)
        found = {"weights": {kind: both[kind] for kind in kinds if kind in both}}
        found["state"] = {"weights": first}
    if _ABLATION in kinds:
        from flaxattn.attribution.ablation import ablate
        from flaxattn.attribution.head_losses import head_task

        text, *second = trace.texts[0]
        found["effects"] = ablate(head_task(model, [text], second or None, **reads))
        found["state"] = {**found.get("state", {}), "measure": _ABLATION}
    return found


def _of_loss(
    model: Any, trace: "Trace", kinds: Sequence[str], truncate: bool
) -> dict[str, dict[str, list[Any]]]:
    """Maps of relevance to the likelihood of the text, by kind and side."""
    from flaxattn.attribution.relevance import iterate_chefer, iterate_relevance

    makers = {"relevance": iterate_relevance, "chefer": iterate_chefer}
    text, *second = trace.texts[0]
    found = {}
    for kind in kinds:
        (maps,) = makers[kind](model, text, second[0] if second else None, truncate=truncate)
        found[kind] = {side: [one] for side, one in maps.items()}
    return found


def with_kinds(
    traces: Iterable[tuple[int | None, "Trace"]], kinds: Sequence[str]
) -> Iterator[tuple[int | None, "Trace", dict[str, Any]]]:
    """Traces with what is shown beside their attention."""
    for number, trace in traces:
        yield number, trace, _shown(trace, kinds, None)


def _shown(trace: "Trace", kinds: Sequence[str], projections: Any) -> dict[str, Any]:
    """Weights by name; the first of them shows."""
    if not kinds:
        return {}
    from flaxattn.attribution.contributions import contributions

    found = contributions(trace, kinds, projections=projections)
    return {"weights": found, "state": {"weights": kinds[0]}}


def pairs_of(
    kind: str,
    sources: tuple[str, str],
    examples: Sequence[int] | None,
    ids: Sequence[str] | None,
) -> Iterator[tuple[int | None, tuple[Any, Any]]]:
    """Yield the pairs to compare: two stores or two files, or the same text of both."""
    from flaxattn.store.open_store import example_of, open_store
    from flaxattn.trace.trace import Trace

    if kind == "trace" and ids:
        raise typer.BadParameter("it goes with stores; these are files.", param_hint="--id")
    first: Any
    second: Any
    first, second = (open_store(p) if kind == "store" else Trace.load(p) for p in sources)
    wanted = list(examples or ()) + [example_of(first, text_id) for text_id in ids or ()]
    if not wanted:
        yield None, (first, second)
    for number in wanted:
        yield number if len(wanted) > 1 else None, (first[number], second[number])


def names_of(first: str, second: str) -> tuple[str, str]:
    """Name two sources by the parts of their paths that tell them apart."""
    for count in (1, 2, 3):
        one, other = ("/".join(Path(p).resolve().parts[-count:]) for p in (first, second))
        if one != other:
            return one, other
    return "A", "B"


class View(NamedTuple):
    """A choice of `--view`.

    Attributes:
        page: Name of the function that makes the page; every page has every level it has data for.
        level: Level of a page's state, whose figure is drawn.
        vectors: Whether queries, keys and values are captured for it.
    """

    page: str
    level: str
    vectors: bool = False

    def make_page(self) -> Callable[..., Any]:
        """The function that makes a page."""
        return _named(self.page)


VIEWS = {
    "head": View("flaxattn.head_view", "head"),
    "model": View("flaxattn.model_view", "model"),
    "text": View("flaxattn.text_view", "text"),
    "neuron": View("flaxattn.neuron_view", "neuron", vectors=True),
    "atlas": View("flaxattn.atlas_view", "atlas"),
    "all": View("flaxattn.atlas_view", "atlas", vectors=True),
}
_FIGURES = (".svg", ".pdf", ".png")
_TRACE = ".safetensors"
_Out = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        "--out",
        help="Output file of the page; with several texts, their number is added.",
    ),
]


def view(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Text to read; - reads standard input. Or a file that trace.save wrote, or the "
            "folder of a store.",
        ),
    ],
    text_b: Annotated[
        str | None,
        typer.Argument(
            help="Second text of a pair, or target of a translation; or the file or "
            "store to compare SOURCE with.",
        ),
    ] = None,
    out: _Out = Path("attention.html"),
    model: Annotated[
        str, typer.Option("--model", help="Built-in name, model directory, or Hugging Face Hub id.")
    ] = "tiny-bert",
    view: Annotated[
        str, typer.Option("--view", help=f"View to show first: {', '.join(VIEWS)}.")
    ] = "head",
    layers: Annotated[
        str | None, typer.Option(help="Layers in the page, such as 0,4-7; default all.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="Layer to open at, from 0.")] = None,
    heads: Annotated[
        str | None, typer.Option(help="Heads to show at first, such as 0,2,5; default all.")
    ] = None,
    side: Annotated[
        str | None, typer.Option(help="Side to show at first: encoder, decoder, cross or all.")
    ] = None,
    example: Annotated[
        list[int] | None,
        typer.Option(help="Number of a text of a store or file; repeat for several."),
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option("--id", help="Id of a text of a store; repeat for several.")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="Attribution maps to show in place of attention, separated by commas: "
            f"{', '.join(KINDS)}; ablation is a number of the atlas."
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Format of weights: uint11, uint8 or float16; default by size."),
    ] = None,
    save_figure: Annotated[
        Path | None, typer.Option(help="Also write a figure to this svg, pdf or png file.")
    ] = None,
    truncate: Annotated[bool, typer.Option(help="Cut text that is too long.")] = False,
    allow_nonfinite: AllowNonfinite = False,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve", help="Serve the pages of a store to this machine's browser until Ctrl-C."
        ),
    ] = False,
    port: Annotated[int, typer.Option(help="Port of --serve; 0 takes any free port.")] = 8000,
    text: IsText = False,
) -> None:
    """Write an offline page of the attention in a text or a store.

    Two files or two stores are compared.

    A translation model generates the target if none is given.

    Example: flaxattn view "The cat is very sad." -o page.html

    Example: flaxattn view STORE --example 3 --view neuron -o page.html
    """
    if view not in VIEWS:
        raise typer.BadParameter(
            f"{view!r} is not a view; choose {', '.join(VIEWS)}.", param_hint="--view"
        )
    if not serve:
        _check_files(out, save_figure)
    chosen = {
        "layer": layer,
        "layers": numbers(layers, "--layers"),
        "heads": numbers(heads, "--heads"),
        "side": side,
        "precision": precision,
    }
    kind = "text" if text else _kind(source)
    if kind == "text" and text_b is not None and not text:
        check_no_path(text_b)
    names = wanted_kinds(weights, kind)
    if text_b is not None and kind != "text" and _kind(text_b) == kind:
        if serve or names:
            option = "--serve" if serve else "--weights"
            raise typer.BadParameter("it goes with one source, received two.", param_hint=option)
        for number, pair in pairs_of(kind, (source, text_b), example, name):
            _compare(pair, (source, text_b), chosen, (out, save_figure), number)
        return
    _check_source(kind, text_b=text_b, example=example, name=name, serve=serve)
    if serve and (names or precision):
        option = "--weights" if names else "--precision"
        raise typer.BadParameter("it goes with one page, not with --serve.", param_hint=option)
    if serve:
        _serve(source, VIEWS[view], port)
        return
    if kind == "store":
        traces = with_kinds(_stored(source, example, name), names)
    elif kind == "trace":
        traces = with_kinds(_saved(source, example), names)
    else:
        reads = {"truncate": truncate, "allow_nonfinite": allow_nonfinite}
        traces = _read((source, text_b), model, reads, VIEWS[view].vectors, names, text)
    for number, trace, beside in traces:
        _write(VIEWS[view], trace, chosen | beside, (out, save_figure), number)


def _named(path: str) -> Callable[..., Any]:
    """A function by its full name."""
    module, _, function = path.rpartition(".")
    return getattr(importlib.import_module(module), function)


def _kind(source: str) -> str:
    """Return the kind of a source; a text that no file could be called is a text."""
    if os.path.isdir(source):
        check_no_model(source)
        return "store"
    if not os.path.isfile(source):
        check_no_path(source)
        return "text"
    if source.endswith(_TRACE):
        return "trace"
    with open(source, "rb") as file:
        if file.read(9)[8:] == b"{":  # where the header of a safetensors file begins
            return "trace"
    raise typer.BadParameter(
        f"the file {source!r} is not a trace. To read the text in it: flaxattn view - < FILE",
        param_hint="SOURCE",
    )


def _check_files(page: Path, figure: Path | None) -> None:
    """Refuse files of another format, and places where nobody can write."""
    if figure is not None and figure.suffix.lower() not in _FIGURES:
        raise typer.BadParameter(
            f"{str(figure)!r} is not one of {', '.join(_FIGURES)}.", param_hint="--save-figure"
        )
    if page.suffix.lower() in _FIGURES:
        raise typer.BadParameter(
            f"a page is HTML; --save-figure {page} draws a figure.", param_hint="--out"
        )
    check_writable(page, "the page")
    if figure is not None:
        check_writable(figure, "the figure")


def _check_source(kind: str, *, text_b: Any, example: Any, name: Any, serve: bool) -> None:
    """See that options and source belong together."""
    wrong = {
        "TEXT_B": text_b is not None and kind != "text",
        "--example": bool(example) and kind == "text",
        "--id": bool(name) and kind != "store",
        "--serve": serve and kind != "store",
    }
    wants = {"TEXT_B": "a text", "--example": "a store or a trace file"}
    for option, is_wrong in wrong.items():
        if is_wrong:
            message = {"store": "a folder", "trace": "a file", "text": "a text"}[kind]
            raise typer.BadParameter(
                f"it goes with {wants.get(option, 'a store')}; the source is {message}.",
                param_hint=option,
            )


def _read(
    texts: tuple[str, str | None],
    model: str,
    reads: dict[str, bool],
    vectors: bool,
    kinds: Sequence[str],
    is_text: bool,
) -> Iterator[tuple[int | None, "Trace", dict[str, Any]]]:
    """The trace of a text under a model, and what is shown beside attention."""
    from flaxattn.kernels.contract import Capture
    from flaxattn.pipeline.progress_reporter import ProgressReporter
    from flaxattn.pretrained.from_pretrained import from_pretrained
    from flaxattn.views.trace_page import without_vectors

    requested = Capture(weights=True, query=vectors, key=vectors, value=vectors or bool(kinds))
    with ProgressReporter() as progress:
        progress(f"loading {model}", 0)
        loaded = from_pretrained(model)
        requested = dataclasses.replace(requested, scores=vectors and loaded.biased_scores)
        progress("reading the text", 0)
        text, text_b = given_text(texts[0], is_text), texts[1]
        predicts = requested_predictions(loaded)
        trace = loaded.trace(text, text_b, capture=requested, **predicts, **reads)
        trace = with_contributions(loaded, trace)
        beside = {}
        if kinds:
            progress(f"computing {', '.join(kinds)}", 0)
            beside = of_model(loaded, trace, kinds, **reads)
    for cut in trace.truncated:
        if cut:
            typer.echo(f"cut {cut} tokens to fit the model's limit")
    if not vectors:
        trace = without_vectors(trace)
    yield None, trace, beside


def _saved(path: str, examples: Sequence[int] | None) -> Iterator[tuple[int | None, "Trace"]]:
    """Texts of a trace file; by default all as one trace."""
    from flaxattn.trace.trace import Trace

    trace = Trace.load(path)
    if not examples:
        yield None, trace
    wanted = [trace.place(number) for number in examples or ()]
    for number in wanted:
        yield number if len(wanted) > 1 else None, trace[number]


def _stored(
    path: str, examples: Sequence[int] | None, names: Sequence[str] | None
) -> Iterator[tuple[int | None, "Trace"]]:
    """Texts of a store; the first by default."""
    from flaxattn.store.open_store import example_of, open_store

    store = open_store(path)
    wanted = [store.shard_of(number)[0] for number in examples or ()]
    wanted += [example_of(store, name) for name in names or ()]
    wanted = list(dict.fromkeys(wanted)) or [0]
    for number in wanted:
        yield number if len(wanted) > 1 else None, store[number]


def _write(
    view: View,
    trace: "Trace",
    chosen: dict[str, Any],
    files: tuple[Path, Path | None],
    number: int | None,
) -> None:
    """The page of a trace, and the figure if one was requested."""
    out, figure = (None if path is None else _numbered(path, number) for path in files)
    requested = dict(chosen)
    drawn_beside = {name: requested[name] for name in ("weights", "effects") if name in requested}
    layers, layer = requested.pop("layers"), requested.pop("layer")
    page = view.make_page()(trace, layer=layer, include_layers=layers, **requested)
    assert out is not None
    drawn = None
    if figure is not None:
        drawn = _drawn(view, trace, layers if layer is None else [layer], requested, drawn_beside)
    page.save(out)
    _print_result(out)
    if figure is not None:
        _named("flaxattn.save_figure")(drawn, figure)
        _print_result(figure)


def _drawn(
    view: View,
    trace: "Trace",
    layers: Sequence[int] | None,
    requested: dict[str, Any],
    beside: dict[str, Any],
) -> Any:
    """The figure of a trace: several layers of the head level, or what the page shows at first."""
    import matplotlib

    matplotlib.use("Agg")  # no window, whatever the settings of the user
    shown = {name: value for name, value in requested.items() if name in ("heads", "side")}
    state = requested.get("state", {})
    if view.level == "head":
        kind = state.get("weights")
        weights = {kind: beside["weights"][kind]} if kind else None
        return _named("flaxattn.plot_heads")(trace, layers=layers, weights=weights, **shown)
    state = {"level": view.level, "layer": layers[0] if layers else None, **state, **shown}
    return _named("flaxattn.plot_state")(trace, state, **beside)


def _compare(
    pair: tuple[Any, Any],
    sources: tuple[str, str],
    chosen: dict[str, Any],
    files: tuple[Path, Path | None],
    number: int | None,
) -> None:
    """The page of two traces or stores, and the figure if one was requested."""
    out, figure = (None if path is None else _numbered(path, number) for path in files)
    names, stores = names_of(*sources), not hasattr(pair[0], "tokens")
    if stores and (figure is not None or chosen["layers"] is not None):
        option = "--layers" if figure is None else "--save-figure"
        raise typer.BadParameter("of two stores, name a text: --example 0.", param_hint=option)
    requested = dict(chosen)
    layers = requested.pop("layers")
    if stores and requested.pop("precision"):
        raise typer.BadParameter("pages of two stores hold no weights.", param_hint="--precision")
    page = _named("flaxattn.compare_view")(
        *pair, names, **requested, **({} if stores else {"include_layers": layers})
    )
    assert out is not None
    page.save(out)
    _print_result(out)
    if figure is not None:
        import matplotlib

        matplotlib.use("Agg")
        drawn = _named("flaxattn.plot_compare")(*pair, side=chosen["side"], names=names)
        _named("flaxattn.save_figure")(drawn, figure)
        _print_result(figure)


def _numbered(path: Path, number: int | None) -> Path:
    return path if number is None else path.with_name(f"{path.stem}-{number}{path.suffix}")


def _print_result(path: Path) -> None:
    from flaxattn.files import readable_size

    typer.echo(f"wrote {path.resolve()} ({readable_size(path.stat().st_size)})")


def _has_arrays(store: "Store") -> bool:
    """Return whether texts have more than statistics; true before the first shard is there."""
    shard = store.first_shard()
    return shard is None or any(side["arrays"] for side in shard.sides.values())


def _serve(path: str, view: View, port: int) -> None:
    """Serve the pages of a store until Ctrl-C."""
    from flaxattn.store.open_store import open_store
    from flaxattn.views.serving import TextServer

    store: Store = open_store(path)
    if not _has_arrays(store):
        view = VIEWS["atlas"]
    with TextServer(store, view.make_page(), port) as server:
        typer.echo(f"{len(store):,} texts at {server.address} for this machine only; Ctrl-C stops")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            typer.echo("stopped")
