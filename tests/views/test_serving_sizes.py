# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What a page of a store costs does not depend on how many texts the store has."""

import dataclasses
import tracemalloc
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import store_cases

from flaxattn.corpus.texts import Text
from flaxattn.store import shard_tables
from flaxattn.store.commit_shards import write_shard
from flaxattn.store.open_store import open_store
from flaxattn.store.shard import Shard
from flaxattn.trace.trace import Trace
from flaxattn.views.store_pages import StorePages
from flaxattn.views.texts_page import ListQuery
from flaxattn.views.trace_views import head_view

PER_SHARD = 100
SIZES = (200, 2400)
PAGES = {
    "list": lambda pages, last: pages.texts(ListQuery(page=last // 50)),
    "search": lambda pages, last: pages.texts(ListQuery("no text has this")),
    "sort": lambda pages, last: pages.texts(ListQuery("", "entropy")),
    "atlas": lambda pages, last: pages.atlas(),
    "text": lambda pages, last: pages.page(last - 1),
}


def trace_of(number: int, heads: int = 1) -> Trace:
    """A trace of two tokens, with weights and an entropy that differs from text to text."""
    weights = np.full((1, 1, heads, 2, 2), 0.5, np.float16)
    trace = Trace.from_arrays(weights, [["a", "b"]], texts=[("x" * 200,)])
    assert trace.encoder is not None
    stats = {"entropy": np.full((1, 1, heads, 2), number % 97, np.float32)}
    return dataclasses.replace(trace, encoder=dataclasses.replace(trace.encoder, stats=stats))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Stores of two sizes, their texts and shards alike."""
    folder = tmp_path_factory.mktemp("sizes")
    for size in SIZES:
        shards, sha256 = store_cases.plan(folder / str(size), size, PER_SHARD)
        for number, span in enumerate(shards):
            texts = range(span["start"], span["stop"])
            traces = [trace_of(n) for n in texts]
            items = [(Text(n, f"t:{n}", ""), one) for n, one in zip(texts, traces, strict=True)]
            write_shard(folder / str(size), sha256, number, span, items)
    return {size: folder / str(size) for size in SIZES}


def peaks(path: Path, size: int, name: str) -> tuple[int, int]:
    """Bytes that Python and Arrow hold at most while a page is made, in a server that is warm."""
    usual = pa.default_memory_pool()
    store = open_store(path)
    with closing(StorePages(store, head_view)) as pages:
        PAGES[name](pages, size)
    with closing(StorePages(store, head_view)) as pages:
        pool = pa.proxy_memory_pool(usual)
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            PAGES[name](pages, size)
            return tracemalloc.get_traced_memory()[1], pool.max_memory()
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(usual)


@pytest.mark.parametrize("name", PAGES)
def test_memory_of_a_page_does_not_grow_with_the_texts(stores, name):
    # Threads that earlier tests left may allocate at the same time: what a page needs, it needs
    # each time.
    found = [[peaks(stores[size], size, name) for _ in range(3)] for size in SIZES]
    small, large = ([min(peak) for peak in zip(*each, strict=True)] for each in found)
    assert small[1] > 0
    assert large[0] < 1.2 * small[0] + 50_000
    assert large[1] < 1.2 * small[1] + 50_000


@pytest.mark.parametrize("name", ["list", "text"])
def test_tables_that_are_opened_do_not_grow_with_the_texts(stores, name, monkeypatch):
    opened, real = [], Shard._opened

    def counted(self, table):
        opened.append(table)
        return real(self, table)

    monkeypatch.setattr(Shard, "_opened", counted)
    counts = []
    for size in SIZES:
        with closing(StorePages(open_store(stores[size]), head_view)) as pages:
            opened.clear()
            PAGES[name](pages, size)
            counts.append(len(opened))
    assert counts[0] == counts[1] <= 4


@pytest.mark.parametrize("name", ["search", "sort", "atlas"])
def test_large_shards_are_read_a_group_of_rows_at_a_time(tmp_path, monkeypatch, name):
    monkeypatch.setattr(shard_tables, "ROWS_TOGETHER", 256)
    shards, sha256 = store_cases.plan(tmp_path, 1000, 1000)
    items = [(Text(n, f"t:{n}", ""), trace_of(n, heads=3)) for n in range(1000)]
    write_shard(tmp_path, sha256, 0, shards[0], items)
    reads, real = [], Shard.table

    def counted(self, table, columns=None, rows=None):
        reads.append((table, rows))
        return real(self, table, columns, rows)

    monkeypatch.setattr(Shard, "table", counted)
    with closing(StorePages(open_store(tmp_path), head_view)) as pages:
        PAGES[name](pages, 1000)
    table = "texts.parquet" if name == "search" else "heads.parquet"
    whole = [rows for read, rows in reads if read == table]
    total = 1000 if name == "search" else 3000
    assert whole == [(n, min(n + 256, total)) for n in range(0, total, 256)]
