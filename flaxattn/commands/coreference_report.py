# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The report of `flaxattn probe --coreference` and `--pronouns`, with texts as evidence."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from flaxattn.commands.probe_reader import Files, ProbeSpec, left_out, tell_rest
from flaxattn.corpus.texts import Text
from flaxattn.measures.claims import Claim
from flaxattn.probes.mention_resolution import Coreference, Resolver
from flaxattn.probes.watched_mentions import WatchedMentions
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
    from collections.abc import Iterator

    from flaxattn.commands.probe_reader import ProbeSpec
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.corpus.mentions import Document
    from flaxattn.corpus.pronouns import Pronoun
    from flaxattn.measures.gold_pairs import GoldPairs
    from flaxattn.pretrained.pretrained_model import Pretrained
    from flaxattn.probes.mention_resolution import Coreference, Resolver
    from flaxattn.trace.trace import Trace
    from flaxattn.views.page import Page


_AMONG = "among_all_words"


def report_coreference(spec: ProbeSpec, form: str, shown: PageOptions) -> None:
    """Ask every head whom mentions mean, write the report with its page, and print."""
    from flaxattn.probes.head_coreference import head_coreference
    from flaxattn.probes.watched_mentions import WatchedMentions
    from flaxattn.reports.report import figure_file
    from flaxattn.views.figures.plot_roles import plot_head_means

    spec.announce(
        "reading heads", "one pass over all texts", lambda files, bad: _texts(files, form, bad)
    )
    model, watched = spec.loaded(), WatchedMentions(shown.evidence)
    found, best, among, best_among = head_coreference(
        model,
        _texts(spec.files[0], form, spec.bad),
        form,
        _texts(spec.files[1], form, spec.bad) if spec.files[1].paths else None,
        reading=spec.reading(),
        passing=watched,
    )
    evidence, files, page = mention_evidence(spec, model, found, best, watched, shown.sentences)
    facts = {
        "model": spec.model,
        "texts": form,
        "data": [each.facts() for each in spec.files],
        "settings": {"truncate": spec.truncate},
        "left_out": left_out(spec.bad),
        "mean_neither": found.neither,
        "heads_chosen_on": "other texts" if spec.files[1].paths else "the same, which flatters",
        "groups": [_facts(found, one) for one in best],
        _AMONG: [_facts(among, one) for one in best_among] if among is not None else None,
        "evidence": evidence,
    }
    rows = _rows(found, "mentions" if among is not None else "people")
    if among is not None:
        for name, values in _rows(among, "words").items():
            rows[name] += values
    means = {way: found.accuracy(way) for group, way in found.hits if not group}
    label = "share of mentions it is right for"
    draw = functools.partial(plot_head_means, found.layers, found.heads, means, label)
    figures = {figure_file("probe"): draw}
    written = spec.run.save(Report("probe", facts, rows, figures, files, page))
    if not spec.printed_as_json(facts):
        _tell(facts, best, "Whom mentions mean")
        if best_among:
            _tell(facts, best_among, "Among all words")
        tell_rest(facts, written)


def _texts(files: Files, form: str, bad: "BadRows") -> "Iterator[Pronoun | Document]":
    from flaxattn.corpus.coreference_documents import read_documents
    from flaxattn.corpus.pronouns import read_pronouns
    from flaxattn.probes.head_coreference import DOCUMENTS

    if form == DOCUMENTS:
        return itertools.islice(read_documents(files.paths, bad), files.limit)
    return itertools.islice(read_pronouns(files.paths, form, bad), files.limit)


def _facts(found: "Coreference", one: "Resolver") -> dict[str, Any]:
    return one._asdict() | {"lift": one.lift, "baselines": found.baselines(one.group)}


def _rows(found: "Coreference", candidates: str) -> dict[str, list[Any]]:
    """One row per group, direction and head: columns of heads.parquet."""
    names = ("candidates", "group", "direction", "layer", "head", "count", "accuracy", "baseline")
    rows: dict[str, list[Any]] = {name: [] for name in names}
    for group, direction in found.hits:
        shares, baseline = found.accuracy(direction, group), found.baseline(group)[1]
        for i, j in np.ndindex(shares.shape):
            where = (candidates, group, direction, found.layers[i], found.heads[j])
            values = (*where, found.counts[group], float(shares[i, j]), baseline)
            for name, value in zip(names, values, strict=True):
                rows[name].append(value)
    return rows


def _tell(facts: dict[str, Any], best: "list[Resolver]", what: str) -> None:
    console = Console(highlight=False, soft_wrap=True)
    one = best[0]
    title = f"{what} by head {one.layer}.{one.head}, {one.direction}"
    caption = f"chosen on {facts['heads_chosen_on']}"
    if len({one.baseline for one in best}) > 1:
        caption += (
            "; the baseline of each row is the simple rule that is right most often in its group"
        )
    table = Table(title=title, caption=caption)
    table.add_column("group", no_wrap=True)
    for name in ("mentions", "right", "baseline", "lift"):
        table.add_column(name, justify="right")
    for one in best:
        baseline = f"{one.baseline} {one.baseline_accuracy:.1%}"
        name = one.group or "all"
        table.add_row(name, str(one.mentions), f"{one.accuracy:.1%}", baseline, f"{one.lift:+.1f}")
    console.print(table)


_ABOUT = (
    "Share of mentions for which a head gives most attention to a right candidate, in the better "
    "direction. Claimed is the head that is best for all mentions, with its share in each group; "
    "texts are ordered by how much of its attention is between mentions and what they mean."
)


def mention_evidence(
    spec: "ProbeSpec",
    model: "Pretrained",
    found: Coreference,
    best: Sequence[Resolver],
    watched: WatchedMentions,
    most: int,
) -> "tuple[dict[str, Any], dict[str, bytes], Callable[[], Page]]":
    """Return the part of a report about the texts that show its best head.

    Returns:
        Facts for JSON, the content of files by name, and what makes the page.
    """
    claims = [_claim(one, found, watched) for one in best]
    texts = {n: Text(n, kept.id, kept.text) for n, kept in watched.texts.items()}

    def gold(number: int, trace: "Trace") -> "dict[str, list[GoldPairs]]":
        asked_of = [(one.direction, one.group, _name(one)) for one in best]
        every = [watched.gold_pairs(number, *question) for question in asked_of]
        return {"encoder": [one for one in every if one.pairs]}

    values = {_name(one): found.accuracy(one.direction, one.group) for one in best}
    report = EvidenceReport(
        "Heads that resolve mentions",
        spec.model,
        _ABOUT,
        numbers_of(found, values),
        "accuracy",
    )
    traces = spec.traces(model, texts)
    page = functools.partial(report_page, report, claims, traces, most, gold)
    return evidence_facts(claims, texts), {EVIDENCE: evidence_table(claims)}, page


def _name(one: Resolver) -> str:
    return one.group or "all mentions"


def _claim(one: Resolver, found: Coreference, watched: WatchedMentions) -> Claim:
    at = found.layers.index(one.layer), found.heads.index(one.head)
    message = (
        f"{one.direction}, {one.mentions} mentions, {one.lift:+.1f} points over {one.baseline}"
    )
    texts = watched.evidence.of((one.direction, one.group), *at)
    return Claim(_name(one), one.layer, one.head, one.accuracy, message, texts=texts)
