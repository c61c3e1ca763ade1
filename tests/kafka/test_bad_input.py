"""Whatever producers send: each bad record is counted by its reason and dead-lettered, and the rest is unaffected."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from agents.cli.dead_letters import _reason, _tell
from agents.kafka.batches import RecordBatch
from agents.kafka.clients import close_client, fenced_producer
from agents.kafka.topics import create_topics
from agents.readers.operator.dead_letters import dead_letters
from agents.worker.ingest.partition_task import IngestOptions
from schemas.errors import PrivstreamError
from schemas.events import Reason
from schemas.releases import Frames, PublicRecord, frame_records
from tests.kafka.ingest_support import START_S, Bench, event
from tests.kafka.support import producing, records_of, until

HUGE = 1 << 20


def raw(**changes: Any) -> bytes:
    return json.dumps({**event("ann", 0, action="insert"), **changes}).encode()


def without(name: str) -> bytes:
    return json.dumps({key: value for key, value in json.loads(raw()).items() if key != name}).encode()


NO_USERS: tuple[Any, ...] = ("", "x" * 257, "a\0b", True, 1.5, None, [], {})
# All on partition 0, which is ann's home in this test.
BAD: list[tuple[bytes | None, Reason]] = [
    (b"not json", Reason.NOT_JSON),
    (b"\xff\xfe\x00", Reason.NOT_JSON),
    (raw() + raw(), Reason.NOT_JSON),
    (b"[" * 5_000, Reason.NOT_JSON),
    (raw(x=float("nan")), Reason.NOT_FINITE),
    (raw(y=float("-inf")), Reason.NOT_FINITE),
    (raw().replace(b"0.5", b"1e999"), Reason.NOT_FINITE),
    *((without(name), Reason.MISSING_FIELD) for name in ("user", "at", "x", "y", "action")),
    (b"{}", Reason.MISSING_FIELD),
    (b"[]", Reason.WRONG_TYPE),
    (raw(x="half"), Reason.WRONG_TYPE),
    (raw(y=None), Reason.WRONG_TYPE),
    (raw(at=[]), Reason.WRONG_TYPE),
    (raw(action=1.5), Reason.WRONG_TYPE),
    (None, Reason.EMPTY),
    (b"", Reason.EMPTY),
    (raw(padding="x" * HUGE), Reason.TOO_LARGE),
    *((raw(user=user), Reason.BAD_USER) for user in NO_USERS),
    (raw(at="NaN"), Reason.BAD_TIME),
    (raw(at=1e300), Reason.BAD_TIME),
    (raw(at=-(10**15)), Reason.BAD_TIME),
    (raw(at=START_S - 1), Reason.BEFORE_START),
    (raw(at=-5_000_000_000), Reason.BEFORE_START),
    (raw(at=START_S + 10**9), Reason.TOO_FAR_AHEAD),
    (raw(x=1.0), Reason.OUTSIDE_DOMAIN),
    (raw(x=-0.001), Reason.OUTSIDE_DOMAIN),
    (raw(y=1e308), Reason.OUTSIDE_DOMAIN),
    (raw(action="upsert"), Reason.BAD_OPERATION),
]


async def test_each_bad_record_has_its_reason_and_harms_no_other(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path)
    bench.streams = [
        bench.stream("s", domain={"op": "action"}, privacy={"max_contributions": 200}, time={"clock": "replay"})
    ]
    home = bench.home("ann")
    await bench.create(**{"max.message.bytes": str(4 << 20)})
    expected: list[tuple[int, int, Reason]] = []
    async with producing(bootstrap, max_request_size=4 << 20) as producer:
        # Each bad record between two good ones: whoever is shifted or lost by it would be missed.
        for value, reason in BAD:
            await producer.send_and_wait(bench.source, raw(), partition=home)
            metadata = await producer.send_and_wait(bench.source, value, key=b"k", partition=home)
            expected.append((metadata.partition, metadata.offset, reason))
        await producer.send_and_wait(bench.source, raw(action="delete", x=0.9), partition=home)  # never inserted
        metadata = await producer.send_and_wait(bench.source, raw(), partition=1 - home)
        expected.append((metadata.partition, metadata.offset, Reason.WRONG_PARTITION))
        bad_tick = [("privstream-tick", b"nonsense")]
        metadata = await producer.send_and_wait(bench.source, b"", partition=home, headers=bad_tick)
        expected.append((metadata.partition, metadata.offset, Reason.BAD_TICK))
        await bench.send_ticks(producer, 0)
    async with bench.running():
        result = await bench.until_ticked(0)
    good = len(BAD) + 1
    assert result.events == {0: good}
    assert len(result.steps[0]) == 2, "one cell of inserts, one of the delete"
    counts = {"ACCEPTED": good}
    for _, _, reason in expected:
        counts[reason.name] = counts.get(reason.name, 0) + 1
    counts[Reason.PLACED_BY_CRC32.name] = 1  # beside WRONG_PARTITION: of two partitions, crc32 of ann names the other
    assert result.reasons == counts
    letters = await bench.letters()
    assert sorted((letter.partition, letter.offset, letter.reason) for letter in letters) == sorted(expected)
    assert {letter.topic for letter in letters} == {bench.source}
    for letter, record in zip(letters, await records_of(bootstrap, bench.topics.dead_letters), strict=True):
        assert json.loads(letter.encode()).keys() == {
            "field", "offset", "partition", "reason", "stream", "topic", "version",
        }, "where and why, and nothing else"  # fmt: skip
        assert dict(record.headers) == {
            "__streams.errors.exception": letter.reason.name.encode(),
            "__streams.errors.topic": bench.source.encode(),
            "__streams.errors.partition": b"%d" % letter.partition,
            "__streams.errors.offset": b"%d" % letter.offset,
        }


async def send_batch(bench: Bench, batch: Any) -> None:
    """As it is; such a batch is of a transaction."""
    producer = await fenced_producer(bench.config.kafka, bench.job)
    await producer.begin_transaction()
    await (await producer.send_batch(batch, bench.source, partition=0))
    await producer.commit_transaction()
    await close_client(producer)


class Packed:
    """Three events in gzip, with something behind it; aiokafka's sender asks this of a batch."""

    def record_count(self) -> int:
        return 3

    def close(self) -> None: ...

    def closed(self) -> bool:
        return True

    def _set_producer_state(self, *state: int) -> None:
        self._state = state

    def _build(self) -> bytearray:
        builder = DefaultRecordBatchBuilder(2, 1, 1, *self._state, 1 << 20)
        for row in range(3):
            builder.append(row, timestamp=START_S * 1000, key=None, value=raw(), headers=[])
        data: bytearray = builder.build() + b"not compressed"
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        data[17:21] = calc_crc32c(memoryview(data)[21:]).to_bytes(4, "big")
        return data


async def test_a_batch_that_cannot_be_unpacked_ends_no_worker(bootstrap: str, tmp_path: Path) -> None:
    """A broker takes it, since it unpacks no more than so many records."""
    bench = Bench(bootstrap, tmp_path, partitions=1)
    await bench.create()
    await send_batch(bench, Packed())
    await bench.send([event("bob", 0)])
    async with bench.running() as service:
        await until(bench.result, lambda found: sum(found.reasons.values()) >= 4 or service.crash_reason is not None)
    assert (await bench.result()).reasons == {"ACCEPTED": 1, "NOT_JSON": 3}


class Latin(str):
    """The name of a header, written as a program in C does: brokers do not look at it."""

    def encode(self, *_: Any) -> bytes:
        return super().encode("latin-1")


@pytest.mark.parametrize("partitioner", ["murmur2", "any"])
async def test_the_name_of_a_header_in_another_encoding_ends_no_worker(
    bootstrap: str, tmp_path: Path, partitioner: str
) -> None:
    bench = Bench(bootstrap, tmp_path, partitions=1)
    bench.streams = [bench.stream("s", partitioner=partitioner)]
    await create_topics(bench.config, source_partitions=1)
    batch = RecordBatch()
    records = Frames.of(frame_records(PublicRecord("synthetic", b"k", value) for value in (raw(), b"no JSON")))
    assert batch.extend(records, time_ms=START_S * 1000, header=(Latin("größe"), b"1")) == 2
    await send_batch(bench, batch)
    await bench.send([event("bob", 0)])
    async with bench.running() as service:
        await until(bench.result, lambda found: sum(found.reasons.values()) >= 3 or service.crash_reason is not None)
    assert (await bench.result()).reasons == {"ACCEPTED": 2, "NOT_JSON": 1}


async def test_an_operator_reads_dead_letters(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts, the last positions, the raw records on demand, and what comes later."""
    bench = Bench(bootstrap, tmp_path, partitions=1)
    await bench.create()
    bad = [b"not \x1b[31mjson", raw(x="half"), raw(at=[]), raw(x="one")]
    async with producing(bootstrap) as producer:
        for value in bad:
            await producer.send_and_wait(bench.source, value, partition=0)
        await bench.send_ticks(producer, 0)
    async with bench.running():
        await bench.until_ticked(0)

        async def told(**options: Any) -> str:
            wanted = options.pop("wanted", lambda letter: True)
            asked = {"last": 20, "going_on": False, "show": False, "as_json": False, **options}
            await _tell(bench.config, wanted, **asked)
            return capsys.readouterr().out

        printed = await told(last=2)
        assert re.search(r"WRONG_TYPE +x +2", printed)
        assert "NOT_JSON" in printed
        assert [line.split("offset ")[1] for line in printed.splitlines() if "offset" in line] == ["2", "3"]
        assert "json" not in printed
        read: list[tuple[int, int]] = []
        await dead_letters(bench.config, lambda letter: True, most=0, read=lambda *now: read.append(now))
        assert len(bad) <= read[-1][0] <= read[-1][1]
        shown = await told(show=True)
        assert '"x": "half"' in shown
        assert "not \\x1b[31mjson" in shown, "a terminal obeys nothing of it"
        found = json.loads(await told(as_json=True, wanted=lambda letter: letter.reason is Reason.WRONG_TYPE))
        assert {(each["field"], each["records"]) for each in found["counts"]} == {("x", 2), ("at", 1)}
        following = asyncio.create_task(told(going_on=True, last=0))
        await asyncio.sleep(1)
        async with producing(bootstrap) as producer:
            await producer.send_and_wait(bench.source, b"later", partition=0)
        printed = ""
        while "offset 5" not in printed:
            await asyncio.sleep(0.1)
            printed += capsys.readouterr().out
        following.cancel()
    with pytest.raises(PrivstreamError, match="Fix: --reason is one of NOT_JSON"):
        _reason("over-bound")
    assert _reason("wrong-type") is Reason.WRONG_TYPE


async def test_a_flood_of_bad_records_is_worked_off(bootstrap: str, tmp_path: Path) -> None:
    bench = Bench(bootstrap, tmp_path, partitions=1)
    await bench.create()
    async with producing(bootstrap, linger_ms=20) as producer:
        for _ in range(10_000):
            await producer.send(bench.source, b"not json", partition=0)
        await producer.send(bench.source, json.dumps(event("ann", 0)).encode(), partition=0)
        await producer.flush()
        await bench.send_ticks(producer, 0)
    async with bench.running(options=IngestOptions()):
        result = await bench.until_ticked(0)
    assert result.reasons == {"ACCEPTED": 1, "NOT_JSON": 10_000}
    assert len(await bench.letters()) == 10_000
