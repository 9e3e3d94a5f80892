# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What `flaxattn stats`, `roles` and `probe` share: from inputs to scores of heads, and a report.

Inputs are CoNLL-U, other texts, or a store, which `head_store` reads. Scores are defined in
`flaxattn.measures`; what a person types is in `head_request`.
"""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flaxattn import __version__
from flaxattn.commands.head_report import finite
from flaxattn.commands.head_request import Request
from flaxattn.errors import InputError
from flaxattn.files import sha256_of, written_whole
from flaxattn.measures.score_terms import ScoreName

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.measures.evidence import Evidence
    from flaxattn.measures.role_tests import Roles
    from flaxattn.measures.score_terms import ScoreOptions
    from flaxattn.measures.scores import Scores, Tally
    from flaxattn.pipeline.labelled_texts import Subject
    from flaxattn.trace.trace import Trace

_KEPT = 20_000  # texts whose scores stay in memory, for bootstrap intervals
_NORMAL = 1.959963984540054


class ScoredTexts(NamedTuple):
    """Some texts and their scores.

    Attributes:
        scores: Of every head.
        numbers: Of the texts, from 0 in what was read.
        texts: Themselves.
    """

    scores: "Scores"
    numbers: Sequence[int]
    texts: Sequence["Subject"]


@dataclasses.dataclass
class Source:
    """Where scores come from.

    Attributes:
        parts: Of all texts, in order.
        facts: Model and data, ready for JSON.
        traces: Weights of texts that `parts` handed out, by number; None where there are none.
        refused: Numbers that the source does not tell, with the request that would record them;
            complete when `parts` has ended.
    """

    parts: Iterator[ScoredTexts]
    facts: dict[str, Any]
    traces: Callable[[Sequence["Subject"], Sequence[int]], Iterator["Trace"]] | None
    refused: dict[ScoreName, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class ScoredCorpus:
    """What was found out about the heads of a model.

    Attributes:
        tally: Over all texts.
        scores: Of every text; None where they were too many to keep.
        facts: Model, texts and data, ready for JSON.
        evidence: The texts with the highest scores.
        texts: Those texts, by number.
        traces: Weights of some of them, by number; None where there are none.
        refused: Numbers that a store does not tell, with the request that would record them.
    """

    tally: "Tally"
    scores: "Scores | None"
    facts: dict[str, Any]
    evidence: "Evidence"
    texts: "dict[int, Subject]"
    traces: Callable[[Sequence[int]], Iterator["Trace"]] | None
    refused: dict[ScoreName, str]


def gathered(
    request: Request, asked: "ScoreOptions", console: Console, shown: Sequence[str] = ("score",)
) -> ScoredCorpus:
    """Scores of the heads of a model on a corpus.

    Args:
        request: Which texts.
        asked: Which roles.
        console: Where progress is shown, if it is a terminal.
        shown: Kinds of columns whose best texts are kept.

    Raises:
        InputError: If there is no text, or one that cannot be used.
        StoreError: For a store without weights, or a damaged one.
    """
    from flaxattn.commands.head_store import of_store
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.measures.evidence import Evidence
    from flaxattn.measures.scores import Scores, Tally

    tally, evidence, kept = Tally(), Evidence(request.evidence), []
    texts: dict[int, Subject] = {}
    bad, count = BadRows(request.on_error, request.out), 0
    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn())
    bar = Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)
    with bar:
        task = bar.add_task("loading", total=request.limit)
        source = (of_store if request.store else _of_texts)(
            request, asked, bad, lambda done: bar.advance(task, done)
        )
        bar.update(task, description="scoring heads")
        for part in source.parts:
            count += len(part.scores)
            tally.add(part.scores)
            kept.append(part.scores)
            if count > _KEPT:
                kept.clear()
            for column, values in part.scores.values.items():
                if column.kind in shown:
                    evidence.add(column, values, part.numbers)
            texts |= zip(part.numbers, part.texts, strict=True)
            texts = {number: texts[number] for number in evidence.texts()}
    if not count:
        raise InputError(
            "there is no text to score heads on\nname files that hold some, or wider --lengths"
        )
    scores = Scores.joined(kept) if count <= _KEPT else None
    facts = source.facts | {
        "texts": count,
        "lengths": _lengths(tally.lengths),
        "left out": dict(sorted(bad.counts.items())),
    }
    refused = {c: told for c, told in sorted(source.refused.items()) if c not in tally.moments}
    traces = _traces_of(source, texts)
    return ScoredCorpus(tally, scores, facts, evidence, texts, traces, refused)


def _traces_of(
    source: Source, texts: "Mapping[int, Subject]"
) -> Callable[[Sequence[int]], Iterator["Trace"]] | None:
    made = source.traces
    if made is None:
        return None
    return lambda numbers: made([texts[number] for number in numbers], numbers)


_Watch = Callable[[int], None]


def _of_texts(request: Request, asked: "ScoreOptions", bad: "BadRows", watch: _Watch) -> Source:
    from flaxattn.measures.head_scores import default_side, head_scores
    from flaxattn.pretrained.from_pretrained import from_pretrained

    found = read_subjects(request, bad)
    subjects, data = itertools.islice(found[0], request.limit), found[1]
    model = from_pretrained(request.model)
    side = default_side(model, request.side)
    told: list[Sequence[Subject]] = []
    scored = head_scores(
        model,
        subjects,
        asked,
        side=side,
        truncate=request.truncate,
        lengths=request.range,
        bad=bad,
        batch_tokens=request.batch_tokens,
        watch=watch,
        told=told.append,
    )

    def parts() -> Iterator[ScoredTexts]:
        start = 0
        for scores in scored:
            yield ScoredTexts(scores, range(start, start + len(scores)), told.pop())
            start += len(scores)

    def traces(subjects: Sequence["Subject"], numbers: Sequence[int]) -> Iterator["Trace"]:
        del numbers
        pairs = [s.text_b for s in subjects if s.text_b is not None]
        return traces_of(model, [s.text for s in subjects], pairs or None, request.truncate)

    return Source(parts(), {"model": request.model, "side": side, "data": data}, traces)


def traces_of(
    model: Any, texts: Sequence[str], second: Sequence[str] | None, truncate: bool
) -> Iterator["Trace"]:
    """Weights of a few texts, some at a time, in their order.

    Args:
        model: With its tokenizer.
        texts: The texts.
        second: The second one of each.
        truncate: Whether texts over the model's limit are cut.
    """
    from flaxattn.kernels.contract import Capture
    from flaxattn.pipeline.extraction import Options, Texts, extract_shards

    groups = _small(texts, second)
    shards = [
        Texts(texts[i:j], None if second is None else second[i:j], first=i) for i, j in groups
    ]
    options = Options(capture=Capture(weights=True), truncate=truncate)
    for (found,) in extract_shards([model], shards, options):
        yield from found.traces


_ROOM = 1 << 20  # characters squared of texts whose maps are in memory together


def _small(texts: Sequence[str], second: Sequence[str] | None) -> list[tuple[int, int]]:
    """Ranges of texts that are short together; maps grow with the square of a text."""
    sizes = [len(text) for text in texts]
    if second is not None:
        sizes = [size + len(text) for size, text in zip(sizes, second, strict=True)]
    starts, room = [0], 0
    for place, size in enumerate(sizes):
        room += size * size
        if room > _ROOM and place > starts[-1]:
            starts.append(place)
            room = size * size
    return list(itertools.pairwise([*starts, len(texts)]))


def read_subjects(
    request: Request, bad: "BadRows"
) -> tuple[Iterator["Subject"], list[dict[str, Any]]]:
    """The texts, and what files they are from.

    Args:
        request: Which ones.
        bad: Takes those that cannot be used.
    """
    from flaxattn.corpus.dependency_trees import read_sentences
    from flaxattn.corpus.input_files import find_inputs, fingerprint
    from flaxattn.corpus.texts import Columns, read_texts
    from flaxattn.pipeline.labelled_texts import Subject, subject_of

    if request.annotated:
        paths = [Path(name) for name in request.inputs]
        return map(subject_of, read_sentences(paths, bad)), described(paths)
    files = find_inputs(request.inputs, folder=request.out)
    texts = read_texts(files, Columns(request.text_column, request.pair_column), bad)
    made = (Subject(t.id, t.text, t.text_b, None, t.file, t.line) for t in texts)
    return made, [entry._asdict() for entry in fingerprint(files)]


def described(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Name, size and digest of the files that are there, for a report.

    Args:
        paths: Of the inputs.
    """
    there = [path for path in paths if path.is_file()]
    return [{"name": p.name, "bytes": p.stat().st_size, "sha256": sha256_of(p)} for p in there]


def _lengths(lengths: np.ndarray) -> dict[str, float]:
    low, middle, high = np.quantile(lengths, (0, 0.5, 1)).tolist()
    return {"mean": round(float(lengths.mean()), 3), "least": low, "median": middle, "most": high}


def rows_of(
    corpus: ScoredCorpus, roles: "Roles | None" = None, seed: int = 0
) -> dict[str, list[Any]]:
    """One row per head and number: columns of `heads.parquet`.

    Args:
        corpus: What was found out.
        roles: Adds the tests of scores.
        seed: Of the bootstrap.
    """
    from flaxattn.measures.scores import intervals

    tally = corpus.tally
    drawn = None if corpus.scores is None else intervals(corpus.scores, seed=seed)
    names = ("layer", "head", "kind", "name", "texts", "mean", "sd", "low", "high")
    tested = ("t", "p", "p_corrected", "found", "p_beyond") if roles else ()
    rows: dict[str, list[Any]] = {name: [] for name in (*names, *tested)}
    for column, (counts, mean, m2) in sorted(tally.moments.items()):
        deviation = np.sqrt(m2 / np.maximum(counts - 1, 1))
        error = _NORMAL * deviation / np.sqrt(np.maximum(counts, 1))
        low, high = (mean - error, mean + error) if drawn is None else drawn[column]
        role = roles.roles.get(column.name) if roles and column.kind == "score" else None
        for i, j in np.ndindex(mean.shape):
            spread = deviation[i, j] if counts[i, j] > 1 else np.nan
            numbers = (mean[i, j], spread, low[i, j], high[i, j])
            where = (tally.layers[i], tally.heads[j], *column, int(counts[i, j]))
            values = [*where, *(float(number) for number in numbers)]
            if tested and role is None:
                values += [None] * len(tested)
            elif role is not None:
                beyond = None if role.beyond is None else float(role.beyond[i, j])
                each = (role.t[i, j], role.p[i, j], role.corrected[i, j])
                values += [*(float(n) for n in each), bool(role.found[i, j]), beyond]
            for name, value in zip(rows, values, strict=True):
                rows[name].append(value)
    return rows


def write_report(
    out: Path,
    name: str,
    said: Mapping[str, Any],
    rows: Mapping[str, Sequence[Any]],
    figure: Any,
    beside: Mapping[str, bytes] | None = None,
    table: str = "heads.parquet",
) -> list[Path]:
    """Write the report whole, or leave the folder as it was.

    Args:
        out: The folder.
        name: Of the JSON file and of the picture.
        said: Facts; the version is added.
        rows: Columns of the table.
        figure: A matplotlib figure; closed. None for no picture.
        beside: Content of other files, by name.
        table: Name of the table's file.

    Returns:
        The files.

    Raises:
        CheckpointError: If it cannot be written.
    """
    import matplotlib.pyplot as plt
    import pyarrow as pa
    import pyarrow.parquet as pq

    drawn: "Figure | None" = figure
    with written_whole(out, f"{name}.json") as folder:
        columns = pa.table({column: pa.array(values) for column, values in rows.items()})
        pq.write_table(columns, folder / table, compression="zstd", write_page_checksum=True)
        if drawn is not None:
            drawn.savefig(folder / f"{name}.png", dpi=150)
        for other, content in (beside or {}).items():
            (folder / other).write_bytes(content)
        told = finite({"flaxattn": __version__, **said})
        text = json.dumps(told, indent=2, default=str)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    picture = () if drawn is None else (f"{name}.png",)
    if drawn is not None:
        plt.close(drawn)
    return [out / n for n in (f"{name}.json", table, *picture, *(beside or {}))]
