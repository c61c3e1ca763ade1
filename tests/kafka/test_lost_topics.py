"""A job that has lost a private topic says so wherever it is asked, and does not go on, on the real broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
from aiokafka.admin import NewTopic

import agents.worker.audit
import agents.worker.topic_watch
from agents.kafka.cluster import passes
from agents.kafka.status import status
from agents.kafka.topics import check_topics, create_topics
from agents.protocol.ingest.dead_letters import DeadLetter
from agents.protocol.partitioner import home_partition
from agents.readers.operator.doctor import cluster_findings
from agents.worker.app import ROLES
from agents.worker.process import prepare
from schemas.blocks import Block
from schemas.errors import BrokerError, GapError, TopicError
from schemas.topics import Topics
from tests.kafka.ingest_support import Bench, crowd
from tests.kafka.support import create, delete, delete_records, empty_compacted, producing, records_of, until, worker
from tests.kafka.test_streams_alone import EVENTS, Twins

pytestmark = pytest.mark.seconds(10)


async def _history(bench: Bench) -> None:
    """Blocks of which the first are deleted, as the engine does it, and snapshots that stand for them."""
    await bench.create()
    async with bench.running():
        for step in range(6):
            await bench.send(crowd(step))
            await bench.tick(step)
            await bench.until_ticked(step)
    home = home_partition(f"{bench.job}-s", 2)
    records = await records_of(bench.bootstrap, bench.topics.blocks, partition=home)
    floor = max(Block.decode(record.value).floor for record in records)
    assert floor > 0
    await delete_records(bench.bootstrap, bench.topics.blocks, home, before=floor)


async def _made_again(bench: Bench) -> None:
    """Deleted; not made again by the job's own command; made again by hand."""
    bounds = bench.topics.bounds
    await delete(bench.bootstrap, bounds)
    with pytest.raises(BrokerError, match=rf"{bounds}: is gone.*must not be made again"):
        await create_topics(bench.config)
    [problem] = [each for each in await check_topics(bench.config) if each.topic == bounds]
    assert "must not be made again" in problem.reason
    assert "--create" not in problem.fix
    settings = next(dict(topic.settings) for topic in bench.topics.private() if topic.name == bounds)
    await create(bench.bootstrap, NewTopic(bounds, 2, 1, topic_configs=settings))


async def _cut(bench: Bench) -> None:
    """With another cleanup.policy for a moment, as retention would have it."""
    await empty_compacted(bench.config, bench.topics.bounds)


@pytest.mark.parametrize(
    ("lose", "says"), [(_made_again, "deleted and made again"), (_cut, "has lost its first records")]
)
async def test_a_lost_bounds_topic_is_refused(
    bootstrap: str,
    tmp_path: Path,
    lose: Callable[[Bench], Awaitable[None]],
    says: str,
) -> None:
    bench = Bench(bootstrap, tmp_path, partitions=1)
    await _history(bench)
    await create_topics(bench.config)
    assert await check_topics(bench.config, bounds=True) == []
    await lose(bench)
    await until(
        lambda: check_topics(bench.config, bounds=True), lambda found: any(says in each.reason for each in found)
    )  # brokers know of a change a moment later
    findings = await cluster_findings(bench.config)
    assert any(each.verdict == "problem" and says in each.detail and "anew" in each.fix for each in findings)
    with pytest.raises(GapError, match=r"has lost snapshots.*Restore the private topics.*under another name"):
        async with bench.running() as service:
            await until(lambda: service.crash_reason is not None)


@pytest.fixture
def twins(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Twins:
    """Streams a, which has held-out events, and b."""
    monkeypatch.setattr(agents.worker.topic_watch, "LOOK_S", 0.5)
    monkeypatch.setattr(agents.worker.audit, "CHECKPOINT_S", 0.0)
    return Twins(bootstrap, tmp_path, audit=True)


async def _made_by_hand(twins: Twins, topic: str) -> None:
    [like] = [each for each in twins.topics.private() if each.name == topic]
    await create(twins.bootstrap, NewTopic(topic, 1, 1, topic_configs=dict(like.settings)))


async def _audited(twins: Twins) -> set[int]:
    return {int(record.key) for record in await records_of(twins.bootstrap, Topics.utility(twins.a))}


async def test_lost_held_out_events_stop_an_audit_and_at_a_start_all(
    twins: Twins, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic is deleted under a running worker, is missing at a start, and is back as it was earlier."""
    config, truth = twins.config(), twins.topics.held_out
    await twins.create()
    await twins.send(range(2))
    async with worker(config) as app:
        await until(lambda: _audited(twins), lambda found: found == {0, 1})
        early = await records_of(twins.bootstrap, truth)
        await delete(twins.bootstrap, truth)
        await until(lambda: f"STOPPED: stream {twins.a} (audit): topic {truth} was deleted" in caplog.text)
        await twins.send(range(2, 4))
        for stream in (twins.a, twins.b):
            await twins.until_public(stream, 3)
        assert app.crash_reason is None
    with pytest.raises(TopicError, match=rf"{truth}: is gone, with all it held.*must not be made again empty"):
        await prepare(config, insecure_seed=None, roles=ROLES)
    await _made_by_hand(twins, truth)
    async with producing(twins.bootstrap) as producer:
        for record in early[:1]:
            await producer.send_and_wait(truth, record.value, key=record.key, partition=0)
    caplog.clear()
    await twins.send(range(4, 5))
    async with worker(config) as app:
        await until(lambda: f"STOPPED: stream {twins.a} (audit): " in caplog.text)
        for stream in (twins.a, twins.b):
            await twins.until_public(stream, 4)
        assert app.crash_reason is None
        assert f"STOPPED: stream {twins.b}" not in caplog.text
    assert await _audited(twins) == {0, 1}


async def test_topics_for_people_alone_are_made_again_and_no_event_counts_twice(twins: Twins) -> None:
    """Dead letters and what has stopped: a start says how to make them; of letters, a worker ends that cannot write.
    Held-out events that were deleted stop their audit alone.
    """
    config, letters, stops = twins.config(), twins.topics.dead_letters, twins.topics.stops
    await twins.begin(2)
    await delete(twins.bootstrap, stops)
    await delete_records(twins.bootstrap, twins.topics.held_out)
    with pytest.raises(TopicError, match=rf"(?s){stops}: does not exist.*topics --create"):
        await prepare(config, insecure_seed=None, roles=ROLES)
    assert await twins.stopped(config) == {twins.a: [], twins.b: []}
    assert await create_topics(config) == [stops]
    async with worker(config) as app:
        await delete(twins.bootstrap, letters)
        await twins.send(range(2, 3))  # while nothing is refused nobody misses it
        for stream in (twins.a, twins.b):
            await twins.until_public(stream, 2)
        assert app.crash_reason is None
        await until(lambda: twins.stopped(config), lambda found: found == {twins.a: ["audit"], twins.b: []})
        async with producing(twins.bootstrap) as producer:
            await producer.send_and_wait(twins.source, b"no event", partition=0)
        await until(lambda: app.crash_reason is not None)
        assert passes(cast("BaseException", app.crash_reason))
        app.crash_reason = None
    with pytest.raises(TopicError, match=rf"(?s){letters}: does not exist.*topics --create"):
        await prepare(config, insecure_seed=None, roles=ROLES)
    assert await create_topics(config) == [letters]
    await twins.send(range(3, 4))
    async with worker(config):
        for stream in (twins.a, twins.b):
            await twins.until_public(stream, 3)
    for state in await status(config):
        assert state.totals["ACCEPTED"] == {"": 4 * EVENTS}
        assert state.totals["NOT_JSON"] == {"": 1}
    refused = [DeadLetter.decode(each.value) for each in await records_of(twins.bootstrap, letters)]
    assert sorted((each.stream, each.reason.name) for each in refused) == [(twins.a, "NOT_JSON"), (twins.b, "NOT_JSON")]
