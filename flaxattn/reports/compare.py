# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Compare the attention of two models, or of two stores, over texts: `compare`.

A window of texts, or a shard, is in memory at a time.
"""

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from flaxattn.corpus.input_files import describe_texts
from flaxattn.corpus.texts import Text, plain_texts
from flaxattn.errors import InputError, check_arguments
from flaxattn.kernels.contract import Capture
from flaxattn.measures.claims import Claim, Evidence
from flaxattn.measures.compare_heads import (
    ALIKE,
    MEASURES,
    ClaimRule,
    Comparison,
    HeadChange,
    RolesOfBoth,
    RoleSummary,
)
from flaxattn.measures.head_roles import single_traces
from flaxattn.measures.role_tests import Test
from flaxattn.measures.score_source import traces_of
from flaxattn.pipeline.extraction import Options, extract_shards
from flaxattn.pipeline.progress_reporter import ProgressReporter, reporting
from flaxattn.pipeline.tokenize_texts import DEFAULTS, ReadingOptions, groups_of, tokenize
from flaxattn.pretrained.from_pretrained import from_pretrained
from flaxattn.pretrained.pretrained_model import Pretrained
from flaxattn.reports.evidence import (
    DEFAULT_PAGE,
    PageOptions,
    evidence_facts,
    evidence_table,
    report_page,
)
from flaxattn.reports.report import EVIDENCE, Report, figure_file, table_file
from flaxattn.store.open_store import Store, open_store
from flaxattn.store.store_layout import is_store
from flaxattn.text.text_lists import some_texts
from flaxattn.trace.trace import Trace
from flaxattn.views.evidence_page import EvidenceReport, Numbers
from flaxattn.views.figures.plot_head_numbers import plot_head_values
from flaxattn.views.trace_page import shape_changes

_WINDOW = 64  # texts whose maps are held at a time
_MOST = 10  # heads whose divergence is claimed to be large
_APART = "divergence"
_ROLE = "role: "  # before the name of a role that is claimed to have changed
Pairs = Iterator[tuple[Trace, Trace]]
Compared = Pretrained | Store | Trace | Sequence[Trace] | str | os.PathLike[str]
"""A model or its name; a store or its folder; a trace, or traces of one text each or of several."""


@check_arguments(2)
def compare(
    first: Compared,
    second: Compared,
    texts: Iterable[str] | None = None,
    text_b: Iterable[str] | None = None,
    *,
    test: Test | None = None,
    seed: int = 0,
    reading: ReadingOptions = DEFAULTS,
    page: PageOptions = DEFAULT_PAGE,
    data: Mapping[str, Any] | None = None,
) -> Report:
    """Compare the attention of two models, stores or lists of traces, head by head.

    Of two encoders it also shows which heads took up or gave up roles, by layer, where both hold
    attention weights. A change is claimed only where its interval over the texts supports it; the
    report and its page say by which rule.

    Cost: one pass of each model over the texts, with all weights; memory: those of 64 texts.

    >>> import flaxattn as fa
    >>> before = fa.from_pretrained("tiny-bert")
    >>> report = fa.compare(before, fa.untrained(before), ["The cat is very sad.", "A dog ran."])
    >>> report.table.num_rows, report.table.column_names[:4]
    (16, ['side', 'layer', 'head', 'divergence'])
    >>> [path.name for path in report.save("BEFORE-AFTER")]
    ['compare.json', 'compare.parquet', 'compare.png', 'evidence.parquet', 'compare.html']

    Args:
        first: A model (loaded, or its name or directory), a store (opened, or its folder), or
            traces with weights.
        second: The same kind, of the same shape.
        texts: What two models read. Stores and traces have their texts already.
        text_b: The second text, or the target, of each; encoder-decoders need it.
        test: Threshold of roles; level and correction of all tests, intervals hold 1 - level.
            Default 3, 5 %, Benjamini-Hochberg.
        seed: Random seed of the bootstrap.
        reading: How texts are read, and how many.
        page: How much evidence is kept, and shown on the page.
        data: Where the texts come from, kept with the report; default their number and digest.

    Returns:
        A report with a row for each head (divergence in nats, cosine, changes of shares with
        p-values), a figure, and a page with the texts that show each change best.

    Raises:
        InputError: For texts beside stores or none beside models, models or stores that do not
            match, or a text that cannot be used.
    """
    test = test or Test()
    rule = ClaimRule(test.alpha, test.correction, seed=seed)
    roles = RolesOfBoth(test, rule)
    with reporting() as shown_progress:
        pair = _compared(first, second, texts, text_b, reading, data, shown_progress)
        comparison, shown = _differences(pair, page.evidence, roles, shown_progress)
    changes = comparison.changes(rule)
    summary = roles.summary(changes)
    claims = _claims(changes, comparison, shown) + _role_claims(summary, comparison, shown)
    used = {text.text for claim in claims for text in claim.texts}
    layers = {
        side: [dict(zip(("layer", _APART, "cosine"), row, strict=True)) for row in rows]
        for side, rows in comparison.by_layer().items()
    }
    rows = _rows(changes)
    facts = {
        "settings": {
            "models": list(pair.names),
            "correction": test.correction,
            "alpha": test.alpha,
            "tau": test.tau,
            "limit": reading.limit,
            "truncate": reading.truncate,
            "evidence": page.evidence,
            "seed": seed,
        },
        "data": dict(pair.data),
        "layers": layers,
        "refused": _refused(changes),
        "nonfinite": _nonfinite(changes, pair.count),
        "rule": str(rule),
        "roles": summary.facts(),
        "evidence": evidence_facts(claims, {number: pair.text(number) for number in sorted(used)}),
        "heads": rows,
    }
    one, other = pair.names
    names = (one, other) if one != other else ("A", "B")
    about = _about(pair.count, rule, names)
    shown_heads = _report(comparison, roles, changes, rule, about, names)
    return Report(
        "compare",
        facts,
        rows,
        {figure_file("compare"): functools.partial(_figure, comparison, changes)},
        {EVIDENCE: evidence_table(claims)},
        functools.partial(report_page, shown_heads, claims, pair.pairs, page.sentences),
        table_file("compare"),
    )


@dataclasses.dataclass(frozen=True)
class ComparedTraces:
    """Traces of the same texts by two models, or from two stores.

    Attributes:
        names: Names of both.
        data: Where the texts come from.
        count: Number of texts.
        traces: Traces by both of all texts, in order.
        pairs: Traces by both of some texts, by number; None where there are no maps.
        text: A text by its number.
    """

    names: tuple[str, str]
    data: Mapping[str, Any]
    count: int
    traces: Callable[[], Pairs]
    pairs: Callable[[Sequence[int]], Pairs] | None
    text: Callable[[int], Text]


def _compared(
    first: Any,
    second: Any,
    texts: Iterable[str] | None,
    text_b: Iterable[str] | None,
    reading: ReadingOptions,
    data: Mapping[str, Any] | None,
    progress: ProgressReporter,
) -> ComparedTraces:
    """Pair the traces of two models, stores or lists of traces."""
    kinds = [_kind(one) for one in (first, second)]
    if kinds[0] != kinds[1]:
        raise InputError(
            f"{_name(first)} is a {kinds[0]}, {_name(second)} a {kinds[1]}\n"
            "compare two of a kind; a store of a model's attention is written by "
            "flaxattn extract TEXTS --model MODEL -o STORE"
        )
    if kinds[0] != "model" and texts is not None:
        raise InputError(
            f"two {kinds[0]}s have their texts already, and texts were given\n"
            "leave them out, or name models"
        )
    if kinds[0] == "store":
        return of_stores(first, second, reading.limit)
    if kinds[0] == "trace":
        return of_traces(first, second, reading.limit, data)
    if texts is None:
        raise InputError(
            "two models are compared on texts, and none were given\n"
            f"name files: flaxattn compare {_name(first)} {_name(second)} TEXTS, or pass texts="
        )
    names = _name(first), _name(second)
    progress(f"loading {' and '.join(names)}", 0)
    models = [
        one if isinstance(one, Pretrained) else from_pretrained(one) for one in (first, second)
    ]
    kept, pairs = some_texts(texts, text_b, reading.limit)
    progress.announce(f"{len(kept):,} texts: one pass of {names[0]} and one of {names[1]}")
    return of_models(models, names, kept, pairs, reading, data)


def _kind(source: Compared) -> str:
    if isinstance(source, Pretrained):
        return "model"
    if isinstance(source, Store):
        return "store"
    if isinstance(source, str | os.PathLike):
        return "store" if is_store(source) else "model"
    return "trace"


def _name(source: Any) -> str:
    if isinstance(source, Pretrained):
        return source.name
    if isinstance(source, Trace | list | tuple):
        return single_traces(source)[0].model or "traces"
    return str(source.path if isinstance(source, Store) else source)


def of_models(
    models: Sequence[Pretrained],
    names: tuple[str, str],
    texts: Sequence[str],
    second: Sequence[str] | None,
    reading: ReadingOptions,
    data: Mapping[str, Any] | None = None,
) -> ComparedTraces:
    """Two models on the same texts."""
    if second is None and any(model.masks().get("cross_attn_head_mask") for model in models):
        raise InputError(
            "Encoder-decoders are compared on texts with targets, received texts alone.\n"
            "Give the targets as the second texts."
        )
    _check_tokens(models, next(iter(plain_texts(texts, second))), reading.truncate)
    read: dict[str, Any] = {
        "truncate": reading.truncate,
        "allow_nonfinite": reading.allow_nonfinite,
    }

    def traces() -> Pairs:
        windows = list(groups_of(plain_texts(texts, second), _WINDOW))
        options = Options(capture=Capture(weights=True), **read)
        streams = [extract_shards([model], windows, options) for model in models]
        for (ours,), (theirs,) in zip(*streams, strict=True):
            yield from zip(ours.traces, theirs.traces, strict=True)

    def some(numbers: Sequence[int]) -> Pairs:
        chosen = [texts[n] for n in numbers]
        targets = None if second is None else [second[n] for n in numbers]
        streams: list[Any] = [traces_of(model, chosen, targets, **read) for model in models]
        return zip(*streams, strict=True)

    def text(number: int) -> Text:
        return Text(number, str(number), texts[number], None if second is None else second[number])

    about = describe_texts(texts, second) if data is None else data
    return ComparedTraces(names, about, len(texts), traces, some, text)


def _check_tokens(models: Sequence[Pretrained], text: Text, truncate: bool) -> None:
    """Refuse models that do not read the first text as the same tokens."""
    read = [tokenize(model, [text], truncate)[0].metadata.tokens for model in models]
    if read[0] != read[1]:
        one, other = (f"{tokens[0][:6]}"[:60] for tokens in read)
        raise InputError(
            f"{models[0].name} and {models[1].name} read texts as other tokens\n"
            f"the first as {one} and {other}\ncompare models with one tokenizer"
        )


def of_traces(
    first: Any, second: Any, limit: int | None, data: Mapping[str, Any] | None = None
) -> ComparedTraces:
    """Two lists of traces of the same texts."""
    one, other = single_traces(first), single_traces(second)
    if len(one) != len(other):
        raise InputError(
            f"the traces hold {len(one)} and {len(other)} texts\nexpected the same texts in both"
        )
    one, other = one[:limit], other[:limit]
    names = _name(first), _name(second)

    def traces() -> Pairs:
        for number, (ours, theirs) in enumerate(zip(one, other, strict=True)):
            _check_text(number, ours, theirs, names)
            yield ours, theirs

    def some(numbers: Sequence[int]) -> Pairs:
        return ((one[number], other[number]) for number in numbers)

    records = [record for trace in (one[0], other[0]) for record in trace.sides.values()]
    maps = all(record.weights is not None for record in records)
    about = {"texts": len(one)} if data is None else data
    text = functools.partial(_text_of, one)
    return ComparedTraces(names, about, len(one), traces, some if maps else None, text)


def _text_of(traces: Sequence[Trace], number: int) -> Text:
    trace = traces[number]
    texts = trace.texts[0] if trace.texts else (" ".join(trace.tokens[0]),)
    (found,) = plain_texts(texts[:1], texts[1:2] or None, number)
    return found


def of_stores(first: Any, second: Any, limit: int | None) -> ComparedTraces:
    """Two stores of the same texts."""
    one, other = (
        store if isinstance(store, Store) else open_store(store) for store in (first, second)
    )
    names = str(one.path), str(other.path)
    least = min(len(one), len(other))
    count = min(len(one), limit or len(one))
    if (limit is None and len(one) != len(other)) or len(other) < count:
        raise InputError(
            f"{one.path} has {len(one):,} texts, {other.path} {len(other):,}\n"
            f"compare stores of the same texts, or the first of both with limit={least}"
        )

    examples = one.examples[:count]
    if one.complete and other.complete and examples != other.examples[:count]:
        raise InputError(
            f"{one.path} and {other.path} left out different rows\n"
            "extract both from the rows that both can read"
        )

    def traces() -> Pairs:
        pairs = zip(iter(one), iter(other), strict=False)
        for number, (ours, theirs) in zip(examples, pairs, strict=False):
            _check_text(number, ours, theirs, names)
            yield ours, theirs

    def some(numbers: Sequence[int]) -> Pairs:
        return ((one[examples[number]], other[examples[number]]) for number in numbers)

    def text(number: int) -> Text:
        example, shard = one.shard_of(examples[number])
        metadata = shard.metadata(example)
        texts = metadata.texts[0] if metadata.texts else ("",)
        (found,) = plain_texts(texts[:1], texts[1:2] or None, number)
        return found

    data = [
        {"name": s.path.name, "plan_sha256": s.plan_sha256, "model": s.plan["model"]}
        for s in (one, other)
    ]
    source = {"stores": data, "texts": len(examples), "left_out": {}}
    maps = all(_has_maps(store) for store in (one, other))
    return ComparedTraces(names, source, len(examples), traces, some if maps else None, text)


def _has_maps(store: Store) -> bool:
    return any("weights" in side["arrays"] for side in store.shard(0).sides.values())


def _check_text(number: int, one: Trace, other: Trace, names: tuple[str, str]) -> None:
    """Refuse two texts that differ."""
    for name in ("tokens", "decoder_tokens"):
        ours, theirs = ([list(row) for row in getattr(t, name)] for t in (one, other))
        if ours == theirs:
            continue
        pairs = itertools.zip_longest(*(rows[0] if rows else [] for rows in (ours, theirs)))
        place, (a, b) = next((n, pair) for n, pair in enumerate(pairs) if pair[0] != pair[1])
        raise InputError(
            f"text {number} is not the same in both: token {place} is {a!r} in {names[0]} and "
            f"{b!r} in {names[1]}\n"
            "compare the same texts in the same order, read by one tokenizer"
        )


def _differences(
    texts: ComparedTraces, keep: int, roles: RolesOfBoth, progress: ProgressReporter
) -> tuple[Comparison, Evidence]:
    """Differences over all texts, and the texts that show them best."""
    comparison, shown = Comparison(), Evidence(keep)
    progress.expect("comparing", texts.count)
    for number, (one, other) in enumerate(texts.traces()):
        for name, value in roles.add(one, other).items():
            shown.add(("encoder", _ROLE + name, 1), value[None], [number])
            shown.add(("encoder", _ROLE + name, -1), -value[None], [number])
        for values in comparison.add(one, other):
            for (side, name), value in values.items():
                shown.add((side, name, 1), np.asarray(value)[None], [number])
                shown.add((side, name, -1), -np.asarray(value)[None], [number])
        progress("comparing", 1)
    return comparison, shown


def _claims(changes: Sequence[HeadChange], comparison: Comparison, shown: Evidence) -> list[Claim]:
    """Heads that differ most, and every change that is significant."""
    claims = []
    for change in changes:
        where = comparison.place(change.side, change.layer, change.head)
        if change.changed and len(claims) < _MOST:
            texts = shown.of((change.side, _APART, 1), *where)
            message = f"{_interval(change.interval)}, cosine {change.cosine:.3f}"
            if change.role_changed:
                message += f", {change.roles[0]} → {change.roles[1]}"
            at = change.layer, change.head
            claims.append(Claim(_APART, *at, change.divergence, message, change.side, texts))
    for name in dict.fromkeys(name for change in changes for name in change.changes):
        for change in changes:
            if name in change.significant and _claimable(change):
                value, at = change.changes[name], (change.layer, change.head)
                where = comparison.place(change.side, *at)
                sign = 1 if value > 0 else -1
                texts = [
                    t._replace(score=sign * t.score)
                    for t in shown.of((change.side, name, sign), *where)
                ]
                message = f"p {change.p[name]:.1g}"
                claims.append(Claim(name, *at, value, message, change.side, texts))
    return claims


def _claimable(change: HeadChange) -> bool:
    """Return whether attention changed, or was not compared, so that the test of a number rules."""
    return change.changed or change.divergence != change.divergence


def _role_claims(summary: RoleSummary, comparison: Comparison, shown: Evidence) -> list[Claim]:
    """Roles that heads took up or gave up, the largest differences first."""
    claims = []
    rows = [row for row in summary.differences if row.claimed]
    for row in sorted(rows, key=lambda r: (r.role, -abs(r.after - r.before))):
        value, at = row.after - row.before, (row.layer, row.head)
        sign = 1 if value > 0 else -1
        key = "encoder", _ROLE + row.role, sign
        found = shown.of(key, *comparison.place("encoder", *at))
        texts = [t._replace(score=sign * t.score) for t in found]
        what = "taken up" if value > 0 else "given up"
        message = f"{what}: {row.before:.2f} → {row.after:.2f}, change in {_interval(row.interval)}"
        claims.append(Claim(_ROLE + row.role, *at, value, message, "encoder", texts))
    return claims


def _interval(ends: tuple[float, float]) -> str:
    return f"[{ends[0]:.3g}, {ends[1]:.3g}]".replace("-", "−")


def _about(texts: int, rule: ClaimRule, names: tuple[str, str]) -> str:
    """Summary of the page, and the rule by which changes are claimed."""
    count = "1 text" if texts == 1 else f"{texts:,} texts"
    return (
        f"{count}. Divergence is that of Jensen and Shannon, in nats; other numbers "
        f"are changes, {names[1]} minus {names[0]}. {rule}"
    )


def _report(
    comparison: Comparison,
    roles: RolesOfBoth,
    changes: Sequence[HeadChange],
    rule: ClaimRule,
    about: str,
    names: tuple[str, str],
) -> EvidenceReport:
    sides = {}
    for side, (layers, heads) in comparison.heads.items():
        measures = {n: comparison.table(side, n) for s, n in comparison.names if s == side}
        if side == "encoder":
            measures |= {_ROLE + name: roles.table(name) for name in roles.names}
        sides[side] = Numbers(layers, heads, measures)
    model = f"{names[0]} and {names[1]}"
    notes = shape_changes(changes, rule)
    return EvidenceReport("How heads differ", model, about, sides, "value", names, notes)


def _figure(comparison: Comparison, changes: Sequence[HeadChange]) -> Any:
    divergences = {s: comparison.table(s, _APART) for s, n in comparison.names if n == _APART}
    if divergences:
        maps = {f"{side}: {_APART}": table for side, table in divergences.items()}
        return plot_head_values(maps, "Jensen-Shannon divergence, nats", signed=False)
    maps = {f"{s}: {n}": comparison.table(s, n) for s, n in comparison.names}
    return plot_head_values(maps, "change")


def _refused(changes: Sequence[HeadChange]) -> dict[str, list[str]]:
    """Statistics that a store lacks, by the capture that would record them."""
    if any(change.divergence == change.divergence for change in changes):
        return {}
    known = {name for change in changes for name in change.changes}
    return {"Capture(weights=True)": [n for n in (*ALIKE, *MEASURES) if n not in known]}


def _nonfinite(changes: Sequence[HeadChange], texts: int) -> list[dict[str, Any]]:
    """Heads whose attention is NaN or infinite on some texts, and on how many."""
    return [
        {
            "side": change.side,
            "layer": change.layer,
            "head": change.head,
            "texts": texts - change.texts,
        }
        for change in sorted(changes, key=lambda c: (c.side, c.layer, c.head))
        if change.texts < texts
    ]


def _rows(changes: Sequence[HeadChange]) -> list[dict[str, Any]]:
    """A flat row for each head."""
    return [
        {
            "side": change.side,
            "layer": change.layer,
            "head": change.head,
            "divergence": change.divergence,
            "divergence_error": change.divergence_error,
            "divergence_low": change.interval[0],
            "divergence_high": change.interval[1],
            "changed": change.changed,
            "role_before": change.roles[0],
            "role_after": change.roles[1],
            "role_changed": change.role_changed,
            "cosine": change.cosine,
            **{f"{name}_change": value for name, value in change.changes.items()},
            **{f"{name}_p": value for name, value in change.p.items()},
            "significant": list(change.significant),
            "texts": change.texts,
        }
        for change in changes
    ]
