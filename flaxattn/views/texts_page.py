# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Pages of a server without a script: the list of the texts of a store, and background jobs.

The list shows some texts at a time, each a link to the page of its attention. Some pages wait for a
background job. They look like pages of attention: colours, type and controls are those of
`assets/view.css`. `serving.py` sends them to the browser.
"""

import dataclasses
import functools
import html
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, quote, urlencode

import numpy as np

from flaxattn.store.head_numbers import (
    HeadNumber,
    Ranking,
    SideStatistics,
    check_head_number,
    no_statistics,
    rank_texts,
    side_statistics,
)
from flaxattn.store.open_store import ExampleNumbers, Store, StoredText, Watch, search_texts
from flaxattn.views.page import LIST_STYLE, read_style, text_hash
from flaxattn.views.payloads.page_encoding import read_asset, visible

_KEPT = 16  # results that are kept in memory
_PATIENCE = 1.0  # seconds that an answer waits for a result before it returns the progress


class Progress(NamedTuple):
    """A job that is not finished.

    Attributes:
        share: Finished part of its work, from 0 to 1.
    """

    share: float


class _StoppedError(Exception):
    """Nobody wants the result any more."""


class _Job:
    """Work that was requested.

    Attributes:
        share: Finished part of it.
        future: Where its result will be.
    """

    def __init__(self) -> None:
        self.share, self._is_stopped = 0.0, False
        self.future: Future[Any] = Future()

    def watch(self, share: float) -> None:
        """Take down the progress, and end the work where it was stopped."""
        if self._is_stopped:
            raise _StoppedError
        self.share = share

    def stop(self) -> None:
        """End the work at its next report, or keep it from beginning."""
        self._is_stopped = True
        self.future.cancel()


class BackgroundJobs:
    """Results by key; each is computed once, in a thread of its own, one after the other."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "flaxattn-store")
        self._lock = threading.Lock()
        self._jobs: OrderedDict[Hashable, _Job] = OrderedDict()

    def result(self, key: Hashable, make: Callable[[Watch], Any]) -> Any:
        """A result, or how far its computation is."""
        job = self._job(key, make)
        try:
            return job.future.result(_PATIENCE)
        except (TimeoutError, CancelledError):
            if not job.future.done() or job.future.cancelled():
                return Progress(job.share)
            raise
        except _StoppedError:
            return Progress(job.share)
        finally:
            if job.future.done() and (job.future.cancelled() or job.future.exception()):
                self._forget(key, job)

    def close(self) -> None:
        """End all work; what runs ends at its next report."""
        with self._lock:
            for job in self._jobs.values():
                job.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _job(self, key: Hashable, make: Callable[[Watch], Any]) -> _Job:
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = _Job()
                job.future = self._pool.submit(make, job.watch)
            self._jobs.move_to_end(key)
            while len(self._jobs) > _KEPT:
                self._jobs.popitem(last=False)[1].stop()
            return job

    def _forget(self, key: Hashable, job: _Job) -> None:
        with self._lock:
            if self._jobs.get(key) is job:
                del self._jobs[key]


def document(store: str, tab: str, body: str, *, root: str = "", refresh: str = "") -> str:
    """A document of a store."""
    current = ' aria-current="page"'
    parts = {
        "title": escaped(f"{store} · texts"),
        "style": _style(),
        "store": escaped(store),
        "root": html.escape(root or "./"),
        "on_texts": current if tab == "texts" else "",
        "on_atlas": current if tab == "atlas" else "",
        "refresh": refresh,
        "body": body,
    }
    return re.sub(r"@\{(\w+)\}", lambda match: parts[match[1]], read_asset("texts.html"))


def answer(*paragraphs: str) -> str:
    """HTML of a box with paragraphs of HTML."""
    shown = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return f'<div class="answer" role="status">{shown}</div>'


def escaped(text: str) -> str:
    """Text as HTML, with control characters made visible."""
    return html.escape(visible(text))


def message_page(
    store: str, text: str, links: Sequence[tuple[str, str]], *, root: str = "", above: str = ""
) -> str:
    """A page that says why there is no list, or no text."""
    first, _, rest = text.partition("\n")
    lines = ["\n".join(map(escaped, part.split("\n"))) for part in (first, rest) if part]
    onward = " · ".join(f'<a href="{html.escape(place)}">{name}</a>' for place, name in links)
    return document(store, "", f"{above}\n{answer(*lines, onward)}", root=root)


def waiting_page(store: str, work: str, progress: Progress, *, tab: str, root: str = "") -> str:
    """A page that says how far a computation is, and asks again every second."""
    percent = int(100 * progress.share)
    bar = f'<progress max="100" value="{percent}" aria-label="Finished">{percent}%</progress>'
    again = "It is computed once; this page asks again every second."
    body = answer(f"{escaped(work)}: {percent}%", bar, again)
    refresh = '<meta http-equiv="refresh" content="1">\n'
    return document(store, tab, body, root=root, refresh=refresh)


def list_policy() -> str:
    """The content security policy of these pages: their own style and form, nothing else."""
    return (
        f"default-src 'none'; style-src 'sha256-{text_hash(_style())}'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


@functools.cache
def _style() -> str:
    """The style of pages and that of the list; without a script, the system chooses the theme."""
    pages = read_style("view.css")
    dark = re.search(r'^:root\[data-theme="dark"\] (\{.*?^\})', pages, re.MULTILINE | re.DOTALL)
    assert dark is not None
    system = f"@media (prefers-color-scheme: dark) {{\n:root {dark[1]}\n}}\n"
    return pages.replace(dark[0], system) + read_style(LIST_STYLE)


PAGE = 50
"""Texts on one page."""
MOST_SORTED = 1000
"""Texts of a sorted list: those with the largest or smallest numbers."""
MOST_HITS = 10_000
"""Texts that a search lists."""
LONGEST = 200
"""Characters of a search."""

_DIGITS = re.compile(r"\d{1,9}", re.ASCII)


@dataclasses.dataclass(frozen=True)
class ListQuery:
    """The part of an address after `?`: which list of texts, and which page of it.

    Attributes:
        words: What the id or a text must contain; empty for any.
        statistic: What to sort by; empty for the order of the corpus.
        side: Side of the head to sort by; empty for the first.
        layer: Layer of the head; None for the first.
        head: Number of the head; None for the first.
        descending: Whether the largest number comes first.
        page: Page of the list, from 1.
    """

    words: str = ""
    statistic: str = ""
    side: str = ""
    layer: int | None = None
    head: int | None = None
    descending: bool = True
    page: int = 1

    @classmethod
    def read(cls, query: str) -> Self:
        """Read the part of an address after `?`."""
        fields = {
            name: values[0]
            for name, values in parse_qs(query, max_num_fields=10, errors="strict").items()
        }
        numbers: dict[str, int] = {}
        for name in ("layer", "head", "page"):
            if not (text := fields.get(name, "")):
                continue
            if not _DIGITS.fullmatch(text) or (name == "page" and not int(text)):
                raise ValueError(f"{name} is not a number of one.")
            numbers[name] = int(text)
        if fields.get("order", "desc") not in ("asc", "desc"):
            raise ValueError("order is asc or desc.")
        if any(len(fields.get(name, "")) > LONGEST for name in ("q", "by", "side")):
            raise ValueError(f"Search for at most {LONGEST} characters.")
        if not fields.get("by"):
            return cls(fields.get("q", ""), page=numbers.get("page", 1))
        return cls(
            fields.get("q", ""),
            fields["by"],
            fields.get("side", ""),
            numbers.get("layer"),
            numbers.get("head"),
            fields.get("order", "desc") == "desc",
            numbers.get("page", 1),
        )

    @property
    def address(self) -> str:
        """The query part of an address, with its `?`; empty for the first page of all texts."""
        fields: dict[str, object] = {"q": self.words} if self.words else {}
        if self.statistic:
            number = {"by": self.statistic, "side": self.side}
            number |= {"layer": self.layer, "head": self.head}
            fields |= {name: value for name, value in number.items() if value not in ("", None)}
            fields["order"] = "desc" if self.descending else "asc"
        if self.page > 1:
            fields["page"] = self.page
        return f"?{urlencode(fields)}" if fields else ""

    @property
    def number(self) -> HeadNumber | None:
        """The number to sort by, of a completed query."""
        if not self.statistic:
            return None
        assert self.layer is not None and self.head is not None
        return HeadNumber(self.side, self.layer, self.head, self.statistic)

    @property
    def fragment(self) -> str:
        """End of the address of a text, by which its page opens at the head of the list."""
        return f"#side={quote(self.side)}&layer={self.layer}&heads={self.head}" * bool(self.number)

    def on_page(self, page: int) -> Self:
        """Query of another page of the list."""
        return dataclasses.replace(self, page=page)

    def reversed(self) -> Self:
        """Query of the list in reverse order."""
        return dataclasses.replace(self, descending=not self.descending, page=1)

    def without_words(self) -> Self:
        """Query of the same order without a search."""
        return dataclasses.replace(self, words="", page=1)


class TextList(NamedTuple):
    """Texts of all pages of a list.

    Attributes:
        examples: Their numbers.
        ranking: What they are sorted by, with their values; None in the order of the corpus.
        is_cut: Whether more texts were found than are listed.
        texts: Number of texts of the store that are there.
    """

    examples: Sequence[int] | np.ndarray
    ranking: Ranking | None
    is_cut: bool
    texts: int

    @property
    def pages(self) -> int:
        """Number of pages, at least 1."""
        return max(1, -(-len(self.examples) // PAGE))

    def on_page(self, page: int) -> list[int]:
        """Numbers of the texts on a page."""
        return [int(n) for n in self.examples[(page - 1) * PAGE : page * PAGE]]

    def place(self, example: int) -> int | None:
        """Place of a text in the list; None if it is not listed."""
        if isinstance(self.examples, np.ndarray):
            places = np.flatnonzero(self.examples == example)
            return int(places[0]) if len(places) else None
        try:
            return self.examples.index(example)
        except ValueError:
            return None


class TextLists:
    """The lists of a store, each computed once.

    Args:
        store: The store.
        jobs: Where lists are computed that need more than the plan.
    """

    def __init__(self, store: Store, jobs: BackgroundJobs) -> None:
        self._store, self._jobs = store, jobs

    def complete(self, query: ListQuery) -> ListQuery:
        """A query whose side, layer and head are those of a head of the store."""
        if not query.statistic:
            return query
        sides = side_statistics(self._store)
        if not sides:
            raise no_statistics()
        side = query.side or next(iter(sides))
        if about := sides.get(side):
            layer = about.layers[0] if query.layer is None else query.layer
            head = about.heads[0] if query.head is None else query.head
            query = dataclasses.replace(query, side=side, layer=layer, head=head)
        else:
            query = dataclasses.replace(query, layer=query.layer or 0, head=query.head or 0)
        assert query.number is not None
        check_head_number(self._store, query.number)
        return query

    def find(self, query: ListQuery) -> TextList | Progress:
        """The texts of a list."""
        there, store, words = ExampleNumbers(self._store), self._store, query.words
        if not words and query.number is None:
            return TextList(there, None, False, len(there))
        shards = tuple(store.shards)
        if (number := query.number) is None:
            hits = self._jobs.result(
                ("search", words, shards),
                lambda watch: search_texts(store, words, MOST_HITS + 1, watch),
            )
            if isinstance(hits, Progress):
                return hits
            return TextList(hits[:MOST_HITS], None, len(hits) > MOST_HITS, len(there))
        descending = query.descending
        ranking = self._jobs.result(
            ("sort", number, descending, words, shards),
            lambda watch: rank_texts(
                store, number, MOST_SORTED, descending=descending, words=words, watch=watch
            ),
        )
        if isinstance(ranking, Progress):
            return ranking
        is_cut = ranking.counted > len(ranking.examples)
        return TextList(ranking.examples, ranking, is_cut, len(there))


_SHOWN = 240  # characters of a text that are shown
_BEFORE = 60  # of these, characters before the words that were searched
_LABELS = {
    "entropy": "entropy, nats",
    "distance": "distance, tokens",
    "max": "largest weight",
    "sum_sq": "sum of squares",
    "lse": "log-sum-exp",
}
EXTRACT = "flaxattn extract … --stats entropy,distance,max"
"""Command by which a store gets statistics of heads."""


class TextsPage(NamedTuple):
    """Contents of a list of texts.

    Attributes:
        store: Name of the store.
        query: What was requested.
        listed: The texts of all pages.
        texts: Those of this page.
        sides: What texts can be sorted by.
        keeps_text: Whether the store holds texts beside their ids.
    """

    store: str
    query: ListQuery
    listed: TextList
    texts: Sequence[StoredText]
    sides: Mapping[str, SideStatistics]
    keeps_text: bool = True


def texts_page(page: TextsPage) -> str:
    """The list of texts as a document."""
    values = _values(page)
    rows = "\n".join(_row(text, page.query, values.get(text.example, "")) for text in page.texts)
    body = [list_form(page.query, page.sides)]
    if page.texts:
        body += [
            _status(page),
            f'<ol class="list">\n{rows}\n</ol>',
            _pages(page.query, page.listed),
        ]
    else:
        body.append(_empty(page))
    return document(page.store, "texts", "\n".join(body))


def label(statistic: str) -> str:
    """Name of a statistic as people read it, with its unit."""
    return _LABELS.get(statistic, statistic)


# The form


def list_form(query: ListQuery, sides: Mapping[str, SideStatistics]) -> str:
    """HTML of the form that searches and sorts."""
    search = (
        '<label class="field"><span>Id or text contains</span><input type="search" name="q" '
        f'value="{escaped(query.words)}" maxlength="{LONGEST}" autocomplete="off"></label>'
    )
    fields = [search, *(_sorting(query, sides) if sides else [])]
    fields.append('<button class="sign go">Show</button>')
    form = f'<form class="controls" action="./" method="get" role="search">{"".join(fields)}</form>'
    if sides:
        return form
    hint = f"Texts can be sorted by a head once the store has statistics: <code>{EXTRACT}</code>"
    return f'{form}<p class="hint">{hint}</p>'


def _sorting(query: ListQuery, sides: Mapping[str, SideStatistics]) -> list[str]:
    """Drop-down lists of what to sort by."""
    every = list(sides.values())
    names = dict.fromkeys(name for side in every for name in side.statistics)
    statistics = {"": "order of the corpus"} | {name: label(name) for name in names}
    layers = sorted({number for side in every for number in side.layers})
    heads = sorted({number for side in every for number in side.heads})
    order = {"desc": "highest first", "asc": "lowest first"}
    fields = [_choice("Sort by", "by", statistics, query.statistic)]
    if len(sides) > 1:
        fields.append(_choice("Side", "side", {name: name for name in sides}, query.side))
    fields.append(_choice("Layer", "layer", _numbers(layers), str(query.layer)))
    fields.append(_choice("Head", "head", _numbers(heads), str(query.head)))
    fields.append(_choice("Order", "order", order, "desc" if query.descending else "asc"))
    return [fields[0], f'<div class="controls of-head">{"".join(fields[1:])}</div>']


def _numbers(numbers: Sequence[int]) -> dict[str, str]:
    return {str(number): str(number) for number in numbers}


def _choice(title: str, name: str, options: Mapping[str, str], chosen: str) -> str:
    """A drop-down list."""
    shown = "".join(
        f'<option value="{escaped(value)}"{" selected" if value == chosen else ""}>'
        f"{escaped(text)}</option>"
        for value, text in options.items()
    )
    return (
        f'<label class="field"><span>{title}</span><select name="{name}">{shown}</select></label>'
    )


# What is listed, in words


def _status(page: TextsPage) -> str:
    """Heading of the list, number of its texts, and number of the page."""
    query, listed = page.query, page.listed
    parts = _sorted(query, listed) if listed.ranking else [_counted(query, listed)]
    parts[0] += f" Page {query.page:,} of {listed.pages:,}."
    lines = "".join(f"<p>{part}</p>" for part in parts)
    return f'{_heading(query)}<div class="said" role="status">{lines}</div>'


def _heading(query: ListQuery) -> str:
    """Heading of a sorted list, with a link to the other end; empty without sorting."""
    if not query.statistic:
        return ""
    end, other = ("highest", "lowest") if query.descending else ("lowest", "highest")
    address = html.escape(query.reversed().address)
    return (
        f"<h2>{head_title(query)}, {end} first "
        f'<a class="sign" href="{address}">{other.capitalize()} first</a></h2>'
    )


def _counted(query: ListQuery, listed: TextList) -> str:
    """Number of texts that there are, or that were found."""
    count = len(listed.examples)
    if not query.words:
        return f"<strong>{_texts(count)}</strong> in the order of the corpus."
    if listed.is_cut:
        return (
            f"More than {_texts(count)} contain {_quoted(query)}; the first {count:,} are listed."
        )
    contain = "contains" if count == 1 else "contain"
    return f"<strong>{_texts(count)}</strong> of {listed.texts:,} {contain} {_quoted(query)}."


def _quoted(query: ListQuery) -> str:
    return f"<strong>“<bdi>{escaped(query.words)}</bdi>”</strong>"


def _sorted(query: ListQuery, listed: TextList) -> list[str]:
    """Number of texts that were sorted, and the meaning of their numbers and bars."""
    ranking = listed.ranking
    assert ranking is not None
    end = "highest" if query.descending else "lowest"
    every = f"<strong>{_texts(ranking.counted)}</strong>"
    shown = f"The {len(ranking.examples):,} {end} of {every}" if listed.is_cut else every
    shown += f" with {_quoted(query)}." if query.words else "."
    if ranking.left_out:
        shown += f" {_texts(ranking.left_out)} without a number are left out."
    unit = label(query.statistic).partition(", ")[2]
    means = f"A number is the mean over the queries of a text{f', in {unit}' if unit else ''}. "
    span = f"{number_text(ranking.low)} to {number_text(ranking.high)}"
    bars = f"Bars run from {span}, the smallest and the largest of the {_texts(ranking.counted)}."
    return [shown, f"{means}{bars}"]


def head_title(query: ListQuery) -> str:
    """HTML of the number of a list, such as `Entropy of layer 3, head 5 (encoder)`."""
    name = label(query.statistic).partition(",")[0]
    where = f"layer {query.layer}, head {query.head} ({escaped(query.side)})"
    return f"{escaped(name[:1].upper() + name[1:])} of {where}"


def _texts(count: int) -> str:
    return f"{count:,} text{'' if count == 1 else 's'}"


def number_text(value: float) -> str:
    """Four digits of a number."""
    return f"{value:#.4g}".removesuffix(".").replace("-", "−")


def _empty(page: TextsPage) -> str:
    """Reason why nothing is listed, and how to continue."""
    query, listed = page.query, page.listed
    if not listed.texts:
        again = "Its shards appear here when they are finished; load this page again."
        return answer("No text is there yet.", again)
    if len(listed.examples):
        last = html.escape(query.on_page(listed.pages).address or "./")
        link = f'Open <a href="{last}">page {listed.pages:,}</a>, the last one.'
        return answer(f"There is no page {query.page:,}.", link)
    if not query.words:
        return answer("No text has this number.", "Choose another head or statistic.")
    searched = "ids and texts" if page.keeps_text else "ids, because this store holds no texts"
    return answer(
        f"No text contains “<bdi>{escaped(query.words)}</bdi>”.",
        f"The search looks for exactly these characters, in upper or lower case, in the {searched} "
        f"of all {_texts(listed.texts)}. Try fewer of them, such as the beginning of a word.",
        f'<a href="{html.escape(query.without_words().address or "./")}">Show all texts</a>',
    )


# Rows


def _values(page: TextsPage) -> dict[int, str]:
    """HTML of the number of each text of the page, with a bar; empty without sorting."""
    if (ranking := page.listed.ranking) is None:
        return {}
    width = ranking.high - ranking.low
    values = dict(zip(ranking.examples.tolist(), ranking.values.tolist(), strict=True))
    return {
        text.example: _value(values[text.example], (values[text.example] - ranking.low) / width)
        if width > 0
        else _value(values[text.example], 1.0)
        for text in page.texts
    }


def _value(value: float, share: float) -> str:
    """A number and a bar as long as its place in the range of all."""
    return (
        f'<div class="value">{number_text(value)}'
        '<svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" width="100" height="6"/>'
        f'<rect class="share" width="{100 * share:.1f}" height="6"/></svg></div>'
    )


def _row(text: StoredText, query: ListQuery, value: str) -> str:
    second = ""
    if text.text_b is not None:
        second = f'<div class="second">{_cut(text.text_b, query.words)}</div>'
    link = f"text/{text.example}{query.on_page(1).address}{query.fragment}"
    about = f"<bdi>{_marked(text.id, query.words)}</bdi> · {_tokens(text.tokens)}"
    shown = f"<div>{_cut(text.text or '', query.words)}</div>{second}"
    return (
        f'<li><a class="number" href="{html.escape(link)}">{text.example}</a><div class="words">'
        f'{shown}<div class="about">{about}</div></div>{value}</li>'
    )


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"


def _cut(text: str, words: str) -> str:
    """The part of a text that is shown: its beginning, or what surrounds the words searched for."""
    hit = re.search(re.escape(words), text, re.IGNORECASE) if words else None
    start = 0
    if hit is not None and hit.end() > _SHOWN:
        start = max(0, hit.start() - _BEFORE)
    shown = text[start : start + _SHOWN]
    ends = "…" * (start > 0), "…" * (start + _SHOWN < len(text))
    return f"<bdi>{ends[0]}{_marked(shown, words)}{ends[1]}</bdi>"


def _marked(text: str, words: str) -> str:
    """Escaped text with the words searched for marked."""
    if not words:
        return escaped(text)
    parts = re.split(f"({re.escape(words)})", text, flags=re.IGNORECASE)
    return "".join(
        f"<mark>{escaped(part)}</mark>" if place % 2 else escaped(part)
        for place, part in enumerate(parts)
    )


def _pages(query: ListQuery, listed: TextList) -> str:
    """Links to other pages of the list."""
    if listed.pages == 1:
        return ""
    page, last = query.page, listed.pages
    links = [("First", 1, page > 2), ("‹ Back", page - 1, page > 1)]
    later = [("Next ›", page + 1, page < last), ("Last", last, page < last - 1)]
    where = f"<span>Page {page:,} of {last:,}</span>"
    before, after = (
        "".join(
            f'<a href="{html.escape(query.on_page(place).address or "./")}">{name}</a>'
            for name, place, is_there in part
            if is_there
        )
        for part in (links, later)
    )
    return f'<nav class="pages" aria-label="Pages">{before}{where}{after}</nav>'
