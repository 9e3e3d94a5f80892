# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Documents of a server without a script, and the background jobs that some of them wait for.

They look like pages of attention: colours, type and controls are those of `assets/view.css`.
"""

import functools
import html
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from flaxattn.store.open_store import Watch
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
