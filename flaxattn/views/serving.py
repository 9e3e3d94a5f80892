# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""The pages of a store, made when a browser on this machine asks: texts, each text, the atlas.

Loopback only and read-only. Every address begins with a token that is drawn when the server starts,
so other users of the machine cannot read the texts. An address names a text by its number and
nothing else, so no path of a file can be requested; other methods than GET and other hosts than
this one are refused, which keeps out pages of strangers that point a name of their own at this
machine.
"""

import html
import io
import re
import secrets
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from flaxattn.errors import FlaxattnError, InputError, StoreError
from flaxattn.store.open_store import Store
from flaxattn.trace.trace import Trace
from flaxattn.views.page import Page
from flaxattn.views.store_pages import StorePages
from flaxattn.views.texts_page import ListQuery, list_policy

HOST = "127.0.0.1"
_PATIENCE = 30.0  # seconds that a browser may take to send a request, and to take the answer
_BACKLOG = 1024  # connections that may wait to be accepted
_POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class TextServer(ThreadingHTTPServer):
    """Hands out the pages of one store, each made by a view such as `head_view`.

    Attributes:
        pages: Makes its pages.
        token: First part of every address; a request without it is answered with 403.
    """

    daemon_threads = True
    request_queue_size = _BACKLOG
    allow_reuse_address = False  # on Windows it would let another program listen here too

    def __init__(self, store: Store, view: Callable[[Trace], Page], port: int = 0) -> None:
        self.pages = StorePages(store, view)
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"Port {port} of {HOST} cannot be used: {error}.\n"
                "Choose another; port=0 takes any that is free."
            ) from error
        self.token = secrets.token_urlsafe(16)
        self.hosts = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    @property
    def address(self) -> str:
        """Address of the page for a browser."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def server_close(self) -> None:
        """Stop listening, and end what is being computed."""
        super().server_close()
        self.pages.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is not an error worth a traceback."""


class _Refused(Exception):  # noqa: N818  # an answer, not an error
    """An answer other than 200: its status and what is said."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _DeadlineReader(io.RawIOBase):
    """Bytes from a socket until a deadline, however slowly they come.

    Attributes:
        deadline: When to stop, of `time.monotonic`.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self.deadline = connection, 0.0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what there is."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: TextServer  # pyright: ignore[reportIncompatibleVariableOverride]  # always ours
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "flaxattn", ""
    timeout = _PATIENCE

    def setup(self) -> None:
        """Read requests with a deadline."""
        super().setup()
        self.rfile.close()
        self._reader = _DeadlineReader(self.connection)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        """Answer one request, which must arrive in time."""
        self._reader.deadline = time.monotonic() + (self.timeout or _PATIENCE)
        super().handle_one_request()

    def do_GET(self) -> None:  # the name http.server calls
        """Send a page, or say why not."""
        try:
            self._check_token()
            self._check_host()
            status, page, policy = self._answer()
        except _Refused as refused:
            self._refuse(refused.status, str(refused))
        except Exception as error:  # one text that nobody foresaw must not end the others
            self._refuse(500, f"This page could not be made ({type(error).__name__}).")
        else:
            self._send(status, page, policy)

    def _only_get(self) -> None:
        self.close_connection = True  # what follows may be a body that nobody reads
        try:
            self._check_token()
        except _Refused as refused:
            self._refuse(refused.status, str(refused))
        else:
            self._refuse(405, "This server only hands out pages: GET.", {"Allow": "GET"})

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = _only_get  # noqa: N815  # names http.server calls
    do_CONNECT = _only_get  # noqa: N815  # as above

    def _has_token(self) -> bool:
        token = getattr(self, "path", "")[1:].partition("/")[0]  # a broken request has no path
        return secrets.compare_digest(token.encode(), self.server.token.encode())

    def _check_token(self) -> None:
        if not self._has_token():
            self.close_connection = True
            raise _Refused(403, "Open the whole address that the command printed.")

    def _check_host(self) -> None:
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            self.close_connection = True
            raise _Refused(421, f"This server answers to {HOST}:{self.server.server_port} only.")

    def _answer(self) -> tuple[int, str, str]:
        """Status, page and policy for the address that was requested."""
        parts = urlsplit(self.path[1 + len(self.server.token) :])
        if parts.scheme or parts.netloc:
            raise _Refused(400, "Ask for a path.")
        try:
            query = ListQuery.read(parts.query)
        except ValueError as error:
            raise _Refused(400, f"This address cannot be read: {error}") from error
        pages = self.server.pages
        match = re.fullmatch(r"/(?:(atlas)|text/(\d{1,12}))?", parts.path, re.ASCII)
        if not match or (match[2] and int(match[2]) >= len(pages.store)):
            raise _Refused(404, "There is no such page.")
        try:
            if match[1]:
                page = pages.atlas()
            elif match[2]:
                page = pages.text(int(match[2]), query)
            else:
                page = pages.texts(query)
        except FlaxattnError as error:
            status = 500 if isinstance(error, StoreError) else 422
            example = int(match[2]) if match[2] else None
            return status, pages.message(error, query, example), list_policy()
        policy = _POLICY.search(page)
        if policy is None:
            return 200, page, list_policy()
        return 200, page, f"{html.unescape(policy[1]).rstrip('; ')}; frame-ancestors 'none'"

    def _refuse(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        text = f"<!doctype html><meta charset=utf-8><title>{status}</title>"
        text += f"<pre>{html.escape(reason)}</pre>"
        text += f"<a href=/{self.server.token}/>All texts</a>" if self._has_token() else ""
        self._send(status, text, "default-src 'none'; frame-ancestors 'none'", headers)

    def _send(
        self, status: int, page: str, policy: str, headers: dict[str, str] | None = None
    ) -> None:
        data = page.encode("utf-8")
        self.connection.settimeout(self.timeout)
        self.send_response(status)
        given = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(data))}
        for name, value in {**given, "Content-Security-Policy": policy, **_ALWAYS}.items():
            self.send_header(name, value)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer requests that http.server refuses itself, such as a line that is not a request."""
        self.close_connection = True
        self._refuse(int(code), message or "This request cannot be read.")

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""
