# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The page that lists texts of a store, some at a time, each a link to the page of its attention.

It holds no script. `text_list.py` finds the texts, `serving.py` hands the page out.
"""

import html
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flaxattn.store.find_texts import StoredText
from flaxattn.store.head_numbers import SideStatistics
from flaxattn.views.store_document import answer, document, escaped
from flaxattn.views.text_list import LONGEST, ListQuery, TextList

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
