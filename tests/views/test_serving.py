# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""A store is served to this machine's browser only, page by page; nothing else is handed out."""

import base64
import hashlib
import html
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import store_cases
from store_requests import ask, corpus_data, rows, serving

from flaxattn import head_view
from flaxattn.errors import InputError
from flaxattn.store.commit_shards import write_shard
from flaxattn.store.open_store import ExampleNumbers, example_of, open_store, read_texts
from flaxattn.store.shard import Shard
from flaxattn.trace.trace import Trace
from flaxattn.views import serving as server_module
from flaxattn.views import texts_page
from flaxattn.views.serving import TextServer

COUNT, PER_SHARD = 2000, 100
EVIL = "</td><script>alert(1)</script>\x1b[31m\u202e & \"'"


def words_of(n):
    return EVIL if n == 1234 else f"text number {n} is {'odd' if n % 2 else 'even'}"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """2,000 tiny texts in 20 shards."""
    path = tmp_path_factory.mktemp("many") / "store"
    shards, sha256 = store_cases.plan(path, COUNT, PER_SHARD)
    weights = np.full((1, 1, 1, 2, 2), 0.5, np.float16)
    for number, span in enumerate(shards):
        items = [
            (
                store_cases.corpus_text(n),
                Trace.from_arrays(weights, [["a", f"b{n}"]], texts=[(words_of(n), "Zweiter")]),
            )
            for n in range(span["start"], span["stop"])
        ]
        write_shard(path, sha256, number, span, items)
    return path


@pytest.fixture(scope="module")
def server(store):
    with serving(store) as server:
        yield server


@pytest.fixture
def reads(monkeypatch):
    """Every reading of a table: (shard, rows)."""
    seen, real = [], Shard.table

    def counted(self, name, columns=None, rows=None):
        seen.append((int(self.folder.name), rows))
        return real(self, name, columns, rows)

    monkeypatch.setattr(Shard, "table", counted)
    return seen


def test_a_page_of_texts_reads_its_own_rows_only(server, reads):
    status, _, text = ask(server, "/")
    assert (status, rows(text)) == (200, list(range(50)))
    assert reads == [(0, (0, 50))]
    assert 'href="?page=2"' in text and "Back" not in text and "Page 1 of 40." in text
    reads.clear()
    text = ask(server, "/?page=40")[2]
    assert rows(text) == list(range(1950, 2000))
    assert reads == [(19, (50, 100))]
    assert 'href="?page=39"' in text and "Next" not in text
    reads.clear()
    text = ask(server, "/?page=3")[2]
    assert rows(text) == list(range(100, 150))
    assert reads == [(1, (0, 50))]
    links = re.findall(r'<a href="([^"]*)">(First|‹ Back|Next ›|Last)</a>', text)
    assert links == [
        ("./", "First"),
        ("?page=2", "‹ Back"),
        ("?page=4", "Next ›"),
        ("?page=40", "Last"),
    ]


def test_a_search_reads_each_table_once_and_no_further_than_it_must(server, reads, monkeypatch):
    monkeypatch.setattr(texts_page, "MOST_HITS", 149)
    text = ask(server, "/?q=IS+odd&page=2")[2]
    assert rows(text) == list(range(101, 201, 2))
    assert [shard for shard, _ in reads] == [0, 1, 2, 1]  # at last the rows that are shown
    assert 'href="?q=IS+odd&amp;page=3"' in text
    sentence = "More than 149 texts contain <strong>“<bdi>IS odd</bdi>”</strong>; the first 149 are"
    assert sentence in text and "Page 2 of 3." in text
    reads.clear()
    assert rows(ask(server, "/?q=IS+odd&page=3")[2]) == list(range(201, 299, 2))
    assert [shard for shard, _ in reads] == [2]
    assert rows(ask(server, "/?q=corpus.txt:77")[2])[:2] == [76, 769]
    assert rows(ask(server, "/?q=zweiter")[2]) == list(range(50))


def test_a_search_without_a_hit_says_so_and_how_to_continue(server):
    status, _, text = ask(server, "/?q=.*")
    assert status == 200 and rows(text) == []
    assert "No text contains “<bdi>.*</bdi>”." in text
    assert "upper or lower case, in the ids and texts of all 2,000 texts. Try fewer" in text
    assert '<a href="./">Show all texts</a>' in text
    text = ask(server, "/?page=41")[2]
    assert "There is no page 41." in text and '<a href="?page=40">page 40</a>' in text


def test_what_was_searched_for_is_marked_where_it_stands(server):
    text = ask(server, "/?q=NUMBER+77")[2]
    assert "text <mark>number 77</mark> is odd" in text
    assert "<strong>11 texts</strong> of 2,000 contain" in text


def test_a_text_opens_the_page_of_its_attention(server):
    status, headers, text = ask(server, "/text/7")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    data = corpus_data(text)
    assert text.replace(f"{data[0]}\n", "") == server.pages.page(7)
    assert "b7" in text
    assert "script-src 'sha256-" in headers["Content-Security-Policy"]
    assert headers["Content-Security-Policy"].endswith("frame-ancestors 'none'")


def test_hostile_texts_are_shown_and_not_run(server):
    _, headers, text = ask(server, "/?page=25")
    assert "<script" not in text and "\x1b" not in text
    assert html.escape("</td><script>alert(1)</script>␛[31m\u202e & \"'") in text
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = headers["Content-Security-Policy"]
    assert f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'" in policy
    _, _, text = ask(server, "/?q=%22%3E%3Cscript%3E%00")
    assert "<script" not in text and 'value="&quot;&gt;&lt;script&gt;␀"' in text


@pytest.mark.parametrize(
    "path",
    [
        "/plan.json",
        "/../plan.json",
        "/..%2f..%2fetc/passwd",
        "/text/../../plan.json",
        "/text/7/../8",
        "/text/-1",
        "/text/2000",
        "/text/999999999999",
        "/text/7%00",
        "/text/7/",
        "/text/%D9%A7",
        "/text/0x7",
        "//127.0.0.1/text/7",
        "/shards/00000/texts.parquet",
        "/favicon.ico",
    ],
)
def test_nothing_but_texts_can_be_requested(server, path):
    status, headers, text = ask(server, path)
    assert status in (400, 404)
    assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert "sha256" not in text and "root:" not in text


@pytest.mark.parametrize(
    "query",
    [
        "page=x",
        "page=0",
        "page=-1",
        "page=" + "9" * 20,
        "page=%D9%A3",
        "q=" + "a" * 201,
        "q=%ff",
        "a=b&" * 11,
        "by=entropy&layer=1.5",
        "by=entropy&head=-1",
        "by=entropy&order=up",
        "by=" + "a" * 201,
        "by=entropy&side=" + "a" * 201,
    ],
)
def test_an_address_that_makes_no_sense_is_refused(server, query):
    assert ask(server, f"/?{query}")[0] == 400


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_only_get_is_answered(server, method):
    status, headers, _ = ask(server, "/", method)
    assert (status, headers["Allow"]) == (405, "GET")


def test_other_methods_and_no_requests_are_refused(server):
    assert ask(server, "/", "BREW")[0] == 501
    with socket.create_connection(("127.0.0.1", server.server_port), 10) as plain:
        plain.sendall(b"\x00\x01\x02 nonsense\r\n\r\n")
        assert b"400" in plain.recv(4096)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "", "127.0.0.1:80 "])
def test_other_hosts_are_refused(server, host):
    assert ask(server, "/", Host=host)[0] == 421


def test_this_host_is_answered_and_reachable_from_this_machine_only(server):
    for name in ("127.0.0.1", "localhost"):
        assert ask(server, "/", Host=f"{name}:{server.server_port}")[0] == 200
    assert server.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
@pytest.mark.parametrize("path", ["/", "/text/7", "/?q=a", "//", "/TOKEN", "/é", "", "/../TOKEN/"])
def test_requests_without_the_token_get_nothing(server, method, path):
    wrong = server.token[:-1] + ("A" if server.token[-1] != "A" else "B")
    for target in (path or "/", f"/{wrong}{path}"):
        target = target.replace("TOKEN", server.token.swapcase())
        with socket.create_connection(("127.0.0.1", server.server_port), 10) as plain:
            host = f"Host: 127.0.0.1:{server.server_port}"
            plain.sendall(f"{method} {target} HTTP/1.1\r\n{host}\r\n\r\n".encode())
            with plain.makefile("rb") as file:
                answer = file.read().decode()  # to its end: the connection is closed
        head, _, body = answer.partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 403 ")
        assert body.endswith("<pre>Open the whole address that the command printed.</pre>") or (
            method == "HEAD" and not body
        )
        assert server.token not in answer and "href" not in answer


def test_the_address_holds_the_token_and_two_servers_differ(server, store):
    assert server.address == f"http://127.0.0.1:{server.server_port}/{server.token}/"
    with TextServer(open_store(store), head_view) as other:
        assert len(other.token) >= 20 and other.token != server.token
    with socket.create_connection(("127.0.0.1", server.server_port), 10) as plain:
        plain.sendall(f"GET /{server.token}/ HTTP/1.1\r\nHost: evil.example\r\n\r\n".encode())
        assert plain.recv(4096).startswith(b"HTTP/1.1 421 ")


def test_two_hundred_requests_at_once_are_answered(store):
    """All connect before the server accepts one, as happens while it makes a page."""
    with TextServer(open_store(store), head_view) as server:
        request = f"GET /{server.token}/ HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n"

        def answer(_):
            with socket.create_connection(("127.0.0.1", server.server_port), 30) as plain:
                plain.sendall(request.encode())
                return plain.recv(12)

        with ThreadPoolExecutor(200) as pool:
            answers = [pool.submit(answer, n) for n in range(200)]
            time.sleep(0.5)
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            assert {one.result(60) for one in answers} == {b"HTTP/1.1 200"}
        server.shutdown()


def test_a_client_that_sends_slowly_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(server_module._Handler, "timeout", 1.0)
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.server_port), 10) as slow:
        slow.sendall(f"GET /{server.token}/ HTTP/1.1\r\n".encode())
        with pytest.raises(OSError):
            while time.monotonic() - started < 8:
                slow.sendall(b"X-A: b\r\n")
                time.sleep(0.2)
    assert time.monotonic() - started < 5
    assert ask(server, "/")[0] == 200


def test_a_client_that_takes_no_answer_is_cut_off(server, monkeypatch):
    monkeypatch.setattr(server_module._Handler, "timeout", 1.0)
    monkeypatch.setattr(server.pages, "page", lambda example: "x" * 50_000_000 + "</body>")
    before = threading.active_count()
    with socket.create_connection(("127.0.0.1", server.server_port), 10) as slow:
        host = f"Host: 127.0.0.1:{server.server_port}"
        slow.sendall(f"GET /{server.token}/text/1 HTTP/1.1\r\n{host}\r\n\r\n".encode())
        deadline = time.monotonic() + 6
        time.sleep(0.5)
        while threading.active_count() > before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert threading.active_count() <= before


def test_a_store_that_is_not_whole_or_damaged_is_reported(tmp_path):
    texts = store_cases.traces("encoder")
    path = store_cases.write(tmp_path / "store", texts, only={0, 2})
    store = open_store(path)
    there = ExampleNumbers(store)
    assert list(there) == [text.example for text in read_texts(store, there)] == [0, 1, 2, 6]
    assert [there.index(example) for example in there] == [0, 1, 2, 3]
    with pytest.raises(ValueError):
        there.index(4)
    server = TextServer(store, head_view)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        status, _, text = ask(server, "/text/4")
        assert status == 500 and "does not hold shard 00001 yet" in text
        (path / "shards/00002/texts.parquet").write_bytes(b"PAR1")
        assert ask(server, "/")[0] == 500
        assert ask(server, "/text/1")[0] == 200
    finally:
        server.shutdown()
        server.server_close()


def test_texts_without_weights_say_what_they_lack(tmp_path):
    texts = store_cases.traces("statistics", count=1)
    server = TextServer(open_store(store_cases.write(tmp_path / "store", texts)), head_view)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        status, _, text = ask(server, "/text/0")
        assert status == 422 and "A view draws attention weights" in text
    finally:
        server.shutdown()
        server.server_close()


def test_a_port_that_is_taken_is_reported(server):
    with pytest.raises(InputError, match=r"cannot be used: .*\nChoose another; port=0"):
        TextServer(server.pages.store, head_view, server.server_port)
    with pytest.raises(InputError, match="Port 99999 of"):
        TextServer(server.pages.store, head_view, 99999)


def test_a_text_is_found_by_its_id(store):
    opened = open_store(store)
    assert example_of(opened, "corpus.txt:1235") == 1234
    with pytest.raises(InputError) as caught:
        example_of(opened, "none")
    assert str(caught.value) == (
        f"No text of {store} has the id 'none'.\n"
        "Its first ids are 'corpus.txt:1', 'corpus.txt:2', 'corpus.txt:3'."
    )
