# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What `flaxattn stats`, `roles` and `probe` share: from inputs to scores of heads, and a report.

Inputs are CoNLL-U, other texts, or a store with weights. Scores are defined in `flaxattn.heads`.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from flaxattn import __version__
from flaxattn.errors import InputError
from flaxattn.files import sha256_of, written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.extraction.head_scores import Subject
    from flaxattn.heads.roles import Roles
    from flaxattn.heads.scores import Scores, Tally
    from flaxattn.heads.terms import Asked

_KEPT = 20_000  # texts whose scores stay in memory, for bootstrap intervals
_PLAN = "plan.json"
_NORMAL = 1.959963984540054


@dataclasses.dataclass(frozen=True)
class Request:
    """Which texts, read how.

    Attributes:
        inputs: Files, or one folder of a store.
        out: Folder of the report.
        model: What reads the texts.
        columns: Of the text and of the second one, in tables.
        limit: Most texts.
        lengths: Fewest and most positions of a text that counts.
        truncate: Whether texts over the model's limit are cut.
        on_error: What becomes of texts that cannot be used.
        batch_tokens: Positions of a batch.
        side: `encoder`, `decoder` or `cross`; None for what the model is known by.
    """

    inputs: tuple[str, ...]
    out: Path
    model: str = "tiny-bert"
    columns: tuple[str, str | None] = ("text", None)
    limit: int | None = None
    lengths: tuple[int, int] | None = None
    truncate: bool = False
    on_error: str = "fail"
    batch_tokens: int | None = None
    side: str | None = None

    @property
    def store(self) -> bool:
        """Whether the input is a store."""
        return len(self.inputs) == 1 and (Path(self.inputs[0]) / _PLAN).is_file()

    @property
    def annotated(self) -> bool:
        """Whether the inputs are trees.

        Raises:
            InputError: If some are, and some are not.
        """
        from flaxattn.corpus.trees import is_annotated

        found = [is_annotated(Path(name)) for name in self.inputs]
        if any(found) and not all(found):
            other = self.inputs[found.index(False)]
            raise InputError(
                f"{other} has no trees, and other inputs are CoNLL-U\n"
                "give either sentences with trees or texts without"
            )
        return any(found)


@dataclasses.dataclass
class Corpus:
    """What was found out about the heads of a model.

    Attributes:
        tally: Over all texts.
        scores: Of every text; None where they were too many to keep.
        facts: Model, texts and data, ready for JSON.
    """

    tally: "Tally"
    scores: "Scores | None"
    facts: dict[str, Any]


def gathered(request: Request, asked: "Asked", console: Console) -> Corpus:
    """Scores of the heads of a model on a corpus.

    Args:
        request: Which texts.
        asked: Which roles.
        console: Where progress is shown, if it is a terminal.

    Raises:
        InputError: If there is no text, or one that cannot be used.
        StoreError: For a store without weights, or a damaged one.
    """
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.heads.scores import Scores, Tally

    tally, kept, texts = Tally(), [], 0
    bad = BadRows(request.on_error, request.out)
    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn())
    bar = Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)
    with bar:
        task = bar.add_task("loading", total=request.limit)
        parts, facts = (_of_store if request.store else _of_texts)(
            request, asked, bad, lambda count: bar.advance(task, count)
        )
        bar.update(task, description="scoring heads")
        for part in parts:
            texts += len(part)
            tally.add(part)
            kept.append(part)
            if texts > _KEPT:
                kept.clear()
    if not texts:
        raise InputError(
            "there is no text to score heads on\nname files that hold some, or wider --lengths"
        )
    scores = Scores.joined(kept) if texts <= _KEPT else None
    facts |= {
        "texts": texts,
        "lengths": _lengths(tally.lengths),
        "left out": dict(sorted(bad.counts.items())),
    }
    return Corpus(tally, scores, facts)


_Parts = tuple[Iterator["Scores"], dict[str, Any]]
_Watch = Callable[[int], None]


def _of_texts(request: Request, asked: "Asked", bad: "BadRows", watch: _Watch) -> _Parts:
    from flaxattn.bert_handle import PretrainedBert
    from flaxattn.extraction.head_scores import head_scores
    from flaxattn.extraction.map_scores import default_side, map_scores
    from flaxattn.loading import from_pretrained

    found = read_subjects(request, bad)
    subjects, data = itertools.islice(found[0], request.limit), found[1]
    model = from_pretrained(request.model)
    side = default_side(model, request.side)
    alone = isinstance(model, PretrainedBert)
    scored = head_scores if alone else functools.partial(map_scores, side=side)
    parts = scored(
        model,
        subjects,
        asked,
        truncate=request.truncate,
        lengths=request.lengths,
        bad=bad,
        batch_tokens=request.batch_tokens,
        watch=watch,
    )
    return parts, {"model": request.model, "side": side, "data": data}


def read_subjects(
    request: Request, bad: "BadRows"
) -> tuple[Iterator["Subject"], list[dict[str, Any]]]:
    """The texts, and what files they are from.

    Args:
        request: Which ones.
        bad: Takes those that cannot be used.
    """
    from flaxattn.corpus.files import find_inputs, fingerprint
    from flaxattn.corpus.texts import Columns, read_texts
    from flaxattn.corpus.trees import read_sentences
    from flaxattn.extraction.head_scores import Subject, subject_of

    if request.annotated:
        paths = [Path(name) for name in request.inputs]
        return map(subject_of, read_sentences(paths, bad)), described(paths)
    files = find_inputs(request.inputs, folder=request.out)
    text, pair = request.columns
    texts = read_texts(files, Columns(text, pair), bad)
    made = (Subject(t.id, t.text, t.text_b, None, t.file, t.line) for t in texts)
    return made, [entry._asdict() for entry in fingerprint(files)]


def described(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Name, size and digest of the files that are there, for a report.

    Args:
        paths: Of the inputs.
    """
    there = [path for path in paths if path.is_file()]
    return [{"name": p.name, "bytes": p.stat().st_size, "sha256": sha256_of(p)} for p in there]


def _of_store(request: Request, asked: "Asked", bad: "BadRows", watch: _Watch) -> _Parts:
    from flaxattn.heads.scores import scores_of
    from flaxattn.store.store import open_store

    del bad
    opened = open_store(request.inputs[0])
    low, high = request.lengths or (0, 1 << 30)

    def parts() -> Iterator["Scores"]:
        for trace in itertools.islice(opened, request.limit):
            if low <= len(trace.tokens[0]) <= high:
                yield scores_of([trace], asked, side=side)
            watch(1)

    first = opened[0]
    side = request.side or ("cross" if first.cross else "encoder" if first.encoder else "decoder")
    data = [{"name": opened.path.name, "plan_sha256": opened.plan_sha256}]
    return parts(), {"model": first.model, "side": side, "data": data}


def _lengths(lengths: np.ndarray) -> dict[str, float]:
    low, middle, high = np.quantile(lengths, (0, 0.5, 1)).tolist()
    return {"mean": round(float(lengths.mean()), 3), "least": low, "median": middle, "most": high}


def rows_of(corpus: Corpus, roles: "Roles | None" = None, seed: int = 0) -> dict[str, list[Any]]:
    """One row per head and number: columns of `heads.parquet`.

    Args:
        corpus: What was found out.
        roles: Adds the tests of scores.
        seed: Of the bootstrap.
    """
    from flaxattn.heads.scores import intervals

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
        text = json.dumps({"flaxattn": __version__, **said}, indent=2, default=str)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    picture = () if drawn is None else (f"{name}.png",)
    if drawn is not None:
        plt.close(drawn)
    return [out / n for n in (f"{name}.json", table, *picture, *(beside or {}))]
