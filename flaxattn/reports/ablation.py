# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Report the loss without each head, its importance, and a pruning curve: `ablation_report`."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from flaxattn.attribution.ablation import ablate, head_importance, pruning_curve
from flaxattn.attribution.head_losses import head_task
from flaxattn.corpus.input_files import describe_texts
from flaxattn.corpus.texts import plain_texts
from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.claims import Claim, Evidence
from flaxattn.measures.score_source import traces_of
from flaxattn.pipeline.progress_reporter import ProgressReporter, reporting
from flaxattn.pipeline.tokenize_texts import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_decoder import PretrainedDecoder
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.reports.evidence import (
    DEFAULT_PAGE,
    PageOptions,
    evidence_facts,
    evidence_table,
    report_page,
)
from flaxattn.reports.report import CURVE, EVIDENCE, Report, figure_file, table_file
from flaxattn.text.text_lists import some_texts
from flaxattn.views.evidence_page import EvidenceReport, Numbers
from flaxattn.views.figures.plot_head_numbers import plot_head_values, plot_pruning_curve
from flaxattn.views.page import Page

MEASURES = ("importance", "ablation")
_SIDES = {"decoder_head_mask": "decoder", "cross_attn_head_mask": "cross"}
_LABEL = "growth of the loss, or importance"
_SURE = 1.96  # standard errors
_MOST = 10  # heads of a kind that are claimed to matter


@check_arguments(1)
def ablation_report(
    model: Pretrained,
    texts: Iterable[str],
    text_b: Iterable[str] | None = None,
    *,
    labels: Sequence[int] | None = None,
    measures: Sequence[str] = MEASURES,
    by_layer: bool = False,
    batch: int = 16,
    seed: int = 0,
    reading: ReadingOptions = DEFAULTS,
    page: PageOptions = DEFAULT_PAGE,
    data: Mapping[str, Any] | None = None,
) -> Report:
    """Report the loss without each head, its importance, and how the loss grows as heads go.

    As `flaxattn ablate` does. `ablate`, `head_importance` and `pruning_curve` return the numbers
    alone.

    Cost: one forward pass over the texts for each head, one backward pass for importance, and
    about 11 forward passes for the pruning curve.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert", head="BertForMaskedLM")
    >>> report = fa.ablation_report(model, ["The cat is very sad."], measures=["importance"])
    >>> report.table.column_names
    ['side', 'layer', 'head', 'importance', 'importance_error']

    Args:
        model: A model with a task head and its tokenizer.
        texts: N texts.
        text_b: The second text, or the target, of each.
        labels: Number of the class of each text, for a classifier.
        measures: `importance` (size of the slope of the loss, by one backward pass), `ablation`
            (the loss without each head), or both; the first orders the pruning curve.
        by_layer: Whether importances are divided by the norm of their layer.
        batch: Number of texts in a batch.
        seed: Random seed of the tokens that a masked model has to predict.
        reading: How texts are read, and how many.
        page: How much evidence is kept, and shown on the page.
        data: Where the texts come from, kept with the report; default their number and digest.

    Returns:
        A report with a row for each head, two figures, and a page with the texts in which heads
        matter most. Losses are in nats per predicted token or text. `result` is a pair: effects by
        measure, and the points of the curve.

    Raises:
        InputError: For an unknown measure, or texts that the model has no loss on.
    """
    if not measures or not set(measures) <= set(MEASURES):
        known = ", ".join(MEASURES)
        raise InputError(f"measures are {list(measures)!r}\nexpected one or both of {known}")
    first, second = some_texts(texts, text_b, reading.limit)
    labels = None if labels is None else labels[: reading.limit]
    read: dict[str, Any] = {
        "truncate": reading.truncate,
        "allow_nonfinite": reading.allow_nonfinite,
    }
    task = head_task(model, first, second, labels=labels, batch=batch, seed=seed, **read)
    with reporting() as shown:
        _announce(shown, model.masks(), measures, len(first))
        effects, curve = _measured(task, measures, by_layer, shown, len(first))
    maps = {f"{kind}, {n}": m for kind, e in effects.items() for n, m in e.means.items()}
    claims = _claims(effects, model, page.evidence)
    every = dict(enumerate(plain_texts(first, second)))
    rows = _rows(effects, model)
    facts = {
        "model": model.name,
        "settings": {
            "measures": list(measures),
            "by_layer": by_layer,
            "batch": batch,
            "truncate": reading.truncate,
            "evidence": page.evidence,
            "seed": seed,
        },
        "data": describe_texts(first, second) if data is None else dict(data),
        "architecture": model.config.architectures[0],
        "loss": next(iter(effects.values())).loss,
        "curve": [point.__dict__ for point in curve],
        "evidence": evidence_facts(claims, every),
        "heads": rows,
    }
    shares, losses, errors = ([getattr(p, n) for p in curve] for n in ("share", "loss", "error"))
    return Report(
        "ablate",
        facts,
        rows,
        {
            figure_file("ablate"): functools.partial(plot_head_values, maps, _LABEL),
            CURVE: functools.partial(plot_pruning_curve, shares, losses, errors),
        },
        {EVIDENCE: evidence_table(claims)},
        functools.partial(_page, model, first, second, effects, claims, read, page.sentences),
        table_file("ablate"),
        result=(effects, curve),
    )


def _side(model: Any, mask: str) -> str:
    """The side whose heads a mask is of."""
    return "decoder" if isinstance(model, PretrainedDecoder) else _SIDES.get(mask, "encoder")


def _claims(effects: Any, model: Any, keep: int) -> list[Claim]:
    """The heads that are worth most, those whose effect is above 0 beyond its error."""
    claims, shown = [], Evidence(keep)
    for kind, found in effects.items():
        for mask, values in found.each.items():
            shown.add((kind, mask), values.transpose(2, 0, 1), range(values.shape[2]))
        sure = [row for row in found.ranked() if row[1] > _SURE * (row[2] if row[2] > 0 else 0)]
        for (mask, layer, head), mean, error in sure[:_MOST]:
            texts = shown.of((kind, mask), layer, head)
            message = f"± {error:.2g}"
            claims.append(Claim(kind, layer, head, mean, message, _side(model, mask), texts))
    return claims


def _page(
    model: Pretrained,
    texts: Sequence[str],
    second: Sequence[str] | None,
    effects: Any,
    claims: Sequence[Claim],
    read: Mapping[str, Any],
    most: int,
) -> Page:
    sides: dict[str, dict[str, Any]] = {}
    for kind, found in effects.items():
        for mask, means in found.means.items():
            sides.setdefault(_side(model, mask), {})[kind] = means
    numbers = {}
    for side, values in sides.items():
        layers, heads = next(iter(values.values())).shape
        numbers[side] = Numbers(range(layers), range(heads), values)
    loss = next(iter(effects.values())).loss
    about = (
        f"{len(texts):,} texts, mean loss {loss:.4f}. Ablation is the growth of the loss without "
        "the head, importance the size of the slope of the loss; claims name the heads with the "
        "largest values. The attention shown is that of the unchanged text, with all heads."
    )

    def traces(chosen: Sequence[int]) -> Any:
        targets = None if second is None else [second[n] for n in chosen]
        return traces_of(model, [texts[n] for n in chosen], targets, **read)

    report = EvidenceReport("What heads are worth", model.name, about, numbers)
    return report_page(report, claims, traces, most)


def _announce(
    progress: ProgressReporter,
    masks: Mapping[str, tuple[int, int]],
    kinds: Sequence[str],
    texts: int,
) -> None:
    """Say what will be computed."""
    heads = sum(layers * count for layers, count in masks.values())
    passes = {
        "importance": "one forward and backward pass over all texts for importance",
        "ablation": f"{heads + 1} forward passes over all texts for ablation",
    }
    message = ", ".join(passes[kind] for kind in kinds)
    progress.announce(f"{texts:,} texts, {heads} heads: {message}, about 11 for the pruning curve")


def _measured(
    task: Any,
    kinds: Sequence[str],
    by_layer: bool,
    progress: ProgressReporter,
    texts: int,
) -> Any:
    """Effects by kind, and the curve."""
    passes = {"importance": head_importance, "ablation": ablate}
    effects = {}
    for kind in kinds:
        effects[kind] = passes[kind](task, _stage(kind, progress, texts))
    if by_layer and "importance" in effects:
        effects["importance"] = effects["importance"].by_layer()
    return effects, pruning_curve(
        task, effects[kinds[0]], progress=_stage("pruning", progress, texts)
    )


def _stage(name: str, progress: ProgressReporter, texts: int) -> Callable[[int], object]:
    progress.expect(name, texts)
    return functools.partial(progress, name)


def _rows(effects: Any, model: Any) -> list[dict[str, Any]]:
    """A row for each head, with what each kind of effect says of it."""
    rows: dict[tuple[str, int, int], dict[str, Any]] = {}
    for kind, found in effects.items():
        for head, mean, error in found.ranked():
            name, layer, number = head
            where = {"side": _side(model, name), "layer": layer, "head": number}
            row = rows.setdefault(head, where)
            row |= {kind: mean, f"{kind}_error": error}
    return list(rows.values())
