"""A worker whose clock is wrong closes no step before the brokers' time allows it, and says so, on the real broker."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiokafka.admin import NewTopic
from aiokafka.errors import InvalidTimestampError

from agents.kafka.broker_clock import worker_clocks, worker_name
from agents.kafka.topics import _settings, admin_client, create_topics
from agents.protocol.clock import MANY_STEPS
from agents.readers.operator.doctor import cluster_findings
from schemas.config import Kafka
from tests.kafka.ingest_support import Bench
from tests.kafka.support import create, fresh_name, producing

HOUR_S = 3600
LIMIT = "message.timestamp.after.max.ms"
NO_LIMIT = str(2**63 - 1)


async def test_a_clock_that_is_an_hour_ahead(bootstrap: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(bootstrap, tmp_path, partitions=1)
    start_s = int(time.time()) - 600
    wall = {"clock": "wall", "grace": "0s", "start": datetime.fromtimestamp(start_s, UTC).isoformat()[:19]}
    bench.streams = [bench.stream("s", time=wall), bench.stream("short", time={**wall, "step": "50ms"})]
    await create_topics(bench.config, source_partitions=1)
    caplog.set_level(logging.WARNING)
    async with bench.running(now_us=lambda: time.time_ns() // 1000 + HOUR_S * 10**6) as service:
        await bench.until_ticked(9)
        await bench.until_ticked(MANY_STEPS, stream="short")
        bound_s = time.time() + bench.config.job.max_clock_skew_us / 1e6
        assert service.counters.clock_ahead_s is not None
        assert service.counters.clock_ahead_s == pytest.approx(HOUR_S, abs=60)
    for stream, step_s in (("s", 60), ("short", 0.05)):
        assert (await bench.result(stream)).ticks[0] <= (bound_s + 60 - start_s) / step_s, "closed by a wrong clock"
    [line] = [line for line in caplog.messages if "ahead of the broker's" in line]
    assert "NTP" in line
    [backlog] = [line for line in caplog.messages if "steps are over and not published" in line]
    assert f"stream {bench.job}-short" in backlog
    assert await worker_clocks(bench.config) == {worker_name(): pytest.approx(HOUR_S, abs=60)}
    findings = {finding.what: finding for finding in await cluster_findings(bench.config)}
    assert findings[f"clock of {worker_name()}"].verdict == "warning"


async def test_brokers_let_no_record_say_that_it_came_much_later(bootstrap: str) -> None:
    """What docs/guarantee.md, section 8, says of records whose timestamp lies. Brokers before 4.0 must be told."""
    source = fresh_name("raw")
    await create(bootstrap, NewTopic(source, 1, 1))
    async with admin_client(Kafka(bootstrap=bootstrap)) as admin:
        unless_set = (await _settings(admin, [source]))[source][LIMIT]
    assert unless_set in {NO_LIMIT, str(HOUR_S * 1000)}
    if unless_set == NO_LIMIT:
        source = fresh_name("raw")
        await create(bootstrap, NewTopic(source, 1, 1, topic_configs={LIMIT: str(HOUR_S * 1000)}))
    now_ms = time.time_ns() // 10**6
    async with producing(bootstrap) as producer:
        await producer.send_and_wait(source, b"{}", timestamp_ms=now_ms + HOUR_S * 500)
        with pytest.raises(InvalidTimestampError):
            await producer.send_and_wait(source, b"{}", timestamp_ms=now_ms + HOUR_S * 2_000)
