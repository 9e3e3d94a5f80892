# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Event loops of Orbax that wait for the writes that are under way before they are closed.

Orbax closes the loop of a save at the first array that cannot be written. TensorStore's threads
still write the others then: each prints "Event loop is closed" with a traceback when it is done,
and may put a file into a folder that is being removed. Nothing here knows what is saved.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from orbax.checkpoint._src import asyncio_utils

_PATIENCE = 60.0  # seconds for the writes that are under way
NAME = "_run_sync_via_new_loop"
T = TypeVar("T")


def install() -> None:
    """Let every loop that Orbax makes for a save in this process wait; twice is no more than once.

    A version of Orbax without the function that makes them is left as it is.
    """
    if hasattr(asyncio_utils, NAME):
        setattr(asyncio_utils, NAME, run_whole)


def run_whole(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a loop of its own, and wait for what it began where it fails."""
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(work)
        except Exception:
            loop.run_until_complete(_wait(asyncio.all_tasks(loop)))
            raise
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _wait(tasks: set[asyncio.Task[Any]]) -> None:
    """Wait for tasks, whose failures are the first one's; and for those who wait for them."""
    if tasks:
        await asyncio.wait(tasks, timeout=_PATIENCE)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # else asyncio warns that nobody read it
    await asyncio.sleep(0)
