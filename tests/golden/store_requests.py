# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Asking a server of a store as a browser would, and reading its pages."""

import http.client
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flaxattn import head_view
from flaxattn.store.open_store import open_store
from flaxattn.views.serving import TextServer


@contextmanager
def serving(path: Path, view=head_view) -> Iterator[TextServer]:
    """A server of a store, which listens."""
    with TextServer(open_store(path), view) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(5)


def ask(server, path, method="GET", token=None, **headers):
    """Status, headers and text of an answer; the path is below the token of the server."""
    path = f"/{server.token if token is None else token}{path}"
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def corpus_data(text):
    """The element with what the server adds to a page, and its content."""
    found = re.search(r'<script [^>]*class="flaxattn-corpus">(.*?)</script>', text)
    return found[0], json.loads(found[1])


def rows(text):
    """Numbers of the texts that a list shows."""
    return [int(n) for n in re.findall(r'<a class="number" href="text/(\d+)[?"]', text)]
