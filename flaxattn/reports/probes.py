# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Reports of probes: of heads, with texts as evidence, and of hidden states.

`probe_report` asks heads for governors, `coreference_report` for antecedents and pronouns.
`structural_report` and `label_report` probe hidden states for trees and labels, and
`applied_probe_report` applies a fitted probe to other sentences.
"""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import Sentence, Trees, each_sentence
from flaxattn.corpus.input_files import describe_files, describe_texts
from flaxattn.corpus.texts import Text, annotated_text
from flaxattn.errors import check_arguments
from flaxattn.measures.claims import Claim
from flaxattn.measures.gold_pairs import GoldPairs, text_layout
from flaxattn.measures.score_source import traces_of
from flaxattn.measures.scores import side_of
from flaxattn.pipeline.tokenize_texts import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.probes.governor_probe import Classifier, Dependencies, Watched, governor_pairs
from flaxattn.probes.head_coreference import (
    DOCUMENTS,
    Coreference,
    HeadCoreference,
    Resolver,
    Texts,
    WatchedMentions,
    head_coreference,
)
from flaxattn.probes.head_probe import (
    HeadProbe,
    apply_probe,
    head_probe,
    label_probe,
    structural_probe,
)
from flaxattn.probes.label_probe import PENALTY, LabelAccuracy
from flaxattn.probes.parsing_probe import Attachment
from flaxattn.probes.probe_file import load_probe, to_bytes
from flaxattn.probes.structural_probe import Fitting, StructuralJudged, plain
from flaxattn.reports.evidence import (
    DEFAULT_PAGE,
    PageOptions,
    evidence_facts,
    evidence_table,
    numbers_of,
    report_page,
)
from flaxattn.reports.report import EVIDENCE, FITTED, LAYERS, SCORES, Report, figure_file
from flaxattn.trace.trace import Trace
from flaxattn.views.evidence_page import EvidenceReport
from flaxattn.views.figures.plot_head_numbers import plot_label_probe, plot_structural
from flaxattn.views.figures.plot_roles import plot_head_means
from flaxattn.views.page import Page

PARSER_PENALTY = 1e-4
"""Penalty on the squared coefficients of a parser."""
CHOSEN = "heads_chosen_on"
AMONG = "among_all_words"
_SHOWN = 12  # relations in the figure


@check_arguments(2)
def probe_report(
    model: Pretrained,
    trees: Trees,
    train: Trees | None = None,
    *,
    untrained: bool = False,
    penalty: float = PARSER_PENALTY,
    seed: int = 0,
    reading: ReadingOptions = DEFAULTS,
    page: PageOptions = DEFAULT_PAGE,
    data: Sequence[Mapping[str, Any]] | None = None,
) -> Report:
    """Report the heads that find governors, with the sentences that show them best.

    As `flaxattn probe` does. `head_probe` returns the numbers alone, and describes them and their
    cost.

    >>> import flaxattn as fa
    >>> from flaxattn.corpus.dependency_trees import Sentence, Word
    >>> cats = Word("Cats", "NOUN", 1, "nsubj", 0, 4, 1)
    >>> sleep = Word("sleep", "VERB", -1, "root", 5, 10, 2)
    >>> trees = [Sentence("one", "Cats sleep", (cats, sleep), "", 1)]
    >>> report = fa.probe_report(fa.from_pretrained("tiny-bert"), trees)
    >>> report.table.column_names[:4]
    ['relation', 'direction', 'layer', 'head']

    Args:
        model: A BERT with its tokenizer.
        trees: Sentences to judge heads on: CoNLL-U files, or what `read_sentences` gives.
        train: Others, on which heads are chosen, and to which a parser is fitted.
        untrained: Whether a parser is fitted to the model with random parameters too.
        penalty: Penalty on the squared coefficients of the parser.
        seed: Random seed of the control task and of random parameters.
        reading: How sentences are read.
        page: How much evidence is kept, and shown on the page.
        data: Where the sentences come from, kept with the report; default their digests.

    Returns:
        A report with a row for each relation, direction and head, a figure, a page, and the fitted
        parser where there are sentences to fit it to. `result` is the `HeadProbe`.

    Raises:
        InputError: As `head_probe`.
    """
    trees, train = repeatable(trees), None if train is None else repeatable(train)
    passing = Watched(page.evidence)
    result = head_probe(
        model,
        trees,
        train,
        untrained=untrained,
        penalty=penalty,
        seed=seed,
        passing=passing,
        reading=reading,
    )
    found, best, judged = result
    texts = _texts(trees, passing.names)
    claims = [_governor_claim(one, found, passing) for one in best]
    claims = [c._replace(texts=[s for s in c.texts if s.text in texts]) for c in claims]
    facts = {
        "model": model.name,
        "data": sources(trees, train) if data is None else list(data),
        "settings": {"penalty": penalty, "truncate": reading.truncate, "untrained": untrained},
        "seed": seed,
        "left_out": left_out(reading),
        CHOSEN: "other sentences" if judged else "the same sentences, which flatters",
        "relations": [one._asdict() | {"lift": one.lift} for one in best],
        "parser": None if judged is None else judged.facts(),
        "evidence": evidence_facts(claims, texts),
    }
    files = {EVIDENCE: evidence_table(claims)}
    if judged is not None:
        notes = {name: facts[name] for name in ("model", "data", "settings", "parser")}
        files[FITTED] = to_bytes(judged.probe, notes)
    return Report(
        "probe",
        facts,
        _governor_rows(found),
        {figure_file("probe"): functools.partial(_figure, found, best)},
        files,
        functools.partial(_governor_page, model, result, claims, texts, reading, page.sentences),
        result=result,
    )


def left_out(reading: ReadingOptions) -> dict[str, int]:
    """Number of sentences that could not be used, by the code of the problem."""
    return dict(sorted(reading.problems.counts.items()))


def repeatable(trees: Trees) -> Trees:
    """Trees that can be read more than once."""
    return list(trees) if isinstance(trees, Iterator) else trees


def sources(*several: Trees | None) -> list[dict[str, Any]]:
    """Describe sentences, or the files that hold them."""
    found = []
    for trees in several:
        some = () if trees is None else [trees] if isinstance(trees, str | os.PathLike) else trees
        kept = list(some)
        sentences = [one.text for one in kept if isinstance(one, Sentence)]
        paths = [Path(one) for one in kept if not isinstance(one, Sentence)]
        found.append(describe_texts(sentences) | {"files": describe_files(paths)})
    return found


def _texts(trees: Trees, names: Mapping[int, str]) -> dict[int, Text]:
    """The sentences of some names; of one name the first."""
    wanted: dict[str, int] = {}
    for number, name in names.items():
        wanted.setdefault(name, number)
    found: dict[int, Text] = {}
    for sentence in each_sentence(trees, BadRows("skip")):
        number = wanted.get(sentence.id)
        if number is not None and number not in found:
            found[number] = annotated_text(sentence)
    return found


def _governor_rows(found: Dependencies) -> dict[str, list[Any]]:
    """One row for each relation, direction and head."""
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


def _figure(found: Dependencies, best: Sequence[Classifier]) -> Any:
    means = {
        f"{one.relation} ({one.direction})": found.accuracy(one.direction, one.relation)
        for one in best[:_SHOWN]
    }
    return plot_head_means(found.layers, found.heads, means, "share of words it is right for")


def _governor_claim(one: Classifier, found: Dependencies, watched: Watched) -> Claim:
    at = found.layers.index(one.layer), found.heads.index(one.head)
    message = (
        f"{one.direction}, {one.words} words, {one.lift:+.1f} points over offset {one.offset:+d}"
    )
    texts = watched.evidence.of((one.direction, one.relation), *at)
    return Claim(one.relation, one.layer, one.head, one.accuracy, message, texts=texts)


def _governor_page(
    model: Pretrained,
    result: HeadProbe,
    claims: Sequence[Claim],
    texts: Mapping[int, Text],
    reading: ReadingOptions,
    most: int,
) -> Page:
    found, best, _ = result
    values = {one.relation: found.accuracy(one.direction, one.relation) for one in best}
    about = (
        "Share of words whose governor a head finds, by the word it gives most of its "
        "attention to, in the better direction. Claims name the best head for each relation; "
        "sentences are ordered by how much of its attention is on the right words."
    )
    ways = {one.relation: one.direction for one in best}

    def gold(number: int, trace: Trace) -> dict[str, list[GoldPairs]]:
        layout = text_layout(trace, texts[number], model)
        if not any(layout.words):
            return {}
        record = side_of(trace, "encoder")
        every = [governor_pairs(*way, layout, record) for way in ways.items()]
        return {"encoder": [one for one in every if one.pairs]}

    numbers = numbers_of(found, values)
    report = EvidenceReport("Heads that find governors", model.name, about, numbers, "accuracy")
    return report_page(report, claims, _traces(model, texts, reading), most, gold)


def _traces(
    model: Pretrained, texts: Mapping[int, Text], reading: ReadingOptions
) -> Callable[[Sequence[int]], Iterator[Trace]]:
    """Return a function that traces the weights of some texts, given their numbers."""

    def traced(numbers: Sequence[int]) -> Iterator[Trace]:
        chosen, allowed = [texts[number].text for number in numbers], reading.allow_nonfinite
        return traces_of(model, chosen, None, reading.truncate, allow_nonfinite=allowed)

    return traced


@check_arguments(4)
def coreference_report(
    model: Pretrained,
    texts: Texts,
    form: str = DOCUMENTS,
    chosen_on: Texts | None = None,
    *,
    reading: ReadingOptions = DEFAULTS,
    page: PageOptions = DEFAULT_PAGE,
    data: Sequence[Mapping[str, Any]] | None = None,
) -> Report:
    """Report the heads that resolve pronouns or mentions, with the texts that show them best.

    As `flaxattn probe --coreference` and `--pronouns` do. `head_coreference` returns the numbers
    alone, and describes them and their cost.

    >>> import flaxattn as fa
    >>> from flaxattn.corpus.mentions import Pronoun
    >>> text = "Mary met John before she left."
    >>> pronoun = Pronoun("one", text, (21, 24), ((0, 4), (9, 13)), 0, "all", "", 1)
    >>> report = fa.coreference_report(fa.from_pretrained("tiny-bert"), [pronoun], "gap")
    >>> report.table.column_names[:4]
    ['candidates', 'group', 'direction', 'layer']

    Args:
        model: A BERT with its tokenizer.
        texts: Files, or what `read_pronouns` or `read_documents` give.
        form: `documents`, `gap`, `winobias` or `winogender`.
        chosen_on: Other texts, on which head and direction are chosen; default the same, which
            flatters.
        reading: How texts are read.
        page: How much evidence is kept, and shown on the page.
        data: Where the texts come from, kept with the report; default their digests.

    Returns:
        A report with a row for each group, direction and head, a figure and a page. `result` is the
        `HeadCoreference`.

    Raises:
        InputError: As `head_coreference`.
    """
    watched = WatchedMentions(page.evidence)
    result = head_coreference(model, texts, form, chosen_on, reading=reading, passing=watched)
    found, best, among, best_among = result
    claims = [_mention_claim(one, found, watched) for one in best]
    shown = {n: Text(n, kept.id, kept.text) for n, kept in watched.texts.items()}
    if data is None:
        data = [describe_texts([kept.text for kept in watched.texts.values()])]
    facts = {
        "model": model.name,
        "texts": form,
        "data": list(data),
        "settings": {"truncate": reading.truncate},
        "left_out": left_out(reading),
        "mean_neither": found.neither,
        CHOSEN: "the same, which flatters" if chosen_on is None else "other texts",
        "groups": [_group_facts(found, one) for one in best],
        AMONG: None if among is None else [_group_facts(among, one) for one in best_among],
        "evidence": evidence_facts(claims, shown),
    }
    rows = _mention_rows(found, "people" if among is None else "mentions")
    if among is not None:
        for name, values in _mention_rows(among, "words").items():
            rows[name] += values
    means = {way: found.accuracy(way) for group, way in found.hits if not group}
    label = "share of mentions it is right for"
    draw = functools.partial(plot_head_means, found.layers, found.heads, means, label)
    make = functools.partial(
        _mention_page, model, result, claims, shown, watched, reading, page.sentences
    )
    figures = {figure_file("probe"): draw}
    return Report(
        "probe", facts, rows, figures, {EVIDENCE: evidence_table(claims)}, make, result=result
    )


def _group_facts(found: Coreference, one: Resolver) -> dict[str, Any]:
    return one._asdict() | {"lift": one.lift, "baselines": found.baselines(one.group)}


def _mention_rows(found: Coreference, candidates: str) -> dict[str, list[Any]]:
    """One row for each group, direction and head."""
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


def _group_name(one: Resolver) -> str:
    return one.group or "all mentions"


def _mention_claim(one: Resolver, found: Coreference, watched: WatchedMentions) -> Claim:
    at = found.layers.index(one.layer), found.heads.index(one.head)
    message = (
        f"{one.direction}, {one.mentions} mentions, {one.lift:+.1f} points over {one.baseline}"
    )
    texts = watched.evidence.of((one.direction, one.group), *at)
    return Claim(_group_name(one), one.layer, one.head, one.accuracy, message, texts=texts)


def _mention_page(
    model: Pretrained,
    result: HeadCoreference,
    claims: Sequence[Claim],
    texts: Mapping[int, Text],
    watched: WatchedMentions,
    reading: ReadingOptions,
    most: int,
) -> Page:
    found, best = result.found, result.best
    about = (
        "Share of mentions for which a head gives most attention to a right candidate, in the "
        "better direction. Claims name the head that is best for all mentions, with its share in "
        "each group; texts are ordered by how much of its attention is between mentions and what "
        "they mean."
    )

    def gold(number: int, trace: Trace) -> dict[str, list[GoldPairs]]:
        questions = [(one.direction, one.group, _group_name(one)) for one in best]
        every = [watched.gold_pairs(number, *question) for question in questions]
        return {"encoder": [one for one in every if one.pairs]}

    values = {_group_name(one): found.accuracy(one.direction, one.group) for one in best}
    numbers = numbers_of(found, values)
    report = EvidenceReport("Heads that resolve mentions", model.name, about, numbers, "accuracy")
    return report_page(report, claims, _traces(model, texts, reading), most, gold)


@check_arguments(4)
def structural_report(
    model: Pretrained,
    trees: Trees,
    train: Trees,
    layers: Sequence[int] | None = None,
    *,
    fitting: Fitting | None = None,
    untrained: bool = False,
    reading: ReadingOptions = DEFAULTS,
    data: Sequence[Mapping[str, Any]] | None = None,
) -> Report:
    """Report structural probes of hidden states: how well trees can be read from each layer.

    As `flaxattn probe --structural` does. `structural_probe` returns the numbers alone, and
    describes its arguments and their cost.

    >>> import flaxattn as fa
    >>> from flaxattn.corpus.dependency_trees import Sentence, Word
    >>> cats = Word("Cats", "NOUN", 1, "nsubj", 0, 4, 1)
    >>> sleep = Word("sleep", "VERB", -1, "root", 5, 10, 2)
    >>> trees = [Sentence(str(n), "Cats sleep", (cats, sleep), "", 1) for n in range(10)]
    >>> report = fa.structural_report(fa.from_pretrained("tiny-bert"), trees, trees, layers=[2])
    >>> report.table.column_names[:3]
    ['what', 'layer', 'uuas']

    Args:
        model: A BERT, a GPT-2 or an encoder-decoder, with its tokenizer.
        trees: Sentences to judge probes on: CoNLL-U files, or what `read_sentences` gives.
        train: Others that probes are fitted to.
        layers: Hidden states; default all.
        fitting: How probes are fitted.
        untrained: Whether a probe is fitted to the model with random parameters too.
        reading: How sentences are read.
        data: Where the sentences come from, kept with the report; default their digests.

    Returns:
        A report with a row for each hidden state and baseline, a figure and the best probe.
        `result` is the `StructuralJudged`.

    Raises:
        InputError: As `structural_probe`.
    """
    fitting, trees, train = fitting or Fitting(), repeatable(trees), repeatable(train)
    judged = structural_probe(
        model, trees, train, layers, fitting=fitting, untrained=untrained, reading=reading
    )
    facts = {
        "model": model.name,
        "data": sources(trees, train) if data is None else list(data),
        "settings": {
            **dataclasses.asdict(fitting),
            "layers": layers,
            "truncate": reading.truncate,
            "untrained": untrained,
        },
        "seed": fitting.seed,
        "left_out": left_out(reading),
        "structural": judged.facts(),
    }
    notes = {name: facts[name] for name in ("model", "data", "settings", "structural")}
    return Report(
        "probe",
        facts,
        _structural_rows(judged),
        {figure_file("probe"): functools.partial(plot_structural, judged)},
        {FITTED: to_bytes(judged.probe, notes)},
        table_name=LAYERS,
        result=judged,
    )


def _structural_rows(judged: StructuralJudged) -> dict[str, list[Any]]:
    """One row for each hidden state and baseline; the `layer` of a chain is null."""
    best = judged.probe.layer
    rows: dict[str, list[Any]] = {"what": [], "layer": []}
    named: list[tuple[str, int | None, Any]] = [
        ("probe", probe.layer, scores)
        for probe, scores in zip(judged.probes, judged.scores, strict=True)
    ]
    named += [("chain", None, judged.chain), ("control", best, judged.control)]
    named += [] if judged.untrained is None else [("untrained", best, judged.untrained)]
    for what, layer, scores in named:
        for name, value in {"what": what, "layer": layer, **scores._asdict()}.items():
            rows.setdefault(name, []).append(value)
    return rows


@check_arguments(5)
def label_report(
    model: Pretrained,
    trees: Trees,
    train: Trees,
    labels: str = "upos",
    layers: Sequence[int] | None = None,
    *,
    untrained: bool = False,
    penalty: float = PENALTY,
    seed: int = 0,
    reading: ReadingOptions = DEFAULTS,
    data: Sequence[Mapping[str, Any]] | None = None,
) -> Report:
    """Report linear probes of labels: how well each hidden state predicts them.

    As `flaxattn probe --states` does. `label_probe` returns the numbers alone, and describes its
    arguments and their cost.

    >>> import flaxattn as fa
    >>> from flaxattn.corpus.dependency_trees import Sentence, Word
    >>> cats = Word("Cats", "NOUN", 1, "nsubj", 0, 4, 1)
    >>> sleep = Word("sleep", "VERB", -1, "root", 5, 10, 2)
    >>> trees = [Sentence(str(n), "Cats sleep", (cats, sleep), "", 1) for n in range(10)]
    >>> report = fa.label_report(fa.from_pretrained("tiny-bert"), trees, trees, layers=[2])
    >>> report.table.column_names[:2]
    ['layer', 'accuracy']

    Args:
        model: Any with a tokenizer; of an encoder-decoder the encoder is probed.
        trees: Sentences to judge probes on: CoNLL-U files, or what `read_sentences` gives.
        train: Others that probes are fitted to.
        labels: `upos`, `xpos`, or `feats.NAME` for a morphological feature.
        layers: Hidden states; default all.
        untrained: Whether probes are fitted to the model with random parameters too.
        penalty: Penalty on squared coefficients.
        seed: Random seed of the control task, of random parameters and of the bootstrap.
        reading: How sentences are read.
        data: Where the sentences come from, kept with the report; default their digests.

    Returns:
        A report with a row for each hidden state, a figure and the best probe. `result` is the
        `LabelJudged`.

    Raises:
        InputError: As `label_probe`.
    """
    trees, train = repeatable(trees), repeatable(train)
    judged = label_probe(
        model,
        trees,
        train,
        labels,
        layers,
        untrained=untrained,
        penalty=penalty,
        seed=seed,
        reading=reading,
    )
    facts = {
        "model": model.name,
        "data": sources(trees, train) if data is None else list(data),
        "settings": {
            "labels": labels,
            "layers": layers,
            "penalty": penalty,
            "truncate": reading.truncate,
            "untrained": untrained,
        },
        "seed": seed,
        "left_out": left_out(reading),
        "states": judged.facts(),
    }
    notes = {name: facts[name] for name in ("model", "data", "settings", "states")}
    rows = {name: [one.plain()[name] for one in judged.scores] for name in judged.scores[0]._fields}
    return Report(
        "probe",
        facts,
        rows,
        {figure_file("probe"): functools.partial(plot_label_probe, judged)},
        {FITTED: to_bytes(judged.probe, notes)},
        table_name=LAYERS,
        result=judged,
    )


@check_arguments(3)
def applied_probe_report(
    model: Pretrained,
    trees: Trees,
    path: str | os.PathLike[str],
    *,
    reading: ReadingOptions = DEFAULTS,
    data: Sequence[Mapping[str, Any]] | None = None,
) -> Report:
    """Report the scores of a saved probe on other sentences.

    As `flaxattn probe --load` does. `load_probe` and `apply_probe` return the numbers alone.

    >>> import flaxattn as fa
    >>> from flaxattn.corpus.dependency_trees import Sentence, Word
    >>> cats = Word("Cats", "NOUN", 1, "nsubj", 0, 4, 1)
    >>> sleep = Word("sleep", "VERB", -1, "root", 5, 10, 2)
    >>> trees = [Sentence(str(n), "Cats sleep", (cats, sleep), "", 1) for n in range(10)]
    >>> model = fa.from_pretrained("tiny-bert")
    >>> _ = fa.label_report(model, trees, trees, layers=[2]).save("PROBE")
    >>> report = fa.applied_probe_report(model, trees, "PROBE/probe.safetensors")
    >>> report.facts["scores"]["accuracy"]
    1.0

    Args:
        model: The model that the probe was fitted to.
        trees: CoNLL-U files, or sentences.
        path: File of the probe, such as `report-probe/probe.safetensors`.
        reading: How sentences are read.
        data: Where the sentences come from, kept with the report; default their digests.

    Returns:
        A report with one row of scores. `result` is what `apply_probe` returns.

    Raises:
        InputError: As `load_probe` and `apply_probe`.
    """
    saved, trees = load_probe(path), repeatable(trees)
    found = apply_probe(model, trees, saved.probe, reading=reading)
    if isinstance(found, LabelAccuracy):
        scores = {"accuracy": found.score, "words": found.words}
    elif isinstance(found, Attachment):
        scores = {"uas": 100 * found.score, "words": found.words}
    else:
        scores = plain(found)
    facts = {
        "model": model.name,
        "data": sources(trees) if data is None else list(data),
        "settings": {"truncate": reading.truncate},
        "left_out": left_out(reading),
        "probe": {**describe_files([Path(path)])[0], "notes": saved.notes},
        "scores": scores,
    }
    rows = {name: [value] for name, value in scores.items()}
    return Report("probe", facts, rows, {}, table_name=SCORES, result=found)
