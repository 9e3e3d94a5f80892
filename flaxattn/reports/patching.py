# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Report the effects of patching heads or layers on the answers to pairs: `patch_report`."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flaxattn.attribution.patch_effects import PatchReport, UnitEffects
from flaxattn.attribution.patch_task import PatchRequest, TextPair, head_sizes, target_text
from flaxattn.attribution.patching import patch
from flaxattn.corpus.input_files import describe_texts
from flaxattn.corpus.texts import Text
from flaxattn.errors import check_arguments
from flaxattn.measures.claims import Claim, Evidence, TopText
from flaxattn.measures.score_source import traces_of
from flaxattn.models.seq2seq import Seq2SeqLM
from flaxattn.pipeline.progress_reporter import ProgressReporter, reporting
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.reports.evidence import (
    DEFAULT_PAGE,
    PageOptions,
    evidence_facts,
    evidence_table,
    report_page,
)
from flaxattn.reports.report import EVIDENCE, PAIRS, Report, columns_bytes, figure_file, table_file
from flaxattn.store.plan import model_fingerprint
from flaxattn.views.evidence_page import EvidenceReport, Numbers
from flaxattn.views.figures.plot_interventions import plot_patch_effects
from flaxattn.views.page import Page

_MOST = 10  # heads of a side and a group of positions that are claimed to be causal
_DIRECT = "direct"  # effects of all but the head, which no head is claimed for
_OF_UNITS = ("patched", "errors")  # arrays, which are in the table


@check_arguments(1)
def patch_report(
    model: Pretrained,
    pairs: Sequence[TextPair],
    request: PatchRequest | None = None,
    *,
    batch: int = 16,
    alpha: float = 0.05,
    correction: str = "bh",
    controls: int = 20,
    seed: int = 0,
    page: PageOptions = DEFAULT_PAGE,
    data: Any = None,
) -> Report:
    """Report the effect of patching each head or layer on the answers to pairs of texts.

    As `flaxattn patch` does. `fa.patch` returns the effects alone, and describes them, their tests
    and their cost.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-gpt2")
    >>> text = "the old king and the {} were happy. the old king and the"
    >>> words = [("lady", "girl"), ("girl", "horse"), ("horse", "lady")]
    >>> pairs = [fa.TextPair(text.format(a), text.format(b), a, b) for a, b in words]
    >>> report = fa.patch_report(model, pairs, controls=0)
    >>> report.table.num_rows  # a row for each head
    24

    Args:
        model: A model that answers, with its tokenizer; see `fa.patch`.
        pairs: At least two.
        request: What is patched; default the output of each head, from the clean run into the
            corrupted one.
        batch: Number of pairs in a batch.
        alpha: Largest corrected p-value of a unit that is called causal.
        correction: For many tests: `bh`, `bonferroni`, `holm` or `none`.
        controls: Number of random sets of units that the causal ones together are compared with.
        seed: Random seed of the bootstrap, of checks and of controls.
        page: How much evidence is kept, and shown on the page.
        data: Where the pairs come from, kept with the report; default their number and digest.

    Returns:
        A report with a row for each head or layer and group of positions, a table of pairs, and a
        figure; where heads are patched, also a page with the texts that show causal heads best.
        `result` is the `PatchReport`.

    Raises:
        InputError: As `fa.patch`.
    """
    request = PatchRequest() if request is None else request
    tests: dict[str, Any] = {"alpha": alpha, "correction": correction, "controls": controls}
    with reporting() as shown:
        _announce(shown, model, request, len(pairs))
        found = patch(model, pairs, request, batch=batch, seed=seed, **tests, watch=shown)
    claims = _claims(found, page.evidence)
    texts = [pair.clean for pair in pairs], [pair.corrupted for pair in pairs]
    facts = {
        "model": model.name,
        "architecture": model.config.architectures[0],
        "fingerprint": dataclasses.asdict(model_fingerprint(model)),
        "seed": seed,
        "data": describe_texts(*texts) if data is None else data,
        "settings": {**request.described(), **tests, "batch": batch},
        **_facts(found),
        "evidence": evidence_facts(claims, _texts(found)),
        "heads": list(found.rows()),
    }
    files = {PAIRS: columns_bytes(found.pair_columns())}
    draw = None
    if request.by == "head":
        files[EVIDENCE] = evidence_table(claims)
        draw = functools.partial(_page, model, found, claims, page.sentences)
    figures = {figure_file("patch"): functools.partial(plot_patch_effects, found)}
    table = table_file("patch")
    return Report("patch", facts, facts["heads"], figures, files, draw, table, result=found)


def _announce(
    progress: ProgressReporter, model: Pretrained, request: PatchRequest, count: int
) -> None:
    """Say what will be computed."""
    sizes = {s: n for s, n in head_sizes(model).items() if request.side in (None, s)}
    units = sum(n * (heads if request.by == "head" else 1) for n, heads in sizes.values())
    groups = {"segment": " at 5 groups of positions", "token": " at each position"}
    progress.announce(
        f"{count:,} pairs, {model.name}: patching {units} {request.by}s"
        f"{groups.get(request.positions, '')}"
    )
    for side in sizes:
        progress.expect(f"patching {side}", count * (2 if request.method == "mediation" else 1))


def _facts(found: PatchReport) -> dict[str, Any]:
    """Metrics of pairs, and what is known of all units of a side together."""
    values = zip(found.pairs, found.clean.tolist(), found.corrupted.tolist(), strict=True)
    return {
        "positions": list(found.positions),
        "metric": {
            "name": found.request.metric,
            "clean": float(found.clean.mean()),
            "corrupted": float(found.corrupted.mean()),
            "pairs": [
                {"source": pair.source, "clean": clean, "corrupted": corrupted}
                for pair, clean, corrupted in values
            ],
        },
        "effects": [
            {
                "side": effects.side,
                "kind": found.name(effects),
                "units": effects.means.size,
                "causal": int(effects.causal.sum()),
                "control": _plain(effects.control),
                "approximation": _plain(effects.approximation),
            }
            for effects in found.effects
        ],
    }


def _plain(facts: Any) -> dict[str, Any] | None:
    """A dataclass for JSON; arrays of units are in the table."""
    if facts is None:
        return None
    values = {name: value for name, value in vars(facts).items() if name not in _OF_UNITS}
    return {n: v.tolist() if hasattr(v, "tolist") else v for n, v in values.items()}


def _claims(found: PatchReport, keep: int) -> list[Claim]:
    """Heads with the largest causal effects, each with the pairs that show it best."""
    claims: list[Claim] = []
    for effects in found.effects if found.request.by == "head" else ():
        for group in range(len(found.positions)) if effects.kind != _DIRECT else ():
            claims += _of_group(found, effects, group, keep)
    return claims


def _of_group(found: PatchReport, effects: UnitEffects, group: int, keep: int) -> list[Claim]:
    means, causal = effects.means[..., group], effects.causal[..., group]
    signs = np.sign(means)
    evidence = Evidence(keep)
    towards = (effects.each[:, :, group] * signs[..., None]).transpose(2, 0, 1)
    evidence.add("", towards, range(towards.shape[0]))
    order = np.argsort(-np.abs(means), axis=None, kind="stable")
    places = [(int(i), int(j)) for i, j in zip(*np.unravel_index(order, means.shape), strict=True)]
    claims = []
    for layer, head in [place for place in places if causal[place]][:_MOST]:
        place = layer, head, group
        message = (
            f"{effects.low[place]:+.3g} to {effects.high[place]:+.3g}, "
            f"p {effects.p_corrected[place]:.1g}"
        )
        texts = [
            TopText(shown.text, float(shown.score * signs[layer, head]))
            for shown in evidence.of("", layer, head)
        ]
        name = _name(found, effects, group)
        claims.append(
            Claim(name, layer, head, float(means[layer, head]), message, effects.side, texts)
        )
    return claims


def _name(found: PatchReport, effects: UnitEffects, group: int) -> str:
    """Name of the effects of a group of positions."""
    where = found.positions[group]
    if where == "all":
        return f"{found.name(effects)} effect"
    noun = "position" if found.request.positions == "token" else "segment"
    return f"{found.name(effects)} effect, {noun} {where}"


def _texts(found: PatchReport) -> Mapping[int, Text]:
    """The pairs of a report by number: the clean text, and the corrupted one as the second."""
    return {
        number: Text(number, pair.source or str(number), pair.clean, pair.corrupted)
        for number, pair in enumerate(found.pairs)
    }


def _page(model: Pretrained, found: PatchReport, claims: Sequence[Claim], most: int) -> Page:
    """The page of a report, with the attention of clean texts."""
    values: dict[str, dict[str, np.ndarray]] = {}
    for effects in found.effects:
        named = values.setdefault(effects.side, {})
        for group in range(len(found.positions)):
            named[_name(found, effects, group)] = effects.means[..., group]
    numbers = {}
    for side, tables in values.items():
        layers, heads = next(iter(tables.values())).shape
        numbers[side] = Numbers(range(layers), range(heads), tables)
    request = found.request
    about = (
        f"{len(found.pairs):,} pairs; mean {request.metric} {found.clean.mean():.4f} on clean "
        f"texts, {found.corrupted.mean():.4f} on corrupted ones. An effect is the growth of the "
        f"{request.metric} when a head is patched ({request.method}, {request.site}, "
        f"{request.direction}). Claims are heads with p at most {found.alpha:g} "
        f"({found.correction}). Attention is that of the clean text."
    )
    targets = None
    if isinstance(model.module, Seq2SeqLM):
        targets = [target_text(model, pair) for pair in found.pairs]

    def traces(chosen: Sequence[int]) -> Any:
        second = None if targets is None else [targets[n] for n in chosen]
        return traces_of(model, [found.pairs[n].clean for n in chosen], second, False)

    report = EvidenceReport("Effects of patching heads", model.name, about, numbers, "effect")
    return report_page(report, claims, traces, most)
