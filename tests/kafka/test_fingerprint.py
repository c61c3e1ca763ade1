"""A stream goes on only with the source, key and guarantee it was started with; what was stored first holds."""

from __future__ import annotations

import asyncio
from datetime import datetime, time
from pathlib import Path
from typing import Any

import pytest

from agents.kafka.fingerprint import Checked, check_fingerprints
from agents.kafka.topics import admin_client, create_topics, topic_identities
from schemas import steps as sequence
from schemas import zones
from schemas.config import Config
from schemas.errors import BrokerError, FingerprintError, LostTopicError
from schemas.topics import Topics
from tests.kafka.support import add_partitions, delete, fresh_name, job_config, producing, records_of, stream_table


async def started(bootstrap: str, folder: Path, **overrides: Any) -> Config:
    config = job_config(bootstrap, folder, streams=[stream_table(fresh_name("s"), **overrides)])
    await create_topics(config, source_partitions=2)
    return config


async def check(config: Config, key: str | None = "key-1") -> Checked:
    return await check_fingerprints(config, user_key_ids={stream.name: key for stream in config.streams})


def changed(config: Config, **section: Any) -> Config:
    """The same job with keys of the stream's sections replaced, such as `privacy={"epsilon": 2}`."""
    table = stream_table(config.streams[0].name)
    for name, values in section.items():
        table[name] = {**table[name], **values} if isinstance(values, dict) else values
    kafka = config.kafka
    assert config.job.data_dir is not None
    return job_config(kafka.bootstrap, config.job.data_dir, streams=[table], job=config.job.name)


async def test_it_is_stored_once_and_the_same_configuration_goes_on(bootstrap: str, tmp_path: Path) -> None:
    config = await started(bootstrap, tmp_path)
    # Two workers start at the same time.
    first, second = await asyncio.gather(check(config), check(config))
    again = await check(config)
    assert first == second == again
    assert again.source_partitions == {config.streams[0].name: 2}
    stored = await records_of(bootstrap, f"{config.job.name}.fingerprints")
    assert 1 <= len(stored) <= 2


REFUSED: dict[str, dict[str, Any]] = {
    "privacy.epsilon": {"privacy": {"epsilon": 2.0}},
    "privacy.max_contributions": {"privacy": {"max_contributions": 4}},
    "time.step_us": {"time": {"step": "30s"}},
    "time.start": {"time": {"start": "2020-01-02T00:00:00"}},
    "domain.bounds": {"domain": {"bounds": [0.0, 0.0, 2.0, 1.0]}},
    "options.depth": {"options": {"depth": 9}},
    "partitioner": {"partitioner": "crc32"},
}


async def test_a_changed_guarantee_is_refused_by_name_and_what_may_change_may_change(
    bootstrap: str, tmp_path: Path
) -> None:
    config = await started(bootstrap, tmp_path)
    await check(config)
    for field, section in REFUSED.items():
        with pytest.raises(FingerprintError, match=field) as refusal:
            await check(changed(config, **section))
        assert "set it back" in str(refusal.value)
    await check(changed(config, publish_delay="5s", time={"grace": "1s"}))
    with pytest.raises(FingerprintError, match="old key file"):
        await check(config, "key-2")
    await check(config)


async def test_new_streams_are_refused_if_the_ledger_of_one_has_steps_that_no_fingerprint_speaks_of(
    bootstrap: str, tmp_path: Path
) -> None:
    """Whichever of them it is: nobody could tell how private these steps are. Nothing is stored then."""
    streams = [stream_table(fresh_name("s")) for _ in range(3)]
    config = job_config(bootstrap, tmp_path, streams=streams)
    await create_topics(config, source_partitions=2)
    ledger = Topics.ledger(config.streams[1].name)
    async with producing(bootstrap) as producer:
        await producer.send_and_wait(ledger, b"of another job", key=b"0", partition=0)
    with pytest.raises(LostTopicError, match=f"stream {config.streams[1].name}: .* and {ledger} has steps of it"):
        await check(config)
    assert await records_of(bootstrap, f"{config.job.name}.fingerprints") == []


async def test_a_source_topic_that_was_created_again_is_read_no_more(bootstrap: str, tmp_path: Path) -> None:
    config = await started(bootstrap, tmp_path)
    source = config.streams[0].source
    async with admin_client(config.kafka) as admin:
        before = (await topic_identities(admin, [source]))[source]
    await check(config)
    await delete(bootstrap, source)
    with pytest.raises(BrokerError, match="does not exist"):
        await check(config)
    await create_topics(config, source_partitions=2)
    async with admin_client(config.kafka) as admin:
        after = (await topic_identities(admin, [source]))[source]
    assert (before.partitions, after.partitions) == (2, 2)
    assert before.id != after.id
    [error] = (await check(config)).changed.values()
    assert "made again" in str(error)
    with pytest.raises(FingerprintError, match=r"privacy\.epsilon"):  # not its source alone
        await check(changed(config, privacy={"epsilon": 2.0}))


async def test_a_source_topic_with_more_partitions_is_read_no_more(bootstrap: str, tmp_path: Path) -> None:
    config = await started(bootstrap, tmp_path)
    await check(config)
    await add_partitions(bootstrap, config.streams[0].source, 3)
    checked = await check(config)
    [error] = checked.changed.values()
    assert "has 3 partitions and had 2" in str(error)
    assert checked.source_partitions == {config.streams[0].name: 2}, "what was read is of so many"


async def test_now_is_decided_once(bootstrap: str, tmp_path: Path) -> None:
    timing = {"field": "at", "format": "s", "start": "now", "step": "60s", "clock": "wall"}
    config = await started(bootstrap, tmp_path, time=timing)
    first = await check(config)
    start = first.config.streams[0].time.start
    assert start != "now"
    assert first.config.streams[0].time.start_us is not None
    await asyncio.sleep(1.1)
    assert (await check(config)).config.streams[0].time.start == start
    # Of a stream that cannot start, too: its publisher is opened beside the others.
    name = config.streams[0].name
    held = await check_fingerprints(config, user_key_ids={name: "key-1"}, without={name})
    assert held.config.streams[0].time.start == start


async def test_steps_of_the_calendar_are_those_of_the_first_start(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a stream that starts now: its step 0 is the week that is under way. Another database of zones refuses."""
    timing = {"field": "at", "start": "now", "step": "1 week", "clock": "wall", "timezone": "Europe/Berlin"}
    config = await started(bootstrap, tmp_path, time=timing)
    first, second = await asyncio.gather(check(config), check(config))
    begin = datetime.fromisoformat(first.config.streams[0].time.start)
    assert first == second
    assert (begin.weekday(), begin.time()) == (0, time())
    assert (await check(config)).config == first.config
    with monkeypatch.context() as patch:
        patch.setattr(sequence, "zone", lambda name: zones.zone("Europe/London"))
        sequence._begins.cache_clear()
        with pytest.raises(FingerprintError, match=r"time\.begins was .*tzdata"):
            await check(config)
    sequence._begins.cache_clear()
    assert (await check(config)).config == first.config


@pytest.mark.parametrize("insecure_first", [True, False])
async def test_insecure_seeds_are_for_a_whole_stream_or_not_at_all(
    bootstrap: str, tmp_path: Path, insecure_first: bool
) -> None:
    """A seed that was committed under --insecure-seed must never make the noise of a release that claims to be
    private.
    """
    config = await started(bootstrap, tmp_path)
    keys = {stream.name: "key-1" for stream in config.streams}
    await check_fingerprints(config, user_key_ids=keys, insecure=insecure_first)
    with pytest.raises(FingerprintError, match="seeds was"):
        await check_fingerprints(config, user_key_ids=keys, insecure=not insecure_first)


async def test_a_refused_start_decides_nothing_for_new_streams(bootstrap: str, tmp_path: Path) -> None:
    known = await started(bootstrap, tmp_path)
    await check(known)
    tables = [stream_table(known.streams[0].name), stream_table(fresh_name("s"))]
    tables[0]["privacy"] = {**tables[0]["privacy"], "epsilon": 2.0}
    both = job_config(bootstrap, tmp_path, streams=tables, job=known.job.name)
    await create_topics(both, source_partitions=2)
    with pytest.raises(FingerprintError):
        await check(both)
    assert len([record.value for record in await records_of(bootstrap, f"{known.job.name}.fingerprints")]) == 1
