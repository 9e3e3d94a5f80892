# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The report of `flaxattn probe`: the heads that find governors, and sentences as evidence."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from flaxattn.commands.probe_reader import ProbeSpec, left_out, tell_rest
from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import read_sentences
from flaxattn.corpus.texts import Text, annotated_text
from flaxattn.measures.claims import Claim
from flaxattn.measures.corpus_pairs import text_layout
from flaxattn.measures.scores import side_of
from flaxattn.probes.arc_weights import Watched
from flaxattn.probes.gold_governors import governor_pairs
from flaxattn.probes.governor_probe import Classifier, Dependencies
from flaxattn.reports.evidence import (
    PageOptions,
    evidence_facts,
    evidence_table,
    numbers_of,
    report_page,
)
from flaxattn.reports.report import EVIDENCE, Report
from flaxattn.views.evidence_page import EvidenceReport

if TYPE_CHECKING:
    from flaxattn.commands.probe_reader import Files, ProbeSpec
    from flaxattn.measures.gold_pairs import GoldPairs
    from flaxattn.pretrained.pretrained_model import Pretrained
    from flaxattn.probes.governor_probe import Classifier, Dependencies
    from flaxattn.trace.trace import Trace
    from flaxattn.views.page import Page


_SHOWN = 12  # relations in the table and in the figure
_CHOSEN = "heads_chosen_on"
_PENALTY = 1e-4


def report_governors(
    spec: ProbeSpec, untrained: bool, penalty: float | None, shown: PageOptions
) -> None:
    """Ask heads, write the report with its page and the fitted parser, and print."""
    from flaxattn.probes.arc_weights import Watched
    from flaxattn.probes.head_probe import head_probe
    from flaxattn.probes.probe_file import to_bytes
    from flaxattn.reports.report import FITTED, figure_file

    penalty = _PENALTY if penalty is None else penalty
    fits = "a parser and its control task" if spec.files[1].paths else "no parser"
    spec.announce("reading heads", f"one pass over all texts, {fits} fitted")
    model, passing = spec.loaded(), Watched(shown.evidence)
    found, best, judged = head_probe(
        model,
        spec.files[0].sentences(spec.bad),
        spec.files[1].sentences(spec.bad) if spec.files[1].paths else None,
        untrained=untrained,
        penalty=penalty,
        seed=spec.seed,
        passing=passing,
        reading=spec.reading(),
    )
    evidence, beside, page = evidence_of(spec, model, found, best, passing, shown.sentences)
    facts = {
        "model": spec.model,
        "data": [each.facts() for each in spec.files],
        "settings": {"penalty": penalty, "truncate": spec.truncate, "untrained": untrained},
        "seed": spec.seed,
        "left_out": left_out(spec.bad),
        _CHOSEN: "other sentences" if judged else "the same sentences, which flatters",
        "relations": [one._asdict() | {"lift": one.lift} for one in best],
        "parser": None if judged is None else judged.facts(),
        "evidence": evidence,
    }
    if judged is not None:
        notes = {name: facts[name] for name in ("model", "data", "settings", "parser")}
        beside[FITTED] = to_bytes(judged.probe, notes)
    figures = {figure_file("probe"): functools.partial(_figure, found, best)}
    written = spec.run.save(Report("probe", facts, _rows(found), figures, beside, page))
    if not spec.printed_as_json(facts):
        _tell(facts, best)
        tell_rest(facts, written)


def _rows(found: "Dependencies") -> dict[str, list[Any]]:
    """One row per relation, direction and head: columns of heads.parquet."""
    names = ("relation", "direction", "layer", "head", "count", "accuracy", "offset", "baseline")
    rows: dict[str, list[Any]] = {name: [] for name in names}
    for direction, relation in found.hits:
        shares = found.accuracy(direction, relation)
        count = found.offsets[direction, relation].total()
        offset, baseline = found.baseline(direction, relation)
        for i, j in np.ndindex(shares.shape):
            where = (relation, direction, found.layers[i], found.heads[j], count)
            values = (*where, float(shares[i, j]), offset, baseline)
            for name, value in zip(names, values, strict=True):
                rows[name].append(value)
    return rows


def _figure(found: "Dependencies", best: "list[Classifier]") -> Any:
    from flaxattn.views.figures.plot_roles import plot_head_means

    means = {
        f"{one.relation} ({one.direction})": found.accuracy(one.direction, one.relation)
        for one in best[:_SHOWN]
    }
    return plot_head_means(found.layers, found.heads, means, "share of words it is right for")


def _tell(facts: dict[str, Any], best: "list[Classifier]") -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table(title="Heads that find governors best", caption=f"chosen on {facts[_CHOSEN]}")
    table.add_column("relation", no_wrap=True)
    for name in ("words", "head", "direction", "right", "offset", "baseline", "lift"):
        table.add_column(name, justify="right")
    for one in best[:_SHOWN]:
        table.add_row(
            one.relation,
            str(one.words),
            f"{one.layer}.{one.head}",
            one.direction,
            f"{one.accuracy:.1%}",
            f"{one.offset:+d}",
            f"{one.baseline:.1%}",
            f"{one.lift:+.1f}",
        )
    console.print(table)
    if facts["parser"] is not None:
        scores = facts["parser"]["uas"]
        each = ", ".join(f"{name} {score:.1f}" for name, score in scores.items() if name != "tree")
        console.print(
            f"all heads together attach {scores['tree']:.1f}% of words; {each}; "
            f"selectivity {facts['parser']['selectivity']:+.1f} points"
        )


def evidence_of(
    spec: "ProbeSpec",
    model: "Pretrained",
    found: Dependencies,
    best: Sequence[Classifier],
    watched: Watched,
    most: int,
) -> "tuple[dict[str, Any], dict[str, bytes], Callable[[], Page]]":
    """Return the part of a report about the sentences that show its best heads.

    Returns:
        Facts for JSON, the content of files by name, and what makes the page.
    """
    claims = [_claim(one, found, watched) for one in best]
    texts = _texts(spec.files[0], watched.names)
    claims = [c._replace(texts=[s for s in c.texts if s.text in texts]) for c in claims]
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
        "Heads that find governors", spec.model, about, numbers_of(found, values), "accuracy"
    )
    traces = spec.traces(model, texts)
    page = functools.partial(report_page, report, claims, traces, most, gold)
    return evidence_facts(claims, texts), {EVIDENCE: evidence_table(claims)}, page


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
