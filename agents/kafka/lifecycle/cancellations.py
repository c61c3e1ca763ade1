"""A cancellation that nobody asked for ends nothing in silence.

asyncio tells a task that it is cancelled by the same exception with which it tells that what the task waits for was
cancelled. aiokafka lets cancellations of its own tasks through at places (a consumer that is stopped while its broker
is away), and whoever runs the task then takes it for one that was told to end: the part of the worker is gone, the
worker lives on, and nothing says so. Every part that lives as long as its worker is therefore run by what is here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, Self, TypeVar

from mode import Service

from schemas.errors import StrayCancellationError

Result = TypeVar("Result")


async def raise_stray_cancellation(awaitable: Awaitable[Result], what: str) -> Result:
    """Await something; a cancellation that nobody asked of this task becomes an error.

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


async def together(what: str, *works: Coroutine[Any, Any, None]) -> None:
    """Do pieces of work beside each other. Where one fails, the others are cancelled and waited for.

    Raises: what the first one failed of; StrayCancellationError, as above; CancelledError.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(raise_stray_cancellation(work, what))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0]  # noqa: B904  # with what it was raised from


async def finish_before_cancellation(awaitable: Awaitable[Result]) -> Result:
    """Await what must not be left half done; whoever cancels this task meanwhile is heeded when it is over.

    A service is told to stop twice: by `should_stop`, and by a cancellation a moment later. A task that heeds the first
    is at its last work when the second comes. A consumer that is not closed then keeps its place in its group, and its
    partitions, for as long as the process lives.

    Raises: what the work raises; CancelledError.
    """
    work = asyncio.ensure_future(awaitable)
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    result = work.result()
    if cancelled is not None:
        raise cancelled
    return result


class LongService(Service):
    """A service whose tasks end with it or with an error, and never otherwise."""

    @classmethod
    def configured(cls, *args: Any, **settings: Any) -> type[Self]:
        """Return the service with these arguments, as a class: that is what `app.service` takes."""

        def init(self: Self, **service_settings: Any) -> None:
            cls.__init__(self, *args, **settings, **service_settings)

        return type(cls.__name__, (cls,), {"__init__": init, "__module__": cls.__module__})

    async def _execute_task(self, task: Awaitable[None]) -> None:
        await super()._execute_task(self._told(task))

    async def _told(self, task: Awaitable[None]) -> None:
        try:
            await raise_stray_cancellation(task, self.shortlabel)
        except StrayCancellationError:
            if not self.should_stop:
                raise
