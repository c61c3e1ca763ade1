"""Waiting for schemas: what holds a source partition back until the registry has said what a record is written with.

A partition whose next record needs a schema that is not known is paused and set back to that record. The schema is
asked for until the registry answers; then reading goes on. Other partitions are read meanwhile, ticks keep the places
that they were given, and nothing is passed over: an outage of the registry delays steps, and changes none.

That the registry has no such schema holds for records that were fetched before it was asked, and for no later one:
somebody may have made the id up, and whoever gets it next would lose their records to that one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from agents.kafka.lifecycle.vitals import Vitals
from agents.kafka.schema_registry import RegistryClient, RegistryError
from agents.protocol.formats.contract import SchemaBook, SchemaRef
from agents.worker.ingest.counters import IngestCounters

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    from agents.worker.ingest.partition_task import SourceTask
    from schemas.config.server import Registry

log = logging.getLogger(__name__)

FIRST_S, MOST_S = 0.5, 15.0
SAY_S = 60.0
NAMED = 3


class SchemaWait:
    """Holds back the partitions of one worker that wait for schemas."""

    def __init__(self, registry: Registry | None, book: SchemaBook, counters: IngestCounters, vitals: Vitals) -> None:
        self._registry, self._book, self._counters = registry, book, counters
        self._wanted: set[SchemaRef] = set()
        self._under_way: frozenset[SchemaRef] = frozenset()
        self._again: set[SchemaRef] = set()  # of those under way, which the registry may have been asked for too early
        self._asking: asyncio.Task[None] | None = None
        self._pulse = None if registry is None else vitals.part("schema registry")
        if self._pulse is not None:
            self._pulse.ready = True
            self._pulse.waits("for a schema that is not known yet")

    def hold(self, consumer: AIOKafkaConsumer, task: SourceTask) -> bool:
        """Read nothing where a task cannot go on until its schemas are known. Return whether it is held."""
        if not task.wanted or task.closed:
            return False
        consumer.pause(task.source)
        consumer.seek(task.source, task.position)
        self._book.ask_again(task.wanted)  # an earlier answer was about earlier records
        self._wanted |= task.wanted
        self._again |= task.wanted & self._under_way
        self._see_to_it()
        return True

    def go_on(self, consumer: AIOKafkaConsumer, tasks: Mapping[TopicPartition, SourceTask]) -> None:
        """Read on where all that was waited for was answered. Raises: what ended the asking.

        An answer that the book has forgotten since is one: the task, set back to its record, wants it again and is held
        again. Nothing is read without its schema.
        """
        for source, task in tasks.items():
            answered = all(ref not in self._wanted or ref in self._book for ref in task.wanted)
            answered &= task.wanted.isdisjoint(self._again)
            if task.wanted and answered and source in consumer.assignment():
                task.absent |= frozenset(filter(self._book.lacks, task.wanted))
                task.wanted = frozenset()
                consumer.resume(source)
        self._see_to_it()

    def _see_to_it(self) -> None:
        """Ask while anything is wanted, also for what was first wanted when the asking was about to end.

        Raises: what ended it.
        """
        if self._asking is not None and self._asking.done():
            self._asking.result()
        if self._wanted and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._ask())

    def held(self, tasks: Mapping[TopicPartition, SourceTask]) -> list[tuple[str, int]]:
        """Return the partitions that wait."""
        return [(source.topic, source.partition) for source, task in tasks.items() if task.wanted]

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    async def _ask(self) -> None:
        assert self._registry is not None, "the configuration sees to it"
        assert self._pulse is not None
        begun, said, pause_s = time.monotonic(), -SAY_S, FIRST_S
        async with RegistryClient(self._registry) as client:
            while self._wanted:
                self._counters.schemas_awaited = len(self._wanted)
                self._pulse.waits(f"waits for {_named(self._wanted)} of the registry")
                self._under_way = asked = frozenset(self._wanted)
                try:
                    await client.learn(self._book, asked)
                    self._wanted -= asked - self._again
                    pause_s = FIRST_S
                except RegistryError as error:
                    self._pulse.ready = False
                    if time.monotonic() - said >= SAY_S:
                        said = time.monotonic()
                        log.warning(
                            "ingest waits for %s of the schema registry, since %.0f s: %s. Nothing is lost or passed "
                            "over; steps are late. What to do: bring the registry back, or correct [kafka.registry] "
                            '(docs/operations.md, "The schema registry is away")',
                            _named(self._wanted), time.monotonic() - begun, error,
                        )  # fmt: skip
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, MOST_S)
                self._book.ask_again(self._again)
                self._under_way, self._again = frozenset(), set()
                self._wanted = {ref for ref in self._wanted if ref not in self._book}
        self._counters.schemas_awaited = 0
        self._pulse.ready = True
        self._pulse.waits("for a schema that is not known yet")
        if said >= 0:
            log.info("the schema registry answers again after %.0f s; ingest goes on", time.monotonic() - begun)


def _named(refs: Iterable[SchemaRef]) -> str:
    """Name the first few schemas.

    >>> _named({SchemaRef(12)})
    'schema 12'
    """
    names = sorted(str(ref) for ref in refs)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
