"""Where steps are computed: by the event loop itself where they are quick, in threads where they may not be.

Python lets one thread run at a time. A quick step in a thread of its own and the event loop, which asks for the
interpreter after each of its many small calls, spend about as much on handing it over as on their work: two threads
that each computed steps of 2 to 15 ms took 1.8 times the processor time of one, and longer by the clock.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, TypeVar

QUICK_S = 0.1
"""How long everything else may wait for a step."""
STEPS = 100
"""A step is expected to be as quick as these were before it: an engine may have much to do in one of many."""
ALIKE = 100
"""Events of a step, beyond twice those of the largest one before, that are not expected to take longer."""

T = TypeVar("T")


class _Past(NamedTuple):
    events: int
    seconds: float


class Processors:
    """Computes steps of all streams of a worker."""

    def __init__(self) -> None:
        # Each thread more would only keep the event loop waiting for the interpreter.
        self._threads = asyncio.Semaphore(1 + (os.cpu_count() or 1))
        self._turn = asyncio.Lock()
        self._past: defaultdict[str, deque[_Past]] = defaultdict(lambda: deque(maxlen=STEPS))

    async def compute(
        self, stream: str, events: int, work: Callable[[], T], at_work: AbstractContextManager[None]
    ) -> T:
        """Compute a step of a stream, of so many events: return what `work` returns, or raise what it raises.

        Args: at_work: entered when the step has its turn.
        """
        if self.quick(stream, events):
            async with self._turn:
                # Between two steps everything else has its turn.
                await asyncio.sleep(0)
                with at_work:
                    return self._timed(stream, events, work)
        async with self._threads:
            with at_work:
                return await asyncio.to_thread(self._timed, stream, events, work)

    def quick(self, stream: str, events: int) -> bool:
        """Return whether a step of so many events is expected to take no longer than `QUICK_S`."""
        past = self._past[stream]
        return (
            bool(past)
            and max(step.seconds for step in past) < QUICK_S
            and events <= 2 * max(step.events for step in past) + ALIKE
        )

    def _timed(self, stream: str, events: int, work: Callable[[], T]) -> T:
        # Processor time of this thread alone: that others had the processor or the interpreter says nothing of a step.
        begun = time.thread_time()
        result = work()
        self._past[stream].append(_Past(events, time.thread_time() - begun))
        return result
