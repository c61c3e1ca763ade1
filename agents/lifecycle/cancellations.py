"""A cancellation that nobody asked for ends nothing in silence.

asyncio tells a task that it is cancelled by the same exception with which it tells that what the task waits for was
cancelled. aiokafka lets cancellations of its own tasks through at places (a consumer that is stopped while its broker
is away), and whoever runs the task then takes it for one that was told to end: the part of the worker is gone, the
worker lives on, and nothing says so. Every part that lives as long as its worker is therefore run by what is here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from mode import Service

from schemas.errors import StrayCancellationError

Result = TypeVar("Result")


async def told(awaitable: Awaitable[Result], what: str) -> Result:
    """Await; a cancellation of which this task was not told becomes an error.

    Args:
        what: part of the worker, for the message.

    Raises: StrayCancellationError; CancelledError if somebody cancelled this task.
    """
    try:
        return await awaitable
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise StrayCancellationError(f"{what} was cut off: a Kafka client cancelled what it waited for") from error


class LongService(Service):
    """A service whose tasks end with it or with an error, and never otherwise."""

    async def _execute_task(self, task: Awaitable[None]) -> None:
        await super()._execute_task(self._told(task))

    async def _told(self, task: Awaitable[None]) -> None:
        try:
            await told(task, self.shortlabel)
        except StrayCancellationError:
            if not self.should_stop:
                raise
