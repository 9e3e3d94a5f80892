# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""What a page of a store costs does not depend on how many texts the store has."""

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import store_cases

from flaxattn.corpus.texts import Text
from flaxattn.store.open_store import open_store
from flaxattn.store.shard import Shard
from flaxattn.store.shard_writer import write_shard
from flaxattn.trace.trace import Trace
from flaxattn.views.serving import TextServer
from flaxattn.views.trace_views import head_view

PER_SHARD = 100
SIZES = (200, 2400)
PAGES = {
    "list": lambda server, last: server.listed(last - 50),
    "search": lambda server, last: server.listed(0, "no text has this"),
    "text": lambda server, last: server.page(last - 1),
}


class Asked(TextServer):
    """A server that is asked without a socket in between."""

    def listed(self, start: int, words: str = "") -> str:
        handler = self.RequestHandlerClass.__new__(self.RequestHandlerClass)
        handler.server = self
        return handler._list(f"from={start}&q={words.replace(' ', '+')}")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Stores of two sizes, their texts and shards alike."""
    folder = tmp_path_factory.mktemp("sizes")
    weights = np.full((1, 1, 1, 2, 2), 0.5, np.float16)
    for size in SIZES:
        shards, sha256 = store_cases.plan(folder / str(size), size, PER_SHARD)
        for number, span in enumerate(shards):
            texts = range(span["start"], span["stop"])
            traces = [Trace.from_arrays(weights, [["a", "b"]], texts=[("x" * 200,)]) for _ in texts]
            items = [(Text(n, f"t:{n}", ""), one) for n, one in zip(texts, traces, strict=True)]
            write_shard(folder / str(size), sha256, number, span, items)
    return {size: folder / str(size) for size in SIZES}


def peaks(path: Path, size: int, name: str) -> tuple[int, int]:
    """Bytes that Python and Arrow hold at most while a page is made, in a server that is warm."""
    usual = pa.default_memory_pool()
    with Asked(open_store(path), head_view) as server:
        PAGES[name](server, size)
        server.page.cache_clear()
        pool = pa.proxy_memory_pool(usual)
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            PAGES[name](server, size)
            return tracemalloc.get_traced_memory()[1], pool.max_memory()
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(usual)


@pytest.mark.parametrize("name", PAGES)
def test_memory_of_a_page_does_not_grow_with_the_texts(stores, name):
    small, large = (peaks(stores[size], size, name) for size in SIZES)
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
        with Asked(open_store(stores[size]), head_view) as server:
            opened.clear()
            PAGES[name](server, size)
            counts.append(len(opened))
    assert counts[0] == counts[1] <= 4
