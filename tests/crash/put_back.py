"""The cluster is put back to an earlier moment while a job runs on it, whole, as by a snapshot of its machine's disk.

For `tests.crash.chaos`: a copy of the broker's disk is taken at a random time. Once every stream has answered steps
whose events were not sent when it was taken, all processes are killed, the copy is put back, and the events that it
lacks are sent again. Nothing in that cluster says that those steps were answered; the witness alone does, and must stop
every stream. Then the newest disk is put back, with which nothing is wrong, and the job goes on.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
import time
from collections.abc import Mapping
from typing import Any

from agents.local.broker.embedded import EmbeddedBroker
from tests.crash.field import SOURCE_PARTITIONS, Field
from tests.crash.verify import Verdict, answered_again, collect
from tests.kafka.support import producing, records_of

FIRST_AFTER_KILLS = (1, 4)
COPY_AFTER_KILLS = (5, 25)
USE_AFTER_KILLS = (1, 6)
LOOK_EVERY_S = 3.0
STOPPED_AFTER_S = 180.0
LONGER_S = (0.0, 5.0)
WORDS = re.compile(
    r"stream (\S+)(?: \([^()]*\))?: "
    r"(?:its witness \(\S+\) says that step \d+ was answered, and the cluster knows its steps"
    r"|the (?:release log|public ledger) has another answer of step \d+ than the one that its witness)"
)


class Snapshots:
    """Copies of the broker's disk, one at a time, and what was seen of clusters that were put back to one.

    Attributes:
        put_back: how often. stops: how many streams the witness stopped then.
        verdict: steps that were answered twice.
    """

    def __init__(self, broker: EmbeddedBroker, field: Field, chance: random.Random) -> None:
        self._broker = broker
        self._field = field
        self._chance = chance
        self._copy, self._newest = field.folder / "copy", field.folder / "newest"
        self._sent = 0
        self._looked = 0.0
        self._at = chance.randint(*FIRST_AFTER_KILLS)
        self.put_back = 0
        self.stops = 0
        self.verdict = Verdict()

    @property
    def kept(self) -> bool:
        return self.verdict.kept and self.stops == self.put_back * len(self._field.config.streams)

    @property
    def waits(self) -> bool:
        """Whether there is a copy that was not put back."""
        return self._copy.exists()

    def take(self, kills: int) -> None:
        """Copy the disk of a broker that runs, if it is time to: of one moment, as its machine's snapshot would be."""
        if self.waits or kills < self._at:
            return
        self._broker.pause()
        try:
            shutil.copytree(self._broker.disk, self._copy)
        finally:
            self._broker.resume()
        self._sent = self._field.steps
        self._at = kills + self._chance.randint(*USE_AFTER_KILLS)

    async def due(self, kills: int, *, most: int) -> bool:
        """Whether the copy is to be put back now: every stream has answered a step that is not in it."""
        if not self.waits or kills < min(self._at, most) or time.monotonic() - self._looked < LOOK_EVERY_S:
            return False
        self._looked = time.monotonic()
        return min(await self._field.last_public()) > self._sent

    async def use(self, kills: int) -> None:
        """Put the copy back, look, and restore the newest disk. Nobody works, and nothing is sent, before and after."""
        field, broker = self._field, self._broker
        self.put_back += 1
        self._at = kills + self._chance.randint(*COPY_AFTER_KILLS)
        before, sent = await collect(field.config, field.source_partitions), await self._raw()
        broker.kill()
        broker.disk.rename(self._newest)
        self._copy.rename(broker.disk)
        self._lose_folders()
        await asyncio.to_thread(broker.start)
        await self._send_again(sent)
        stopped = await self._stopped()
        await asyncio.sleep(self._chance.uniform(*LONGER_S))
        for worker in field.workers.values():
            worker.kill()
        self.stops += len(stopped)
        self.verdict += answered_again(before, await collect(field.config, field.source_partitions))
        for name in before.keys() - stopped:
            self.verdict += Verdict(notes=(f"{name}: was put back, and no witness stopped it\n{field.logs()}",))
        broker.kill()
        shutil.rmtree(broker.disk)
        self._newest.rename(broker.disk)
        self._lose_folders()
        await asyncio.to_thread(broker.start)

    def _lose_folders(self) -> None:
        """Of each worker, or of none: a new pod, or the same machine."""
        for name in self._field.workers:
            if self._chance.random() < 0.5:
                for path in self._field.data_folder(name).glob("*"):  # the folder itself may be a mount
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    async def _raw(self) -> dict[tuple[str, int], list[Any]]:
        bootstrap = self._field.config.kafka.bootstrap
        return {
            (stream.source, partition): await records_of(bootstrap, stream.source, partition=partition)
            for stream in self._field.config.streams
            for partition in range(SOURCE_PARTITIONS)
        }

    async def _send_again(self, sent: Mapping[tuple[str, int], list[Any]]) -> None:
        there = await self._raw()
        async with producing(self._field.config.kafka.bootstrap) as producer:
            for (topic, partition), records in sent.items():
                for record in records[len(there[topic, partition]) :]:
                    await producer.send(
                        topic, record.value, key=record.key, partition=partition,
                        timestamp_ms=record.timestamp, headers=list(record.headers),
                    )  # fmt: skip
            await producer.flush()

    async def _stopped(self) -> set[str]:
        """Let workers run until the witness has stopped every stream, or long enough. Returns those that it has."""
        field = self._field
        begins = {name: worker.log.stat().st_size for name, worker in field.workers.items()}
        end = time.monotonic() + STOPPED_AFTER_S
        found: set[str] = set()
        last = field.steps - 1
        while len(found) < len(field.config.streams) and time.monotonic() < end:
            for name, worker in list(field.workers.items()):
                if worker.ended is not None:
                    field.start(name)
                found.update(WORDS.findall(worker.log.read_bytes()[begins[name] :].decode(errors="replace")))
            if min(await field.last_public()) >= last:
                break
            await asyncio.sleep(1.0)
        return found
