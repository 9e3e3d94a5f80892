# SPDX-FileCopyrightText: 2026 The flaxattn authors
# SPDX-License-Identifier: Apache-2.0
"""Being asked to stop: SIGTERM and Ctrl-C let the update finish and the state be saved.

On several hosts all of them stop after the same update, whichever was told.
"""

import signal
from types import FrameType, TracebackType
from typing import Any, Self

import jax

from flaxattn.errors import StopRequestedError


class Stopping:
    """Watches for SIGTERM and SIGINT while its block runs; a second signal ends at once.

    On several hosts jax's own service watches for SIGTERM.
    """

    def __init__(self) -> None:
        self._signal = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if jax.process_count() == 1:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def asked(self, step: int) -> bool:
        """Return whether to stop after update `step`; the same answer on every host."""
        if jax.process_count() == 1:
            return self._signal != 0
        from jax.experimental import multihost_utils

        return multihost_utils.reached_preemption_sync_point(step)

    def leave(self, step: int) -> None:
        """End the run, the state of `step` being saved."""
        if self._signal == signal.SIGINT:
            raise KeyboardInterrupt
        raise StopRequestedError(f"stopped and saved after update {step}; the same command goes on")

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if self._signal:  # they mean it
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._signal = number
