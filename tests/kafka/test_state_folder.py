"""A worker whose state folder nobody configured: it has one for this cluster, and an empty one costs no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.kafka.topics import create_topics
from agents.worker.process import with_folder
from tests.kafka.test_engine import feed, ledger, one_stream, published, running
from tests.kafka.test_recovery import keeping, one_answer_each


async def test_an_empty_folder_is_filled_from_kafka_and_no_step_is_answered_twice(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a new default place, a new machine or a lost disk is to a running stream."""
    monkeypatch.chdir(tmp_path)
    config = keeping(one_stream(bootstrap, tmp_path), data_dir=None)
    await create_topics(config)
    places = []
    for home, steps in (("one", 3), ("two", 5), ("one", 6)):  # the last one is behind, as a disk that came back
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / home))
        resolved = await with_folder(config)
        assert resolved.job.data_dir is not None
        places.append(resolved.job.data_dir)
        await feed(config, range({3: 0, 5: 3, 6: 5}[steps], steps))
        async with running(resolved):
            await published(config, steps)
    cluster = {place.name for place in places}
    assert len(cluster) == 1, "one cluster has one id"
    assert places[0] == places[2] != places[1]
    assert all((place / config.job.name).is_dir() for place in places)
    await one_answer_each(config, 6)
    assert len(await ledger(config, committed=False)) == 6
    assert not (tmp_path / "privstream-data").exists()
