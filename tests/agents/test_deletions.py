"""Private records are deleted together, and a partition that refuses keeps no other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import KafkaError

from agents.worker import trimming
from agents.worker.trimming import Deletions, Trimmer
from tests.kafka.support import job_config, stream_table

BLOCKS, LOG = TopicPartition("j.blocks", 0), TopicPartition("j.releases", 3)


class Cluster:
    """Attributes: requests: below which offsets each asked to delete. refuses: partitions that no request may name."""

    def __init__(self) -> None:
        self.clients, self.requests = 0, list[dict[TopicPartition, int]]()
        self.refuses: set[TopicPartition] = set()
        self.topics: list[list[str]] = []

    async def _get_cluster_metadata(self, topics: list[str] | None = None) -> None:
        self.topics.append(sorted(topics or ["all"]))

    async def delete_records(self, records: Mapping[TopicPartition, RecordsToDelete]) -> None:
        await self._get_cluster_metadata()
        self.requests.append({each: record.before_offset for each, record in records.items()})
        await asyncio.sleep(0)
        if self.refuses & set(records):
            raise KafkaError


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()

    @contextlib.asynccontextmanager
    async def admin_client(_: Any) -> AsyncIterator[Cluster]:
        found.clients += 1
        yield found

    monkeypatch.setattr(trimming, "admin_client", admin_client)
    monkeypatch.setattr(trimming, "TOGETHER_S", 0.0)
    return found


def deletions(folder: Path, **job: Any) -> Deletions:
    config = job_config("localhost:1", folder, streams=[stream_table("s")], partitions=1, job="j")
    return Deletions(config.model_copy(update={"job": config.job.model_copy(update=job)}))


async def settled(made: Deletions) -> None:
    if made._task is not None:
        await made._task


async def test_what_waits_goes_in_one_request_of_one_client(cluster: Cluster, tmp_path: Path) -> None:
    made = deletions(tmp_path)
    for partition, offset in ((BLOCKS, 3), (LOG, 7), (BLOCKS, 9), (BLOCKS, 5)):
        made.below(partition, offset)
    await settled(made)
    assert (cluster.clients, cluster.requests) == (1, [{BLOCKS: 9, LOG: 7}])
    # Of no other topics is asked who leads them.
    assert cluster.topics == [["j.blocks", "j.releases"]]
    made.below(BLOCKS, 9)
    made.below(LOG, 8)
    await settled(made)
    assert cluster.requests[1:] == [{LOG: 8}]


async def test_what_is_wanted_meanwhile_is_deleted_next(cluster: Cluster, tmp_path: Path) -> None:
    made = deletions(tmp_path)
    made.below(BLOCKS, 3)
    while not cluster.requests:  # noqa: ASYNC110 - the fake sets no event
        await asyncio.sleep(0)
    made.below(BLOCKS, 4)
    await settled(made)
    assert (cluster.clients, cluster.requests) == (1, [{BLOCKS: 3}, {BLOCKS: 4}])


async def test_one_that_refuses_keeps_no_other_and_is_tried_again(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = deletions(tmp_path)
    cluster.refuses = {BLOCKS}
    made.below(BLOCKS, 3)
    made.below(LOG, 7)
    with caplog.at_level(logging.WARNING):
        await settled(made)
    assert cluster.requests == [{BLOCKS: 3, LOG: 7}, {BLOCKS: 3}, {LOG: 7}]
    assert [record.getMessage() for record in caplog.records] == ["j.blocks-0: not trimmed, KafkaError"]
    cluster.refuses = set()
    made.below(LOG, 8)
    await settled(made)
    assert cluster.requests[3:] == [{BLOCKS: 3, LOG: 8}]


async def test_nothing_is_deleted_that_is_kept_or_held_back(cluster: Cluster, tmp_path: Path) -> None:
    deletions(tmp_path, keep_private_log=True).below(BLOCKS, 3)
    made, held = deletions(tmp_path), [True]
    trimmer = Trimmer(made, *BLOCKS, held=lambda: held[0])
    trimmer.below(3)
    await settled(made)
    assert not cluster.requests
    held[0] = False
    trimmer.below(4)
    await settled(made)
    assert cluster.requests == [{BLOCKS: 4}]
