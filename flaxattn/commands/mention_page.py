# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The evidence of `flaxattn probe --coreference` and `--pronouns`: texts that a head resolves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flaxattn.commands.head_page import evidence_facts, evidence_table, numbers_of, report_page
from flaxattn.commands.report_layout import EVIDENCE, page_file
from flaxattn.corpus.texts import Text
from flaxattn.measures.claims import Claim
from flaxattn.probes.mention_resolution import Coreference, Resolver
from flaxattn.probes.watched_mentions import WatchedMentions
from flaxattn.views.evidence_page import EvidenceReport

if TYPE_CHECKING:
    from flaxattn.commands.probe_reader import ProbeSpec
    from flaxattn.measures.gold_pairs import GoldPairs
    from flaxattn.pretrained.pretrained_model import Pretrained
    from flaxattn.trace.trace import Trace

_ABOUT = (
    "Share of mentions for which a head gives most attention to a right candidate, in the better "
    "direction. Claimed is the head that is best for all mentions, with its share in each group; "
    "texts are ordered by how much of its attention is between mentions and what they mean."
)


def mention_evidence(
    asked: "ProbeSpec",
    model: "Pretrained",
    found: Coreference,
    best: Sequence[Resolver],
    watched: WatchedMentions,
    most: int | None,
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the part of a report about the texts that show its best head.

    Returns:
        Facts for JSON, and the content of files by name.
    """
    claims = [_claim(one, found, watched) for one in best]
    texts = {n: Text(n, kept.id, kept.text) for n, kept in watched.texts.items()}
    beside = {EVIDENCE: evidence_table(claims)}
    if most is not None:

        def gold(number: int, trace: "Trace") -> "dict[str, list[GoldPairs]]":
            asked_of = [(one.direction, one.group, _name(one)) for one in best]
            every = [watched.gold_pairs(number, *question) for question in asked_of]
            return {"encoder": [one for one in every if one.pairs]}

        values = {_name(one): found.accuracy(one.direction, one.group) for one in best}
        report = EvidenceReport(
            "Heads that resolve mentions",
            asked.model,
            _ABOUT,
            numbers_of(found, values),
            "accuracy",
        )
        traces = asked.traces(model, texts)
        beside[page_file("probe")] = report_page(report, claims, traces, most, gold)
    return evidence_facts(claims, texts), beside


def _name(one: Resolver) -> str:
    return one.group or "all mentions"


def _claim(one: Resolver, found: Coreference, watched: WatchedMentions) -> Claim:
    at = found.layers.index(one.layer), found.heads.index(one.head)
    message = (
        f"{one.direction}, {one.mentions} mentions, {one.lift:+.1f} points over {one.baseline}"
    )
    texts = watched.evidence.of((one.direction, one.group), *at)
    return Claim(_name(one), one.layer, one.head, one.accuracy, message, texts=texts)
