# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Lists sorted by a head, the atlas over all texts, and the way from each text to the next."""

import dataclasses
import threading
import time
from contextlib import closing

import numpy as np
import pytest
import store_cases
from store_requests import ask, corpus_data, rows, serving

from flaxattn import atlas_view, head_view
from flaxattn.errors import InputError
from flaxattn.store.head_numbers import HeadNumber, corpus_means, rank_texts
from flaxattn.store.open_store import open_store
from flaxattn.store.shard import Shard
from flaxattn.trace.trace import Trace
from flaxattn.views import texts_page
from flaxattn.views.store_pages import StorePages
from flaxattn.views.texts_page import BackgroundJobs, ListQuery, Progress

COUNT, PER_SHARD, LAYERS, HEADS = 230, 40, (0, 3), (1, 2)
BROKEN = {17: np.nan, 90: -np.inf}  # entropies of layer 3, head 2


def text_of(number: int) -> str:
    """Text of a number of the store."""
    return f"text {number} {'apple' if number % 10 == 3 else 'pear'} <b>&"


def entropies() -> np.ndarray:
    """Entropy `[N, L, H]` of each text, the same for its two queries, with ties."""
    values = np.random.default_rng(0).integers(0, 60, (COUNT, 2, 2)) / 16
    for number, value in BROKEN.items():
        values[number, 1, 1] = value
    return values.astype(np.float32)


def trace_of(number: int, values: np.ndarray) -> Trace:
    """A trace of two tokens, with weights and statistics."""
    weights = np.full((2, 1, 2, 2, 2), 0.5, np.float16)
    trace = Trace.from_arrays(
        weights, [["a", f"b{number}"]], texts=[(text_of(number),)], model="random"
    )
    assert trace.encoder is not None
    entropy = np.repeat(values[:, None, :, None], 2, 3)
    stats = {"entropy": entropy, "distance": 2 * entropy, "argmax": np.zeros((2, 1, 2, 2), int)}
    record = dataclasses.replace(trace.encoder, stats=stats, layers=LAYERS, heads=HEADS)
    return dataclasses.replace(trace, encoder=record)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of 230 texts in 6 shards."""
    texts = [trace_of(n, values) for n, values in enumerate(entropies())]
    return store_cases.write(tmp_path_factory.mktemp("corpus") / "store", texts, PER_SHARD)


@pytest.fixture(scope="module")
def server(store):
    with serving(store) as server:
        yield server


def ranked(layer: int, head: int, *, descending: bool, words: str = "") -> list[int]:
    """Numbers of texts in the order that a list should have, by sorting all of them at once."""
    values = entropies()[:, LAYERS.index(layer), HEADS.index(head)]
    found = [n for n in range(COUNT) if np.isfinite(values[n]) and words in text_of(n)]
    return sorted(found, key=lambda n: (-values[n] if descending else values[n], n))


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("words", ["", "apple"])
def test_texts_are_sorted_by_any_head(store, descending, words):
    opened = open_store(store)
    for layer, head in ((0, 1), (3, 2)):
        number = HeadNumber("encoder", layer, head, "entropy")
        expected = ranked(layer, head, descending=descending, words=words)
        for count in (7, 1000):
            found = rank_texts(opened, number, count, descending=descending, words=words)
            assert found.examples.tolist() == expected[:count]
            values = entropies()[expected[:count], LAYERS.index(layer), HEADS.index(head)]
            assert found.values.tolist() == values.tolist()
            every = entropies()[expected, LAYERS.index(layer), HEADS.index(head)]
            assert (found.counted, found.low, found.high) == (len(expected), min(every), max(every))
            assert found.left_out == (2 if (layer, words) == (3, "") else 0)


def test_a_sorted_list_shows_the_number_of_each_text_and_of_how_many(server, monkeypatch):
    monkeypatch.setattr(texts_page, "MOST_SORTED", 120)
    expected = ranked(3, 2, descending=False)
    _, _, text = ask(server, "/?by=entropy&side=encoder&layer=3&head=2&order=asc&page=2")
    assert rows(text) == expected[50:100]
    assert "Entropy of layer 3, head 2 (encoder), lowest first" in text
    assert "The 120 lowest of <strong>228 texts</strong>. 2 texts without a number are" in text
    assert "Page 2 of 3." in text and "in nats" in text
    assert (
        'href="?by=entropy&amp;side=encoder&amp;layer=3&amp;head=2&amp;order=desc">Highest' in text
    )
    shown = [float(part.split("<")[0]) for part in text.split('<div class="value">')[1:]]
    values = entropies()[expected[50:100], 1, 1]
    assert shown == pytest.approx(values.tolist(), rel=1e-3)
    bars = [float(part.split('"')[0]) for part in text.split('class="share" width="')[1:]]
    high, low = entropies()[expected, 1, 1].max(), entropies()[expected, 1, 1].min()
    assert bars == pytest.approx((100 * (values - low) / (high - low)).tolist(), abs=0.06)
    link = f'href="text/{expected[50]}?by=entropy&amp;side=encoder&amp;layer=3&amp;head=2'
    assert f'{link}&amp;order=asc#side=encoder&amp;layer=3&amp;heads=2"' in text


def test_search_and_order_go_together(server):
    expected = ranked(0, 1, descending=True, words="apple")
    text = ask(server, "/?q=APPLE&by=distance&layer=0&head=1")[2]
    assert rows(text) == expected
    assert "<strong>23 texts</strong> with <strong>“<bdi>APPLE</bdi>”</strong>." in text
    assert '<option value="distance" selected>distance, tokens</option>' in text
    assert 'name="q" value="APPLE"' in text
    text = ask(server, "/?q=plum&by=distance&layer=0&head=1")[2]
    assert "No text contains “<bdi>plum</bdi>”." in text
    link = "?by=distance&amp;side=encoder&amp;layer=0&amp;head=1&amp;order=desc"
    assert f'<a href="{link}">Show all texts</a>' in text


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("by=entropy&layer=1", "encoder has no layer 1.</p><p>Its layers are 0, 3."),
        ("by=entropy&head=7", "encoder has no head 7.</p><p>Its heads are 1, 2."),
        ("by=entropy&side=cross", "Side cross has no statistics.</p><p>Sides that have: encoder."),
        ("by=argmax", "This store has no statistic argmax of encoder.</p><p>It has entropy, dist"),
        ("by=max", "extract again with that statistic"),
        ("by=%3Cscript%3E", "no statistic &lt;script&gt; of"),
        ("by=entropy&side=%3Cscript%3E", "Side &lt;script&gt; has"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/text/7"])
def test_what_the_store_has_not_is_reported_plainly(server, query, message, path):
    status, headers, text = ask(server, f"{path}?{query}")
    assert status == 422 and message in text and "<script" not in text
    assert "script-src" not in headers["Content-Security-Policy"]
    assert "Back to the texts" in text


def test_a_store_without_statistics_says_how_to_extract_them(tmp_path):
    path = store_cases.write(tmp_path / "store", store_cases.traces("decoder"))
    with serving(path) as server:
        status, _, text = ask(server, "/")
        assert status == 200 and "<select" not in text
        assert "<code>flaxattn extract … --stats entropy,distance,max</code>" in text
        for address in ("/atlas", "/?by=entropy"):
            status, _, text = ask(server, address)
            assert status == 422 and "extract again with statistics" in text
        assert corpus_data(ask(server, "/text/3")[2])[1]["atlas"] is None


def test_a_store_that_has_no_shard_yet_says_so(tmp_path):
    store_cases.plan(tmp_path / "store", 10, 5)
    with serving(tmp_path / "store") as server:
        status, _, text = ask(server, "/")
        assert status == 200 and "No text is there yet." in text


def test_sides_of_a_translation_are_chosen_in_the_form(tmp_path):
    path = store_cases.write(tmp_path / "store", store_cases.traces("seq2seq"))
    with serving(path) as server:
        text = ask(server, "/?by=entropy&side=cross&layer=3&head=2")[2]
        assert '<option value="cross" selected>cross</option>' in text
        means = [open_store(path).array("cross.entropy", n, 3, 2).mean() for n in range(7)]
        assert rows(text) == np.argsort(means)[::-1].tolist()


# From text to text


def test_a_text_leads_to_those_beside_it(server):
    _, data = corpus_data(ask(server, "/text/7")[2])
    assert (data["back"], data["next"], data["list"]) == ("6", "8", "../")
    assert (data["place"], data["id"], data["atlas"]) == ("8 of 230", "corpus.txt:8", "../atlas")
    assert corpus_data(ask(server, "/text/0")[2])[1]["back"] is None
    last = corpus_data(ask(server, "/text/229")[2])[1]
    assert (last["next"], last["list"]) == (None, "../?page=5")


def test_next_and_back_follow_the_list_that_the_text_was_opened_from(server):
    _, data = corpus_data(ask(server, "/text/73?q=apple")[2])
    assert (data["back"], data["next"]) == ("63?q=apple", "83?q=apple")
    assert (data["place"], data["list"]) == ("8 of 23 with “apple”", "../?q=apple")
    order = ranked(3, 2, descending=True)
    requested = "?by=entropy&side=encoder&layer=3&head=2&order=desc"
    _, data = corpus_data(ask(server, f"/text/{order[60]}{requested}")[2])
    assert data["back"] == f"{order[59]}{requested}" and data["next"] == f"{order[61]}{requested}"
    assert data["list"] == f"../{requested}&page=2"
    value = entropies()[order[60], 1, 1]
    assert data["place"] == f"61 of 228, highest entropy of head 3.2 first: {value:#.4g}"
    # A text that is not in the list has its place in the corpus.
    assert corpus_data(ask(server, "/text/74?q=apple")[2])[1]["back"] == "73"


def test_a_list_is_made_once_for_all_its_texts(server, store, monkeypatch):
    ask(server, "/?q=pear")
    names, real = [], Shard.table

    def counted(self, name, columns=None, rows=None):
        names.append(name)
        return real(self, name, columns, rows)

    monkeypatch.setattr(Shard, "table", counted)
    ask(server, "/text/20?q=pear")
    ask(server, "/text/21?q=pear")
    assert names.count("texts.parquet") == 4  # of each text, its id and its trace


def test_a_text_without_a_page_still_leads_on(tmp_path):
    path = store_cases.write(tmp_path / "store", store_cases.traces("statistics"))
    with serving(path) as server:
        status, _, text = ask(server, "/text/3?q=text")
        assert status == 422
        for link, name in (("2", "‹ Back"), ("4", "Next ›")):
            assert f'<a href="{link}?q=text">{name}</a>' in text
        assert '<a href="../?q=text">Back to the texts</a>' in text


# The atlas over all texts


def test_means_are_those_of_all_texts(store):
    means, texts = corpus_means(open_store(store))
    assert texts == COUNT and list(means) == ["encoder"]
    values = entropies().astype(np.float64)
    for row in means["encoder"]:
        own = values[:, LAYERS.index(row["layer"]), HEADS.index(row["head"])]
        for name, expected in (("entropy", own.mean()), ("distance", 2 * own.mean())):
            assert row[name] == pytest.approx(expected, nan_ok=True)
    assert len(means["encoder"]) == 4 and "argmax" not in means["encoder"][0]


def test_the_atlas_is_that_of_the_store_and_leads_to_lists(server, store):
    status, headers, text = ask(server, "/atlas")
    assert status == 200 and "script-src" in headers["Content-Security-Policy"]
    element, data = corpus_data(text)
    assert text.replace(f"{element}\n", "") == atlas_view(open_store(store)).html
    assert data == {"list": "./", "name": "All 230 texts", "sort": "./"}


def test_the_atlas_is_computed_once_and_says_how_far_it_is(store, monkeypatch):
    monkeypatch.setattr(texts_page, "_PATIENCE", 0.05)
    gate, real, reads = threading.Event(), Shard.table, []

    def slow(self, name, columns=None, rows=None):
        if name == "heads.parquet":
            reads.append(int(self.folder.name))
            assert len(reads) <= 3 or gate.wait(20)
        return real(self, name, columns, rows)

    monkeypatch.setattr(Shard, "table", slow)
    with serving(store) as server:
        deadline = time.monotonic() + 20
        while ": 50%" not in (page := ask(server, "/atlas")[2]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "Adding up the statistics of 230 texts: 50%" in page
        assert '<meta http-equiv="refresh" content="1">' in page and "<script" not in page
        assert "Sorting 230 texts: 0%" in ask(server, "/?by=entropy")[2]
        gate.set()
        while "flaxattn-corpus" not in (page := ask(server, "/atlas")[2]):
            assert time.monotonic() < deadline
        ask(server, "/atlas")
        assert reads[:6] == [0, 1, 2, 3, 4, 5] and len(reads) <= 12  # one more for the sorting


def test_an_atlas_takes_in_shards_that_are_finished_later(tmp_path):
    texts = store_cases.traces("statistics")
    path = store_cases.write(tmp_path / "store", texts, only={0})
    with closing(StorePages(open_store(path), head_view)) as pages:
        assert "Means over 3 texts" in pages.atlas()
        store_cases.write(tmp_path / "whole", texts)
        (tmp_path / "whole/shards/00001").rename(path / "shards/00001")
        assert "Means over 6 texts" in pages.atlas()
        assert "6 texts" in pages.texts(ListQuery())


# Long work


def test_a_result_is_computed_once_and_a_failure_is_not_kept(monkeypatch):
    monkeypatch.setattr(texts_page, "_KEPT", 2)
    calls = []

    def make(watch):
        calls.append(1)
        watch(0.5)
        if len(calls) == 1:
            raise InputError("no")
        return len(calls)

    with closing(BackgroundJobs()) as jobs:
        with pytest.raises(InputError):
            jobs.result("a", make)
        assert [jobs.result("a", make) for _ in range(3)] == [2, 2, 2]
        assert [jobs.result(key, make) for key in "bca"] == [3, 4, 5]  # the oldest was let go


def test_closing_ends_what_is_computed(monkeypatch):
    monkeypatch.setattr(texts_page, "_PATIENCE", 0.05)
    ended = threading.Event()

    def make(watch):
        try:
            for step in range(10_000):
                time.sleep(0.005)
                watch(step / 10_000)
        finally:
            ended.set()

    jobs = BackgroundJobs()
    assert isinstance(jobs.result("a", make), Progress)
    jobs.close()
    assert ended.wait(5)
