# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The evidence of `flaxattn probe`: sentences in which the best heads look at the right words."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flaxattn.commands.head_page import evidence_facts, evidence_table, numbers_of, report_page
from flaxattn.commands.report_layout import EVIDENCE, page_file
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import read_sentences
from flaxattn.corpus.texts import Text, annotated_text
from flaxattn.measures.claims import Claim
from flaxattn.measures.corpus_pairs import text_layout
from flaxattn.measures.scores import side_of
from flaxattn.probes.arc_weights import Watched
from flaxattn.probes.gold_governors import governor_pairs
from flaxattn.probes.governor_probe import Classifier, Dependencies
from flaxattn.views.evidence_page import EvidenceReport

if TYPE_CHECKING:
    from flaxattn.commands.probe_reader import Files, ProbeSpec
    from flaxattn.measures.gold_pairs import GoldPairs
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

    Returns:
        Facts for JSON, and the content of files by name.
    """
    claims = [_claim(one, found, watched) for one in best]
    texts = _texts(asked.files[0], watched.names)
    claims = [c._replace(texts=[s for s in c.texts if s.text in texts]) for c in claims]
    beside = {EVIDENCE: evidence_table(claims)}
    if most is not None:
        values = {one.relation: found.accuracy(one.direction, one.relation) for one in best}
        about = (
            "Share of words whose governor a head finds, by the word it gives most of its "
            "attention to, in the better direction. Claimed is the best head for each relation; "
            "sentences are ordered by how much of its attention is on the right words."
        )
        ways = {one.relation: one.direction for one in best}

        def gold(number: int, trace: "Trace") -> "dict[str, list[GoldPairs]]":
            layout = text_layout(trace, texts[number], model)
            if not any(layout.words):
                return {}
            record = side_of(trace, "encoder")
            every = [governor_pairs(*way, layout, record) for way in ways.items()]
            return {"encoder": [one for one in every if one.pairs]}

        report = EvidenceReport(
            "Heads that find governors", asked.model, about, numbers_of(found, values), "accuracy"
        )
        traces = asked.traces(model, texts)
        beside[page_file("probe")] = report_page(report, claims, traces, most, gold)
    return evidence_facts(claims, texts), beside


def _claim(one: Classifier, found: Dependencies, watched: Watched) -> Claim:
    at = found.layers.index(one.layer), found.heads.index(one.head)
    message = (
        f"{one.direction}, {one.words} words, {one.lift:+.1f} points over offset {one.offset:+d}"
    )
    texts = watched.evidence.of((one.direction, one.relation), *at)
    return Claim(one.relation, one.layer, one.head, one.accuracy, message, texts=texts)


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
