# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Orbax's loops end when the writes that they began have ended."""

import asyncio

import pytest
from orbax.checkpoint._src import asyncio_utils

from flaxattn.train import orbax_loops


def test_orbax_makes_its_loops_in_the_function_that_is_replaced() -> None:
    assert hasattr(asyncio_utils, orbax_loops.NAME)
    orbax_loops.install()
    orbax_loops.install()
    assert getattr(asyncio_utils, orbax_loops.NAME) is orbax_loops.run_whole


@pytest.mark.parametrize("others_fail", [False, True])
def test_a_failure_is_raised_after_all_tasks_have_ended(others_fail: bool) -> None:
    ended = []

    async def write(number: int) -> None:
        await asyncio.sleep(0.01 * number)
        ended.append(number)
        if others_fail or not number:
            raise OSError(number)

    async def work() -> None:
        await asyncio.gather(*(write(number) for number in range(4)))

    with pytest.raises(OSError, match="0"):
        orbax_loops.run_whole(work())
    assert ended == [0, 1, 2, 3]


def test_a_result_is_handed_back() -> None:
    async def work() -> int:
        return 3

    assert orbax_loops.run_whole(work()) == 3
