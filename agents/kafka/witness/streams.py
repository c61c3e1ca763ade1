"""A job's witness: where the last answered step of each stream is noted outside of the cluster, and who asks it.

It is a folder, a server of HTTP or a bucket that keeps one small record for each stream (`places`).

Whoever publishes a stream asks and writes its witness: nothing is published without it. A witness that cannot be
reached is waited for, loudly: the log, `status`, the metric `privstream_stopped` and the pulse of the publisher say so
at once, and how long it has been.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from agents.kafka import stop_log
from agents.kafka.lifecycle.advice import what_happened, what_to_do
from agents.kafka.lifecycle.logs import Reminder
from agents.kafka.lifecycle.state_folder import root_of
from agents.kafka.lifecycle.stops import STOPPED, Stop
from agents.kafka.witness.places import ChangedError, Folder, Noted, Store, prove, within
from agents.protocol.release.witness import Mark, Terms, advance, judge
from schemas.errors import BrokerError, WitnessAwayError

if TYPE_CHECKING:
    from agents.kafka.lifecycle.vitals import Pulse
    from agents.protocol.release.publisher import StreamPublisher
    from schemas.config import Config
    from schemas.config.server import JobSection

log = logging.getLogger(__name__)


T = TypeVar("T")


def store_of(job: JobSection) -> Store:
    """Return the witness of a job: as configured, else below the folder of its state tables.

    Raises: ConfigError if its library or its headers cannot be used.
    """
    place = job.witness
    if place is None:
        return Folder(root_of(job, cluster=None), f"{job.name}/witness")
    scheme = urlsplit(place).scheme
    if scheme in ("s3", "http", "https"):
        from agents.kafka.witness.servers import Bucket, Endpoint  # here: a folder needs no client of a server

        if scheme == "s3":
            return Bucket(place, job.name)
        return Endpoint(place, job.name, job.witness_headers_file)
    return Folder(Path(place), job.name)


UNCONFIGURED = (
    "each worker notes in its own data_dir what was answered, and a cluster that is put back to an earlier moment is "
    'noticed by those that have kept it, and by no other (docs/operations.md, "The witness")'
)


AGAIN_S = 2.0


class StreamWitness:
    """See the module. `open` once the public ledger is read, then `note` before each transaction.

    Args:
        pulse: of the publisher.
        trusted: the step that `--trust-ledger` gives for this stream.
    """

    def __init__(self, config: Config, stream: str, store: Store, pulse: Pulse, *, trusted: int | None = None) -> None:
        self._config = config
        self._stream = stream
        self._store = store
        self._pulse = pulse
        self._terms = Terms(store.place, configured=config.job.witness is not None, trusted=trusted)
        self._mark: Mark | None = None
        self._found = Noted(None)
        self._reminder = Reminder()

    async def open(self, machine: StreamPublisher, logged: Callable[[int], Awaitable[str | None]]) -> None:
        """Compare the witness with the cluster.

        Args:
            machine: has read the public ledger, and nothing of the release log.
            logged: the digest of a step's candidate on the release log, read to its end; None where it has none.
        Raises: WitnessError; BrokerError where another worker has written the witness meanwhile.
        """
        last, place = machine.last_step, self._store.place
        await self._patiently(lambda: prove(self._store), last + 1)
        self._found = await self._patiently(lambda: self._store.read(self._stream), last + 1)
        data = self._found.data
        mark = None if data is None else Mark.decode(data, stream=self._stream, place=place)
        ahead = mark is not None and mark.step > last
        must = judge(
            self._stream,
            mark,
            self._terms,
            last=last,
            last_chain=machine.chain,
            ledger=None if mark is None else machine.chain_of(mark.step),
            logged=await logged(mark.step) if mark is not None and ahead else None,
        )
        if must is not None and must != mark:
            told = "on --trust-ledger" if self._terms.configured else f"no [job] witness is configured: {UNCONFIGURED}"
            log.warning(
                "stream %s: its witness (%s) %s. What is public up to step %d is taken on the ledger's word; %s",
                self._stream,
                place,
                "is empty" if mark is None else f"ends at step {mark.step}",
                last,
                told,
            )  # fmt: skip
            await self._write(must)
        elif self._terms.trusted is not None and mark is not None:
            log.warning("stream %s: its witness has step %d, and --trust-ledger is not needed", self._stream, mark.step)
        self._mark = must

    async def note(self, step: int, chain: str) -> None:
        """Let the witness have a step that is about to be shown, and wait until it has it.

        Raises: BrokerError where another worker has written it since it was read.
        """
        must = advance(self._mark, stream=self._stream, step=step, chain=chain)
        if must is not None:
            await self._write(must)
            self._mark = must

    async def _write(self, must: Mark) -> None:
        data = must.encode()
        try:
            before = self._found
            self._found = await self._patiently(lambda: self._store.write(self._stream, data, before), must.step)
        except ChangedError:
            self._found = await self._patiently(lambda: self._store.read(self._stream), must.step)
            if self._found.data != data:  # else the answer to an earlier try was lost
                raise BrokerError(
                    f"stream {self._stream}: another worker has written its witness ({self._store.place}) since this "
                    "one read it"
                ) from None

    async def _patiently(self, work: Callable[[], Awaitable[T]], step: int) -> T:
        """Try until the place answers. Raises: ChangedError."""
        since: float | None = None
        while True:
            try:
                done = await within(work(), self._store.place)
            except WitnessAwayError as error:
                first, since = since is None, time.monotonic() if since is None else since
                if self._reminder.due(str(error)):
                    log.warning(
                        "stream %s: WAITING for its witness for %.0f s, and publishes nothing: %s",
                        self._stream, time.monotonic() - since, error,
                    )  # fmt: skip
                if first:
                    await self._tell(error, step)
                await asyncio.sleep(AGAIN_S)
                continue
            if since is not None:
                STOPPED.labels(self._stream, "publish").set(0)
                log.warning(
                    "stream %s: its witness answers again, after %.0f s", self._stream, time.monotonic() - since
                )
            return done

    async def _tell(self, error: WitnessAwayError, step: int) -> None:
        """Say it where people look; it stays until the step is public."""
        self._pulse.waits(f"waits for its witness: {error}")
        STOPPED.labels(self._stream, "publish").set(1)
        reason = f"waits for its witness, and goes on by itself: {what_happened(error)}"
        stop = Stop(self._stream, "publish", None, reason, what_to_do(error), int(time.time() * 1000), step)
        with contextlib.suppress(*stop_log.NOT_KEPT):
            await stop_log.record(self._config, [stop])
