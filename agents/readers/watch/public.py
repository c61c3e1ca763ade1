"""The public view of the live page: what any consumer can see of a job's streams, and nothing else.

Nothing here can read anything but public topics: `tests/architecture/rules.py` says what it may import, and its reader
is given the names of public topics alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import orjson
from aiohttp import web
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from agents.kafka.clients import follower
from agents.kafka.topics import existing_topics
from agents.readers.consume.ledger import PublicRecordsError, StepRecords, Verdict, entry_of, verdict
from agents.readers.watch.routes import NO_STORE, Reader, Routes, json_response, whole_numbers
from agents.show.pictures import Picture
from schemas.config import Kafka, Stream
from schemas.errors import BrokerError, WireError
from schemas.releases import CHANNELS, GENESIS, STEP_LIMIT, Channel, PublicRecord, public_step
from schemas.steps import epoch_us
from schemas.topics import Topics

log = logging.getLogger(__name__)

MOST_ENTRIES = 10_000
"""Of the ledger that are kept for the page; older ones are counted."""
MOST_OPEN = 1_000
"""Steps beyond the ledger's last entry of which records are held. The job writes a step and its entry in one
transaction, and the ledger is read first: of a job there are one or two."""


@dataclass(slots=True)
class LedgerRow:
    """What is kept of an entry, and what the comparison with its records said; `assets/ledger.js` reads its fields."""

    step: int
    end: str
    added: int
    removed: int
    records: int
    spent: float
    gathered: bool
    digest: str
    chained: bool
    verdict: Verdict = "waiting"


class StreamSeen:
    """What has been seen of one stream: its picture, its ledger and whether that holds. Bounded in memory; no IO.

    Args:
        stream: the declaration, of which nothing is private. picture: of the engine's kind.
        read: of a value of a synthetic record its fields; raises WireError or ValueError.
    """

    def __init__(
        self, stream: Stream, picture: Picture, read: Callable[[bytes], dict[str, Any]] = orjson.loads
    ) -> None:
        self.stream, self.picture = stream, picture
        self._read = read
        self.positions: dict[str, int] = {}
        self.revision = 0
        self.read_at = 0.0
        self.unreadable = 0
        self._entries: deque[LedgerRow] = deque(maxlen=MOST_ENTRIES)
        self._waiting: dict[int, LedgerRow] = {}
        self._records: dict[int, StepRecords] = {}
        self._latest: Mapping[str, Any] = {}
        self._chain: str | None = None
        self._verdicts: Counter[str] = Counter()
        self._steps = 0
        self._broken: int | None = None
        self._twice: int | None = None
        self._settled = -1
        self._beyond: int | None = None
        self._newest: dict[Channel, int] = {"synthetic": -1, "measurements": -1}

    @property
    def step(self) -> int:
        """The last step of which everything was read; -1 before any."""
        return self._settled

    @property
    def open(self) -> int | None:
        """The last step that the ledger has and whose records may not all be read yet; None: all are."""
        return max(self._waiting, default=None)

    def take(self, channel: Channel, step: int | None, key: bytes | None, value: bytes | None) -> None:
        """Take in a committed record of a public topic, in the topic's order."""
        if channel == "ledger":
            self._on_ledger(value)
            return
        if step is None or not 0 <= step < STEP_LIMIT:
            self.unreadable += 1
            return
        if step <= self._settled or step < self._newest[channel]:
            # The step was whole without it. Steps are in order on a topic: one that comes behind a later step was not
            # written by the job, whatever is known of the ledger yet.
            self._beyond = step if self._beyond is None else self._beyond
        if step > self._settled:
            if step not in self._records and self._held_beyond(step):
                self.unreadable += 1
                return
            self._records.setdefault(step, StepRecords()).take(PublicRecord(channel, key or b"", value))
        self._newest[channel] = max(self._newest[channel], step)
        if channel == "synthetic":
            self._on_synthetic(step, key, value)

    def _held_beyond(self, step: int) -> bool:
        """Return whether this would be one step too many of which the ledger knows nothing."""
        last = int(self._latest.get("step", -1))
        return (
            step > last and len(self._records) >= MOST_OPEN and sum(each > last for each in self._records) >= MOST_OPEN
        )

    def _on_synthetic(self, step: int, key: bytes | None, value: bytes | None) -> None:
        try:
            name = (key or b"").decode()
            if value is None:
                self.picture.remove(step, name)
            else:
                self.picture.add(step, name, self._read(value))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, WireError):
            self.unreadable += 1

    def _on_ledger(self, value: bytes | None) -> None:
        try:
            entry, linked = entry_of(value or b"", self.stream.name)
        except PublicRecordsError:
            self.unreadable += 1
            return
        last = int(self._latest.get("step", -1))
        if entry.step <= last:
            # A second entry for a step that is the same word for word is a retry; any other is a second answer.
            known = next((each for each in self._entries if each.step == entry.step), None)
            if known is not None and known.digest != entry.digest:
                self._twice = entry.step
            return
        before = self._chain if self._chain is not None else GENESIS if entry.step == 0 else entry.previous_chain
        chained = linked and entry.previous_chain == before and (last < 0 or entry.step == last + 1)
        if not chained and self._broken is None:
            self._broken = entry.step
        self._chain, self._latest = entry.chain, entry.as_json()
        row = self._waiting[entry.step] = LedgerRow(
            entry.step, entry.end, entry.added, entry.removed, entry.synthetic_records, entry.epsilon_spent,
            entry.gathered, entry.digest, chained,
        )  # fmt: skip
        self._entries.append(row)
        self._steps += 1

    def settle(self, now: float, upto: int = -1) -> bool:
        """Compare the next steps with the ledger, as far as all of them was read. Returns whether there was one.

        Args:
            now: seconds since 1970.
            upto: everything that the topics hold of steps up to this one was read.
        """
        before = self._settled
        for step in sorted(self._waiting):
            entry, records = self._waiting[step], self._records.get(step) or StepRecords()
            found = verdict(records, digest=entry.digest, published=entry.added + entry.removed)
            if found != "verified" and step > upto and not all(newest > step for newest in self._newest.values()):
                break  # more of it may come
            del self._waiting[step]
            entry.verdict = found
            self._verdicts[found] += 1
            self.picture.end(step)
            self._settled = step
        if self._settled == before:
            return False
        for step in [step for step in self._records if step <= self._settled]:
            self._records.pop(step).close()
        self.read_at = now
        self.revision += 1
        return True

    def close(self) -> None:
        """Leave nothing open: no more records come."""
        for records in self._records.values():
            records.close()

    def summary(self) -> dict[str, Any]:
        """Return what the page shows of the stream, but for its picture and its ledger. JSON-able."""
        stream, latest = self.stream, self._latest
        guarantee = latest.get("guarantee", {})
        return {
            "stream": stream.name,
            "whole": stream.whole,
            "revision": self.revision,
            "engine": stream.engine,
            "mode": stream.mode,
            "kind": self.picture.kind,
            "step": self._settled,
            "until": latest.get("end"),
            "due": self._due(),
            "read_at": self.read_at or None,
            "records": latest.get("synthetic_records", 0),
            "gathered": latest.get("gathered"),
            "unit": stream.privacy.unit,
            "max_contributions": stream.privacy.max_contributions,
            "epsilon": latest.get("epsilon", float(stream.privacy.epsilon)),
            "epsilon_warning": stream.privacy.epsilon_warning,
            "epsilon_spent": latest.get("epsilon_spent", 0.0),
            "epsilon_per_us": latest.get("epsilon_per_us", stream.privacy.per_us),
            "renewal": latest.get("renewal"),
            "delta": guarantee.get("delta", stream.privacy.delta),
            "private": bool(guarantee.get("private", True)),
            "note": guarantee.get("note", ""),
            "mechanisms": [
                {name: each.get(name) for name in ("name", "distribution", "scale", "epsilon", "uses")}
                for each in guarantee.get("mechanisms", ())
            ],
            "notes": latest.get("notes", {}),
            "horizon": stream.horizon,
            "steps": self._steps,
            "entries": len(self._entries),
            "verdicts": dict(self._verdicts),
            "chain_broken_at": self._broken,
            "twice": self._twice,
            "beyond": self._beyond,
            "first": self._entries[0].step if self._entries else None,
            "unreadable": self.unreadable,
            "picture": dict(self.picture.shown()),
            "timezone": stream.time.timezone,
        }

    def _due(self) -> str | None:
        """Return when the next step is to be public by the wall clock; None where no clock says it."""
        time = self.stream.time
        if time.clock != "wall" or "end" not in self._latest:
            return None
        begin = datetime.fromisoformat(self._latest["end"])
        try:
            steps = time.steps_from(begin_us := epoch_us(begin))
            lasts_us = steps.begin(steps.index(begin_us) + 1) - begin_us
            later = timedelta(microseconds=lasts_us + self.stream.publish_delay_us) + time.grace
            return (begin + later).isoformat()
        except (ValueError, OverflowError):
            return None  # an end that no clock reaches

    def rows(self, after: int) -> list[list[Any]]:
        """Return the entries after a step, oldest first."""
        entries = (entry for entry in self._entries if entry.step > after)
        return [[getattr(entry, name) for name in LedgerRow.__slots__] for entry in entries]


AGAIN_S, MISSING_S, ASK_S = 1.0, 5.0, 5.0
BATCH = 2_000
"""Records between two turns of whoever else has something to do in this event loop."""


class PublicReader(Reader):
    """Reads public topics as any consumer does, as long as the page is served; goes on after the cluster was away."""

    def __init__(self, kafka: Kafka, streams: Sequence[StreamSeen]) -> None:
        self._kafka = kafka
        self._channels: dict[str, tuple[StreamSeen, Channel]] = {}
        for seen in streams:
            for topic, channel in zip(Topics.published(seen.stream.name), CHANNELS, strict=True):
                self._channels[topic] = (seen, channel)
        self._streams = tuple(streams)
        self._ids: dict[str, str] = {}
        self._missing: str | None = None
        super().__init__()

    @property
    def topics(self) -> list[str]:
        """All topics that it ever reads."""
        return sorted(self._channels)

    async def run(self) -> None:
        """Read for ever. Where it was ended it may run again: what has been seen is not its own to close."""
        while True:
            try:
                await self._follow()
            except (KafkaError, OSError, BrokerError) as error:
                log.info("the public topics cannot be read: %s", type(error).__name__)
                self._say("the cluster does not answer")
            await asyncio.sleep(AGAIN_S)

    def _say(self, problem: str | None) -> None:
        if problem != self.problem:
            self.problem = problem
            self.tell()

    async def _follow(self) -> None:
        partitions = await self._there()
        if not partitions:
            return
        positions = {each: self._channels[each.topic][0].positions.get(each.topic) for each in partitions}
        async with (
            follower(self._kafka, positions) as consumer,
            follower(self._kafka, {}, isolation="read_uncommitted") as everything,
        ):
            ends = await consumer.end_offsets(partitions)
            again = time.monotonic() + MISSING_S
            # Each ledger first: what then belongs to no entry is not of the job, and little of it is held.
            ledgers = [each for each in partitions if self._channels[each.topic][1] == "ledger"]
            held = [each for each in partitions if each not in ledgers]
            consumer.pause(*held)
            asked = quiet = time.monotonic()
            while len(partitions) == len(self._channels) or time.monotonic() < again:
                if time.monotonic() - asked > ASK_S:  # a consumer waits for a cluster that is away, and says nothing
                    async with asyncio.timeout(ASK_S):
                        await consumer.end_offsets(partitions)
                    asked = time.monotonic()
                batches = await consumer.getmany(timeout_ms=250, max_records=BATCH)
                for partition, records in batches.items():
                    self._take(partition.topic, records)
                quiet = time.monotonic() if batches else quiet
                read = [await consumer.position(each) >= ends[each] for each in ledgers]
                if held and (all(read) or time.monotonic() - quiet > ASK_S):
                    consumer.resume(*held)
                    held = []
                async with asyncio.timeout(3 * ASK_S):
                    await self._settle(consumer, everything, partitions)
                    left = [max(0, ends[each] - await consumer.position(each)) for each in partitions]
                self.behind = sum(left)
                self._say(self._missing)
                await asyncio.sleep(0)

    def _take(self, topic: str, records: Sequence[Any]) -> None:
        seen, channel = self._channels[topic]
        for record in records:
            try:
                seen.take(channel, public_step(record.headers), record.key, record.value)
            finally:  # a record that ends the reader must not end it again, once it begins anew
                seen.positions[topic] = record.offset + 1

    async def _settle(self, consumer: Any, everything: Any, partitions: Sequence[TopicPartition]) -> None:
        """Settle steps, also those that nothing follows.

        These are whole once everything was read that was in the topics after their entry was seen, committed or not: a
        step is one transaction, but its partitions are not shown at one time.
        """
        settled = [seen.settle(time.time()) for seen in self._streams]
        waiting = {seen.stream.name: step for seen in self._streams if (step := seen.open) is not None}
        if waiting:
            ends = await everything.end_offsets(partitions)
            behind = {
                self._channels[partition.topic][0].stream.name
                for partition in partitions
                if await consumer.position(partition) < ends[partition]
            }
            settled += [
                seen.settle(time.time(), waiting[seen.stream.name])
                for seen in self._streams
                if seen.stream.name in waiting.keys() - behind
            ]
        if any(settled):
            self.tell()

    async def _there(self) -> list[TopicPartition]:
        """Return the topics of streams that have them all. Asking for one that does not exist could create it."""
        found = await existing_topics(self._kafka, self.topics)
        for name, each in found.items():
            if self._ids.setdefault(name, each.id) != each.id:
                self._say(f"topic {name} was deleted and made anew. Start privstream watch again to read it")
                return []
        missing = [name for name in self.topics if name not in found]
        lacking = {self._channels[name][0].stream.name for name in missing}
        self._missing = f"topic {missing[0]} does not exist yet" if missing else None
        if missing:
            self._say(self._missing)
        return [
            TopicPartition(topic, 0) for topic, (seen, _) in self._channels.items() if seen.stream.name not in lacking
        ]


MOST_PICTURES = 32
"""Large ones that are being sent at a time: each keeps its bytes until its page has read them."""
LARGE, PIECE = 1 << 18, 1 << 16
"""Bytes from which on a picture is sent in pieces, and of a piece."""
SENT_S = 120.0
"""After which a picture that is not read is given up."""
ABOUT = ("stream", "engine", "mode", "kind")


class PublicRoutes(Routes[StreamSeen]):
    """All handlers under `/public`. They know what has been seen, and no more."""

    _sending = 0

    def routes(self) -> list[web.RouteDef]:
        """Return them with their paths."""
        return [
            web.get("/public/streams", self._about),
            web.get("/public/events", self.events),
            web.get("/public/streams/{stream}/picture", self._picture),
            web.get("/public/streams/{stream}/ledger", self.rows),
        ]

    async def _about(self, _: web.Request) -> web.Response:
        about = [
            {**{name: summary[name] for name in ABOUT}, "picture": dict(seen.picture.about()), "summary": summary}
            for seen in self.streams.values()
            for summary in [seen.summary()]
        ]
        return json_response({"boot": self.boot, "streams": about})

    async def _picture(self, request: web.Request) -> web.StreamResponse:
        picture, query = self.stream(request).picture, whole_numbers(request)
        body = picture.body(query)
        kind = "application/octet-stream" if picture.binary and "step" not in query else "application/json"
        if len(body) < LARGE or request.method == "HEAD":
            return web.Response(body=body, content_type=kind, headers=NO_STORE)
        if self._sending >= MOST_PICTURES:
            raise web.HTTPServiceUnavailable(text=f"{MOST_PICTURES} pictures are being sent; try again later\n")
        self._sending += 1
        try:
            return await _in_pieces(request, body, kind)
        finally:
            self._sending -= 1


async def _in_pieces(request: web.Request, body: bytes, kind: str) -> web.StreamResponse:
    """Send no more than the page reads: a whole body is copied for each page that does not read it."""
    response = web.StreamResponse(headers={**NO_STORE, "Content-Type": kind})
    response.content_length = len(body)
    view = memoryview(body)
    try:
        async with asyncio.timeout(SENT_S):
            await response.prepare(request)
            for at in range(0, len(body), PIECE):
                await response.write(view[at : at + PIECE])
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
    return response
