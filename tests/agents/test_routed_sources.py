"""What a stream whose users the job routes itself was started with: its source, and the topic with the copies."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agents.kafka import fingerprint
from agents.kafka.fingerprint import SourceWatch, changed_source, fingerprint_now
from agents.kafka.topics import TopicIdentity
from agents.worker.ingest.specs import source_specs
from schemas.config import Config
from schemas.errors import FingerprintError
from tests.kafka.support import job_config, stream_table

SOURCE, ROUTED = "raw.s", "j.routed.s"
WAS = {SOURCE: TopicIdentity("the source", 2), ROUTED: TopicIdentity("the copies", 3)}
CHANGES: Mapping[str, Mapping[str, TopicIdentity]] = {
    "copies grown": {ROUTED: TopicIdentity("the copies", 4)},
    "copies again": {ROUTED: TopicIdentity("others", 3)},
    "source again": {SOURCE: TopicIdentity("another", 2)},
    "source grown": {SOURCE: TopicIdentity("the source", 5)},
}
FIELDS = {
    "copies grown": "source_partitions",
    "copies again": "source_topic_id",
    "source again": "routed_from_id",
    "source grown": "routed_from_partitions",
}
"""Change -> what the fingerprint calls it. Each would give users a second bound, or offsets other events."""


def config_of(clock: str, tmp_path: Path) -> Config:
    (tmp_path / "user.key").write_bytes(b"k" * 32)
    (tmp_path / "user.key").chmod(0o600)
    table = stream_table("s", partitioner="any")
    table["time"] = {**table["time"], "clock": clock}
    table["privacy"] = {**table["privacy"], "user_key_file": str(tmp_path / "user.key")}
    return job_config("localhost:1", tmp_path, streams=[table], job="j")


@pytest.mark.parametrize("clock", ["wall", "replay"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_would_give_users_another_place_stops_the_stream(
    change: str, clock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a start by the fingerprint, in status and doctor, and within a worker's life. The source may grow, but where
    each of its partitions closes steps."""
    config = config_of(clock, tmp_path)
    [stream] = config.streams
    now = {**WAS, **CHANGES[change]}
    stored = fingerprint_now(stream, config, WAS, "key", insecure=False)
    asked = fingerprint_now(stream, config, now, "key", insecure=False)
    looked = asyncio.run(look(config, now, monkeypatch))
    if (change, clock) == ("source grown", "wall"):
        stored.check(asked)
        assert changed_source(config, stream, stored, now) is None
        assert not looked
        return
    assert set(stored.differing(asked)) == {FIELDS[change]}
    with pytest.raises(FingerprintError, match="Start a new stream under another name") as refused:
        stored.check(asked)
    error = changed_source(config, stream, stored, now)
    assert error is not None
    [topic] = CHANGES[change]
    assert looked.keys() == {topic}
    for said in (str(refused.value), str(error), str(looked[topic])):
        assert "--add-partitions" not in said, "which refuses this topic"
    assert str(looked[topic]) == str(error)


async def look(
    config: Config, now: Mapping[str, TopicIdentity], monkeypatch: pytest.MonkeyPatch
) -> Mapping[str, Exception]:
    async def identities(_: Any, topics: Any) -> dict[str, TopicIdentity]:
        return {topic: now[topic] for topic in topics if topic in now}

    monkeypatch.setattr(fingerprint, "topic_identities", identities)
    monkeypatch.setattr(fingerprint, "SURE_S", 0.0)
    specs = source_specs(
        config, source_partitions={"s": WAS[ROUTED].partitions}, topic_partitions={SOURCE: WAS[SOURCE].partitions}
    )
    return await SourceWatch(specs, WAS).look(None, specs.keys())
