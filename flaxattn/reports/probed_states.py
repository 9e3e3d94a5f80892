# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Report probes of hidden states for trees and for labels, and fitted probes on other sentences.

`structural_report`, `label_report` and `applied_probe_report`.
"""

import dataclasses
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flaxattn.corpus.dependency_trees import Trees
from flaxattn.corpus.input_files import describe_files
from flaxattn.errors import check_arguments
from flaxattn.pipeline.reading_options import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.probes.head_probe import apply_probe, label_probe, structural_probe
from flaxattn.probes.label_probe import PENALTY, LabelAccuracy
from flaxattn.probes.parsing_probe import Attachment
from flaxattn.probes.probe_file import load_probe, to_bytes
from flaxattn.probes.structural_probe import Fitting, StructuralJudged, plain
from flaxattn.reports.probed_heads import left_out, repeatable, sources
from flaxattn.reports.report import FITTED, LAYERS, SCORES, Report, figure_file
from flaxattn.views.figures.plot_probes import plot_label_probe, plot_structural


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
