"""Before rows are written: whether the stream was started with what this machine is about to replay by.

Ticks stand where steps begin by the configuration, the version and the time zone database of this machine, and rows
where users are by its partitioner. Workers go by those with which the stream was started; rows written by others would
be late, in another step or on another partition, and nobody would be told.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agents.kafka.fingerprint import fingerprint_now, stored_fingerprints
from agents.kafka.topics import admin_client, topic_identities
from agents.protocol.fingerprint import OF_WORKERS
from schemas.errors import FingerprintError
from schemas.topics import Topics

if TYPE_CHECKING:
    from schemas.config import Config, Stream

MEANWHILE_S = 60.0


class StartCheck:
    """Compares streams with their fingerprints, in all that does not depend on what only a worker has.

    A stream that was never started has none: there is nothing to compare with, until a worker starts it.

    Attributes:
        unstarted: streams of which that was so when it looked last.
    """

    def __init__(self, config: Config, streams: Sequence[Stream]) -> None:
        self._config, self._streams = config, tuple(streams)
        self.unstarted = tuple(stream.name for stream in self._streams)
        self._looked = 0.0

    async def look(self) -> None:
        """Raises: FingerprintError with every field and its fix; BrokerError; WireError."""
        topic = Topics(self._config.job.name, self._config.kafka.partitions).fingerprints
        async with admin_client(self._config.kafka) as admin:
            found = await topic_identities(admin, sorted({topic, *(stream.source for stream in self._streams)}))
        stored = await stored_fingerprints(self._config) if topic in found else {}
        for stream in self._streams:
            if (known := stored.get(stream.name)) is not None and stream.source in found:
                now = fingerprint_now(stream, self._config, found[stream.source], None, insecure=False, stored=known)
                known.check(now, apart_from=OF_WORKERS)
        self.unstarted = tuple(stream.name for stream in self._streams if stream.name not in stored)
        self._looked = time.monotonic()

    async def again(self) -> None:
        """Where a worker may have started one of them since. Raises: as `look`."""
        if not self.unstarted:
            return
        try:
            await self.look()
        except FingerprintError as error:
            raise FingerprintError(
                f"{error}\n  A worker has started it while this replay was under way, and what was written does not "
                "fit it. Fix: replay into a new topic, for a new stream under another name."
            ) from None

    async def meanwhile(self) -> None:
        """The same, now and then. Raises: as `look`."""
        if time.monotonic() - self._looked > MEANWHILE_S:
            await self.again()
