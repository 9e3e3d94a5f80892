# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The evidence of `flaxattn probe`: sentences in which the best heads look at the right words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flaxattn.commands.head_page import evidence_facts, evidence_table, numbers_of, report_page
from flaxattn.commands.report_layout import EVIDENCE, page_file
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import read_sentences
from flaxattn.corpus.texts import Text, annotated_text
from flaxattn.measures.claims import Claim
from flaxattn.measures.gold_pairs import GoldPair
from flaxattn.measures.gold_pairs_of_texts import pairs_of_texts
from flaxattn.measures.score_source import traces_of
from flaxattn.probes.arc_weights import Watched
from flaxattn.probes.governor_probe import (
    FROM_GOVERNOR,
    TO_GOVERNOR,
    Classifier,
    Dependencies,
)
from flaxattn.text.position_labels import UNIVERSAL_RELATIONS
from flaxattn.views.evidence_page import EvidenceReport

if TYPE_CHECKING:
    from flaxattn.commands.probe_reader import Files, ProbeSpec
    from flaxattn.pretrained.pretrained_model import Pretrained
    from flaxattn.trace.trace import Trace


def evidence_of(
    asked: "ProbeSpec",
    model: "Pretrained",
    found: Dependencies,
    best: Sequence[Classifier],
    watched: Watched,
    most: int | None,
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the part of a report about the sentences that show its best heads.

    Args:
        asked: Where the sentences are, and how they are read.
        model: Read them.
        found: How often heads are right.
        best: The best head for each relation.
        watched: Saw all sentences.
        most: Sentences of the page; None for no page.

    Returns:
        Facts for JSON, and the content of files by name.
    """
    claims = [_claim(one, found, watched) for one in best]
    texts = _texts(asked.files[0], watched.names)
    claims = [c._replace(texts=[s for s in c.texts if s.text in texts]) for c in claims]
    beside = {EVIDENCE: evidence_table(claims)}
    if most is not None:

        def traces(numbers: Sequence[int]) -> "Iterator[Trace]":
            chosen = [texts[n].text for n in numbers]
            allowed = asked.allow_nonfinite
            return traces_of(model, chosen, None, asked.truncate, allow_nonfinite=allowed)

        values = {one.relation: found.accuracy(one.direction, one.relation) for one in best}
        about = (
            "Share of words whose governor a head finds, by the word it gives most of its "
            "attention to, in the better direction. Claimed is the best head for each relation; "
            "sentences are ordered by how much of its attention is on the right words."
        )
        report = EvidenceReport(
            "Heads that find governors", asked.model, about, numbers_of(found, values), "accuracy"
        )

        def pairs(numbers: Sequence[int]) -> list[dict[str, list[GoldPair]]]:
            ends = {TO_GOVERNOR: "governor", FROM_GOVERNOR: "dependent"}
            roles = {f"{ends[one.direction]}({one.relation})": one.relation for one in best}
            chosen = [texts[n] for n in numbers]
            found = pairs_of_texts(model, chosen, roles, UNIVERSAL_RELATIONS, causal=False)
            return [{roles[role]: some for role, some in text.items()} for text in found]

        beside[page_file("probe")] = report_page(report, claims, traces, most, pairs)
    return evidence_facts(claims, texts), beside


def _claim(one: Classifier, found: Dependencies, watched: Watched) -> Claim:
    at = found.layers.index(one.layer), found.heads.index(one.head)
    told = f"{one.direction}, {one.words} words, {one.lift:+.1f} points over offset {one.offset:+d}"
    texts = watched.evidence.of((one.direction, one.relation), *at)
    return Claim(one.relation, one.layer, one.head, one.accuracy, told, texts=texts)


def _texts(files: "Files", names: Mapping[int, str]) -> dict[int, Text]:
    """The sentences of some names; of one name the first."""
    wanted: dict[str, int] = {}
    for number, name in names.items():
        wanted.setdefault(name, number)
    found: dict[int, Text] = {}
    for sentence in read_sentences(files.paths, BadRows("skip")):
        number = wanted.get(sentence.id)
        if number is not None and number not in found:
            found[number] = annotated_text(sentence)
    return found
