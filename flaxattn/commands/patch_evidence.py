# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The evidence of `flaxattn patch`: causal heads, the pairs that show each best, and the page."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flaxattn.corpus.texts import Text
from flaxattn.measures.claims import Claim
from flaxattn.measures.evidence import Evidence, TopText

if TYPE_CHECKING:
    from flaxattn.attribution.patch_effects import PatchReport, UnitEffects
    from flaxattn.views.page import Page

_MOST = 10  # heads of a side and a group of positions that are claimed to be causal
_DIRECT = "direct"  # effects of all but the head, which no head is claimed for


def patch_claims(found: "PatchReport", keep: int) -> list[Claim]:
    """Heads with the largest causal effects, each with the pairs that show it best."""
    claims: list[Claim] = []
    for effects in found.effects if found.request.by == "head" else ():
        for group in range(len(found.positions)) if effects.kind != _DIRECT else ():
            claims += _of_group(found, effects, group, keep)
    return claims


def _of_group(found: "PatchReport", effects: "UnitEffects", group: int, keep: int) -> list[Claim]:
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


def _name(found: "PatchReport", effects: "UnitEffects", group: int) -> str:
    """Name of the effects of a group of positions."""
    where = found.positions[group]
    if where == "all":
        return f"{found.name(effects)} effect"
    noun = "position" if found.request.positions == "token" else "segment"
    return f"{found.name(effects)} effect, {noun} {where}"


def shown_texts(found: "PatchReport") -> Mapping[int, Text]:
    """The pairs of a report by number: the clean text, and the corrupted one as the second."""
    return {
        number: Text(number, pair.source or str(number), pair.clean, pair.corrupted)
        for number, pair in enumerate(found.pairs)
    }


def patch_page(loaded: Any, found: "PatchReport", claims: Sequence[Claim], most: int) -> "Page":
    """The page of a report, with the attention of clean texts."""
    from flaxattn.attribution.patch_task import target_text
    from flaxattn.measures.score_source import traces_of
    from flaxattn.models.seq2seq import Seq2SeqLM
    from flaxattn.reports.evidence import report_page
    from flaxattn.views.evidence_page import EvidenceReport, Numbers

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
        f"{request.direction}). Claimed are heads with p at most {found.alpha:g} "
        f"({found.correction}). Attention is that of the clean text."
    )
    targets = None
    if isinstance(loaded.module, Seq2SeqLM):
        targets = [target_text(loaded, pair) for pair in found.pairs]

    def traces(chosen: Sequence[int]) -> Any:
        second = None if targets is None else [targets[n] for n in chosen]
        return traces_of(loaded, [found.pairs[n].clean for n in chosen], second, False)

    report = EvidenceReport("Effects of patching heads", loaded.name, about, numbers, "effect")
    return report_page(report, claims, traces, most)
