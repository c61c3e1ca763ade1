"""What the tests of the ingest share: topics, a job in this process or in one that can be killed, and what came out."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic

from agents.kafka.clients import read_to_end
from agents.protocol.ingest.dead_letters import DeadLetter
from agents.protocol.partitioner import partitions_of
from agents.protocol.userhash import IdBytes
from agents.worker.ingest.partition_task import IngestOptions
from agents.worker.ingest.service import IngestService
from agents.worker.ingest.specs import source_specs
from schemas.blocks import Block
from schemas.config import Config
from schemas.config.load import config_from_mapping
from schemas.events import TICK_HEADER, encode_tick
from schemas.topics import Topics
from tests.kafka.support import WAIT_AT_MOST_S, create, fresh_name, producing, records_of

START_S = 1_577_836_800  # 2020-01-01T00:00:00Z, the start of every stream here
STEP_S = 60
BOUND = 3
OPTIONS = IngestOptions(flush_s=0.2, poll_records=500, slice_records=200)


@dataclass
class Bench:
    """One job over one source topic on a real broker."""

    bootstrap: str
    folder: Path
    partitions: int = 2
    streams: Sequence[Mapping[str, Any]] = ()
    job: str = field(default_factory=lambda: fresh_name("ingest"))
    source: str = ""
    registry: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.source = self.source or f"raw.{self.job}"
        self.folder.mkdir(exist_ok=True, parents=True)
        key = self.folder / "user-key"
        key.write_bytes(b"sixteen secret bytes or more")
        if not self.streams:
            self.streams = [self.stream("s")]

    def stream(self, name: str, **overrides: Any) -> dict[str, Any]:
        """A stream over the unit square, steps of a minute; `privacy`, `time` and `domain` are merged."""
        table: dict[str, Any] = {
            "name": f"{self.job}-{name}",
            "engine": "spatial",
            "source": self.source,
            "privacy": {
                "epsilon": 1.0,
                "unit": "user",
                "user": "user",
                "max_contributions": 3,
                "user_key_file": str(self.folder / "user-key"),
            },
            "time": {"field": "at", "format": "s", "start": "2020-01-01T00:00:00", "step": "60s", "clock": "replay"},
            "domain": {"kind": "box", "x": "x", "y": "y", "bounds": [0.0, 0.0, 1.0, 1.0]},
            "options": {"depth": 8, "initial_steps": 2},
        }
        for key, value in overrides.items():
            table[key] = {**table[key], **value} if isinstance(value, dict) else value
        return table

    @property
    def config(self) -> Config:
        return config_from_mapping(
            {
                "job": {"name": self.job, "data_dir": str(self.folder)},
                "kafka": {
                    "bootstrap": self.bootstrap,
                    "partitions": 2,
                    "session_timeout_s": 6,
                    **({"registry": dict(self.registry)} if self.registry else {}),
                },
                "streams": [dict(stream) for stream in self.streams],
            }
        )

    @property
    def topics(self) -> Topics:
        return Topics(self.job, 2)

    async def create(self, **source_settings: str) -> None:
        await self.create_private()
        await self.create_sources(**source_settings)

    async def create_private(self) -> None:
        topics = self.topics.private()
        await create(
            self.bootstrap,
            *(NewTopic(each.name, each.partitions or 1, 1, topic_configs=dict(each.settings)) for each in topics),
        )

    async def create_sources(self, **settings: str) -> None:
        audits = {stream.audit for stream in self.config.streams if stream.audit}
        settings = {"retention.ms": "-1", **settings}  # events of 2020 are older than the default
        names = {self.source, *audits}
        await create(self.bootstrap, *(NewTopic(name, self.partitions, 1, topic_configs=settings) for name in names))

    def specs(self) -> dict[str, Any]:
        each = dict.fromkeys((stream.name for stream in self.config.streams), self.partitions)
        return source_specs(
            self.config, source_partitions=each, audit_partitions=each, topic_partitions={self.source: self.partitions}
        )

    @asynccontextmanager
    async def running(
        self, *, options: IngestOptions = OPTIONS, now_us: Callable[[], int] | None = None, **more: Any
    ) -> AsyncIterator[IngestService]:
        """The service in this process. Its errors are raised on leaving."""
        clock: dict[str, Any] = {} if now_us is None else {"now_us": now_us}
        service = IngestService(self.config, self.specs(), options=options, **clock, **more)
        await service.start()
        try:
            yield service
        finally:
            await service.stop()
            if service.crash_reason is not None:
                raise service.crash_reason

    async def send(self, records: Iterable[Mapping[str, Any] | bytes | None], **settings: Any) -> None:
        """Events as JSON to their users' partitions, bytes and None to partition 0."""
        async with producing(self.bootstrap, **settings) as producer:
            for record in records:
                if isinstance(record, Mapping):
                    await producer.send(self.source, json.dumps(record).encode(), partition=self.home(record["user"]))
                else:
                    await producer.send(self.source, record, partition=0, key=b"k")

    async def tick(self, step: int, *, topic: str | None = None) -> None:
        async with producing(self.bootstrap) as producer:
            await self.send_ticks(producer, step, topic=topic)

    async def send_ticks(self, producer: AIOKafkaProducer, step: int, *, topic: str | None = None) -> None:
        for partition in range(self.partitions):
            header = (TICK_HEADER, encode_tick(step, row=0, source="test"))
            await producer.send(topic or self.source, b"", partition=partition, headers=[header])

    def home(self, user: Any) -> int:
        ids = IdBytes.from_ids([user])
        return int(partitions_of(ids, partitioner="murmur2", partitions=self.partitions)[0])

    async def result(self, stream: str = "s", *, truth: bool = False) -> Result:
        """Everything committed for a stream, after checking that offsets are covered without gap or overlap."""
        result = Result()
        expected: dict[int, int] = defaultdict(int)
        topic = self.topics.held_out if truth else self.topics.blocks
        for partition in range(2):
            for record in await records_of(self.bootstrap, topic, partition=partition):
                block = Block.decode(record.value)
                if block.stream != f"{self.job}-{stream}":
                    continue
                assert block.lo == expected[block.partition], "a gap or an overlap of source offsets"
                assert block.tick >= result.ticks[block.partition]
                assert not any(step <= result.ticks[block.partition] for step in block.steps), "a closed step reopened"
                expected[block.partition] = block.hi
                result.ticks[block.partition] = block.tick
                result.add(block)
        result.next_offsets = dict(expected)
        return result

    async def letters(self) -> list[DeadLetter]:
        # Unlike `records_of` this waits until readers can see what is committed.
        records = await read_to_end(self.config.kafka, self.topics.dead_letters, 0)
        return [DeadLetter.decode(record.value) for record in records]

    async def until_ticked(
        self, step: int, *, timeout_s: float = WAIT_AT_MOST_S, stream: str = "s", truth: bool = False
    ) -> Result:
        """Wait until a step is closed on every source partition."""
        end = time.monotonic() + timeout_s
        while True:
            result = await self.result(stream, truth=truth)
            if all(result.ticks[partition] >= step for partition in range(self.partitions)):
                return result
            assert time.monotonic() < end, f"step {step} was not closed in time: {dict(result.ticks)}"
            await asyncio.sleep(0.2)


@dataclass
class Result:
    blocks: int = 0
    ticks: dict[int, int] = field(default_factory=lambda: defaultdict(lambda: -1))
    next_offsets: dict[int, int] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    steps: dict[int, Counter[tuple[int, ...]]] = field(default_factory=lambda: defaultdict(Counter))
    charges: Counter[tuple[int, ...]] = field(default_factory=Counter)

    def add(self, block: Block) -> None:
        self.blocks += 1
        self.reasons.update(block.counts)
        for step, folded in block.steps.items():
            self.steps[step].update(dict(zip(map(tuple, folded.keys.tolist()), folded.counts.tolist(), strict=True)))
        self.charges.update(
            Counter({})
            if len(block.users) == 0
            else _summed(zip(map(tuple, block.users.tolist()), block.increments.tolist(), strict=True))
        )

    @property
    def events(self) -> dict[int, int]:
        """Step -> accepted events."""
        return {step: sum(cells.values()) for step, cells in self.steps.items()}


def _summed(pairs: Iterable[tuple[tuple[int, ...], int]]) -> Counter[tuple[int, ...]]:
    total: Counter[tuple[int, ...]] = Counter()
    for key, count in pairs:
        total[key] += count
    return total


def event(user: Any, step: float, x: float = 0.5, y: float = 0.5, **more: Any) -> dict[str, Any]:
    """An event in the middle of a step."""
    return {"user": user, "at": START_S + (step + 0.5) * STEP_S, "x": x, "y": y, **more}


def crowd(step: int, *, users: int = 40, seed: int = 0) -> list[dict[str, Any]]:
    """Events of one step; every user takes part in many steps, so that bounds fill up across crashes."""
    random_ = random.Random(f"{seed}-{step}")
    return [event(f"u{random_.randrange(users)}", step, random_.random(), random_.random()) for _ in range(60)]


def expected_steps(events: list[Mapping[str, Any]]) -> dict[int, int]:
    """Accepted events by step, for events sent in the order of their steps: the bound taken by hand."""
    used: Counter[Any] = Counter()
    steps: Counter[int] = Counter()
    for each in events:
        used[each["user"]] += 1
        if used[each["user"]] <= BOUND:
            steps[int((each["at"] - START_S) // STEP_S)] += 1
    return dict(steps)


def check(result: Result, events: list[Mapping[str, Any]]) -> None:
    assert result.events == expected_steps(events)
    assert max(result.charges.values()) <= BOUND
    assert sum(result.charges.values()) == sum(result.events.values())
    assert sum(result.reasons.values()) == len(events)
