# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""`flaxattn probe`: parses, calls, prints. Everything heavy is imported when it runs."""

import copy
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from flaxattn.commands.roles import AsJson, BatchTokens, Limit, Model, OnError, Truncate
from flaxattn.commands.text_lines import progress
from flaxattn.errors import InputError

if TYPE_CHECKING:
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.heads.dependency import Classifier, Dependencies
    from flaxattn.heads.selectivity import Judged
    from flaxattn.heads.word_maps import WordMaps

_SHOWN = 12  # relations in the table and in the figure
_CHOSEN = "heads chosen on"


def probe(
    inputs: Annotated[
        list[Path],
        typer.Argument(metavar="INPUT...", help="Sentences with trees (.conllu, also .gz, .zst)."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the report.")] = Path(
        "report"
    ),
    model: Model = "tiny-bert",
    train: Annotated[
        list[Path] | None,
        typer.Option(
            help="Other sentences with trees, to choose heads on and to fit a parser of all heads "
            "to; repeat for several files."
        ),
    ] = None,
    limit: Limit = None,
    train_limit: Annotated[
        int | None, typer.Option(min=1, help="Take no more of the other sentences than these.")
    ] = None,
    untrained: Annotated[
        bool,
        typer.Option("--untrained", help="Fit a parser to the model with random parameters too."),
    ] = False,
    penalty: Annotated[float, typer.Option(help="On the parser's coefficients squared.")] = 1e-4,
    truncate: Truncate = False,
    on_error: OnError = "fail",
    seed: Annotated[int, typer.Option(help="Of the control task and of random parameters.")] = 0,
    batch_tokens: BatchTokens = None,
    as_json: AsJson = False,
) -> None:
    """Ask every head for the governors of words, and all heads together for trees.

    Writes probe.json, heads.parquet with every head and relation, probe.png, and, with --train,
    the fitted parser as probe.safetensors.
    """
    from flaxattn.commands.head_corpus import write_report
    from flaxattn.corpus.bad_rows import BadRows
    from flaxattn.heads.dependency import Dependencies
    from flaxattn.heads.probe_file import to_bytes

    files = _Files(tuple(inputs), limit), _Files(tuple(train or ()), train_limit)
    _check(files, untrained)
    bad = BadRows(on_error, out)
    reader = _Reader(model, bad, truncate, batch_tokens)
    judged, chosen_on = None, None
    if train:
        others, texts = list(reader.maps(files[1])), list(reader.maps(files[0]))
        blind = reader.untrained(seed) if untrained else None
        judged = _judged(others, texts, blind, files, penalty, seed)
        found, chosen_on = Dependencies.of(texts), Dependencies.of(others)
    else:
        found = Dependencies.of(reader.maps(files[0]))
    best = found.best(chosen_on)
    if not best:
        raise InputError("no sentence has a relation to probe\nname files that hold sentences")
    said = {
        "model": model,
        "data": [each.facts() for each in files],
        "settings": {"penalty": penalty, "truncate": truncate, "untrained": untrained},
        "seed": seed,
        "left out": dict(sorted(bad.counts.items())),
        _CHOSEN: "other sentences" if train else "the same sentences, which flatters",
        "relations": [one._asdict() | {"lift": one.lift} for one in best],
        "parser": None if judged is None else judged.facts(),
    }
    beside = {}
    if judged is not None:
        notes = {name: said[name] for name in ("model", "data", "settings", "parser")}
        beside["probe.safetensors"] = to_bytes(judged.probe, notes)
    written = write_report(out, "probe", said, _rows(found), _figure(found, best), beside)
    _tell(said, best, written, as_json)


class _Files(NamedTuple):
    """Files with trees, and how many of their sentences are taken."""

    paths: tuple[Path, ...]
    limit: int | None

    def facts(self) -> dict[str, Any]:
        from flaxattn.commands.head_corpus import described

        return {"files": described(self.paths), "limit": self.limit}


class _Reader:
    """A model, and how it reads sentences."""

    def __init__(
        self, model: str, bad: "BadRows", truncate: bool, batch_tokens: int | None
    ) -> None:
        from flaxattn.loading import from_pretrained

        self._model = from_pretrained(model)
        self._bad = bad
        self._how: dict[str, Any] = {"truncate": truncate, "batch_tokens": batch_tokens}

    def maps(self, files: _Files) -> "Iterator[WordMaps]":
        """Attention between words, sentence by sentence."""
        from flaxattn.corpus.trees import read_sentences
        from flaxattn.extraction.word_maps import word_maps

        sentences = itertools.islice(read_sentences(files.paths, self._bad), files.limit)
        with progress("reading heads", files.limit) as seen:
            yield from word_maps(self._model, sentences, bad=self._bad, watch=seen, **self._how)

    def untrained(self, seed: int) -> "_Reader":
        """The same with random parameters; what is wrong with sentences has been told."""
        from flaxattn.corpus.bad_rows import BadRows
        from flaxattn.extraction.word_maps import untrained

        other = copy.copy(self)
        other._model, other._bad = untrained(self._model, seed), BadRows("skip")
        return other


def _check(files: tuple[_Files, _Files], untrained: bool) -> None:
    from flaxattn.corpus.trees import is_annotated

    for path in (*files[0].paths, *files[1].paths):
        if not is_annotated(path):
            raise InputError(
                f"{path} has no trees by its name, and probes ask for governors\n"
                "give sentences of Universal Dependencies: a file in .conllu"
            )
    if untrained and not files[1].paths:
        raise typer.BadParameter("needs --train, sentences to fit to.", param_hint="--untrained")


def _judged(
    others: "list[WordMaps]",
    texts: "list[WordMaps]",
    blind: _Reader | None,
    files: tuple[_Files, _Files],
    penalty: float,
    seed: int,
) -> "Judged":
    from flaxattn.heads.selectivity import judge_parsing

    random = None if blind is None else (list(blind.maps(files[1])), list(blind.maps(files[0])))
    return judge_parsing(others, texts, untrained=random, penalty=penalty, seed=seed)


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
    from flaxattn.figures.roles import plot_head_means

    means = {
        f"{one.relation} ({one.direction})": found.accuracy(one.direction, one.relation)
        for one in best[:_SHOWN]
    }
    return plot_head_means(found.layers, found.heads, means, "share of words it is right for")


def _tell(said: dict[str, Any], best: "list[Classifier]", files: list[Path], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(said, indent=2, default=str))
        return
    console = Console(highlight=False, soft_wrap=True)
    table = Table(title="Heads that find governors best", caption=f"chosen on {said[_CHOSEN]}")
    table.add_column("relation", no_wrap=True)
    for name in ("words", "head", "direction", "right", "offset", "baseline", "lift"):
        table.add_column(name, justify="right")
    for one in best[:_SHOWN]:
        table.add_row(
            one.relation,
            str(one.count),
            f"{one.layer}.{one.head}",
            one.direction,
            f"{one.accuracy:.1%}",
            f"{one.offset:+d}",
            f"{one.baseline:.1%}",
            f"{one.lift:+.1f}",
        )
    console.print(table)
    if said["parser"] is not None:
        scores = said["parser"]["uas"]
        each = ", ".join(f"{name} {score:.1f}" for name, score in scores.items() if name != "tree")
        console.print(
            f"all heads together attach {scores['tree']:.1f}% of words; {each}; "
            f"selectivity {said['parser']['selectivity']:+.1f} points"
        )
    for count in said["left out"].items():
        console.print("left out: {}: {}".format(*count))
    for path in files:
        console.print(f"wrote {path.resolve()}", markup=False)
