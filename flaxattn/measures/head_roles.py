# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Scores, statistics and roles of heads in one call: `measure`, `head_stats` and `head_roles`.

Each takes a model with texts, a trace, or a store, and any side. The commands `flaxattn stats`
and `flaxattn roles` report the same numbers.
"""

import dataclasses
import difflib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from flaxattn.corpus.bad_rows import BadRows
from flaxattn.corpus.dependency_trees import Sentence, is_annotated, read_sentences
from flaxattn.corpus.input_files import describe_files, describe_texts, find_inputs
from flaxattn.corpus.texts import Columns, Text, annotated_text, read_texts
from flaxattn.errors import InputError, check_arguments
from flaxattn.measures.role_tests import Roles, Test, find_roles
from flaxattn.measures.score_source import (
    ScoreSource,
    collect,
    model_source,
    store_source,
    trace_source,
)
from flaxattn.measures.scores import ScoreAccumulator
from flaxattn.measures.specs import PAPER_RELATIONS, ScoreOptions, ScoreSpec, check_relations
from flaxattn.pipeline.online_moments import Moments
from flaxattn.pipeline.tokenize_texts import DEFAULTS, ReadingOptions
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.store.open_store import Store, open_store
from flaxattn.text.text_lists import text_list
from flaxattn.trace.trace import Trace

Texts = str | os.PathLike[str] | Iterable[str | os.PathLike[str] | Sentence | tuple[str, str]]
"""The path of a file; or a list of texts (strings), of pairs, of files (`Path`), of sentences."""
Source = Pretrained | Trace | Sequence[Trace] | Store | str | os.PathLike[str]
"""A model, for which texts are given too; a trace, or traces; a store, or its folder."""
Trees = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclasses.dataclass(frozen=True)
class TextSource:
    """Texts that can be read more than once.

    Attributes:
        read: Reads all texts; receives what takes those that cannot be used.
        annotated: Whether they have trees.
        count: Number of texts; None where it is not known.
        describe: Says where they come from, ready for JSON.
        names: The texts as arguments of a command.
    """

    read: Callable[[BadRows], Iterator[Text]]
    annotated: bool
    count: int | None
    describe: Callable[[], Any]
    names: str = "TEXTS"


_TEXTS: tuple[type, ...] = (str, tuple, Sentence)
_KINDS = ("mean", "score", "mass", "control", "beyond", "tag", "pattern", "strongest", "hit")


@check_arguments()
def measure(
    source: Source,
    specs: str | Sequence[str | ScoreSpec],
    texts: Texts | None = None,
    *,
    side: str | None = None,
    trees: Trees = (),
    seed: int = 0,
    reading: ReadingOptions = DEFAULTS,
) -> dict[ScoreSpec, Moments]:
    """Measure scores of every head: counts, means and squared deviations over texts.

    Only what the scores need is computed. On a model they are evaluated by the kernel; a trace or
    a store is read.

    >>> import flaxattn as fa
    >>> found = fa.measure(fa.from_pretrained("tiny-gpt2"), ["score induction"], ["a b a b a"])
    >>> found["score", "induction"].mean.shape  # layers, heads
    (4, 6)

    Args:
        source: A model; a trace with weights, or several; an opened store, or its folder.
        specs: One score or several by kind and name, as they stand in `heads.parquet` of a report:
            such as `mean next`, `score local`, `mass governor(nsubj)` or `pattern same token`.
        texts: What a model reads: see `head_stats`.
        side: `encoder`, `decoder` or `cross`; default cross-attention where there is any.
        trees: CoNLL-U file or files with the trees of a store's texts, in their order.
        seed: Random seed of the unrelated words that related ones are compared with.
        reading: How texts are read.

    Returns:
        Moments `[L, H]` by score, in the order of `specs`.

    Raises:
        InputError: For a score that these texts do not have on this side, or a source that does
            not hold what it needs; and as `head_stats`.
    """
    names = [_spec(spec) for spec in ([specs] if isinstance(specs, str) else specs)]
    if not names:
        raise InputError("specs is empty\nname a score, such as 'mean next' or 'score local'")
    relations = [name[name.index("(") + 1 : -1] for _, name in names if name.endswith(")")]
    relations = [name for name in dict.fromkeys(relations) if name != "any"]
    options = ScoreOptions(
        check_relations(relations or PAPER_RELATIONS), seed=seed, only=tuple(names)
    )
    opened = open_source(source, texts, options, side, trees, reading)
    corpus = collect(opened, ())
    known = corpus.tally.moments
    for name in names:
        if name not in known:
            raise InputError(_unknown(name, corpus.refused.get(name)))
    return {name: known[name] for name in names}


@check_arguments()
def head_stats(
    source: Source,
    texts: Texts | None = None,
    relations: Sequence[str] = PAPER_RELATIONS,
    *,
    side: str | None = None,
    trees: Trees = (),
    seed: int = 0,
    pande_parity: bool = False,
    reading: ReadingOptions = DEFAULTS,
) -> ScoreAccumulator:
    """Means and variances of every score of every head, over texts.

    Cost: one pass over the texts. Memory: see `head_scores`.

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> stats = fa.head_stats(model, ["The cat is very sad.", "It could not find food."])
    >>> stats.moments["mean", "next"].mean.shape  # layers, heads
    (4, 4)

    Args:
        source: A model with its tokenizer; a trace with weights, or several; a store.
        texts: What a model reads: the path of a file, CoNLL-U by its name or another one that
            `flaxattn extract` reads, with a column `text`; or a list, in which a string is a text,
            a tuple a pair of texts, or of source and target, a `Path` a file and a `Sentence` a
            text with its tree. Either all have trees or none has.
        relations: Relations of Universal Dependencies that heads are scored for; `any` is among
            them anyway. They count where there are trees.
        side: `encoder`, `decoder` or `cross`; default cross-attention where there is any.
        trees: CoNLL-U file or files with the trees of a store's texts, in their order.
        seed: Random seed of the unrelated words that related ones are compared with.
        pande_parity: Whether scores are those of the notebooks of Pande et al., errors included.
        reading: How texts are read.

    Returns:
        Moments `[L, H]` of each score, by kind and name: shares of attention between 0 and 1,
        entropies in nats, distances in tokens.

    Raises:
        InputError: For an unknown relation or side, a text that cannot be used, or none, or where
            only some texts have trees.
    """
    options = ScoreOptions(check_relations(relations), seed=seed, pande_parity=pande_parity)
    opened = open_source(source, texts, options, side, trees, reading)
    return collect(opened, ()).tally


@check_arguments()
def head_roles(
    source: Source,
    texts: Texts | None = None,
    relations: Sequence[str] = PAPER_RELATIONS,
    *,
    test: Test | None = None,
    side: str | None = None,
    trees: Trees = (),
    seed: int = 0,
    reading: ReadingOptions = DEFAULTS,
) -> Roles:
    """Test which heads have which roles (Pande et al. 2021).

    >>> import flaxattn as fa
    >>> model = fa.from_pretrained("tiny-bert")
    >>> roles = fa.head_roles(model, ["The cat is very sad.", "It found no food.", "It sleeps."])
    >>> sorted(roles.roles)
    ['block', 'block_entropy', 'cls', 'delimiter', 'local', 'sep']
    >>> roles.by_layer()["local"].shape
    (4,)

    Args:
        source: See `head_stats`.
        texts: See `head_stats`; without trees no head is syntactic.
        relations: Relations that have a role of their own.
        test: Threshold, level and correction; default 3, 5 %, Benjamini-Hochberg.
        side: `encoder`, `decoder` or `cross`; default cross-attention where there is any.
        trees: CoNLL-U file or files with the trees of a store's texts, in their order.
        seed: Random seed of the unrelated words that related ones are compared with.
        reading: How texts are read.

    Returns:
        For each role, which heads have it, with statistics and corrected p-values `[L, H]`.

    Raises:
        InputError: See `head_stats`.
    """
    test = test or Test()
    options = ScoreOptions(check_relations(relations), seed=seed, pande_parity=test.pande_parity)
    opened = open_source(source, texts, options, side, trees, reading)
    return find_roles(collect(opened, ()).tally, options, test)


def open_source(
    source: Source,
    texts: Texts | TextSource | None,
    options: ScoreOptions,
    side: str | None,
    trees: Trees,
    reading: ReadingOptions,
) -> ScoreSource:
    """Open the scores of a model on texts, of traces, or of a store."""
    source = resolve_source(source)
    if isinstance(source, Pretrained):
        if texts is None:
            raise InputError("a model reads texts, and none were given\ngive texts=, or a file")
        texts = texts if isinstance(texts, TextSource) else text_source(texts)
        options = dataclasses.replace(options, annotated=texts.annotated)
        return model_source(source, texts.read(reading.problems), options, reading, side)
    if texts is not None:
        kind = "store" if isinstance(source, Store) else "trace"
        raise InputError(f"a {kind} holds its texts already\nleave texts out, or give a model")
    paths = tree_paths(trees)
    if isinstance(source, Store):
        options = dataclasses.replace(options, annotated=bool(paths))
        return store_source(source, paths, options, reading, side)
    sides = source[0].sides
    named = side or ("cross" if "cross" in sides else next(iter(sides), "encoder"))
    return trace_source(source, named, dataclasses.replace(options, annotated=False), reading)


def resolve_source(source: Source) -> Pretrained | Store | list[Trace]:
    """Open a store by its folder, and split traces into those of one text each."""
    if isinstance(source, Pretrained | Store):
        return source
    if isinstance(source, Trace | Sequence) and not isinstance(source, str):
        return single_traces(source)
    if not Path(source).is_dir():
        raise InputError(
            f"{str(source)!r} is not a folder: expected a store, a model or traces\n"
            f"pass a model as fa.from_pretrained({str(source)!r}), a store by its folder"
        )
    return open_store(Path(source))


def single_traces(source: Trace | Sequence[Trace]) -> list[Trace]:
    """Traces of one text each, out of one trace or several."""
    traces = [source] if isinstance(source, Trace) else list(source)
    for number, trace in enumerate(traces):
        if not isinstance(trace, Trace):
            raise InputError(
                f"item {number} is not a trace, received {type(trace).__name__}: {trace!r:.60}\n"
                "give a list of traces; or a model, with these as texts"
            )
    found = [one for trace in traces for one in ([trace] if len(trace) == 1 else trace)]
    if not found:
        raise InputError("there is no trace of a text\ngive at least one")
    return found


def tree_paths(trees: Trees) -> list[Path]:
    """Paths of the files with the trees of a store's texts."""
    return [Path(path) for path in ([trees] if isinstance(trees, str | os.PathLike) else trees)]


def _spec(spec: str | ScoreSpec) -> ScoreSpec:
    """A score by its kind and name."""
    found = ScoreSpec(*(spec if isinstance(spec, tuple) else spec.partition(" ")[::2]))
    if found.kind not in _KINDS or not found.name:
        near = difflib.get_close_matches(found.kind, _KINDS, n=1)
        guess = f"did you mean the kind {near[0]!r}? " if near and found.name else ""
        raise InputError(
            f"{' '.join(found).strip()!r} is not a score\n"
            f"{guess}the kinds are {', '.join(_KINDS)}\n"
            "name the kind and the score, such as 'mean next' or 'score local'"
        )
    return found


def _unknown(name: ScoreSpec, hint: str | None) -> str:
    """Return the error message for a score that no text has."""
    if hint is not None:
        return f"{' '.join(name)!r} was not recorded\ncapture it: Capture({hint})"
    return (
        f"no text has a score {' '.join(name)!r} on this side\n"
        "heads.parquet of flaxattn stats or roles lists those there are"
    )


def text_source(texts: Texts) -> TextSource:
    """Texts as users give them, to be read more than once."""
    given = [Path(texts)] if isinstance(texts, str | os.PathLike) else text_list(texts)
    for number, one in enumerate(given):
        if not isinstance(one, (*_TEXTS, os.PathLike)):
            raise InputError(
                f"text {number} is a {type(one).__name__}: {one!r:.60}\n"
                "expected str, a pair of str, the Path of a file, or a Sentence"
            )
    trees = [
        isinstance(one, Sentence) or (not isinstance(one, str | tuple) and is_annotated(Path(one)))
        for one in given
    ]
    if any(trees) and not all(trees):
        raise InputError(
            f"text {trees.index(False)} has no tree, and others have one\n"
            "give either sentences with trees or texts without"
        )
    paths = [Path(one) for one in given if not isinstance(one, _TEXTS)]
    texts = [one.text if isinstance(one, Sentence) else one for one in given]
    plain = [one for one in texts if isinstance(one, _TEXTS)]

    def describe() -> list[dict[str, Any]]:
        return [*describe_files(paths), *([describe_texts(plain)] if plain else [])]

    count = None if paths else len(given)
    return TextSource(lambda bad: _each(given, bad), any(trees), count, describe)


def _each(given: Sequence, bad: BadRows) -> Iterator[Text]:
    for number, one in enumerate(given):
        if isinstance(one, Sentence):
            yield annotated_text(one)
        elif isinstance(one, str):
            yield Text(number, str(number), one)
        elif isinstance(one, tuple):
            yield Text(number, str(number), *one)
        elif is_annotated(Path(one)):
            yield from map(annotated_text, read_sentences([Path(one)], bad))
        else:
            yield from read_texts(find_inputs([str(one)]), Columns(), bad)
