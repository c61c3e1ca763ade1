"""The public topics of a stream, read as any consumer reads them: committed records only, to where they ended.

Asks no private topic, joins no group, commits nothing. Measurements that were cut for Kafka, as
`agents.protocol.release.public_records.measurement_records` says, are put together again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

import orjson

from agents.kafka.clients import LogReader, log_reader
from agents.kafka.topics import existing_topics
from agents.readers.consume.ledger import FoldedTable, Ledger, PublicRecordsError
from schemas.config.server import Kafka
from schemas.releases import Channel, PublicRecord, public_step
from schemas.topics import Topics


def measurements_of(records: Iterable[PublicRecord]) -> list[dict[str, Any]]:
    """Return the measurements of one step, in the order of their publication; a part that came twice is taken once."""
    found: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for record in records:
        told = orjson.loads(record.value or b"{}")
        if "parts" not in told:
            found.append(told)
            continue
        if told["part"] == len(waiting):
            waiting.append(told)
        if len(waiting) == told["parts"]:
            found.append(together(waiting))
            waiting = []
    return found


def together(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one measurement of all its parts, in order: each list that was cut is its runs one behind the other.

    >>> cut = [["counts"]]
    >>> together([{"of": ["a"], "counts": [1, 2], "cut": cut}, {"of": ["a"], "counts": [3], "cut": cut}])
    {'of': ['a'], 'counts': [1, 2, 3]}
    """
    whole = {name: value for name, value in parts[0].items() if name not in ("part", "parts", "cut")}
    for path in parts[0]["cut"]:
        run = _at(whole, path)
        for part in parts[1:]:
            run += _at(part, path)
    return whole


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value[name]
    return value


ReadingProgress = Callable[[int, int], None]
"""Told how many records are read, of how many."""


async def read_ledger(kafka: Kafka, stream: str) -> Ledger:
    """Return every entry there is, checked as a chain.

    Raises: BrokerError, also where a public topic of the stream is missing; PublicRecordsError.
    """
    await existing_topics(kafka, Topics.published(stream), fix="privstream topics CONFIG --create, and privstream run")
    ledger = Ledger(stream)
    async with log_reader(kafka, Topics.ledger(stream), 0) as log:
        async for records in log.read():
            for record in records:
                ledger.take(record.value)
    return ledger


async def read_steps(
    kafka: Kafka,
    ledger: Ledger,
    *,
    until: int,
    read: Callable[[bytes], Mapping[str, Any]] = orjson.loads,
    measured: bool = False,
    progress: ReadingProgress = lambda done, total: None,
) -> FoldedTable:
    """Fold the steps up to `until`, the number of a step in the ledger.

    Args:
        read: as in `FoldedTable`; for who looks at synthetic records.
        measured: keep the measurements.
    Raises: BrokerError; PublicRecordsError where records are not those of the ledger.
    """
    table = FoldedTable(ledger.stream, read)
    async with AsyncExitStack() as stack:
        channels: dict[Channel, str] = {
            "measurements": Topics.measurements(ledger.stream),
            "synthetic": Topics.synthetic(ledger.stream),
        }
        logs = {name: await stack.enter_async_context(log_reader(kafka, topic, 0)) for name, topic in channels.items()}
        total = sum(log.end - log.beginning for log in logs.values())
        steps = {name: _Steps(log, name, until) for name, log in logs.items()}
        for entry in ledger.entries[: until + 1]:
            found = {name: await each.of(entry.step) for name, each in steps.items()}
            progress(sum(each.read for each in steps.values()), total)
            table.take(entry, found["synthetic"], found["measurements"])
            if measured:
                table.measured += [(entry.step, each) for each in measurements_of(found["measurements"])]
    return table


class _Steps:
    """The records of one topic, step by step, of which `read` were read so far."""

    def __init__(self, log: LogReader, channel: Channel, until: int) -> None:
        self._topic, self._channel = log.topic.topic, channel
        self._records = self._read(log, until)
        self.read = 0
        self._next: tuple[int, PublicRecord] | None = None

    async def _read(self, log: LogReader, until: int) -> AsyncIterator[tuple[int, PublicRecord]]:
        async for batch in log.read():
            for record in batch:
                step = self._step_of(record)
                if step > until:
                    return
                yield step, PublicRecord(self._channel, record.key, record.value)
            self.read += len(batch)

    def _step_of(self, record: Any) -> int:
        step = public_step(record.headers)
        if step is None or record.key is None:
            raise PublicRecordsError(
                f"topic {self._topic} holds a record at offset {record.offset} that the job did not write: it names no "
                "step. Fix: only the job may write to its public topics; look at who else can (privstream topics "
                "CONFIG --acls)."
            )
        return step

    async def of(self, step: int) -> list[PublicRecord]:
        """Return those of a step; steps are asked for in order. Raises: PublicRecordsError where the topic is not."""
        found: list[PublicRecord] = []
        self._next = self._next or await anext(self._records, None)
        while self._next is not None and self._next[0] <= step:
            if self._next[0] < step:
                raise PublicRecordsError(
                    f"topic {self._topic} holds records of step {self._next[0]} behind those of step {step}. Fix: do "
                    "not use it; find out who else may write to it (privstream topics CONFIG --acls)."
                )
            found.append(self._next[1])
            self._next = await anext(self._records, None)
        return found
