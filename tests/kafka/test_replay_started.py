"""A replay writes nothing into a stream that was started with other steps, users or topics than it goes by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import agents.local.offline.replay
from agents.kafka.fingerprint import check_fingerprints
from agents.kafka.topics import create_topics
from agents.local.offline.replay import last_ticks, replay
from agents.protocol.replay import ReplayError
from schemas import steps as sequence
from schemas import zones
from schemas.config import Config
from schemas.errors import FingerprintError
from schemas.events import read_tick
from tests.kafka.support import fresh_name, job_config, records_of, stream_table

PARTITIONS = 2
DAYS = {
    "field": "at",
    "format": "s",
    "start": "2020-06-01",
    "step": "1 day",
    "clock": "replay",
    "timezone": "Europe/Berlin",
}
AT = int(datetime(2020, 6, 2, tzinfo=UTC).timestamp())


async def job(bootstrap: str, folder: Path, *names: str, **overrides: Any) -> Config:
    """Streams of one source."""
    names = names or (fresh_name("s"),)
    tables = [stream_table(name, **{"time": DAYS, "source": f"raw.{names[0]}", **overrides}) for name in names]
    config = job_config(bootstrap, folder, streams=tables)
    await create_topics(config, source_partitions=PARTITIONS)
    return config


def changed(config: Config, **section: Any) -> Config:
    """The same job with keys of its last stream replaced."""
    tables = [stream_table(each.name, time=DAYS, source=each.source) for each in config.streams]
    for name, values in section.items():
        tables[-1][name] = {**tables[-1][name], **values} if isinstance(values, dict) else values
    assert config.job.data_dir is not None
    return job_config(config.kafka.bootstrap, config.job.data_dir, streams=tables, job=config.job.name)


async def start(config: Config, **options: Any) -> None:
    """As a worker does, which has a key that no replay has."""
    await check_fingerprints(config, user_key_ids={each.name: "key-1" for each in config.streams}, **options)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    lines = (f'{{"at": {AT + at * 43_200}, "user": "u{at % 3}", "x": 0.5, "y": 0.5}}\n' for at in range(8))
    path.write_text("".join(lines))
    return path


async def run(config: Config, path: Path, **options: Any) -> int:
    return (await replay(config, config.streams[0], path, **options)).rows


async def sent(config: Config) -> int:
    return len(await records_of(config.kafka.bootstrap, config.streams[0].source))


@contextmanager
def database_of(zone: str) -> Iterator[None]:
    """A machine whose database says of every zone what ours says of this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sequence, "zone", lambda name: zones.zone(zone))
        sequence._begins.cache_clear()
        yield
    sequence._begins.cache_clear()


async def test_another_database_of_zones_writes_nothing(bootstrap: str, tmp_path: Path, rows: Path) -> None:
    config = await job(bootstrap, tmp_path)
    await start(config, insecure=True)
    with database_of("Europe/London"):
        with pytest.raises(FingerprintError, match=r"time\.begins was .* Install tzdata"):
            await run(config, rows)
        with pytest.raises(FingerprintError, match=r"time\.begins"):
            await run(config, rows, then_live=True)
    assert await sent(config) == 0
    assert await run(config, rows) == 8


OTHERWISE: dict[str, dict[str, Any]] = {
    r"time\.start was": {"time": {"start": "2020-05-31"}},
    r"time\.step was": {"time": {"step": "2 days"}},
    "partitioner was": {"partitioner": "crc32"},
    r"privacy\.epsilon was": {"privacy": {"epsilon": 2.0}},
}


async def test_what_is_configured_otherwise_is_refused_by_name(bootstrap: str, tmp_path: Path, rows: Path) -> None:
    config = await job(bootstrap, tmp_path)
    await start(config)
    for field, section in OTHERWISE.items():
        with pytest.raises(FingerprintError, match=f"{field}.*set it back"):
            await run(changed(config, **section), rows)
    assert await sent(config) == 0


async def test_all_streams_that_go_live_together_are_held_to_it(bootstrap: str, tmp_path: Path, rows: Path) -> None:
    config = await job(bootstrap, tmp_path, fresh_name("a"), fresh_name("b"))
    first, second = config.streams
    said: list[tuple[str, ...]] = []
    done = await replay(config, first, rows, limit=0, on_unstarted=said.append)
    assert said.pop() == done.unstarted == (first.name,), "nothing is there to compare with"
    await start(config.model_copy(update={"streams": (first,)}))
    with pytest.raises(ReplayError, match="not over yet"):
        await replay(config, first, rows, then_live=True, until="2300-01-01", on_unstarted=said.append)
    assert said.pop() == (second.name,), "they go live together"
    await start(config)
    done = await replay(config, first, rows, limit=0, on_unstarted=said.append)
    assert (said, done.unstarted) == ([], ())
    other = changed(config, domain={"bounds": [0.0, 0.0, 2.0, 1.0]})
    with pytest.raises(FingerprintError, match=f"(?s)stream {config.streams[1].name} .*domain.bounds"):
        await run(other, rows, then_live=True)
    assert await run(other, rows) == 8, "the first stream is what it was"


@pytest.mark.parametrize("chunk_rows", [2, 8], ids=["under way", "at its end"])
async def test_a_stream_that_is_started_meanwhile_is_compared_then(
    bootstrap: str, tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch, chunk_rows: int
) -> None:
    config = await job(bootstrap, tmp_path)
    commit = agents.local.offline.replay._commit
    commits: list[Any] = []

    async def committed(producer: Any, chunk: Any) -> None:
        await commit(producer, chunk)
        if not commits:
            with database_of("Europe/London"):
                await start(config)
        commits.append(chunk)

    monkeypatch.setattr(agents.local.offline.replay, "_commit", committed)
    monkeypatch.setattr(agents.local.offline.replay, "MEANWHILE_S", 0.0 if chunk_rows == 2 else 600.0)
    with pytest.raises(FingerprintError, match=r"(?s)time\.begins.*while this replay was under way.*new topic"):
        await run(config, rows, then_live=True, yes=True, chunk_rows=chunk_rows)
    ticks = await last_ticks(config.kafka, {config.streams[0].source: PARTITIONS})
    said = [read_tick(tick or b"") for tick in ticks]
    assert [(tick.step, tick.live_from) for tick in said] == [(0 if chunk_rows == 2 else 4, None)] * PARTITIONS
