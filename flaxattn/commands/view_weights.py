# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Attribution maps and second sources that `flaxattn view` shows beside attention.

Everything heavy is imported when it runs. Pages and figures are the business of `view.py`.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from flaxattn.commands.option_lists import names

if TYPE_CHECKING:
    from flaxattn.trace.trace import Trace

_OF_LOSS = ("relevance", "chefer")
KINDS = ("norm", "rollout", "effective", *_OF_LOSS)
_ABLATION = "ablation"
_OF_MODEL = ("norm", *_OF_LOSS, _ABLATION)  # a trace alone does not tell them


def wanted_kinds(asked: str | None, source: str) -> list[str]:
    """Parse the value of `--weights`."""
    found = names(asked, (*KINDS, _ABLATION), "--weights")
    for name in found:
        if name in _OF_MODEL and source != "text":
            told = f"{name} needs the model that read a text; the source is a {source}."
            raise typer.BadParameter(told, param_hint="--weights")
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
    from flaxattn.attribution.contribution_maps import contributions

    found = contributions(trace, kinds, projections=projections)
    return {"weights": found, "state": {"weights": kinds[0]}}


def pairs_of(
    kind: str,
    sources: tuple[str, str],
    examples: Sequence[int] | None,
    ids: Sequence[str] | None,
) -> Iterator[tuple[int | None, tuple[Any, Any]]]:
    """Yield the pairs to compare: two stores or two files, or the same text of both."""
    from flaxattn.store.find_texts import example_of
    from flaxattn.store.open_store import open_store
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
